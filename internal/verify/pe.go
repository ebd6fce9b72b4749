package verify

import (
	"debug/pe"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"payload/internal/manifest"

	"github.com/ianlancetaylor/demangle"
)

// dll is one PE file, a program or a library, as far as Windows' loader looks at
// it.
type dll struct {
	path    string // in the payload
	program bool
	needed  []string // as they are written; case does not count
	imports []foreign
	exports map[string]foreign // and to what of another library each is passed on
}

// readDLLs opens every PE file of the payload, in order of path.
func readDLLs(res *Result, dir string, files []manifest.File) []*dll {
	var found []*dll
	for i, d := range readEach(res, dir, files, "pe.unreadable", "PE", readDLL) {
		if d != nil {
			d.path = files[i].Path
			found = append(found, d)
		}
	}
	return found
}

// readDLL gives nil for a file that isn't PE.
func readDLL(file string) (*dll, error) {
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	if !manifest.IsPE(r) {
		return nil, nil
	}
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	f, err := pe.NewFile(r)
	if err != nil {
		return nil, err
	}
	d := &dll{program: f.Characteristics&pe.IMAGE_FILE_DLL == 0}
	t := tablesOf(f, info.Size())
	if d.imports, err = t.imports(); err != nil {
		return nil, err
	}
	for _, i := range d.imports {
		if !slices.Contains(d.needed, i.library) {
			d.needed = append(d.needed, i.library)
		}
	}
	d.exports, err = t.exports()
	return d, err
}

// checkDLLs resolves what PE files need as Windows does for a program that was
// started: in the program's folder, and for a library that is loaded by its path
// in that library's folder too. Then come the system's.
func checkDLLs(res *Result, files []manifest.File, dlls []*dll) {
	l := lookup{files: map[string]bool{}, dlls: map[string]*dll{}}
	for _, f := range files {
		l.files[strings.ToLower(f.Path)] = true
	}
	for _, d := range dlls {
		l.dlls[strings.ToLower(d.path)] = d
		if d.program {
			l.started = append(l.started, path.Dir(d.path))
		}
	}
	sys := platforms["windows"]
	for _, d := range dlls {
		for _, name := range d.needed {
			if l.find(d, name) == "" && !ofWindows(sys, name) {
				res.static("closure.missing", d.path+":"+name, fmt.Sprintf("%s needs %s, which is neither in the payload nor a declared system library", d.path, name),
					"it is looked for in "+strings.Join(slices.Compact(l.folders(d)), ", "), d.path)
			}
		}
		missing := map[string][]string{}
		for _, i := range d.imports {
			if i.name != "" && !l.has(d, i, nil) {
				missing[i.library] = append(missing[i.library], demangle.Filter(i.name))
			}
		}
		for _, library := range slices.Sorted(maps.Keys(missing)) {
			res.static("symbols.undefined", d.path+":"+library, fmt.Sprintf("%s needs %s of %s, which it does not have", d.path, some(missing[library], 1), library),
				"it needs "+some(missing[library], 12), d.path, l.dlls[l.find(d, library)].path)
		}
	}
}

// A lookup finds libraries of a payload as Windows does, which has all letters
// small.
type lookup struct {
	files   map[string]bool
	dlls    map[string]*dll
	started []string // folders of programs
}

func (l lookup) folders(d *dll) []string { return append([]string{path.Dir(d.path)}, l.started...) }

// find gives the file that a name stands for to d; "" is none of the payload's.
func (l lookup) find(d *dll, name string) string {
	for _, dir := range l.folders(d) {
		if file := strings.ToLower(path.Join(dir, name)); l.files[file] {
			return file
		}
	}
	return ""
}

// has tells whether what d takes is there. A library that d itself lacks, and what
// can't be read, is looked at elsewhere; one that something is passed on from, seen,
// is needed by nothing else.
func (l lookup) has(d *dll, want foreign, seen []foreign) bool {
	file := l.find(d, want.library)
	from := l.dlls[file]
	if from == nil {
		return len(seen) == 0 || file != "" || ofWindows(platforms["windows"], want.library)
	}
	to, ok := from.exports[want.name]
	if !ok || to == (foreign{}) {
		return ok
	}
	return !slices.Contains(seen, to) && l.has(from, to, append(seen, to))
}

// apiSets begin the names that Windows maps to libraries of its own.
var apiSets = []string{"api-ms-win-", "ext-ms-"}

func ofWindows(sys platform, name string) bool {
	name = strings.ToLower(name)
	return sys.systemLibrary(name) || slices.ContainsFunc(apiSets, func(set string) bool { return strings.HasPrefix(name, set) })
}
