package mlx

import "payload/mlx/internal/c"

// Arrays out of nothing, and products.

func (s *Scope) filled(op string, f func(*c.Array, []int32, c.Dtype, c.Stream) error, d Dtype, shape []int) *Array {
	if !s.ready(op) {
		return nil
	}
	var dims [8]int32
	s.out = 0
	return s.took(op, f(&s.out, narrow(dims[:0], shape), c.Dtype(d), s.stream.h))
}

// Zeros gives zeros.
func (s *Scope) Zeros(d Dtype, shape ...int) *Array { return s.filled("Zeros", c.Zeros, d, shape) }

// Ones gives ones.
func (s *Scope) Ones(d Dtype, shape ...int) *Array { return s.filled("Ones", c.Ones, d, shape) }

// Full gives v everywhere.
func (s *Scope) Full(d Dtype, v float64, shape ...int) *Array {
	with := s.Scalar(v, d)
	if with == nil {
		return nil
	}
	defer with.Free()
	s.out = 0
	return s.took("Full", c.Full(&s.out, narrow(nil, shape), with.h, c.Dtype(d), s.stream.h))
}

// Arange gives start, start+step, … before stop.
func (s *Scope) Arange(d Dtype, start, stop, step float64) *Array {
	if !s.ready("Arange") {
		return nil
	}
	s.out = 0
	return s.took("Arange", c.Arange(&s.out, start, stop, step, c.Dtype(d), s.stream.h))
}

// Linspace gives n numbers from start to stop, both included.
func (s *Scope) Linspace(d Dtype, start, stop float64, n int) *Array {
	if !s.ready("Linspace") {
		return nil
	}
	s.out = 0
	return s.took("Linspace", c.Linspace(&s.out, start, stop, int32(n), c.Dtype(d), s.stream.h))
}

// Tri gives ones on and below the k'th diagonal of n rows and m columns.
func (s *Scope) Tri(d Dtype, n, m, k int) *Array {
	if !s.ready("Tri") {
		return nil
	}
	s.out = 0
	return s.took("Tri", c.Tri(&s.out, int32(n), int32(m), int32(k), c.Dtype(d), s.stream.h))
}

// Eye gives ones on the k'th diagonal of n rows and m columns.
func (s *Scope) Eye(d Dtype, n, m, k int) *Array {
	if !s.ready("Eye") {
		return nil
	}
	s.out = 0
	return s.took("Eye", c.Eye(&s.out, int32(n), int32(m), int32(k), c.Dtype(d), s.stream.h))
}

// AddMM gives beta*c + alpha*(a matmul b).
func (s *Scope) AddMM(add, a, b *Array, alpha, beta float32) *Array {
	if !s.ready("AddMM", add, a, b) {
		return nil
	}
	s.out = 0
	return s.took("AddMM", c.Addmm(&s.out, add.h, a.h, b.h, alpha, beta, s.stream.h), add, a, b)
}

// GatherMM multiplies the matrices of a that left names by those of b that
// right names, pair by pair; nil takes them in order. sorted says that the
// indices are.
func (s *Scope) GatherMM(a, b, left, right *Array, sorted bool) *Array {
	if !s.ready("GatherMM", a, b) {
		return nil
	}
	s.out = 0
	return s.took("GatherMM", c.GatherMm(&s.out, a.h, b.h, orZero(left), orZero(right), sorted, s.stream.h), a, b)
}

// Einsum sums products as subscripts say: "bhqd,bhkd->bhqk".
func (s *Scope) Einsum(subscripts string, arrays ...*Array) *Array {
	return s.join("Einsum", func(res *c.Array, v c.VectorArray, _ int32, st c.Stream) error {
		return c.Einsum(res, subscripts, v, st)
	}, 0, arrays)
}

// Conv1d convolves input [n, length, in] with weight [out, kernel, in/groups].
func (s *Scope) Conv1d(input, weight *Array, stride, padding, dilation, groups int) *Array {
	if !s.ready("Conv1d", input, weight) {
		return nil
	}
	s.out = 0
	return s.took("Conv1d", c.Conv1d(&s.out, input.h, weight.h, int32(stride), int32(padding), int32(dilation), int32(groups), s.stream.h), input, weight)
}

// Conv2d convolves input [n, height, width, in] with weight [out, kh, kw,
// in/groups]; pairs are of height and width.
func (s *Scope) Conv2d(input, weight *Array, stride, padding, dilation [2]int, groups int) *Array {
	if !s.ready("Conv2d", input, weight) {
		return nil
	}
	s.out = 0
	return s.took("Conv2d", c.Conv2d(&s.out, input.h, weight.h,
		int32(stride[0]), int32(stride[1]), int32(padding[0]), int32(padding[1]),
		int32(dilation[0]), int32(dilation[1]), int32(groups), s.stream.h), input, weight)
}

// Conv says how ConvGeneral moves its kernel; nil is ones, for padding zeros.
type Conv struct {
	Stride, PadBefore, PadBehind, KernelDilation, InputDilation []int
	Groups                                                      int // 0 is 1
	Flip                                                        bool
}

// ConvGeneral convolves input [n, …, in] with weight [out, …, in/groups].
func (s *Scope) ConvGeneral(input, weight *Array, how Conv) *Array {
	if !s.ready("ConvGeneral", input, weight) {
		return nil
	}
	s.out = 0
	return s.took("ConvGeneral", c.ConvGeneral(&s.out, input.h, weight.h, narrow(nil, how.Stride), narrow(nil, how.PadBefore),
		narrow(nil, how.PadBehind), narrow(nil, how.KernelDilation), narrow(nil, how.InputDilation),
		int32(max(how.Groups, 1)), how.Flip, s.stream.h), input, weight)
}

// AllClose tells whether a and b differ by no more than atol + rtol*|b|.
func (s *Scope) AllClose(a, b *Array, rtol, atol float64, equalNaN bool) *Array {
	if !s.ready("AllClose", a, b) {
		return nil
	}
	s.out = 0
	return s.took("AllClose", c.Allclose(&s.out, a.h, b.h, rtol, atol, equalNaN, s.stream.h), a, b)
}

// ArrayEqual tells whether a and b have one shape and the same elements.
func (s *Scope) ArrayEqual(a, b *Array, equalNaN bool) *Array {
	if !s.ready("ArrayEqual", a, b) {
		return nil
	}
	s.out = 0
	return s.took("ArrayEqual", c.ArrayEqual(&s.out, a.h, b.h, equalNaN, s.stream.h), a, b)
}

// NaNToNum puts nan for what is no number, and low and high for infinities
// (nil: the least and the largest number of the type).
func (s *Scope) NaNToNum(a *Array, nan float32, low, high *float32) *Array {
	if !s.ready("NaNToNum", a) {
		return nil
	}
	s.out = 0
	return s.took("NaNToNum", c.NanToNum(&s.out, a.h, nan, optionalFloat(high), optionalFloat(low), s.stream.h), a)
}

func optionalFloat(v *float32) c.OptionalFloat {
	if v == nil {
		return c.OptionalFloat{}
	}
	return c.OptionalFloat{Value: *v, HasValue: true}
}
