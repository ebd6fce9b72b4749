package cache

import "payload/mlx"

// buffers is what keys or values lie in, each [batch, heads, capacity, n]: one
// array of features or, packed, one of words, one of scales and one of biases.
type buffers [3]*mlx.Array

func (b *buffers) capacity() int { return b[0].Dim(2) }

func (b *buffers) quantized() mlx.Quantized {
	return mlx.Quantized{Weights: b[0], Scales: b[1], Biases: b[2]}
}

// list appends the arrays that there are.
func (b *buffers) list(to []*mlx.Array) []*mlx.Array {
	for _, a := range b {
		if a != nil {
			to = append(to, a)
		}
	}
	return to
}

func (b *buffers) bytes() (n int64) {
	for _, a := range b {
		n += int64(a.Bytes())
	}
	return n
}

func (b *buffers) free() {
	for _, a := range b {
		a.Free()
	}
}

func (b buffers) keep(s *mlx.Scope) buffers {
	for _, a := range b {
		s.Keep(a)
	}
	return b
}

// slice gives the tokens from from to before to, or to the end of the buffers.
func (b *buffers) slice(s *mlx.Scope, from, to int) (out buffers) {
	for i, a := range b {
		if a != nil {
			out[i] = s.SliceAxis(a, 2, from, min(to, a.Dim(2)))
		}
	}
	return out
}

// A form is what a token's arrays look like: their shapes, of which the length
// says nothing, and their types.
type form [3]struct {
	shape []int
	dtype mlx.Dtype
}

func (b *buffers) form() (out form) {
	for i, a := range b {
		if shape := a.Shape(); len(shape) == 4 {
			out[i].shape, out[i].dtype = shape, a.Dtype()
		}
	}
	return out
}

// width is the bytes of a token, 0 where the form is not known.
func (f *form) width() (n int64) {
	for _, a := range f {
		if len(a.shape) == 4 {
			n += int64(a.shape[0]*a.shape[1]*a.shape[3]) * int64(a.dtype.Size())
		}
	}
	return n
}

// move makes buffers of capacity tokens that begin with those from from to
// before end, and frees the old ones.
func (b *buffers) move(s *mlx.Scope, like form, from, end, capacity int) {
	for i, a := range like {
		if s.Err() != nil || len(a.shape) != 4 {
			continue
		}
		fresh := s.Zeros(a.dtype, a.shape[0], a.shape[1], capacity-(end-from), a.shape[3])
		if end > from {
			fresh = s.Concatenate(2, s.SliceAxis(b[i], 2, from, end), fresh)
		}
		b[i] = replace(s, b[i], fresh)
	}
}

// write puts new tokens at a place. MLX writes in place, because nothing else
// refers to the old buffer any more once the graph is computed.
func (b *buffers) write(s *mlx.Scope, update buffers, at int) {
	for i, a := range update {
		shape := a.Shape()
		if s.Err() != nil || len(shape) != 4 {
			continue
		}
		start := []int{0, 0, at, 0}
		stop := []int{shape[0], shape[1], at + shape[2], shape[3]}
		b[i] = replace(s, b[i], s.SliceUpdate(b[i], a, start, stop, nil))
	}
}

func replace(s *mlx.Scope, old, fresh *mlx.Array) *mlx.Array {
	if fresh == nil { // the scope has the error
		return old
	}
	old.Free()
	return s.Keep(fresh)
}
