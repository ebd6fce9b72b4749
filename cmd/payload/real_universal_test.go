//go:build real

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/macho"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"payload/internal/machofile"
	"payload/internal/manifest"
	"payload/internal/voice"
)

// macTree is a tree of the group base for one of a Mac's processors.
type macTree struct {
	preset, arch, target string
	minimum              string
	modules              map[string][]string // real sources, then flags, by the file that they make
	variants             []string
}

var macTrees = []macTree{
	{
		preset: "metal", arch: "arm64", target: "aarch64-macos.14.0", minimum: "14.0", variants: []string{"apple_m1"},
		modules: map[string][]string{
			"libggml-cpu-apple_m1.so": {"ggml-cpu/arch/arm/cpu-feats.cpp", "-DGGML_USE_DOTPROD"},
			"metal/libggml-metal.so":  {"ggml-metal/ggml-metal-tuning.cpp"}, // of the backend what needs no framework
		},
	},
	{
		preset: "darwin_amd64", arch: "amd64", target: "x86_64-macos.13.3", minimum: "13.3", variants: []string{"haswell", "x64"},
		modules: map[string][]string{
			"libggml-cpu-x64.so":     {"ggml-cpu/arch/x86/cpu-feats.cpp"},
			"libggml-cpu-haswell.so": {"ggml-cpu/arch/x86/cpu-feats.cpp", "-DGGML_AVX2", "-DGGML_FMA", "-DGGML_F16C", "-DGGML_BMI2"},
		},
	},
}

// zig compiles for a Mac with the pinned toolchain, which remembers what it has
// compiled already.
type zig struct {
	t     *testing.T
	path  string
	cache string
	ggml  string // folder of the real sources
	macho string // folder of the headers for the system's C++ library
}

func (z zig) run(dir string, args ...string) {
	z.t.Helper()
	cmd := exec.Command(z.path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ZIG_GLOBAL_CACHE_DIR="+z.cache, "ZIG_LOCAL_CACHE_DIR="+z.cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		z.t.Fatalf("zig %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// compile makes an object of a source of ggml's.
func (z zig) compile(dir, target, source string, flags ...string) string {
	z.t.Helper()
	object := strings.ReplaceAll(source, "/", "_") + fmt.Sprint(len(flags)) + ".o"
	args := []string{
		"cc", "-target", target, "-O1", "-g0", "-fPIC", "-D_DARWIN_C_SOURCE", "-DGGML_BUILD", "-DGGML_SHARED", "-DGGML_BACKEND_DL", "-DGGML_BACKEND_BUILD", "-DGGML_BACKEND_SHARED",
		"-I", z.cache, "-I", filepath.Join(z.ggml, "include"), "-I", filepath.Join(z.ggml, "src"), "-c", filepath.Join(z.ggml, "src", filepath.FromSlash(source)), "-o", object,
	}
	if filepath.Ext(source) == ".cpp" {
		args[0] = "c++"
		args = append(args, "-std=c++17", "-include", filepath.Join(z.macho, "system_libcxx.h"))
	}
	z.run(dir, append(args, flags...)...)
	return object
}

var ofLibcxx = regexp.MustCompile(`^(__ZN?K?S|__ZT[ISV]|__Zn|__Zd|___cxa|___gxx)`)

// link makes a library of objects, with the system's C++ library as far as they
// ask for it.
func (z zig) link(dir, target, out string, objects []string, with ...string) {
	z.t.Helper()
	var symbols []string
	for _, o := range objects {
		f, err := macho.Open(filepath.Join(dir, o))
		if err != nil {
			z.t.Fatal(err)
		}
		for _, s := range f.Symtab.Syms {
			if s.Type&0x0e == 0 && ofLibcxx.MatchString(s.Name) && !slices.Contains(symbols, s.Name) {
				symbols = append(symbols, s.Name)
			}
		}
		_ = f.Close() // only read
	}
	of, _, _ := strings.Cut(target, "-")
	of = strings.Replace(of, "aarch64", "arm64", 1) + "-macos"
	tbd := fmt.Sprintf("--- !tapi-tbd\ntbd-version: 4\ntargets: [ %s ]\ninstall-name: '/usr/lib/libc++.1.dylib'\ncurrent-version: 1\nexports:\n  - targets: [ %s ]\n    symbols: [ %s ]\n...\n", of, of, strings.Join(append(symbols, "___cxa_atexit"), ", "))
	stub := filepath.Join(dir, filepath.Base(out)+".tbd")
	if err := os.WriteFile(stub, []byte(tbd), 0o644); err != nil {
		z.t.Fatal(err)
	}
	args := []string{"c++", "-target", target, "-shared", "-nostdlib++", "-g0", "-o", out, "-Wl,-install_name,@rpath/" + filepath.Base(out), "-Wl,-rpath,@loader_path", "-Wl,-headerpad,0x1000", stub}
	z.run(dir, slices.Concat(args, objects, with)...)
}

// stage lays a tree out as its preset does.
func (z zig) stage(dir string, tree macTree) string {
	z.t.Helper()
	lib := filepath.Join(dir, "dist", tree.preset, "lib", "payload")
	work := z.t.TempDir()
	if err := os.MkdirAll(filepath.Join(lib, "metal"), 0o755); err != nil {
		z.t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(z.cache, "ggml-version.h"): "#pragma once\n#define GGML_VERSION \"0\"\n#define GGML_COMMIT \"0\"\n",
		filepath.Join(work, "main.c"):            "#include \"ggml.h\"\n#include <stdio.h>\nint main(void) { puts(ggml_type_name(GGML_TYPE_Q4_K)); return (int) ggml_row_size(GGML_TYPE_Q4_K, 255); }\n",
		filepath.Join(lib, "LICENSE"):            "MIT\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			z.t.Fatal(err)
		}
	}
	var objects []string
	for _, source := range []string{"ggml.c", "ggml.cpp", "ggml-alloc.c", "ggml-backend.cpp", "ggml-backend-meta.cpp", "ggml-opt.cpp", "ggml-threading.cpp", "ggml-quants.c", "gguf.cpp"} {
		objects = append(objects, z.compile(work, tree.target, source))
	}
	base := filepath.Join(lib, "libggml-base.dylib")
	z.link(work, tree.target, base, objects)
	for name, from := range tree.modules {
		var objects, flags []string
		for _, f := range from {
			if strings.HasPrefix(f, "-") {
				flags = append(flags, f)
			}
		}
		for _, source := range from[:len(from)-len(flags)] {
			objects = append(objects, z.compile(work, tree.target, source, flags...))
		}
		z.link(work, tree.target, filepath.Join(lib, filepath.FromSlash(name)), objects, base, "-Wl,-rpath,@loader_path/..")
	}
	z.run(work, "cc", "-target", tree.target, "-g0", "-o", filepath.Join(lib, "llama-server"), "-I", filepath.Join(z.ggml, "include"), "main.c", base, "-Wl,-rpath,@loader_path", "-Wl,-headerpad,0x1000")
	stageMac(z.t, lib, manifest.Manifest{
		Preset: tree.preset, Target: &manifest.Target{MacOS: tree.minimum},
		Components: []manifest.Component{{Name: "toy", Ref: "b1", Program: "llama-server", Verify: "completion-server", Backends: []string{"CPU"}, Variants: tree.variants}},
	})
	return lib
}

// TestRealUniversal has the pinned toolchain compile ggml of the pinned llama.cpp,
// with modules that only one of a Mac's processors has, packages both trees as
// payload.yaml has it, and takes the result apart: but for their signatures the
// images are what was compiled. What is not declared, or changed, is refused.
func TestRealUniversal(t *testing.T) {
	a := &app{dir: root(t), voice: voice.New(io.Discard)}
	w, err := a.open(context.Background(), sourceFlags{})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := w.Toolchain(context.Background(), "macho")
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	llama, _ := must(t, "source", "llama.cpp")
	z := zig{
		t: t, path: filepath.Join(tool.Path, "zig"), cache: filepath.Join(root(t), "build", "zig"),
		ggml: filepath.Join(strings.TrimSpace(llama), "ggml"), macho: filepath.Join(root(t), "mlx", "cmake", "macho"),
	}
	if err := os.MkdirAll(z.cache, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PAYLOAD_CACHE", filepath.Join(t.TempDir(), "cache"))
	dir := t.TempDir()
	group := ""
	for _, g := range w.File.Packages.Groups {
		if g.System == "darwin" && g.Name == "base" {
			group = fmt.Sprintf("{name: base, system: darwin, arch: %s, presets: [%s], single: ['%s']}", g.Arch, strings.Join(g.Presets, ", "), strings.Join(g.Single, "', '"))
		}
	}
	for name, text := range map[string]string{
		"payload.yaml": "version: 1\ncomponents:\n  toy: {pin: TOY_VERSION, upstream: upstream}\npackages:\n  groups:\n    - " + group + "\n  origins:\n    - {files: ['**'], component: toy, license: MIT}\n",
		"TOY_VERSION":  "b1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tree := range macTrees {
		z.stage(dir, tree)
	}
	commitAll(t, dir)
	// The toolchain signs for Apple silicon alone, so the other tree is not whole yet.
	pack := []string{"package", "darwin", "--allow-unverified", "--allow-unlocked"}
	code, _, told := payloadIn(dir, append(pack, "--macos", "14.0")...)
	if code != exitDone || !strings.Contains(told, "7 files; 2 joined, 4 not for every processor, as declared") || !strings.Contains(told, "6 files with 8 images signed") {
		t.Fatalf("exit %d\n%s", code, told)
	}
	lib := unpacked(t, dir)
	if code, out, told := payloadIn(dir, "verify", "--no-run", lib); code != exitDone {
		t.Fatalf("verify: exit %d\n%s%s", code, out, told)
	}
	for _, tree := range macTrees {
		for _, name := range append([]string{"llama-server", "libggml-base.dylib"}, slices.Collect(maps.Keys(tree.modules))...) {
			staged, err := os.ReadFile(filepath.Join(dir, "dist", tree.preset, "lib", "payload", name))
			if err != nil {
				t.Fatal(err)
			}
			if content(t, staged) != content(t, imageFor(t, filepath.Join(lib, name), tree.arch)) {
				t.Errorf("%s: the image for %s is not what was compiled", name, tree.arch)
			}
		}
	}
	macMutations(t, dir, lib)
	// What one processor alone has, and nobody declared.
	metal := filepath.Join(dir, "dist", "metal", "lib", "payload")
	if err := os.Rename(filepath.Join(metal, "libggml-cpu-apple_m1.so"), filepath.Join(metal, "libggml-blas.so")); err != nil {
		t.Fatal(err)
	}
	if code, _, told := payloadIn(dir, append(pack, "--allow-changed")...); code != exitVerification || !strings.Contains(told, "libggml-blas.so is in "+metal+" and there is none for amd64") {
		t.Errorf("exit %d\n%s", code, told)
	}
}

// macMutations changes the unpacked payload in ways that verify has to find.
func macMutations(t *testing.T, dir, lib string) {
	t.Helper()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(lib, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what, file string
		change     func(data []byte)
		want       string
	}{
		{"one byte of one image", "libggml-base.dylib", func(data []byte) {
			data[len(data)/2] ^= 1
			write("libggml-base.dylib", data)
		}, "macho.signature-page"},
		{"a library for one processor", "libggml-base.dylib", func([]byte) {
			write("libggml-base.dylib", imageFor(t, filepath.Join(lib, "libggml-base.dylib"), "arm64"))
		}, "arch.wrong"},
		{"no module for a processor", "libggml-cpu-haswell.so", func([]byte) {
			if err := os.Remove(filepath.Join(lib, "libggml-cpu-haswell.so")); err != nil {
				t.Fatal(err)
			}
		}, "variant.missing"},
		{"a module where the program does not look", "metal/libggml-metal.so", func(data []byte) { write("libggml-metal.so", data) }, "arch.wrong"},
	} {
		data, err := os.ReadFile(filepath.Join(lib, c.file))
		if err != nil {
			t.Fatal(err)
		}
		c.change(slices.Clone(data))
		if code, out, _ := payloadIn(dir, "verify", "--no-run", lib); code != exitVerification || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d\n%s", c.what, code, out)
		}
		write(c.file, data)
	}
}

// imageFor is the image of a file for one processor.
func imageFor(t *testing.T, file, arch string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	images, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(images, func(s machofile.Slice) bool { return s.Arch() == arch })
	if i < 0 {
		t.Fatalf("%s has no image for %s", file, arch)
	}
	return data[images[i].Offset : images[i].Offset+images[i].Size]
}

// content is the digest of an image between its load commands, which say where
// the signature is, and its signature.
func content(t *testing.T, image []byte) [32]byte {
	t.Helper()
	m, err := machofile.Thin(image)
	if err != nil {
		t.Fatal(err)
	}
	end := len(image)
	if at, _, ok := m.Signature(); ok {
		end = at
	}
	return sha256.Sum256(bytes.TrimRight(image[m.ContentStart():end], "\x00"))
}
