// Package relocate lets libraries that somebody compiled find each other where
// they lie side by side. A wheel's libraries look for theirs in the wheel's
// folders, or, on macOS, trust that the program knows. It edits the search path
// and nothing else, and signs a Mach-O file anew, ad hoc. A file that can't be
// edited in place is an error: it never moves bytes about.
package relocate

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blacktop/go-macho"
	"github.com/blacktop/go-macho/pkg/codesign"
	signtypes "github.com/blacktop/go-macho/pkg/codesign/types"
	"github.com/blacktop/go-macho/types"

	"payload/internal/atomicfile"
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

// besideMachO adds @loader_path to the search path of a library that needs
// something by @rpath that lies beside it.
func besideMachO(file string) (bool, error) {
	info, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	f, err := macho.Open(file)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	var beside []string
	for _, name := range f.ImportedLibraries() {
		if rest, ok := strings.CutPrefix(name, "@rpath/"); ok {
			beside = append(beside, rest)
		}
	}
	if !anyBeside(file, beside) {
		return false, nil
	}
	for _, load := range f.Loads {
		if r, ok := load.(*macho.Rpath); ok && strings.TrimSuffix(r.Path, "/") == originMachO {
			return false, nil
		}
	}
	rpath := &macho.Rpath{
		RpathCmd: types.RpathCmd{LoadCmd: types.LC_RPATH, PathOffset: 12},
		Path:     originMachO,
	}
	rpath.Len = rpath.LoadSize()
	f.AddLoad(rpath)
	// Save writes over what comes next without a word.
	if end, first := uint64(f.HdrSize())+uint64(f.SizeCommands), firstSection(f); end > first {
		return false, fmt.Errorf("its load commands would end at byte %d, and its code begins at %d", end, first)
	}
	id := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if err := f.CodeSign(&codesign.Config{ID: id, Flags: signtypes.ADHOC}); err != nil {
		return false, err
	}
	temp := file + ".new"
	defer func() { _ = os.Remove(temp) }() // read and no longer needed
	if err := f.Save(temp); err != nil {
		return false, err
	}
	data, err := os.ReadFile(temp)
	if err != nil {
		return false, err
	}
	return true, atomicfile.Write(file, data, info.Mode().Perm())
}

// firstSection is the offset of the first byte that a section has in the file.
func firstSection(f *macho.File) uint64 {
	first := ^uint64(0)
	for _, s := range f.Sections {
		if s.Offset != 0 {
			first = min(first, uint64(s.Offset))
		}
	}
	return first
}
