package generate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/tokenizer"
)

// tokens makes a tokenizer of words, by their ids; <0x..> are bytes.
func tokens(t *testing.T, words ...string) *tokenizer.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for id, word := range words {
		vocab[word] = id
	}
	text, err := json.Marshal(map[string]any{
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}, "byte_fallback": true},
		"decoder": map[string]any{"type": "Sequence", "decoders": []any{
			map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// says generates what a script says in words, after a prompt of one.
func says(t *testing.T, s *mlx.Scope, q Request, script []int, words ...string) (Result, []string) {
	t.Helper()
	m := &scripted{vocab: len(words), text: append([]int{0}, script...)}
	r := &Runner{Model: m, Tok: tokens(t, words...), Vocab: len(words), due: crosses}
	if err := r.UseDraft(&Runner{Model: m, Tok: r.Tok, Vocab: r.Vocab}); err != nil {
		t.Fatal(err)
	}
	var pieces []string
	q.Prompt, q.MaxTokens = []int{0}, len(script)
	got, err := r.Generate(context.Background(), s, q, Hooks{Piece: func(p Piece) error {
		pieces = append(pieces, p.Text)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return got, pieces
}

// scripted is a model that says a text, whatever it reads.
type scripted struct {
	vocab int
	text  []int
}

func (m *scripted) NewCache() *cache.Cache { return cache.New(0) }

func (m *scripted) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	n, at := tokens.Dim(1), c.Offset()
	k := s.Reshape(s.AsType(tokens, mlx.Float32), 1, 1, n, 1)
	c.Layers[0].Update(s, k, k)
	logits := make([]float32, n*m.vocab)
	for i := range n {
		logits[i*m.vocab+m.text[min(at+i+1, len(m.text)-1)]] = 30
	}
	return mlx.New(s, logits, 1, n, m.vocab)
}

// An emoji that comes a byte a token is given when it is whole, and bytes that
// can become none as soon as that is sure, in rounds of one token or several.
func TestTextOfBytes(t *testing.T) {
	s := mlxtest.Scope(t)
	words := []string{"a", "<0xF0>", "<0x9F>", "<0x8E>", "<0x89>", "<0xFF>", "b"}
	script := []int{1, 2, 3, 4, 6, 1, 2, 0, 5, 4, 6, 1, 2, 3}
	const want = "🎉b\uFFFDa\uFFFD\uFFFDb\uFFFD"
	got, pieces := says(t, s, Request{}, script, words...)
	if wanted := []string{"", "", "", "🎉", "b", "", "", "\uFFFDa", "\uFFFD", "\uFFFD", "b", "", "", "\uFFFD"}; got.Text != want || !slices.Equal(pieces, wanted) {
		t.Errorf("%q in %q, want %q in %q", got.Text, pieces, want, wanted)
	}
	for _, q := range []Request{{Draft: 3}, {Draft: 5}, {Lookup: 3}} {
		got, pieces := says(t, s, q, script, words...)
		if got.Text != want || strings.Join(pieces, "") != want {
			t.Errorf("draft %d, lookup %d: %q in %q, want %q", q.Draft, q.Lookup, got.Text, pieces, want)
		}
	}
}

// faulty multiplies what doesn't fit once it has read so many tokens.
type faulty struct {
	*scripted
	at int
}

func (m faulty) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	if c.Offset() >= m.at {
		s.Matmul(s.Ones(mlx.Float32, 2, 3), s.Ones(mlx.Float32, 2, 3))
	}
	return m.scripted.Forward(s, tokens, c)
}

// A computation that fails is the error of its request alone, and nothing is
// kept of it.
func TestABadMatmulEndsOneRequest(t *testing.T) {
	s := mlxtest.Scope(t)
	m := faulty{&scripted{vocab: 3, text: slices.Repeat([]int{0, 1, 2}, 20)}, 35}
	r := &Runner{Model: m, Tok: tokens(t, "a", "b", "c"), Vocab: 3, Prefixes: 3, due: crosses}
	defer r.Forget()
	for _, q := range []Request{{}, {Lookup: 3}} {
		q.Prompt = slices.Repeat([]int{0, 1, 2}, 10)
		for _, c := range []struct {
			tokens int
			fails  bool
		}{{10, true}, {3, false}, {10, true}} {
			q.MaxTokens = c.tokens
			own := mlx.NewScope(s.Stream()) // as each request has one on an MLX thread
			got, err := r.Generate(context.Background(), own, q, Hooks{})
			if err := own.Close(); (err != nil) != c.fails {
				t.Errorf("%d tokens, lookup %d: the scope has %v", c.tokens, q.Lookup, err)
			}
			if c.fails {
				mlxtest.Fails(t, err, "Matmul")
			} else if err != nil || len(got.Tokens) != c.tokens {
				t.Errorf("%d tokens, lookup %d: %d tokens, %v", c.tokens, q.Lookup, len(got.Tokens), err)
			}
		}
		r.Forget()
	}
}
