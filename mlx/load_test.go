package mlx

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestCandidates(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"lib/payload/mlx_cpu", "lib/payload/mlx_metal_v3", "lib/payload/mlx_metal_v4", "lib/payload/mlx_cuda_v13/lib", "lib/payload/vulkan", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p), libraryName()) }
	got := candidates("", filepath.Join(dir, "bin"))
	want := []string{
		at("bin"), at("bin/lib/payload"), at("lib/payload"),
		at("lib/payload/mlx_metal_v4"), at("lib/payload/mlx_metal_v3"),
		at("lib/payload/mlx_cuda_v13/lib"), at("lib/payload/mlx_cpu"),
	}
	if !slices.Equal(got, want) {
		t.Errorf("beside the program:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = candidates(filepath.Join(dir, "lib", "payload"), filepath.Join(dir, "bin"))
	if want := want[2:]; !slices.Equal(got, want) {
		t.Errorf("with the variable:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	file := at("lib/payload/mlx_cpu")
	if got := candidates(file, dir); !slices.Equal(got, []string{file}) {
		t.Errorf("with a file: %v", got)
	}
}

func TestNoLibraryTellsEveryPlace(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, libraryName())
	if err := os.WriteFile(broken, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "none", libraryName())
	_, err := open([]string{missing, broken}, "")
	var e *LoadError
	if !errors.As(err, &e) || len(e.Places) != 2 {
		t.Fatalf("error %v", err)
	}
	for _, text := range []string{missing + ": no such file", broken + ": ", PathVariable} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

// The tests of libraries that don't fit run this test in a process of their
// own: a library that was opened stays in the process.
func TestLoadInAProcessOfItsOwn(t *testing.T) {
	path := os.Getenv("MLX_TEST_LOAD")
	if path == "" {
		t.Skip("called by the tests below")
	}
	_, err := open([]string{path}, "")
	var version *VersionError
	var symbols *SymbolError
	t.Logf("version %v, symbols %v: %v", errors.As(err, &version), errors.As(err, &symbols), err)
}

func loadElsewhere(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLoadInAProcessOfItsOwn$", "-test.v")
	cmd.Env = append(os.Environ(), "MLX_TEST_LOAD="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// library gives the real one, as mlxtest.Library does for other packages.
func library(t *testing.T) string {
	t.Helper()
	path, err := Library()
	var missing *LoadError
	if errors.As(err, &missing) && os.Getenv(PathVariable) == "" {
		t.Skipf("NOT RUN: no MLX library here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The real payload with another version's number in it is refused.
func TestAnotherVersionIsRefused(t *testing.T) {
	path := library(t)
	if runtime.GOOS != "linux" {
		t.Skip("NOT RUN: a library changed on disk would need a new signature")
	}
	// The folder's neighbours come along: libraries find theirs from their own place.
	root := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	part, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, mlxOnly(root)); err != nil {
		t.Fatal(err)
	}
	mlxPath := filepath.Join(copied, filepath.Dir(part), "libmlx.so")
	data, err := os.ReadFile(mlxPath)
	if err != nil {
		t.Fatal(err)
	}
	have, other := []byte(BoundVersion+"\x00"), []byte("9"+BoundVersion[1:]+"\x00")
	if !bytes.Contains(data, have) {
		t.Fatalf("%s does not hold its version as a text", mlxPath)
	}
	if err := os.WriteFile(mlxPath, bytes.ReplaceAll(data, have, other), 0o644); err != nil {
		t.Fatal(err)
	}
	out := loadElsewhere(t, filepath.Join(copied, part))
	if !strings.Contains(out, "version true") || !strings.Contains(out, "it holds MLX 9.32.2, and these bindings are for MLX "+BoundVersion) {
		t.Errorf("loading another version:\n%s", out)
	}
}

// mlxOnly leaves out what other backends have beside the one in use.
func mlxOnly(root string) fs.FS { return only{os.DirFS(root)} }

type only struct{ fs.FS }

func (o only) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		n := e.Name()
		return e.IsDir() && n != "lib" && n != "payload" && !strings.HasPrefix(n, "mlx_")
	}), err
}

func TestALibraryOfSomethingElseIsRefused(t *testing.T) {
	library(t)
	if runtime.GOOS != "linux" {
		t.Skip("NOT RUN: needs another library at a known place")
	}
	other, err := filepath.Glob("/lib/*-linux-gnu/libm.so.6")
	if err != nil || len(other) == 0 {
		t.Skip("NOT RUN: no libm.so.6 at the usual place")
	}
	out := loadElsewhere(t, other[0])
	if !strings.Contains(out, "symbols true") || !strings.Contains(out, "functions are missing (") {
		t.Errorf("loading %s:\n%s", other[0], out)
	}
}
