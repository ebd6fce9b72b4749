package generate

import (
	"context"
	"errors"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/model"
	"payload/mlxrunner/sample"
)

// script is a model whose likeliest token after so many is told in advance. It
// remembers the tokens that it read, and counts where they are not those of the
// text: then it was not taken back as it should have been.
type script struct {
	vocab int
	next  func(place int) int // the token at a place of prompt and text
	right func(place, token int) bool
	wrong int
}

func (m *script) NewCache() *cache.Cache { return cache.New(0) }

func (m *script) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	n := tokens.Dim(1)
	at := c.Offset()
	k := s.Reshape(s.AsType(tokens, mlx.Float32), 1, 1, n, 1)
	seen, _ := c.Layers[0].Update(s, k, k)
	// What it remembers is looked at before the last of what is new, which may
	// be a guess of its own.
	got, err := mlx.Floats(s, seen)
	if err != nil {
		return nil
	}
	for i, id := range got[:at] {
		if !m.right(i, int(id)) {
			m.wrong++
		}
	}
	logits := make([]float32, n*m.vocab)
	for i := range n {
		logits[i*m.vocab+m.next(at+i+1)] = 30
	}
	return mlx.New(s, logits, 1, n, m.vocab)
}

// Greedy text is the plain one for every pattern of right and wrong guesses, in
// every order of two rounds, and both memories are taken back to it.
func TestEveryPatternOfGuesses(t *testing.T) {
	s, r := runner(t)
	prompt := r.encode(t, "The harbour of Senn wakes")
	const n = 3
	var patterns []int // every pattern of a round after every other
	for a := range 1 << n {
		for b := range 1 << n {
			patterns = append(patterns, a, b)
		}
	}
	want := generate(t, s, r, Request{Prompt: prompt, MaxTokens: len(patterns) * (n + 1), IgnoreEnd: true})
	text := slices.Concat(prompt, want.Tokens, make([]int, n+1))
	for _, drawn := range []float64{0, 0.001} { // at so low a temperature the likeliest is drawn
		round, first := 0, len(prompt)
		met := map[[2]int]bool{}
		var accepted []int
		d := &script{vocab: r.Vocab}
		d.next = func(place int) int {
			id := text[min(place, len(text)-1)]
			if i := place - first; i >= 0 && i < n && patterns[round%len(patterns)]>>i&1 == 0 {
				return (id + 1) % r.Vocab // wrong
			}
			return id
		}
		// All before the round that is guessed now is the text's.
		d.right = func(place, token int) bool { return place >= first || token == text[place] }
		if err := r.UseDraft(&Runner{Model: d, Tok: r.Tok, Vocab: r.Vocab}); err != nil {
			t.Fatal(err)
		}
		got, err := r.Generate(context.Background(), s, Request{Prompt: prompt, MaxTokens: len(want.Tokens), IgnoreEnd: true, Draft: n, Sampling: sample.Settings{Temperature: drawn}},
			Hooks{Piece: func(p Piece) error {
				accepted = append(accepted, len(p.Tokens)-1)
				if round > 0 {
					met[[2]int{patterns[(round-1)%len(patterns)], patterns[round%len(patterns)]}] = true
				}
				first += len(p.Tokens)
				round++
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("temperature %v: the text is another than the plain one", drawn)
		}
		if len(met) < 1<<n*1<<n {
			t.Errorf("only %d pairs of patterns of %d", len(met), 1<<n*1<<n)
		}
		for i, k := range accepted[:len(accepted)-n] { // the last rounds guess less
			right := 0
			for right < n && patterns[i%len(patterns)]>>right&1 == 1 {
				right++
			}
			if k != right {
				t.Fatalf("round %d, pattern %03b: %d accepted", i, patterns[i%len(patterns)], k)
			}
		}
		if d.wrong > 0 {
			t.Errorf("the draft remembered %d tokens that are not the text's", d.wrong)
		}
		if got.Rounds+got.Accepted != len(got.Tokens) || got.Rounds != round || got.Guessed <= got.Accepted {
			t.Errorf("%d rounds, %d of %d guesses right, %d tokens", got.Rounds, got.Accepted, got.Guessed, len(got.Tokens))
		}
	}
}

// A real draft changes how fast text comes, never which, drawn or not.
func TestDraftGivesThePlainText(t *testing.T) {
	s, r := runner(t)
	if err := r.UseDraft(rough(t, s)); err != nil {
		t.Fatal(err)
	}
	prompt := r.encode(t, "In the")
	for name, sampling := range map[string]sample.Settings{
		"greedy":    {},
		"drawn":     {Temperature: 1, TopP: 0.95, Seed: 7},
		"hot":       {Temperature: 2.5, Seed: 3},
		"penalties": {Temperature: 0.8, Repetition: 1.5, Frequency: 0.5, Presence: 0.5, Logprobs: 2},
	} {
		ask := Request{Prompt: prompt, MaxTokens: 60, Sampling: sampling, IgnoreEnd: true}
		want := generate(t, s, r, ask)
		ask.Draft = 4
		got := generate(t, s, r, ask)
		t.Logf("%s: %d rounds, %d of %d accepted", name, got.Rounds, got.Accepted, got.Guessed)
		if !slices.Equal(got.Tokens, want.Tokens) || got.Text != want.Text {
			t.Errorf("%s: %v, want %v", name, got.Tokens, want.Tokens)
		}
		if got.Accepted*2 < got.Guessed {
			t.Errorf("%s: only %d of %d accepted", name, got.Accepted, got.Guessed)
		}
	}
}

// A draft stops to guess where its own context ends; a prompt beyond it is not
// even read.
func TestDraftOfAShorterContext(t *testing.T) {
	s, r := runner(t)
	d := rough(t, s)
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	prompt := r.encode(t, "The harbour of Senn wakes") // 11
	want := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 30, IgnoreEnd: true})
	for context, guessed := range map[int]int{8: 0, 11: 0, 12: 1, 20: 8} {
		d.Context = context
		got := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 30, IgnoreEnd: true, Draft: 4})
		if !slices.Equal(got.Tokens, want.Tokens) || got.Guessed != guessed {
			t.Errorf("a context of %d: %d guessed, want %d", context, got.Guessed, guessed)
		}
	}
}

// Vocabularies that are rounded up differently belong together all the same.
func TestDraftOfAnotherWidth(t *testing.T) {
	s := mlxtest.Scope(t)
	logits := mlx.New(s, []float32{1, 2, 3}, 1, 3)
	mlxtest.Close(t, s, pad(s, logits, 2), []int{1, 2}, []float32{1, 2}, mlxtest.Tolerance{})
	mlxtest.Close(t, s, pad(s, logits, 4), []int{1, 4}, []float32{1, 2, 3, never}, mlxtest.Tolerance{})
}

// What a draft's tokenizer has otherwise is named.
func TestDraftOfAnotherTokenizer(t *testing.T) {
	s, r := runner(t)
	other := rough(t, s)
	other.Tok = tokens(t, "a", "b", "c")
	err := r.UseDraft(other)
	var draft *DraftError
	if !errors.As(err, &draft) {
		t.Errorf("%v", err)
	}
	mlxtest.Fails(t, err, `token 0 is "<|bos|>" here and "a" in the draft`)
	few := &Runner{Tok: tokens(t, "a", "b"), Vocab: 8}
	mlxtest.Fails(t, few.UseDraft(&Runner{Tok: tokens(t, "a", "b", "c"), Vocab: 3}), `token 2 is "c" in the draft, and there is none here`)
	mlxtest.Fails(t, (&Runner{Tok: tokens(t, "a", "b", "c"), Vocab: 3}).UseDraft(few), `token 2 is "c" here, and the draft has none`)
	if err := few.UseDraft(&Runner{Tok: tokens(t, "a", "b"), Vocab: 2}); err != nil {
		t.Error(err)
	}
	for _, q := range []Request{{Draft: 2}, {Draft: -1}, {Draft: 1, Lookup: 1}} {
		q.Prompt = []int{5}
		if _, err := r.Generate(context.Background(), s, q, Hooks{}); err == nil {
			t.Errorf("no error for %+v", q)
		}
	}
}

// windowed is the model with a window of 8 tokens in every layer.
type windowed struct{ model.Model }

func (m windowed) NewCache() *cache.Cache {
	c := m.Model.NewCache()
	return cache.New(slices.Repeat([]int{8}, len(c.Layers))...)
}

// Windows that dropped tokens long ago are taken back like others: they hold
// what guesses may need. Several places at once are rounded otherwise than one,
// which may turn a draw in thousands; what was computed until then is the same.
func TestGuessesBeyondAWindow(t *testing.T) {
	s, r := runner(t)
	d := rough(t, s)
	r.Context = 0
	r.Model, d.Model = windowed{r.Model}, windowed{d.Model}
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	prompt := r.encode(t, "The harbour of Senn wakes")
	turned := 0
	for i := range 6 { // so that memories grow at other places of a round
		ask := Request{Prompt: prompt[i:], MaxTokens: 280, IgnoreEnd: true, Sampling: sample.Settings{Temperature: 3, Seed: uint64(i)}}
		want, wanted := told(t, s, r, ask)
		for _, by := range []Request{{Draft: 8}, {Lookup: 4}} {
			ask.Draft, ask.Lookup = by.Draft, by.Lookup
			got, is := told(t, s, r, ask)
			n := common(got.Tokens, want.Tokens)
			if off := far(is[:n], wanted[:n]); off > 1e-3 || got.Accepted == got.Guessed {
				t.Errorf("draft %d, lookup %d: logprobs are off by %g in %d tokens; %d of %d guesses right", ask.Draft, ask.Lookup, off, n, got.Accepted, got.Guessed)
			}
			if n < len(want.Tokens) {
				turned++
			}
		}
	}
	if turned > 2 {
		t.Errorf("%d texts of 12 are not the plain ones", turned)
	}
}

// forgetful is one whose memory keeps nothing beyond its window.
type forgetful struct{ windowed }

func (m forgetful) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	c.Hold(0)
	return m.Model.Forward(s, tokens, c)
}

// What can't be taken back is an error that says so, never another text.
func TestGuessesThatCannotBeTakenBack(t *testing.T) {
	s, r := runner(t)
	d := rough(t, s)
	d.Model = forgetful{windowed{d.Model}} // a window that is wrong for it: guesses are bad
	if err := r.UseDraft(d); err != nil {
		t.Fatal(err)
	}
	prompt := r.encode(t, "The harbour of Senn wakes")
	want := generate(t, s, r, Request{Prompt: prompt, MaxTokens: 700, IgnoreEnd: true})
	got, err := r.Generate(context.Background(), s, Request{Prompt: prompt, MaxTokens: 700, IgnoreEnd: true, Draft: 4}, Hooks{})
	var gone *cache.RollbackError
	if !errors.As(err, &gone) || gone.Window != 8 {
		t.Errorf("after %d tokens: %v", len(got.Tokens), err)
	}
	if !slices.Equal(got.Tokens, want.Tokens[:len(got.Tokens)]) {
		t.Error("the text until then is another")
	}
}
