package mlx_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlx/mlxtest"
)

// What is filled is computed with as any array, and only if it is wanted.
func TestFill(t *testing.T) {
	s := mlxtest.Scope(t)
	var asked []string
	var done atomic.Int32
	tensors := []safetensors.Tensor{
		{Name: "halves", DType: safetensors.F16, Shape: []int64{3}},
		{Name: "floats", DType: safetensors.F32, Shape: []int64{2, 2}, Offset: 77},
		{Name: "nothing", DType: safetensors.F32, Shape: []int64{0, 5}},
		{Name: "scalar", DType: safetensors.I32},
	}
	sub := mlx.NewScope(s.Stream())
	arrays := sub.Fill(tensors, func(tensor safetensors.Tensor, to []byte) error {
		asked = append(asked, tensor.Name)
		if tensor.Name == "floats" && (tensor.Offset != 77 || len(to) != 16) {
			t.Errorf("%+v has %d bytes", tensor, len(to))
		}
		for i := 0; i < len(to); i += 4 {
			binary.NativeEndian.PutUint32(to[i:], math.Float32bits(float32(i)))
		}
		return nil
	}, func() { done.Add(1) })
	if len(arrays) != 4 || len(asked) != 0 {
		t.Fatalf("%d arrays, asked for %v: %v", len(arrays), asked, sub.Err())
	}
	mlxtest.Close(t, sub, sub.Transpose(arrays["floats"]), []int{2, 2}, []float32{0, 8, 4, 12}, mlxtest.Tolerance{})
	if got, err := mlx.Values[float32](sub, arrays["nothing"]); err != nil || len(got) != 0 {
		t.Errorf("nothing is %v, %v", got, err)
	}
	if !slices.Equal(asked, []string{"floats"}) {
		t.Errorf("%v were asked for", asked)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	for range 200 { // a thread of MLX's lets go of it last
		if done.Load() == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("done %d times", done.Load())
}

// A fault of filling is that of the evaluation, and of every one after.
func TestAFaultOfFillingIsAnError(t *testing.T) {
	parent := mlxtest.Scope(t)
	s := mlx.NewScope(parent.Stream())
	arrays := s.Fill([]safetensors.Tensor{{Name: "a", DType: safetensors.F32, Shape: []int64{4}}},
		func(safetensors.Tensor, []byte) error { return errMine }, nil)
	sub := s.Sub()
	_, err := mlx.Values[float32](sub, sub.Negative(arrays["a"]))
	if !errors.Is(err, errMine) || !errors.Is(sub.Close(), errMine) || !errors.Is(s.Close(), errMine) {
		t.Errorf("error %v, want the filler's own", err)
	}
	for name, tensors := range map[string][]safetensors.Tensor{
		"a type that MLX doesn't load": {{Name: "a", DType: safetensors.F64, Shape: []int64{4}}},
		"a name twice":                 {{Name: "a", DType: safetensors.F32}, {Name: "a", DType: safetensors.F32}},
	} {
		s, done := mlx.NewScope(parent.Stream()), 0
		if s.Fill(tensors, nil, func() { done++ }); s.Close() == nil || done != 1 {
			t.Errorf("%s is no error, or done %d times", name, done)
		}
	}
}

// The header is held against the file when it is opened; what is lost after
// that shows when it is read.
func TestAFileCutShortLaterIsAnError(t *testing.T) {
	parent := mlxtest.Scope(t)
	path := filepath.Join(t.TempDir(), "cut.safetensors")
	if err := parent.SaveSafetensors(path, mlx.Checkpoint{Arrays: map[string]*mlx.Array{"a": parent.Ones(mlx.Float32, 1000)}}); err != nil {
		t.Fatal(err)
	}
	s := mlx.NewScope(parent.Stream())
	defer s.Close()
	file, err := s.LoadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 3000); err != nil {
		t.Fatal(err)
	}
	mlxtest.Fails(t, s.Eval(file.Arrays["a"]), "reading "+path, `tensor "a"`, "EOF")
}

// Without a GPU memory that is handed over is used where it lies, and counted.
func TestMappedMemoryIsUsedInPlace(t *testing.T) {
	s := mlxtest.Scope(t)
	if gpu, err := (mlx.Device{Kind: mlx.KindGPU}).Available(); err != nil || gpu {
		t.Skip("the library has a GPU's memory", err)
	}
	if !s.Maps() {
		t.Fatal("the library copies what it is given")
	}
	data := outside(t, []float32{0, 0, 1, 2, 3, 4}) // two words before what is used
	sub := mlx.NewScope(s.Stream())
	defer sub.Close()
	before := memory(t).Active
	a := sub.Mapped(data[8:], mlx.Float32, []int{2, 2}, nil)
	if err := sub.Eval(a); err != nil {
		t.Fatal(err)
	}
	if grown := memory(t).Active - before; grown != 16 {
		t.Errorf("16 mapped bytes are counted as %d", grown)
	}
	*(*float32)(unsafe.Pointer(&data[8])) = 10
	mlxtest.Close(t, sub, a, []int{2, 2}, []float32{10, 2, 3, 4}, mlxtest.Tolerance{})
	a.Free()
	if left := memory(t).Active - before; left >= 16 {
		t.Errorf("%d bytes are still counted", left)
	}
}

// What is refused is given back as well, and not counted.
func TestMappedMemoryThatIsRefusedIsReleased(t *testing.T) {
	parent := mlxtest.Scope(t)
	data := outside(t, []float32{1, 2})
	before := memory(t).Active
	released := 0
	s := mlx.NewScope(parent.Stream())
	s.Mapped(data, mlx.Float32, []int{3}, func() { released++ }) // too few bytes
	s.Mapped(data, mlx.Float32, []int{2}, func() { released++ }) // after an error
	mlxtest.Fails(t, s.Close(), "8 bytes don't fill float32[3]")
	s.Mapped(data, mlx.Float32, []int{2}, func() { released++ }) // closed
	if now := memory(t).Active; released != 3 || now != before {
		t.Errorf("released %d of 3, %d bytes are counted", released, now-before)
	}
}
