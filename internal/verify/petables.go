package verify

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A foreign is a symbol of another library: a name, or "#12" where a PE file has
// its number.
type foreign struct{ library, name string }

// tables reads what a PE file imports and exports: tables of addresses, as its
// image lies in memory. Microsoft's PE Format describes them under "The .idata
// Section", "Delay-Load Import Tables" and "The .edata Section".
type tables struct {
	sections []*pe.Section
	dirs     []pe.DataDirectory
	base     uint64 // of addresses that old delay-load tables have
	word     int    // bytes of an entry
	left     *int64 // bytes that may yet be read, so that entries which lead to one another end
}

// Places in the list of directories.
const (
	exportTable = 0
	importTable = 1
	delayTable  = 13
)

// Lengths of entries.
const (
	importEntry = 20
	delayEntry  = 32
	exportEntry = 40
)

var (
	errTable = errors.New("it leads outside of the file")
	errLoop  = errors.New("it leads to more than the file holds")
)

// tablesOf takes the size of the file, in bytes. A linker writes each name and
// each entry once; twice as much is read.
func tablesOf(f *pe.File, size int64) tables {
	left := 2 * size
	switch h := f.OptionalHeader.(type) {
	case *pe.OptionalHeader64:
		return tables{f.Sections, h.DataDirectory[:min(h.NumberOfRvaAndSizes, 16)], h.ImageBase, 8, &left}
	case *pe.OptionalHeader32:
		return tables{f.Sections, h.DataDirectory[:min(h.NumberOfRvaAndSizes, 16)], uint64(h.ImageBase), 4, &left}
	}
	return tables{}
}

func (t tables) dir(i int) pe.DataDirectory {
	if i < len(t.dirs) {
		return t.dirs[i]
	}
	return pe.DataDirectory{}
}

// spend counts what is read.
func (t tables) spend(n int) error {
	if *t.left -= int64(n); *t.left < 0 {
		return errLoop
	}
	return nil
}

// at reads n bytes that lie at an address in memory.
func (t tables) at(address uint32, n int) ([]byte, error) {
	if err := t.spend(n); err != nil {
		return nil, err
	}
	for _, s := range t.sections {
		if from := address - s.VirtualAddress; address >= s.VirtualAddress && from < s.Size {
			b := make([]byte, n)
			if got, err := s.ReadAt(b, int64(from)); got < n && (err == nil || errors.Is(err, io.EOF)) {
				return nil, errTable
			} else if got < n {
				return nil, err
			}
			return b, nil
		}
	}
	return nil, errTable
}

func (t tables) uint32s(address uint32, n int) ([]uint32, error) {
	b, err := t.at(address, 4*n)
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out, err
}

// text reads a name that ends with a zero.
func (t tables) text(address uint32) (string, error) {
	for _, s := range t.sections {
		if from := address - s.VirtualAddress; address >= s.VirtualAddress && from < s.Size {
			b := make([]byte, min(4096, s.Size-from)) // decorated names of C++ are the longest
			n, err := s.ReadAt(b, int64(from))
			if end := bytes.IndexByte(b[:n], 0); end >= 0 {
				return string(b[:end]), t.spend(end + 1)
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return "", err
			}
		}
	}
	return "", errTable
}

// imports lists what is taken from other libraries, also what is looked for
// only when it is first called. A library of which nothing is taken has one
// entry without a name.
func (t tables) imports() ([]foreign, error) {
	now, err := t.list(t.dir(importTable).VirtualAddress, importEntry, func(e []uint32) (library, names uint32) {
		if library, names = e[3], e[0]; names == 0 {
			names = e[4] // an old linker's
		}
		return library, names
	})
	if err != nil {
		return nil, fmt.Errorf("its import table: %w", err)
	}
	later, err := t.list(t.dir(delayTable).VirtualAddress, delayEntry, func(e []uint32) (library, names uint32) {
		if library, names = e[1], e[4]; e[0]&1 == 0 && library != 0 {
			library, names = library-uint32(t.base), names-uint32(t.base)
		}
		return library, names
	})
	if err != nil {
		return nil, fmt.Errorf("its table of delayed imports: %w", err)
	}
	return append(now, later...), nil
}

// list reads a table of libraries, which an entry without one ends.
func (t tables) list(table uint32, size int, of func(entry []uint32) (library, names uint32)) (found []foreign, err error) {
	for ; table != 0; table += uint32(size) {
		entry, err := t.uint32s(table, size/4)
		if err != nil {
			return nil, err
		}
		at, names := of(entry)
		if at == 0 {
			break
		}
		library, err := t.text(at)
		if err != nil {
			return nil, err
		}
		if library == "" {
			return nil, errors.New("it names no library")
		}
		taken, err := t.names(library, names)
		if err != nil {
			return nil, err
		}
		found = append(found, taken...)
	}
	return found, nil
}

func (t tables) names(library string, table uint32) ([]foreign, error) {
	found := []foreign{}
	for ; ; table += uint32(t.word) {
		b, err := t.at(table, t.word)
		if err != nil {
			return nil, err
		}
		entry, number := uint64(binary.LittleEndian.Uint32(b)), false
		if t.word == 8 {
			entry = binary.LittleEndian.Uint64(b)
		}
		number = entry>>(8*t.word-1) == 1
		switch {
		case entry == 0 && len(found) == 0:
			return []foreign{{library, ""}}, nil
		case entry == 0:
			return found, nil
		case number:
			found = append(found, foreign{library, fmt.Sprintf("#%d", entry&0xffff)})
			continue
		}
		name, err := t.text(uint32(entry) + 2) // after a hint
		if err != nil {
			return nil, err
		}
		found = append(found, foreign{library, name})
	}
}

// exports gives what the file has for others, by name and by number ("#12"),
// and to what of another library each is passed on, if it is.
func (t tables) exports() (map[string]foreign, error) {
	found, err := t.readExports(t.dir(exportTable))
	if err != nil {
		return nil, fmt.Errorf("its export table: %w", err)
	}
	return found, nil
}

func (t tables) readExports(dir pe.DataDirectory) (map[string]foreign, error) {
	found := map[string]foreign{}
	if dir.VirtualAddress == 0 {
		return found, nil
	}
	e, err := t.uint32s(dir.VirtualAddress, exportEntry/4)
	if err != nil {
		return nil, err
	}
	first, functions, names := e[4], e[5], e[6]
	if functions > 1<<16 || names > 1<<16 { // numbers have 16 bits
		return nil, errTable
	}
	addresses, err := t.uint32s(e[7], int(functions))
	if err != nil && functions > 0 {
		return nil, err
	}
	to := make([]foreign, functions)
	for i, address := range addresses {
		if address == 0 {
			continue // a gap in the numbers
		}
		if address-dir.VirtualAddress < dir.Size { // no code lies there: "LIBRARY.NAME"
			passed, err := t.text(address)
			if err != nil {
				return nil, err
			}
			dot := strings.LastIndexByte(passed, '.')
			if dot < 0 {
				return nil, fmt.Errorf("it passes something on to %q", passed)
			}
			to[i] = foreign{passed[:dot] + ".dll", passed[dot+1:]}
		}
		found[fmt.Sprintf("#%d", first+uint32(i))] = to[i]
	}
	if names == 0 {
		return found, nil
	}
	texts, err := t.uint32s(e[8], int(names))
	if err != nil {
		return nil, err
	}
	places, err := t.at(e[9], 2*int(names))
	if err != nil {
		return nil, err
	}
	for i, at := range texts {
		name, err := t.text(at)
		if err != nil {
			return nil, err
		}
		place := binary.LittleEndian.Uint16(places[2*i:])
		if uint32(place) >= functions {
			return nil, errTable
		}
		found[name] = to[place]
	}
	return found, nil
}
