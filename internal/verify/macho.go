package verify

import (
	"debug/macho"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"payload/internal/machofile"
	"payload/internal/manifest"
)

// image is one Mach-O file, as far as dyld and the kernel look at it.
type image struct {
	path      string // in the payload
	program   bool
	id        string   // a library's own name
	needed    []string // names of libraries, weak ones included
	libraries []string // the same by ordinal, from 1
	rpaths    []string
	macOS     string // the oldest that it loads on
	arch      string
	imports   []imported
	exports   map[string]foreign // and to what of another library each is passed on
	trie      *span              // where dyld looks for exports; nil in an old file
	reexports []string           // names of libraries whose symbols are its own too
	own       []string           // symbols of the C++ runtime that it brings itself
	unsigned  bool
	signature error // what is wrong with it

	found map[string]string // by the name of what it needs, the file in the payload
}

// A span is some bytes of a file.
type span struct{ at, size uint32 }

func (s span) read(r *io.SectionReader) ([]byte, error) {
	if int64(s.at)+int64(s.size) > r.Size() {
		return nil, errors.New("it lies beyond the file's end")
	}
	b := make([]byte, s.size)
	if s.size == 0 { // at the file's end even that would be io.EOF
		return b, nil
	}
	_, err := r.ReadAt(b, int64(s.at))
	return b, err
}

// imported is a symbol that a library has to bring.
type imported struct {
	name    string
	library string // empty where any may have it
	weak    bool   // dyld does without it
}

// Load commands that debug/macho does not decode.
const (
	lcIDDylib       = 0xd
	lcLoadDylib     = 0xc
	lcWeakDylib     = 0x80000018
	lcReexportDylib = 0x8000001f
	lcUpwardDylib   = 0x80000023
	lcRpath         = 0x8000001c
	lcCodeSignature = 0x1d
	lcDyldInfo      = 0x22
	lcDyldInfoOnly  = 0x80000022
	lcExportsTrie   = 0x80000033
)

// ownRuntime are symbols that only the system's C++ library may define: with a
// second copy of the type of an exception, one that a library throws passes
// through another library's handlers and ends the program.
var ownRuntime = []string{"__ZTISt9exception", "___cxa_throw"}

// readImages opens every Mach-O file of the payload, in order of path.
func readImages(res *Result, dir string, files []manifest.File) []*image {
	var images []*image
	for i, found := range readEach(res, dir, files, "macho.unreadable", "Mach-O", readImage) {
		for _, m := range found {
			m.path = files[i].Path
			images = append(images, m)
		}
	}
	return images
}

// readImage gives nothing for a file that isn't Mach-O, and one image for each
// architecture of a universal file.
func readImage(file string) ([]*image, error) {
	f, err := machofile.Open(file)
	if errors.As(err, new(*machofile.SlicesError)) {
		return nil, &namedError{"macho.slices", err}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	var images []*image
	for _, s := range f.Slices {
		m, err := readSlice(io.NewSectionReader(f, s.Offset, s.Size))
		if err != nil {
			return nil, err
		}
		if m != nil {
			images = append(images, m)
		}
	}
	return images, nil
}

// readSlice gives nil for an object file, which dyld never sees.
func readSlice(r *io.SectionReader) (*image, error) {
	f, err := macho.NewFile(r)
	if err != nil {
		return nil, err
	}
	if f.Type != macho.TypeExec && f.Type != macho.TypeDylib && f.Type != macho.TypeBundle {
		return nil, nil
	}
	arch, floor := manifest.Inspect(r, r.Size())
	m := &image{program: f.Type == macho.TypeExec, arch: arch, unsigned: true, exports: map[string]foreign{}, found: map[string]string{}}
	if floor != nil {
		m.macOS = floor.MacOS
	}
	for _, load := range f.Loads {
		if err := m.load(r, f.ByteOrder, load.Raw()); err != nil {
			return nil, err
		}
	}
	m.symbols(f)
	if err := m.readTrie(r); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *image) readTrie(r *io.SectionReader) error {
	if m.trie == nil {
		return nil
	}
	data, err := m.trie.read(r)
	if err != nil {
		return fmt.Errorf("its export trie: %w", err)
	}
	found, err := machofile.Exports(data)
	for _, e := range found {
		var to foreign
		switch {
		case e.Library > uint64(len(m.libraries)), e.Library == 0 && e.Original != "": // dyld refuses both
			return fmt.Errorf("it passes on %s of its library %d, and needs %d", e.Name, e.Library, len(m.libraries))
		case e.Library > 0:
			to = foreign{m.libraries[e.Library-1], e.Original}
		}
		m.exports[e.Name] = to
	}
	return err
}

func (m *image) load(r *io.SectionReader, order binary.ByteOrder, raw []byte) error {
	text := func(at int) string {
		offset := order.Uint32(raw[at:])
		if uint64(offset) >= uint64(len(raw)) {
			return ""
		}
		name, _, _ := strings.Cut(string(raw[offset:]), "\x00")
		return name
	}
	if len(raw) < 16 {
		return nil
	}
	switch order.Uint32(raw) {
	case lcIDDylib:
		m.id = text(8)
	case lcLoadDylib, lcWeakDylib, lcReexportDylib, lcUpwardDylib:
		m.needed = append(m.needed, text(8))
		m.libraries = append(m.libraries, text(8))
		if order.Uint32(raw) == lcReexportDylib {
			m.reexports = append(m.reexports, text(8))
		}
	case lcRpath:
		m.rpaths = append(m.rpaths, text(8))
	case lcExportsTrie:
		m.trie = &span{order.Uint32(raw[8:]), order.Uint32(raw[12:])}
	case lcDyldInfo, lcDyldInfoOnly:
		if len(raw) < 48 {
			return errors.New("its load command for dyld is cut off")
		}
		m.trie = &span{order.Uint32(raw[40:]), order.Uint32(raw[44:])}
	case lcCodeSignature:
		m.unsigned = false
		offset, size := int64(order.Uint32(raw[8:])), int64(order.Uint32(raw[12:]))
		if offset+size > r.Size() {
			m.signature = errors.New("it lies beyond the file's end")
			return nil
		}
		data := make([]byte, offset+size)
		if _, err := r.ReadAt(data, 0); err != nil {
			return err
		}
		m.signature = machofile.CheckSignature(data[:offset], data[offset:])
	}
	return nil
}

// symbols notes what the image imports, what of the C++ runtime it defines, and,
// without a trie, what it exports.
func (m *image) symbols(f *macho.File) {
	if f.Symtab == nil {
		return
	}
	const (
		debugging = 0xe0 // N_STAB
		kindMask  = 0x0e // N_TYPE
		external  = 0x01 // N_EXT
		private   = 0x10 // N_PEXT
		weak      = 0x40 // N_WEAK_REF, of n_desc
	)
	for _, s := range f.Symtab.Syms {
		switch {
		case s.Type&debugging != 0:
		case s.Type&kindMask != 0:
			if slices.Contains(ownRuntime, s.Name) {
				m.own = append(m.own, s.Name)
			}
			if m.trie == nil && s.Type&external != 0 && s.Type&private == 0 {
				m.exports[s.Name] = foreign{}
			}
		case s.Type&external != 0:
			from := imported{name: s.Name, weak: s.Desc&weak != 0}
			if ordinal := int(s.Desc >> 8); ordinal >= 1 && ordinal <= len(m.libraries) {
				from.library = m.libraries[ordinal-1]
			}
			m.imports = append(m.imports, from)
		}
	}
}

// checkImages reports what dyld and the kernel of a Mac would refuse.
func checkImages(res *Result, dir string, images []*image, files []manifest.File, t target) {
	if len(images) == 0 {
		return
	}
	list, real := layout(files)
	for _, m := range images {
		checkMinimum(res, m, t.macOSFor(m.path))
		checkSigned(res, m)
		checkLibcxx(res, m)
		c := imageClosure{res: res, m: m, files: list, real: real}
		c.check()
	}
	checkImports(res, images)
	checkMetallibs(res, dir, images, list, t)
}

func checkMinimum(res *Result, m *image, target string) {
	switch {
	case m.macOS == "":
		res.static("macho.minos", m.path, m.path+" does not say which macOS it needs", "", m.path)
	case target != "" && newerThan(m.macOS, target):
		res.static("macho.minos", m.path, fmt.Sprintf("%s needs macOS %s, the payload is for %s", m.path, m.macOS, target), "", m.path)
	}
}

func checkSigned(res *Result, m *image) {
	var page *machofile.PageError
	switch {
	case m.unsigned:
		res.static("macho.unsigned", m.path, m.path+" is not signed", "a Mac with Apple silicon ends a program that loads it; an ad-hoc signature will do", m.path)
	case errors.As(m.signature, &page):
		res.static("macho.signature-page", m.path, fmt.Sprintf("%s was changed after it was signed", m.path), page.Error(), m.path)
	case m.signature != nil:
		res.static("macho.signature", m.path, m.path+" has a broken signature", m.signature.Error(), m.path)
	}
}

func checkLibcxx(res *Result, m *image) {
	if len(m.own) > 0 {
		res.static("macho.own-cxxabi", m.path, m.path+" brings a C++ runtime of its own", fmt.Sprintf(
			"it defines %s; an exception from another library would not be caught in it", strings.Join(m.own, " and ")), m.path)
	}
	for _, s := range m.imports {
		if s.library != "" && !strings.Contains(s.library, "/libc++") {
			continue
		}
		found, bad := tooNew(s.name, m.macOS)
		if !bad {
			continue
		}
		since := "no macOS is known to have it"
		if found.macOS != "" {
			since = "macOS has it since " + found.macOS
		}
		res.static("macho.libcxx-too-new", m.path+":"+s.name, fmt.Sprintf("%s needs %s, which macOS %s lacks", m.path, s.name, m.macOS), found.what+": "+since, m.path)
	}
}

// newerThan compares dotted versions; what is none is not newer.
func newerThan(a, b string) bool {
	va, errA := version.NewVersion(a)
	vb, errB := version.NewVersion(b)
	return errA == nil && errB == nil && va.GreaterThan(vb)
}

// imageClosure follows what one image needs. Every image has to find its
// libraries by its own search path: a program may load it before any other.
type imageClosure struct {
	res   *Result
	m     *image
	files map[string]manifest.File
	real  func(string) string
}

// The words of dyld's paths.
const (
	dyldRpath  = "@rpath/"
	dyldLoader = "@loader_path"
	dyldMain   = "@executable_path"
)

func (c *imageClosure) check() {
	m := c.m
	if base := path.Base(m.path); m.id != "" && m.id != dyldRpath+base {
		c.res.static("macho.install-name", m.path, fmt.Sprintf("%s calls itself %s", m.path, m.id), "what links it would look for that; it should be "+dyldRpath+base, m.path)
	}
	for _, dir := range m.rpaths {
		if _, ok := c.folder(dir); !ok {
			c.res.static("rpath.absolute", m.path+":"+dir, fmt.Sprintf("%s searches %s, which is not relative to it", m.path, dir), "a user's machine has no such folder", m.path)
		}
	}
	for _, name := range m.needed {
		c.resolve(name)
	}
}

// folder is a search folder relative to the payload. A program's own folder is
// known only of a program.
func (c *imageClosure) folder(dir string) (string, bool) {
	rest, ok := strings.CutPrefix(dir, dyldLoader)
	if !ok && c.m.program {
		rest, ok = strings.CutPrefix(dir, dyldMain)
	}
	return path.Join(path.Dir(c.m.path), rest), ok && (rest == "" || rest[0] == '/')
}

func (c *imageClosure) resolve(name string) {
	m := c.m
	what := m.path + ":" + name
	if ofMacOS(name) {
		return
	}
	var at []string
	rest, byRpath := strings.CutPrefix(name, dyldRpath)
	if byRpath {
		for _, dir := range m.rpaths {
			if folder, ok := c.folder(dir); ok {
				at = append(at, path.Join(folder, rest))
			}
		}
	} else if folder, ok := c.folder(path.Dir(name)); ok {
		at = append(at, path.Join(folder, path.Base(name)))
	} else {
		c.res.static("closure.outside", what, fmt.Sprintf("%s needs %s, which is outside the payload", m.path, name), "only /usr/lib and /System/Library are on every Mac", m.path)
		return
	}
	for _, file := range at {
		if found := c.real(file); found != "" {
			m.found[name] = found
			return
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.files)) {
		if path.Base(p) == path.Base(name) && related(path.Dir(p), path.Dir(m.path)) {
			c.res.static("macho.rpath", what, fmt.Sprintf("%s needs %s but does not search for it where it lies", m.path, name),
				fmt.Sprintf("%s is in the payload; the search path of %s is %s", p, m.path, orNone(m.rpaths)), m.path)
			return
		}
	}
	c.res.static("closure.missing", what, fmt.Sprintf("%s needs %s, which is not in the payload", m.path, name), "the search path is "+orNone(m.rpaths), m.path)
}

// metalFramework is what a library with kernels for Metal is linked to.
const metalFramework = "/System/Library/Frameworks/Metal.framework/"

// metallibOf is the file of kernels that a library looks for beside itself.
func metallibOf(library string) string {
	base := strings.TrimPrefix(path.Base(library), "lib")
	return path.Join(path.Dir(library), strings.TrimSuffix(base, path.Ext(base))+".metallib")
}

// checkMetallibs makes sure that a library that runs kernels has them beside
// it, whole, and for no newer system.
//
// Format: "MTLB", at 0x0C and 0x0E the major and minor version of macOS as
// 16 bits, at 0x10 the file's size as 64 bits, all little-endian.
func checkMetallibs(res *Result, dir string, images []*image, files map[string]manifest.File, t target) {
	users := map[string]*image{}
	for _, m := range images {
		uses := slices.ContainsFunc(m.needed, func(n string) bool { return strings.HasPrefix(n, metalFramework) })
		if file := metallibOf(m.path); uses && !m.program {
			users[file] = m
			if _, ok := files[file]; !ok {
				res.static("metallib.missing", file, fmt.Sprintf("%s looks for its kernels in %s, which is not there", m.path, file), "", m.path, file)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) != ".metallib" || files[file].Link != "" {
			continue
		}
		header := make([]byte, 0x18)
		f, err := os.Open(filepath.Join(dir, filepath.FromSlash(file)))
		if err == nil {
			_, err = io.ReadFull(f, header)
			_ = f.Close() // only read
		}
		le := binary.LittleEndian
		switch {
		case err != nil || string(header[:4]) != "MTLB":
			res.static("metallib.damaged", file, file+" holds no kernels", "it does not begin as a Metal library does", file)
		case le.Uint64(header[0x10:]) != uint64(files[file].Size):
			res.static("metallib.damaged", file, file+" is cut off", fmt.Sprintf("it says that it has %d bytes, and has %d", le.Uint64(header[0x10:]), files[file].Size), file)
		}
		if err != nil || string(header[:4]) != "MTLB" {
			continue
		}
		needs := fmt.Sprintf("%d.%d", le.Uint16(header[0x0c:]), le.Uint16(header[0x0e:]))
		if most := t.macOSFor(file); most != "" && newerThan(needs, most) {
			res.static("metallib.too-new", file, fmt.Sprintf("the kernels of %s need macOS %s, the payload is for %s", file, needs, most), "", file)
		} else if m := users[file]; m != nil && m.macOS != "" && newerThan(needs, m.macOS) != newerThan(m.macOS, needs) {
			res.static("metallib.pairing", file, fmt.Sprintf("the kernels of %s are for macOS %s, and %s for %s", file, needs, m.path, m.macOS),
				"a library looks for the kernels that it was built with: others lack some, or don't load", file, m.path)
		}
	}
}
