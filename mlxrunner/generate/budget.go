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
	if r.blank != nil {
		return r.blank.Fresh(), nil
	}
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

// measure learns how much memory a token takes, of the draft's too: a step is
// built, not computed.
func (r *Runner) measure(s *mlx.Scope) error {
	if r.draft != nil {
		if err := r.draft.measure(s); err != nil {
			return err
		}
	}
	if r.blank != nil {
		return nil
	}
	c, err := r.empty()
	if err != nil {
		return err
	}
	sub := s.Sub()
	defer func() { c.Free(); shut(sub) }()
	r.Model.Forward(sub, row(sub, []int{0}), c)
	if err := sub.Close(); err != nil {
		return err
	}
	r.blank = c
	return nil
}

// needs is what the memories of a text of so many tokens take at the most, and
// what is there beside that while they grow.
func (g *generation) needs(tokens int) (all, beside int64) {
	chunk := cmp.Or(g.Chunk, Chunk)
	g.blank.Hold(g.guesses())
	all, beside = g.blank.Needs(tokens, chunk)
	if g.Draft > 0 {
		g.Runner.draft.blank.Hold(g.guesses())
		more, largest := g.Runner.draft.blank.Needs(tokens, chunk)
		all, beside = all+more, max(beside, largest) // one grows after the other
	}
	return all, beside
}

// admit refuses a request that can't fit, whatever is given up for it, and
// promises room to one that can: for all of its length or, where it asks for as
// much text as there is room for, to begin.
func (g *generation) admit(s *mlx.Scope) error {
	if g.budget.limit == 0 {
		return nil
	}
	g.promised = g.most()
	m, err := inUse(s)
	if err != nil {
		return err
	}
	all, beside := g.needs(g.promised)
	others, most := g.others()
	need := all + max(beside, most)
	_, kept := g.Kept()
	b := g.budget
	if free := b.limit - b.work() - (m.Active - kept - g.memories.bytes()) - others; need > free {
		return g.refusal(need, free)
	}
	lacks, err := g.makeRoom(s, 0, beside, b.work())
	switch {
	case err != nil || lacks == 0:
		return err
	case g.kv.Shares():
		return errNoCopy
	}
	return g.refusal(need, need-lacks)
}

// errNoCopy says that a text has room, but not beside what it was forked from,
// which the fork holds fast: it is to be read anew.
var errNoCopy = errors.New("there is no room for a copy of what is remembered")

func (g *generation) refusal(need, free int64) error {
	b := g.budget
	return &MemoryError{Tokens: g.promised, Need: need, Free: free, Limit: b.limit, Weights: b.weights, Work: b.work()}
}

// inUse asks the allocator when what was dispatched is done and what it freed
// has gone back to the system.
func inUse(s *mlx.Scope) (mlx.Memory, error) {
	if err := errors.Join(s.Stream().Synchronize(), mlx.ClearCache()); err != nil {
		return mlx.Memory{}, err
	}
	return mlx.MemoryInUse()
}

// most is how many tokens a text that begins is promised room for.
func (g *generation) most() int {
	if g.MaxTokens > 0 {
		return len(g.Prompt) + g.limit
	}
	n := len(g.Prompt) + ReleaseEvery + g.guesses() + 1
	if g.limit > 0 {
		n = min(n, len(g.Prompt)+g.limit)
	}
	return n
}

// toCome is what the text was promised and does not hold yet.
func (g *generation) toCome() (more, beside int64) {
	all, beside := g.needs(g.promised)
	return max(0, all-g.memories.bytes()), beside
}

// others is toCome of all other texts that are under way. One of them grows at
// a time.
func (g *generation) others() (more, beside int64) {
	for _, other := range g.under {
		if other != g {
			m, b := other.toCome()
			more, beside = more+m, max(beside, b)
		}
	}
	return more, beside
}

// grow sees that n more tokens fit into a memory of the text, and makes room in
// it for them before anything is computed. Where there is none, a text of no
// given length is full, as it ends where memory does.
func (g *generation) grow(s *mlx.Scope, kv *cache.Cache, n int) (full bool, err error) {
	if g.budget.limit == 0 {
		return false, nil
	}
	more, beside := kv.Growth(n)
	if more+beside == 0 {
		return false, nil
	}
	// Beyond what was promised all of the work is held back. Within it, what
	// texts compute with is there by now: that is part of it.
	back := g.budget.work()
	if own, _ := g.toCome(); more <= own {
		back /= 2
	}
	lacks, err := g.makeRoom(s, more, beside, back)
	switch {
	case err != nil:
		return false, err
	case lacks == 0:
		return false, kv.Grow(s, n)
	case g.MaxTokens == 0 && len(g.result.Tokens) > 0:
		return true, nil
	}
	return false, g.refusal(more+beside, more+beside-lacks)
}

// makeRoom gives up what is kept of earlier requests until the text's memories
// can grow by more, with beside there meanwhile, all have what they were
// promised, and so much is held back. It leaves the pool the rest, and tells
// how many bytes are lacking.
func (g *generation) makeRoom(s *mlx.Scope, more, beside, back int64) (lacks int64, err error) {
	b := g.budget
	for {
		rest, err := g.spare(s, more, beside)
		if err != nil {
			return 0, err
		}
		if rest >= back {
			_, err = mlx.SetCacheLimit(min(b.pool, rest-b.work()/2))
			return 0, err
		}
		if !g.evict() {
			return back - rest, nil
		}
	}
}

// spare is what the budget leaves when the text's memories have grown by more,
// with beside there meanwhile, and all have what they were promised.
func (g *generation) spare(s *mlx.Scope, more, beside int64) (int64, error) {
	own, _ := g.toCome()
	others, most := g.others()
	m, err := inUse(s)
	return g.budget.limit - m.Active - max(more, own) - others - max(beside, most), err
}

// A cost is what computing a token of a chunk took, in bytes, in a text that was
// so long by the chunk's end.
type cost struct {
	bytes float64
	text  int
}

// costs are those in the shortest text that was measured and in the longest.
// In between they grow as the text does.
type costs struct{ least, most cost }

// Before a chunk was measured, a token is taken to need guessed bytes, but so
// many are tried as there is something to learn from: some of what a chunk takes
// is for any number of tokens. Fewer teach only that a token takes less.
const (
	guessed = 1 << 20
	probe   = 32
)

func (c *costs) learn(n cost) {
	if c.least.text == 0 || n.text <= c.least.text {
		c.least = n
	}
	if n.text >= c.most.text {
		c.most = n
	}
}

// at is the cost in a text of a length, or more; a guess where none was measured.
func (c *costs) at(text int) float64 {
	if c.most.text == 0 {
		return guessed
	}
	if text >= c.most.text {
		return c.most.bytes * float64(text) / float64(c.most.text)
	}
	if text <= c.least.text {
		return c.least.bytes
	}
	part := float64(text-c.least.text) / float64(c.most.text-c.least.text)
	return c.least.bytes + max(0, c.most.bytes-c.least.bytes)*part
}

// fit gives how many of n tokens behind a text may be computed at once, in what
// memory there is. What is kept of earlier requests goes before chunks become so
// small that reading takes much longer.
func (g *generation) fit(s *mlx.Scope, r *Runner, text, n int) (int, error) {
	if g.budget.limit == 0 {
		return n, nil
	}
	least := 1
	if r.chunks.most.text == 0 {
		least = probe
	}
	for {
		rest, err := g.spare(s, 0, 0)
		if err != nil {
			return 0, err
		}
		fits := n
		// What is dispatched ahead, and so there at once, varies.
		for fits > least && float64(fits)*r.chunks.at(text+fits) > float64(rest)*3/4 {
			fits = max(least, fits*3/4)
		}
		if fits >= min(n, Chunk/8) || !g.evict() {
			_, err = mlx.SetCacheLimit(min(g.budget.pool, max(0, rest-g.budget.work()/2)))
			return fits, err
		}
	}
}

// compute runs f, which computes a chunk of n tokens up to the end of a text,
// and learns from it. The pool is empty after.
func (g *generation) compute(s *mlx.Scope, r *Runner, text, n int, f func() error) error {
	if g.budget.limit == 0 {
		if err := f(); err != nil {
			return err
		}
		return mlx.ClearCache()
	}
	before, err := inUse(s)
	if err != nil {
		return err
	}
	peak, err := mlx.PeakOf(f)
	if err != nil {
		return err
	}
	took := cost{float64(max(0, peak-before.Active)) / float64(n), text}
	if n >= probe || r.chunks.most.text > 0 && took.bytes < r.chunks.at(text) {
		r.chunks.learn(took)
	}
	return mlx.ClearCache()
}
