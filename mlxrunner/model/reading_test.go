package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
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
