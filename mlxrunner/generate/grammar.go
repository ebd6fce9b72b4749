package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"payload/mlx"
	"payload/mlxrunner/constrain"
	"payload/mlxrunner/sample"
	"payload/mlxrunner/tokenizer"
)

// A lexicon is a tokenizer's vocabulary as grammars see it.
type lexicon struct {
	*constrain.Vocabulary
	otherAtBegin []int // ids that add something else where a text begins
}

func newLexicon(tok *tokenizer.Tokenizer, end []int) (lexicon, error) {
	added, other, err := tok.Bytes()
	if err != nil {
		return lexicon{}, fmt.Errorf("reading the vocabulary for a grammar: %w", err)
	}
	return lexicon{constrain.NewVocabulary(added, end), other}, nil
}

// A guide keeps a text in a grammar. The nil one lets it be anything.
type guide struct {
	*constrain.Automaton
	state  *constrain.State
	never  []int // ids that may not come: ends that are to be ignored
	begin  []int // nor these at the beginning
	places int   // of tokens that were read
}

func (g *generation) newGuide() (*guide, error) {
	if g.Grammar == nil {
		return nil, nil
	}
	words, err := g.lexicon()
	if err != nil {
		return nil, err
	}
	a := g.Grammar.Bind(words.Vocabulary)
	out := &guide{Automaton: a, state: a.Start(), begin: words.otherAtBegin}
	if g.IgnoreEnd {
		out.never = g.End
	}
	return out, nil
}

// read takes a token that was chosen into the text.
func (g *guide) read(id int) error {
	if g == nil {
		return nil
	}
	next := g.Next(g.state, id)
	if next == nil {
		return fmt.Errorf("following the grammar, after %d tokens: biases and the like leave no token that may come", g.places)
	}
	g.state = next
	g.places++
	return nil
}

// complete tells whether nothing may follow.
func (g *guide) complete() bool { return g != nil && g.state.Complete() }

// ahead gives the states before each guess and behind the last. Guesses that
// may not come, or that end the text, are left out with all behind them.
func (g *guide) ahead(s *mlx.Scope, guesses []*mlx.Array) ([]*mlx.Array, []*constrain.State, error) {
	if g == nil {
		return guesses, make([]*constrain.State, len(guesses)+1), nil
	}
	states := []*constrain.State{g.state}
	for i, guess := range guesses {
		state := states[i]
		if !g.follows(s, guess, &state) {
			return guesses[:i], states, s.Err()
		}
		states = append(states, state)
	}
	return guesses, states, nil
}

// follows takes a guess into a state, and tells whether it may come and the
// text goes on behind it.
func (g *guide) follows(s *mlx.Scope, guess *mlx.Array, state **constrain.State) bool {
	if g == nil {
		return true
	}
	id, err := mlx.Item[uint32](s, guess)
	if err != nil {
		s.Fail(err)
		return false
	}
	*state = g.Next(*state, int(id))
	return *state != nil && !(*state).Complete()
}

// allowed is what may come in a state, bool [1, vocabulary]; first is at the
// beginning of the text.
func (g *guide) allowed(s *mlx.Scope, state *constrain.State, vocabulary int, first bool) (*mlx.Array, error) {
	mask := make([]bool, vocabulary)
	any := g.Allowed(state, mask)
	never := g.never
	if first {
		never = slices.Concat(never, g.begin)
	}
	for _, id := range never {
		if id < len(mask) {
			mask[id] = false
		}
	}
	if !any || len(never) > 0 && !slices.Contains(mask, true) {
		return nil, fmt.Errorf("following the grammar, after %d tokens: the vocabulary has no token that may come", g.places)
	}
	return mlx.New(s, mask, 1, vocabulary), nil
}

// choose is the sampler's choice of logits [1, vocabulary] among what may come
// in a state.
func (g *guide) choose(s *mlx.Scope, sampler *sample.Sampler, logits *mlx.Array, place int, state *constrain.State) (sample.Choice, error) {
	if g == nil {
		return sampler.Next(s, logits, place), nil
	}
	allowed, err := g.allowed(s, state, logits.Dim(1), place == 0)
	if err != nil {
		return sample.Choice{}, err
	}
	return sampler.NextOf(s, logits, allowed, place), nil
}

// follow makes one token a round, of those that the grammar allows. What
// follows a token is known when it was read, so the model computes the next
// place meanwhile, but the choice waits.
func (g *generation) follow(ctx context.Context, s *mlx.Scope) error {
	now := sample.Choice{Token: s.Keep(row(s, g.Prompt[len(g.Prompt)-1:]))}
	var logits *mlx.Array
	defer func() { free(now); logits.Free() }()
	for n := 0; ; n++ {
		full, err := g.grow(s, g.kv, 1)
		if err == nil && !full {
			logits, err = g.forward(s, now.Token, n)
		}
		ended := false
		if err == nil && n > 0 {
			ended, err = g.read(ctx, s, now)
		}
		free(now)
		if err == nil && !ended && full {
			ended, err = true, g.full()
		}
		if err == nil && !ended {
			now, err = g.dispatchOf(s, logits, n)
		}
		logits.Free()
		if err != nil || ended {
			return err
		}
		if g.limit > 0 && n+1 == g.limit {
			_, err = g.read(ctx, s, now)
			return err
		}
	}
}

// forward starts to compute the logits [1, vocabulary] behind a token.
func (g *generation) forward(s *mlx.Scope, token *mlx.Array, place int) (*mlx.Array, error) {
	sub := s.Sub()
	defer shut(sub)
	logits := g.Model.Forward(sub, sub.Reshape(token, 1, 1), g.kv)
	if place > 0 {
		g.sampler.Accept(sub, token)
	}
	logits = sub.Reshape(logits, 1, -1)
	return logits, launch(s, sub, logits)
}

// dispatchOf starts to choose a token by logits.
func (g *generation) dispatchOf(s *mlx.Scope, logits *mlx.Array, place int) (sample.Choice, error) {
	sub := s.Sub()
	defer shut(sub)
	c, err := g.guide.choose(sub, g.sampler, logits, place, g.guide.state)
	if err != nil {
		return sample.Choice{}, errors.Join(err, sub.Close())
	}
	return c, launch(s, sub, c.Arrays()...)
}
