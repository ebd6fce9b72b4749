package create

import (
	"encoding/binary"
	"math"

	"payload/fs/gguf"
	"payload/mlx"
)

// dequantizers turn one block into its elements, for each type that can be
// imported. The formats are those of ggml-common.h, the values those of ggml's
// own functions, bit for bit: every product is rounded before it is added to
// (the conversions keep the compiler from fusing the two).
var dequantizers = map[gguf.Type]func(y []float32, x []byte){
	gguf.F32:  func(y []float32, x []byte) { y[0] = math.Float32frombits(binary.LittleEndian.Uint32(x)) },
	gguf.F16:  func(y []float32, x []byte) { y[0] = half(x) },
	gguf.BF16: func(y []float32, x []byte) { y[0] = mlx.BF16(binary.LittleEndian.Uint16(x)).Float32() },
	gguf.Q4_0: func(y []float32, x []byte) { halves(y, half(x), nothing, x[2:], nil, 8) },
	gguf.Q4_1: func(y []float32, x []byte) { halves(y, half(x), half(x[2:]), x[4:], nil, 0) },
	gguf.Q5_0: func(y []float32, x []byte) { halves(y, half(x), nothing, x[6:], x[2:6], 16) },
	gguf.Q5_1: func(y []float32, x []byte) { halves(y, half(x), half(x[2:]), x[8:], x[4:8], 0) },
	gguf.Q8_0: q80,
	gguf.Q2_K: q2k,
	gguf.Q3_K: q3k,
	gguf.Q4_K: func(y []float32, x []byte) { q45k(y, x, x[16:], nil) },
	gguf.Q5_K: func(y []float32, x []byte) { q45k(y, x, x[48:], x[16:48]) },
	gguf.Q6_K: q6k,
}

// dequantize fills into with the elements of whole blocks of t.
func dequantize(t gguf.Type, into []float32, blocks []byte) {
	one := dequantizers[t]
	elements, size := t.Block()
	for ; len(into) > 0; into, blocks = into[elements:], blocks[size:] {
		one(into[:elements], blocks[:size])
	}
}

func half(x []byte) float32 { return mlx.F16(binary.LittleEndian.Uint16(x)).Float32() }

// nothing is -0, which leaves a 0 of either sign what it is when it is added.
var nothing = float32(math.Copysign(0, -1))

// halves is the four types of 32 elements: the low nibbles are the first 16,
// the high ones the others; high holds a fifth bit of each.
func halves(y []float32, d, m float32, low, high []byte, middle int32) {
	fifths := uint32(0)
	if high != nil {
		fifths = binary.LittleEndian.Uint32(high)
	}
	for j := range 16 {
		x0 := int32(low[j]&15) | int32(fifths>>j&1)<<4
		x1 := int32(low[j]>>4) | int32(fifths>>(j+16)&1)<<4
		y[j] = float32(float32(x0-middle)*d) + m
		y[j+16] = float32(float32(x1-middle)*d) + m
	}
}

func q80(y []float32, x []byte) {
	d := half(x)
	for j := range y {
		y[j] = float32(int8(x[2+j])) * d
	}
}

// q2k: 16 bytes of scale and minimum, 64 of elements, two halves.
func q2k(y []float32, x []byte) {
	scales, q := x[:16], x[16:80]
	d, least := half(x[80:]), half(x[82:])
	for i := range y {
		// 128 elements lie in 32 bytes, two bits of each for 32 in a row.
		v := q[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
		s := scales[i/16]
		y[i] = float32(float32(d*float32(s&15))*float32(v)) - float32(least*float32(s>>4))
	}
}

// q3k: 32 bytes of third bits, 64 of the others, 12 of 6-bit scales, a half.
func q3k(y []float32, x []byte) {
	high, q, packed := x[:32], x[32:96], x[96:108]
	d := half(x[108:])
	for i := range y {
		n := i / 16
		s := packed[n%8] >> (n / 8 * 4) & 15
		s |= packed[8+n%4] >> (n / 4 * 2) & 3 << 4
		v := int32(q[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3)
		if high[i%32]>>(i/32)&1 == 0 {
			v -= 4
		}
		y[i] = float32(d*float32(int32(s)-32)) * float32(v)
	}
}

// q45k: two halves, 12 bytes of 6-bit scales and minima, for five bits 32
// bytes of the fifths, 128 of nibbles.
func q45k(y []float32, x, low, high []byte) {
	d, least := half(x), half(x[2:])
	for n := range 8 { // of 32 elements
		scale, minimum := scaleMin(x[4:16], n)
		s, m := float32(d*float32(scale)), float32(least*float32(minimum))
		for l := range 32 {
			v := low[n/2*32+l] >> (n % 2 * 4) & 15
			if high != nil {
				v |= high[l] >> n & 1 << 4
			}
			y[n*32+l] = float32(s*float32(v)) - m
		}
	}
}

// scaleMin takes the n'th pair of 6-bit numbers.
func scaleMin(q []byte, n int) (scale, minimum byte) {
	if n < 4 {
		return q[n] & 63, q[n+4] & 63
	}
	return q[n+4]&15 | q[n-4]>>6<<4, q[n+4]>>4 | q[n]>>6<<4
}

// q6k: 128 bytes of low nibbles, 64 of two high bits, 16 of scales, a half.
func q6k(y []float32, x []byte) {
	low, high, scales := x[:128], x[128:192], x[192:208]
	d := half(x[208:])
	for i := range y {
		at, quarter := i/128, i%128/32
		v := low[at*64+i%64] >> (quarter / 2 * 4) & 15
		v |= high[at*32+i%32] >> (quarter * 2) & 3 << 4
		y[i] = float32(d*float32(int8(scales[i/16]))) * float32(int32(v)-32)
	}
}
