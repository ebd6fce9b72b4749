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
	bias   *mlx.Array // [experts, rows], nil for none
}

// WithBias gives the bank with a bias [experts, rows].
func (b Bank) WithBias(bias *mlx.Array) Bank {
	b.bias = bias
	return b
}

// PlainBank makes a bank of matrices [experts, columns, rows].
func PlainBank(turned *mlx.Array) Bank { return Bank{turned: turned} }

// PackedBank makes a bank of quantised matrices [experts, rows, words].
func PackedBank(w mlx.Quantized, how quant.Params) Bank { return Bank{packed: w, how: how} }

// times multiplies x [..., 1, columns] by the matrices that which names. sorted
// says that they are in order.
func (b Bank) times(s *mlx.Scope, x, which *mlx.Array, sorted bool) *mlx.Array {
	var y *mlx.Array
	if b.turned != nil {
		y = s.GatherMM(x, b.turned, nil, which, sorted)
	} else {
		y = s.GatherQMM(x, b.packed, nil, which, true, b.how, sorted)
	}
	if b.bias != nil {
		y = s.Add(y, s.ExpandDims(s.Take(b.bias, which, 0), -2))
	}
	return y
}

// Experts is a mixture of gated MLPs, of which each token takes a few: those
// that the router finds likeliest, weighed by their probabilities.
type Experts struct {
	Router         *Linear
	Count, Take    int
	Normalise      bool // the probabilities of those taken add up to 1
	Gate, Up, Down Bank
	Gated          func(s *mlx.Scope, gate, up *mlx.Array) *mlx.Array
}

// GatedBy multiplies by an activation of the gate.
func GatedBy(act Activation) func(s *mlx.Scope, gate, up *mlx.Array) *mlx.Array {
	return func(s *mlx.Scope, gate, up *mlx.Array) *mlx.Array { return s.Multiply(act(s, gate), up) }
}

// GatedClamped is gpt-oss's: both sides are clamped to 7, the gate from above
// only, and the result is gate*sigmoid(1.702*gate)*(up+1).
func GatedClamped(s *mlx.Scope, gate, up *mlx.Array) *mlx.Array {
	limit := s.Like(gate, 7)
	gate = s.Minimum(gate, limit)
	up = s.Clip(up, s.Like(up, -7), limit)
	gate = s.Multiply(gate, s.Sigmoid(s.Multiply(gate, s.Like(gate, 1.702))))
	return s.Multiply(gate, s.Add(up, s.Like(up, 1)))
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

// mlp gives [..., n, 1, hidden] for which [..., n]. Where rows of x belong to one
// choice each, sorted says so too.
func (e *Experts) mlp(s *mlx.Scope, x, which *mlx.Array, sorted bool) *mlx.Array {
	some := func(x, which *mlx.Array) *mlx.Array {
		y := e.Gated(s, e.Gate.times(s, x, which, sorted), e.Up.times(s, x, which, sorted))
		return e.Down.times(s, y, which, sorted)
	}
	choices := which.Dim(-1)
	n := e.Gate.parts(s, which.Size(), choices)
	if n == 1 {
		return some(x, which)
	}
	return s.Concatenate(-3, inParts(s, n, choices, func(from, to int) *mlx.Array {
		rows := x
		if sorted {
			rows = s.SliceAxis(x, 0, from, to)
		}
		return some(rows, s.SliceAxis(which, -1, from, to))
	})...)
}

// parts is in how many parts the processor is quickest at taking choices of
// experts, products in all.
func (b Bank) parts(s *mlx.Scope, products, choices int) int {
	w := b.turned
	if w == nil {
		w = b.packed.Weights
	}
	if s.Stream().Device().Kind != mlx.KindCPU || w == nil {
		return 1
	}
	weights := w.Dim(-1) * w.Dim(-2)
	if b.turned == nil {
		weights *= 32 / b.how.Bits
	}
	return min(Parts(products, weights, b.turned == nil), choices)
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
