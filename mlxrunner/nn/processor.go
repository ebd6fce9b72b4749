package nn

import (
	"math"
	"runtime"
	"sync"

	"payload/mlx"
	"payload/mlxrunner/cache"
)

// On the processor MLX has no kernels of its own for norms, positions and
// attention: it composes a token of over a hundred operations a layer, and each
// costs several microseconds beside its arithmetic, which for a small model is
// most of the time. What follows computes the same in some forty. Longer inputs
// and other devices take the usual way.

// ForProcessor prepares the decoder for the processor and gives the arrays that
// it made.
func (d *Decoder) ForProcessor(s *mlx.Scope) []*mlx.Array {
	p := &processor{s: s}
	for _, b := range d.Blocks {
		p.norm(b.BeforeAttention, b.AfterAttention, b.BeforeMLP, b.AfterMLP)
	}
	p.norm(d.Norm)
	return p.made
}

type processor struct {
	s    *mlx.Scope
	made []*mlx.Array
}

func (p *processor) keep(a *mlx.Array) *mlx.Array {
	p.made = append(p.made, p.s.Keep(a))
	return a
}

func (p *processor) norm(norms ...*RMSNorm) {
	for _, n := range norms {
		if n == nil || n.Weight.Dtype() != mlx.Float32 {
			continue
		}
		size := float64(n.Weight.Dim(0))
		n.scaled = p.keep(p.s.Multiply(n.Weight, p.s.Like(n.Weight, math.Sqrt(size))))
		n.least = p.keep(mlx.New(p.s, []float32{float32(size * float64(n.Eps))}, 1, 1))
	}
}

// A turning rotates a single token's features to its position, as a matrix
// [features, features]: for queries, times the scale of attention, and for keys.
type turning struct{ queries, keys *mlx.Array }

// widest is up to how many features a matrix is cheaper than the operations.
const widest = 128

// single tells whether tokens are one, for which there is the shorter way. In
// half floats it would convert all keys and values for every token.
func (d *Decoder) single(tokens *mlx.Array) bool { return d.Norm.scaled != nil && tokens.Size() == 1 }

// step is Forward for one token. Everything has two axes: MLX puts operations
// around a product of more axes with a matrix.
func (d *Decoder) step(s *mlx.Scope, token *mlx.Array, c *cache.Cache) *mlx.Array {
	x := d.scale(s, d.Embed.Forward(s, s.Reshape(token, 1)))
	turns := d.turnings(s, c)
	for i, b := range d.Blocks {
		x = b.step(s, x, c.Layers[i], turns[b.Attention.Rope])
	}
	return s.Reshape(d.logits(s, x), 1, 1, -1)
}

// turnings gives what rotates the next token in each layer, by its Rope.
func (d *Decoder) turnings(s *mlx.Scope, c *cache.Cache) map[*Rope]turning {
	out := map[*Rope]turning{}
	for i, b := range d.Blocks {
		a, kv := b.Attention, c.Layers[i]
		if _, ok := out[a.Rope]; ok || !a.steps(kv) {
			continue
		}
		out[a.Rope] = turning{
			queries: a.Rope.matrix(s, a.HeadDim, kv.Offset(), kv.Length(1), a.Scale),
			keys:    a.Rope.matrix(s, a.HeadDim, kv.Offset(), kv.Length(1), 1),
		}
	}
	return out
}

// rooms hold matrices on their way to MLX: a token would leave many KiB behind.
var rooms = sync.Pool{New: func() any { return new([]float32) }}

// matrix makes [features, features] that rotate and scale a row of features.
func (r *Rope) matrix(s *mlx.Scope, features, offset, tokens int, scale float32) *mlx.Array {
	turn := r.turn
	if r.long != nil && tokens > r.original {
		turn = r.longTurn
	}
	rows := *rooms.Get().(*[]float32)
	defer rooms.Put(&rows)
	rows = append(rows[:0], make([]float32, features*features)...)
	half := r.how.Dims / 2
	at := float32(offset)
	if r.how.Scale != 0 {
		at *= r.how.Scale
	}
	by := scale * float32(r.multiplier)
	for i, f := range turn {
		sin, cos := math.Sincos(float64(at * f)) // the product is rounded as MLX rounds it
		rows[i*features+i], rows[(i+half)*features+i+half] = by*float32(cos), by*float32(cos)
		rows[i*features+i+half], rows[(i+half)*features+i] = by*float32(sin), -by*float32(sin)
	}
	for i := r.how.Dims; i < features; i++ {
		rows[i*features+i] = scale
	}
	return mlx.New(s, rows, features, features)
}

// step is forward for one token, x [1, hidden].
func (b *Block) step(s *mlx.Scope, x *mlx.Array, kv *cache.KV, turn turning) *mlx.Array {
	long := func(y *mlx.Array) *mlx.Array { return s.Reshape(y, 1, 1, -1) }
	short := func(y *mlx.Array) *mlx.Array { return s.Reshape(y, 1, -1) }

	y, a := b.BeforeAttention.Forward(s, x), b.Attention
	switch {
	case a.steps(kv) && b.AfterAttention == nil:
		x = a.O.addTo(s, x, a.step(s, y, kv, turn))
	case a.steps(kv):
		x = s.Add(x, b.AfterAttention.Forward(s, a.O.Forward(s, a.step(s, y, kv, turn))))
	default:
		y = short(a.Forward(s, long(y), kv, mlx.Attention{}))
		if b.AfterAttention != nil {
			y = b.AfterAttention.Forward(s, y)
		}
		x = s.Add(x, y)
	}

	y = b.BeforeMLP.Forward(s, x)
	mlp, plain := b.MLP.(*MLP)
	if plain && b.AfterMLP == nil {
		return mlp.Down.addTo(s, x, mlp.inner(s, y))
	}
	y = short(b.MLP.Forward(s, long(y)))
	if b.AfterMLP != nil {
		y = b.AfterMLP.Forward(s, y)
	}
	return s.Add(x, y)
}

// steps tells whether step knows all that the attention needs.
func (a *Attention) steps(kv *cache.KV) bool {
	_, packed := kv.Packing()
	return a.Rope != nil && a.Sinks == nil && a.HeadDim <= widest && !packed
}

// step gives what O is applied to, [1, heads*features], for one token x [1,
// hidden]. A single query sees all that the cache gives.
func (a *Attention) step(s *mlx.Scope, x *mlx.Array, kv *cache.KV, turn turning) *mlx.Array {
	q := s.Reshape(a.Q.Forward(s, x), a.Heads, a.HeadDim)
	k := s.Reshape(a.K.Forward(s, x), a.KVHeads, a.HeadDim)
	v := s.Reshape(a.V.Forward(s, x), 1, a.KVHeads, 1, a.HeadDim)
	if a.QNorm != nil {
		q = a.QNorm.Forward(s, q)
	}
	if a.KNorm != nil {
		k = a.KNorm.Forward(s, k)
	}
	q = s.Reshape(s.Matmul(q, turn.queries), 1, a.KVHeads, a.Heads/a.KVHeads, a.HeadDim)
	k = s.Reshape(s.Matmul(k, turn.keys), 1, a.KVHeads, 1, a.HeadDim)
	keys, values := kv.Update(s, k, v)
	y := a.byHeads(s, 1, keys.Dim(2), func(of heads) *mlx.Array {
		scores := softCap(s, s.Matmul(of.some(s, q), s.SwapAxes(of.some(s, keys), 2, 3)), a.SoftCap)
		return s.Matmul(s.Softmax(scores, true, -1), of.some(s, values))
	})
	return s.Reshape(y, 1, a.Heads*a.HeadDim)
}

// heads are those of keys from one on to before another, and the queries of each.
type heads struct {
	*Attention
	from, to int
}

func (of heads) keys() int { return of.to - of.from }

// some gives what belongs to the heads, along axis 1 of x.
func (of heads) some(s *mlx.Scope, x *mlx.Array) *mlx.Array { return of.along(s, x, 1) }

// along is some for another axis. x may be nil.
func (of heads) along(s *mlx.Scope, x *mlx.Array, axis int) *mlx.Array {
	if x == nil || of.keys() == of.KVHeads {
		return x
	}
	each := x.Dim(axis) / of.KVHeads
	return s.SliceAxis(x, axis, of.from*each, of.to*each)
}

// see gives what is seen by the heads.
func (of heads) see(s *mlx.Scope, all mlx.Attention) mlx.Attention {
	all.Sinks = of.along(s, all.Sinks, 0)
	return all
}

// apart gives the heads' keys or values with an axis behind that of heads, along
// which the queries of one lie.
func (of heads) apart(s *mlx.Scope, q mlx.Quantized) mlx.Quantized {
	one := func(x *mlx.Array) *mlx.Array { return s.ExpandDims(of.some(s, x), 2) }
	return mlx.Quantized{Weights: one(q.Weights), Scales: one(q.Scales), Biases: one(q.Biases)}
}

// byHeads gives what f gives for heads, along axis 1, in as many parts as the
// processor is quickest at where each head has so many queries and keys.
func (a *Attention) byHeads(s *mlx.Scope, queries, keys int, f func(heads) *mlx.Array) *mlx.Array {
	n := 1
	if s.Stream().Device().Kind == mlx.KindCPU {
		n = min(a.KVHeads, Parts(2*a.Heads*queries, keys*a.HeadDim, false))
	}
	if n == 1 {
		return f(heads{a, 0, a.KVHeads})
	}
	return s.Concatenate(1, inParts(s, n, a.KVHeads, func(from, to int) *mlx.Array { return f(heads{a, from, to}) })...)
}

// addTo gives x with what Forward gives for y added.
func (l *Linear) addTo(s *mlx.Scope, x, y *mlx.Array) *mlx.Array {
	if l.Weight.turned == nil || l.Weight.parts != nil || l.Bias != nil {
		return s.Add(x, l.Forward(s, y))
	}
	return s.AddMM(x, y, l.Weight.turned, 1, 1)
}

// row normalises x [1, features]: x/sqrt(x·x + n eps) * sqrt(n) w, for n features.
func (n *RMSNorm) row(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	sum := s.AddMM(n.least, x, s.Reshape(x, -1, 1), 1, 1)
	return s.Multiply(s.Multiply(x, s.Rsqrt(sum)), n.scaled)
}

// slow tells whether the BLAS is slow at products of x with a matrix that lies
// by rows: with fewer of its own, what is around the products costs more.
func slow(s *mlx.Scope, x *mlx.Array) bool {
	return x != nil && s.Stream().Device().Kind == mlx.KindCPU && mlx.ReferenceBLAS() && x.Size() >= 8*x.Dim(-1)
}

// across is times for a plain matrix: it multiplies columns of x, along which
// the reference BLAS runs without a stop.
func (m Matrix) across(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	shape := x.Shape()
	features := shape[len(shape)-1]
	by := s.Contiguous(s.Transpose(s.Reshape(x, -1, features)))
	y := s.Contiguous(s.Transpose(s.Matmul(m.plain, by)))
	return s.Reshape(y, append(shape[:len(shape)-1], m.plain.Dim(0))...)
}

// most is in how many parts a matrix is multiplied by at most: what reads memory
// gains little by more.
const most = 8

// least is how many weights a part has at least: with fewer, handing it over
// costs more than it saves.
const least = 64 << 10

// Parts is in how many parts, of equal rows but for the last, the processor is
// quickest at products with a matrix. A product is one thread's work to MLX, but
// for those of a BLAS that has threads of its own.
func Parts(rows, columns int, packed bool) int {
	if !packed && !mlx.ReferenceBLAS() {
		return 1
	}
	return max(1, min(runtime.GOMAXPROCS(0), most, rows*columns/least))
}

// Divided gives the matrix in the parts that Parts says, of the same memory.
// keep becomes the owner of what it makes.
func (m Matrix) Divided(s *mlx.Scope, rows, columns int, keep func(*mlx.Array) *mlx.Array) Matrix {
	n := Parts(rows, columns, m.plain == nil)
	if n == 1 {
		return m
	}
	each := (rows + n - 1) / n
	for from := 0; from < rows; from += each {
		m.parts = append(m.parts, m.Rows(s, from, min(from+each, rows), keep))
	}
	return m
}

// together is times for a matrix in parts.
func (m Matrix) together(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return s.Concatenate(-1, inParts(s, len(m.parts), len(m.parts), func(i, _ int) *mlx.Array { return m.parts[i].times(s, x) })...)
}

// inParts computes size things in n parts, all but the first on streams beside,
// and gives what f gives for those from one on to before another.
func inParts(s *mlx.Scope, n, size int, f func(from, to int) *mlx.Array) []*mlx.Array {
	each := (size + n - 1) / n
	var found []*mlx.Array
	for from := 0; from < size; from += each {
		part := func() { found = append(found, f(from, min(from+each, size))) }
		if from == 0 {
			part()
		} else {
			s.Beside(from/each, part)
		}
	}
	return found
}
