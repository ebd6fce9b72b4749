package gguf

import (
	"fmt"
	"math/bits"
)

// Type is ggml's number of how elements are stored.
type Type uint32

// The types whose elements can be read (create/dequantize.go).
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q2_K Type = 10
	Q3_K Type = 11
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// types are all of ggml's: a block holds so many elements in so many bytes.
var types = map[Type]struct {
	name           string
	elements, size int64
}{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24}, Q8_0: {"Q8_0", 32, 34},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	9: {"Q8_1", 32, 36}, 15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74}, 18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50},
	20: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82}, 23: {"IQ4_XS", 256, 136}, 29: {"IQ1_M", 256, 56},
	24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8}, 28: {"F64", 1, 8},
	34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, 39: {"MXFP4", 32, 17}, 40: {"NVFP4", 64, 36},
	41: {"Q1_0", 128, 18}, 42: {"Q2_0", 64, 18},
}

// String gives ggml's name.
func (t Type) String() string {
	if known, ok := types[t]; ok {
		return known.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block gives how many elements a block of the type has, and how many bytes;
// zeros for a type that is not known.
func (t Type) Block() (elements, size int64) { return types[t].elements, types[t].size }

// bytes is what a tensor of shape takes.
func (t Type) bytes(shape []int64) (int64, error) {
	elements, size := t.Block()
	if elements == 0 {
		return 0, fmt.Errorf("%v is not known", t)
	}
	if row := shape[len(shape)-1]; row%elements != 0 {
		return 0, fmt.Errorf("rows of %d are no whole number of blocks of %v, which has %d", row, t, elements)
	}
	total := uint64(1)
	for _, n := range shape {
		if n == 0 {
			return 0, fmt.Errorf("it has the shape %v", shape)
		}
		high, low := bits.Mul64(total, uint64(n))
		if high != 0 || low > 1<<60 {
			return 0, fmt.Errorf("the shape %v is more than can be addressed", shape)
		}
		total = low
	}
	high, low := bits.Mul64(total/uint64(elements), uint64(size))
	if high != 0 || low > 1<<62 {
		return 0, fmt.Errorf("the shape %v is more than can be addressed", shape)
	}
	return int64(low), nil
}
