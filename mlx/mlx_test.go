package mlx_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
)

func TestAnErrorNamesOperationAndShapes(t *testing.T) {
	s := mlx.NewScope(mlxtest.Scope(t).Stream())
	defer s.Close()
	a := s.Zeros(mlx.Float32, 2, 3)
	b := s.Matmul(a, a)
	if b != nil {
		t.Error("a failed operation gave an array")
	}
	// What follows does nothing, and the first error stays.
	if c := s.Add(b, a); c != nil {
		t.Error("an operation after an error gave an array")
	}
	err := s.Eval(a)
	mlxtest.Fails(t, err, "mlx Matmul of float32[2 3], float32[2 3]: Last dimension of first input with shape (2,3) must match")
	var e *mlx.Error
	if !errors.As(err, &e) || e.Op != "Matmul" || !strings.Contains(e.Where, "ops.cpp:") {
		t.Errorf("error %#v", err)
	}
	// The process and other scopes live on.
	next := mlx.NewScope(s.Stream())
	defer next.Close()
	if v, err := mlx.Item[float32](next, next.Sum(next.Ones(mlx.Float32, 2, 2), false)); err != nil || v != 4 {
		t.Errorf("after an error: %v, %v", v, err)
	}
}

func TestTheErrorHandlerSeesEveryError(t *testing.T) {
	parent := mlxtest.Scope(t)
	var seen []error
	mlx.SetErrorHandler(func(err error) { seen = append(seen, err) })
	defer mlx.SetErrorHandler(nil)
	s := mlx.NewScope(parent.Stream())
	s.Reshape(s.Zeros(mlx.Float32, 4), 3)
	err := s.Close()
	if len(seen) != 1 || !errors.Is(err, seen[0]) {
		t.Errorf("seen %v, returned %v", seen, err)
	}
}

func TestMisuse(t *testing.T) {
	parent := mlxtest.Scope(t)
	stream := parent.Stream()
	for name, c := range map[string]struct {
		do   func(s *mlx.Scope)
		want []string
	}{
		"freed": {func(s *mlx.Scope) {
			a := s.Ones(mlx.Float32, 2)
			a.Free()
			a.Free()
			s.Exp(a)
		}, []string{"mlx Exp: argument 1: the array is nil or was freed"}},
		"nil":      {func(s *mlx.Scope) { s.Add(s.Ones(mlx.Float32, 2), nil) }, []string{"argument 2", "nil"}},
		"closed":   {func(s *mlx.Scope) { _ = s.Close(); s.Ones(mlx.Float32, 2) }, []string{"mlx Ones: the scope is closed"}},
		"elements": {func(s *mlx.Scope) { mlx.New(s, []float32{1, 2, 3}, 2, 2) }, []string{"3 elements don't fill shape [2 2]"}},
		"type": {
			func(s *mlx.Scope) { _, _ = mlx.Values[int32](s, s.Ones(mlx.Float32, 2)) },
			[]string{"mlx Values of float32[2]: elements are asked for as int32"},
		},
		"item":   {func(s *mlx.Scope) { _, _ = mlx.Item[float32](s, s.Ones(mlx.Float32, 2)) }, []string{"2 elements, not one"}},
		"axis":   {func(s *mlx.Scope) { s.SliceAxis(s.Ones(mlx.Float32, 2), 1, 0, 1) }, []string{"there is no axis 1"}},
		"mode":   {func(s *mlx.Scope) { s.Quantize(s.Ones(mlx.Float32, 2, 64), quant.Params{Mode: "int5"}) }, []string{"int5"}},
		"mapped": {func(s *mlx.Scope) { s.Mapped(make([]byte, 7), mlx.Float32, []int{2}, nil) }, []string{"7 bytes don't fill float32[2]"}},
		"no file": {
			func(s *mlx.Scope) { _, _ = s.LoadSafetensors("missing.safetensors") },
			[]string{"mlx LoadSafetensors: ", "missing.safetensors: no such file"},
		},
		// mlx-c, but for its patch, takes a message for a printf format.
		"format":      {func(s *mlx.Scope) { s.Einsum("%n%s%d", s.Ones(mlx.Float32, 2)) }, []string{"but got '%'"}},
		"mode format": {func(s *mlx.Scope) { s.Quantize(s.Ones(mlx.Float32, 2, 64), quant.Params{Mode: "%n%s%d"}) }, []string{"%n%s%d"}},
		"nil closure": {func(s *mlx.Scope) { s.Apply(nil) }, []string{"the closure is nil"}},
	} {
		s := mlx.NewScope(stream)
		c.do(s)
		err := s.Close()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, text := range c.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %q lacks %q", name, err, text)
			}
		}
	}
}

func TestEvaluatingOnAnotherThreadIsAnError(t *testing.T) {
	s := mlx.NewScope(mlxtest.Scope(t).Stream())
	defer s.Close()
	a := s.Exp(s.Ones(mlx.Float32, 2))
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- s.Eval(a)
	}()
	if err := <-done; !errors.Is(err, mlx.ErrThread) {
		t.Errorf("error %v, want ErrThread", err)
	}
}

// What runs beside gives what it gives in line, waits for what it needs of the
// other streams and is waited for, and leaves the scope on its own stream.
func TestBeside(t *testing.T) {
	s := mlxtest.Scope(t)
	own := s.Stream()
	x := mlx.New(s, []float32{1, 2, 3}, 3)
	var squares, sums *mlx.Array
	s.Beside(1, func() {
		if s.Stream() == own {
			t.Error("it runs on the scope's own stream")
		}
		squares = s.Multiply(x, x)
		s.Beside(1, func() { sums = s.Add(squares, x) })
	})
	if s.Stream() != own {
		t.Error("the scope stayed on the stream beside")
	}
	mlxtest.Close(t, s, s.Subtract(sums, squares), []int{3}, []float32{1, 2, 3}, mlxtest.Tolerance{})

	func() {
		defer func() { _ = recover() }()
		s.Beside(1, func() { panic("inside") })
	}()
	if s.Stream() != own {
		t.Error("a panic left the scope on the stream beside")
	}
	broken := mlx.NewScope(own)
	broken.Fail(errors.New("an error before"))
	broken.Beside(1, func() { t.Error("it runs after an error") })
}

func TestScopes(t *testing.T) {
	s := mlxtest.Scope(t)
	var kept, moved *mlx.Array
	sub := s.Sub()
	gone := sub.Ones(mlx.Float32, 2)
	kept = sub.Keep(sub.Exp(gone))
	moved = s.Adopt(sub.Negative(gone))
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if gone.Valid() || !kept.Valid() || !moved.Valid() {
		t.Error("the scope freed what was kept, or kept what it owned")
	}
	if err := s.Eval(kept, moved); err != nil {
		t.Fatal(err)
	}
	kept.Free()
}

// What lies between is freed before it is computed, so its memory is reused:
// the peak of a chain is that of two links, not of all.
func TestEvalOnlyReusesMemory(t *testing.T) {
	parent := mlxtest.Scope(t)
	peak := func(eval func(*mlx.Scope, ...*mlx.Array) error) int64 {
		s := parent.Sub()
		defer s.Close()
		if err := errors.Join(mlx.ClearCache(), mlx.ResetPeak()); err != nil {
			t.Fatal(err)
		}
		before := memory(t).Active
		x := s.Ones(mlx.Float32, 1<<20)
		for range 8 {
			x = s.Exp(s.Negative(x))
		}
		if err := eval(s, x); err != nil {
			t.Fatal(err)
		}
		return memory(t).Peak - before
	}
	all, only := peak((*mlx.Scope).Eval), peak((*mlx.Scope).EvalOnly)
	if only > 9<<20 || all < 60<<20 {
		t.Errorf("peak %d bytes, and %d where everything is held", only, all)
	}
}

func TestElements(t *testing.T) {
	s := mlxtest.Scope(t)
	both(t, s, []bool{true, false})
	both(t, s, []uint8{0, 255})
	both(t, s, []uint16{1, 65535})
	both(t, s, []uint32{1, math.MaxUint32})
	both(t, s, []uint64{1, math.MaxUint64})
	both(t, s, []int8{-128, 127})
	both(t, s, []int16{-32768, 1})
	both(t, s, []int32{-1, math.MaxInt32})
	both(t, s, []int64{math.MinInt64, 1})
	both(t, s, []mlx.F16{mlx.F16Of(1.5), mlx.F16Of(-2)})
	both(t, s, []mlx.BF16{mlx.BF16Of(1.5), mlx.BF16Of(-2)})
	both(t, s, []float32{1.5, -2})
	both(t, s, []float64{1.5, math.Pi})
	both(t, s, []complex64{1 + 2i, -3i})
	if empty, err := mlx.Values[float32](s, s.Zeros(mlx.Float32, 0, 3)); err != nil || len(empty) != 0 {
		t.Errorf("no elements: %v, %v", empty, err)
	}
	turned, err := mlx.Values[int32](s, s.Transpose(mlx.New(s, []int32{1, 2, 3, 4}, 2, 2)))
	if err != nil || turned[1] != 3 {
		t.Errorf("a transposed array is read as %v, %v", turned, err)
	}
}

func both[T mlx.Element](t *testing.T, s *mlx.Scope, want []T) {
	t.Helper()
	got, err := mlx.Values[T](s, s.Copy(mlx.New(s, want)))
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%T: %v, %v, want %v", want, got, err, want)
	}
}

// Half floats convert as MLX converts them, for every half and many floats.
func TestHalfFloats(t *testing.T) {
	s := mlxtest.Scope(t)
	halves, brains := make([]mlx.F16, 1<<16), make([]mlx.BF16, 1<<16)
	var singles []float32
	for i := range halves {
		halves[i], brains[i] = mlx.F16(i), mlx.BF16(i)
		singles = append(singles, math.Float32frombits(uint32(i)*65537+uint32(i)>>3))
	}
	wide := func(a *mlx.Array) []float32 {
		v, err := mlx.Values[float32](s, s.AsType(a, mlx.Float32))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i, want := range wide(mlx.New(s, halves)) {
		if got := halves[i].Float32(); got != want && !(got != got && want != want) {
			t.Fatalf("half %#04x is %v, MLX has %v", i, got, want)
		}
	}
	for i, want := range wide(mlx.New(s, brains)) {
		if got := brains[i].Float32(); got != want && !(got != got && want != want) {
			t.Fatalf("bfloat16 %#04x is %v, MLX has %v", i, got, want)
		}
	}
	a := mlx.New(s, singles)
	f, err := mlx.Values[mlx.F16](s, s.AsType(a, mlx.Float16))
	if err != nil {
		t.Fatal(err)
	}
	b, err := mlx.Values[mlx.BF16](s, s.AsType(a, mlx.BFloat16))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range singles {
		if v != v {
			continue // a NaN stays one; its bits are free
		}
		if got := mlx.F16Of(v); got != f[i] {
			t.Fatalf("%v (%#08x) as a half is %#04x, MLX has %#04x", v, math.Float32bits(v), got, f[i])
		}
		if got := mlx.BF16Of(v); got != b[i] {
			t.Fatalf("%v as a bfloat16 is %#04x, MLX has %#04x", v, got, b[i])
		}
	}
}

func TestScalarsKeepTypes(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, d := range []mlx.Dtype{mlx.Bool, mlx.Uint8, mlx.Int8, mlx.Int64, mlx.Float16, mlx.BFloat16, mlx.Float32, mlx.Float64, mlx.Complex64} {
		a := s.Scalar(1, d)
		if a.Dtype() != d || a.Dims() != 0 {
			t.Errorf("a scalar of %v is %v%v", d, a.Dtype(), a.Shape())
		}
		if one, err := mlx.Item[float32](s, s.AsType(a, mlx.Float32)); err != nil || one != 1 {
			t.Errorf("1 as %v is %v, %v", d, one, err)
		}
	}
	if v, err := mlx.Item[int32](s, s.Scalar(-7, mlx.Int32)); err != nil || v != -7 {
		t.Errorf("-7 is %v, %v", v, err)
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	s := mlxtest.Scope(t)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	q := s.Quantize(s.Normal(mlx.Float32, 0, 1, s.Key(1), 8, 64), quant.Params{})
	want := mlx.Checkpoint{
		Arrays:   map[string]*mlx.Array{"a.weight": q.Weights, "a.scales": q.Scales, "b": s.Ones(mlx.BFloat16, 3, 1)},
		Metadata: map[string]string{"format": "mlx", "ключ": "значение"},
	}
	if err := s.SaveSafetensors(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := s.LoadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Arrays) != 3 {
		t.Fatalf("%d arrays, want 3", len(got.Arrays))
	}
	for name, a := range want.Arrays {
		same, err := mlx.Item[bool](s, s.ArrayEqual(got.Arrays[name], a, false))
		if err != nil || !same || got.Arrays[name].Dtype() != a.Dtype() {
			t.Errorf("%s differs (%v)", name, err)
		}
	}
	for k, v := range want.Metadata {
		if got.Metadata[k] != v {
			t.Errorf("metadata %s is %q, want %q", k, got.Metadata[k], v)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".saving-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Loading reads the header; an array is read when it is evaluated.
func TestLoadingIsLazy(t *testing.T) {
	s := mlxtest.Scope(t)
	path := filepath.Join(t.TempDir(), "big.safetensors")
	const side = 2048 // 16 MiB an array
	if err := s.SaveSafetensors(path, mlx.Checkpoint{Arrays: map[string]*mlx.Array{
		"a": s.Ones(mlx.Float32, side, side), "b": s.Ones(mlx.Float32, side, side), "c": s.Ones(mlx.Float32, side, side),
	}}); err != nil {
		t.Fatal(err)
	}
	sub := mlx.NewScope(s.Stream())
	defer sub.Close()
	before := memory(t)
	file, err := sub.LoadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	if grown := memory(t).Active - before.Active; grown > 1<<20 {
		t.Errorf("loading took %d bytes", grown)
	}
	if err := sub.Eval(file.Arrays["b"]); err != nil {
		t.Fatal(err)
	}
	if grown := memory(t).Active - before.Active; grown < 16<<20 || grown > 17<<20 {
		t.Errorf("one array took %d bytes, want 16 MiB", grown)
	}
}

func TestABrokenFileIsAnError(t *testing.T) {
	parent := mlxtest.Scope(t)
	dir := t.TempDir()
	for name, data := range map[string]string{
		"empty": "", "short": "\x08", "text": "this is no safetensors file at all, only words",
		"header": "\x10\x00\x00\x00\x00\x00\x00\x00{\"a\": no json   ",
	} {
		path := filepath.Join(dir, name+".safetensors")
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		s := mlx.NewScope(parent.Stream())
		_, err := s.LoadSafetensors(path)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v does not name the file", name, err)
		}
		_ = s.Close()
	}
}

// MLX itself would fill in bytes from elsewhere in the file.
func TestAFileCutShortIsAnError(t *testing.T) {
	parent := mlxtest.Scope(t)
	path := filepath.Join(t.TempDir(), "cut.safetensors")
	if err := parent.SaveSafetensors(path, mlx.Checkpoint{Arrays: map[string]*mlx.Array{"a": parent.Ones(mlx.Float32, 1000)}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 3000); err != nil {
		t.Fatal(err)
	}
	s := mlx.NewScope(parent.Stream())
	defer s.Close()
	_, err := s.LoadSafetensors(path)
	mlxtest.Fails(t, err, "mlx LoadSafetensors: reading "+path, `tensor "a" needs 4000 bytes`)
}

func TestMappedMemoryIsReleased(t *testing.T) {
	s := mlxtest.Scope(t)
	data := outside(t, []float32{1, 2, 3, 4, 5, 6})
	var released atomic.Int32
	sub := s.Sub()
	a := sub.Mapped(data, mlx.Float32, []int{2, 3}, func() { released.Add(1) })
	if v, err := mlx.Item[float32](sub, sub.Sum(a, false)); err != nil || v != 21 {
		t.Errorf("sum %v, %v", v, err)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stream().Synchronize(); err != nil {
		t.Fatal(err)
	}
	if released.Load() != 1 {
		t.Errorf("released %d times", released.Load())
	}
}

func TestClosures(t *testing.T) {
	s := mlxtest.Scope(t)
	runs := 0
	f := s.NewClosure(func(s *mlx.Scope, in []*mlx.Array) ([]*mlx.Array, error) {
		runs++
		return []*mlx.Array{s.Multiply(s.Sin(in[0]), in[1]), in[1]}, nil
	})
	defer f.Free()
	fast := s.Compile(f, false)
	defer fast.Free()
	x, y := s.Arange(mlx.Float32, 0, 4, 1), s.Full(mlx.Float32, 2, 4)
	for range 3 {
		out := s.Apply(fast, x, y)
		mlxtest.Close(t, s, out[0], []int{4}, []float32{0, 1.682942, 1.8185948, 0.28224}, mlxtest.Tolerance{Abs: 1e-5})
	}
	if runs != 1 {
		t.Errorf("a compiled closure ran %d times in Go, want 1", runs)
	}
	values, tangents := s.JVP(f, []*mlx.Array{x, y}, []*mlx.Array{s.OnesLike(x), s.ZerosLike(y)})
	if len(values) != 2 || len(tangents) != 2 {
		t.Fatalf("%d values, %d tangents", len(values), len(tangents))
	}
	mlxtest.Close(t, s, tangents[0], []int{4}, []float32{2, 1.0806046, -0.8322937, -1.979985}, mlxtest.Tolerance{Abs: 1e-5})
	again := s.Checkpoint(f)
	defer again.Free()
	_, back := s.VJP(again, []*mlx.Array{x, y}, []*mlx.Array{s.OnesLike(x), s.OnesLike(y)})
	mlxtest.Close(t, s, back[1], []int{4}, []float32{1, 1.841471, 1.9092974, 1.14112}, mlxtest.Tolerance{Abs: 1e-5})
}

func TestCustomVJP(t *testing.T) {
	s := mlxtest.Scope(t)
	f := s.NewClosure(func(s *mlx.Scope, in []*mlx.Array) ([]*mlx.Array, error) {
		return []*mlx.Array{s.Sum(s.Square(in[0]), false)}, nil
	})
	defer f.Free()
	// A gradient that is not the true one shows whose it is.
	custom := s.CustomVJP(f, func(s *mlx.Scope, primals, cotangents, values []*mlx.Array) ([]*mlx.Array, error) {
		return []*mlx.Array{s.Multiply(s.Add(primals[0], values[0]), cotangents[0])}, nil
	})
	defer custom.Free()
	x := mlx.New(s, []float32{1, 2})
	value, grads := s.ValueAndGrad(custom, []int{0}, x)
	mlxtest.Close(t, s, value[0], []int{}, []float32{5}, mlxtest.Tolerance{})
	mlxtest.Close(t, s, grads[0], []int{2}, []float32{6, 7}, mlxtest.Tolerance{})

	broken := s.CustomVJP(f, func(*mlx.Scope, []*mlx.Array, []*mlx.Array, []*mlx.Array) ([]*mlx.Array, error) {
		return nil, errMine
	})
	defer broken.Free()
	sub := mlx.NewScope(s.Stream())
	sub.ValueAndGrad(broken, []int{0}, x)
	if err := sub.Close(); !errors.Is(err, errMine) {
		t.Errorf("error %v, want the function's own", err)
	}
}

func TestVmap(t *testing.T) {
	s := mlxtest.Scope(t)
	f := s.NewClosure(func(s *mlx.Scope, in []*mlx.Array) ([]*mlx.Array, error) {
		if in[0].Dims() != 1 {
			t.Errorf("the function sees %d axes", in[0].Dims())
		}
		return []*mlx.Array{s.Sum(s.Multiply(in[0], in[1]), false)}, nil
	})
	defer f.Free()
	rows := mlx.New(s, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	out := s.Vmap(f, []int{0, -1}, []int{0}, rows, mlx.New(s, []float32{1, 10, 100}))
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	mlxtest.Close(t, s, out[0], []int{2}, []float32{321, 654}, mlxtest.Tolerance{})
}

var errMine = errors.New("mine")

// A failing, a wrong and a panicking function are errors of Apply, and no
// panic reaches C.
func TestAClosuresErrorComesBack(t *testing.T) {
	parent := mlxtest.Scope(t)
	apply := func(f mlx.Func) error {
		s := mlx.NewScope(parent.Stream())
		cl := s.NewClosure(f)
		defer cl.Free()
		s.Apply(cl, s.Ones(mlx.Float32, 2, 3))
		return s.Close()
	}
	err := apply(func(*mlx.Scope, []*mlx.Array) ([]*mlx.Array, error) { return nil, errMine })
	if !errors.Is(err, errMine) {
		t.Errorf("error %v, want the function's own", err)
	}
	err = apply(func(s *mlx.Scope, in []*mlx.Array) ([]*mlx.Array, error) {
		return []*mlx.Array{s.Matmul(in[0], in[0])}, nil
	})
	mlxtest.Fails(t, err, "Matmul of float32[2 3], float32[2 3]")
	err = apply(func(*mlx.Scope, []*mlx.Array) ([]*mlx.Array, error) { panic("oh no") })
	mlxtest.Fails(t, err, "the function panicked: oh no", "mlx_test.go")
	err = apply(func(*mlx.Scope, []*mlx.Array) ([]*mlx.Array, error) { return []*mlx.Array{nil}, nil })
	mlxtest.Fails(t, err, "nil or was freed")
}

func memory(t *testing.T) mlx.Memory {
	t.Helper()
	m, err := mlx.MemoryInUse()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryCounters(t *testing.T) {
	s := mlxtest.Scope(t)
	old, err := mlx.SetCacheLimit(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = mlx.SetCacheLimit(old) }()
	if err := errors.Join(mlx.ClearCache(), mlx.ResetPeak()); err != nil {
		t.Fatal(err)
	}
	before := memory(t)
	sub := s.Sub()
	if err := sub.Eval(sub.Ones(mlx.Float32, 1024, 1024)); err != nil {
		t.Fatal(err)
	}
	if grown := memory(t).Active - before.Active; grown < 4<<20 || grown > 5<<20 {
		t.Errorf("an array of 4 MiB is %d bytes", grown)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	after := memory(t)
	if after.Cache < 4<<20 || after.Active != before.Active || after.Peak < 4<<20 {
		t.Errorf("after freeing: %+v, before: %+v", after, before)
	}
	if err := mlx.ClearCache(); err != nil {
		t.Fatal(err)
	}
	if m := memory(t); m.Cache != 0 {
		t.Errorf("%d bytes are cached after clearing", m.Cache)
	}
	limit, err := mlx.SetMemoryLimit(3 << 30)
	if err != nil {
		t.Fatal(err)
	}
	if m := memory(t); m.Limit != 3<<30 {
		t.Errorf("limit %d", m.Limit)
	}
	if _, err := mlx.SetMemoryLimit(limit); err != nil {
		t.Fatal(err)
	}
}

func TestDevices(t *testing.T) {
	mlxtest.Library(t)
	d, err := mlx.DefaultDevice()
	if err != nil {
		t.Fatal(err)
	}
	ok, err := d.Available()
	if err != nil || !ok {
		t.Errorf("the default device %v: %v, %v", d, ok, err)
	}
	info, err := mlx.CPU.Info()
	if err != nil || len(info) == 0 {
		t.Errorf("the processor: %v, %v", info, err)
	}
	v, err := mlx.Version()
	if err != nil || v != mlx.BoundVersion {
		t.Errorf("version %s, %v", v, err)
	}
}

func TestSeed(t *testing.T) {
	s := mlxtest.Scope(t)
	draw := func() []float32 {
		if err := mlx.Seed(5); err != nil {
			t.Fatal(err)
		}
		v, err := mlx.Values[float32](s, s.Uniform(mlx.Float32, 0, 1, nil, 4))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b := draw(), draw()
	if a[0] != b[0] || a[0] == a[1] {
		t.Errorf("drawn %v and %v", a, b)
	}
}

func TestText(t *testing.T) {
	s := mlxtest.Scope(t)
	text, err := s.Text(s.Arange(mlx.Int32, 0, 3, 1))
	if err != nil || text != "array([0, 1, 2], dtype=int32)" {
		t.Errorf("%q, %v", text, err)
	}
}
