package cache_test

import (
	"errors"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
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

// A window that dropped what a rollback needs has it where it was told to hold
// it, wherever the rollback falls.
func TestHold(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, c := range []struct {
		hold int
		ok   bool
	}{{0, false}, {5, true}} {
		w := cache.New(8)
		w.Hold(c.hold)
		refused := 0
		for w.Offset() < 900 {
			before := w.Offset()
			for range 6 { // one by one, as a draft model does
				feed(t, s, w, 1)
			}
			if err := w.Trim(5); err != nil {
				refused++
				continue
			}
			wantRange(t, feed(t, s, w, 1), max(0, before-6), before+2)
		}
		if (refused == 0) != c.ok {
			t.Errorf("holding %d: %d rollbacks refused", c.hold, refused)
		}
		w.Free()
	}
}

// A fork goes on on its own, from an earlier place if need be.
func TestFork(t *testing.T) {
	s := mlxtest.Scope(t)
	c := cache.New(0)
	defer c.Free()
	feed(t, s, c, 600)
	f, err := c.Fork(s, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Free()
	other := s.Full(mlx.Float32, -1, 1, 1, 3, 1)
	keys, _ := f.Layers[0].Update(s, other, other)
	got, err := mlx.Floats(s, keys)
	if err != nil {
		t.Fatal(err)
	}
	wantRange(t, got[:100], 0, 100)
	if !slices.Equal(got[100:], []float32{-1, -1, -1}) {
		t.Errorf("%v", got[100:])
	}
	if n := f.Arrays()[0].Dim(2); n != 256 {
		t.Errorf("the fork of 100 tokens has room for %d", n)
	}
	wantRange(t, feed(t, s, c, 1), 0, 601)
	if _, err := c.Fork(s, 602); err == nil {
		t.Error("a fork of more than there is")
	}

	w := cache.New(8)
	defer w.Free()
	for range 400 {
		feed(t, s, w, 1)
	}
	var gone *cache.RollbackError
	if _, err := w.Fork(s, 100); !errors.As(err, &gone) {
		t.Errorf("a window forked from what it dropped: %v", err)
	}
	late, err := w.Fork(s, 398)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Free()
	wantRange(t, feed(t, s, late, 2), 391, 400)
}

// Packed tokens are what MLX makes of them, and are taken back like others.
func TestPacked(t *testing.T) {
	s := mlxtest.Scope(t)
	how := quant.Params{Mode: quant.Affine, Bits: 8, Group: 32}
	c := cache.New(40)
	defer c.Free()
	if err := c.Pack(how); err != nil {
		t.Fatal(err)
	}
	all := s.Normal(mlx.Float32, 0, 1, s.Key(1), 1, 2, 700, 64)
	want := s.Dequantize(s.Quantize(all, how), how, mlx.Float32)
	add := func(from, to int) *mlx.Array {
		part := s.SliceAxis(all, 2, from, to)
		keys, values := c.Layers[0].UpdatePacked(s, part, s.Negative(part))
		mlxtest.Close(t, s, s.Add(s.Dequantize(keys, how, mlx.Float32), s.Dequantize(values, how, mlx.Float32)),
			[]int{1, 2, keys.Weights.Dim(2), 64}, make([]float32, 2*keys.Weights.Dim(2)*64), mlxtest.Tolerance{Abs: 0.02})
		return s.Dequantize(keys, how, mlx.Float32)
	}
	same := func(got *mlx.Array, from, to int) {
		t.Helper()
		values, err := mlx.Floats(s, s.SliceAxis(want, 2, from, to))
		if err != nil {
			t.Fatal(err)
		}
		mlxtest.Close(t, s, got, []int{1, 2, to - from, 64}, values, mlxtest.Tolerance{})
	}
	same(add(0, 300), 0, 300)
	same(add(300, 650), 261, 650)
	if err := c.Trim(200); err != nil {
		t.Fatal(err)
	}
	same(add(450, 452), 411, 452)
	before := c.Bytes()
	more, _ := c.Growth(600)
	if err := c.Grow(s, 600); err != nil || more == 0 || c.Bytes() != before+more {
		t.Errorf("%d bytes have grown to %d, told were %d more: %v", before, c.Bytes(), more, err)
	}
	same(add(452, 460), 413, 460)
	if plain := 2 * int64(c.Arrays()[0].Dim(2)) * 2 * 64 * 4; c.Bytes()*100 > plain*32 {
		t.Errorf("%d bytes packed, %d plain", c.Bytes(), plain)
	}
	if err := c.Pack(how); err == nil {
		t.Error("a cache with tokens was packed")
	}
	for _, bad := range []quant.Params{{Mode: quant.MXFP4, Bits: 4, Group: 32}, {Mode: quant.Affine, Bits: 7, Group: 32}} {
		if err := cache.New(0).Pack(bad); err == nil {
			t.Errorf("packed as %v", bad)
		}
	}
	// An architecture that does not look whether keys are packed gets no wrong ones.
	bad := mlx.NewScope(s.Stream())
	if keys, _ := c.Layers[0].Update(bad, all, all); keys != nil {
		t.Error("plain keys from a packed cache")
	}
	mlxtest.Fails(t, bad.Close(), "does not know packed keys")
}

// What a cache will need is what it then has, but for the layer that grows.
func TestNeeds(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, chunk := range []int{1, 100} {
		c := cache.New(0, 0, 8)
		c.Hold(3)
		needs := func() int64 { all, largest := c.Needs(1500, chunk); return all + largest }
		need := int64(0)
		for c.Offset() < 1500 {
			sub := s.Sub()
			for _, l := range c.Layers {
				k := numbered(sub, c.Layers[2].Offset(), chunk)
				l.Update(sub, k, k)
			}
			if err := sub.Close(); err != nil {
				t.Fatal(err)
			}
			if need == 0 {
				need = needs() // nothing was computed yet
			}
			if err := s.Eval(c.Arrays()...); err != nil {
				t.Fatal(err)
			}
		}
		const largest = 1536 * 2 * 4 // keys and values of a layer that sees everything
		if need < c.Bytes()+largest || need > c.Bytes()+largest+cache.Step*2*4 {
			t.Errorf("chunks of %d: %d bytes were told, %d are there", chunk, need, c.Bytes())
		}
		c.Free()
		if now := needs(); now != need {
			t.Errorf("freed, it needs %d and not %d", now, need)
		}
	}
}

// Where positions mean another thing in long texts, what a short one remembers
// is no beginning of a long one.
func TestContinues(t *testing.T) {
	s := mlxtest.Scope(t)
	c := cache.New(0)
	defer c.Free()
	c.Turn = 16
	for _, step := range []struct {
		expected, next int
		want           bool
	}{{10, 16, true}, {10, 17, false}, {20, 17, true}, {20, 16, false}} {
		c.Free()
		if !c.Continues(100) {
			t.Error("an empty cache continues nothing")
		}
		c.Expect(step.expected)
		feed(t, s, c, 8)
		if got := c.Continues(step.next); got != step.want {
			t.Errorf("%d tokens known, then a text of %d: %v", step.expected, step.next, got)
		}
	}
}

// Joined caches take one token a row, and are as they would be alone; a view
// takes nothing itself.
func TestJoin(t *testing.T) {
	s := mlxtest.Scope(t)
	a, b := cache.New(0, 8), cache.New(0, 8)
	defer a.Free()
	defer b.Free()
	if cache.Join(a) != a {
		t.Error("one cache is joined to another")
	}
	both := cache.Join(a, b)
	if rows := both.Layers[1].Rows(); len(rows) != 2 || rows[0] != a.Layers[1] || rows[1] != b.Layers[1] || both.Layers[1].Window() != 8 {
		t.Errorf("rows %v", rows)
	}
	if a.Layers[0].Rows() != nil {
		t.Error("a cache of its own has rows")
	}
	for what, use := range map[string]func(s *mlx.Scope){
		"joined caches take one": func(s *mlx.Scope) { both.Layers[0].Mask(s, 2) },
		"does not know joined caches": func(s *mlx.Scope) {
			x := s.Zeros(mlx.Float32, 1, 1, 1, 1)
			both.Layers[0].Update(s, x, x)
		},
	} {
		sub := mlx.NewScope(s.Stream())
		use(sub)
		mlxtest.Fails(t, sub.Close(), what)
	}
}

// Room made beforehand takes what was told, with one half of a layer there
// twice at the most; it changes nothing of what is held, and what is added then
// moves nothing.
func TestGrow(t *testing.T) {
	s := mlxtest.Scope(t)
	first := cache.New(0, 300, 0, 0)
	defer first.Free()
	wide := func(s *mlx.Scope, from, n int) *mlx.Array {
		return s.BroadcastTo(numbered(s, from, n), 1, 4, n, 64)
	}
	add := func(c *cache.Cache, n int) {
		t.Helper()
		at := c.Offset()
		sub := s.Sub()
		for _, l := range c.Layers {
			keys, _ := l.Update(sub, wide(sub, at, n), wide(sub, at, n))
			got, err := mlx.Floats(sub, sub.SliceAxis(sub.SliceAxis(keys, 1, 3, 4), 3, 63, 64))
			if err != nil {
				t.Fatal(err)
			}
			seen := at + n
			if l.Window() > 0 {
				seen = min(seen, l.Window()-1+n)
			}
			wantRange(t, got, at+n-seen, at+n)
		}
		if err := errors.Join(sub.Close(), s.Eval(c.Arrays()...)); err != nil {
			t.Fatal(err)
		}
	}
	add(first, 1)
	grow := func(c *cache.Cache, n int) {
		t.Helper()
		if err := errors.Join(mlx.ClearCache(), mlx.ResetPeak()); err != nil {
			t.Fatal(err)
		}
		before, err := mlx.MemoryInUse()
		more, beside := c.Growth(n)
		if err := errors.Join(err, c.Grow(s, n)); err != nil {
			t.Fatal(err)
		}
		after, err := mlx.MemoryInUse()
		if err != nil {
			t.Fatal(err)
		}
		const odds = 1 << 12 // zeros and the like
		if after.Active-before.Active > more || after.Peak-before.Active > more+beside+odds || after.Cache > 0 {
			t.Errorf("%d tokens and %d more: grew by %d and %d meanwhile, told were %d and %d; %d in the pool",
				c.Offset(), n, after.Active-before.Active, after.Peak-before.Active, more, more+beside, after.Cache)
		}
		if more, beside := c.Growth(n); more+beside != 0 {
			t.Errorf("grown, it grows by %d and %d", more, beside)
		}
		size := c.Bytes()
		add(c, n)
		if c.Bytes() != size || c.Shares() {
			t.Errorf("%d bytes were %d when it had grown", c.Bytes(), size)
		}
	}
	c := first.Fresh()
	defer c.Free()
	for _, n := range []int{1, 255, 1, 600, 7, 300, 300, 1} {
		grow(c, n)
	}
	f, err := c.Fork(s, c.Offset()-2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Free()
	if !f.Shares() || f.Bytes() != 0 {
		t.Errorf("a fork has %d bytes of its own", f.Bytes())
	}
	grow(f, 1)
	grow(c, 1)
}
