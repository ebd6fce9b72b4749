package generate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/chat"
	"payload/mlxrunner/constrain"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/architectures"
	"payload/mlxrunner/sample"
)

const tiny = "../../internal/verify/tinymodel"

// answers are what llama-server gives with the same weights.
type answers struct {
	Completions []struct {
		Name, Prompt, Text, Stop string
		PromptTokens             int `json:"prompt_tokens"`
		Predict                  int `json:"n_predict"`
		Tokens                   []int
	}
	Chats []struct {
		Name, Content    string
		Messages         []chat.Message
		MaxTokens        int    `json:"max_tokens"`
		CompletionTokens int    `json:"completion_tokens"`
		FinishReason     string `json:"finish_reason"`
	}
}

func expected(t *testing.T) (a answers) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tiny, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Completions) == 0 || len(a.Chats) == 0 {
		t.Fatal("no answers")
	}
	return a
}

// runner loads the tiny model on a thread of the test. It does without the
// record of where each array was made, which would take most of the time;
// TestNothingLeaks has it.
func runner(tb testing.TB) (*mlx.Scope, *Runner) {
	tb.Helper()
	mlxtest.Library(tb)
	runtime.LockOSThread()
	stream, err := mlx.NewStream(mlx.CPU)
	if err != nil {
		tb.Fatal(err)
	}
	s := mlx.NewScope(stream)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		stream.Free()
	})
	return s, load(tb, s)
}

func load(tb testing.TB, s *mlx.Scope) *Runner {
	tb.Helper()
	return loadAs(tb, s, nil)
}

// rough loads the tiny model with weights that lost most of their digits: as a
// draft it guesses well, and not always.
func rough(tb testing.TB, s *mlx.Scope) *Runner {
	tb.Helper()
	half := mlx.BFloat16
	return loadAs(tb, s, &half)
}

func loadAs(tb testing.TB, s *mlx.Scope, dtype *mlx.Dtype) *Runner {
	tb.Helper()
	dir := filepath.Join(tiny, "safetensors")
	m, err := model.Load(context.Background(), s, dir, model.Options{Float: dtype})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	r, err := Open(dir, m)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Every array is freed, in every way of generating.
func TestNothingLeaks(t *testing.T) {
	s := mlxtest.Scope(t)
	r := load(t, s)
	if err := r.UseDraft(rough(t, s)); err != nil {
		t.Fatal(err)
	}
	r.Prefixes = 2
	defer r.Forget()
	all := sample.Settings{Temperature: 1, TopK: 20, TopP: 0.9, MinP: 0.01, Repetition: 1.1, Presence: 0.1, Bias: map[int]float64{3: -1}, Logprobs: 2}
	for _, by := range []Request{{}, {Lookup: 3}, {Draft: 3}} {
		for _, sampling := range []sample.Settings{{}, all} {
			q := Request{Prompt: r.encode(t, "In the harbour of Senn before the sun"), MaxTokens: 6, Sampling: sampling, Lookup: by.Lookup, Draft: by.Draft, Chunk: 1}
			generate(t, s, r, q)
			q.Grammar = constrain.Object()
			generate(t, s, r, q)
		}
	}
}

// A fragile model panics when it is asked for the last of so many times.
type fragile struct {
	model.Model
	left *int
}

func (f fragile) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	logits := f.Model.Forward(s, tokens, c)
	if *f.left--; *f.left == 0 {
		panic("torn")
	}
	return logits
}

// What a panic tears off is given back, wherever in a request it happens; the
// next request is as if there had been none. NoLeaks sees what is alive.
func TestAPanicLosesNothing(t *testing.T) {
	s := mlxtest.Scope(t)
	r := load(t, s)
	d := rough(t, s)
	left := 0
	r.Model, d.Model = fragile{r.Model, &left}, fragile{d.Model, &left}
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	limited(t, r, 16<<20)
	for _, by := range []Request{{}, {Grammar: constrain.Object()}, {Lookup: 3}, {Draft: 3}, {Draft: 3, Grammar: constrain.Object()}} {
		by.Prompt, by.MaxTokens, by.Chunk = r.encode(t, "In the harbour of Senn"), 8, 4
		by.Sampling = sample.Settings{Temperature: 1, Repetition: 1.1, Presence: 0.1, Bias: map[int]float64{3: -1}, Logprobs: 2}
		want := generate(t, s, r, by)
		for _, after := range []int{1, 2, 3, 4, 5, 7, 11, 17} {
			for _, batched := range []bool{false, true} {
				left = after
				torn := Hooks{Piece: func(Piece) error {
					if left--; left == 0 {
						panic("torn")
					}
					return nil
				}}
				own := mlx.NewScope(s.Stream())
				b := &Batch{Runner: r, Size: 1}
				func() {
					defer func() { _ = recover() }()
					if !batched {
						_, _ = r.Generate(t.Context(), own, by, torn)
						return
					}
					b.waiting = []*ticket{{Request: by, Hooks: torn, ctx: t.Context(), done: make(chan struct{})}}
					for b.admit(own); len(b.texts) > 0; {
						b.step(own)
					}
				}()
				for _, x := range b.texts {
					x.drop()
					if err := x.free(); err != nil {
						t.Error(err)
					}
				}
				if err := own.Close(); err != nil {
					t.Error(err)
				}
				if len(r.under) > 0 {
					t.Fatalf("%d texts are under way", len(r.under))
				}
			}
		}
		left = -1
		if got := generate(t, s, r, by); !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("afterwards %q, before %q", got.Text, want.Text)
		}
	}
}

func (r *Runner) encode(tb testing.TB, text string) []int {
	tb.Helper()
	ids, err := r.Tok.Encode(text, true)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

func generate(tb testing.TB, s *mlx.Scope, r *Runner, q Request) Result {
	tb.Helper()
	got, err := r.Generate(context.Background(), s, q, Hooks{})
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

func TestSameTextAsLlamaServer(t *testing.T) {
	s, r := runner(t)
	for _, c := range expected(t).Completions {
		for _, lookup := range []int{0, 4} {
			q := Request{Prompt: r.encode(t, c.Prompt), MaxTokens: c.Predict, Lookup: lookup}
			var streamed string
			got, err := r.Generate(context.Background(), s, q, Hooks{Piece: func(p Piece) error {
				streamed += p.Text
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"limit": StopLength, "eos": StopEnd}[c.Stop]
			if got.Text != c.Text || streamed != c.Text || !slices.Equal(got.Tokens, c.Tokens) || got.Finish != want || got.Prompt != c.PromptTokens {
				t.Errorf("%s, lookup %d: got %q (%s, prompt %d, tokens %v), want %q (%s, %d, %v); streamed %q",
					c.Name, lookup, got.Text, got.Finish, got.Prompt, got.Tokens, c.Text, want, c.PromptTokens, c.Tokens, streamed)
			}
		}
	}
}

// Conversations are answered as llama-server answers them.
func TestSameAnswersAsLlamaServer(t *testing.T) {
	s, r := runner(t)
	template, err := chat.Load(filepath.Join(tiny, "safetensors"), r.Tok)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range expected(t).Chats {
		prompt, _, err := template.Begin(c.Messages, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := generate(t, s, r, Request{Prompt: prompt, MaxTokens: c.MaxTokens})
		if got.Text != c.Content || got.Finish != c.FinishReason || len(got.Tokens) != c.CompletionTokens {
			t.Errorf("%s: %q (%s, %d tokens), want %q (%s, %d)", c.Name, got.Text, got.Finish, len(got.Tokens), c.Content, c.FinishReason, c.CompletionTokens)
		}
	}
}

// However a prompt is cut, the text is the same.
func TestChunks(t *testing.T) {
	s, r := runner(t)
	prompt := r.encode(t, expected(t).Completions[1].Prompt)
	want := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 8})
	for _, chunk := range []int{1, 7, 8, 9, 24} {
		var told []int
		got, err := r.Generate(context.Background(), s, Request{Prompt: prompt, MaxTokens: 8, Chunk: chunk},
			Hooks{Prefill: func(done, total int) { told = append(told, done, total) }})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("chunks of %d: %v, want %v", chunk, got.Tokens, want.Tokens)
		}
		if n := len(prompt) - 1; len(told) != 2*((n+chunk-1)/chunk) || told[len(told)-2] != n || told[0] != chunk {
			t.Errorf("chunks of %d: told %v", chunk, told)
		}
	}
}

// Guessing changes how fast text comes, never which: not when greedy, not when
// drawn, not with penalties. After a text that the model has not learnt, it
// wavers.
func TestLookupGivesThePlainText(t *testing.T) {
	s, r := runner(t)
	prompt := r.encode(t, "In the")
	for name, sampling := range map[string]sample.Settings{
		"greedy":    {},
		"drawn":     {Temperature: 1.5, Seed: 7},
		"penalties": {Repetition: 1.5, Frequency: 0.5, Presence: 0.5},
	} {
		want := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 150, Sampling: sampling, IgnoreEnd: true})
		for _, lookup := range []int{1, 3, 8} {
			got := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 150, Sampling: sampling, IgnoreEnd: true, Lookup: lookup})
			if !slices.Equal(got.Tokens, want.Tokens) {
				t.Errorf("%s, lookup %d: %v, want %v", name, lookup, got.Tokens, want.Tokens)
			}
			t.Logf("%s, lookup %d: %d rounds, %d of %d accepted", name, lookup, got.Rounds, got.Accepted, got.Guessed)
			if len(got.Tokens) != got.Rounds+got.Accepted {
				t.Errorf("%s, lookup %d: %d tokens from %d rounds and %d accepted", name, lookup, len(got.Tokens), got.Rounds, got.Accepted)
			}
		}
	}
}

// Eight callers share one model, its draft, what is kept and their thread, and
// each gets its own text.
func TestShared(t *testing.T) {
	mlxtest.Library(t)
	thread, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := thread.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir := filepath.Join(tiny, "safetensors")
	ctx := context.Background()
	m, err := mlxthread.Call(ctx, thread, func(ctx context.Context, s *mlx.Scope) (*model.Loaded, error) {
		return model.Load(ctx, s, dir, model.Options{})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := Open(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	r.Prefixes = 3
	defer r.Forget()
	all := expected(t).Completions
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 3 {
				c := all[(i+n)%len(all)]
				prompt, err := r.Tok.Encode(c.Prompt, true)
				if err != nil {
					t.Error(err)
					return
				}
				by := []Request{{}, {Lookup: 3}, {Draft: 3}}[(i+n)%3]
				got, err := mlxthread.Call(ctx, thread, func(ctx context.Context, s *mlx.Scope) (Result, error) {
					return r.Generate(ctx, s, Request{Prompt: prompt, MaxTokens: c.Predict, Lookup: by.Lookup, Draft: by.Draft}, Hooks{})
				})
				if err != nil || got.Text != c.Text {
					t.Errorf("%s: %q, %v", c.Name, got.Text, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSeeds(t *testing.T) {
	s, r := runner(t)
	prompt := r.encode(t, "In the")
	text := func(seed uint64) []int {
		return generate(t, s, r, Request{Prompt: prompt, MaxTokens: 24, Sampling: sample.Settings{Temperature: 1.5, Seed: seed}}).Tokens
	}
	if a, b := text(1), text(1); !slices.Equal(a, b) {
		t.Errorf("seed 1 gave %v and %v", a, b)
	}
	if a, b := text(1), text(2); slices.Equal(a, b) {
		t.Errorf("seeds 1 and 2 both gave %v", a)
	}
}

// A stop string ends the text before itself, whatever tokens it comes in, and
// no part of it is streamed.
func TestStopStrings(t *testing.T) {
	s, r := runner(t)
	if err := r.UseDraft(rough(t, s)); err != nil {
		t.Fatal(err)
	}
	c := expected(t).Completions[0]
	for _, stop := range []string{"the gulls", ".", " sun", "e rope mak", "ulls, then the rope"} {
		for _, q := range []Request{{}, {Lookup: 5}, {Draft: 5}} { // it may lie within a round
			var streamed string
			q.Prompt, q.MaxTokens, q.Stop = r.encode(t, c.Prompt), c.Predict, []string{"never", stop}
			got, err := r.Generate(context.Background(), s, q, Hooks{Piece: func(p Piece) error { streamed += p.Text; return nil }})
			if err != nil {
				t.Fatal(err)
			}
			want, _, found := strings.Cut(c.Text, stop)
			if !found {
				t.Fatalf("%q is not in the text", stop)
			}
			if got.Text != want || streamed != want || got.Finish != StopEnd || got.StopText != stop {
				t.Errorf("%q: %q (%s, %q), streamed %q, want %q", stop, got.Text, got.Finish, got.StopText, streamed, want)
			}
		}
	}
}

func TestCancelled(t *testing.T) {
	s, r := runner(t)
	ctx, cancel := context.WithCancel(context.Background())
	got, err := r.Generate(ctx, s, Request{Prompt: r.encode(t, "In the"), MaxTokens: 100, IgnoreEnd: true}, Hooks{Piece: func(Piece) error {
		cancel()
		return nil
	}})
	if !errors.Is(err, context.Canceled) || len(got.Tokens) != 1 {
		t.Errorf("cancelled at the first token: %d tokens, error %v", len(got.Tokens), err)
	}
	if got, err = r.Generate(ctx, s, Request{Prompt: r.encode(t, "In the")}, Hooks{}); !errors.Is(err, context.Canceled) || len(got.Tokens) != 0 {
		t.Errorf("cancelled before: %d tokens, error %v", len(got.Tokens), err)
	}
}

func TestLimits(t *testing.T) {
	s, r := runner(t)
	r.Context = 20
	prompt := r.encode(t, "The harbour of Senn wakes") // 11
	if got := generate(t, s, r, Request{Prompt: prompt, IgnoreEnd: true}); len(got.Tokens) != 9 || got.Finish != StopLength {
		t.Errorf("%d tokens, %s; the context has room for 9", len(got.Tokens), got.Finish)
	}
	_, err := r.Generate(context.Background(), s, Request{Prompt: slices.Concat(prompt, prompt)}, Hooks{})
	var full *ContextError
	if !errors.As(err, &full) {
		t.Errorf("a prompt longer than the context: %v", err)
	}
	for _, q := range []Request{{}, {Prompt: []int{512}}, {Prompt: prompt, Stop: []string{""}}, {Prompt: prompt, Sampling: sample.Settings{TopP: 2}}} {
		if _, err := r.Generate(context.Background(), s, q, Hooks{}); err == nil {
			t.Errorf("no error for %+v", q)
		}
	}
}

func TestLogprobs(t *testing.T) {
	s, r := runner(t)
	var tokens []Token
	_, err := r.Generate(context.Background(), s, Request{Prompt: r.encode(t, "In the"), MaxTokens: 3, Sampling: sample.Settings{Logprobs: 3}},
		Hooks{Piece: func(p Piece) error { tokens = append(tokens, p.Tokens...); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	// expected.json's first probe.
	first := tokens[0]
	if len(tokens) != 3 || first.ID != 290 || len(first.Top) != 3 || first.Top[0].Token != 290 || first.Top[1].Token != 488 ||
		first.Logprob != first.Top[0].Logprob || first.Logprob < -1.1 || first.Logprob > -0.7 {
		t.Errorf("%+v", tokens)
	}
}

// The ids that end a text are united, whichever files name them.
func TestEndIDsUnited(t *testing.T) {
	s, r := runner(t)
	_ = s
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := &model.Config{EOS: []int{3}}
	check := func(want ...int) {
		t.Helper()
		got, err := EndIDs(dir, config, r.Tok)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	check(3)
	write("generation_config.json", `{"eos_token_id": [5, 3]}`)
	check(3, 5)
	write("tokenizer_config.json", `{"eos_token": {"content": "<|im_end|>"}}`)
	check(2, 3, 5)
	write("generation_config.json", `{"eos_token_id": 7}`)
	write("tokenizer_config.json", `{"eos_token": "<|im_start|>"}`)
	check(1, 3, 7)
	write("tokenizer_config.json", `{"eos_token": "</s>"}`)
	_, err := EndIDs(dir, config, r.Tok)
	mlxtest.Fails(t, err, "tokenizer_config.json", `"</s>"`)
}

func TestStopper(t *testing.T) {
	for _, c := range []struct {
		stops  []string
		pieces []string
		sure   []string
		stop   string
		rest   string
	}{
		{[]string{"END"}, []string{"a", "E", "N", "x"}, []string{"a", "", "", "ENx"}, "", ""},
		{[]string{"END"}, []string{"aE", "ND", ""}, []string{"a", ""}, "END", ""},
		{[]string{"END"}, []string{"aE"}, []string{"a"}, "", "E"},
		{[]string{"aab"}, []string{"a", "a", "a", "b"}, []string{"", "", "a", ""}, "aab", ""},
		{[]string{"\n\n", "!"}, []string{"x\n", "y!z"}, []string{"x", "\ny"}, "!", ""},
		{nil, []string{"x"}, []string{"x"}, "", ""},
	} {
		p := stopper{stops: c.stops}
		var sure []string
		var stop string
		for _, text := range c.pieces {
			var s string
			s, stop = p.push(text)
			sure = append(sure, s)
			if stop != "" {
				break
			}
		}
		if rest := p.flush(); !reflect.DeepEqual(sure, c.sure) || stop != c.stop || rest != c.rest {
			t.Errorf("%q in %q: %q, %q, rest %q", c.stops, c.pieces, sure, stop, rest)
		}
	}
}

func TestGuess(t *testing.T) {
	for _, c := range []struct {
		text []int
		n    int
		want []int
	}{
		{[]int{1, 2, 3, 4, 1, 2, 3}, 2, []int{4, 1}},
		{[]int{5, 2, 9, 8, 2}, 8, []int{9, 8, 2}},
		{[]int{2, 7, 2, 8, 2}, 1, []int{8}}, // the last time counts
		{[]int{1, 2, 3}, 4, nil},
		{[]int{1, 1}, 0, []int{}},
	} {
		if got := guess(c.text, c.n); !slices.Equal(got, c.want) {
			t.Errorf("guess(%v, %d) = %v, want %v", c.text, c.n, got, c.want)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	s, r := runner(b)
	prompt := r.encode(b, "The harbour of Senn wakes")
	b.ResetTimer()
	n := 0
	var rate float64
	for range b.N {
		got := generate(b, s, r, Request{Prompt: prompt, MaxTokens: 256, IgnoreEnd: true})
		n += len(got.Tokens)
		rate = got.DecodeRate()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(rate, "decode_tps")
}
