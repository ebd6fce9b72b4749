package generate

import (
	"context"
	"slices"

	"payload/mlx"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/constrain"
	"payload/mlxrunner/sample"
)

// A source guesses tokens, so that the model can compute several places at once.
type source interface {
	// guess gives up to n tokens, uint32 [1] each, that may follow the text.
	guess(s *mlx.Scope, text []int, n int) []*mlx.Array
	// settle is told the text after a round, which may hold fewer of the guesses.
	settle(text []int) error
}

// lookup guesses from the text itself.
type lookup struct{}

func (lookup) guess(s *mlx.Scope, text []int, n int) (out []*mlx.Array) {
	for _, id := range guess(text, n) {
		out = append(out, mlx.New(s, []uint32{uint32(id)}))
	}
	return out
}

func (lookup) settle([]int) error { return nil }

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

// drafter guesses by a smaller model, which remembers the text on its own. It
// draws as the request does, from the same seed and place: where both models
// find the same tokens likely, they draw the same. A grammar holds its guesses
// as it holds the text.
type drafter struct {
	*Runner
	guide   *guide // of the generation
	kv      *cache.Cache
	sampler *sample.Sampler // of the generation: what the text so far makes of it
	prompt  int             // tokens; the place of a draw counts from there
	vocab   int             // of the model that is guessed for
}

// room is how many of n guesses the draft's context allows behind a text.
func (d *drafter) room(text, n int) int {
	if d.Context > 0 {
		n = min(n, d.Context-text)
	}
	return n
}

func (d *drafter) guess(s *mlx.Scope, text []int, n int) (out []*mlx.Array) {
	if n = d.room(len(text), n); n <= 0 {
		return nil
	}
	ahead := d.sampler.Clone(s)
	defer ahead.Free()
	ahead.Logprobs = 0
	var state *constrain.State
	if d.guide != nil {
		state = d.guide.state
	}
	input := row(s, text[d.kv.Offset():])
	for {
		logits := d.Model.Forward(s, input, d.kv)
		last := s.SliceAxis(logits, 1, logits.Dim(1)-1, logits.Dim(1))
		place := len(text) - d.prompt + len(out)
		c, err := d.guide.choose(s, ahead, pad(s, s.Reshape(last, 1, -1), d.vocab), place, state)
		if err != nil {
			return out // the text itself will say so
		}
		out = append(out, c.Token)
		if len(out) == n || !d.guide.follows(s, c.Token, &state) {
			return out
		}
		ahead.Accept(s, c.Token)
		input = s.Reshape(c.Token, 1, 1)
	}
}

// pad brings logits [1, n] to the width of another model's: vocabularies of one
// tokenizer may be rounded up differently.
func pad(s *mlx.Scope, logits *mlx.Array, width int) *mlx.Array {
	switch n := logits.Dim(1); {
	case n > width:
		return s.SliceAxis(logits, 1, 0, width)
	case n < width:
		return s.Concatenate(1, logits, s.Full(logits.Dtype(), never, 1, width-n))
	}
	return logits
}

// never is the logit of a token that can't be: low, and a number in half floats.
const never = -60000

// settle takes back what the draft read of guesses that were wrong. The last
// token of the text is read with the next guess.
func (d *drafter) settle(text []int) error { return d.kv.Trim(max(0, d.kv.Offset()-(len(text)-1))) }

// speculate computes several places in one round: the last token and guesses
// of what follows. The token chosen at each place is the one that plain
// decoding would choose, because a draw depends on seed and place alone; the
// first that differs from its guess ends the round, and the caches are taken
// back to it.
func (g *generation) speculate(ctx context.Context, s *mlx.Scope) error {
	for {
		if ctx.Err() != nil {
			return g.cancelled(ctx)
		}
		n := g.room()
		if full, err := g.growBy(s, n); err != nil || full {
			if err == nil {
				err = g.full()
			}
			return err
		}
		round, err := g.round(s, n)
		if err != nil {
			return err
		}
		for _, t := range round {
			g.text = append(g.text, t.ID)
		}
		if err := g.source.settle(g.text); err != nil {
			return err
		}
		g.result.Accepted += len(round) - 1
		if ended, err := g.deliver(round); err != nil || ended {
			return err
		}
	}
}

// growBy is grow of all memories for a round of n guesses.
func (g *generation) growBy(s *mlx.Scope, n int) (full bool, err error) {
	full, err = g.grow(s, g.kv, n+1)
	if d, ok := g.source.(*drafter); ok && !full && err == nil {
		if n = d.room(len(g.text), n); n > 0 {
			full, err = g.grow(s, d.kv, len(g.text)-d.kv.Offset()+n-1)
		}
	}
	return full, err
}

// room is how many tokens may be guessed: those for which the text has room,
// and not beyond the length past which positions mean another thing.
func (g *generation) room() int {
	n := g.guesses()
	if g.limit > 0 {
		n = min(n, g.limit-len(g.result.Tokens)-1)
	}
	if at := g.kv.Offset(); at < g.kv.Turn {
		n = min(n, g.kv.Turn-at-1)
	}
	return n
}

// round gives the tokens that follow the text: one more than guesses were right.
func (g *generation) round(s *mlx.Scope, n int) ([]Token, error) {
	sub := s.Sub()
	defer shut(sub)
	guesses, states, err := g.guide.ahead(sub, g.source.guess(sub, g.text, n))
	if err != nil {
		return nil, err
	}
	g.result.Guessed += len(guesses)
	place := len(g.result.Tokens)
	input := append([]*mlx.Array{mlx.New(sub, []uint32{uint32(g.text[len(g.text)-1])})}, guesses...)
	logits := g.Model.Forward(sub, sub.Reshape(sub.Concatenate(0, input...), 1, -1), g.kv)
	ahead := g.sampler.Clone(sub)
	defer ahead.Free()
	var choices []sample.Choice
	arrays := slices.Clone(guesses)
	for i := range len(guesses) + 1 {
		if i > 0 {
			ahead.Accept(sub, guesses[i-1])
		}
		c, err := g.guide.choose(sub, ahead, sub.Reshape(sub.SliceAxis(logits, 1, i, i+1), 1, -1), place+i, states[i])
		if err != nil {
			return nil, err
		}
		choices, arrays = append(choices, c), append(arrays, c.Arrays()...)
	}
	if err := sub.EvalOnly(arrays...); err != nil {
		return nil, err
	}
	round, err := g.accept(sub, choices, guesses)
	if err != nil {
		return nil, err
	}
	return round, g.kv.Trim(len(guesses) + 1 - len(round))
}

// accept reads the choices up to the first that is not what was guessed.
func (g *generation) accept(s *mlx.Scope, choices []sample.Choice, guesses []*mlx.Array) (round []Token, err error) {
	for i, c := range choices {
		id, own, top, err := c.Read(s)
		if err != nil {
			return nil, err
		}
		round = append(round, Token{ID: id, Logprob: own, Top: top})
		g.sampler.Accept(s, c.Token)
		if i == len(guesses) {
			break
		}
		guessed, err := mlx.Item[uint32](s, guesses[i])
		if err != nil {
			return nil, err
		}
		if int(guessed) != id {
			break
		}
	}
	return round, s.Err()
}
