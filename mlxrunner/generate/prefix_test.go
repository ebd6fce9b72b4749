package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/quant"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/model"
	"payload/mlxrunner/sample"
)

// told generates and gives the tokens with their logprobs, which show more of
// what was computed than the text.
func told(tb testing.TB, s *mlx.Scope, r *Runner, q Request) (Result, []float64) {
	tb.Helper()
	q.Sampling.Logprobs = -1
	var out []float64
	got, err := r.Generate(context.Background(), s, q, Hooks{Piece: func(p Piece) error {
		for _, t := range p.Tokens {
			out = append(out, t.Logprob)
		}
		return nil
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return got, out
}

func far(a, b []float64) (worst float64) {
	for i := range min(len(a), len(b)) {
		worst = max(worst, math.Abs(a[i]-b[i]))
	}
	return worst
}

// A prompt that begins as an earlier one is answered as if nothing was
// remembered: bit by bit where the same tokens are computed at once, and within
// rounding else.
func TestPrefixes(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	long := r.encode(t, expected(t).Completions[1].Prompt) // the system's part
	head := long[:len(long)*2/3]
	a := slices.Concat(head, r.encode(t, " The gulls of Senn")[1:])
	b := slices.Concat(head, r.encode(t, " In the morning")[1:])
	for _, packed := range []bool{false, true} {
		if r.KV = (quant.Params{}); packed {
			r.KV = quant.Params{Mode: quant.Affine, Bits: 8, Group: 32}
		}
		for _, chunk := range []int{1, 0} {
			ask := func(prompt []int) Request {
				return Request{Prompt: prompt, MaxTokens: 20, IgnoreEnd: true, Chunk: chunk}
			}
			check := func(what string, prompt []int, cached int) Result {
				t.Helper()
				r.Prefixes = 0
				kept := r.prefixes
				r.prefixes = nil
				cold, want := told(t, s, r, ask(prompt))
				r.Prefixes, r.prefixes = 3, kept
				got, is := told(t, s, r, ask(prompt))
				if !slices.Equal(got.Tokens, cold.Tokens) || got.Cached != cached || got.Prompt != len(prompt) {
					t.Errorf("%s, chunk %d: cached %d, want %d; %v, cold %v", what, chunk, got.Cached, cached, got.Tokens, cold.Tokens)
				}
				if off := far(is, want); off > 1e-4 || chunk == 1 && off != 0 {
					t.Errorf("%s, chunk %d: logprobs are off by %g", what, chunk, off)
				}
				return got
			}
			first := check("the first", a, 0)
			check("the same head", b, common(a, b))
			check("the first again", a, len(a)-1)
			// As a conversation goes on: all that was remembered is taken.
			check("its continuation", slices.Concat(a, first.Tokens, head[:9]), len(a)+len(first.Tokens)-1)
			check("another text", r.encode(t, "Far from the sea there is another town, which nobody knows"), 0)
			if n, bytes := r.Kept(); n != 3 || bytes == 0 {
				t.Errorf("%d kept, %d bytes", n, bytes)
			}
			r.Forget()
		}
	}
}

// What was used the longest ago makes place first, and nothing is kept twice.
func TestPrefixesMakePlace(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes = 2
	prompts := make([][]int, 3)
	for i := range prompts {
		prompts[i] = append([]int{0, 40 + i}, r.encode(t, "The harbour of Senn wakes before the sun")...)
	}
	cached := func(i int) int { return generate(t, s, r, Request{Prompt: prompts[i], MaxTokens: 2}).Cached }
	all := len(prompts[0]) - 1
	for step, c := range []struct{ prompt, want int }{{0, 0}, {1, 0}, {0, all}, {2, 0}, {0, all}, {1, 0}, {2, 0}} {
		if got := cached(c.prompt); got != c.want {
			t.Errorf("step %d: %d tokens taken over, want %d", step, got, c.want)
		}
	}
	for range 5 {
		cached(2)
	}
	if n, _ := r.Kept(); n != 2 || common(r.prefixes[0].tokens, r.prefixes[1].tokens) > 1 {
		t.Errorf("%d kept", n)
	}
	r.Prefixes = 0
	if generate(t, s, r, Request{Prompt: r.encode(t, "one two three four five six seven eight nine"), MaxTokens: 2}); len(r.prefixes) != 2 {
		t.Error("switched off, it keeps")
	}
}

// A window that rolled past the common part is of no use; one that did not is.
func TestPrefixesOfAWindow(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Model, r.Prefixes, r.Context = windowed{r.Model}, 4, 0
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")
	first := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 600, IgnoreEnd: true})
	if got := generate(t, s, r, Request{Prompt: append(slices.Clone(prompt), 9, 9), MaxTokens: 2}); got.Cached != 0 {
		t.Errorf("%d tokens taken over from a window that dropped them", got.Cached)
	}
	on := slices.Concat(prompt, first.Tokens, prompt)
	if got := generate(t, s, r, Request{Prompt: on, MaxTokens: 2}); got.Cached != len(prompt)+len(first.Tokens)-1 {
		t.Errorf("%d tokens taken over where the text goes on", got.Cached)
	}
}

// turning is a model whose positions mean another thing in texts of more than 30.
type turning struct{ model.Model }

func (m turning) NewCache() *cache.Cache {
	c := m.Model.NewCache()
	c.Turn = 30
	return c
}

func TestPrefixesAcrossATurn(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Model, r.Prefixes = turning{r.Model}, 4
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")[:20]
	long := append(slices.Clone(prompt), make([]int, 12)...)
	for step, c := range []struct {
		prompt []int
		want   int
	}{{prompt, 0}, {prompt, 19}, {long, 0}, {long, 31}, {append(slices.Clone(prompt), 7), 20}} {
		if got := generate(t, s, r, Request{Prompt: c.prompt, MaxTokens: 4, IgnoreEnd: true}); got.Cached != c.want {
			t.Errorf("step %d: %d tokens taken over, want %d", step, got.Cached, c.want)
		}
	}
}

// Guessing goes on from what both models remember; a draft that was not asked
// before reads the prompt.
func TestPrefixesAndGuesses(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	d := rough(t, s)
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")
	other := slices.Concat(prompt, r.encode(t, " of Senn")[1:])
	sampling := sample.Settings{Temperature: 1, Seed: 4}
	ask := func(q Request, prompt []int) Result {
		q.Prompt, q.MaxTokens, q.IgnoreEnd, q.Sampling = prompt, 30, true, sampling
		return generate(t, s, r, q)
	}
	want, wantOther := ask(Request{}, prompt), ask(Request{}, other)
	on := slices.Concat(prompt, want.Tokens, other)
	wantOn := ask(Request{}, on)
	r.Prefixes = 3
	for i, q := range []Request{{}, {Draft: 3}, {Lookup: 3}, {Draft: 5}} {
		for _, c := range []struct {
			prompt []int
			want   Result
		}{{prompt, want}, {other, wantOther}, {on, wantOn}} {
			got := ask(q, c.prompt)
			if !slices.Equal(got.Tokens, c.want.Tokens) || got.Cached == 0 && i > 0 {
				t.Errorf("draft %d, lookup %d: cached %d, %v, want %v", q.Draft, q.Lookup, got.Cached, got.Tokens, c.want.Tokens)
			}
			if q.Draft > 0 && got.Accepted*2 < got.Guessed {
				t.Errorf("draft %d: only %d of %d guesses right", q.Draft, got.Accepted, got.Guessed)
			}
		}
	}
}

// What a request that was given up had read is not lost; after an error nothing
// is trusted.
func TestPrefixesOfWhatWasGivenUp(t *testing.T) {
	s, r := runner(t)
	t.Cleanup(r.Forget)
	r.Prefixes = 4
	prompt := r.encode(t, "The harbour of Senn wakes before the sun and the gulls")
	want := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 10})
	r.Forget()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := r.Generate(ctx, s, Request{Prompt: prompt, Chunk: 6}, Hooks{Prefill: func(done, _ int) {
		if done == 18 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 10}); got.Cached != 18 || got.Text != want.Text {
		t.Errorf("%d tokens taken over; %q, want %q", got.Cached, got.Text, want.Text)
	}
	r.Forget()
	enough := fmt.Errorf("that is enough: %w", context.Canceled)
	if _, err := r.Generate(context.Background(), s, Request{Prompt: prompt}, Hooks{Piece: func(Piece) error { return enough }}); !errors.Is(err, enough) {
		t.Error(err)
	}
	if n, _ := r.Kept(); n != 1 {
		t.Errorf("%d kept of what was given up by a hook", n)
	}
	r.Forget()
	if _, err := r.Generate(context.Background(), s, Request{Prompt: prompt}, Hooks{Piece: func(Piece) error { return errors.New("the reader is gone") }}); err == nil {
		t.Error("no error")
	}
	if n, _ := r.Kept(); n != 0 {
		t.Errorf("%d kept after an error", n)
	}
}
