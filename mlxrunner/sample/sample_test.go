package sample_test

import (
	"math"
	"slices"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlxrunner/sample"
)

// logits of five tokens with the probabilities 0.4, 0.3, 0.15, 0.1 and 0.05.
var logits = []float32{ln(0.15), ln(0.4), ln(0.05), ln(0.3), ln(0.1)}

func ln(p float64) float32 { return float32(math.Log(p)) }

// draws gives how often each token came in n draws.
func draws(t *testing.T, s *mlx.Scope, settings sample.Settings, n int) []int {
	t.Helper()
	m, err := sample.New(s, settings, len(logits), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	count := make([]int, len(logits))
	for i := range n {
		sub := s.Sub()
		id, _, _, err := m.Next(sub, mlx.New(sub, logits, 1, len(logits)), i).Read(sub)
		if err != nil {
			t.Fatal(err)
		}
		count[id]++
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return count
}

// What is left out never comes; the rest comes as often as it should.
func TestDraws(t *testing.T) {
	s := mlxtest.Scope(t)
	const n = 600
	for name, c := range map[string]struct {
		settings sample.Settings
		want     []float64
	}{
		"greedy":       {sample.Settings{}, []float64{0, 1, 0, 0, 0}},
		"plain":        {sample.Settings{Temperature: 1}, []float64{0.15, 0.4, 0.05, 0.3, 0.1}},
		"cold":         {sample.Settings{Temperature: 0.5}, []float64{0.0789, 0.561, 0.0088, 0.3157, 0.0351}},
		"top-k":        {sample.Settings{Temperature: 1, TopK: 2}, []float64{0, 4. / 7, 0, 3. / 7, 0}},
		"top-p":        {sample.Settings{Temperature: 1, TopP: 0.8}, []float64{0.15 / 0.85, 0.4 / 0.85, 0, 0.3 / 0.85, 0}},
		"least top-p":  {sample.Settings{Temperature: 1, TopP: 1e-9}, []float64{0, 1, 0, 0, 0}},
		"min-p":        {sample.Settings{Temperature: 1, MinP: 0.3}, []float64{0.15 / 0.85, 0.4 / 0.85, 0, 0.3 / 0.85, 0}},
		"bias":         {sample.Settings{Bias: map[int]float64{2: 10}}, []float64{0, 0, 1, 0, 0}},
		"never a bias": {sample.Settings{Temperature: 1, TopK: 1, Bias: map[int]float64{1: math.Inf(-1)}}, []float64{0, 0, 0, 1, 0}},
	} {
		got := draws(t, s, c.settings, n)
		for id, p := range c.want {
			off := math.Abs(float64(got[id])/n - p)
			if p == 0 && got[id] > 0 || off > 4*math.Sqrt(p*(1-p)/n) {
				t.Errorf("%s: token %d came %d times of %d, want %.3f", name, id, got[id], n, p)
			}
		}
	}
	if a, b := draws(t, s, sample.Settings{Temperature: 1, Seed: 3}, 20), draws(t, s, sample.Settings{Temperature: 1, Seed: 3}, 20); !slices.Equal(a, b) {
		t.Errorf("one seed gave %v and %v", a, b)
	}
}

// Tokens that were there are less likely, as the settings say.
func TestPenalties(t *testing.T) {
	s := mlxtest.Scope(t)
	row := []float32{1, 4, 3, -1}
	for name, c := range map[string]struct {
		settings sample.Settings
		prompt   []int
		text     []uint32
		want     uint32
	}{
		"none":                 {sample.Settings{}, []int{1}, []uint32{1}, 1},
		"repetition of prompt": {sample.Settings{Repetition: 2}, []int{1}, nil, 2},
		"repetition of text":   {sample.Settings{Repetition: 2}, nil, []uint32{1}, 2},
		"presence":             {sample.Settings{Presence: 1.5}, []int{1}, []uint32{1, 1}, 2},
		"presence, once":       {sample.Settings{Presence: 0.7}, nil, []uint32{1, 1, 1}, 1},
		"frequency":            {sample.Settings{Frequency: 0.7}, nil, []uint32{1, 1}, 2},
		"of the text alone":    {sample.Settings{Presence: 1.5, Frequency: 1}, []int{1}, nil, 1},
	} {
		m, err := sample.New(s, c.settings, len(row), c.prompt)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range c.text {
			m.Accept(s, mlx.New(s, []uint32{id}))
		}
		id, _, _, err := m.Next(s, mlx.New(s, row, 1, len(row)), 0).Read(s)
		if err != nil || uint32(id) != c.want {
			t.Errorf("%s: %d, %v; want %d", name, id, err, c.want)
		}
		m.Free()
	}
}

func TestLogprobs(t *testing.T) {
	s := mlxtest.Scope(t)
	m, err := sample.New(s, sample.Settings{Logprobs: 2, Bias: map[int]float64{2: 10}}, len(logits), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	id, own, top, err := m.Next(s, mlx.New(s, logits, 1, len(logits)), 0).Read(s)
	if err != nil || id != 2 || math.Abs(own-math.Log(0.05)) > 1e-5 || len(top) != 2 || top[0].Token != 1 || top[1].Token != 3 ||
		math.Abs(top[0].Logprob-math.Log(0.4)) > 1e-5 {
		t.Errorf("%d, %v, %v, %v: what the model thinks, whatever the bias", id, own, top, err)
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, settings := range []sample.Settings{
		{Temperature: -1},
		{Temperature: math.NaN()},
		{TopP: 1.1},
		{MinP: -0.1},
		{TopK: -1},
		{Repetition: -2},
		{Presence: 200},
		{Bias: map[int]float64{5: 1}},
		{Bias: map[int]float64{-1: 1}},
		{Bias: map[int]float64{1: math.NaN()}},
		{Logprobs: -2},
	} {
		if m, err := sample.New(s, settings, len(logits), nil); err == nil {
			t.Errorf("no error for %+v", settings)
			m.Free()
		}
	}
}
