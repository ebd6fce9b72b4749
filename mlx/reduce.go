package mlx

import "payload/mlx/internal/c"

// Operations over axes. An axis counts from 0, or from the end: -1 is the
// last. Where axes are a list, none means all. keep leaves the axes that were
// reduced with length 1.

type reduceAxes func(*c.Array, c.Array, []int32, bool, c.Stream) error

func (s *Scope) reduce(op string, f reduceAxes, a *Array, keep bool, axes []int) *Array {
	if !s.ready(op, a) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, all(a, axes), keep, s.stream.h), a)
}

// all gives axes as C has them, every axis of a where there are none.
func all(a *Array, axes []int) []int32 {
	if len(axes) > 0 {
		return narrow(nil, axes)
	}
	out := make([]int32, a.Dims())
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// Sum adds up.
func (s *Scope) Sum(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("Sum", c.SumAxes, a, keep, axes)
}

// Mean gives averages.
func (s *Scope) Mean(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("Mean", c.MeanAxes, a, keep, axes)
}

// Prod multiplies.
func (s *Scope) Prod(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("Prod", c.ProdAxes, a, keep, axes)
}

// Max gives the largest elements.
func (s *Scope) Max(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("Max", c.MaxAxes, a, keep, axes)
}

// Min gives the smallest elements.
func (s *Scope) Min(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("Min", c.MinAxes, a, keep, axes)
}

// All tells whether all elements are true.
func (s *Scope) All(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("All", c.AllAxes, a, keep, axes)
}

// Any tells whether one element is true.
func (s *Scope) Any(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("Any", c.AnyAxes, a, keep, axes)
}

// LogSumExp gives Log(Sum(Exp(a))) without overflow.
func (s *Scope) LogSumExp(a *Array, keep bool, axes ...int) *Array {
	return s.reduce("LogSumExp", c.LogsumexpAxes, a, keep, axes)
}

// Var gives variances; ddof is taken off the number of elements.
func (s *Scope) Var(a *Array, keep bool, ddof int, axes ...int) *Array {
	return s.reduce("Var", func(res *c.Array, h c.Array, over []int32, keep bool, st c.Stream) error {
		return c.VarAxes(res, h, over, keep, int32(ddof), st)
	}, a, keep, axes)
}

// Std gives the square roots of variances; ddof is taken off the number of elements.
func (s *Scope) Std(a *Array, keep bool, ddof int, axes ...int) *Array {
	return s.reduce("Std", func(res *c.Array, h c.Array, over []int32, keep bool, st c.Stream) error {
		return c.StdAxes(res, h, over, keep, int32(ddof), st)
	}, a, keep, axes)
}

// Softmax gives Exp(a)/Sum(Exp(a)) over axes; precise computes in float32.
func (s *Scope) Softmax(a *Array, precise bool, axes ...int) *Array {
	return s.reduce("Softmax", c.SoftmaxAxes, a, precise, axes)
}

// ArgMax gives where the largest elements are, as uint32.
func (s *Scope) ArgMax(a *Array, axis int, keep bool) *Array {
	if !s.ready("ArgMax", a) {
		return nil
	}
	s.out = 0
	return s.took("ArgMax", c.ArgmaxAxis(&s.out, a.h, int32(axis), keep, s.stream.h), a)
}

// ArgMin gives where the smallest elements are, as uint32.
func (s *Scope) ArgMin(a *Array, axis int, keep bool) *Array {
	if !s.ready("ArgMin", a) {
		return nil
	}
	s.out = 0
	return s.took("ArgMin", c.ArgminAxis(&s.out, a.h, int32(axis), keep, s.stream.h), a)
}

func (s *Scope) onAxis(op string, f func(*c.Array, c.Array, int32, c.Stream) error, a *Array, axis int) *Array {
	if !s.ready(op, a) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, int32(axis), s.stream.h), a)
}

// Sort sorts along an axis, the smallest first.
func (s *Scope) Sort(a *Array, axis int) *Array { return s.onAxis("Sort", c.SortAxis, a, axis) }

// ArgSort gives where Sort would take its elements from, as uint32.
func (s *Scope) ArgSort(a *Array, axis int) *Array {
	return s.onAxis("ArgSort", c.ArgsortAxis, a, axis)
}

func (s *Scope) nth(op string, f func(*c.Array, c.Array, int32, int32, c.Stream) error, a *Array, n, axis int) *Array {
	if !s.ready(op, a) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, int32(n), int32(axis), s.stream.h), a)
}

// Partition puts the element that sorting would put at kth there, none larger
// before and none smaller behind it.
func (s *Scope) Partition(a *Array, kth, axis int) *Array {
	return s.nth("Partition", c.PartitionAxis, a, kth, axis)
}

// ArgPartition gives where Partition would take its elements from, as uint32.
func (s *Scope) ArgPartition(a *Array, kth, axis int) *Array {
	return s.nth("ArgPartition", c.ArgpartitionAxis, a, kth, axis)
}

// TopK gives the k largest elements, in no order.
func (s *Scope) TopK(a *Array, k, axis int) *Array { return s.nth("TopK", c.TopkAxis, a, k, axis) }

// Cumulate says how elements are added up along an axis.
type Cumulate struct {
	Reverse   bool // from the end
	Exclusive bool // without the element itself
}

// CumSum adds up along an axis.
func (s *Scope) CumSum(a *Array, axis int, how Cumulate) *Array {
	return s.cumulate("CumSum", func(res *c.Array, h c.Array, axis int32, reverse, inclusive bool, st c.Stream) error {
		return c.CumsumAxis(res, h, axis, reverse, inclusive, c.OptionalDtype{}, st)
	}, a, axis, how)
}

// CumProd multiplies along an axis.
func (s *Scope) CumProd(a *Array, axis int, how Cumulate) *Array {
	return s.cumulate("CumProd", func(res *c.Array, h c.Array, axis int32, reverse, inclusive bool, st c.Stream) error {
		return c.CumprodAxis(res, h, axis, reverse, inclusive, c.OptionalDtype{}, st)
	}, a, axis, how)
}

// CumMax gives the largest element so far along an axis.
func (s *Scope) CumMax(a *Array, axis int, how Cumulate) *Array {
	return s.cumulate("CumMax", c.CummaxAxis, a, axis, how)
}

// LogCumSumExp gives Log(CumSum(Exp(a))) without overflow.
func (s *Scope) LogCumSumExp(a *Array, axis int, how Cumulate) *Array {
	return s.cumulate("LogCumSumExp", c.LogcumsumexpAxis, a, axis, how)
}

func (s *Scope) cumulate(op string, f func(*c.Array, c.Array, int32, bool, bool, c.Stream) error, a *Array, axis int, how Cumulate) *Array {
	if !s.ready(op, a) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, int32(axis), how.Reverse, !how.Exclusive, s.stream.h), a)
}
