package mlx

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"payload/mlx/internal/c"
)

// PathVariable names the environment variable that says where the library is:
// its folder, the folder above it (lib/payload), or the file itself.
const PathVariable = "PAYLOAD_MLX_PATH"

// A Place is where the library was looked for, and why it was not taken.
type Place struct {
	Path string
	Why  string
}

// A LoadError says that no MLX library was found, and where it was looked for.
type LoadError struct{ Places []Place }

func (e *LoadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "finding %s: none at the places looked at (%s names another):", libraryName(), PathVariable)
	for _, p := range e.Places {
		fmt.Fprintf(&b, "\n  %s: %s", p.Path, p.Why)
	}
	return b.String()
}

// VersionError says that the library found is of another MLX than these
// bindings; SymbolError that it is of another mlx-c.
type (
	VersionError = c.VersionError
	SymbolError  = c.SymbolError
)

// BoundVersion is the version of MLX that these bindings were made for, as the
// library tells it.
const BoundVersion = c.MLXVersion

var load = sync.OnceValues(func() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the folder of this program: %w", err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", fmt.Errorf("finding the folder of this program: %w", err)
	}
	return open(candidates(os.Getenv(PathVariable), filepath.Dir(exe)), systemVersion())
})

// Load finds the library and binds it, once in a process. Everything here does
// it when first used; calling it early gives a clear error early: *LoadError,
// *VersionError or *SymbolError.
//
// PAYLOAD_MLX_PATH is looked at alone where it is set. Otherwise the library
// is beside the program, or in a payload's mlx_* folder: lib/payload beside
// the program's folder or in it.
func Load() error {
	_, err := load()
	return err
}

// Library gives the path of the library that was loaded.
func Library() (string, error) { return load() }

// Version asks the library for the version of its MLX.
func Version() (string, error) {
	if err := Load(); err != nil {
		return "", err
	}
	return c.LibraryVersion()
}

// candidates lists the files to try, in order. A folder that holds nothing of
// a payload stands for the library that is not in it, so that it can be told.
func candidates(variable, program string) []string {
	folders := []string{program, filepath.Join(program, "lib", "payload"), filepath.Join(filepath.Dir(program), "lib", "payload")}
	if variable != "" {
		if filepath.Base(variable) == libraryName() {
			return []string{variable}
		}
		folders = []string{variable}
	}
	var out []string
	for _, dir := range folders {
		out = append(out, filepath.Join(dir, libraryName()))
		for _, sub := range backends(dir) {
			out = append(out, inBackend(filepath.Join(dir, sub)))
		}
	}
	return out
}

// inBackend gives the library's place in a backend's folder: there, or in lib
// where headers that are needed at run time lie beside that.
func inBackend(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "lib")); err == nil {
		return filepath.Join(dir, "lib", libraryName())
	}
	return filepath.Join(dir, libraryName())
}

// backends gives the mlx_* folders of dir, the newest kind of each first and
// the CPU's last: what is for a newer system is passed over, and the next is
// tried.
func backends(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // told by the library that is missing there
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "mlx_") {
			out = append(out, e.Name())
		}
	}
	rank := func(name string) int {
		if name == "mlx_cpu" {
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b, a))
	})
	return out
}

// open binds the first of paths that is a library of this system. One of
// another version stops the search: a payload of parts that don't fit is
// broken, and the next place would hide it. system is the version of macOS.
func open(paths []string, system string) (string, error) {
	missing := &LoadError{}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			missing.Places = append(missing.Places, Place{path, "no such file"})
			continue
		}
		if why := tooNew(path, system); why != "" {
			missing.Places = append(missing.Places, Place{path, why})
			continue
		}
		err := c.Open(path)
		switch err.(type) { //nolint:errorlint // c.Open gives these unwrapped
		case nil:
			return path, nil
		case *VersionError, *SymbolError:
			return "", err
		}
		missing.Places = append(missing.Places, Place{path, err.Error()})
	}
	return "", missing
}

func libraryName() string {
	switch runtime.GOOS {
	case "darwin":
		return "libmlxc.dylib"
	case "windows":
		return "mlxc.dll"
	}
	return "libmlxc.so"
}
