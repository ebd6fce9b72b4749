package verify

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"payload/internal/archive"
	"payload/internal/machofile"
	"payload/internal/manifest"
	"payload/internal/testkit"
)

// packedEntry is one entry of a tar file.
type packedEntry struct {
	tar.Header
	data []byte
}

// entriesOf lists what a tar file of dir holds.
func entriesOf(t *testing.T, dir string) []packedEntry {
	t.Helper()
	var entries []packedEntry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := packedEntry{Header: tar.Header{Name: filepath.ToSlash(rel), Mode: int64(info.Mode().Perm()), Format: tar.FormatPAX}}
		switch {
		case d.IsDir():
			e.Typeflag, e.Name = tar.TypeDir, e.Name+"/"
		case d.Type()&fs.ModeSymlink != 0:
			e.Typeflag = tar.TypeSymlink
			e.Linkname, err = os.Readlink(file)
		default:
			e.Typeflag = tar.TypeReg
			e.data, err = os.ReadFile(file)
		}
		entries = append(entries, e)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// tarOf is a tar file. An entry whose header says another size keeps it.
func tarOf(t *testing.T, entries []packedEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		h.Size = int64(len(e.data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdOf(t *testing.T, plain []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(plain, nil)
}

// verifyArchive verifies a file as payload verify does, and makes sure that
// nothing stays behind.
func verifyArchive(t *testing.T, file string, o Options) Result {
	t.Helper()
	opened, err := Open(context.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		opened.Close()
		if _, err := os.Stat(opened.temp); !os.IsNotExist(err) {
			t.Errorf("%s is left over: %v", opened.temp, err)
		}
	}()
	if opened.Dir == "" {
		return Result{Findings: opened.Findings}
	}
	o.Dir = opened.Dir
	res, err := Payload(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	res.Findings = slices.Concat(opened.Findings, res.Findings)
	return res
}

// macRelease stages what a release for macOS holds: a universal program and
// library at the root, and a folder for each generation of kernels.
func macRelease(t *testing.T, change func(files map[string]*testkit.MachO)) string {
	t.Helper()
	files := map[string]*testkit.MachO{}
	for dir, macOS := range map[string][2]uint32{"mlx_metal_v3": {14, 0}, "mlx_metal_v4": {26, 2}} {
		lib := func(name string, symbols []testkit.MachOSymbol, needs ...string) {
			files[dir+"/"+name] = &testkit.MachO{ID: "@rpath/" + name, Needs: needs, Rpaths: []string{"@loader_path"}, MacOS: macOS, Symbols: symbols}
		}
		lib("libmlxc.dylib", []testkit.MachOSymbol{{Name: "_mlx_c_add"}, {Name: "__ZN3mlx4core3addEv", Ordinal: 1}, {Name: "__ZTISt9exception", Ordinal: 2}},
			"@rpath/libmlx.dylib", systemLibcxx, systemLibrary)
		lib("libmlx.dylib", []testkit.MachOSymbol{{Name: "__ZN3mlx4core3addEv"}}, metal, "@rpath/libjaccl.dylib", systemLibcxx)
		lib("libjaccl.dylib", nil, systemLibrary)
	}
	for arch, amd64 := range map[string]bool{"arm64": false, "amd64": true} {
		files["prog:"+arch] = &testkit.MachO{AMD64: amd64, Program: true, Needs: []string{"@rpath/libbase.dylib"}, Rpaths: []string{"@executable_path"}, MacOS: [2]uint32{14, 0}, Symbols: []testkit.MachOSymbol{{Name: "_base", Ordinal: 1}}}
		files["libbase.dylib:"+arch] = &testkit.MachO{AMD64: amd64, ID: "@rpath/libbase.dylib", Needs: []string{systemLibrary}, MacOS: [2]uint32{14, 0}, Symbols: []testkit.MachOSymbol{{Name: "_base"}}}
	}
	if change != nil {
		change(files)
	}
	dir := t.TempDir()
	for name, m := range files {
		if !strings.Contains(name, ":") {
			m.File(t, filepath.Join(dir, name))
		}
	}
	for _, name := range []string{"prog", "libbase.dylib"} {
		joinMachO(t, filepath.Join(dir, name), files[name+":arm64"], files[name+":amd64"])
	}
	put(t, filepath.Join(dir, "mlx_metal_v3/mlx.metallib"), string(metallib(14, 0, 64)))
	put(t, filepath.Join(dir, "mlx_metal_v4/mlx.metallib"), string(metallib(26, 2, 64)))
	put(t, filepath.Join(dir, "licenses/LICENSE"), "do as you like\n")
	if err := os.Symlink("libbase.dylib", filepath.Join(dir, "libbase.0.dylib")); err != nil {
		t.Skip("no links here: ", err)
	}
	sealMac(t, dir)
	return dir
}

func sealMac(t *testing.T, dir string) {
	t.Helper()
	files, err := manifest.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	build := func(preset, program, macOS string) manifest.Build {
		return manifest.Build{Preset: preset, Components: []manifest.Component{{Name: "c", Program: program, Patches: []manifest.Patch{}}}, Target: &manifest.Target{MacOS: macOS}}
	}
	m := manifest.Manifest{Files: files, Package: &manifest.Package{Group: "base", OS: "darwin", Arch: "universal"}, Components: []manifest.Component{}, Builds: []manifest.Build{
		build("metal", "prog", "14.0"), build("mlx_metal_v3", "mlx_metal_v3/libmlxc.dylib", "14.0"), build("mlx_metal_v4", "mlx_metal_v4/libmlxc.dylib", "26.2"),
	}}
	if err := manifest.Write(dir, m); err != nil {
		t.Fatal(err)
	}
}

// joinMachO writes images as a universal file; with one image it is thin.
func joinMachO(t *testing.T, file string, images ...*testkit.MachO) {
	t.Helper()
	var inputs []machofile.Input
	for _, m := range images {
		if m == nil {
			continue
		}
		one := filepath.Join(t.TempDir(), filepath.Base(file))
		m.File(t, one)
		data := []byte(readAll(t, one))
		found, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, machofile.Input{Slice: found[0], From: bytes.NewReader(data)})
		if len(images) == 1 {
			put(t, file, string(data))
		}
	}
	if len(images) > 1 {
		var b bytes.Buffer
		if _, err := machofile.Join(&b, inputs); err != nil {
			t.Fatal(err)
		}
		put(t, file, b.String())
	}
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// mutation is one thing that is wrong with a finished archive.
type mutation struct {
	name    string
	images  func(files map[string]*testkit.MachO) // before they are written and signed
	tree    func(k kit)                           // the staged tree; the manifest is written again after it
	sealed  func(k kit)                           // the staged tree, with the manifest as it was
	entries func(list []packedEntry) []packedEntry
	plain   func(b []byte) []byte // the tar file
	packed  func(b []byte) []byte // the archive
	beside  func(k kit, file string)
	options Options
	want    []string // ids of all findings
}

// ofDigests are what a manifest that was not written again reports.
var ofDigests = []string{"digest.changed", "files.missing", "files.extra", "files.mode", "links.changed"}

func flip(name string, at int) func(k kit) {
	return func(k kit) { edit(k, k.path(name), func(b []byte) { b[at] ^= 1 }) }
}

func macMutations() []mutation {
	one := func(name string, change func(m *testkit.MachO)) func(map[string]*testkit.MachO) {
		return func(files map[string]*testkit.MachO) { change(files[name]) }
	}
	link := func(name, target string) func(k kit) {
		return func(k kit) { k.must(os.Symlink(target, k.path(name))) }
	}
	file := func(name string) func(k kit) { return func(k kit) { put(k.T, k.path(name), "x") } }
	entry := func(e packedEntry) func([]packedEntry) []packedEntry {
		return func(list []packedEntry) []packedEntry { return append(list, e) }
	}
	header := func(kind byte, name, target string) packedEntry {
		return packedEntry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o644}}
	}
	const v3, v4 = "mlx_metal_v3/", "mlx_metal_v4/"
	return []mutation{
		{name: "nothing"},
		// Bytes.
		{name: "a byte of code", tree: flip(v3+"libmlxc.dylib", 0x2000), want: []string{"macho.signature-page"}},
		{name: "a byte of code of one image", tree: flip("prog", 0x3000), want: []string{"macho.signature-page"}},
		{name: "a byte of kernels' header", tree: flip(v3+"mlx.metallib", 0x12), want: []string{"metallib.damaged"}},
		{name: "a byte of kernels", sealed: flip(v3+"mlx.metallib", 0x30), want: []string{"digest.changed"}},
		{name: "a byte of data", sealed: flip("licenses/LICENSE", 3), want: []string{"digest.changed"}},
		{name: "a byte of a load command", tree: flip(v3+"libjaccl.dylib", 16), want: []string{"macho.unreadable"}},
		{name: "a library cut off", tree: func(k kit) { k.must(os.Truncate(k.path(v3+"libmlxc.dylib"), 0x4010)) }, want: []string{"macho.unreadable"}},
		{name: "kernels cut off", tree: func(k kit) { k.must(os.Truncate(k.path(v3+"mlx.metallib"), 32)) }, want: []string{"metallib.damaged"}},
		// Files.
		{name: "a file gone", sealed: func(k kit) { k.remove("licenses", "LICENSE") }, want: []string{"files.missing"}},
		{name: "a library gone", tree: func(k kit) { k.remove(v3, "libjaccl.dylib") }, want: []string{"closure.missing"}},
		{name: "kernels gone", tree: func(k kit) { k.remove(v4, "mlx.metallib") }, want: []string{"metallib.missing"}},
		{name: "a file more", sealed: file("licenses/more"), want: []string{"files.extra"}},
		{name: "an executable bit lost", sealed: func(k kit) { k.must(os.Chmod(k.path("prog"), 0o644)) }, want: []string{"files.mode"}},
		{name: "text in a library's place", tree: file(v3 + "libjaccl.dylib"), want: []string{"closure.missing"}},
		{name: "a library without its extension", tree: func(k kit) { k.must(os.Rename(k.path(v3+"libmlx.dylib"), k.path(v3+"libmlx"))) }, want: []string{"closure.missing", "macho.install-name"}},
		{name: "a needed library under another name", tree: func(k kit) { k.must(os.Rename(k.path(v3+"libjaccl.dylib"), k.path(v3+"libjaccl2.dylib"))) }, want: []string{"closure.missing", "macho.install-name"}},
		// Kernels and systems.
		{name: "kernels swapped", tree: func(k kit) {
			k.must(os.Rename(k.path(v3+"mlx.metallib"), k.path("x")))
			k.must(os.Rename(k.path(v4+"mlx.metallib"), k.path(v3+"mlx.metallib")))
			k.must(os.Rename(k.path("x"), k.path(v4+"mlx.metallib")))
		}, want: []string{"metallib.pairing", "metallib.too-new"}},
		{name: "old kernels for a new library", tree: func(k kit) { put(k.T, k.path(v4+"mlx.metallib"), string(metallib(14, 0, 64))) }, want: []string{"metallib.pairing"}},
		{name: "a later macOS", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) { m.MacOS = [2]uint32{15, 0} }), want: []string{"macho.minos"}},
		{name: "a later macOS for one image", images: one("libbase.dylib:amd64", func(m *testkit.MachO) { m.MacOS = [2]uint32{14, 1} }), want: []string{"macho.minos"}},
		{name: "an older macOS asked for", options: Options{MacOS: "13.0"}, want: []string{"macho.minos", "metallib.too-new"}},
		{name: "an older macOS, which one of two folders serves", options: Options{MacOS: "14.0"}},
		{name: "no macOS", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) { m.MacOS = [2]uint32{} }), want: []string{"macho.minos"}},
		// Paths and names.
		{name: "a path of the builder", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) { m.Rpaths = append(m.Rpaths, "/Users/x/build") }), want: []string{"rpath.absolute"}},
		{name: "no path", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) { m.Rpaths = nil }), want: []string{"macho.rpath"}},
		{name: "a library of the builder", images: one(v3+"libjaccl.dylib", func(m *testkit.MachO) { m.Needs = []string{"/opt/homebrew/lib/libfmt.dylib"} }), want: []string{"closure.outside"}},
		{name: "another install name", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) { m.ID = "/build/libmlxc.dylib" }), want: []string{"macho.install-name"}},
		// Signatures.
		{name: "no signature", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) { m.Bare = true }), want: []string{"macho.unsigned"}},
		{name: "no signature in one image", images: one("prog:amd64", func(m *testkit.MachO) { m.Bare = true }), want: []string{"macho.unsigned"}},
		{name: "another file's signature", tree: func(k kit) {
			other := readAll(k.T, k.path(v4+"libmlxc.dylib")) // the same layout, another system
			edit(k, k.path(v3+"libmlxc.dylib"), func(b []byte) {
				at := bytes.Index(b, []byte{0xfa, 0xde, 0x0c, 0xc0})
				copy(b[at:], other[bytes.Index([]byte(other), []byte{0xfa, 0xde, 0x0c, 0xc0}):])
			})
		}, want: []string{"macho.signature-page"}},
		{name: "a broken signature", tree: func(k kit) {
			edit(k, k.path(v3+"libmlxc.dylib"), func(b []byte) { b[bytes.Index(b, []byte{0xfa, 0xde, 0x0c, 0xc0})] = 0 })
		}, want: []string{"macho.signature"}},
		// Architectures.
		{name: "the wrong architecture", images: one(v3+"libjaccl.dylib", func(m *testkit.MachO) { m.AMD64 = true }), want: []string{"arch.wrong", "closure.arch"}},
		{name: "a thin library", images: func(files map[string]*testkit.MachO) { delete(files, "libbase.dylib:amd64") }, want: []string{"arch.wrong", "closure.arch"}},
		{name: "an image twice", tree: func(k kit) {
			edit(k, k.path("prog"), func(b []byte) { copy(b[8:16], b[28:36]) })
		}, want: []string{"macho.slices"}},
		// Symbols.
		{name: "a symbol of a later libc++", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) {
			m.Symbols = append(m.Symbols, testkit.MachOSymbol{Name: "___cxa_init_primary_exception", Ordinal: 2})
		}), want: []string{"macho.libcxx-too-new"}},
		{name: "a C++ runtime of its own", images: one(v3+"libmlxc.dylib", func(m *testkit.MachO) {
			m.Symbols[2] = testkit.MachOSymbol{Name: "__ZTISt9exception", Local: true}
		}), want: []string{"macho.own-cxxabi"}},
		{name: "a symbol that the library lost", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Symbols = nil }), want: []string{"symbols.undefined"}},
		{name: "a symbol that only the symbol table has", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{"_other"} }), want: []string{"symbols.undefined"}},
		{name: "no exports", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{} }), want: []string{"symbols.undefined"}},
		{name: "a symbol that only the export trie has", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) {
			m.Symbols, m.Exports = nil, []string{"__ZN3mlx4core3addEv"}
		})},
		{name: "a symbol passed on of a library that lacks it", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{"__ZN3mlx4core3addEv=2:_add"} }), want: []string{"symbols.undefined"}},
		{name: "a symbol passed on of a library that has it", images: func(files map[string]*testkit.MachO) {
			files[v3+"libmlx.dylib"].Exports = []string{"__ZN3mlx4core3addEv=2:_add"}
			files[v3+"libjaccl.dylib"].Exports = []string{"_add"}
		}},
		{name: "a symbol passed on of the system's", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{"__ZN3mlx4core3addEv=3"} })},
		{name: "a symbol passed on in a ring", images: func(files map[string]*testkit.MachO) {
			files[v3+"libmlx.dylib"].Exports = []string{"__ZN3mlx4core3addEv=2:_add"}
			files[v3+"libjaccl.dylib"].Needs = []string{"@rpath/libmlx.dylib"}
			files[v3+"libjaccl.dylib"].Exports = []string{"_add=1:__ZN3mlx4core3addEv"}
		}, want: []string{"symbols.undefined"}},
		{name: "a symbol passed on of no library", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{"__ZN3mlx4core3addEv=9"} }), want: []string{"macho.unreadable"}},
		{name: "a symbol passed on of the library itself", images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{"__ZN3mlx4core3addEv=0:_add"} }), want: []string{"macho.unreadable"}},
		{name: "a damaged export trie", tree: func(k kit) {
			edit(k, k.path(v3+"libmlx.dylib"), func(b []byte) {
				at := bytes.Index(b, testkit.ExportTrie("__ZN3mlx4core3addEv"))
				b[at+2+len("__ZN3mlx4core3addEv")+2] = 0xff // leads outside
			})
		}, images: one(v3+"libmlx.dylib", func(m *testkit.MachO) { m.Exports = []string{"__ZN3mlx4core3addEv"} }), want: []string{"macho.unreadable"}},
		// Links.
		{name: "a broken link", tree: link("l", "nothing"), want: []string{"links.broken"}},
		{name: "a link changed", sealed: func(k kit) {
			k.remove("libbase.0.dylib")
			k.must(os.Symlink("prog", k.path("libbase.0.dylib")))
		}, want: []string{"links.changed"}},
		{name: "an absolute link", tree: link("l", "/usr/lib/libz.dylib"), want: []string{"links.absolute"}},
		{name: "a link out", tree: link(v3+"l", "../../x"), want: []string{"links.outside"}},
		{name: "a link out by way of another", tree: func(k kit) {
			k.must(os.MkdirAll(k.path("a/b"), 0o755))
			k.must(os.Symlink("../..", k.path("a/b/top")))
			k.must(os.Symlink("a/b/top/../x", k.path("l")))
		}, want: []string{"links.outside"}},
		{name: "a circle of links", tree: func(k kit) { link("l", "m")(k); link("m", "l")(k) }, want: []string{"links.cycle"}},
		// Names.
		{name: "a case clash", tree: file("Prog"), want: []string{"names.case-clash"}},
		{name: "a case clash of folders", tree: file("Licenses/x"), want: []string{"names.case-clash"}},
		{name: "a form of accents", tree: func(k kit) { file("caf\u00e9")(k); file("cafe\u0301")(k) }, want: []string{"names.case-clash"}},
		{name: "attributes of macOS", tree: file("._prog"), want: []string{"names.apple-double"}},
		{name: "a file browser's file", tree: file(".DS_Store"), want: []string{"names.litter"}},
		{name: "an unfinished file", tree: file("libbase.1.2.3.dylib.tmp"), want: []string{"names.unfinished"}},
		{name: "an editor's copy", tree: file("licenses/LICENSE~"), want: []string{"names.unfinished"}},
		{name: "a device's name", tree: file("aux.txt"), want: []string{"names.reserved"}},
		{name: "a control character", tree: file("a\x1b[2Kb"), want: []string{"names.control"}},
		{name: "no UTF-8", tree: file("a\xffb"), want: []string{"names.encoding"}},
		// The manifest.
		{name: "no manifest", sealed: func(k kit) { k.remove(manifest.Name) }, want: []string{"manifest.missing"}},
		{name: "a broken manifest", sealed: func(k kit) { put(k.T, k.path(manifest.Name), "{") }, want: []string{"manifest.unreadable"}},
		{name: "a manifest edited", sealed: func(k kit) {
			text := readAll(k.T, k.path(manifest.Name))
			at := strings.LastIndex(text, `"macos": "14.0"`)
			put(k.T, k.path(manifest.Name), text[:at]+`"macos": "12.0"`+text[at+len(`"macos": "14.0"`):])
		}, want: []string{"manifest.untrue"}},
		{name: "a target edited", sealed: func(k kit) {
			put(k.T, k.path(manifest.Name), strings.Replace(readAll(k.T, k.path(manifest.Name)), `"macos": "14.0"`, `"macos": "12.0"`, 1))
		}, want: []string{"macho.minos"}},
		// The archive.
		{name: "a name out", entries: entry(header(tar.TypeReg, "../x", "")), want: []string{"archive.traversal"}},
		{name: "a name out by backslashes", entries: entry(header(tar.TypeReg, `a\..\..\x`, "")), want: []string{"archive.traversal"}},
		{name: "an absolute name", entries: entry(header(tar.TypeReg, "/etc/x", "")), want: []string{"archive.absolute-name"}},
		{name: "a drive's name", entries: entry(header(tar.TypeReg, `C:\x`, "")), want: []string{"archive.absolute-name"}},
		{name: "a name with dots", entries: entry(header(tar.TypeReg, "a/./b", "")), want: []string{"archive.name"}},
		{name: "a name twice", entries: func(list []packedEntry) []packedEntry { return append(list, list[len(list)-1]) }, want: []string{"archive.duplicate"}},
		{name: "a file through a link", entries: func(list []packedEntry) []packedEntry {
			return append(list, header(tar.TypeSymlink, "d", "licenses"), header(tar.TypeReg, "d/x", ""))
		}, want: []string{"archive.duplicate"}},
		{name: "a hard link", entries: entry(header(tar.TypeLink, "h", "prog")), want: []string{"archive.hard-link"}},
		{name: "a device", entries: entry(header(tar.TypeChar, "d", "")), want: []string{"archive.special-file"}},
		{name: "a pipe", entries: entry(header(tar.TypeFifo, "d", "")), want: []string{"archive.special-file"}},
		{name: "a program with the owner's rights", entries: entry(packedEntry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "s", Mode: 0o4755}}), want: []string{"archive.mode"}},
		{name: "a file that everyone may change", entries: entry(packedEntry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "s", Mode: 0o666}}), want: []string{"archive.mode"}},
		{name: "a file beside the payload", entries: func(list []packedEntry) []packedEntry {
			for i := range list {
				list[i].Name = "lib/payload/" + list[i].Name
			}
			return append(list, header(tar.TypeReg, "bin", ""))
		}, want: []string{"archive.outside"}},
		{name: "a bomb", entries: entry(packedEntry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "z", Mode: 0o644}, data: make([]byte, 80<<20)}), want: []string{"archive.bomb"}},
		{name: "the archive cut off", packed: func(b []byte) []byte { return b[:len(b)-100] }, want: []string{"archive.truncated"}},
		{name: "half of the archive", packed: func(b []byte) []byte { return b[:len(b)/2] }, want: []string{"archive.truncated"}},
		{name: "no end", plain: func(b []byte) []byte { return b[:len(b)-1024] }, want: []string{"archive.truncated"}},
		{name: "something after the archive", packed: func(b []byte) []byte { return append(b, "#!/bin/sh\necho more\n"...) }, want: []string{"archive.trailing"}},
		{name: "a byte after the archive", packed: func(b []byte) []byte { return append(b, 0) }, want: []string{"archive.trailing"}},
		{name: "something after the tar file", plain: func(b []byte) []byte { return append(b, "more"...) }, want: []string{"archive.trailing"}},
		{name: "a byte of the archive", packed: func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b }, want: []string{"archive.damaged"}},
		{name: "no archive at all", packed: func([]byte) []byte { return []byte("<html>404</html>") }, want: []string{"archive.format"}},
		{name: "an empty file", packed: func([]byte) []byte { return nil }, want: []string{"archive.format"}},
		{name: "another digest", beside: func(k kit, file string) {
			put(k.T, filepath.Join(filepath.Dir(file), archive.SumsName), fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte("other")), filepath.Base(file)))
		}, want: []string{"archive.digest"}},
		{name: "an archive without a digest", beside: func(k kit, file string) {
			put(k.T, filepath.Join(filepath.Dir(file), archive.SumsName), fmt.Sprintf("%x  other.tgz\n", sha256.Sum256([]byte("other"))))
		}, want: []string{"archive.unlisted"}},
		{name: "a broken list of digests", beside: func(k kit, file string) {
			put(k.T, filepath.Join(filepath.Dir(file), archive.SumsName), "no digest\n")
		}, want: []string{"archive.checksums"}},
		{name: "a part missing", beside: func(k kit, file string) {
			data := []byte(readAll(k.T, file))
			put(k.T, file+".part001", string(data[:100]))
			put(k.T, file+".part003", string(data[100:]))
			k.must(os.Remove(file))
		}, want: []string{"archive.part"}},
		// Sizes.
		{name: "over the budget", options: Options{Budgets: []Budget{{Bytes: 1000}}}, want: []string{"budget.exceeded"}},
		{name: "over a folder's budget", options: Options{Budgets: []Budget{{Path: "mlx_metal_v3", Bytes: 1000}}}, want: []string{"budget.exceeded"}},
		{name: "a budget for nothing", options: Options{Budgets: []Budget{{Path: "cuda_v13", Bytes: 1000}}}, want: []string{"budget.unused"}},
	}
}

// TestMutations damages a finished archive in every way that is known, and
// wants the kinds of findings for it and no others.
func TestMutations(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, m := range macMutations() {
		t.Run(m.name, func(t *testing.T) {
			dir := macRelease(t, m.images)
			k := kit{t, dir}
			if m.tree != nil {
				m.tree(k)
				wantStale(t, dir)
				sealMac(t, dir)
			}
			if m.sealed != nil {
				m.sealed(k)
			}
			entries := entriesOf(t, dir)
			if m.entries != nil {
				entries = m.entries(entries)
			}
			plain := tarOf(t, entries)
			if m.plain != nil {
				plain = m.plain(plain)
			}
			packed := zstdOf(t, plain)
			if m.packed != nil {
				packed = m.packed(packed)
			}
			file := filepath.Join(t.TempDir(), "payload-darwin.tar.zst")
			put(t, file, string(packed))
			if m.beside != nil {
				m.beside(k, file)
			}
			res := verifyArchive(t, file, m.options)
			var ids []string
			for _, f := range res.Findings {
				ids = append(ids, f.ID)
			}
			slices.Sort(ids)
			if ids = slices.Compact(ids); !slices.Equal(ids, m.want) {
				t.Errorf("found %q, want %q\n%+v", ids, m.want, res.Findings)
			}
			if res.Failed() != (m.want != nil) {
				t.Errorf("failed is %t", res.Failed())
			}
		})
	}
}

// wantStale makes sure that the digests alone show that a tree was changed,
// where nobody writes the manifest again.
func wantStale(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stale.tar.zst")
	put(t, file, string(zstdOf(t, tarOf(t, entriesOf(t, dir)))))
	res := verifyArchive(t, file, Options{})
	if len(res.Findings) > 0 && (res.Findings[0].Category == categoryArchive) {
		return // it is not unpacked
	}
	if !slices.ContainsFunc(keys(res.Findings), func(key string) bool {
		id, _, _ := strings.Cut(key, ":")
		return slices.Contains(ofDigests, id)
	}) {
		t.Errorf("with the old manifest: found %q", keys(res.Findings))
	}
}
