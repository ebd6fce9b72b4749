package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"payload/mlxrunner/generate"
	"payload/mlxrunner/sample"
)

const (
	maxStops   = 16
	maxChoices = 64 // prompts times n
	maxTop     = 20 // likeliest tokens told
	// least is what a top_p of 0 is for the sampler, to which 0 means all: it
	// leaves the likeliest token.
	least = 1e-9
)

func place(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }

// sampling takes how tokens are chosen; the values left out are those of
// OpenAI's API.
func (f *fields) sampling(vocabulary int) sample.Settings {
	s := sample.Settings{
		Temperature: f.number("temperature", 0, 2, 1),
		TopP:        f.number("top_p", 0, 1, 1),
		TopK:        f.integer("top_k", -1, math.MaxInt32, 0),
		MinP:        f.number("min_p", 0, 1, 0),
		Repetition:  f.number("repetition_penalty", least, 100, 1),
		Presence:    f.number("presence_penalty", -2, 2, 0),
		Frequency:   f.number("frequency_penalty", -2, 2, 0),
		Seed:        uint64(take(f, "seed", "a whole number", int64(rand.Uint64()))), //nolint:gosec // any bits are a seed
		Bias:        f.bias(vocabulary),
	}
	s.TopP, s.TopK = max(s.TopP, least), max(s.TopK, 0)
	return s
}

// bias takes logit_bias: token ids, as texts, to what is added to their logits.
func (f *fields) bias(vocabulary int) map[int]float64 {
	given := take(f, "logit_bias", "an object of token ids and numbers", map[string]json.RawMessage(nil))
	out := map[int]float64{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id >= vocabulary {
			f.refuse("logit_bias", "%.20q is no token id: the model has tokens 0 to %d", key, vocabulary-1)
			return nil
		}
		b, ok := as[float64](given[key])
		if !ok || string(given[key]) == "null" {
			f.refuse("logit_bias", "token %d has %s, want a number", id, kindOf(given[key]))
			return nil
		}
		if b < -100 || b > 100 {
			f.refuse("logit_bias", "token %d has %v, want -100 to 100", id, b)
			return nil
		}
		out[id] = b
	}
	return out
}

// stop takes one stop string or several.
func (f *fields) stop() []string {
	value := f.raw("stop")
	if value == nil {
		return nil
	}
	all, ok := as[[]string](value)
	if one, single := as[string](value); single {
		all, ok = []string{one}, true
	}
	if !ok {
		f.refuse("stop", "it is %s, want a text or a list of texts", kindOf(value))
		return nil
	}
	if len(all) > maxStops || slices.Contains(all, "") {
		f.refuse("stop", "want at most %d texts, none of them empty", maxStops)
		return nil
	}
	return all
}

// common takes what both kinds of generation have. top is how many likeliest
// tokens the request may be told.
func (f *fields) common(m *Model, a *answer) {
	a.request = generate.Request{
		Sampling:  f.sampling(m.Vocab),
		Stop:      f.stop(),
		IgnoreEnd: f.flag("ignore_eos", false),
	}
	a.n = f.integer("n", 1, maxChoices, 1)
	a.stream = f.flag("stream", false)
	if o := f.object("stream_options"); o != nil {
		if !a.stream {
			f.refuse("stream_options", "it is for streams, and stream is not true")
		}
		a.withUsage = o.flag("include_usage", false)
		o.only("include_obfuscation", "false")
		f.fail(o.done())
	}
	// Hints about who asks, what for, and of caching: no answer depends on them.
	for _, name := range []string{"user", "safety_identifier", "prompt_cache_key"} {
		f.text(name)
	}
	take(f, "metadata", "an object of texts", map[string]string(nil))
}

// maxTokens takes a limit of the tokens generated, 0 for none. The server's
// own limit, most, is 0 for none too.
func (f *fields) maxTokens(name string, low, otherwise, most int) int {
	high := math.MaxInt
	if most > 0 {
		high = most
	}
	const missing = math.MinInt
	if n := f.integer(name, low, high, missing); n != missing {
		return n
	}
	if most > 0 && (otherwise == 0 || otherwise > most) {
		return most
	}
	return otherwise
}

// model holds the name that is asked for against the one that is served.
func (f *fields) model(m *Model) {
	if name := f.text("model"); name != "" && name != m.Name {
		f.fail(noModel(name))
	}
}

func noModel(name string) *apiError {
	return &apiError{status: 404, kind: invalidRequest, code: "model_not_found", param: "model", message: fmt.Sprintf("the model %.100q is not served here; GET /v1/models tells which is", name)}
}
