// Package sample chooses the next token from a model's logits.
//
// Everything happens in the graph: a choice is an array that the next step can
// be built on before anyone has read it. A Sampler belongs to one sequence and
// to the thread of its arrays.
package sample

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"payload/mlx"
)

// Settings say how tokens are chosen. The zero value is greedy.
//
// Penalties and biases change the logits first; then top-k, top-p and min-p
// leave some tokens out; then one is drawn at the temperature. That is the
// order of llama.cpp and of mlx-lm.
type Settings struct {
	Temperature float64 // 0 takes the likeliest token
	TopK        int     // the likeliest so many; 0 is all
	TopP        float64 // the likeliest that together have this probability; 0 and 1 are all
	MinP        float64 // those with at least this part of the likeliest's probability

	Repetition float64         // what the logits of tokens seen, the prompt's too, are divided by (or multiplied where below 0); 0 and 1 are none
	Presence   float64         // taken off the logits of tokens generated
	Frequency  float64         // taken off for each time that a token was generated
	Bias       map[int]float64 // added to logits, by token

	Seed     uint64 // what is drawn depends on it and on the place in the text alone
	Logprobs int    // how many of the likeliest are told with each token; -1 tells nothing of them but the token's own; 0 is none
}

// Check says what can't be done.
func (s Settings) Check() error {
	for _, n := range []struct {
		name      string
		value     float64
		low, high float64
	}{
		{"temperature", s.Temperature, 0, 100},
		{"top-p", s.TopP, 0, 1},
		{"min-p", s.MinP, 0, 1},
		{"repetition penalty", s.Repetition, 0, 100},
		{"presence penalty", s.Presence, -100, 100},
		{"frequency penalty", s.Frequency, -100, 100},
		{"top-k", float64(s.TopK), 0, math.MaxInt32},
		{"logprobs", float64(s.Logprobs), -1, 1000},
	} {
		if !(n.value >= n.low && n.value <= n.high) { // a NaN is neither
			return fmt.Errorf("the %s is %v, want %v to %v", n.name, n.value, n.low, n.high)
		}
	}
	for id, b := range s.Bias {
		if math.IsNaN(b) || id < 0 {
			return fmt.Errorf("the bias of token %d is %v", id, b)
		}
	}
	return nil
}

func (s Settings) repeats() bool { return s.Repetition != 0 && s.Repetition != 1 }
func (s Settings) counts() bool  { return s.Presence != 0 || s.Frequency != 0 }

// Remembers tells whether a choice depends on the tokens before.
func (s Settings) Remembers() bool { return s.repeats() || s.counts() }

// Choice is a token and what is told of it, in the graph.
type Choice struct {
	Token *mlx.Array // uint32 [1]
	// Told are the logarithms of probabilities, float32: the token's own [1],
	// and the likeliest [n] with their ids. nil where they were not asked for.
	Own, Top, TopIDs *mlx.Array
}

// Arrays lists what there is.
func (c Choice) Arrays() []*mlx.Array {
	out := []*mlx.Array{c.Token}
	for _, a := range []*mlx.Array{c.Own, c.Top, c.TopIDs} {
		if a != nil {
			out = append(out, a)
		}
	}
	return out
}

// A Sampler chooses for one sequence.
type Sampler struct {
	Settings
	vocabulary int
	bias       *mlx.Array // float32 [1, vocabulary] or nil
	seen       *mlx.Array // float32 [1, vocabulary]: 1 for tokens of prompt and text
	count      *mlx.Array // float32 [1, vocabulary]: how often generated
}

// New makes a sampler for a prompt. Free it.
func New(s *mlx.Scope, settings Settings, vocabulary int, prompt []int) (*Sampler, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	m := &Sampler{Settings: settings, vocabulary: vocabulary}
	if len(settings.Bias) > 0 {
		row := make([]float32, vocabulary)
		for _, id := range slices.Sorted(maps.Keys(settings.Bias)) {
			if id >= vocabulary {
				return nil, fmt.Errorf("a bias for token %d: the model has %d tokens", id, vocabulary)
			}
			row[id] = float32(settings.Bias[id])
		}
		m.bias = s.Keep(mlx.New(s, row, 1, vocabulary))
	}
	if m.repeats() {
		row := make([]float32, vocabulary)
		for _, id := range prompt {
			if id < vocabulary {
				row[id] = 1
			}
		}
		m.seen = s.Keep(mlx.New(s, row, 1, vocabulary))
	}
	if m.counts() {
		m.count = s.Keep(s.Zeros(mlx.Float32, 1, vocabulary))
	}
	return m, s.Err()
}

// Free gives up what the sampler holds; nil holds nothing.
func (m *Sampler) Free() {
	if m == nil {
		return
	}
	for _, a := range []*mlx.Array{m.bias, m.seen, m.count} {
		a.Free()
	}
}

// Clone gives a sampler that goes on from here on its own, for tokens that may
// be taken back.
func (m *Sampler) Clone(s *mlx.Scope) *Sampler {
	out := *m
	for _, a := range []**mlx.Array{&out.bias, &out.seen, &out.count} {
		if *a != nil {
			*a = s.Keep(s.Copy(*a))
		}
	}
	return &out
}

// Accept makes token, uint32 [1], one of the text.
func (m *Sampler) Accept(s *mlx.Scope, token *mlx.Array) {
	if !m.Remembers() {
		return
	}
	at, one := s.Reshape(token, 1, 1), s.Ones(mlx.Float32, 1, 1)
	if m.seen != nil {
		m.seen = swap(s, m.seen, s.PutAlongAxis(m.seen, at, one, 1))
	}
	if m.count != nil {
		m.count = swap(s, m.count, s.ScatterAddAxis(m.count, at, one, 1))
	}
}

func swap(s *mlx.Scope, old, fresh *mlx.Array) *mlx.Array {
	if fresh == nil { // the scope has the error
		return old
	}
	old.Free()
	return s.Keep(fresh)
}

// Next chooses the token at a place of the text from logits [1, vocabulary].
func (m *Sampler) Next(s *mlx.Scope, logits *mlx.Array, place int) Choice {
	return m.NextOf(s, logits, nil, place)
}

// NextOf chooses among those that are allowed, bool [1, vocabulary]; nil allows
// all. Where settings leave none of them, what it chooses is not allowed.
func (m *Sampler) NextOf(s *mlx.Scope, logits, allowed *mlx.Array, place int) Choice {
	logits = s.AsType(logits, mlx.Float32)
	var c Choice
	adjusted := m.adjust(s, logits)
	if allowed != nil {
		adjusted = s.Where(allowed, adjusted, s.Scalar(math.Inf(-1), mlx.Float32))
	}
	if m.Temperature == 0 {
		c.Token = s.ArgMax(adjusted, -1, false)
	} else {
		kept := m.filter(s, adjusted)
		key := s.Key(mix(m.Seed, uint64(place)))
		c.Token = s.AsType(s.Categorical(s.Divide(kept, s.Like(kept, m.Temperature)), -1, key), mlx.Uint32)
	}
	if m.Logprobs != 0 {
		m.tell(s, &c, logits)
	}
	return c
}

// tell adds what the model itself thinks, before settings change it.
func (m *Sampler) tell(s *mlx.Scope, c *Choice, logits *mlx.Array) {
	all := s.Subtract(logits, s.LogSumExp(logits, true, -1))
	c.Own = s.Reshape(s.TakeAlongAxis(all, s.Reshape(c.Token, 1, 1), 1), 1)
	if n := min(m.Logprobs, m.vocabulary); n > 0 {
		order := s.SliceAxis(s.ArgSort(s.Negative(all), -1), 1, 0, n)
		c.TopIDs = s.Contiguous(s.Reshape(order, n))
		c.Top = s.Reshape(s.TakeAlongAxis(all, order, 1), n)
	}
}

func (m *Sampler) adjust(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if m.seen != nil {
		by := s.Like(x, m.Repetition)
		punished := s.Where(s.Greater(x, s.Like(x, 0)), s.Divide(x, by), s.Multiply(x, by))
		x = s.Where(s.Greater(m.seen, s.Like(m.seen, 0)), punished, x)
	}
	if m.count != nil {
		x = s.Subtract(x, s.Multiply(m.count, s.Like(x, m.Frequency)))
		there := s.AsType(s.Greater(m.count, s.Like(m.count, 0)), mlx.Float32)
		x = s.Subtract(x, s.Multiply(there, s.Like(x, m.Presence)))
	}
	if m.bias != nil {
		x = s.Add(x, m.bias)
	}
	return x
}

// filter makes minus infinity of what top-k, top-p and min-p leave out. The
// likeliest token always stays.
func (m *Sampler) filter(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	topP := m.TopP > 0 && m.TopP < 1
	topK := m.TopK > 0 && m.TopK < m.vocabulary
	never := s.Scalar(math.Inf(-1), mlx.Float32)
	if topK || topP {
		order := s.ArgSort(s.Negative(x), -1)
		sorted := s.TakeAlongAxis(x, order, -1)
		if topK {
			rank := s.ExpandDims(s.Arange(mlx.Int32, 0, float64(m.vocabulary), 1), 0)
			sorted = s.Where(s.Less(rank, s.Scalar(float64(m.TopK), mlx.Int32)), sorted, never)
		}
		if topP {
			// What the likelier ones have together is below the limit.
			before := s.CumSum(s.Softmax(sorted, true, -1), -1, mlx.Cumulate{Exclusive: true})
			sorted = s.Where(s.Less(before, s.Like(before, m.TopP)), sorted, never)
		}
		x = s.PutAlongAxis(x, order, sorted, -1)
	}
	if m.MinP > 0 {
		least := s.Add(s.Max(x, true, -1), s.Like(x, math.Log(m.MinP)))
		x = s.Where(s.Less(x, least), never, x)
	}
	return x
}

// mix makes a key of a seed and a place: the finaliser of SplitMix64 (Steele,
// Lea and Flood, 2014), so that neighbouring places have unlike keys.
func mix(seed, place uint64) uint64 {
	z := seed + (place+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Logprob is a token and the logarithm of its probability.
type Logprob struct {
	Token   int     `json:"token"`
	Logprob float64 `json:"logprob"`
}

// Read waits for a choice and gives its token, its own logarithm and the
// likeliest tokens, the first first.
func (c Choice) Read(s *mlx.Scope) (token int, own float64, top []Logprob, err error) {
	id, err := mlx.Item[uint32](s, c.Token)
	if err != nil {
		return 0, 0, nil, err
	}
	if c.Own == nil {
		return int(id), 0, nil, nil
	}
	told, err := mlx.Item[float32](s, c.Own)
	if err != nil || c.Top == nil {
		return int(id), float64(told), nil, err
	}
	values, err1 := mlx.Values[float32](s, c.Top)
	ids, err2 := mlx.Values[uint32](s, c.TopIDs)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, nil, err
	}
	for i := range ids {
		top = append(top, Logprob{int(ids[i]), float64(values[i])})
	}
	return int(id), float64(told), top, nil
}
