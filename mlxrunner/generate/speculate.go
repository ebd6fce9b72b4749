package generate

import (
	"context"
	"slices"

	"payload/mlx"
	"payload/mlxrunner/sample"
)

// guess proposes up to n tokens that may follow text: those that followed the
// last time that its end (three tokens, else two, else one) stood in it
// (prompt lookup decoding, Saxena, 2023).
func guess(text []int, n int) []int {
	for length := 3; length > 0; length-- {
		if len(text) <= length {
			continue
		}
		end := text[len(text)-length:]
		for at := len(text) - length - 1; at >= 0; at-- {
			if slices.Equal(text[at:at+length], end) {
				from := at + length
				return text[from:min(from+n, len(text))]
			}
		}
	}
	return nil
}

// speculate computes several places in one round: the last token and guesses
// of what follows. The token chosen at each place is the one that plain
// decoding would choose, because a draw depends on seed and place alone; the
// first that differs from its guess ends the round, and the cache is taken
// back to it.
func (g *generation) speculate(ctx context.Context, s *mlx.Scope) error {
	text := slices.Clone(g.Prompt)
	for {
		if ctx.Err() != nil {
			return g.cancelled(ctx)
		}
		n := g.Lookup
		if g.limit > 0 {
			n = min(n, g.limit-len(g.result.Tokens)-1)
		}
		guesses := guess(text, n)
		round, err := g.round(s, text[len(text)-1], guesses)
		if err != nil {
			return err
		}
		for _, t := range round {
			text = append(text, t.ID)
		}
		g.result.Guessed += len(guesses)
		g.result.Accepted += len(round) - 1
		if ended, err := g.deliver(round); err != nil || ended {
			return err
		}
	}
}

// round gives the tokens that follow last: one more than guesses were right.
func (g *generation) round(s *mlx.Scope, last int, guesses []int) ([]Token, error) {
	sub := s.Sub()
	defer func() { _ = sub.Close() }() // its error is given by what is read
	place := len(g.result.Tokens)
	logits := g.Model.Forward(sub, row(sub, append([]int{last}, guesses...)), g.kv)
	ahead := g.sampler.Clone(sub)
	defer ahead.Free()
	var choices []sample.Choice
	var arrays []*mlx.Array
	for i := range len(guesses) + 1 {
		if i > 0 {
			ahead.Accept(sub, row(sub, guesses[i-1:i]))
		}
		c := ahead.Next(sub, sub.Reshape(sub.SliceAxis(logits, 1, i, i+1), 1, -1), place+i)
		choices, arrays = append(choices, c), append(arrays, c.Arrays()...)
	}
	if err := sub.EvalOnly(arrays...); err != nil {
		return nil, err
	}
	var round []Token
	for i, c := range choices {
		id, own, top, err := c.Read(sub)
		if err != nil {
			return nil, err
		}
		round = append(round, Token{ID: id, Logprob: own, Top: top})
		if i == len(guesses) || id != guesses[i] {
			break
		}
	}
	for _, t := range round {
		g.sampler.Accept(sub, row(sub, []int{t.ID}))
	}
	return round, g.kv.Trim(len(guesses) + 1 - len(round))
}
