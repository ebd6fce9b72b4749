package mlx_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
)

// What scripts/mlxgoldens wrote: inputs and what MLX's Python package gives.
type goldenFile struct {
	MLX   string
	Cases []goldenCase
}

type goldenCase struct {
	Name     string
	Abs, Rel float64
	In, Out  []goldenArray
}

type goldenArray struct {
	Dtype string
	Shape []int
	Data  []json.Token
}

func (g goldenArray) floats() []float64 {
	out := make([]float64, len(g.Data))
	for i, v := range g.Data {
		switch v := v.(type) {
		case float64:
			out[i] = v
		case string:
			out[i] = map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "-inf": math.Inf(-1)}[v]
		}
	}
	return out
}

func (g goldenArray) array(s *mlx.Scope) *mlx.Array {
	d, ok := mlx.DtypeOf(g.Dtype)
	if !ok {
		s.Fail(fmt.Errorf("unknown type %s", g.Dtype))
	}
	values := g.floats()
	// A float64 holds every input exactly, and the way back to its type is exact.
	a := mlx.New(s, values, g.Shape...)
	if len(g.Shape) == 0 {
		a = s.Reshape(a)
	}
	return s.AsType(a, d)
}

type (
	as  = []*mlx.Array
	ops = func(s *mlx.Scope, in []*mlx.Array) []*mlx.Array
)

func one(f func(s *mlx.Scope, a *mlx.Array) *mlx.Array) ops {
	return func(s *mlx.Scope, in as) as { return as{f(s, in[0])} }
}

func two(f func(s *mlx.Scope, a, b *mlx.Array) *mlx.Array) ops {
	return func(s *mlx.Scope, in as) as { return as{f(s, in[0], in[1])} }
}

func uint32s(s *mlx.Scope, v ...uint32) *mlx.Array { return mlx.New(s, v) }

// The operations by the name of their case.
var golden = map[string]ops{
	"abs": one((*mlx.Scope).Abs), "exp": one((*mlx.Scope).Exp), "expm1": one((*mlx.Scope).Expm1), "negative": one((*mlx.Scope).Negative),
	"sigmoid": one((*mlx.Scope).Sigmoid), "sign": one((*mlx.Scope).Sign), "sin": one((*mlx.Scope).Sin), "cos": one((*mlx.Scope).Cos),
	"sinh": one((*mlx.Scope).Sinh), "cosh": one((*mlx.Scope).Cosh), "tan": one((*mlx.Scope).Tan), "tanh": one((*mlx.Scope).Tanh),
	"square": one((*mlx.Scope).Square), "floor": one((*mlx.Scope).Floor), "ceil": one((*mlx.Scope).Ceil), "erf": one((*mlx.Scope).Erf),
	"isnan": one((*mlx.Scope).IsNaN), "isfinite": one((*mlx.Scope).IsFinite), "reciprocal": one((*mlx.Scope).Reciprocal),
	"stop_gradient": one((*mlx.Scope).StopGradient), "log": one((*mlx.Scope).Log), "log1p": one((*mlx.Scope).Log1p),
	"log2": one((*mlx.Scope).Log2), "log10": one((*mlx.Scope).Log10), "sqrt": one((*mlx.Scope).Sqrt), "rsqrt": one((*mlx.Scope).Rsqrt),
	"erfinv": one((*mlx.Scope).ErfInv), "logical_not": one((*mlx.Scope).LogicalNot),

	"add": two((*mlx.Scope).Add), "subtract": two((*mlx.Scope).Subtract), "multiply": two((*mlx.Scope).Multiply), "divide": two((*mlx.Scope).Divide),
	"maximum": two((*mlx.Scope).Maximum), "minimum": two((*mlx.Scope).Minimum), "equal": two((*mlx.Scope).Equal), "not_equal": two((*mlx.Scope).NotEqual),
	"less": two((*mlx.Scope).Less), "less_equal": two((*mlx.Scope).LessEqual), "greater": two((*mlx.Scope).Greater), "greater_equal": two((*mlx.Scope).GreaterEqual),
	"logaddexp": two((*mlx.Scope).LogAddExp), "add_broadcast": two((*mlx.Scope).Add), "power": two((*mlx.Scope).Power), "remainder": two((*mlx.Scope).Remainder),
	"floor_divide": two((*mlx.Scope).FloorDivide), "logical_and": two((*mlx.Scope).LogicalAnd), "logical_or": two((*mlx.Scope).LogicalOr),
	"bitwise_and": two((*mlx.Scope).BitwiseAnd), "left_shift": two((*mlx.Scope).LeftShift), "right_shift": two((*mlx.Scope).RightShift),
	"infinite": func(s *mlx.Scope, in as) as {
		low, high := float32(-9), float32(9)
		return as{s.IsInf(in[0]), s.NaNToNum(in[0], 5, &low, &high)}
	},

	"sum_axis": reduced((*mlx.Scope).Sum, 1), "sum_all": reduced((*mlx.Scope).Sum),
	"mean_axis": reduced((*mlx.Scope).Mean, 1), "mean_all": reduced((*mlx.Scope).Mean),
	"prod_axis": reduced((*mlx.Scope).Prod, 1), "prod_all": reduced((*mlx.Scope).Prod),
	"max_axis": reduced((*mlx.Scope).Max, 1), "max_all": reduced((*mlx.Scope).Max),
	"min_axis": reduced((*mlx.Scope).Min, 1), "min_all": reduced((*mlx.Scope).Min),
	"logsumexp_axis": reduced((*mlx.Scope).LogSumExp, 1), "logsumexp_all": reduced((*mlx.Scope).LogSumExp),
	"all_any": func(s *mlx.Scope, in as) as { return as{s.All(in[0], false, -1), s.Any(in[0], false, 0)} },
	"var_std": func(s *mlx.Scope, in as) as {
		return as{s.Var(in[0], false, 1, -1), s.Std(in[0], false, 0, 0)}
	},
	"softmax":         func(s *mlx.Scope, in as) as { return as{s.Softmax(in[0], false, -1)} },
	"softmax_precise": func(s *mlx.Scope, in as) as { return as{s.Softmax(in[0], true, -1)} },
	"argmax_argmin": func(s *mlx.Scope, in as) as {
		return as{s.ArgMax(in[0], -1, false), s.ArgMin(in[0], 1, true)}
	},
	"sort_argsort": func(s *mlx.Scope, in as) as { return as{s.Sort(in[0], -1), s.ArgSort(in[0], 1)} },
	"partition": func(s *mlx.Scope, in as) as {
		p, i := s.Partition(in[0], 4, 0), s.ArgPartition(in[0], 4, 0)
		small := s.Take(in[0], s.SliceAxis(i, 0, 0, 4), 0)
		return as{s.Squeeze(s.SliceAxis(p, 0, 4, 5)), s.Sum(s.SliceAxis(p, 0, 0, 4), false), s.Sum(small, false), s.Sort(s.TopK(in[0], 3, 0), 0)}
	},
	"cumsum": func(s *mlx.Scope, in as) as {
		return as{s.CumSum(in[0], 1, mlx.Cumulate{}), s.CumSum(in[0], -1, mlx.Cumulate{Reverse: true, Exclusive: true})}
	},
	"cumprod_cummax": func(s *mlx.Scope, in as) as {
		return as{s.CumProd(in[0], 1, mlx.Cumulate{}), s.CumMax(in[0], -1, mlx.Cumulate{}), s.LogCumSumExp(in[0], -1, mlx.Cumulate{})}
	},

	"reshape": func(s *mlx.Scope, in as) as { return as{s.Reshape(in[0], 4, -1)} },
	"transpose": func(s *mlx.Scope, in as) as {
		return as{s.Transpose(in[0]), s.Transpose(in[0], 1, 0, 2), s.SwapAxes(in[0], 0, 2), s.MoveAxis(in[0], 0, 2)}
	},
	"expand_squeeze": func(s *mlx.Scope, in as) as {
		return as{s.ExpandDims(in[0], 0, 2), s.Squeeze(in[0], 1), s.Squeeze(in[0])}
	},
	"flatten": func(s *mlx.Scope, in as) as { return as{s.Flatten(in[0], 1, 2), s.Unflatten(in[0], 2, 2, 2)} },
	"broadcast_tile_repeat": func(s *mlx.Scope, in as) as {
		return as{s.BroadcastTo(in[0], 2, 3), s.Tile(in[0], 2, 2), s.Repeat(in[0], 2, 1)}
	},
	"concatenate_stack": func(s *mlx.Scope, in as) as { return as{s.Concatenate(1, in...), s.Stack(1, in...)} },
	"split": func(s *mlx.Scope, in as) as {
		return append(s.Split(in[0], 3, 1), s.SplitAt(in[0], []int{1, 4}, 1)...)
	},
	"pad_roll_flip": func(s *mlx.Scope, in as) as {
		return as{s.Pad(in[0], 3, []int{0, 2}, []int{1, 0}), s.Roll(in[0], 1, 1)}
	},
	"slice": func(s *mlx.Scope, in as) as {
		return as{s.Slice(in[0], []int{1, 0}, []int{3, 5}, []int{1, 2}), s.SliceAxis(in[0], -1, 2, 4), s.SliceAxis(in[0], 0, -2, 4)}
	},
	"slice_update": func(s *mlx.Scope, in as) as {
		return as{s.SliceUpdate(in[0], in[1], []int{1, 2}, []int{3, 4}, nil)}
	},
	"slice_dynamic": func(s *mlx.Scope, in as) as {
		part := s.SliceDynamic(in[0], in[1], []int{0, 1}, []int{2, 3})
		return as{part}
	},
	"take":            func(s *mlx.Scope, in as) as { return as{s.Take(in[0], in[1], 0)} },
	"take_along_axis": func(s *mlx.Scope, in as) as { return as{s.TakeAlongAxis(in[0], in[1], 1)} },
	"put_along_axis":  func(s *mlx.Scope, in as) as { return as{s.PutAlongAxis(in[0], in[1], in[2], 1)} },
	"scatter_add": func(s *mlx.Scope, in as) as {
		rows := s.BroadcastTo(s.ExpandDims(in[1], 1), 2, 2)
		return as{s.ScatterAddAxis(in[0], rows, in[2], 0)}
	},
	"where_clip": func(s *mlx.Scope, in as) as {
		return as{s.Where(s.Greater(in[0], in[1]), in[0], in[1]), s.Clip(in[0], s.Like(in[0], -0.5), s.Like(in[0], 0.5))}
	},
	"tril_triu":  func(s *mlx.Scope, in as) as { return as{s.Tril(in[0], 1), s.Triu(in[0], -1)} },
	"round_diag": func(s *mlx.Scope, in as) as { return as{s.Round(in[0], 1), s.Diag(in[0], 1)} },
	"astype": func(s *mlx.Scope, in as) as {
		return as{s.AsType(in[0], mlx.Float16), s.AsType(in[0], mlx.BFloat16), s.AsType(in[0], mlx.Int32), s.AsType(in[0], mlx.Bool)}
	},
	"view": func(s *mlx.Scope, in as) as { return as{s.View(in[0], mlx.Uint16), s.View(in[0], mlx.Int32)} },
	"make": func(s *mlx.Scope, _ as) as {
		return as{
			s.Zeros(mlx.Float32, 2, 2), s.Ones(mlx.Int32, 3), s.Full(mlx.Float32, 1.5, 2), s.Arange(mlx.Float32, 1, 9, 3),
			s.Linspace(mlx.Float32, 0, 1, 5), s.Tri(mlx.Float32, 3, 4, 1), s.Eye(mlx.Float32, 2, 3, 1),
		}
	},

	"matmul": two((*mlx.Scope).Matmul), "matmul_float16": two((*mlx.Scope).Matmul), "matmul_bfloat16": two((*mlx.Scope).Matmul),
	"addmm":     func(s *mlx.Scope, in as) as { return as{s.AddMM(in[0], in[1], in[2], 0.5, 2)} },
	"gather_mm": func(s *mlx.Scope, in as) as { return as{s.GatherMM(in[0], in[1], uint32s(s, 0, 1), in[2], false)} },
	"einsum":    func(s *mlx.Scope, in as) as { return as{s.Einsum("bqd,bkd->bqk", in...)} },
	"conv1d":    func(s *mlx.Scope, in as) as { return as{s.Conv1d(in[0], in[1], 1, 1, 1, 1)} },
	"conv2d": func(s *mlx.Scope, in as) as {
		return as{s.Conv2d(in[0], in[1], [2]int{2, 1}, [2]int{1, 0}, [2]int{1, 2}, 1)}
	},
	"conv_general": func(s *mlx.Scope, in as) as {
		return as{s.ConvGeneral(in[0], in[1], mlx.Conv{
			Stride: []int{2, 1}, PadBefore: []int{1, 0}, PadBehind: []int{0, 1},
			KernelDilation: []int{1, 2}, InputDilation: []int{1, 1}, Groups: 2, Flip: true,
		})}
	},
	"close": func(s *mlx.Scope, in as) as {
		a := in[0]
		return as{s.AllClose(a, s.Add(a, s.Like(a, 1e-9)), 1e-5, 1e-8, false), s.ArrayEqual(a, s.Add(a, s.Like(a, 1)), false)}
	},

	"rms_norm": func(s *mlx.Scope, in as) as {
		return as{s.RMSNorm(in[0], in[1], 1e-5), s.RMSNorm(in[0], nil, 1e-5)}
	},
	"rms_norm_float16": func(s *mlx.Scope, in as) as { return as{s.RMSNorm(in[0], in[1], 1e-5)} },
	"layer_norm": func(s *mlx.Scope, in as) as {
		return as{s.LayerNorm(in[0], in[1], in[2], 1e-5), s.LayerNorm(in[0], nil, nil, 1e-5)}
	},
	"rope": func(s *mlx.Scope, in as) as {
		return as{
			s.RoPE(in[0], mlx.RoPE{Dims: 16, Base: 10000}, 3),
			s.RoPE(in[0], mlx.RoPE{Dims: 8, Traditional: true, Base: 500000, Scale: 0.5}, 0),
		}
	},
	"rope_freqs": func(s *mlx.Scope, in as) as { return as{s.RoPE(in[0], mlx.RoPE{Dims: 16, Freqs: in[1]}, 5)} },
	"rope_at":    func(s *mlx.Scope, in as) as { return as{s.RoPEAt(in[0], mlx.RoPE{Dims: 16, Base: 10000}, in[1])} },
	"attention": func(s *mlx.Scope, in as) as {
		return as{attend(s, in, mlx.Attention{}), attend(s, in, mlx.Attention{Causal: true})}
	},
	"attention_mask": func(s *mlx.Scope, in as) as {
		return as{attend(s, in, mlx.Attention{Mask: in[3]}), attend(s, in, mlx.Attention{Mask: in[4]})}
	},
	"attention_sinks": func(s *mlx.Scope, in as) as { return as{attend(s, in, mlx.Attention{Sinks: in[3]})} },

	"quantize_affine_32_4": quantized(quant.Params{Group: 32, Bits: 4}),
	"quantize_affine_64_8": quantized(quant.Params{Mode: quant.Affine, Group: 64, Bits: 8}),
	"quantize_affine_64_2": quantized(quant.Params{Mode: quant.Affine, Bits: 2}),
	"quantize_affine_32_3": quantized(quant.Params{Mode: quant.Affine, Group: 32, Bits: 3}),
	"quantize_affine_32_6": quantized(quant.Params{Mode: quant.Affine, Group: 32, Bits: 6}),
	"quantize_mxfp4_32_4":  quantized(quant.Params{Mode: quant.MXFP4}),
	"quantize_mxfp8_32_8":  quantized(quant.Params{Mode: quant.MXFP8, Group: 32, Bits: 8}),
	"quantize_nvfp4_16_4":  quantized(quant.Params{Mode: quant.NVFP4}),
	"gather_qmm": func(s *mlx.Scope, in as) as {
		gather := func(q quant.Params) *mlx.Array {
			return s.GatherQMM(in[1], s.Quantize(in[0], q), in[2], in[3], true, q, false)
		}
		return as{gather(quant.Params{}), gather(quant.Params{Mode: quant.MXFP4})}
	},
	"fp8": func(s *mlx.Scope, in as) as {
		return as{s.ToFP8(in[0]), s.FromFP8(s.ToFP8(in[0]), mlx.Float32)}
	},

	"random": func(s *mlx.Scope, _ as) as {
		key := s.Key(42)
		half := s.Scalar(0.5, mlx.Float32)
		return as{
			s.Key(42), s.SplitKey(key, 3), s.Uniform(mlx.Float32, -1, 1, key, 4), s.Normal(mlx.Float32, 0, 1, key, 4),
			s.RandInt(mlx.Int32, 0, 100, key, 5), s.Gumbel(mlx.Float32, key, 3), s.Bernoulli(half, key, 8), s.TruncatedNormal(mlx.Float32, -1, 1, key, 3),
		}
	},
	"categorical":   func(s *mlx.Scope, in as) as { return as{s.Categorical(in[0], -1, s.Key(42))} },
	"cross_entropy": two((*mlx.Scope).CrossEntropy),
	"arcs": func(s *mlx.Scope, in as) as {
		return as{s.ArcSin(in[0]), s.ArcCos(in[0]), s.ArcTan(in[0]), s.ArcTan2(in[0], s.Flip(in[0]))}
	},
	"bits": func(s *mlx.Scope, in as) as {
		return as{s.BitwiseOr(in[0], in[1]), s.BitwiseXor(in[0], in[1]), s.BitwiseInvert(in[0])}
	},
	"products": func(s *mlx.Scope, in as) as {
		return as{s.Inner(in[0], in[1]), s.Outer(in[0], in[1]), s.Kron(in[0], in[1])}
	},
	"flip_like": func(s *mlx.Scope, in as) as {
		return as{s.Flip(in[0], -1), s.Flip(in[0]), s.ZerosLike(in[0]), s.OnesLike(in[0])}
	},
	"gather":  func(s *mlx.Scope, in as) as { return as{s.Gather(in[0], in[1:2], []int{0}, []int{1, 3})} },
	"scatter": func(s *mlx.Scope, in as) as { return as{s.Scatter(in[0], in[1:2], in[2], []int{0})} },
	"slice_update_dynamic": func(s *mlx.Scope, in as) as {
		return as{s.SliceUpdateDynamic(in[0], in[1], in[2], []int{0, 1})}
	},
	"permutation": func(s *mlx.Scope, in as) as { return as{s.Permutation(in[0], 0, s.Key(42))} },
	"qqmm": func(s *mlx.Scope, in as) as {
		pack := func(m quant.Mode) *mlx.Array {
			q := quant.Params{Mode: m}
			w := s.Quantize(in[1], q)
			return s.QQMM(in[0], w.Weights, w.Scales, q)
		}
		return as{pack(quant.MXFP8), pack(quant.NVFP4)}
	},
	"gradient": func(s *mlx.Scope, in as) as {
		f := s.NewClosure(func(s *mlx.Scope, in []*mlx.Array) ([]*mlx.Array, error) {
			return as{s.Sum(s.Multiply(s.Tanh(in[0]), in[0]), false)}, nil
		})
		defer f.Free()
		v, g := s.ValueAndGrad(f, []int{0}, in[0])
		return append(v, g...)
	},
}

func reduced(f func(s *mlx.Scope, a *mlx.Array, keep bool, axes ...int) *mlx.Array, axes ...int) ops {
	return func(s *mlx.Scope, in as) as { return as{f(s, in[0], len(axes) > 0, axes...)} }
}

func attend(s *mlx.Scope, in as, how mlx.Attention) *mlx.Array {
	how.Scale = 0.35
	return s.ScaledDotProductAttention(in[0], in[1], in[2], how)
}

func quantized(q quant.Params) ops {
	return func(s *mlx.Scope, in as) as {
		w := s.Quantize(in[0], q)
		out := as{w.Weights, w.Scales}
		if w.Biases != nil {
			out = append(out, w.Biases)
		}
		return append(out, s.Dequantize(w, q, mlx.Float32), s.QuantizedMatmul(in[1], w, true, q))
	}
}

func readGoldens(t *testing.T) goldenFile {
	t.Helper()
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var file goldenFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGoldensAreOfThePin(t *testing.T) {
	file := readGoldens(t)
	if file.MLX != mlx.BoundVersion {
		t.Errorf("the goldens are of MLX %s and the bindings of %s: run scripts/mlxgoldens", file.MLX, mlx.BoundVersion)
	}
	if len(file.Cases) != len(golden) {
		t.Errorf("%d cases for %d operations", len(file.Cases), len(golden))
	}
}

// One goroutine does it all: the scope lives on its thread.
func TestGoldens(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, g := range readGoldens(t).Cases {
		f, ok := golden[g.Name]
		if !ok {
			t.Errorf("%s: no operation for this case", g.Name)
			continue
		}
		if err := checkGolden(s, f, g); err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
	}
}

func checkGolden(parent *mlx.Scope, f ops, g goldenCase) error {
	s := mlx.NewScope(parent.Stream())
	defer s.Close()
	var in as
	for _, a := range g.In {
		in = append(in, a.array(s))
	}
	out := f(s, in)
	if err := s.Err(); err != nil {
		return err
	}
	if len(out) != len(g.Out) {
		return fmt.Errorf("%d results, want %d", len(out), len(g.Out))
	}
	var errs []error
	for i, want := range g.Out {
		if err := compare(s, out[i], want, mlxtest.Tolerance{Abs: g.Abs, Rel: g.Rel}); err != nil {
			errs = append(errs, fmt.Errorf("result %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func compare(s *mlx.Scope, got *mlx.Array, want goldenArray, tol mlxtest.Tolerance) error {
	if got.Dtype().String() != want.Dtype || !slices.Equal(got.Shape(), want.Shape) {
		return fmt.Errorf("%v%v, want %s%v", got.Dtype(), got.Shape(), want.Dtype, want.Shape)
	}
	if !got.Dtype().Float() { // whole numbers are equal or wrong
		values, err := mlx.Values[float64](s, s.AsType(got, mlx.Float64))
		if err == nil && !slices.Equal(values, want.floats()) {
			err = fmt.Errorf("values %v, want %v", values, want.floats())
		}
		return err
	}
	floats := make([]float32, len(want.Data))
	for i, v := range want.floats() {
		floats[i] = float32(v)
	}
	values, err := mlx.Floats(s, got)
	if err != nil {
		return err
	}
	if text := mlxtest.Differ(values, floats, tol); text != "" {
		return errors.New(text)
	}
	return nil
}
