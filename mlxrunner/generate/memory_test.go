package generate

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/model"
	"payload/mlxrunner/sample"
)

// unpooled lets MLX keep what it likes, so that what piles up is seen.
func unpooled(tb testing.TB) {
	tb.Helper()
	before, err := mlx.SetCacheLimit(1 << 40)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = mlx.SetCacheLimit(before) })
}

// wavering is a model that finds the unlikeliest token likeliest at times.
type wavering struct{ model.Model }

func (m wavering) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	logits := m.Model.Forward(s, tokens, c)
	if c.Offset()%7 == 0 {
		logits = s.Negative(logits)
	}
	return logits
}

// What MLX keeps for reuse stays small over a long generation, however many
// tokens a round has. Where a release waits for a multiple to be hit exactly,
// rounds step over it, and buffers pile up: this test sees that.
func TestMemoryStaysFlat(t *testing.T) {
	s, r := runner(t)
	d := load(t, s)
	d.Model = wavering{d.Model}
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	r.Context, d.Context = 0, 0 // text far past it is senseless, which is no matter here
	unpooled(t)
	prompt := r.encode(t, "The harbour of Senn wakes")
	exact := func(_, after int) bool { return after%ReleaseEvery == 0 }
	for _, c := range []struct {
		name       string
		due        func(before, after int) bool
		by         Request
		boundaries int
		flat       bool
	}{
		{"plain", crosses, Request{}, 11, true},
		{"lookup", crosses, Request{Lookup: 4}, 11, true},
		{"draft", crosses, Request{Draft: 4}, 11, true},
		{"lookup, released at exact multiples", exact, Request{Lookup: 4}, 11, false},
		{"draft, released at exact multiples", exact, Request{Draft: 4}, 5, false},
	} {
		r.due = c.due
		q := c.by
		q.Prompt, q.MaxTokens, q.IgnoreEnd = prompt, c.boundaries*ReleaseEvery+40, true
		pools, footprint := pools(t, s, r, q)
		if len(pools) != c.boundaries {
			t.Fatalf("%s: %d boundaries, want %d", c.name, len(pools), c.boundaries)
		}
		most := slices.Max(pools[1:])
		t.Logf("%s: pool after the boundaries %s KiB, most %d KiB; footprint %+d KiB", c.name, kib(pools), most>>10, footprint>>10)
		// The pool right after a boundary holds what one round freed.
		if flat := most <= poolLimit; flat != c.flat {
			t.Errorf("%s: the pool reached %d KiB after a boundary, limit %d", c.name, most>>10, poolLimit>>10)
		}
		if c.flat && footprint > 32<<20 {
			t.Errorf("%s: the footprint grew by %d KiB", c.name, footprint>>10)
		}
	}
}

// A hundred requests of every kind, one after the other, leave as much behind as
// ten did: nothing in the pool, and as many kept prefixes as are allowed.
func TestMemoryStaysFlatOverRequests(t *testing.T) {
	s, r := runner(t)
	if err := r.UseDraft(rough(t, s)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Forget)
	r.Prefixes = 3
	unpooled(t)
	var first, last mlx.Memory
	var before int64
	for i := range 100 {
		prompt := append([]int{0, 30 + i%40}, r.encode(t, "The harbour of Senn wakes before the sun and the gulls")...)
		q := Request{Prompt: prompt, MaxTokens: 20, IgnoreEnd: true, Lookup: 4 * (i % 3 / 2), Draft: 4 * (i % 3 % 2)}
		if i%7 == 0 {
			q.Sampling = sample.Settings{Temperature: 1, TopP: 0.9, Repetition: 1.1, Frequency: 0.1, Logprobs: 2}
		}
		generate(t, s, r, q)
		m, err := mlx.MemoryInUse()
		if err != nil {
			t.Fatal(err)
		}
		if m.Cache != 0 {
			t.Fatalf("after request %d the pool has %d bytes", i, m.Cache)
		}
		if last = m; i == 10 {
			first, before = m, resident()
		}
	}
	grown := resident() - before
	t.Logf("active after 10 requests %d KiB, after 100 %d KiB; pool 0; footprint %+d KiB", first.Active>>10, last.Active>>10, grown>>10)
	// Kept prefixes have drafts or not: they differ by a draft's memory each.
	if off := last.Active - first.Active; off > 3*256*2*tokenBytes(t, s, r) || grown > 8<<20 {
		t.Errorf("active grew by %d bytes, the footprint by %d", off, grown)
	}
}

// poolLimit is above what the rounds right after a boundary free, and below what
// a few growths of the cache leave behind; ten leave several times of it.
const poolLimit = 2 << 20

// pools generates and gives the pool's size at the first round after each
// multiple of ReleaseEvery, and by how much more than keys and values the
// process grew from the second to the end.
func pools(t *testing.T, s *mlx.Scope, r *Runner, q Request) (sizes []int64, footprint int64) {
	t.Helper()
	n, next := 0, ReleaseEvery+16
	var first, last int64
	_, err := r.Generate(context.Background(), s, q, Hooks{Piece: func(p Piece) error {
		if n += len(p.Tokens); n < next {
			return nil
		}
		next += ReleaseEvery
		m, err := mlx.MemoryInUse()
		sizes, last = append(sizes, m.Cache), resident()-m.Active
		if len(sizes) == 2 {
			first = last
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return sizes, last - first
}

func kib(sizes []int64) string {
	out := make([]string, len(sizes))
	for i, n := range sizes {
		out[i] = fmt.Sprint(n >> 10)
	}
	return strings.Join(out, " ")
}

// resident is the process's memory in bytes, 0 where it can't be told.
func resident() int64 {
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
