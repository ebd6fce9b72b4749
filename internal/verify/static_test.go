package verify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/run"
)

// compile builds C text into dir/name with the given words of the command line.
func compile(t *testing.T, dir, name, text string, args ...string) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "x.c")
	put(t, src, text)
	out := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		t.Fatal(err)
	}
	all := append([]string{"cc", "-g", "-o", out, src, "-L" + filepath.Dir(out), "-Wl,--enable-new-dtags"}, args...)
	if _, err := run.Do(context.Background(), run.Cmd{Args: all}); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// seal writes the manifest of dir as it is now.
func seal(t *testing.T, dir string) {
	t.Helper()
	files, err := manifest.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Write(dir, manifest.Manifest{Files: files}); err != nil {
		t.Fatal(err)
	}
}

const origin = "-Wl,-rpath,$ORIGIN"

// goodPayload is a program, a library under a link, a library that only the
// first one needs, and a module that is loaded by name.
func goodPayload(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a compiler for ELF")
	}
	dir := t.TempDir()
	compile(t, dir, "libdeep.so", "int deep(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libdeep.so")
	compile(t, dir, "libbase.so.1", "int deep(void); int base(void) { return deep(); }", "-shared", "-fPIC", "-Wl,-soname,libbase.so.1", "-ldeep", origin)
	if err := os.Symlink("libbase.so.1", filepath.Join(dir, "libbase.so")); err != nil {
		t.Fatal(err)
	}
	compile(t, dir, "prog", "int base(void); int main(void) { return base(); }", "-lbase", "-Wl,-rpath-link,"+dir, origin)
	compile(t, dir, "sub/libmod.so", "int base(void); int mod(void) { return base(); }", "-shared", "-fPIC", "-L"+dir, "-lbase", "-Wl,-rpath,$ORIGIN/..")
	seal(t, dir)
	return dir
}

func verifyStatic(t *testing.T, dir string) Result {
	t.Helper()
	res, err := Payload(context.Background(), Options{Dir: dir, Program: "prog", Glibc: "2.90"})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func keys(findings []report.Finding) []string {
	list := []string{}
	for _, f := range findings {
		list = append(list, f.Key)
	}
	slices.Sort(list)
	return list
}

func TestStaticGood(t *testing.T) {
	res := verifyStatic(t, goodPayload(t))
	if len(res.Findings) > 0 || res.Failed() {
		t.Errorf("found %+v", res.Findings)
	}
	if res.Static.ELF != 4 || res.Static.Files != 5 || res.Static.Arch != runtime.GOARCH || res.Static.Floor.Glibc == "" {
		t.Errorf("saw %+v", res.Static)
	}
	if v := res.Verified(); !v.Static || v.Kind != "" {
		t.Errorf("verified %+v", v)
	}
}

// Nothing of a folder that isn't a payload is read.
func TestNoManifest(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "disk.img"), "whatever")
	res, err := Payload(t.Context(), Options{Dir: dir, Kind: "completion-server", Program: "prog"})
	if err != nil {
		t.Fatal(err)
	}
	if got := keys(res.Findings); !slices.Equal(got, []string{"manifest.missing:payload.json"}) || res.Static.Files != 0 || res.Runtime != nil {
		t.Errorf("got %q, %+v, %+v", got, res.Static, res.Runtime)
	}
}

// The modules that are there must be those that were built.
func TestVariantsAreThoseBuilt(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libggml-cpu-haswell.so", "libggml-cpu-zen9.so", "libggml-base.so"} {
		put(t, filepath.Join(dir, name), "stands for a module")
	}
	seal(t, dir)
	for _, tt := range []struct{ built, want []string }{
		{[]string{"zen9", "haswell"}, []string{}},
		{[]string{"haswell", "x64"}, []string{"variant.extra:zen9", "variant.missing:x64"}},
		{nil, []string{}},
	} {
		res, err := Payload(t.Context(), Options{Dir: dir, Kind: "completion-server", Program: "prog", Variants: tt.built, NoRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := keys(res.Findings); !slices.Equal(got, tt.want) {
			t.Errorf("built %q: got %q, want %q", tt.built, got, tt.want)
		}
	}
}

// kit changes a payload.
type kit struct {
	*testing.T
	dir string
}

func (k kit) path(p ...string) string { return filepath.Join(append([]string{k.dir}, p...)...) }

func (k kit) remove(p ...string) { k.must(os.Remove(k.path(p...))) }

func (k kit) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func TestStaticFaults(t *testing.T) {
	shared := []string{"-shared", "-fPIC"}
	for _, tt := range []struct {
		name   string
		change func(k kit)
		sealed bool // the manifest is written again after the change
		want   []string
		beside bool // it is about what lies beside the folder
	}{
		{"flipped byte", func(k kit) {
			path := k.path("libdeep.so")
			data, err := os.ReadFile(path)
			k.must(err)
			data[len(data)-1] ^= 1
			put(k.T, path, string(data))
		}, false, []string{"digest.changed:libdeep.so"}, false},
		{"missing file", func(k kit) { k.remove("sub", "libmod.so") }, false, []string{"files.missing:sub/libmod.so"}, false},
		{"extra file", func(k kit) { put(k.T, k.path("x", "y"), "z") }, false, []string{"files.extra:x/y"}, false},
		{"lost executable bit", func(k kit) { k.must(os.Chmod(k.path("prog"), 0o644)) }, false, []string{"files.mode:prog"}, false},
		{"other link", func(k kit) {
			k.remove("libbase.so")
			k.must(os.Symlink("libdeep.so", k.path("libbase.so")))
		}, false, []string{"links.changed:libbase.so"}, false},
		{"link out", func(k kit) { k.must(os.Symlink("../../etc/passwd", k.path("sub", "l"))) }, true, []string{"links.outside:sub/l"}, false},
		{"absolute link", func(k kit) { k.must(os.Symlink("/etc/passwd", k.path("l"))) }, true, []string{"links.absolute:l"}, false},
		{"dangling link", func(k kit) { k.must(os.Symlink("nothing", k.path("l"))) }, true, []string{"links.broken:l"}, false},
		{"links in a circle", func(k kit) {
			k.must(os.Symlink("b", k.path("a")))
			k.must(os.Symlink("a", k.path("b")))
		}, true, []string{"links.cycle:a", "links.cycle:b"}, false},
		{"no manifest", func(k kit) { k.remove(manifest.Name) }, false, []string{"manifest.missing:payload.json"}, false},
		{"broken manifest", func(k kit) { put(k.T, k.path(manifest.Name), "{") }, false, []string{"manifest.unreadable:payload.json"}, false},
		{"damaged ELF", func(k kit) { put(k.T, k.path("libbad.so"), "\x7fELFnot at all") }, true, []string{"elf.unreadable:libbad.so"}, false},
		{"library gone", func(k kit) { k.remove("libdeep.so") }, true, []string{"closure.missing:libbase.so.1:libdeep.so"}, false},
		{"link gone", func(k kit) {
			k.must(os.Rename(k.path("libbase.so.1"), k.path("libbase.so.1.0")))
			k.remove("libbase.so")
		}, true, []string{"closure.missing:prog:libbase.so.1", "closure.missing:sub/libmod.so:libbase.so.1"}, false},
		{"text in a library's place", func(k kit) { put(k.T, k.path("libdeep.so"), "not a library") }, true, []string{"closure.missing:libbase.so.1:libdeep.so"}, false},
		{"no rpath", func(k kit) {
			compile(k.T, k.dir, "sub/libmod.so", "int base(void); int mod(void) { return base(); }", append(shared, "-L"+k.dir, "-lbase")...)
		}, true, []string{"rpath.missing:sub/libmod.so:libbase.so.1"}, false},
		{"rpath to another folder", func(k kit) {
			compile(k.T, k.dir, "sub/libmod.so", "int base(void); int mod(void) { return base(); }", append(shared, "-L"+k.dir, "-lbase", origin)...)
		}, true, []string{"rpath.missing:sub/libmod.so:libbase.so.1"}, false},
		{"rpath of the build tree", func(k kit) {
			compile(k.T, k.dir, "sub/libmod.so", "int base(void); int mod(void) { return base(); }", append(shared, "-L"+k.dir, "-lbase", "-Wl,-rpath,$ORIGIN/..:/nowhere/build/bin")...)
		}, true, []string{"rpath.absolute:sub/libmod.so:/nowhere/build/bin"}, false},
		{"relative and empty rpath", func(k kit) {
			compile(k.T, k.dir, "sub/libmod.so", "int base(void); int mod(void) { return base(); }", append(shared, "-L"+k.dir, "-lbase", "-Wl,-rpath,$ORIGIN/..:lib:")...)
		}, true, []string{"rpath.relative:sub/libmod.so:", "rpath.relative:sub/libmod.so:lib"}, false},
		{"library of this machine only", func(k kit) {
			compile(k.T, k.dir, "libz.so.9", "int zed(void) { return 0; }", append(shared, "-Wl,-soname,libz.so.9")...)
			compile(k.T, k.dir, "libmod2.so", "int zed(void); int mod(void) { return zed(); }", append(shared, "-l:libz.so.9", origin)...)
			k.remove("libz.so.9")
		}, true, []string{"closure.missing:libmod2.so:libz.so.9"}, false},
		{"needed by path", func(k kit) {
			out := k.TempDir()
			compile(k.T, out, "libfar.so", "int far(void) { return 0; }", shared...)
			compile(k.T, k.dir, "libmod2.so", "int far(void); int mod(void) { return far(); }", append(shared, filepath.Join(out, "libfar.so"))...)
		}, true, []string{"closure.outside:libmod2.so:"}, false},
		{"found outside", func(k kit) {
			compile(k.T, filepath.Dir(k.dir), "libout.so", "int out(void) { return 0; }", append(shared, "-Wl,-soname,libout.so")...)
			compile(k.T, k.dir, "libmod2.so", "int out(void); int mod(void) { return out(); }", append(shared, "-L"+filepath.Dir(k.dir), "-lout", "-Wl,-rpath,$ORIGIN/..")...)
		}, true, []string{"closure.outside:libmod2.so:libout.so"}, true},
		{"a symbol that nothing has", func(k kit) {
			compile(k.T, k.dir, "sub/libmod.so", "int base(void); int gone(void); int mod(void) { return base() + gone(); }", append(shared, "-L"+k.dir, "-lbase", "-Wl,-rpath,$ORIGIN/..")...)
		}, true, []string{"symbols.undefined:sub/libmod.so"}, false},
		{"a library rebuilt without a symbol", func(k kit) {
			compile(k.T, k.dir, "libdeep.so", "int deeper(void) { return 1; }", append(shared, "-Wl,-soname,libdeep.so")...)
		}, true, []string{"symbols.undefined:libbase.so.1"}, false},
		{"a library rebuilt without a version", func(k kit) {
			script := filepath.Join(k.TempDir(), "v.map")
			put(k.T, script, "V_2 { global: deep; };\n")
			lib := append(shared, "-Wl,-soname,libdeep.so")
			compile(k.T, k.dir, "libdeep.so", "int deep(void) { return 1; }", append(lib, "-Wl,--version-script,"+script)...)
			compile(k.T, k.dir, "libbase.so.1", "int deep(void); int base(void) { return deep(); }", append(shared, "-Wl,-soname,libbase.so.1", "-ldeep", origin)...)
			put(k.T, script, "V_1 { global: deep; };\n")
			compile(k.T, k.dir, "libdeep.so", "int deep(void) { return 1; }", append(lib, "-Wl,--version-script,"+script)...)
		}, true, []string{"symbols.version:libbase.so.1"}, false},
		{"an unfinished library", func(k kit) { put(k.T, k.path("libdeep.so.1.2.3.tmp"), "x") }, true, []string{"names.unfinished:libdeep.so.1.2.3.tmp"}, false},
		{"case clash", func(k kit) { put(k.T, k.path("Sub", "x"), "x") }, true, []string{"names.case-clash:sub"}, false},
		{"a newer glibc's symbol", func(k kit) {
			script, out := filepath.Join(k.TempDir(), "v.map"), k.TempDir()
			put(k.T, script, "GLIBC_2.99 { global: cosine; };\n")
			compile(k.T, out, "libm.so.6", "double cosine(double x) { return x; }", append(shared, "-Wl,-soname,libm.so.6", "-Wl,--version-script,"+script)...)
			compile(k.T, k.dir, "libmod2.so", "double cosine(double); double mod(void) { return cosine(1); }", append(shared, filepath.Join(out, "libm.so.6"))...)
		}, true, []string{"floor.glibc:libmod2.so"}, false},
		{"kernels compiled at run time without headers", func(k kit) {
			compile(k.T, k.dir, "libnvrtc.so.13", "int nvrtc(void) { return 0; }", append(shared, "-Wl,-soname,libnvrtc.so.13")...)
			compile(k.T, k.dir, "libmod2.so", "int nvrtc(void); int mod(void) { return nvrtc(); }", append(shared, "-l:libnvrtc.so.13", origin)...)
			for _, h := range []string{"include/cuda_fp16.h", "include/cccl/cuda/std/array", "include/cccl/cuda/std/limits", "include/cccl/cuda/std/tuple"} {
				put(k.T, k.path(h), "")
			}
		}, true, []string{"headers.missing:libmod2.so:include/cuda_bf16.h"}, false},
		{"other architecture", func(k kit) {
			path := k.path("sub", "libmod.so")
			data, err := os.ReadFile(path)
			k.must(err)
			data[18], data[19] = 243, 0 // e_machine: RISC-V
			put(k.T, path, string(data))
		}, true, []string{"arch.wrong:sub/libmod.so"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "payload")
			if err := copyFolder(goodPayload(t), dir, copyFile, nil); err != nil {
				t.Fatal(err)
			}
			tt.change(kit{t, dir})
			if tt.sealed {
				_ = os.Remove(filepath.Join(dir, manifest.Name)) // a change may have
				seal(t, dir)
			}
			res := verifyStatic(t, dir)
			got := keys(res.Findings)
			if len(got) == len(tt.want) && len(got) > 0 && strings.HasSuffix(tt.want[0], ":") && strings.HasPrefix(got[0], tt.want[0]) {
				got[0] = tt.want[0] // the key holds a temporary folder
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q\n%+v", got, tt.want, res.Findings)
			}
			if !res.Failed() || res.Verified().Static {
				t.Error("the result does not fail")
			}
			// A finished archive has the same faults.
			file := filepath.Join(t.TempDir(), "payload.tar.zst")
			put(t, file, string(zstdOf(t, tarOf(t, entriesOf(t, dir)))))
			packed := keys(verifyArchive(t, file, Options{Program: "prog", Glibc: "2.90"}).Findings)
			if len(packed) == len(got) && len(got) > 0 && strings.HasSuffix(got[0], ":") {
				packed[0] = got[0]
			}
			if !slices.Equal(packed, got) && !tt.beside {
				t.Errorf("in an archive: got  %q\nwant %q", packed, got)
			}
		})
	}
}

// A program's DT_RPATH serves the libraries that it loads, a RUNPATH does not.
func TestRpathIsInherited(t *testing.T) {
	dir := t.TempDir()
	if runtime.GOOS != "linux" {
		t.Skip("needs a compiler for ELF")
	}
	compile(t, dir, "lib/libdeep.so", "int deep(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libdeep.so")
	compile(t, dir, "lib/libbase.so", "int deep(void); int base(void) { return deep(); }", "-shared", "-fPIC", "-Wl,-soname,libbase.so", "-ldeep")
	for _, tt := range []struct {
		tags string
		want []string
	}{
		{"-Wl,--disable-new-dtags", []string{}},
		{"-Wl,--enable-new-dtags", []string{"rpath.missing:lib/libbase.so:libdeep.so"}},
	} {
		compile(t, dir, "prog", "int base(void); int main(void) { return base(); }", "-L"+filepath.Join(dir, "lib"), "-lbase", "-Wl,-rpath-link,"+filepath.Join(dir, "lib"), tt.tags, "-Wl,-rpath,$ORIGIN/lib")
		seal(t, dir)
		_, err := run.Do(context.Background(), run.Cmd{Args: []string{filepath.Join(dir, "prog")}})
		exit := new(run.ExitError)
		if loads := errors.As(err, &exit) && exit.Code == 1; loads != (len(tt.want) == 0) {
			t.Errorf("%s: the loader itself says %v", tt.tags, err)
		}
		if got := keys(verifyStatic(t, dir).Findings); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.tags, got, tt.want)
		}
	}
}

func TestNotAPayload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	put(t, file, "")
	for _, dir := range []string{file, file + "-not-there"} {
		if _, err := Payload(context.Background(), Options{Dir: dir}); !errors.As(err, new(*FolderError)) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := Payload(context.Background(), Options{Dir: t.TempDir(), Kind: "teapot"}); !errors.As(err, new(*KindError)) {
		t.Errorf("unknown kind: %v", err)
	}
}

func TestAllowsMapped(t *testing.T) {
	p := platforms["linux"]
	for file, want := range map[string]bool{
		"/usr/lib/x86_64-linux-gnu/libc.so.6":                         true,
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30":               true,
		"/opt/conda/lib/libstdc++.so.6.0.30":                          false,
		"/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0":                  false,
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3":                    false,
		"/usr/lib/locale/locale-archive":                              true,
		"/usr/lib/locale/C.utf8/LC_CTYPE":                             true,
		"/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache":         true,
		"/work/build/bin/libggml.so":                                  false,
		"/dev/nvidiactl":                                              true,
		"/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.550.1": true,
	} {
		if got := p.allowsMapped(file); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}
