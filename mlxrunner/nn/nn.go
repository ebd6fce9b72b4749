// Package nn holds the parts that language models are built of: linear layers,
// embeddings, norms, rotary positions, attention and the gated MLP, plain and
// quantised, as the reference implementations compute them.
//
// Parts hold weights and settings and no state; their arrays belong to whoever
// loaded them. Forward builds a graph and computes nothing. Errors stay in the
// scope.
package nn

import (
	"fmt"
	"math"

	"payload/mlx"
	"payload/mlx/quant"
	"payload/mlxrunner/cache"
)

// Matrix is a weight of rows and columns as a checkpoint has it, packed or not.
type Matrix struct {
	parts  []Matrix   // some of its rows each, to be multiplied by at a time; nil for none
	plain  *mlx.Array // [rows, columns]; nil where only turned is there
	turned *mlx.Array // [columns, rows]: the same memory where plain is there
	packed mlx.Quantized
	how    quant.Params
}

// Plain makes a matrix of an array [rows, columns]; turned is its transpose.
func Plain(w, turned *mlx.Array) Matrix { return Matrix{plain: w, turned: turned} }

// Turned makes a matrix of arrays [columns, some rows], in parts where there are
// several. It gives no rows.
func Turned(parts ...*mlx.Array) Matrix {
	if len(parts) == 1 {
		return Matrix{turned: parts[0]}
	}
	var m Matrix
	for _, w := range parts {
		m.parts = append(m.parts, Turned(w))
	}
	return m
}

// Packed makes a matrix of quantised weights.
func Packed(w mlx.Quantized, how quant.Params) Matrix { return Matrix{packed: w, how: how} }

// Rows gives a part of the matrix, of the same memory. keep becomes the owner
// of what it makes.
func (m Matrix) Rows(s *mlx.Scope, from, to int, keep func(*mlx.Array) *mlx.Array) Matrix {
	part := func(a *mlx.Array) *mlx.Array { return keep(s.SliceAxis(a, 0, from, to)) }
	if m.plain != nil {
		plain := part(m.plain)
		return Matrix{plain: plain, turned: keep(s.Transpose(plain))}
	}
	packed := mlx.Quantized{Weights: part(m.packed.Weights), Scales: part(m.packed.Scales)}
	if m.packed.Biases != nil {
		packed.Biases = part(m.packed.Biases)
	}
	return Packed(packed, m.how)
}

// times gives x [..., columns] multiplied by the matrix transposed: [..., rows].
func (m Matrix) times(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if m.parts != nil {
		return m.together(s, x)
	}
	if m.plain != nil && slow(s, x) {
		return m.across(s, x)
	}
	if m.turned != nil {
		return s.Matmul(x, m.turned)
	}
	return s.QuantizedMatmul(x, m.packed, true, m.how)
}

// rows gives the rows that indices name.
func (m Matrix) rows(s *mlx.Scope, indices *mlx.Array) *mlx.Array {
	if m.plain != nil {
		return s.Take(m.plain, indices, 0)
	}
	row := mlx.Quantized{Weights: s.Take(m.packed.Weights, indices, 0), Scales: s.Take(m.packed.Scales, indices, 0)}
	dtype := mlx.BFloat16 // block formats carry no type; the reference takes this one
	if m.packed.Biases != nil {
		row.Biases = s.Take(m.packed.Biases, indices, 0)
		dtype = m.packed.Biases.Dtype()
	}
	return s.Dequantize(row, m.how, dtype)
}

// Linear multiplies by a matrix and adds a bias.
type Linear struct {
	Weight Matrix
	Bias   *mlx.Array // [out] or nil
}

// Forward gives [..., out] for x [..., in].
func (l *Linear) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	y := l.Weight.times(s, x)
	if l.Bias != nil {
		y = s.Add(y, l.Bias)
	}
	return y
}

// Embedding is a table of tokens' features.
type Embedding struct{ Weight Matrix }

// Forward gives the features [..., features] of tokens.
func (e *Embedding) Forward(s *mlx.Scope, tokens *mlx.Array) *mlx.Array {
	return e.Weight.rows(s, tokens)
}

// Head gives logits [..., tokens] for x [..., features], where the output is
// tied to the table.
func (e *Embedding) Head(s *mlx.Scope, x *mlx.Array) *mlx.Array { return e.Weight.times(s, x) }

// RMSNorm divides by the root mean square and multiplies by a weight. Gemma
// multiplies by 1+w; a loader adds the one.
type RMSNorm struct {
	Weight *mlx.Array
	Eps    float32

	scaled, least *mlx.Array // for the processor
}

// Forward normalises the last axis.
func (n *RMSNorm) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if n.scaled != nil && x.Dims() == 2 && x.Dim(0) == 1 && x.Dtype() == mlx.Float32 {
		return n.row(s, x)
	}
	return s.RMSNorm(x, n.Weight, n.Eps)
}

// Attention is grouped-query attention over a cache.
type Attention struct {
	Heads, KVHeads, HeadDim int
	Scale                   float32
	Q, K, V, O              *Linear
	QNorm, KNorm            *RMSNorm   // over a head's features, before positions; nil for none
	Rope                    *Rope      // nil for none
	Sinks                   *mlx.Array // [heads], nil for none
	SoftCap                 float64    // of the products of queries and keys; 0 is none
}

// Forward gives [batch, length, hidden] for x of that shape. see is what the
// cache's Mask gave for the length.
func (a *Attention) Forward(s *mlx.Scope, x *mlx.Array, kv *cache.KV, see mlx.Attention) *mlx.Array {
	batch, length := x.Dim(0), x.Dim(1)
	q := a.heads(s, a.Q.Forward(s, x), a.Heads, a.QNorm)
	k := a.heads(s, a.K.Forward(s, x), a.KVHeads, a.KNorm)
	v := a.heads(s, a.V.Forward(s, x), a.KVHeads, nil)
	see.Scale, see.Sinks = a.Scale, a.Sinks
	var y *mlx.Array
	if rows := kv.Rows(); rows != nil {
		found := make([]*mlx.Array, len(rows))
		for i, of := range rows {
			row := func(x *mlx.Array) *mlx.Array { return s.SliceAxis(x, 0, i, i+1) }
			found[i] = a.look(s, row(q), row(k), row(v), of, see)
		}
		y = s.Concatenate(0, found...)
	} else {
		y = a.look(s, q, k, v, kv, see)
	}
	return a.O.Forward(s, s.Reshape(s.Transpose(y, 0, 2, 1, 3), batch, length, a.Heads*a.HeadDim))
}

// look turns queries and keys to their positions, adds keys and values to the
// cache, and gives what queries find there.
func (a *Attention) look(s *mlx.Scope, q, k, v *mlx.Array, kv *cache.KV, see mlx.Attention) *mlx.Array {
	if a.Rope != nil {
		tokens := kv.Length(q.Dim(2))
		q, k = a.Rope.Forward(s, q, kv.Offset(), tokens), a.Rope.Forward(s, k, kv.Offset(), tokens)
	}
	if how, packed := kv.Packing(); packed {
		keys, values := kv.UpdatePacked(s, k, v)
		return a.byHeads(s, q.Dim(2), keys.Weights.Dim(2), func(of heads) *mlx.Array {
			keys, values := of.apart(s, keys), of.apart(s, values)
			return of.stepwise(s, of.some(s, q), keys.Weights.Dim(-2), of.see(s, see),
				func(q *mlx.Array) *mlx.Array { return s.QuantizedMatmul(q, keys, true, how) },
				func(p *mlx.Array) *mlx.Array { return s.QuantizedMatmul(p, values, false, how) })
		})
	}
	keys, values := kv.Update(s, k, v)
	return a.byHeads(s, q.Dim(2), keys.Dim(2), func(of heads) *mlx.Array {
		q, keys, values, see := of.some(s, q), of.some(s, keys), of.some(s, values), of.see(s, see)
		if a.SoftCap == 0 {
			return s.ScaledDotProductAttention(q, keys, values, see)
		}
		turned, rows := s.SwapAxes(s.ExpandDims(keys, 2), -1, -2), s.ExpandDims(values, 2)
		return of.stepwise(s, q, keys.Dim(2), see,
			func(q *mlx.Array) *mlx.Array { return s.Matmul(q, turned) },
			func(p *mlx.Array) *mlx.Array { return s.Matmul(p, rows) })
	})
}

// stepwise is ScaledDotProductAttention for what MLX does not fuse: a SoftCap,
// and packed keys and values. score gives the products of queries with that
// many keys, mix those of probabilities with values.
func (of heads) stepwise(s *mlx.Scope, q *mlx.Array, keys int, see mlx.Attention, score, mix func(*mlx.Array) *mlx.Array) *mlx.Array {
	batch, length := q.Dim(0), q.Dim(2)
	q = s.Reshape(s.Multiply(q, s.Like(q, float64(see.Scale))), batch, of.keys(), -1, length, of.HeadDim)
	scores := softCap(s, score(q), of.SoftCap)
	mask := see.Mask
	if see.Causal {
		mask = s.Tri(mlx.Bool, length, keys, keys-length)
	}
	if mask != nil {
		if mask.Dims() > 3 { // of a batch: it has no axis for the queries of one head of keys
			mask = s.ExpandDims(mask, 2)
		}
		scores = s.Where(mask, scores, s.Like(scores, math.Inf(-1)))
	}
	if see.Sinks == nil {
		return s.Reshape(mix(s.Softmax(scores, true, -1)), batch, -1, length, of.HeadDim)
	}
	// A sink is one more key, whose value is nothing.
	each := s.BroadcastTo(s.AsType(s.Reshape(see.Sinks, 1, of.keys(), -1, 1, 1), scores.Dtype()), batch, of.keys(), of.Heads/of.KVHeads, length, 1)
	p := s.Softmax(s.Concatenate(-1, scores, each), true, -1)
	return s.Reshape(mix(s.SliceAxis(p, 4, 0, keys)), batch, -1, length, of.HeadDim)
}

// softCap gives cap*tanh(x/cap), x for a cap of 0.
func softCap(s *mlx.Scope, x *mlx.Array, limit float64) *mlx.Array {
	if limit == 0 {
		return x
	}
	by := s.Like(x, limit)
	return s.Multiply(s.Tanh(s.Divide(x, by)), by)
}

// heads splits [batch, length, n*features] to [batch, n, length, features].
func (a *Attention) heads(s *mlx.Scope, x *mlx.Array, n int, norm *RMSNorm) *mlx.Array {
	x = s.Reshape(x, x.Dim(0), x.Dim(1), n, a.HeadDim)
	if norm != nil {
		x = norm.Forward(s, x)
	}
	return s.Transpose(x, 0, 2, 1, 3)
}

// MLP is the gated one: down(act(gate(x)) * up(x)).
type MLP struct {
	Gate, Up, Down *Linear
	Act            Activation
}

// Forward gives [..., hidden] for x of that shape.
func (m *MLP) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array { return m.Down.Forward(s, m.inner(s, x)) }

// inner gives what Down is applied to.
func (m *MLP) inner(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return s.Multiply(m.Act(s, m.Gate.Forward(s, x)), m.Up.Forward(s, x))
}

// Activation is a function of each element.
type Activation func(s *mlx.Scope, x *mlx.Array) *mlx.Array

// ActivationOf finds a function by its name in a config.json (hidden_act).
func ActivationOf(name string) (Activation, error) {
	switch name {
	case "silu", "swish":
		return SiLU, nil
	case "gelu_pytorch_tanh", "gelu_new":
		return GELUTanh, nil
	}
	return nil, fmt.Errorf("the activation %q is not known", name)
}

// SiLU gives x*sigmoid(x).
func SiLU(s *mlx.Scope, x *mlx.Array) *mlx.Array { return s.Multiply(x, s.Sigmoid(x)) }

// GELUTanh gives x/2*(1+tanh(sqrt(2/pi)*(x+0.044715*x^3))), the usual
// approximation of GELU (Hendrycks and Gimpel, 2016).
func GELUTanh(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	cube := s.Multiply(x, s.Square(x))
	inner := s.Multiply(s.Like(x, 0.7978845608028654), s.Add(x, s.Multiply(s.Like(x, 0.044715), cube)))
	return s.Multiply(s.Multiply(s.Like(x, 0.5), x), s.Add(s.Like(x, 1), s.Tanh(inner)))
}
