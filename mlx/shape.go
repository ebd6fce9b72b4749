package mlx

import (
	"fmt"

	"payload/mlx/internal/c"
)

// Operations on shapes, and those that choose or place elements.

func (s *Scope) shaped(op string, f func(*c.Array, c.Array, []int32, c.Stream) error, a *Array, ints []int) *Array {
	if !s.ready(op, a) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, narrow(nil, ints), s.stream.h), a)
}

// Reshape gives a with another shape; one length may be -1.
func (s *Scope) Reshape(a *Array, shape ...int) *Array {
	return s.shaped("Reshape", c.Reshape, a, shape)
}

// BroadcastTo repeats axes of length 1 until the shape is reached.
func (s *Scope) BroadcastTo(a *Array, shape ...int) *Array {
	return s.shaped("BroadcastTo", c.BroadcastTo, a, shape)
}

// Transpose puts axes into an order; none turns them all around.
func (s *Scope) Transpose(a *Array, axes ...int) *Array {
	if len(axes) == 0 {
		return s.unary("Transpose", c.Transpose, a)
	}
	return s.shaped("Transpose", c.TransposeAxes, a, axes)
}

// ExpandDims adds axes of length 1; axes count in the result.
func (s *Scope) ExpandDims(a *Array, axes ...int) *Array {
	return s.shaped("ExpandDims", c.ExpandDimsAxes, a, axes)
}

// Squeeze takes axes of length 1 away; none takes all such.
func (s *Scope) Squeeze(a *Array, axes ...int) *Array {
	if len(axes) == 0 {
		return s.unary("Squeeze", c.Squeeze, a)
	}
	return s.shaped("Squeeze", c.SqueezeAxes, a, axes)
}

// Tile repeats a as a whole, as often as reps says for each axis.
func (s *Scope) Tile(a *Array, reps ...int) *Array { return s.shaped("Tile", c.Tile, a, reps) }

// Flip turns axes around; none turns all.
func (s *Scope) Flip(a *Array, axes ...int) *Array {
	if len(axes) == 0 {
		return s.unary("Flip", c.Flip, a)
	}
	return s.shaped("Flip", c.FlipAxes, a, axes)
}

// SwapAxes exchanges two axes.
func (s *Scope) SwapAxes(a *Array, i, j int) *Array { return s.nth("SwapAxes", c.Swapaxes, a, i, j) }

// MoveAxis moves an axis to another place.
func (s *Scope) MoveAxis(a *Array, from, to int) *Array {
	return s.nth("MoveAxis", c.Moveaxis, a, from, to)
}

// Flatten joins the axes from first to last, both included.
func (s *Scope) Flatten(a *Array, first, last int) *Array {
	return s.nth("Flatten", c.Flatten, a, first, last)
}

// Unflatten splits an axis into axes of shape.
func (s *Scope) Unflatten(a *Array, axis int, shape ...int) *Array {
	return s.shaped("Unflatten", func(res *c.Array, h c.Array, dims []int32, st c.Stream) error {
		return c.Unflatten(res, h, int32(axis), dims, st)
	}, a, shape)
}

// Repeat repeats each element n times along an axis.
func (s *Scope) Repeat(a *Array, n, axis int) *Array {
	return s.nth("Repeat", c.RepeatAxis, a, n, axis)
}

// Roll moves elements along an axis, and what falls off the end to the start.
func (s *Scope) Roll(a *Array, by, axis int) *Array {
	return s.shaped("Roll", func(res *c.Array, h c.Array, shift []int32, st c.Stream) error {
		return c.RollAxis(res, h, shift, int32(axis), st)
	}, a, []int{by})
}

// AsType converts elements.
func (s *Scope) AsType(a *Array, d Dtype) *Array {
	if !s.ready("AsType", a) {
		return nil
	}
	s.out = 0
	return s.took("AsType", c.Astype(&s.out, a.h, c.Dtype(d), s.stream.h), a)
}

// View reads the same bytes as another type.
func (s *Scope) View(a *Array, d Dtype) *Array {
	if !s.ready("View", a) {
		return nil
	}
	s.out = 0
	return s.took("View", c.View(&s.out, a.h, c.Dtype(d), s.stream.h), a)
}

// Contiguous lays elements out in the order of rows.
func (s *Scope) Contiguous(a *Array) *Array {
	if !s.ready("Contiguous", a) {
		return nil
	}
	s.out = 0
	return s.took("Contiguous", c.Contiguous(&s.out, a.h, false, s.stream.h), a)
}

func (s *Scope) join(op string, f func(*c.Array, c.VectorArray, int32, c.Stream) error, axis int, arrays []*Array) *Array {
	if !s.ready(op, arrays...) {
		return nil
	}
	v, err := vector(arrays)
	if err != nil {
		return s.refuse(op, err, arrays...)
	}
	defer func() { _ = c.VectorArrayFree(v) }() // it can't fail
	s.out = 0
	return s.took(op, f(&s.out, v, int32(axis), s.stream.h), arrays...)
}

// Concatenate joins arrays along an axis that they have.
func (s *Scope) Concatenate(axis int, arrays ...*Array) *Array {
	return s.join("Concatenate", c.ConcatenateAxis, axis, arrays)
}

// Stack joins arrays along a new axis.
func (s *Scope) Stack(axis int, arrays ...*Array) *Array {
	return s.join("Stack", c.StackAxis, axis, arrays)
}

// Split cuts an axis into n equal parts. After an error it gives nil.
func (s *Scope) Split(a *Array, n, axis int) []*Array {
	if !s.ready("Split", a) {
		return nil
	}
	v, err := c.VectorArrayNew()
	if err == nil {
		err = c.Split(&v, a.h, int32(n), int32(axis), s.stream.h)
	}
	return s.list("Split", v, err, a)
}

// SplitAt cuts an axis before each of the indices. After an error it gives nil.
func (s *Scope) SplitAt(a *Array, indices []int, axis int) []*Array {
	if !s.ready("SplitAt", a) {
		return nil
	}
	v, err := c.VectorArrayNew()
	if err == nil {
		err = c.SplitSections(&v, a.h, narrow(nil, indices), int32(axis), s.stream.h)
	}
	return s.list("SplitAt", v, err, a)
}

// Pad adds elements of value before and behind: for each axis, how many.
func (s *Scope) Pad(a *Array, value float64, before, behind []int) *Array {
	if !s.ready("Pad", a) {
		return nil
	}
	with := s.Like(a, value)
	if with == nil {
		return nil
	}
	defer with.Free()
	s.out = 0
	return s.took("Pad", c.Pad(&s.out, a.h, all(a, nil), narrow(nil, before), narrow(nil, behind), with.h, "constant", s.stream.h), a)
}

// Take chooses along an axis by indices, whose shape takes the axis's place.
func (s *Scope) Take(a, indices *Array, axis int) *Array {
	return s.pick("Take", c.TakeAxis, a, indices, axis)
}

// TakeAlongAxis chooses along an axis by indices of a's shape but for that axis.
func (s *Scope) TakeAlongAxis(a, indices *Array, axis int) *Array {
	return s.pick("TakeAlongAxis", c.TakeAlongAxis, a, indices, axis)
}

func (s *Scope) pick(op string, f func(*c.Array, c.Array, c.Array, int32, c.Stream) error, a, b *Array, axis int) *Array {
	if !s.ready(op, a, b) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, b.h, int32(axis), s.stream.h), a, b)
}

func (s *Scope) place(op string, f func(*c.Array, c.Array, c.Array, c.Array, int32, c.Stream) error, a, indices, values *Array, axis int) *Array {
	if !s.ready(op, a, indices, values) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, indices.h, values.h, int32(axis), s.stream.h), a, indices, values)
}

// PutAlongAxis gives a with values at indices along an axis.
func (s *Scope) PutAlongAxis(a, indices, values *Array, axis int) *Array {
	return s.place("PutAlongAxis", c.PutAlongAxis, a, indices, values, axis)
}

// ScatterAddAxis gives a with values added at indices along an axis.
func (s *Scope) ScatterAddAxis(a, indices, values *Array, axis int) *Array {
	return s.place("ScatterAddAxis", c.ScatterAddAxis, a, indices, values, axis)
}

// Gather takes a slice of sizes at each of the places that indices name; one
// array of indices for each of axes.
func (s *Scope) Gather(a *Array, indices []*Array, axes, sizes []int) *Array {
	if !s.ready("Gather", append([]*Array{a}, indices...)...) {
		return nil
	}
	v, err := vector(indices)
	if err != nil {
		return s.refuse("Gather", err, a)
	}
	defer func() { _ = c.VectorArrayFree(v) }() // it can't fail
	s.out = 0
	return s.took("Gather", c.Gather(&s.out, a.h, v, narrow(nil, axes), narrow(nil, sizes), s.stream.h), a)
}

// Scatter gives a with updates at the places that indices name; one array of
// indices for each of axes.
func (s *Scope) Scatter(a *Array, indices []*Array, updates *Array, axes []int) *Array {
	if !s.ready("Scatter", append([]*Array{a, updates}, indices...)...) {
		return nil
	}
	v, err := vector(indices)
	if err != nil {
		return s.refuse("Scatter", err, a)
	}
	defer func() { _ = c.VectorArrayFree(v) }() // it can't fail
	s.out = 0
	return s.took("Scatter", c.Scatter(&s.out, a.h, v, updates.h, narrow(nil, axes), s.stream.h), a, updates)
}

// Slice gives the elements from start to before stop, every stride'th; an
// entry for each axis. strides may be nil: all ones. What is past the end is
// cut, and negative numbers count from the end.
func (s *Scope) Slice(a *Array, start, stop, strides []int) *Array {
	if !s.ready("Slice", a) {
		return nil
	}
	s.out = 0
	return s.took("Slice", c.Slice(&s.out, a.h, narrow(nil, start), narrow(nil, stop), steps(start, strides), s.stream.h), a)
}

// SliceAxis is Slice along one axis.
func (s *Scope) SliceAxis(a *Array, axis, start, stop int) *Array {
	if !s.ready("SliceAxis", a) {
		return nil
	}
	shape := a.Shape()
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return s.refuse("SliceAxis", fmt.Errorf("there is no axis %d", axis), a)
	}
	from := make([]int, len(shape))
	from[axis], shape[axis] = start, stop
	return s.Slice(a, from, shape, nil)
}

// SliceUpdate gives a with update in place of Slice(a, start, stop, strides).
func (s *Scope) SliceUpdate(a, update *Array, start, stop, strides []int) *Array {
	if !s.ready("SliceUpdate", a, update) {
		return nil
	}
	s.out = 0
	return s.took("SliceUpdate", c.SliceUpdate(&s.out, a.h, update.h, narrow(nil, start), narrow(nil, stop), steps(start, strides), s.stream.h), a, update)
}

// SliceDynamic gives sizes elements from where start says; start holds an
// index for each of axes.
func (s *Scope) SliceDynamic(a, start *Array, axes, sizes []int) *Array {
	if !s.ready("SliceDynamic", a, start) {
		return nil
	}
	s.out = 0
	return s.took("SliceDynamic", c.SliceDynamic(&s.out, a.h, start.h, narrow(nil, axes), narrow(nil, sizes), s.stream.h), a, start)
}

// SliceUpdateDynamic gives a with update from where start says; start holds
// an index for each of axes.
func (s *Scope) SliceUpdateDynamic(a, update, start *Array, axes []int) *Array {
	if !s.ready("SliceUpdateDynamic", a, update, start) {
		return nil
	}
	s.out = 0
	return s.took("SliceUpdateDynamic", c.SliceUpdateDynamic(&s.out, a.h, update.h, start.h, narrow(nil, axes), s.stream.h), a, update, start)
}

func steps(start, strides []int) []int32 {
	if strides != nil {
		return narrow(nil, strides)
	}
	out := make([]int32, len(start))
	for i := range out {
		out[i] = 1
	}
	return out
}

// Where gives elements of a where condition is true, else of b.
func (s *Scope) Where(condition, a, b *Array) *Array {
	if !s.ready("Where", condition, a, b) {
		return nil
	}
	s.out = 0
	return s.took("Where", c.Where(&s.out, condition.h, a.h, b.h, s.stream.h), condition, a, b)
}

// Clip bounds elements; low or high may be nil.
func (s *Scope) Clip(a, low, high *Array) *Array {
	if !s.ready("Clip", a) {
		return nil
	}
	s.out = 0
	return s.took("Clip", c.Clip(&s.out, a.h, orZero(low), orZero(high), s.stream.h), a)
}

// Tril gives the elements on and below the k'th diagonal, zeros elsewhere.
func (s *Scope) Tril(a *Array, k int) *Array { return s.onAxis("Tril", c.Tril, a, k) }

// Triu gives the elements on and above the k'th diagonal, zeros elsewhere.
func (s *Scope) Triu(a *Array, k int) *Array { return s.onAxis("Triu", c.Triu, a, k) }

// Round rounds to decimals, ties to even.
func (s *Scope) Round(a *Array, decimals int) *Array { return s.onAxis("Round", c.Round, a, decimals) }

// Diag gives the k'th diagonal of a matrix, or the matrix of a vector.
func (s *Scope) Diag(a *Array, k int) *Array { return s.onAxis("Diag", c.Diag, a, k) }
