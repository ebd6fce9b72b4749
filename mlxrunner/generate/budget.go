package generate

import (
	"cmp"
	"errors"
	"fmt"

	"payload/mlx"
	"payload/mlx/quant"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/memory"
)

// computing is the part of what weights leave of a budget that is not given to
// keys and values: half of it for what a computation needs in between, half for
// the pool of freed buffers at the least.
const computing = 1.0 / 8

// budget is the one limit over weights, keys and values, what is kept of earlier
// requests, and the pool.
type budget struct {
	limit   int64 // 0 is none
	before  int64 // MLX's own
	weights int64 // of all models, and what else was there when the limit was set
	pool    int64 // the most that MLX would keep in its pool
}

// work is what is not given to keys and values.
func (b budget) work() int64 { return int64(float64(b.limit-b.weights) * computing) }

// A MemoryError says that a budget has no room for the weights, or for the keys
// and values of a request. Sizes are bytes.
type MemoryError struct {
	Tokens  int   // of the request; 0 for the weights
	Need    int64 // for keys and values
	Free    int64 // for them, with nothing kept of earlier requests
	Limit   int64 // the budget
	Weights int64
	Work    int64 // held back for computing
}

func (e *MemoryError) Error() string {
	if e.Tokens == 0 {
		return fmt.Sprintf("the weights take %s: the memory budget is %s", memory.Text(e.Weights), memory.Text(e.Limit))
	}
	return fmt.Sprintf("keys and values of %d tokens need %s, and %s are free: of a memory budget of %s weights take %s and computing %s",
		e.Tokens, memory.Text(e.Need), memory.Text(max(0, e.Free)), memory.Text(e.Limit), memory.Text(e.Weights), memory.Text(e.Work))
}

// Limit bounds the memory of this process in MLX, from now on: weights, keys
// and values, what is kept of earlier requests, computing, and freed buffers. A
// request whose keys and values can't fit is refused with *MemoryError before
// it is begun; what is kept is given up, the oldest first, before room runs out.
// Call it once, with all models loaded, on their thread.
func (r *Runner) Limit(bytes int64) error {
	m, err := mlx.MemoryInUse()
	if err != nil {
		return err
	}
	b := budget{limit: bytes, before: m.Limit, weights: m.Active}
	if m.Active >= bytes {
		return &MemoryError{Limit: bytes, Weights: m.Active}
	}
	if _, err := mlx.SetMemoryLimit(bytes); err != nil {
		return err
	}
	if b.pool, err = mlx.SetCacheLimit(0); err != nil {
		return err
	}
	_, err = mlx.SetCacheLimit(min(b.pool, b.work()/2))
	r.budget = b
	return err
}

// Close forgets earlier requests and gives MLX its own limits back. The models
// are their owner's.
func (r *Runner) Close() error {
	r.Forget()
	b := r.budget
	if r.budget = (budget{}); b.limit == 0 {
		return nil
	}
	_, err := mlx.SetMemoryLimit(b.before)
	_, err2 := mlx.SetCacheLimit(b.pool)
	return errors.Join(err, err2)
}

// empty makes a memory as this runner holds it.
func (r *Runner) empty() (*cache.Cache, error) {
	c := r.Model.NewCache()
	if r.KV.Bits == 0 {
		return c, nil
	}
	return c, c.Pack(r.KV)
}

// Pack holds keys and values in groups of 8 or 4 bits from now on: of 64
// features, or of 32 where heads are no whole number of those. What was kept of
// earlier requests is forgotten.
func (r *Runner) Pack(s *mlx.Scope, bits int) error {
	r.Forget()
	var errs []error
	for _, group := range []int{64, 32} {
		r.KV, r.blank = quant.Params{Mode: quant.Affine, Bits: bits, Group: group}, nil
		trial := mlx.NewScope(s.Stream())
		err := r.measure(trial)
		if err = errors.Join(err, trial.Close()); err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	r.KV = quant.Params{}
	return errs[len(errs)-1]
}

// measure learns how much memory a token takes: a step is built, not computed.
func (r *Runner) measure(s *mlx.Scope) error {
	if r.blank != nil {
		return nil
	}
	c, err := r.empty()
	if err != nil {
		return err
	}
	sub := s.Sub()
	r.Model.Forward(sub, row(sub, []int{0}), c)
	c.Free()
	if err := sub.Close(); err != nil {
		return err
	}
	r.blank = c
	return nil
}

// needs is what the memories of a text of so many tokens take at the most.
func (g *generation) needs(tokens int) int64 {
	chunk := cmp.Or(g.Chunk, Chunk)
	g.blank.Hold(g.guesses())
	n := g.blank.Needs(tokens, chunk)
	if g.Draft > 0 {
		g.Runner.draft.blank.Hold(g.guesses())
		n += g.Runner.draft.blank.Needs(tokens, chunk)
	}
	return n
}

// admit refuses a request that can't fit, whatever is given up for it. One that
// asks for as much text as there is room for needs room to begin.
func (g *generation) admit(s *mlx.Scope) error {
	if g.budget.limit == 0 {
		return nil
	}
	for _, r := range []*Runner{g.Runner, g.Runner.draft} {
		if r != nil {
			if err := r.measure(s); err != nil {
				return err
			}
		}
	}
	m, err := mlx.MemoryInUse()
	if err != nil {
		return err
	}
	tokens := g.soon()
	if g.MaxTokens > 0 {
		tokens = len(g.Prompt) + g.limit
	}
	_, kept := g.Kept()
	b := g.budget
	free := b.limit - b.work() - (m.Active - kept - g.held()) - g.promised
	if need := g.needs(tokens); need > free {
		return &MemoryError{Tokens: tokens, Need: need, Free: free, Limit: b.limit, Weights: b.weights, Work: b.work()}
	}
	_, err = g.makeRoom()
	return err
}

// toCome is what the text may still need that it does not hold yet.
func (g *generation) toCome() int64 {
	if g.budget.limit == 0 {
		return 0
	}
	tokens := g.soon()
	if g.MaxTokens > 0 {
		tokens = len(g.Prompt) + g.limit
	}
	return max(0, g.needs(tokens)-g.held())
}

// held is what the memories take of what is active. A fork shares that of the
// request it comes from until the first round wrote to it.
func (g *generation) held() int64 {
	if g.forked && len(g.result.Tokens) == 0 {
		return 0
	}
	return g.memories.bytes()
}

// soon is how long the text may be when makeRoom is asked the next time.
func (g *generation) soon() int {
	n := len(g.text) + ReleaseEvery + g.guesses() + 1
	if g.limit > 0 {
		n = min(n, len(g.Prompt)+g.limit)
	}
	return n
}

// makeRoom gives up what is kept of earlier requests until the text can grow to
// where this is asked again, and leaves the pool the rest. It tells whether
// there is room.
func (g *generation) makeRoom() (bool, error) {
	b := g.budget
	if b.limit == 0 {
		return true, nil
	}
	for {
		m, err := mlx.MemoryInUse()
		if err != nil {
			return false, err
		}
		rest := b.limit - m.Active - (g.needs(g.soon()) - g.held())
		if rest >= b.work() {
			_, err = mlx.SetCacheLimit(min(b.pool, rest-b.work()/2))
			return true, err
		}
		if !g.evict() {
			return false, nil
		}
		if err := mlx.ClearCache(); err != nil {
			return false, err
		}
	}
}
