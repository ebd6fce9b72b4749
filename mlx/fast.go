package mlx

import "payload/mlx/internal/c"

// Operations that MLX fuses.

// RMSNorm divides the last axis by its root mean square and multiplies by
// weight, which may be nil.
func (s *Scope) RMSNorm(x, weight *Array, eps float32) *Array {
	if !s.ready("RMSNorm", x) {
		return nil
	}
	s.out = 0
	return s.took("RMSNorm", c.FastRmsNorm(&s.out, x.h, orZero(weight), eps, s.stream.h), x)
}

// LayerNorm brings the last axis to mean 0 and variance 1, multiplies by
// weight and adds bias; both may be nil.
func (s *Scope) LayerNorm(x, weight, bias *Array, eps float32) *Array {
	if !s.ready("LayerNorm", x) {
		return nil
	}
	s.out = 0
	return s.took("LayerNorm", c.FastLayerNorm(&s.out, x.h, orZero(weight), orZero(bias), eps, s.stream.h), x)
}

// RoPE says how positions are rotated into features.
type RoPE struct {
	Dims        int     // features that are rotated; the others pass
	Traditional bool    // pairs are neighbours, not halves apart
	Base        float32 // used unless Freqs is there
	Scale       float32 // of positions; 0 is 1
	Freqs       *Array  // [Dims/2], wavelengths in place of Base
}

func (r RoPE) c() (base c.OptionalFloat, scale float32) {
	if scale = r.Scale; scale == 0 {
		scale = 1
	}
	return c.OptionalFloat{Value: r.Base, HasValue: r.Freqs == nil}, scale
}

// RoPE rotates x [..., length, features], whose first position is offset.
func (s *Scope) RoPE(x *Array, r RoPE, offset int) *Array {
	if !s.ready("RoPE", x) {
		return nil
	}
	base, scale := r.c()
	s.out = 0
	return s.took("RoPE", c.FastRope(&s.out, x.h, int32(r.Dims), r.Traditional, base, scale, int32(offset), orZero(r.Freqs), s.stream.h), x)
}

// RoPEAt is RoPE with the first positions in an array: one, or one for each
// row of a batch.
func (s *Scope) RoPEAt(x *Array, r RoPE, offset *Array) *Array {
	if !s.ready("RoPEAt", x, offset) {
		return nil
	}
	base, scale := r.c()
	s.out = 0
	return s.took("RoPEAt", c.FastRopeDynamic(&s.out, x.h, int32(r.Dims), r.Traditional, base, scale, offset.h, orZero(r.Freqs), s.stream.h), x, offset)
}

// Attention says what ScaledDotProductAttention sees.
type Attention struct {
	Scale  float32
	Causal bool   // each query sees the keys up to its own, both ends aligned
	Mask   *Array // bool (true is seen) or added; broadcast to [batch, heads, queries, keys]
	Sinks  *Array // [heads], added to the sums of Softmax
}

// ScaledDotProductAttention gives Softmax(q kᵀ scale + mask) v, for q [batch,
// heads, length, features] and k, v [batch, kv heads, keys, features], where
// kv heads divides heads.
func (s *Scope) ScaledDotProductAttention(q, k, v *Array, how Attention) *Array {
	if !s.ready("ScaledDotProductAttention", q, k, v) {
		return nil
	}
	mode := ""
	switch {
	case how.Causal:
		mode = "causal"
	case how.Mask != nil:
		mode = "array"
	}
	s.out = 0
	return s.took("ScaledDotProductAttention", c.FastScaledDotProductAttention(&s.out, q.h, k.h, v.h, how.Scale, mode,
		orZero(how.Mask), orZero(how.Sinks), false, s.stream.h), q, k, v)
}

// CrossEntropy gives -Log(Softmax(logits)) at targets.
func (s *Scope) CrossEntropy(logits, targets *Array) *Array {
	return s.binary("CrossEntropy", c.FastCrossEntropy, logits, targets)
}
