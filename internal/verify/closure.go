package verify

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sourcegraph/conc/pool"

	"payload/internal/manifest"
)

// object is one ELF file, as far as the loader looks at it.
type object struct {
	path    string // in the payload
	arch    string
	interp  string // the loader it asks for; empty for a library
	needed  []string
	rpath   []string // DT_RPATH, ignored by the loader when there is a RUNPATH
	runpath []string
	symbols elfSymbols

	// What came out of resolving what is needed.
	loads   []*object
	system  []string // of the declared system libraries
	unknown bool     // something of it was not found, and was reported
}

// readObjects opens every ELF file of the payload, in order of path.
func readObjects(res *Result, dir string, files []manifest.File) []*object {
	found := readEach(res, dir, files, "elf.unreadable", "ELF", readObject)
	var objects []*object
	for i, o := range found {
		if o != nil {
			o.path = files[i].Path
			objects = append(objects, o)
		}
	}
	return objects
}

// namedError is a fault of a file that has a kind of finding of its own.
type namedError struct {
	id  string
	err error
}

func (e *namedError) Error() string { return e.err.Error() }
func (e *namedError) Unwrap() error { return e.err }

// readEach reads the files of a payload that are no links, side by side, and
// gives what came out of each; nothing for one that can't be read, which is a
// finding with that id.
func readEach[T any](res *Result, dir string, files []manifest.File, id, kind string, read func(file string) (T, error)) []T {
	found, failed := make([]T, len(files)), make([]error, len(files))
	work := pool.New().WithMaxGoroutines(max(2, runtime.GOMAXPROCS(0)))
	for i, f := range files {
		if f.Link == "" {
			work.Go(func() { found[i], failed[i] = read(filepath.Join(dir, filepath.FromSlash(f.Path))) })
		}
	}
	work.Wait()
	for i, err := range failed {
		if err != nil {
			found[i] = *new(T)
			id := id
			if named, ok := errors.AsType[*namedError](err); ok {
				id = named.id
			}
			res.static(id, files[i].Path, files[i].Path+" is a damaged "+kind+" file", err.Error(), files[i].Path)
		}
	}
	return found
}

// readObject gives nil for a file that isn't ELF.
func readObject(file string) (*object, error) {
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := r.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return nil, nil // too short to be ELF
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil, nil // an object or core file: the loader never sees it
	}
	o := &object{arch: manifest.ELFArch(f.Machine)}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			interp, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			o.interp = strings.TrimRight(string(interp), "\x00")
		}
	}
	if o.needed, err = f.ImportedLibraries(); err != nil {
		return nil, err
	}
	if o.rpath, err = searchPath(f, elf.DT_RPATH); err != nil {
		return nil, err
	}
	if o.runpath, err = searchPath(f, elf.DT_RUNPATH); err != nil {
		return nil, err
	}
	o.symbols, err = readSymbols(f)
	return o, err
}

func searchPath(f *elf.File, tag elf.DynTag) ([]string, error) {
	values, err := f.DynString(tag)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, v := range values {
		dirs = append(dirs, strings.Split(v, ":")...)
	}
	return dirs, nil
}

// universal is the declared architecture of payloads for each kind of Mac.
const universal = "universal"

// checkArch reports files that are not for the declared architecture, the
// program's where none is declared, or most files'. In a universal payload each
// file has to be for both, but what its manifest says may be for one, and a folder
// where all are for the same one.
func checkArch(res *Result, files []manifest.File, program string, d described) {
	declared := d.declaredArch()
	count := map[string]int{}
	folders := map[string][]string{}
	for _, f := range files {
		if f.Arch == "" || f.Link != "" {
			continue
		}
		for arch := range strings.SplitSeq(f.Arch, "+") { // a universal file is for several
			count[arch]++
			if f.Path == program {
				count[arch] += len(files)
			}
		}
		if dir := path.Dir(f.Path); !slices.Contains(folders[dir], f.Arch) {
			folders[dir] = append(folders[dir], f.Arch)
		}
	}
	for arch, n := range count {
		if n > count[res.Static.Arch] || n == count[res.Static.Arch] && arch < res.Static.Arch {
			res.Static.Arch = arch
		}
	}
	if declared != "" && len(count) > 0 {
		res.Static.Arch = declared
	}
	for _, f := range files {
		if f.Arch == "" || f.Link != "" || slices.Contains(strings.Split(f.Arch, "+"), res.Static.Arch) {
			continue
		}
		if dir := path.Dir(f.Path); res.Static.Arch == universal && (strings.Contains(f.Arch, "+") || d.single(f.Path) || dir != "." && len(folders[dir]) == 1) {
			continue
		}
		res.static("arch.wrong", f.Path, fmt.Sprintf("%s is for %s, the payload for %s", f.Path, f.Arch, res.Static.Arch), "", f.Path)
	}
}

// closure follows what every ELF file needs, by the loader's rules, with the
// payload as the only place that is known.
type closure struct {
	res     *Result
	dir     string
	sys     platform
	relies  map[string]bool // files of the group that this one is unpacked over
	files   map[string]manifest.File
	real    func(string) string
	objects map[string]*object
	seen    map[string]bool
}

func checkClosure(res *Result, dir string, files []manifest.File, objects []*object, relies map[string]bool) {
	c := &closure{res: res, dir: dir, sys: platforms["linux"], relies: relies, objects: map[string]*object{}, seen: map[string]bool{}}
	c.files, c.real = layout(files)
	for _, o := range objects {
		c.objects[o.path] = o
	}
	// A program lends its RPATH to what it loads, so programs go first. What
	// no one needs is loaded by name at run time, and stands for itself.
	slices.SortStableFunc(objects, func(a, b *object) int { return loadRank(a) - loadRank(b) })
	for _, o := range objects {
		c.checkSearchPath(o)
		if o.interp != "" && (!c.sys.systemLibrary(path.Base(o.interp)) || !c.sys.inFolders(o.interp)) {
			res.static("closure.outside", o.path+":"+o.interp, fmt.Sprintf("%s starts through %s, which is not a declared loader", o.path, o.interp), "", o.path)
		}
	}
	needed := map[string]bool{}
	for _, o := range objects {
		for _, name := range o.needed {
			needed[name] = true
		}
	}
	for _, o := range objects {
		if !needed[path.Base(o.path)] {
			c.visit(o, nil)
		}
	}
	for _, o := range objects { // what only others need, under a link's name or in a circle
		c.visit(o, nil)
	}
	checkSymbols(res, c.sys, objects)
}

func loadRank(o *object) int {
	if o.interp != "" {
		return 0
	}
	return 1
}

func (c *closure) checkSearchPath(o *object) {
	for _, dir := range slices.Concat(o.rpath, o.runpath) {
		what := o.path + ":" + dir
		switch {
		case strings.HasPrefix(dir, "/"):
			detail := "a user's machine has no such folder"
			if exists(dir) {
				detail = "this machine has the folder, a user's has not: a build tree's rpath hides what is missing"
			}
			c.res.static("rpath.absolute", what, fmt.Sprintf("%s searches the absolute folder %s", o.path, dir), detail, o.path)
		case !originRelative(dir):
			c.res.static("rpath.relative", what, fmt.Sprintf("%s searches %q, which depends on the working folder", o.path, dir), "only folders below $ORIGIN are found again", o.path)
		}
	}
}

func originRelative(dir string) bool {
	rest, ok := cutOrigin(dir)
	return ok && (rest == "" || rest[0] == '/') && !strings.Contains(rest, "$")
}

func cutOrigin(dir string) (string, bool) {
	if rest, ok := strings.CutPrefix(dir, "${ORIGIN}"); ok {
		return rest, true
	}
	return strings.CutPrefix(dir, "$ORIGIN")
}

// visit resolves what o needs. loaders are the objects that led to it, nearest
// first.
func (c *closure) visit(o *object, loaders []*object) {
	if c.seen[o.path] {
		return
	}
	c.seen[o.path] = true
	chain := append([]*object{o}, loaders...)
	for _, name := range o.needed {
		found := c.resolve(name, chain)
		switch {
		case found != nil:
			o.loads = append(o.loads, found)
			c.visit(found, chain)
		case c.sys.systemLibrary(name):
			o.system = append(o.system, name)
		default:
			o.unknown = true
		}
	}
}

// resolve finds the library name for chain[0]. It reports what can't be found,
// and gives nil for that and for the system's libraries.
func (c *closure) resolve(name string, chain []*object) *object {
	o := chain[0]
	what := o.path + ":" + name
	if strings.Contains(name, "/") {
		c.res.static("closure.outside", what, fmt.Sprintf("%s needs %s by its path", o.path, name), "the loader takes a name with a slash as it is", o.path)
		return nil
	}
	for _, dir := range searched(chain) {
		file := path.Join(dir, name)
		switch {
		case path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../"):
			host := file
			if !path.IsAbs(dir) {
				host = filepath.Join(c.dir, filepath.FromSlash(file))
			}
			if exists(host) {
				c.res.static("closure.outside", what, fmt.Sprintf("%s takes %s from outside the payload", o.path, name), "found in "+dir, o.path)
				return nil
			}
		case c.relies[file]:
			return nil
		case c.real(file) != "":
			found := c.objects[c.real(file)]
			if found == nil {
				c.res.static("closure.missing", what, fmt.Sprintf("%s needs %s, and what has that name is no library", o.path, name), "the loader stops at "+file, o.path, file)
			}
			return found
		}
	}
	if c.sys.systemLibrary(name) {
		return nil
	}
	for _, p := range slices.Sorted(maps.Keys(c.files)) {
		if path.Base(p) == name && related(path.Dir(p), path.Dir(o.path)) {
			c.res.static("rpath.missing", what, fmt.Sprintf("%s needs %s but does not search for it where it lies", o.path, name),
				fmt.Sprintf("%s is in the payload; the search path of %s is %s", p, o.path, orNone(searched(chain))), o.path)
			return nil
		}
	}
	c.res.static("closure.missing", what, fmt.Sprintf("%s needs %s, which is neither in the payload nor a declared system library", o.path, name),
		"the search path is "+orNone(searched(chain)), o.path)
	return nil
}

// related says whether one folder lies in the other. What lies beside is another
// backend's, with libraries of the same names.
func related(a, b string) bool {
	return a == b || a == "." || b == "." || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// searched lists the folders that the loader looks into for chain[0]: its
// RUNPATH, or else the RPATHs of itself and its loaders. Folders in the
// payload are relative to it.
func searched(chain []*object) []string {
	var dirs []string
	add := func(o *object, list []string) {
		for _, dir := range list {
			if rest, ok := cutOrigin(dir); ok {
				dirs = append(dirs, path.Join(path.Dir(o.path), rest))
			} else if path.IsAbs(dir) {
				dirs = append(dirs, path.Clean(dir))
			}
		}
	}
	if len(chain[0].runpath) > 0 {
		add(chain[0], chain[0].runpath)
		return dirs
	}
	for _, o := range chain {
		if len(o.runpath) == 0 {
			add(o, o.rpath)
		}
	}
	return dirs
}

func orNone(dirs []string) string {
	if len(dirs) == 0 {
		return "empty"
	}
	return strings.Join(dirs, ":")
}
