package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/manifest"
	"payload/internal/testkit"
)

const (
	systemLibrary = "/usr/lib/libSystem.B.dylib"
	systemLibcxx  = "/usr/lib/libc++.1.dylib"
	metal         = "/System/Library/Frameworks/Metal.framework/Versions/A/Metal"
)

// metallib is a file of kernels for a version of macOS.
func metallib(major, minor uint16, size uint64) []byte {
	b := make([]byte, 64)
	copy(b, "MTLB")
	binary.LittleEndian.PutUint16(b[0x0c:], major)
	binary.LittleEndian.PutUint16(b[0x0e:], minor)
	binary.LittleEndian.PutUint64(b[0x10:], size)
	return b
}

// macPayload is what a payload for Metal looks like: each file can be changed
// before it is written.
type macPayload struct {
	files  map[string]*testkit.MachO
	kernel []byte
}

func goodMac() *macPayload {
	lib := func(name string, needs ...string) *testkit.MachO {
		return &testkit.MachO{ID: "@rpath/" + name, Needs: needs, Rpaths: []string{"@loader_path"}, MacOS: [2]uint32{14, 0}}
	}
	p := &macPayload{kernel: metallib(14, 0, 64), files: map[string]*testkit.MachO{
		"gpu/libx.dylib":    lib("libx.dylib", "@rpath/libmlx.dylib", systemLibcxx, systemLibrary),
		"gpu/libmlx.dylib":  lib("libmlx.dylib", metal, "@rpath/libdeep.dylib", systemLibcxx),
		"gpu/libdeep.dylib": lib("libdeep.dylib", systemLibrary),
		"gpu/prog":          {Program: true, Needs: []string{"@rpath/libx.dylib"}, Rpaths: []string{"@loader_path"}, MacOS: [2]uint32{14, 0}},
	}}
	p.files["gpu/libx.dylib"].Symbols = []testkit.MachOSymbol{
		{Name: "_answer"}, {Name: "__ZTISt9exception", Ordinal: 2}, {Name: "___cxa_throw", Ordinal: 2}, {Name: "__ZNSt3__113pmr", Ordinal: 2},
	}
	return p
}

// write lays the payload out and seals it; after changes a file by its bytes.
func (p *macPayload) write(t *testing.T, after func(dir string)) string {
	t.Helper()
	dir := t.TempDir()
	for name, m := range p.files {
		m.File(t, filepath.Join(dir, name))
	}
	if p.kernel != nil {
		put(t, filepath.Join(dir, "gpu", "mlx.metallib"), string(p.kernel))
	}
	if after != nil {
		after(dir)
	}
	files, err := manifest.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Write(dir, manifest.Manifest{Files: files, Target: &manifest.Target{MacOS: "14.0"}}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func edit(tb testing.TB, file string, change func([]byte)) {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	change(data)
	if err := os.WriteFile(file, data, 0o755); err != nil {
		tb.Fatal(err)
	}
}

func TestMachO(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *macPayload)
		after  func(tb testing.TB, dir string)
		want   []string // id, and words of the title or detail
	}{
		"good": {},
		"a path that leads nowhere": {
			change: func(p *macPayload) { p.files["gpu/libx.dylib"].Rpaths = nil },
			want:   []string{"macho.rpath", "gpu/libmlx.dylib is in the payload; the search path of gpu/libx.dylib is empty"},
		},
		"found by the loader alone": {
			change: func(p *macPayload) { p.files["gpu/libmlx.dylib"].Rpaths = nil },
			want:   []string{"macho.rpath", "libdeep.dylib"},
		},
		"an absolute path": {
			change: func(p *macPayload) {
				p.files["gpu/libx.dylib"].Rpaths = append(p.files["gpu/libx.dylib"].Rpaths, "/Users/somebody/build")
			},
			want: []string{"rpath.absolute", "/Users/somebody/build"},
		},
		"a library that is not there": {
			change: func(p *macPayload) { delete(p.files, "gpu/libdeep.dylib") },
			want:   []string{"closure.missing", "libdeep.dylib, which is not in the payload"},
		},
		"a library of the builder's machine": {
			change: func(p *macPayload) {
				p.files["gpu/libdeep.dylib"].Needs = []string{"/opt/homebrew/lib/libfmt.dylib"}
			},
			want: []string{"closure.outside", "/opt/homebrew/lib/libfmt.dylib"},
		},
		"another name": {
			change: func(p *macPayload) { p.files["gpu/libx.dylib"].ID = "/build/bin/libx.dylib" },
			want:   []string{"macho.install-name", "@rpath/libx.dylib"},
		},
		"a newer system": {
			change: func(p *macPayload) { p.files["gpu/libx.dylib"].MacOS = [2]uint32{15, 0} },
			want:   []string{"macho.minos", "needs macOS 15.0, the payload is for 14.0"},
		},
		"no system": {
			change: func(p *macPayload) { p.files["gpu/libx.dylib"].MacOS = [2]uint32{} },
			want:   []string{"macho.minos", "does not say"},
		},
		"unsigned": {
			change: func(p *macPayload) { p.files["gpu/libx.dylib"].Bare = true },
			want:   []string{"macho.unsigned", "gpu/libx.dylib"},
		},
		"changed after signing": {
			after: func(tb testing.TB, dir string) {
				tb.Helper()
				edit(tb, filepath.Join(dir, "gpu/libx.dylib"), func(b []byte) { b[0x2000] ^= 1 })
			},
			want: []string{"macho.signature-page", "page 2, from byte 8192"},
		},
		"a broken signature": {
			after: func(tb testing.TB, dir string) {
				tb.Helper()
				edit(tb, filepath.Join(dir, "gpu/libx.dylib"), func(b []byte) {
					i := bytes.LastIndex(b, []byte{0xfa, 0xde, 0x0c, 0x02})
					b[i+3] = 9
				})
			},
			want: []string{"macho.signature", "code directory is damaged"},
		},
		"a runtime of its own": {
			change: func(p *macPayload) {
				x := p.files["gpu/libx.dylib"]
				x.Symbols = []testkit.MachOSymbol{{Name: "__ZTISt9exception", Local: true}, {Name: "___cxa_throw", Local: true}}
			},
			want: []string{"macho.own-cxxabi", "it defines __ZTISt9exception and ___cxa_throw"},
		},
		"a symbol that no macOS has": {
			change: func(p *macPayload) {
				x := p.files["gpu/libx.dylib"]
				x.Symbols = append(x.Symbols, testkit.MachOSymbol{Name: "__ZNSt3__113__hash_memoryEPKvm", Ordinal: 2})
			},
			want: []string{"macho.libcxx-too-new", "no macOS is known to have it"},
		},
		"a symbol of a later macOS": {
			change: func(p *macPayload) {
				x := p.files["gpu/libx.dylib"]
				x.Symbols = append(x.Symbols, testkit.MachOSymbol{Name: "___cxa_init_primary_exception", Ordinal: 2})
			},
			want: []string{"macho.libcxx-too-new", "macOS has it since 15.0"},
		},
		"the same of another library": {
			change: func(p *macPayload) {
				x := p.files["gpu/libx.dylib"]
				x.Symbols = append(x.Symbols, testkit.MachOSymbol{Name: "___cxa_init_primary_exception", Ordinal: 1})
				p.files["gpu/libmlx.dylib"].Symbols = []testkit.MachOSymbol{{Name: "___cxa_init_primary_exception"}}
			},
		},
		"a symbol that the library lacks": {
			change: func(p *macPayload) {
				x := p.files["gpu/libx.dylib"]
				x.Symbols = append(x.Symbols, testkit.MachOSymbol{Name: "__ZN3mlx4core3addEv", Ordinal: 1})
			},
			want: []string{"symbols.undefined", "gpu/libx.dylib needs mlx::core::add() of libmlx.dylib"},
		},
		"text in a library's place": {
			after: func(tb testing.TB, dir string) {
				tb.Helper()
				put(t, filepath.Join(dir, "gpu/libdeep.dylib"), "not a library")
			},
			want: []string{"closure.missing", "libdeep.dylib, and what has that name is no library"},
		},
		"no kernels": {
			change: func(p *macPayload) { p.kernel = nil },
			want:   []string{"metallib.missing", "gpu/mlx.metallib"},
		},
		"kernels of a later system": {
			change: func(p *macPayload) { p.kernel = metallib(26, 2, 64) },
			want:   []string{"metallib.too-new", "need macOS 26.2"},
		},
		"half of the kernels": {
			change: func(p *macPayload) { p.kernel = metallib(14, 0, 128) },
			want:   []string{"metallib.damaged", "says that it has 128 bytes, and has 64"},
		},
		"cut off": {
			after: func(tb testing.TB, dir string) {
				tb.Helper()
				if err := os.Truncate(filepath.Join(dir, "gpu/libx.dylib"), 0x4020); err != nil {
					tb.Fatal(err)
				}
			},
			want: []string{"macho.unreadable", "gpu/libx.dylib"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodMac()
			if c.change != nil {
				c.change(p)
			}
			dir := p.write(t, func(dir string) {
				if c.after != nil {
					c.after(t, dir)
				}
			})
			res, err := Payload(context.Background(), Options{Dir: dir, NoRun: true})
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			for _, f := range res.Findings {
				seen = append(seen, f.ID+": "+f.Title+": "+f.Detail)
			}
			if c.want == nil {
				if len(seen) > 0 {
					t.Errorf("found %q", seen)
				}
				if res.Static.MachO != 4 || res.Static.Arch != "arm64" || res.Static.Floor.MacOS != "14.0" {
					t.Errorf("static is %+v", res.Static)
				}
				return
			}
			found := slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, c.want[0]+": ") && strings.Contains(s, c.want[1]) })
			if !found || len(seen) != 1 {
				t.Errorf("found %q, want %q alone", seen, c.want)
			}
		})
	}
}

// A trie without a byte may lie where the file ends.
func TestSpan(t *testing.T) {
	r := io.NewSectionReader(strings.NewReader("abcd"), 0, 4)
	for s, want := range map[span]string{{4, 0}: "", {0, 0}: "", {1, 3}: "bcd"} {
		if got, err := s.read(r); err != nil || string(got) != want {
			t.Errorf("%+v: %q, %v", s, got, err)
		}
	}
	if got, err := (span{2, 3}).read(r); err == nil {
		t.Errorf("beyond the end: %q", got)
	}
}
