package generate

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"payload/mlxrunner/constrain"
	"payload/mlxrunner/sample"
)

var forms = map[string]string{
	"person": `{"type": "object", "properties": {
		"name": {"type": "string", "minLength": 1, "maxLength": 12},
		"age": {"type": "integer", "minimum": 0, "maximum": 120},
		"mail": {"type": "string", "format": "email", "maxLength": 40},
		"colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 4}},
		"required": ["name", "age", "colours"], "additionalProperties": false}`,
	"choice": `{"oneOf": [
		{"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0, "maximum": 9.5}}, "required": ["kind", "radius"], "additionalProperties": false},
		{"type": "object", "properties": {"kind": {"const": "square"}, "side": {"$ref": "#/$defs/side"}}, "required": ["kind", "side"], "additionalProperties": false}],
		"$defs": {"side": {"type": "integer", "minimum": 1, "maximum": 1000}}}`,
	"dates": `{"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 2, "maxItems": 3}`,
	"whole": `{"type": ["integer", "null"], "minimum": -20, "maximum": 20}`,
	"tree": `{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
		"id": {"type": "string", "pattern": "^[a-z]{1,3}$"},
		"children": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/node"}}},
		"required": ["id"], "additionalProperties": false}}}`,
}

func grammar(t *testing.T, schema string) (*constrain.Grammar, func(text string) error) {
	t.Helper()
	g, err := constrain.Schema([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("form.json", doc); err != nil {
		t.Fatal(err)
	}
	judge, err := c.Compile("form.json")
	if err != nil {
		t.Fatal(err)
	}
	return g, func(text string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return judge.Validate(v)
	}
}

// Whatever the model would rather say, the text is valid; and guessing changes
// nothing of it.
func TestGrammar(t *testing.T) {
	s, r := runner(t)
	if err := r.UseDraft(rough(t, s)); err != nil {
		t.Fatal(err)
	}
	guessed, accepted := 0, 0
	for name, schema := range forms {
		g, judge := grammar(t, schema)
		for _, sampling := range []sample.Settings{
			{},
			{Temperature: 1, Seed: 1},
			{Temperature: 3, Seed: 2, TopK: 40},
			{Temperature: 1, Seed: 3, TopP: 0.9, MinP: 0.02, Repetition: 1.2, Presence: 0.3},
		} {
			q := Request{Prompt: r.encode(t, `{"name": "The harbour", "id": "a", "kind": "circle"} {"name":`), MaxTokens: 400, Sampling: sampling, Grammar: g}
			plain := generate(t, s, r, q)
			if err := judge(plain.Text); plain.Finish != StopEnd || err != nil {
				t.Errorf("%s, %+v: %s, %s: %v", name, sampling, plain.Finish, plain.Text, err)
			}
			for _, by := range []Request{{Lookup: 4}, {Draft: 3}} {
				q.Lookup, q.Draft = by.Lookup, by.Draft
				ahead := generate(t, s, r, q)
				if ahead.Text != plain.Text || !slices.Equal(ahead.Tokens, plain.Tokens) || ahead.Finish != plain.Finish {
					t.Errorf("%s, %+v: with lookup %d, draft %d %q (%s), without %q (%s)", name, sampling, q.Lookup, q.Draft, ahead.Text, ahead.Finish, plain.Text, plain.Finish)
				}
				guessed, accepted = guessed+ahead.Guessed, accepted+ahead.Accepted
			}
			t.Logf("%s: %s", name, plain.Text)
		}
	}
	if accepted == 0 || accepted == guessed {
		t.Errorf("%d of %d guesses were right: both kinds have to be there", accepted, guessed)
	}
}

// A draft guesses in the grammar, from the state that its guesses lead to: one
// that thinks as the model does is right with every guess.
func TestDraftFollowsTheGrammar(t *testing.T) {
	s, r := runner(t)
	if err := r.UseDraft(load(t, s)); err != nil {
		t.Fatal(err)
	}
	const n = 3
	for name, schema := range forms {
		g, _ := grammar(t, schema)
		for _, sampling := range []sample.Settings{{}, {Temperature: 1, Seed: 1, Repetition: 1.2}} {
			q := Request{Prompt: r.encode(t, "In the"), MaxTokens: 400, Sampling: sampling, Grammar: g}
			plain := generate(t, s, r, q)
			q.Draft = n
			got := generate(t, s, r, q)
			t.Logf("%s: %d tokens in %d rounds, %d of %d guesses right", name, len(got.Tokens), got.Rounds, got.Accepted, got.Guessed)
			if !slices.Equal(got.Tokens, plain.Tokens) || got.Finish != plain.Finish {
				t.Errorf("%s: %q (%s), without a draft %q (%s)", name, got.Text, got.Finish, plain.Text, plain.Finish)
			}
			if least := (len(got.Tokens) + n) / (n + 1); got.Accepted != got.Guessed || got.Rounds > least+1 {
				t.Errorf("%s: %d rounds, want %d; %d of %d guesses right", name, got.Rounds, least, got.Accepted, got.Guessed)
			}
		}
	}
}

func TestGrammarOfExpression(t *testing.T) {
	s, r := runner(t)
	for _, expr := range []string{`(yes|no)( \d{2,3}){2}`, `[à-ü]{3}🙂?`, `x`} {
		g, err := constrain.Regex(expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, lookup := range []int{0, 3} {
			got := generate(t, s, r, Request{Prompt: r.encode(t, "In the"), MaxTokens: 100, Grammar: g, Lookup: lookup, IgnoreEnd: true})
			if !regexp.MustCompile("^(?:"+expr+")$").MatchString(got.Text) || got.Finish != StopEnd {
				t.Errorf("%s: %q, %s", expr, got.Text, got.Finish)
			}
		}
	}
}

func TestObject(t *testing.T) {
	s, r := runner(t)
	for seed := range uint64(4) {
		got := generate(t, s, r, Request{Prompt: r.encode(t, "In the"), MaxTokens: 200, Grammar: constrain.Object(), Sampling: sample.Settings{Temperature: 2, Seed: seed}})
		var fields map[string]any
		if err := json.Unmarshal([]byte(got.Text), &fields); got.Finish == StopEnd && err != nil {
			t.Errorf("%s: %v", got.Text, err)
		}
		if got.Finish == StopLength && (len(got.Tokens) != 200 || !strings.HasPrefix(got.Text, "{")) {
			t.Errorf("%d tokens: %s", len(got.Tokens), got.Text)
		}
	}
}

// What may come and what the settings leave can have nothing in common.
func TestNothingMayCome(t *testing.T) {
	s, r := runner(t)
	g, err := constrain.Regex("x")
	if err != nil {
		t.Fatal(err)
	}
	bias := map[int]float64{}
	for id := range r.Vocab {
		if text, _ := r.Tok.Token(id); strings.Contains(text, "x") {
			bias[id] = -1e30
		}
	}
	q := Request{Prompt: r.encode(t, "In the"), Grammar: g, Sampling: sample.Settings{Bias: bias}}
	if got := generate(t, s, r, q); got.Text != "x" {
		t.Errorf("made unlikely, it is still the only one: %q", got.Text)
	}
	for id := range bias {
		bias[id] = -1e300 // beyond what a float32 holds
	}
	if _, err := r.Generate(t.Context(), s, q, Hooks{}); err == nil || !strings.Contains(err.Error(), "no token that may come") {
		t.Errorf("%v", err)
	}
}
