package cache_test

import (
	"errors"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlxrunner/cache"
)

// numbered gives keys [1, 1, n, 1] that hold their positions from first on.
func numbered(s *mlx.Scope, first, n int) *mlx.Array {
	return s.Reshape(s.Arange(mlx.Float32, float64(first), float64(first+n), 1), 1, 1, n, 1)
}

// feed adds n tokens and gives the positions that they see.
func feed(t *testing.T, s *mlx.Scope, c *cache.Cache, n int) []float32 {
	t.Helper()
	sub := s.Sub()
	k := numbered(sub, c.Offset(), n)
	keys, values := c.Layers[0].Update(sub, k, sub.Negative(k))
	got, err := mlx.Floats(sub, keys)
	if err != nil {
		t.Fatal(err)
	}
	turned, err := mlx.Floats(sub, sub.Negative(values))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, turned) {
		t.Errorf("keys %v, values %v", got, turned)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

func wantRange(t *testing.T, got []float32, from, to int) {
	t.Helper()
	if len(got) != to-from || got[0] != float32(from) || got[len(got)-1] != float32(to-1) || !slices.IsSorted(got) {
		t.Errorf("sees %d positions, %v to %v; want %d to %d", len(got), got[0], got[len(got)-1], from, to-1)
	}
}

// Buffers grow by 256 tokens, and only then.
func TestGrowth(t *testing.T) {
	s := mlxtest.Scope(t)
	c := cache.New(0)
	defer c.Free()
	for _, step := range []struct{ n, capacity int }{{1, 256}, {255, 256}, {1, 512}, {600, 1024}, {7, 1024}} {
		wantRange(t, feed(t, s, c, step.n), 0, c.Offset())
		if got := c.Arrays()[0].Dim(2); got != step.capacity {
			t.Errorf("after %d tokens the capacity is %d, want %d", c.Offset(), got, step.capacity)
		}
	}
	if c.Bytes() != 2*1024*4 {
		t.Errorf("%d bytes", c.Bytes())
	}
}

// A window shows what its queries see and holds little more, however the
// tokens come.
func TestWindow(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, chunk := range []int{1, 7, 8, 9, 24, 300} {
		c := cache.New(8)
		for c.Offset() < 1200 {
			before := c.Offset()
			wantRange(t, feed(t, s, c, chunk), max(0, before-7), before+chunk)
		}
		if got := c.Arrays()[0].Dim(2); got > 2*cache.Step+512 {
			t.Errorf("chunks of %d: the buffer has %d tokens", chunk, got)
		}
		c.Free()
	}
}

// Tokens are taken back as long as what is seen then is still there.
func TestRollback(t *testing.T) {
	s := mlxtest.Scope(t)
	c := cache.New(0)
	defer c.Free()
	feed(t, s, c, 300)
	if err := c.Trim(200); err != nil {
		t.Fatal(err)
	}
	wantRange(t, feed(t, s, c, 2), 0, 102)
	if err := c.Trim(103); err == nil {
		t.Error("more tokens were taken back than there are")
	}

	w := cache.New(8)
	defer w.Free()
	for range 300 {
		feed(t, s, w, 1)
	}
	if err := w.Trim(3); err != nil {
		t.Fatal(err)
	}
	wantRange(t, feed(t, s, w, 2), 290, 299)
	var gone *cache.RollbackError
	if err := w.Trim(200); !errors.As(err, &gone) || gone.Window != 8 || w.Offset() != 299 {
		t.Errorf("%v at %d", err, w.Offset())
	}
}

// No layer is taken back where one can't be.
func TestRollbackOfAllOrNone(t *testing.T) {
	s := mlxtest.Scope(t)
	c := cache.New(0, 8)
	defer c.Free()
	for range 600 {
		for _, layer := range c.Layers {
			sub := s.Sub()
			k := numbered(sub, 0, 1)
			layer.Update(sub, k, k)
			if err := sub.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Eval(c.Arrays()...); err != nil {
		t.Fatal(err)
	}
	if err := c.Trim(500); err == nil || c.Layers[0].Offset() != 600 || c.Layers[1].Offset() != 600 {
		t.Errorf("%v at %d and %d", err, c.Layers[0].Offset(), c.Layers[1].Offset())
	}
	if err := c.Trim(1); err != nil || c.Layers[0].Offset() != 599 || c.Layers[1].Offset() != 599 {
		t.Errorf("%v at %d and %d", err, c.Layers[0].Offset(), c.Layers[1].Offset())
	}
}

// A layer that is freed starts anew.
func TestFree(t *testing.T) {
	s := mlxtest.Scope(t)
	c := cache.New(8)
	feed(t, s, c, 20)
	c.Free()
	if c.Offset() != 0 || c.Bytes() != 0 {
		t.Errorf("offset %d, %d bytes", c.Offset(), c.Bytes())
	}
	wantRange(t, feed(t, s, c, 3), 0, 3)
	c.Free()
}
