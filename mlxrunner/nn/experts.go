package nn

import (
	"payload/mlx"
	"payload/mlx/quant"
)

// Bank is a layer's matrices of all experts.
type Bank struct {
	turned *mlx.Array // [experts, columns, rows]
	packed mlx.Quantized
	how    quant.Params
}

// PlainBank makes a bank of matrices [experts, columns, rows].
func PlainBank(turned *mlx.Array) Bank { return Bank{turned: turned} }

// PackedBank makes a bank of quantised matrices [experts, rows, words].
func PackedBank(w mlx.Quantized, how quant.Params) Bank { return Bank{packed: w, how: how} }

// times multiplies x [..., 1, columns] by the matrices that which names. sorted
// says that they are in order.
func (b Bank) times(s *mlx.Scope, x, which *mlx.Array, sorted bool) *mlx.Array {
	if b.turned != nil {
		return s.GatherMM(x, b.turned, nil, which, sorted)
	}
	return s.GatherQMM(x, b.packed, nil, which, true, b.how, sorted)
}

// Experts is a mixture of gated MLPs, of which each token takes a few: those
// that the router finds likeliest, weighed by their probabilities.
type Experts struct {
	Router         *Linear
	Count, Take    int
	Normalise      bool // the probabilities of those taken add up to 1
	Gate, Up, Down Bank
	Act            Activation
}

// manyTokens is from how many choices on they are sorted, so that each expert's
// matrix is read once.
const manyTokens = 64

// Forward gives [batch, length, hidden] for x of that shape.
func (e *Experts) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	p := s.Softmax(e.Router.Forward(s, x), true, -1)
	which := s.SliceAxis(s.ArgPartition(p, e.Count-e.Take, -1), 2, e.Count-e.Take, e.Count)
	weight := s.TakeAlongAxis(p, which, -1)
	if e.Normalise {
		weight = s.Divide(weight, s.Sum(weight, true, -1))
	}
	var y *mlx.Array // [batch, length, taken, hidden]
	if which.Size() >= manyTokens {
		y = e.sorted(s, x, which)
	} else {
		y = s.Squeeze(e.mlp(s, s.ExpandDims(x, -2, -3), which, false), -2)
	}
	return s.AsType(s.Sum(s.Multiply(y, s.ExpandDims(weight, -1)), false, -2), x.Dtype())
}

func (e *Experts) mlp(s *mlx.Scope, x, which *mlx.Array, sorted bool) *mlx.Array {
	gate := e.Act(s, e.Gate.times(s, x, which, sorted))
	return e.Down.times(s, s.Multiply(gate, e.Up.times(s, x, which, sorted)), which, sorted)
}

// sorted computes choices in the order of their experts and puts them back.
func (e *Experts) sorted(s *mlx.Scope, x, which *mlx.Array) *mlx.Array {
	shape := x.Shape()
	if len(shape) != 3 { // the scope has the error
		return nil
	}
	flat := s.Reshape(which, -1)
	order := s.ArgSort(flat, -1)
	rows := s.Reshape(x, shape[0]*shape[1], 1, shape[2])
	chosen := s.Take(rows, s.FloorDivide(order, s.Like(order, float64(e.Take))), 0)
	y := e.mlp(s, chosen, s.Take(flat, order, 0), true)
	return s.Reshape(s.Take(y, s.ArgSort(order, -1), 0), shape[0], shape[1], e.Take, shape[2])
}
