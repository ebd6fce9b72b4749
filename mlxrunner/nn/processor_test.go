package nn

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
	"payload/mlxrunner/cache"
)

// The matrix that turns a single token's features is MLX's rotation, for every
// kind of positions, also far out and where some features don't turn.
func TestMatrixIsTheRotation(t *testing.T) {
	s := mlxtest.Scope(t)
	factors := func(by float64) []float64 {
		out := make([]float64, 8)
		for i := range out {
			out[i] = 1 + by*float64(i)
		}
		return out
	}
	for name, p := range map[string]RopeParams{
		"default":  {Type: "default"},
		"linear":   {Type: "linear", Factor: 4},
		"llama3":   {Type: "llama3", Factor: 8, LowFactor: 1, HighFactor: 4, Original: 64},
		"yarn":     {Type: "yarn", Factor: 4, Original: 64, BetaFast: 32, BetaSlow: 1},
		"longrope": {Type: "longrope", Factor: 4, Original: 4096, ShortF: factors(0.1), LongFactor: factors(2)},
	} {
		p.Theta = 10000
		r, err := NewRope(s, 16, p, func(a *mlx.Array) *mlx.Array { return a })
		if err != nil {
			t.Fatal(err)
		}
		for _, features := range []int{16, 24} {
			row := make([]float32, features)
			for i := range row {
				row[i] = rand.Float32() - 0.5
			}
			x := mlx.New(s, row, 1, features)
			for _, offset := range []int{0, 1, 4095, 4096, 60000} {
				want, err := mlx.Values[float32](s, r.Forward(s, s.Reshape(x, 1, 1, 1, features), offset, offset+1))
				if err != nil {
					t.Fatal(err)
				}
				got, err := mlx.Values[float32](s, s.Multiply(s.Matmul(x, r.matrix(s, features, offset, offset+1, 0.5)), s.Like(x, 2)))
				if err != nil {
					t.Fatal(err)
				}
				if text := mlxtest.Differ(got, want, mlxtest.Tolerance{Abs: 1e-6 + 2e-7*float64(offset)}); text != "" {
					t.Errorf("%s, %d features, position %d: %s", name, features, offset, text)
				}
			}
		}
	}
}

// A row's norm is that of MLX, of small and of large features.
func TestRowIsTheNorm(t *testing.T) {
	s := mlxtest.Scope(t)
	n := &RMSNorm{Weight: s.Uniform(mlx.Float32, 0.5, 2, s.Key(1), 96), Eps: 1e-5}
	p := &processor{s: s}
	p.norm(n, nil)
	for _, a := range p.made {
		s.Adopt(a)
	}
	for _, size := range []float64{0, 1e-4, 1, 1e4} {
		x := s.Multiply(s.Uniform(mlx.Float32, -1, 1, s.Key(2), 1, 96), s.Scalar(size, mlx.Float32))
		got, err := mlx.Values[float32](s, n.row(s, x))
		if err != nil {
			t.Fatal(err)
		}
		want, err := mlx.Values[float32](s, s.RMSNorm(x, n.Weight, n.Eps))
		if err != nil {
			t.Fatal(err)
		}
		if text := mlxtest.Differ(got, want, mlxtest.Tolerance{Abs: 1e-6, Rel: 1e-5}); text != "" || math.IsNaN(float64(got[0])) {
			t.Errorf("features up to %g: %s", size, text)
		}
	}
}

// What is multiplied across is what is multiplied along, of any shape.
func TestAcrossIsTimes(t *testing.T) {
	s := mlxtest.Scope(t)
	w := s.Normal(mlx.Float32, 0, 1, nil, 24, 16)
	m := Plain(w, s.Transpose(w))
	for _, shape := range [][]int{{9, 16}, {1, 8, 16}, {2, 5, 16}} {
		x := s.Normal(mlx.Float32, 0, 1, nil, shape...)
		want := s.Matmul(x, m.turned)
		values, err := mlx.Values[float32](s, want)
		if err != nil {
			t.Fatal(err)
		}
		mlxtest.Close(t, s, m.across(s, x), want.Shape(), values, mlxtest.Tolerance{Abs: 1e-5})
	}
}

// A matrix in parts gives to the bit what it gives whole, plain and packed, for a
// row and for many; a part may have fewer rows.
func TestDividedIsWhole(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	s := mlxtest.Scope(t)
	keep := func(a *mlx.Array) *mlx.Array { return a }
	const rows, columns = 1000, 256
	w := s.Normal(mlx.Float32, 0, 1, s.Key(1), rows, columns)
	how := quant.Params{Mode: quant.Affine, Bits: 4, Group: 64}
	for name, m := range map[string]Matrix{
		"plain":  Plain(w, s.Transpose(w)),
		"packed": Packed(s.Quantize(w, how), how),
	} {
		parts := m.Divided(s, rows, columns, keep)
		want := 3
		if name == "plain" && !mlx.ReferenceBLAS() {
			want = 0 // its BLAS has threads
		}
		if len(parts.parts) != want {
			t.Fatalf("%s is in %d parts, want %d", name, len(parts.parts), want)
		}
		for _, shape := range [][]int{{1, columns}, {1, 1, columns}, {2, 9, columns}} {
			x := s.Normal(mlx.Float32, 0, 1, s.Key(2), shape...)
			whole, err := mlx.Values[float32](s, m.times(s, x))
			if err != nil {
				t.Fatal(err)
			}
			mlxtest.Close(t, s, parts.times(s, x), append(shape[:len(shape)-1], rows), whole, mlxtest.Tolerance{})
		}
	}
}

// Experts that are taken in parts give what they give together, to the bit, for a
// token and for so many that choices are sorted.
func TestExpertsInParts(t *testing.T) {
	s := mlxtest.Scope(t)
	const experts, features = 8, 256
	router := s.Normal(mlx.Float32, 0, 1, s.Key(1), experts, features)
	matrices := s.Normal(mlx.Float32, 0, 0.1, s.Key(2), experts, features, features)
	how := quant.Params{Mode: quant.Affine, Bits: 8, Group: 64}
	for name, bank := range map[string]Bank{"plain": PlainBank(matrices), "packed": PackedBank(s.Quantize(matrices, how), how)} {
		e := &Experts{
			Router: &Linear{Weight: Plain(router, s.Transpose(router))}, Count: experts, Take: 7,
			Gate: bank, Up: bank, Down: bank.WithBias(s.Normal(mlx.Float32, 0, 1, s.Key(3), experts, features)), Gated: GatedBy(SiLU),
		}
		for _, shape := range [][]int{{1, 1, features}, {2, 20, features}} {
			x := s.Normal(mlx.Float32, 0, 1, s.Key(4), shape...)
			on := func(cores int) *mlx.Array {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				return e.Forward(s, x)
			}
			whole, err := mlx.Values[float32](s, on(1))
			if err != nil {
				t.Fatal(err)
			}
			mlxtest.Close(t, s, on(3), shape, whole, mlxtest.Tolerance{})
		}
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
			if n := bank.parts(s, 7, 7); n != 1 && name == "plain" && !mlx.ReferenceBLAS() || n == 1 && (name == "packed" || mlx.ReferenceBLAS()) {
				t.Errorf("%s: a token's choices are in %d parts", name, n)
			}
		}()
	}
}

// Heads that are computed in parts give what they give together, to the bit: for
// many tokens and for one behind them, in every kind of attention.
func TestHeadsInParts(t *testing.T) {
	const tokens, features, queries, keys, size = 50, 64, 6, 3, 64
	for name, set := range map[string]func(*mlx.Scope, *Attention, *cache.Cache) error{
		"plain":  func(*mlx.Scope, *Attention, *cache.Cache) error { return nil },
		"capped": func(_ *mlx.Scope, a *Attention, _ *cache.Cache) error { a.SoftCap = 5; return nil },
		"sinks": func(s *mlx.Scope, a *Attention, _ *cache.Cache) error {
			a.Sinks = s.Normal(mlx.Float32, 0, 1, s.Key(9), queries)
			return nil
		},
		"packed": func(_ *mlx.Scope, _ *Attention, c *cache.Cache) error {
			return c.Pack(quant.Params{Mode: quant.Affine, Bits: 8, Group: 64})
		},
		"batched": func(*mlx.Scope, *Attention, *cache.Cache) error { return nil },
	} {
		s := mlxtest.Scope(t)
		key := uint64(0)
		layer := func(out, in int) *Linear {
			key++
			w := s.Normal(mlx.Float32, 0, 0.2, s.Key(key), out, in)
			return &Linear{Weight: Plain(w, s.Transpose(w))}
		}
		norm := &RMSNorm{Weight: s.Ones(mlx.Float32, features), Eps: 1e-5}
		rope, err := NewRope(s, size, RopeParams{Type: "default", Theta: 1e4}, func(a *mlx.Array) *mlx.Array { return a })
		if err != nil {
			t.Fatal(err)
		}
		a := &Attention{
			Heads: queries, KVHeads: keys, HeadDim: size, Scale: 0.125, Rope: rope,
			Q: layer(queries*size, features), K: layer(keys*size, features), V: layer(keys*size, features), O: layer(features, queries*size),
		}
		table := &Embedding{Weight: layer(tokens, features).Weight}
		d := &Decoder{
			Embed: table, Norm: norm, Head: &Linear{Weight: table.Weight},
			Blocks: []*Block{{BeforeAttention: norm, BeforeMLP: norm, Attention: a, MLP: &MLP{layer(96, features), layer(96, features), layer(features, 96), SiLU}}},
		}
		for _, made := range d.ForProcessor(s) {
			s.Adopt(made)
		}
		on := func(cores int) []float32 {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			c := d.NewCache()
			defer c.Free()
			if err := set(s, a, c); err != nil {
				t.Fatal(err)
			}
			rows := 1
			if name == "batched" {
				rows = 2
			}
			text := make([]int32, 300*rows)
			for i := range text {
				text[i] = int32(i * 7 % tokens)
			}
			found, err := mlx.Values[float32](s, d.Forward(s, mlx.New(s, text, rows, 300), c))
			if err != nil {
				t.Fatal(err)
			}
			for i := range int32(2) {
				next, err := mlx.Values[float32](s, d.Forward(s, mlx.New(s, []int32{i, i + 1}[:rows], rows, 1), c))
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, next...)
			}
			return found
		}
		if text := mlxtest.Differ(on(3), on(1), mlxtest.Tolerance{}); text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}
