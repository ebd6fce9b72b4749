package constrain_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"payload/mlxrunner/constrain"
	"payload/mlxrunner/tokenizer"
)

// schemas are walked through at random.
var schemas = map[string]string{
	"any object": `{"type": "object"}`,
	"anything":   `true`,
	"person": `{"type": "object", "required": ["name", "tags"], "additionalProperties": false, "properties": {
		"name": {"type": "string", "minLength": 2, "maxLength": 9}, "näme \"2\"\n": {"type": ["null", "boolean"]},
		"age": {"type": "integer", "minimum": -7, "exclusiveMaximum": 130}, "tags": {"type": "array", "items": {"enum": ["a", "ab", "abc", 1, 1.5, null, {"x": [1, 2]}]}, "maxItems": 3}}}`,
	"list": `{"$ref": "#/$defs/list", "$defs": {"list": {"type": ["object", "null"], "properties": {"head": {"type": "number", "minimum": -0.25, "maximum": 12.5}, "tail": {"$ref": "#/$defs/list"}}, "required": ["tail"], "additionalProperties": false}}}`,
	"union": `{"oneOf": [{"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]}, {"properties": {"kind": {"enum": ["b", "c"]}, "s": {"type": "string", "format": "date-time"}}, "required": ["s", "kind"]}],
		"type": "object", "maxLength": 3}`,
	"formats":  `{"type": "array", "prefixItems": [{"format": "date"}, {"format": "time"}, {"format": "uuid"}, {"format": "ipv4"}, {"format": "email"}], "items": {"pattern": "^[^\\s.]{1,9}\\.(go|c)$"}, "minItems": 7, "maxItems": 9, "allOf": [{"items": {"type": "string"}}]}`,
	"patterns": `{"type": "object", "patternProperties": {"^n": {"type": "number"}, "s$": {"type": ["string", "number"], "maxLength": 2}}, "additionalProperties": {"type": "null"}, "properties": {"name": {}, "x": false}}`,
	"merged":   `{"allOf": [{"type": ["string", "integer", "array"]}, {"anyOf": [{"minLength": 3, "type": "string"}, {"minimum": 5, "type": ["integer", "boolean"]}, {"items": {"type": "integer"}, "type": "array"}]}, {"pattern": "^[a-f]*$", "items": {"maximum": 3}}]}`,
	"tree":     `{"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "boolean"}]}}]}`,
}

func judge(t *testing.T, schema string) func(text string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("form.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("form.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		if !json.Valid([]byte(text)) {
			return json.Unmarshal([]byte(text), new(any))
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return compiled.Validate(v)
	}
}

// words is a tokenizer's vocabulary, with an id that ends texts.
type words struct {
	*constrain.Vocabulary
	added [][]byte
	end   int
}

func vocabulary(tb testing.TB, tok *tokenizer.Tokenizer, end string) words {
	tb.Helper()
	added, _, err := tok.Bytes()
	if err != nil {
		tb.Fatal(err)
	}
	id, ok := tok.ID(end)
	if !ok {
		tb.Fatal("no token", end)
	}
	return words{constrain.NewVocabulary(added, []int{id}), added, id}
}

func vocabularies(tb testing.TB) map[string]words {
	tb.Helper()
	tiny, err := tokenizer.Load("../../internal/verify/tinymodel/safetensors")
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]words{"tiny": vocabulary(tb, tiny, "<|im_end|>")}
	for name, end := range map[string]string{"llama3": "<|end|>", "gemma": "<|end|>"} {
		text, err := os.ReadFile("../tokenizer/testdata/" + name + ".json")
		if err != nil {
			tb.Fatal(err)
		}
		var recorded struct{ Tokenizer json.RawMessage }
		if err := json.Unmarshal(text, &recorded); err != nil {
			tb.Fatal(err)
		}
		tok, err := tokenizer.Parse(recorded.Tokenizer)
		if err != nil {
			tb.Fatal(err)
		}
		all[name] = vocabulary(tb, tok, end)
	}
	if path := os.Getenv("PAYLOAD_TOKENIZER"); path != "" {
		all[path] = vocabulary(tb, given(tb, path), "<|eot_id|>")
	}
	return all
}

// given is the tokenizer that PAYLOAD_TOKENIZER names: a tokenizer.json of the
// family of llama 3, too large to be kept here.
func given(tb testing.TB, path string) *tokenizer.Tokenizer {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	tok, err := tokenizer.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// walk takes allowed tokens at random until the text ends, after a while such
// as lead there. Every so often it holds the whole mask against what a step
// says.
func walk(t *testing.T, a *constrain.Automaton, w words, chance *rand.Rand) string {
	t.Helper()
	s := a.Start()
	allowed := make([]bool, len(w.added)+3)
	var text []byte
	for n := 0; ; n++ {
		if !a.Allowed(s, allowed) {
			t.Fatalf("nothing may follow %q", text)
		}
		if chance.IntN(10+len(allowed)/500) == 0 {
			for id, may := range allowed {
				if next := a.Next(s, id); may != (next != nil) {
					t.Fatalf("behind %q the mask says %t of token %d", text, may, id)
				}
			}
		}
		var ids, shut []int
		for id, may := range allowed {
			if may {
				ids = append(ids, id)
				if id == w.end || strings.ContainsAny(string(w.added[id]), `"}]`) && len(w.added[id]) == 1 {
					shut = append(shut, id)
				}
			}
		}
		if n > 40 && len(shut) > 0 && chance.IntN(4) > 0 {
			ids = shut
		}
		id := ids[chance.IntN(len(ids))]
		if id == w.end {
			if !s.Final() {
				t.Fatalf("the text may end behind %q", text)
			}
			return string(text)
		}
		text = append(text, w.added[id]...)
		if s = a.Next(s, id); s.Complete() {
			return string(text)
		}
	}
}

func TestWalks(t *testing.T) {
	chance := rand.New(rand.NewPCG(7, 8))
	for kind, w := range vocabularies(t) {
		for name, schema := range schemas {
			g, err := constrain.Schema([]byte(schema))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			valid := judge(t, schema)
			longest := ""
			for range 25 {
				text := walk(t, g.Bind(w.Vocabulary), w, chance)
				if err := valid(text); err != nil {
					t.Fatalf("%s, %s: %s\n%v", kind, name, text, err)
				}
				if len(text) > len(longest) && len(text) < 300 {
					longest = text
				}
			}
			t.Logf("%s, %s: %s", kind, name, longest)
		}
		for _, expr := range []string{`a*b|c{2,4}`, `^\p{Greek}{2}$`, `(?i)straße`, `[^a]{0,5}`, `\x00?"+`, `^(x$|y)$`} {
			g, err := constrain.Regex(expr)
			if err != nil {
				t.Fatal(err)
			}
			whole := regexp.MustCompile("^(?:" + expr + ")$")
			for range 20 {
				if text := walk(t, g.Bind(w.Vocabulary), w, chance); !whole.MatchString(text) {
					t.Fatalf("%s, %s: %q", kind, expr, text)
				}
			}
		}
	}
}

// A state that was kept goes on as if nothing had been read since.
func TestTakenBack(t *testing.T) {
	for _, w := range vocabularies(t) {
		a := constrain.Object().Bind(w.Vocabulary)
		if a != constrain.Object().Bind(w.Vocabulary) {
			t.Error("what is known of a grammar was forgotten")
		}
		chance := rand.New(rand.NewPCG(3, 4))
		s := a.Start()
		before, after := make([]bool, len(w.added)), make([]bool, len(w.added))
		for range 20 {
			a.Allowed(s, before)
			for at, n := s, 0; at != nil && n < 5; n++ {
				at = a.Next(at, chance.IntN(len(w.added)))
			}
			a.Allowed(s, after)
			if !slices.Equal(before, after) {
				t.Fatal("a state changed")
			}
			for {
				if next := a.Next(s, chance.IntN(len(w.added))); next != nil && !next.Complete() {
					s = next
					break
				}
			}
		}
	}
}

// BenchmarkMask takes a tokenizer.json from PAYLOAD_TOKENIZER and tells how
// long the mask takes at each token of a text: cold, the first time a text is
// followed, and warm, the next times.
func BenchmarkMask(b *testing.B) {
	path := os.Getenv("PAYLOAD_TOKENIZER")
	if path == "" {
		b.Skip("PAYLOAD_TOKENIZER names no tokenizer.json")
	}
	tok := given(b, path)
	began := time.Now()
	added, _, err := tok.Bytes()
	if err != nil {
		b.Fatal(err)
	}
	v := constrain.NewVocabulary(added, nil)
	b.Logf("a vocabulary of %d tokens is read in %v", len(added), time.Since(began))
	const sample = `{"name":"Ada Lovelace, Countess","age":36,"tags":["analyst","metaphysics","poetical science"],"born":"1815-12-10","notes":{"a":[1,2.5,true,null],"b":"née Byron 🙂"}}`
	ids, err := tok.Encode(sample, false)
	if err != nil {
		b.Fatal(err)
	}
	for name, schema := range map[string]string{
		"object": `{"type": "object"}`,
		"schema": `{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
			"born": {"type": "string", "format": "date"}, "notes": {"type": "object"}}, "required": ["name", "age", "tags", "born", "notes"], "additionalProperties": false}`,
	} {
		for _, cold := range []bool{true, false} {
			heat := map[bool]string{true: "cold", false: "warm"}[cold]
			b.Run(name+"/"+heat, func(b *testing.B) {
				allowed := make([]bool, len(added))
				var a *constrain.Automaton
				// Of the times of one token the least counts: others were interrupted.
				least := make([]time.Duration, len(ids))
				follow := func() {
					s := a.Start()
					for i, id := range ids {
						began := time.Now()
						a.Allowed(s, allowed)
						if s = a.Next(s, id); s == nil {
							b.Fatalf("%q may not come", added[id])
						}
						if took := time.Since(began); least[i] == 0 || took < least[i] {
							least[i] = took
						}
					}
				}
				var compiling time.Duration
				fresh := func() {
					b.StopTimer()
					began := time.Now()
					// Another text of the schema is another grammar.
					schema += " "
					g, err := constrain.Schema([]byte(schema))
					if err != nil {
						b.Fatal(err)
					}
					if took := time.Since(began); compiling == 0 || took < compiling {
						compiling = took
					}
					a = g.Bind(v)
					b.StartTimer()
				}
				if fresh(); !cold {
					follow()
					clear(least)
				}
				b.ResetTimer()
				for range b.N {
					if cold {
						fresh()
					}
					follow()
				}
				var all time.Duration
				for _, took := range least {
					all += took
				}
				b.ReportMetric(float64(all.Microseconds())/float64(len(ids)), "µs/token")
				b.ReportMetric(float64(slices.Max(least).Microseconds()), "µs-worst-token")
				b.ReportMetric(float64(compiling.Microseconds()), "µs-compile")
			})
		}
	}
}
