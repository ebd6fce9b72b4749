//go:build real

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"payload/internal/machofile"
	"payload/internal/voice"
)

// TestRealUniversal has the pinned toolchain compile a C library and a program
// that loads it for both of a Mac's processors, packages them, and takes the
// result apart: but for their signatures the images are what was compiled.
func TestRealUniversal(t *testing.T) {
	a := &app{dir: root(t), voice: voice.New(io.Discard)}
	w, err := a.open(context.Background(), sourceFlags{})
	if err != nil {
		t.Fatal(err)
	}
	zig, err := w.Toolchain(context.Background(), "macho")
	if err != nil {
		t.Fatal(err)
	}
	defer zig.Close()
	src, cache := t.TempDir(), filepath.Join(root(t), "build", "zig")
	for name, text := range map[string]string{
		"lib.c":  "#include <string.h>\nunsigned long toy(const char *s) { return strlen(s); }\n",
		"tool.c": "unsigned long toy(const char *);\nint main(int n, char **v) { return (int)toy(v[n - 1]); }\n",
	} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := macRepoOf(t, func(lib string, amd64 bool) {
		target := "aarch64-macos.14.0"
		if amd64 {
			target = "x86_64-macos.14.0"
		}
		for _, args := range [][]string{
			{"-shared", "-o", "libtoy.dylib", "-Wl,-install_name,@rpath/libtoy.dylib", "-g0", filepath.Join(src, "lib.c")},
			{"-o", "tool", "-Wl,-rpath,@loader_path", "-g0", filepath.Join(src, "tool.c"), "libtoy.dylib"},
		} {
			cmd := exec.Command(filepath.Join(zig.Path, "zig"), append([]string{"cc", "-target", target}, args...)...)
			cmd.Dir = lib
			cmd.Env = append(os.Environ(), "ZIG_GLOBAL_CACHE_DIR="+cache, "ZIG_LOCAL_CACHE_DIR="+cache)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("zig: %v\n%s", err, out)
			}
		}
	})
	// The toolchain signs for Apple silicon alone, so the other tree is not whole yet.
	code, _, told := payloadIn(dir, "package", "darwin", "--allow-unverified")
	if code != exitDone {
		t.Fatalf("exit %d\n%s", code, told)
	}
	lib := unpacked(t, dir)
	if code, _, told := payloadIn(dir, "verify", "--no-run", lib); code != exitDone {
		t.Errorf("verify: exit %d\n%s", code, told)
	}
	for _, name := range []string{"tool", "libtoy.dylib"} {
		fat, err := os.ReadFile(filepath.Join(lib, name))
		if err != nil {
			t.Fatal(err)
		}
		images, err := machofile.Slices(bytes.NewReader(fat), int64(len(fat)))
		if err != nil || len(images) != 2 {
			t.Fatalf("%s: %v, %v", name, images, err)
		}
		for i, preset := range []string{"amd", "arm"} {
			staged, err := os.ReadFile(filepath.Join(dir, "dist", preset, "lib", "payload", name))
			if err != nil {
				t.Fatal(err)
			}
			s := images[i]
			if content(t, staged) != content(t, fat[s.Offset:s.Offset+s.Size]) {
				t.Errorf("%s: the image for %s is not what was compiled", name, s.Arch())
			}
		}
	}
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
