package verify

import (
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"payload/internal/manifest"
)

// dll is one PE file, a program or a library, as far as Windows' loader looks at
// it.
type dll struct {
	path    string // in the payload
	program bool
	needed  []string // as they are written; case does not count
}

// readDLLs opens every PE file of the payload, in order of path.
func readDLLs(res *Result, dir string, files []manifest.File) []*dll {
	var found []*dll
	for i, d := range readEach(res, dir, files, "pe.unreadable", "PE", readDLL) {
		if d != nil {
			d.path = files[i].Path
			found = append(found, d)
		}
	}
	return found
}

// readDLL gives nil for a file that isn't PE.
func readDLL(file string) (*dll, error) {
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	if !manifest.IsPE(r) {
		return nil, nil
	}
	f, err := pe.NewFile(r)
	if err != nil {
		return nil, err
	}
	d := &dll{program: f.Characteristics&pe.IMAGE_FILE_DLL == 0}
	symbols, err := importedSymbols(f)
	for _, s := range symbols { // "name:library"
		library := s[strings.LastIndexByte(s, ':')+1:]
		switch {
		case library == "":
			return nil, errors.New("its import table names no library")
		case !slices.Contains(d.needed, library):
			d.needed = append(d.needed, library)
		}
	}
	return d, err
}

// importedSymbols is what debug/pe reads of the import table. It trusts the
// table's addresses.
func importedSymbols(f *pe.File) (symbols []string, err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("its import table: %w", io.ErrUnexpectedEOF)
		}
	}()
	return f.ImportedSymbols()
}

// checkDLLs resolves what PE files need as Windows does for a program that was
// started: in the program's folder, and for a library that is loaded by its path
// in that library's folder too. Then come the system's.
func checkDLLs(res *Result, files []manifest.File, dlls []*dll) {
	sys := platforms["windows"]
	have := map[string]bool{} // paths in small letters
	for _, f := range files {
		have[strings.ToLower(f.Path)] = true
	}
	var started []string
	for _, d := range dlls {
		if d.program {
			started = append(started, path.Dir(d.path))
		}
	}
	for _, d := range dlls {
		for _, name := range d.needed {
			folders := append([]string{path.Dir(d.path)}, started...)
			if slices.ContainsFunc(folders, func(dir string) bool { return have[strings.ToLower(path.Join(dir, name))] }) || ofWindows(sys, name) {
				continue
			}
			res.static("closure.missing", d.path+":"+name, fmt.Sprintf("%s needs %s, which is neither in the payload nor a declared system library", d.path, name),
				"it is looked for in "+strings.Join(slices.Compact(folders), ", "), d.path)
		}
	}
}

// apiSets begin the names that Windows maps to libraries of its own.
var apiSets = []string{"api-ms-win-", "ext-ms-"}

func ofWindows(sys platform, name string) bool {
	name = strings.ToLower(name)
	return sys.systemLibrary(name) || slices.ContainsFunc(apiSets, func(set string) bool { return strings.HasPrefix(name, set) })
}
