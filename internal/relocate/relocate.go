// Package relocate lets libraries that somebody compiled find each other where
// they lie side by side. A wheel's libraries look for theirs in the wheel's
// folders, or, on macOS, trust that the program knows. It edits the search path
// and nothing else, and signs a Mach-O file anew, ad hoc. A file that can't be
// edited in place is an error: it never moves bytes about.
package relocate

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/atomicfile"
	"payload/internal/codesign"
	"payload/internal/machofile"
)

// The search paths of a library that looks in its own folder.
const (
	originELF   = "$ORIGIN"
	originMachO = "@loader_path"
)

// Beside makes the library in file look for what it needs in its own folder. It
// says whether anything had to be changed; a file that is no library, or that
// looks there already, is left alone.
func Beside(file string) (changed bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return false, fmt.Errorf("relocating: %w", err)
	}
	magic := make([]byte, 4)
	_, err = f.ReadAt(magic, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	switch {
	case errors.Is(err, io.EOF):
		return false, nil // too short to be one
	case err != nil:
	case string(magic) == elf.ELFMAG:
		changed, err = besideELF(file)
	case slices.Equal(magic, []byte{0xcf, 0xfa, 0xed, 0xfe}): // 64 bits, little-endian
		changed, err = besideMachO(file)
	}
	if err != nil {
		return false, fmt.Errorf("relocating %s: %w", file, err)
	}
	return changed, nil
}

// besideELF cuts the search path to its first word, $ORIGIN. Shorter is all that
// a path can become in place.
func besideELF(file string) (bool, error) {
	f, err := elf.Open(file)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	var paths []string
	var where uint64 // offset of the path in the string table
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		text, err := f.DynString(tag)
		if err != nil {
			return false, err
		}
		offsets, err := f.DynValue(tag)
		if err != nil {
			return false, err
		}
		if len(text) > 0 {
			paths, where = append(paths, text...), offsets[0]
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return false, err
	}
	switch {
	case len(paths) == 0 && anyBeside(file, needed):
		return false, errors.New("it needs what lies beside it, and has no search path to change")
	case len(paths) == 0 || len(paths) == 1 && paths[0] == originELF:
		return false, nil
	case len(paths) > 1:
		return false, fmt.Errorf("it has several search paths: %q", paths)
	case !strings.HasPrefix(paths[0], originELF+"/") && !strings.HasPrefix(paths[0], originELF+":"):
		return false, fmt.Errorf("its search path %q does not begin with %s, and can't be replaced in place", paths[0], originELF)
	}
	strtab := f.Section(".dynstr")
	if strtab == nil {
		return false, errors.New("it has no .dynstr")
	}
	// A name that ends as the path does may share its bytes; one that began
	// within its first word would be cut too.
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return false, err
	}
	rest := paths[0]
	for i := 1; i <= len(originELF); i++ {
		if slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == rest[i:] }) || slices.Contains(needed, rest[i:]) {
			return false, fmt.Errorf("the name %s shares the bytes of its search path", rest[i:])
		}
	}
	w, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	_, err = w.WriteAt([]byte{0}, int64(strtab.Offset+where)+int64(len(originELF)))
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	return err == nil, err
}

func anyBeside(file string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(file), name))
		return err == nil
	})
}

// besideMachO makes a library find by @rpath what it needs of its own folder, and
// adds @loader_path to what @rpath stands for. A name that is a path of the
// machine that compiled it becomes one by @rpath.
func besideMachO(file string) (bool, error) {
	info, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	m, err := machofile.Thin(data)
	if err != nil {
		return false, err
	}
	changed, err := m.Rename(func(name string, own bool) string {
		base := path.Base(name)
		if own {
			base = filepath.Base(file)
		}
		if path.IsAbs(name) && (own || anyBeside(file, []string{base})) && !systemLibrary(name) {
			return byRpath + base
		}
		return name
	})
	if err != nil {
		return false, err
	}
	var beside []string
	for _, name := range m.Needed() {
		if rest, ok := strings.CutPrefix(name, byRpath); ok {
			beside = append(beside, rest)
		}
	}
	searches := slices.ContainsFunc(m.Rpaths(), func(dir string) bool { return strings.TrimSuffix(dir, "/") == originMachO })
	if anyBeside(file, beside) && !searches {
		changed = true
		if err := m.AddRpath(originMachO); err != nil {
			return false, err
		}
	}
	if !changed {
		return false, nil
	}
	signed, err := codesign.Bytes(context.Background(), m.Bytes(), codesign.Identifier("", file), nil, codesign.Options{})
	if err != nil {
		return false, err
	}
	return true, atomicfile.Write(file, signed, info.Mode().Perm())
}

const byRpath = "@rpath/"

func systemLibrary(name string) bool {
	return strings.HasPrefix(name, "/usr/lib/") || strings.HasPrefix(name, "/System/Library/")
}
