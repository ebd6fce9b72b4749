package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/constrain"
	"payload/mlxrunner/model"
	"payload/mlxrunner/sample"
)

// threaded loads the tiny model on a thread of its own.
func threaded(t *testing.T) (*mlxthread.Thread, *Runner) {
	t.Helper()
	mlxtest.Library(t)
	thread, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := thread.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(tiny, "safetensors")
	m, err := mlxthread.Call(t.Context(), thread, func(ctx context.Context, s *mlx.Scope) (*model.Loaded, error) {
		return model.Load(ctx, s, dir, model.Options{})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	r, err := Open(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Forget)
	return thread, r
}

func newBatch(r *Runner, thread *mlxthread.Thread, size int) *Batch {
	return &Batch{Runner: r, Thread: thread, Size: size}
}

// mixed are requests that differ in all that they can.
func mixed(t *testing.T, r *Runner) []Request {
	t.Helper()
	all := expected(t).Completions
	drawn := sample.Settings{Temperature: 1, TopP: 0.9, TopK: 40, Repetition: 1.1, Presence: 0.2, Seed: 7}
	var out []Request
	for i, c := range all {
		q := Request{Prompt: r.encode(t, c.Prompt), MaxTokens: c.Predict, Sampling: sample.Settings{Logprobs: 2}}
		out = append(out, q)
		q.MaxTokens, q.IgnoreEnd, q.Chunk = 5+7*i, true, 16+i
		q.Sampling = drawn
		q.Sampling.Seed, q.Sampling.Logprobs = uint64(i), -1
		out = append(out, q)
	}
	out[0].Stop = []string{"gulls"}
	out[2].Prompt = out[2].Prompt[:1] // nothing to read
	out[4].Lookup = 3                 // runs alone
	for _, i := range []int{6, 7} {
		out[i].Grammar, out[i].IgnoreEnd, out[i].MaxTokens = constrain.Object(), false, 40
	}
	return out
}

// submitted runs requests at once and gives results in their order, with the
// logarithms of the tokens' probabilities.
func submitted(t *testing.T, b *Batch, all []Request) ([]Result, [][]float64) {
	t.Helper()
	results, told := make([]Result, len(all)), make([][]float64, len(all))
	var wg sync.WaitGroup
	for i, q := range all {
		wg.Go(func() {
			var err error
			results[i], err = b.Submit(t.Context(), q, Hooks{Piece: func(p Piece) error {
				for _, x := range p.Tokens {
					told[i] = append(told[i], x.Logprob)
				}
				return nil
			}})
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return results, told
}

// What a text is does not depend on those that run beside it, however many they
// are and whenever they come and go.
func TestABatchesRowsAreWhatTheyAreAlone(t *testing.T) {
	thread, r := threaded(t)
	all := mixed(t, r)
	alone, toldAlone := submitted(t, newBatch(r, thread, 1), all)
	for _, size := range []int{2, len(all)} {
		got, told := submitted(t, newBatch(r, thread, size), all)
		for i := range all {
			if !slices.Equal(got[i].Tokens, alone[i].Tokens) || got[i].Text != alone[i].Text || got[i].Finish != alone[i].Finish || got[i].StopText != alone[i].StopText {
				t.Errorf("%d at once, request %d: %q (%s), alone %q (%s)", size, i, got[i].Text, got[i].Finish, alone[i].Text, alone[i].Finish)
			}
			if off := far(told[i], toldAlone[i]); off > 1e-3 || len(told[i]) != len(toldAlone[i]) {
				t.Errorf("%d at once, request %d: logprobs are off by %g", size, i, off)
			}
		}
	}
	for i, c := range expected(t).Completions {
		if alone[2*i].Text != c.Text && i > 3 { // those that were not changed
			t.Errorf("%s: %q", c.Name, alone[2*i].Text)
		}
	}
	in, err := mlx.MemoryInUse()
	if err != nil || in.Cache > 1<<20 {
		t.Errorf("%d bytes are left in the pool: %v", in.Cache, err)
	}
}

// Texts really are computed together: of eight at once, each waits for the
// others' steps and not for their ends.
func TestABatchRunsTogether(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 8)
	var mu sync.Mutex
	under, most := 0, 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			first := true
			_, err := b.Submit(t.Context(), Request{Prompt: []int{1, 2 + i}, MaxTokens: 40, IgnoreEnd: true}, Hooks{Piece: func(Piece) error {
				mu.Lock()
				defer mu.Unlock()
				if first {
					first = false
					under++
					most = max(most, under)
				}
				return nil
			}})
			mu.Lock()
			under--
			mu.Unlock()
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most < 7 {
		t.Errorf("at most %d texts were under way at once", most)
	}
}

// One that is cancelled, refused, or fails in its own hook does not touch the
// others; one that is cancelled while it waits never runs.
func TestABatchLosesOneAlone(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 3)
	prompt := r.encode(t, "The harbour of Senn wakes")
	ask := Request{Prompt: prompt, MaxTokens: 60, IgnoreEnd: true}
	want, err := newBatch(r, thread, 1).Submit(t.Context(), ask, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	expect := func(ctx context.Context, q Request, hooks Hooks, is func(Result, error) bool) {
		wg.Go(func() {
			if got, err := b.Submit(ctx, q, hooks); !is(got, err) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	whole := func(got Result, err error) bool { return err == nil && slices.Equal(got.Tokens, want.Tokens) }
	for range 3 {
		expect(t.Context(), ask, Hooks{}, whole)
	}
	expect(gone, ask, Hooks{Piece: func(Piece) error { leave(); return nil }}, func(got Result, err error) bool {
		return errors.Is(err, context.Canceled) && len(got.Tokens) > 0 && len(got.Tokens) < 60
	})
	expect(t.Context(), ask, Hooks{Piece: func(Piece) error { return mine }}, func(_ Result, err error) bool { return errors.Is(err, mine) })
	for _, bad := range []Request{{}, {Prompt: prompt, Sampling: sample.Settings{TopP: -1}}, {Prompt: prompt, Sampling: sample.Settings{Bias: map[int]float64{r.Vocab: 1}}}} {
		expect(t.Context(), bad, Hooks{}, func(_ Result, err error) bool { return err != nil })
	}
	never, stop := context.WithCancel(t.Context())
	stop()
	expect(never, ask, Hooks{Piece: func(Piece) error { t.Error("it ran"); return nil }}, func(_ Result, err error) bool { return errors.Is(err, context.Canceled) })
	wg.Wait()
	if got, err := b.Submit(t.Context(), ask, Hooks{}); !whole(got, err) {
		t.Errorf("afterwards: %v, %v", got.Tokens, err)
	}
}

// A counting model counts the tokens of prompts that it is asked for.
type counting struct {
	model.Model
	read *int
}

func (m counting) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	if n := tokens.Dim(1); n > 1 {
		*m.read += n
	}
	return m.Model.Forward(s, tokens, c)
}

// Texts of one prompt, or of prompts that begin alike, read it once when they
// come together, and are what they would be alone.
func TestABatchReadsAPromptOnce(t *testing.T) {
	thread, r := threaded(t)
	prompt := r.encode(t, expected(t).Completions[1].Prompt)
	for _, windows := range []bool{false, true} {
		plain := r.Model
		if windows {
			plain = windowed{plain}
		}
		read := 0
		r.Model = counting{plain, &read}
		var all []Request
		for i := range 5 {
			q := Request{Prompt: prompt, MaxTokens: 20, IgnoreEnd: true, Chunk: 7, Sampling: sample.Settings{Temperature: 1, Seed: uint64(i), Logprobs: -1}}
			if i == 4 && !windows { // a window drops what others begin with
				q.Prompt = slices.Concat(prompt[:40], prompt[:14])
			}
			all = append(all, q)
		}
		alone, toldAlone := submitted(t, newBatch(r, thread, 1), all)
		cold := read
		read = 0
		got, told := submitted(t, newBatch(r, thread, 5), all)
		// Those that come first are begun while others come.
		known := 0
		for i := range all {
			known += got[i].Cached
			if off := far(told[i], toldAlone[i]); !slices.Equal(got[i].Tokens, alone[i].Tokens) || off > 1e-3 {
				t.Errorf("text %d: %q, alone %q, logprobs off by %g", i, got[i].Text, alone[i].Text, off)
			}
		}
		least := len(prompt) - 1 + 6 // the last of a chunk may be a single token, which is not counted
		if !windows {
			least += 14
		}
		t.Logf("%d tokens read, %d cold; %d known", read, cold, known)
		if read > least || read+known < cold-5 || known == 0 {
			t.Errorf("%d tokens were read and %d known, want %d of %d read", read, known, least, cold)
		}
		r.Model = plain
		if n, _ := r.Kept(); n != 0 || len(r.under) > 0 {
			t.Errorf("%d are kept, %d under way", n, len(r.under))
		}
	}
}

// What waits for memory runs when another text has given it back.
func TestABatchWaitsForMemory(t *testing.T) {
	thread, r := threaded(t)
	r.Context = 0
	in, err := mlx.MemoryInUse()
	if err != nil {
		t.Fatal(err)
	}
	limit := in.Active + 3<<19
	err = thread.Do(t.Context(), func(context.Context, *mlx.Scope) error { return r.Limit(limit) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := mlx.SetMemoryLimit(math.MaxInt64); err != nil {
			t.Error(err)
		}
	})
	b := newBatch(r, thread, 4)
	var all []Request
	for i := range 6 {
		all = append(all, Request{Prompt: []int{1, 2 + i}, MaxTokens: 300, IgnoreEnd: true})
	}
	got, _ := submitted(t, b, all)
	for i, g := range got {
		if len(g.Tokens) != 300 {
			t.Errorf("request %d: %d tokens", i, len(g.Tokens))
		}
	}
	all[0].MaxTokens = 5000
	var full *MemoryError
	if _, err := b.Submit(t.Context(), all[0], Hooks{}); !errors.As(err, &full) {
		t.Errorf("more than there is: %v", err)
	}
}

// A panic ends what was under way and what waited, with an error; the next
// request finds a batch that works. A closed thread ends them too.
func TestABatchThatBreaks(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 2)
	ask := Request{Prompt: []int{1, 5}, MaxTokens: 200, IgnoreEnd: true}
	failed := make(chan error, 5)
	runs, all := make(chan struct{}), make(chan struct{})
	go func() {
		var once sync.Once
		_, err := b.Submit(t.Context(), ask, Hooks{Piece: func(Piece) error {
			once.Do(func() { close(runs) })
			select {
			case <-all:
				panic("torn")
			case <-time.After(time.Millisecond):
				return nil
			}
		}})
		failed <- err
	}()
	<-runs
	for range 4 {
		go func() {
			_, err := b.Submit(t.Context(), ask, Hooks{})
			failed <- err
		}()
	}
	for waiting := 0; waiting < 3; {
		b.mu.Lock()
		waiting = len(b.waiting)
		b.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	close(all)
	for range 5 {
		var torn *mlxthread.PanicError
		if err := <-failed; !errors.As(err, &torn) {
			t.Errorf("%v", err)
		}
	}
	if got, err := b.Submit(t.Context(), ask, Hooks{}); err != nil || len(got.Tokens) != 200 {
		t.Errorf("afterwards: %d tokens, %v", len(got.Tokens), err)
	}
}

// A brittle model fails where it is asked for so many tokens at once.
type brittle struct {
	model.Model
	at int
}

var errBrittle = errors.New("brittle")

func (f brittle) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	if tokens.Dim(1) == f.at {
		s.Fail(errBrittle)
	}
	return f.Model.Forward(s, tokens, c)
}

// under runs a request that ends when stop is called, which waits for that, and
// returns when its first token came.
func under(t *testing.T, b *Batch, q Request) (stop func() (Result, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	var result Result
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		var once sync.Once
		tell := func() { once.Do(func() { close(begun) }); time.Sleep(time.Millisecond) }
		result, err = b.Submit(ctx, q, Hooks{
			Prefill: func(int, int) { tell() },
			Piece:   func(Piece) error { tell(); return nil },
		})
	})
	<-begun
	return func() (Result, error) { cancel(); wg.Wait(); return result, err }
}

// An error of MLX ends the text that it befell, and no other.
func TestABatchKeepsErrorsApart(t *testing.T) {
	thread, r := threaded(t)
	r.Model = brittle{r.Model, 7}
	b := newBatch(r, thread, 3)
	stop := under(t, b, Request{Prompt: []int{1, 5}, MaxTokens: 900, IgnoreEnd: true})
	bad := Request{Prompt: r.encode(t, "The harbour of Senn wakes before the sun"), Chunk: 7, MaxTokens: 5}
	if _, err := b.Submit(t.Context(), bad, Hooks{}); !errors.Is(err, errBrittle) {
		t.Errorf("the one that fails: %v", err)
	}
	if got, err := b.Submit(t.Context(), Request{Prompt: []int{1, 6}, MaxTokens: 5, IgnoreEnd: true}, Hooks{}); err != nil || len(got.Tokens) != 5 {
		t.Errorf("one after it: %d tokens, %v", len(got.Tokens), err)
	}
	if _, err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("one beside it: %v", err)
	}
}

// One that has to run alone and leaves before that holds nobody up.
func TestABatchGoesOnWhereTheFirstThatWaitsLeaves(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 3)
	stop := under(t, b, Request{Prompt: []int{1, 5}, MaxTokens: 900, IgnoreEnd: true})
	gone, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if _, err := b.Submit(gone, Request{Prompt: []int{1, 5}, MaxTokens: 5, Lookup: 2}, Hooks{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one that left: %v", err)
	}
	if _, err := b.Submit(t.Context(), Request{Prompt: []int{1, 6}, MaxTokens: 5, IgnoreEnd: true}, Hooks{}); err != nil {
		t.Error(err)
	}
	if got, err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("the other waited for a whole text: %d tokens, %v", len(got.Tokens), err)
	}
}

// A text that waits for another to read its prompt looks at its context too.
func TestABatchSeesWhoLeavesBeforeItsPromptIsRead(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 2)
	long := slices.Repeat([]int{5, 6, 7}, 300)
	stop := under(t, b, Request{Prompt: long, Chunk: 1, MaxTokens: 5})
	gone, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if _, err := b.Submit(gone, Request{Prompt: long, MaxTokens: 5}, Hooks{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one that left: %v", err)
	}
	if got, err := stop(); !errors.Is(err, context.Canceled) || len(got.Tokens) > 0 {
		t.Errorf("the other had read its prompt meanwhile: %d tokens, %v", len(got.Tokens), err)
	}
}

// A panic of a request that runs alone ends it too.
func TestABatchThatBreaksAlone(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 2)
	torn := Hooks{Piece: func(Piece) error { panic("torn") }}
	ended := make(chan error, 1)
	go func() {
		_, err := b.Submit(t.Context(), Request{Prompt: []int{1, 5}, MaxTokens: 5, Lookup: 2}, torn)
		ended <- err
	}()
	select {
	case err := <-ended:
		var torn *mlxthread.PanicError
		if !errors.As(err, &torn) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it never ended")
	}
}

// What a panic tears off is given back.
func TestABatchThatBreaksKeepsNothing(t *testing.T) {
	thread, r := threaded(t)
	b := newBatch(r, thread, 2)
	active := func() int64 {
		in, err := mlxthread.Call(t.Context(), thread, func(context.Context, *mlx.Scope) (mlx.Memory, error) { return mlx.MemoryInUse() })
		if err != nil {
			t.Fatal(err)
		}
		return in.Active
	}
	ask := Request{Prompt: []int{1, 5}, MaxTokens: 5, IgnoreEnd: true}
	submitted(t, b, []Request{ask}) // what is made once
	before := active()
	for range 3 {
		if _, err := b.Submit(t.Context(), ask, Hooks{Piece: func(Piece) error { panic("torn") }}); err == nil {
			t.Fatal("no error")
		}
	}
	if after := active(); after > before {
		t.Errorf("%d bytes are lost", after-before)
	}
}

func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkBatch(b, n) })
	}
}

func benchmarkBatch(b *testing.B, n int) {
	b.Helper()
	s, r := runner(b)
	var texts []*text
	loop := &Batch{Runner: r, Size: n}
	for i := range n {
		loop.begin(s, &ticket{Request: Request{Prompt: []int{1, 2 + i}, MaxTokens: 900, IgnoreEnd: true}, ctx: b.Context(), done: make(chan struct{})})
	}
	texts = slices.Clone(loop.texts)
	loop.step(s)
	for b.Loop() {
		if loop.step(s); len(loop.texts) < n {
			b.Fatal("a text has ended")
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
	for _, t := range texts {
		loop.end(t, nil)
	}
}
