package mlx

import (
	"cmp"

	"payload/mlx/internal/c"
	"payload/mlx/quant"
)

// settings gives how weights are packed as C has it. Zero sizes are MLX's own
// of the mode, and no mode is affine.
func settings(q quant.Params) (group, bits c.OptionalInt, mode string) {
	mode = string(cmp.Or(q.Mode, quant.Affine))
	return optionalInt(q.Group), optionalInt(q.Bits), mode
}

func optionalInt(n int) c.OptionalInt { return c.OptionalInt{Value: int32(n), HasValue: n != 0} }

// A Quantized is packed weights: uint32 words, scales by group, and for affine
// groups biases (nil otherwise).
type Quantized struct{ Weights, Scales, Biases *Array }

// Quantize packs a matrix [..., rows, columns] along its columns. After an
// error all arrays are nil.
func (s *Scope) Quantize(w *Array, q quant.Params) Quantized {
	if !s.ready("Quantize", w) {
		return Quantized{}
	}
	group, bits, mode := settings(q)
	v, err := c.VectorArrayNew()
	if err == nil {
		err = c.Quantize(&v, w.h, group, bits, mode, 0, s.stream.h)
	}
	parts := s.list("Quantize", v, err, w)
	var out Quantized
	for i, to := range []**Array{&out.Weights, &out.Scales, &out.Biases} {
		if i < len(parts) {
			*to = parts[i]
		}
	}
	return out
}

// Dequantize unpacks to elements of type d.
func (s *Scope) Dequantize(w Quantized, q quant.Params, d Dtype) *Array {
	if !s.ready("Dequantize", w.Weights, w.Scales) {
		return nil
	}
	group, bits, mode := settings(q)
	s.out = 0
	return s.took("Dequantize", c.Dequantize(&s.out, w.Weights.h, w.Scales.h, orZero(w.Biases), group, bits, mode, 0,
		c.OptionalDtype{Value: c.Dtype(d), HasValue: true}, s.stream.h), w.Weights, w.Scales)
}

// QuantizedMatmul gives x matmul w, or x matmul the transpose of w: then w is
// [out, in] as in most checkpoints.
func (s *Scope) QuantizedMatmul(x *Array, w Quantized, transpose bool, q quant.Params) *Array {
	if !s.ready("QuantizedMatmul", x, w.Weights, w.Scales) {
		return nil
	}
	group, bits, mode := settings(q)
	s.out = 0
	return s.took("QuantizedMatmul", c.QuantizedMatmul(&s.out, x.h, w.Weights.h, w.Scales.h, orZero(w.Biases), transpose,
		group, bits, mode, s.stream.h), x, w.Weights, w.Scales)
}

// GatherQMM is QuantizedMatmul of the matrices of x that left names and those
// of w that right names, pair by pair; nil takes them in order. sorted says
// that the indices are.
func (s *Scope) GatherQMM(x *Array, w Quantized, left, right *Array, transpose bool, q quant.Params, sorted bool) *Array {
	if !s.ready("GatherQMM", x, w.Weights, w.Scales) {
		return nil
	}
	group, bits, mode := settings(q)
	s.out = 0
	return s.took("GatherQMM", c.GatherQmm(&s.out, x.h, w.Weights.h, w.Scales.h, orZero(w.Biases), orZero(left), orZero(right), transpose,
		group, bits, mode, sorted, s.stream.h), x, w.Weights, w.Scales)
}

// QQMM multiplies x, packed on the way, by w transposed; scales may be nil
// where w is not packed yet. MLX has it for mxfp8 and nvfp4.
func (s *Scope) QQMM(x, w, scales *Array, q quant.Params) *Array {
	if !s.ready("QQMM", x, w) {
		return nil
	}
	group, bits, mode := settings(q)
	s.out = 0
	return s.took("QQMM", c.Qqmm(&s.out, x.h, w.h, orZero(scales), group, bits, mode, 0, 0, s.stream.h), x, w)
}

// ToFP8 converts to the 8-bit floats e4m3, as uint8.
func (s *Scope) ToFP8(a *Array) *Array { return s.unary("ToFP8", c.ToFp8, a) }

// FromFP8 converts 8-bit floats e4m3, given as uint8, to type d.
func (s *Scope) FromFP8(a *Array, d Dtype) *Array {
	if !s.ready("FromFP8", a) {
		return nil
	}
	s.out = 0
	return s.took("FromFP8", c.FromFp8(&s.out, a.h, c.Dtype(d), s.stream.h), a)
}
