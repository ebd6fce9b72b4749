package manifest

import (
	"debug/elf"
	"debug/macho"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
)

// BuildIDs are what debuggers find debug information by, in hex: the build id of
// an ELF file, the UUIDs of a Mach-O file's images, sorted. Nothing where a file
// has none, or is neither.
func BuildIDs(file string) ([]string, error) {
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	if f, err := elf.NewFile(r); err == nil {
		id, err := elfBuildID(f)
		if id == "" {
			return nil, err
		}
		return []string{id}, nil
	}
	var ids []string
	add := func(f *macho.File) {
		for _, load := range f.Loads {
			if raw := load.Raw(); len(raw) >= 24 && f.ByteOrder.Uint32(raw) == lcUUID {
				ids = append(ids, hex.EncodeToString(raw[8:24]))
			}
		}
	}
	if fat, err := macho.NewFatFile(r); err == nil {
		for _, slice := range fat.Arches {
			add(slice.File)
		}
	} else if f, err := macho.NewFile(r); err == nil {
		add(f)
	}
	slices.Sort(ids)
	return ids, nil
}

// elfBuildID reads the note: sizes of name and description, type, the name
// "GNU\0", the id.
func elfBuildID(f *elf.File) (string, error) {
	note := f.Section(".note.gnu.build-id")
	if note == nil {
		return "", nil
	}
	data, err := note.Data()
	if err != nil {
		return "", err
	}
	const header = 16
	if len(data) < header+2 {
		return "", fmt.Errorf("its build id has %d bytes", len(data))
	}
	size := int(f.ByteOrder.Uint32(data[4:]))
	if size < 2 || header+size > len(data) {
		return "", fmt.Errorf("its build id says %d bytes", size)
	}
	return hex.EncodeToString(data[header : header+size]), nil
}
