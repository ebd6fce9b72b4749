package mlx

import (
	"math"

	"payload/mlx/internal/c"
)

// A Dtype is the type of an array's elements.
type Dtype int32

// The types of elements.
const (
	Bool      = Dtype(c.MLX_BOOL)
	Uint8     = Dtype(c.MLX_UINT8)
	Uint16    = Dtype(c.MLX_UINT16)
	Uint32    = Dtype(c.MLX_UINT32)
	Uint64    = Dtype(c.MLX_UINT64)
	Int8      = Dtype(c.MLX_INT8)
	Int16     = Dtype(c.MLX_INT16)
	Int32     = Dtype(c.MLX_INT32)
	Int64     = Dtype(c.MLX_INT64)
	Float16   = Dtype(c.MLX_FLOAT16)
	Float32   = Dtype(c.MLX_FLOAT32)
	Float64   = Dtype(c.MLX_FLOAT64)
	BFloat16  = Dtype(c.MLX_BFLOAT16)
	Complex64 = Dtype(c.MLX_COMPLEX64)
)

var dtypes = map[Dtype]struct {
	name string
	size int
}{
	Bool: {"bool", 1}, Uint8: {"uint8", 1}, Uint16: {"uint16", 2}, Uint32: {"uint32", 4}, Uint64: {"uint64", 8},
	Int8: {"int8", 1}, Int16: {"int16", 2}, Int32: {"int32", 4}, Int64: {"int64", 8},
	Float16: {"float16", 2}, Float32: {"float32", 4}, Float64: {"float64", 8}, BFloat16: {"bfloat16", 2}, Complex64: {"complex64", 8},
}

// String gives MLX's name: float32, bfloat16.
func (d Dtype) String() string {
	if t, ok := dtypes[d]; ok {
		return t.name
	}
	return "unknown"
}

// Size gives the bytes of one element.
func (d Dtype) Size() int { return dtypes[d].size }

// Float tells whether d holds real numbers of a floating point.
func (d Dtype) Float() bool {
	return d == Float16 || d == Float32 || d == Float64 || d == BFloat16
}

// bits gives v as an element of d, in the low bytes of a word.
func (d Dtype) bits(v float64) uint64 {
	switch d {
	case Bool:
		if v != 0 {
			return 1
		}
		return 0
	case Uint8, Uint16, Uint32, Uint64:
		return uint64(v)
	case Int8, Int16, Int32, Int64:
		return uint64(int64(v))
	case Float16:
		return uint64(F16Of(float32(v)))
	case BFloat16:
		return uint64(BF16Of(float32(v)))
	case Float64:
		return math.Float64bits(v)
	}
	return uint64(math.Float32bits(float32(v))) // and the real part of a complex64
}

// DtypeOf finds a type by MLX's name.
func DtypeOf(name string) (Dtype, bool) {
	for d, t := range dtypes {
		if t.name == name {
			return d, true
		}
	}
	return 0, false
}

// F16 holds the bits of an IEEE 754 half, BF16 those of a bfloat16.
type (
	F16  uint16
	BF16 uint16
)

// Float32 gives the value.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// BF16Of rounds v to the nearest, ties to even.
func BF16Of(v float32) BF16 {
	bits := math.Float32bits(v)
	if v != v {
		return BF16(bits>>16 | 0x40) // stays a NaN
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 gives the value.
func (h F16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exponent, fraction := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero or subnormal: the fraction counts in units of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// F16Of rounds v to the nearest, ties to even; what is too large becomes infinite.
func F16Of(v float32) F16 {
	bits := math.Float32bits(v)
	sign := F16(bits >> 16 & 0x8000)
	a := math.Abs(float64(v))
	switch {
	case v != v:
		return sign | 0x7e00
	case a >= 65520: // halfway between the largest half and 2^16
		return sign | 0x7c00
	case a < 0x1p-14:
		return sign | F16(math.RoundToEven(a*0x1p24))
	}
	bits &= 0x7fffffff
	return sign | F16((bits+0xfff+bits>>13&1-(127-15)<<23)>>13)
}

// An Element is a Go type that an array's elements can be copied from and to.
type Element interface {
	bool | uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | F16 | float32 | float64 | BF16 | complex64
}

// dtypeFor gives the type of elements that T stands for.
func dtypeFor[T Element]() Dtype {
	switch any(*new(T)).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case F16:
		return Float16
	case float64:
		return Float64
	case BF16:
		return BFloat16
	case complex64:
		return Complex64
	}
	return Float32
}
