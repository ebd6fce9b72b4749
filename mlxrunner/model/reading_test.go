package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every element lands at its place turned, whatever rows and columns are left
// over from stripes and lanes.
func TestTurn(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {7, 3}, {8, 1}, {9, 5}, {17, 16}, {300, 500}, {3, 70000}, {1000, 129}} {
		rows, columns := size[0], size[1]
		from := make([]uint32, rows*columns)
		for i := range from {
			from[i] = uint32(i) * 2654435761
		}
		long, short := make([]uint32, len(from)), make([]uint16, len(from))
		var four, two bytes.Buffer
		for _, v := range from {
			_ = binary.Write(&four, binary.NativeEndian, v)
			_ = binary.Write(&two, binary.NativeEndian, uint16(v))
		}
		if err := errors.Join(turn(&four, long, rows, columns), turn(&two, short, rows, columns)); err != nil {
			t.Fatal(err)
		}
		for i, v := range from {
			if at := i%columns*rows + i/columns; long[at] != v || short[at] != uint16(v) {
				t.Fatalf("%v: element %d of the rows is %d and %d, want %d", size, i, long[at], short[at], v)
			}
		}
	}
	if err := turn(bytes.NewReader(make([]byte, 100)), make([]uint32, 64), 8, 8); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short file gives %v", err)
	}
}

// A mapped file that was cut short is an error when it is read in, and does not
// end the process; the mapping ends with its last user.
func TestMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, bytes.Repeat([]byte("weights!"), 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	m := mapFile(path)
	if m == nil {
		t.Skip("files are not mapped here")
	}
	first, last := piece{"first", m.take(8, 16)}, piece{"last", m.take(32760, 8)}
	if err := errors.Join(first.touch(), last.touch()); err != nil || string(first.bytes) != "weights!weights!" {
		t.Errorf("%q, %v", first.bytes, err)
	}
	first.bytes[0] = 'W'
	if kept, err := os.ReadFile(path); err != nil || bytes.Contains(kept, []byte("W")) {
		t.Errorf("the file was written to (%v)", err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := last.touch(); err == nil || !strings.Contains(err.Error(), "the tensor last: its bytes are not in the file") {
		t.Errorf("bytes that are gone give %v", err)
	}
	for range 3 { // mapFile and two pieces
		if len(m.bytes) == 0 {
			t.Fatal("it was given back too early")
		}
		m.release()
	}
	if m.users.Load() != 0 {
		t.Errorf("%d users are left", m.users.Load())
	}
}
