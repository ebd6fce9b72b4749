package generate

import (
	"context"
	"errors"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
	"payload/mlxrunner/memory"
)

// limited gives a runner a budget of what is there and so many bytes more, and
// takes MLX's limits back at the end.
func limited(tb testing.TB, r *Runner, more int64) int64 {
	tb.Helper()
	if err := mlx.ClearCache(); err != nil {
		tb.Fatal(err)
	}
	m, err := mlx.MemoryInUse()
	if err != nil {
		tb.Fatal(err)
	}
	pool, err := mlx.SetCacheLimit(1 << 40) // MLX may keep what it likes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		err1 := r.Close()
		now, err2 := mlx.MemoryInUse()
		before, err3 := mlx.SetCacheLimit(pool)
		if err := errors.Join(err1, err2, err3); err != nil || now.Limit != m.Limit || before != 1<<40 {
			tb.Errorf("closed, the limits are %d and %d, %v", now.Limit, before, err)
		}
	})
	if err := r.Limit(m.Active + more); err != nil {
		tb.Fatal(err)
	}
	return m.Active + more
}

// most generates and gives the most that arrays and pool had after a round, or
// arrays in between.
func most(tb testing.TB, s *mlx.Scope, r *Runner, q Request) (Result, int64) {
	tb.Helper()
	if err := mlx.ResetPeak(); err != nil {
		tb.Fatal(err)
	}
	var most int64
	look := func() error {
		m, err := mlx.MemoryInUse()
		most = max(most, m.Active+m.Cache, m.Peak)
		return err
	}
	got, err := r.Generate(context.Background(), s, q, Hooks{
		Prefill: func(int, int) { _ = look() },
		Piece:   func(Piece) error { return look() },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return got, most
}

// tokenBytes is what a token of the model takes.
func tokenBytes(tb testing.TB, s *mlx.Scope, r *Runner) int64 {
	tb.Helper()
	if err := r.measure(s); err != nil {
		tb.Fatal(err)
	}
	all, _ := r.blank.Needs(256, 1)
	return all / 256
}

// Requests stay within the budget, with what is kept of others and with the pool:
// what is kept goes when there is no room for both.
func TestRequestsStayWithinTheBudget(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes, r.Context = 100, 0
	limit := limited(t, r, 2700*tokenBytes(t, s, r)) // room for 1,800 tokens
	var top, kept int64
	evicted := 0
	for i := range 12 {
		prompt := append([]int{0, 30 + i}, r.encode(t, "The harbour of Senn wakes before the sun")...)
		q := Request{Prompt: prompt, MaxTokens: 250, IgnoreEnd: true, Chunk: 64}
		if i%3 == 1 {
			q.Lookup = 4
		}
		before, _ := r.Kept()
		_, n := most(t, s, r, q)
		top = max(top, n)
		after, bytes := r.Kept()
		if after <= before {
			evicted++
		}
		kept = max(kept, bytes)
	}
	n, _ := r.Kept()
	t.Logf("budget %s: at most %s in arrays and pool; %d requests kept, at most %s, %d evicted", memory.Text(limit), memory.Text(top), n, memory.Text(kept), evicted)
	if top > limit {
		t.Errorf("%d bytes, the budget is %d", top, limit)
	}
	if evicted == 0 || n < 2 || n > 8 {
		t.Errorf("%d kept, %d times one was evicted", n, evicted)
	}
}

// What can't fit is refused before anything is computed, with numbers, and what
// is kept stays.
func TestTooLargeARequest(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes, r.Context = 4, 0
	token := tokenBytes(t, s, r)
	more := 1024 * token // for 672 tokens
	limit := limited(t, r, more)
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")
	small := Request{Prompt: prompt, MaxTokens: 20, IgnoreEnd: true}
	want := generate(t, s, r, small)
	for _, q := range []Request{
		{Prompt: prompt, MaxTokens: 540},
		{Prompt: slices.Repeat(prompt, 60)},
	} {
		read := 0
		_, err := r.Generate(context.Background(), s, q, Hooks{Prefill: func(done, _ int) { read = done }})
		var full *MemoryError
		if !errors.As(err, &full) || read > 0 {
			t.Fatalf("%v after %d tokens", err, read)
		}
		tokens := len(q.Prompt) + q.MaxTokens
		if q.MaxTokens == 0 {
			tokens = len(q.Prompt) + ReleaseEvery + 1
		}
		steps := int64((tokens + 255) / 256 * 256)
		if full.Tokens != tokens || full.Need != steps*token*4/3 || full.Free > more || full.Free < more/2 || full.Limit != limit || full.Weights != limit-more {
			t.Errorf("%+v", full)
		}
		t.Log(err)
	}
	if got := generate(t, s, r, small); got.Cached != len(prompt)-1 || !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("after refusals %d tokens are taken over", got.Cached)
	}
	// In fewer bits there is room.
	r.Forget()
	r.KV, r.blank = quant.Params{Mode: quant.Affine, Bits: 4, Group: 64}, nil
	if got, n := most(t, s, r, Request{Prompt: prompt, MaxTokens: 540, IgnoreEnd: true}); len(got.Tokens) != 540 || n > limit {
		t.Errorf("%d tokens, %d bytes of %d", len(got.Tokens), n, limit)
	}
}

// A text of no given length ends where memory does, and others keep nothing from it.
func TestTextEndsWithMemory(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes, r.Context = 4, 0
	limit := limited(t, r, 1400*tokenBytes(t, s, r))
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")
	for i := range 2 { // the second has to push the first out
		prompt[0] = 30 + i
		for _, q := range []Request{{}, {Lookup: 4}} {
			q.Prompt, q.IgnoreEnd = prompt, true
			got, n := most(t, s, r, q)
			if got.Finish != StopLength || len(got.Tokens) < 256 || len(got.Tokens) > 1024 || n > limit {
				t.Errorf("%d tokens (%s), %d bytes of %d", len(got.Tokens), got.Finish, n, limit)
			}
			r.Forget()
		}
	}
}

// Weights that leave no room are refused.
func TestWeightsBeyondTheBudget(t *testing.T) {
	_, r := runner(t)
	m, err := mlx.MemoryInUse()
	if err != nil {
		t.Fatal(err)
	}
	err = r.Limit(m.Active)
	var full *MemoryError
	if !errors.As(err, &full) {
		t.Errorf("%v", err)
	}
	mlxtest.Fails(t, err, "the weights take "+memory.Text(m.Active), "the memory budget is "+memory.Text(m.Active))
}

// within looks after every step whether arrays and pool stay within a budget,
// and arrays did in between.
type within struct {
	limit     int64
	over      int64 // the most that was beyond it
	steps, at int
}

func (w *within) look(tb testing.TB) {
	tb.Helper()
	m, err := mlx.MemoryInUse()
	if err := errors.Join(err, mlx.ResetPeak()); err != nil {
		tb.Fatal(err)
	}
	if over := max(m.Active+m.Cache, m.Peak) - w.limit; over > w.over {
		w.over, w.at = over, w.steps
	}
	w.steps++
}

// Texts that grow in the same step stay within the budget together, whatever is
// kept of others. One that was promised its length gets it; those of no given
// length end where memory does.
func TestTextsThatGrowTogetherStayWithinTheBudget(t *testing.T) { growing(t, Request{}, 6) }
func TestATextStaysWithinTheBudget(t *testing.T)                { growing(t, Request{}, 1) }
func TestLookupStaysWithinTheBudget(t *testing.T)               { growing(t, Request{Lookup: 4}, 1) }
func TestDraftStaysWithinTheBudget(t *testing.T)                { growing(t, Request{Draft: 4}, 1) }

func growing(t *testing.T, by Request, rows int) {
	t.Helper()
	s, r := runner(t)
	t.Cleanup(r.Forget)
	if err := r.UseDraft(rough(t, s)); err != nil {
		t.Fatal(err)
	}
	r.Context, r.draft.Context, r.Prefixes = 0, 0, 3
	w := &within{limit: limited(t, r, 3000*tokenBytes(t, s, r))}
	if err := mlx.ResetPeak(); err != nil {
		t.Fatal(err)
	}
	by.IgnoreEnd = true
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")
	look := func(Piece) error { w.look(t); return nil }
	for i := range 3 { // what is kept goes when texts need it
		q := by
		q.Prompt, q.MaxTokens = append([]int{0, 30 + i}, prompt...), 250
		if _, err := r.Generate(t.Context(), s, q, Hooks{Piece: look}); err != nil {
			t.Fatal(err)
		}
	}
	var asked []Request
	for i := range rows {
		q := by
		switch q.Prompt = []int{1 + i}; i {
		case 0:
			q.Prompt = slices.Repeat(prompt, 30) // in chunks that fit
		case 2:
			q.MaxTokens = 700
		}
		asked = append(asked, q)
	}
	b, all := looped(t, r, asked...)
	if rows == 1 {
		all[0].Hooks.Piece = look
	}
	chunks := 0
	all[0].Hooks.Prefill = func(int, int) { chunks++ }
	for b.admit(s); len(b.texts) > 0; b.admit(s) {
		b.step(s)
		w.look(t)
	}
	for i, x := range all {
		<-x.done
		n := len(x.result.Tokens)
		t.Logf("text %d: %d tokens", i, n)
		if x.err != nil || x.result.Finish != StopLength || n < 256 || x.MaxTokens > 0 && n != x.MaxTokens {
			t.Errorf("text %d: %d tokens (%s), %v", i, n, x.result.Finish, x.err)
		}
	}
	if chunks < 3 || chunks > 25 {
		t.Errorf("a prompt of %d tokens was read in %d chunks", len(all[0].Prompt), chunks)
	}
	if kept, _ := r.Kept(); w.over > 0 || kept > 1+rows {
		t.Errorf("%d bytes beyond the budget at step %d of %d; %d are kept", w.over, w.at, w.steps, kept)
	}
}

// looped makes a batch of requests, in their order, whose steps the test takes.
func looped(t *testing.T, r *Runner, all ...Request) (*Batch, []*ticket) {
	t.Helper()
	b := &Batch{Runner: r, Size: len(all)}
	for _, q := range all {
		b.waiting = append(b.waiting, &ticket{Request: q, ctx: t.Context(), done: make(chan struct{})})
	}
	return b, slices.Clone(b.waiting)
}

func (t *ticket) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// A text that goes on from another's beginning and still reads is counted once:
// there is room for one beside it.
func TestAForkThatReadsIsCountedOnce(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes, r.Context = 1, 0
	limited(t, r, 2300*tokenBytes(t, s, r))
	prompt := slices.Repeat(r.encode(t, "The harbour of Senn wakes before the sun"), 50)
	generate(t, s, r, Request{Prompt: prompt[:300], MaxTokens: 3, IgnoreEnd: true, Chunk: 64})
	long := Request{Prompt: append(slices.Clone(prompt[:290]), prompt[1:411]...), MaxTokens: 300, IgnoreEnd: true, Chunk: 4}
	b, all := looped(t, r, long, Request{Prompt: []int{5}, MaxTokens: 40, IgnoreEnd: true})
	b.waiting = b.waiting[:1]
	b.admit(s)
	b.step(s)
	b.waiting = all[1:] // it comes when the other reads
	for !all[1].ended() {
		if b.admit(s); len(b.texts) == 0 || all[0].ended() {
			t.Fatal("it waited for the other to end")
		}
		b.step(s)
	}
	if reads := b.texts[0]; reads.result.Cached < 290 || !reads.reads() || all[1].err != nil {
		t.Errorf("%d tokens taken over, %d of %d read; the other ended by %v", reads.result.Cached, reads.kv.Offset(), len(long.Prompt), all[1].err)
	}
	for len(b.texts) > 0 {
		b.step(s)
	}
	if n := len(all[0].result.Tokens); n != long.MaxTokens || all[0].err != nil {
		t.Errorf("%d tokens, %v", n, all[0].err)
	}
}

// A request that is refused leaves no fork behind: it would hold what another
// text had, and be counted as nothing that can be given up.
func TestARefusedForkIsNotKept(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes, r.Context = 4, 0
	token := tokenBytes(t, s, r)
	limited(t, r, 3000*token)
	prompt := slices.Repeat(r.encode(t, "The harbour of Senn wakes before the sun"), 50)[:500]
	begins := append(slices.Clone(prompt[:450]), 1)
	b, all := looped(t, r,
		Request{Prompt: prompt, MaxTokens: 700, IgnoreEnd: true},
		Request{Prompt: begins, MaxTokens: 5000, IgnoreEnd: true}, // never fits
		Request{Prompt: []int{5}, MaxTokens: 900, IgnoreEnd: true})
	for !all[2].ended() {
		b.admit(s)
		b.step(s)
		for _, p := range r.prefixes {
			if p.kv.Shares() {
				t.Fatalf("%d tokens are kept of a request that was refused", len(p.tokens))
			}
		}
	}
	var full *MemoryError
	if !errors.As(all[1].err, &full) || len(all[1].result.Tokens) > 0 {
		t.Errorf("the one that never fits: %v", all[1].err)
	}
	if n := len(all[2].result.Tokens); n != all[2].MaxTokens || all[2].err != nil {
		t.Errorf("what fits: %d tokens, %v", n, all[2].err)
	}
}

// Where the room that was promised is gone all the same, the text that needs it
// ends with an error that says so, and those beside it do not.
func TestPromisedRoomThatIsGone(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Context = 0
	token := tokenBytes(t, s, r)
	limited(t, r, 3000*token)
	b, all := looped(t, r, Request{Prompt: []int{1}, MaxTokens: 600, IgnoreEnd: true}, Request{Prompt: []int{2}, IgnoreEnd: true}, Request{Prompt: []int{3}, MaxTokens: 250, IgnoreEnd: true})
	var other *mlx.Array
	for b.admit(s); len(b.texts) > 0; b.step(s) {
		if len(b.texts[0].result.Tokens) == 100 && other == nil {
			other = s.Zeros(mlx.Uint8, 1900*int(token))
			if err := s.Eval(other); err != nil {
				t.Fatal(err)
			}
			defer other.Free()
		}
	}
	var full *MemoryError
	if n := len(all[0].result.Tokens); !errors.As(all[0].err, &full) || n < 250 || n > 256 || full.Free >= full.Need {
		t.Errorf("the one that was promised more: %d tokens, %v", n, all[0].err)
	}
	for _, x := range all[1:] {
		if n := len(x.result.Tokens); x.err != nil || x.result.Finish != StopLength || n < 250 || x.MaxTokens > 0 && n != x.MaxTokens {
			t.Errorf("beside it: %d tokens (%s), %v", n, x.result.Finish, x.err)
		}
	}
}

// How memories grow within a budget changes nothing of what is generated.
func TestABudgetChangesNoText(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	d := rough(t, s)
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	r.Context, d.Context = 0, 0
	unpooled(t)
	var all []Request
	for i, q := range []Request{{}, {Lookup: 3}, {Draft: 3}} {
		q.Prompt, q.MaxTokens, q.IgnoreEnd, q.Chunk = append([]int{0, 30 + i}, r.encode(t, "The harbour of Senn wakes before the sun")...), 300, true, 8
		all = append(all, q)
	}
	plain, draft := r.Model, d.Model
	for _, windows := range []bool{false, true} {
		if r.Model, d.Model = plain, draft; windows {
			r.Model, d.Model = windowed{plain}, windowed{draft}
		}
		var want [][]int
		r.blank, d.blank, r.budget = nil, nil, budget{}
		for _, q := range all {
			want = append(want, generate(t, s, r, q).Tokens)
		}
		r.budget = budget{limit: 1 << 40, pool: 1 << 30} // which leaves MLX's own limits
		for i, q := range all {
			if got := generate(t, s, r, q); !slices.Equal(got.Tokens, want[i]) {
				t.Errorf("windows %v, lookup %d, draft %d: another text from token %d on", windows, q.Lookup, q.Draft, common(got.Tokens, want[i]))
			}
		}
	}
	r.budget = budget{}
}

// What a chunk will take is told from what others took, in shorter texts and in
// longer ones, rather too much than too little.
func TestCosts(t *testing.T) {
	took := func(text int) float64 { return 9000 + 5*float64(text) }
	var c costs
	for _, text := range []int{100, 600, 40, 1000, 300} {
		c.learn(cost{took(text), text})
		for ahead := 1; ahead < 3000; ahead += 7 {
			if got, want := c.at(ahead), took(ahead); !(got > want-1) || got > want+1 && ahead > c.least.text && ahead < c.most.text {
				t.Fatalf("after a text of %d, one of %d: %f, want %f", text, ahead, got, want)
			}
		}
	}
	c.learn(cost{9000, 2000}) // less than in a shorter one: by chance
	if got := c.at(1500); got < 9000 {
		t.Errorf("%f", got)
	}
}
