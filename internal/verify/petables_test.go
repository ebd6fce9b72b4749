package verify

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

// FuzzTables holds that no file makes reading its tables stop the program.
func FuzzTables(f *testing.F) {
	f.Add([]byte(peSpec{
		program: true,
		imports: []foreign{{"a.dll", "work"}, {"b.dll", "#12"}},
		delayed: []foreign{{"c.dll", "late"}},
		exports: []string{"own", "passed=A.work", "numbered=A.#3"},
	}.file()))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := pe.NewFile(bytes.NewReader(data))
		if err != nil {
			return
		}
		tables := tablesOf(file, int64(len(data)))
		_, _ = tables.imports()
		_, _ = tables.exports()
	})
}

// TestNameThatRepeats holds that one long name, to which all entries lead, is
// refused, and not kept as often as they say.
func TestNameThatRepeats(t *testing.T) {
	taken := slices.Repeat([]foreign{{"a.dll", "work"}}, 2000)
	data := []byte(peSpec{imports: taken}.file())
	le := binary.LittleEndian
	hint := uint64(len(data) - 0x200 + 0x1000)
	data = append(data, "\x00\x00"+strings.Repeat("n", 4000)+"\x00"...)
	section := data[0x44+20+240:]
	le.PutUint32(section[8:], uint32(len(data)-0x200))
	le.PutUint32(section[16:], uint32(len(data)-0x200))
	entries := data[le.Uint32(data[0x44+20+112+8*importTable:])-0x1000+0x200:]
	for i := range taken {
		names := le.Uint32(entries[importEntry*i:])
		le.PutUint64(data[names-0x1000+0x200:], hint)
	}
	file, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tablesOf(file, int64(len(data))).imports(); !errors.Is(err, errLoop) {
		t.Errorf("it was read: %v", err)
	}
}
