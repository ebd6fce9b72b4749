package create

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"payload/fs/gguf"
)

// Elements are those of ggml's own package, bit for bit (scripts/create).
func TestDequantize(t *testing.T) {
	text, err := os.ReadFile("testdata/dequantized.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Type           gguf.Type
		Name           string
		Blocks, Values []byte
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != len(dequantizers) {
		t.Errorf("%d types are recorded, %d are known", len(cases), len(dequantizers))
	}
	for _, c := range cases {
		if c.Type.String() != c.Name {
			t.Errorf("type %d is %s, want %s", uint32(c.Type), c.Type, c.Name)
		}
		got := make([]float32, len(c.Values)/4)
		dequantize(c.Type, got, c.Blocks)
		wrong := 0
		for i, v := range got {
			if want := binary.LittleEndian.Uint32(c.Values[4*i:]); math.Float32bits(v) != want {
				if wrong++; wrong <= 3 {
					t.Errorf("%s: element %d is %v, want %v", c.Name, i, v, math.Float32frombits(want))
				}
			}
		}
	}
}
