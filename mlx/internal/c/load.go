package c

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ebitengine/purego"
)

// A VersionError says that the library is of another MLX than the bindings.
type VersionError struct{ Path, Library, Bindings string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("loading %s: it holds MLX %s, and these bindings are for MLX %s", e.Path, e.Library, e.Bindings)
}

// A SymbolError says that the library lacks functions that are bound.
type SymbolError struct {
	Path    string
	Missing []string
}

func (e *SymbolError) Error() string {
	some := e.Missing
	if len(some) > 5 {
		some = append(some[:5:5], "…")
	}
	return fmt.Sprintf("loading %s: it is of another mlx-c than these bindings: %d of %d functions are missing (%s)",
		e.Path, len(e.Missing), len(bound), strings.Join(some, ", "))
}

// The callback is made once: a process can have a limited number, and they
// are never freed.
var tellAddress = sync.OnceValue(func() uintptr { return purego.NewCallback(tell) })

// OpenBLAS is whether the library that was opened multiplies by OpenBLAS.
var OpenBLAS bool

// Open loads the library at path and binds every function. After an error of
// type VersionError or SymbolError the library stays mapped and unused.
func Open(path string) error {
	lib, err := openLibrary(path)
	if err != nil {
		return err
	}
	addresses := make([]uintptr, len(bound))
	var missing []string
	for i, s := range bound {
		if addresses[i], err = lookUp(lib, s.name); err != nil {
			missing = append(missing, s.name)
		}
	}
	if len(missing) > 0 {
		return &SymbolError{Path: path, Missing: missing}
	}
	if err := findThreadID(); err != nil {
		return err
	}
	for i, s := range bound {
		if s.fn != nil {
			*s.fn = addresses[i]
		} else {
			purego.RegisterFunc(s.reg, addresses[i])
		}
	}
	_, err = lookUp(lib, "openblas_get_config") // of what the library is linked to
	OpenBLAS = err == nil
	SetErrorHandler(tellAddress(), 0, 0)
	version, err := LibraryVersion()
	if err != nil {
		return fmt.Errorf("loading %s: asking for its version: %w", path, err)
	}
	if version != MLXVersion {
		return &VersionError{Path: path, Library: version, Bindings: MLXVersion}
	}
	return nil
}

// LibraryVersion asks the library for the version of its MLX.
func LibraryVersion() (string, error) {
	s, err := StringNew()
	if err != nil {
		return "", err
	}
	defer func() { _ = StringFree(s) }() // it can't fail
	if err := Version(&s); err != nil {
		return "", err
	}
	return StringData(s), nil
}

// Bound gives the names of the functions that are bound here.
func Bound() []string {
	out := make([]string, len(bound))
	for i, s := range bound {
		out[i] = s.name
	}
	return out
}
