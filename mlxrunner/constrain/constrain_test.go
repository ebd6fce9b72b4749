package constrain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// What is not supported is refused, with the keyword and its place.
func TestRefused(t *testing.T) {
	for schema, want := range map[string]string{
		`{"multipleOf": 2}`: "multipleOf is not supported: ",
		`{"properties": {"a/b": {"items": {"uniqueItems": true}}}}`: "uniqueItems at /properties/a~1b/items is not supported: ",
		`{"not": {}}`:                      "not is not supported",
		`{"if": {}}`:                       "if is not supported",
		`{"contains": {}}`:                 "contains is not supported",
		`{"propertyNames": {}}`:            "propertyNames is not supported",
		`{"minProperties": 1}`:             "minProperties is not supported",
		`{"dependentRequired": {}}`:        "dependentRequired is not supported",
		`{"unevaluatedProperties": false}`: "unevaluatedProperties is not supported",
		`{"$dynamicRef": "#x"}`:            "$dynamicRef is not supported",
		`{"$anchor": "x"}`:                 "$anchor is not supported",
		`{"nullable": true}`:               "nullable is not supported",
		`{"contentEncoding": "base64"}`:    "contentEncoding is not supported",
		`{"format": "idn-email"}`:          "format idn-email is not supported: date, date-time, email, ipv4, time, uuid are",
		`{"items": [{}]}`:                  "items as an array is not supported",
		`{"$ref": "other.json"}`:           "$ref other.json is not supported",
		`{"$ref": "#name"}`:                "$ref #name is not supported",
		`{"items": {"$id": "x"}}`:          "$id at /items is not supported",
		`{"$schema": "http://json-schema.org/draft-04/schema#"}`: "$schema http://json-schema.org/draft-04/schema# is not supported",
		`{"pattern": "(?=a)"}`:                                "(?= is not supported",
		`{"pattern": "(a)\\1"}`:                               `\1 is not supported`,
		`{"pattern": "\\ba"}`:                                 `\b is not supported`,
		`{"pattern": "\\Aa"}`:                                 `\A is not supported`,
		`{"pattern": "[\\S]"}`:                                `\S is not supported`,
		`{"pattern": "[]"}`:                                   `[] is not supported`,
		`{"oneOf": [{"minimum": 2}, {"maximum": 2}]}`:         "oneOf is not supported",
		`{"minimum": 1e999}`:                                  "minimum 1e999 is not supported",
		`{"type": "string", "maxLength": 1000000}`:            "a grammar of this size is not supported",
		`{"type": "string", "pattern": "^(a|b)*a(a|b){40}$"}`: "a grammar of this size is not supported",
		`{"pattern": "a{1001}"}`:                              "an expression of this size is not supported",
		`{"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": []}`:                                                 "prefixItems is not supported",
		`{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 1, "definitions": {"a": {}}}`: "minimum is not supported",
		`{"type": "object", "patternProperties": {"1":{},"2":{},"3":{},"4":{},"5":{},"6":{},"7":{}}}`:                               "patternProperties is not supported",
	} {
		began := time.Now()
		_, err := Schema([]byte(schema))
		var e *UnsupportedError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", schema, err, want)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: refused after %v", schema, took)
		} else if took > 100*time.Millisecond {
			t.Log(schema, took)
		}
	}
	for expr, want := range map[string]string{
		`a\b`:          `\b is not supported`,
		`(?m)^a`:       `(?m:^) is not supported`,
		`a(?!b)`:       `(?! is not supported`,
		`(.)\1`:        `\1 is not supported`,
		`(\w{999}){9}`: `an expression of this size is not supported`,
	} {
		_, err := Regex(expr)
		var e *UnsupportedError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", expr, err, want)
		}
	}
}

// What is wrong is told with its place.
func TestInvalid(t *testing.T) {
	for schema, want := range map[string]string{
		``:                                 "unexpected EOF",
		`{"type": "object"`:                "unexpected EOF",
		`{} {}`:                            "more follows",
		`{"type": "str"}`:                  "/type: want a type",
		`{"type": 3}`:                      "/type: want a string",
		`{"properties": []}`:               "/properties: want an object",
		`{"properties": {"a": 3}}`:         "/properties/a: want a schema",
		`{"minItems": 1.5}`:                "/minItems: want a whole number from 0 on",
		`{"minimum": "1"}`:                 "/minimum: want a number",
		`{"anyOf": []}`:                    "/anyOf: want an array with a schema",
		`{"$ref": "#/$defs/x"}`:            "$ref #/$defs/x leads nowhere",
		`{"$ref": "#"}`:                    "it leads back to itself",
		`{"anyOf": [{"$ref": "#"}, true]}`: "/anyOf/0: it leads back to itself",
		`{"pattern": "("}`:                 "missing closing )",
		`{"type": "a", "type": "b"}`:       `the schema has "type" twice`,
		`3`:                                "want a schema",
		`false`:                            "no value is valid",
		`{"enum": [1], "type": "string"}`:  "no value is valid",
		`{"type": "object", "properties": {"a": false}, "required": ["a"]}`:              "no value is valid",
		`{"type": "array", "items": {"$ref": "#"}, "minItems": 1}`:                       "no value is valid",
		`{"type": "integer", "minimum": 3, "exclusiveMaximum": 4, "not_": 1, "enum": 1}`: "not_ is not supported",
		strings.Repeat(`{"items":`, 300) + "{}" + strings.Repeat("}", 300):               "nested deeper than 200",
	} {
		if _, err := Schema([]byte(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %s", schema, err, want)
		}
	}
	if _, err := Regex(`a\B$b`); err == nil {
		t.Error("no error")
	}
	if _, err := Regex(`a$b`); err == nil || !strings.Contains(err.Error(), "no text matches") {
		t.Errorf("%v", err)
	}
}

// White space, order and spelling are as the package says.
func TestForm(t *testing.T) {
	const schema = `{"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["z", "b"]}`
	g, err := Schema([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	a := g.Bind(oneByte)
	for text, want := range map[string]bool{
		`{"b":"","z":1}`:                   true,
		`{"b": "", "a": 1, "z": [1, {}]}`:  true,
		`{"b":"","z":1,"y":2, "x":[]}`:     true,
		`{"z":1,"b":""}`:                   false, // order
		`{"b":"","y":2,"z":1}`:             false,
		`{"b":""}`:                         false, // missing
		`{ "b":"","z":1}`:                  false, // white space
		`{"b" :"","z":1}`:                  false,
		`{"b":  "","z":1}`:                 false,
		`{"b":"","z":1 }`:                  false,
		`{"b":"","z":1} `:                  false,
		`{"b":"\u0041","z":1}`:             false, // escapes
		`{"b":"\/","z":1}`:                 false,
		`{"b":"\"\\\n\u001f/é🙂","z":1}`:    true,
		`{"b":"\u000a","z":1}`:             false,
		"{\"b\":\"\xff\",\"z\":1}":         false,
		"{\"b\":\"\xed\xa0\x80\",\"z\":1}": false, // half a character
		`{"b":"","a":1.0,"z":1}`:           false,
		`{"b":"","a":-0,"z":1}`:            false,
		`{"b":"","a":01,"z":1}`:            false,
		`{"b":"","z":1,"b":2}`:             false, // one that is named, again
	} {
		if got := accepts(t, a, text); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// Numbers between bounds are those that are.
func TestSpans(t *testing.T) {
	chance := rand.New(rand.NewPCG(5, 6))
	number := func() string {
		text := fmt.Sprint(chance.IntN(130))
		if chance.IntN(2) == 0 {
			text += fmt.Sprintf(".%0*d", 1+chance.IntN(3), chance.IntN(100))
		}
		if chance.IntN(3) == 0 {
			text = "-" + text
		}
		return text
	}
	for range 300 {
		s := span{whole: chance.IntN(2) == 0}
		for _, side := range []**bound{&s.low, &s.high} {
			if chance.IntN(3) > 0 {
				d, _ := readDecimal(number())
				*side = &bound{d, chance.IntN(2) == 0}
			}
		}
		d := s.dfa(newBudget())
		for range 100 {
			text := number()
			n, ok := readDecimal(text)
			want := ok && above(s.low, order(n, s.low)) && below(s.high, order(n, s.high)) && (!s.whole || !strings.Contains(text, "."))
			if strings.HasPrefix(text, "-") && !n.negative {
				want = false // -0
			}
			if got := d.accepts(text); got != want {
				t.Fatalf("%s in %s: %t", text, s, got)
			}
		}
	}
	for text, want := range map[string]bool{"1e5": true, "-2.50E-12": true, "1e1000": false, "1.": false, ".5": false, "+1": false, "00": false, "0.0": true, strings.Repeat("9", 21): false} {
		if got := (span{}).dfa(newBudget()).accepts(text); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// Expressions match what Go's own match, in UTF-8 and between quotes.
func TestExpressions(t *testing.T) {
	chance := rand.New(rand.NewPCG(9, 10))
	letters := []string{"a", "b", "c", "A", "0", "7", "é", "ß", "語", "🙂", "\n", "\t", `"`, `\`, " ", "\x01", "\u2028", "\ufffd", "퟿", "\U0010ffff"}
	for _, expr := range []string{
		"", "a", "^a", "a$", "^a$", "a|^$", "(^|b)a*(c|$)", "^(a|b)*$", "a.c", "(?s)a.c", "[^a]", "[a-c]{2,3}", `\d+`, `\W`, "(?i)ß|é", `\pL+`, `[\x{80}-\x{10ffff}]`,
		`["\\]`, `^[^"]*$`, `(a+b?){2}`, `a{0}`, `^$|^^a`, `\s`, "[\n-\x7f]", `(b$|a)c*`, `$^`, `a*?b`,
	} {
		re := regexp.MustCompile(expr)
		whole := regexp.MustCompile("^(?:" + expr + ")$")
		anywhere, exact := expression(newBudget(), quoted, expr, "", true), expression(newBudget(), plain, expr, "", false)
		for range 400 {
			var text string
			for range chance.IntN(6) {
				text += letters[chance.IntN(len(letters))]
			}
			if got, want := anywhere.accepts(inside(text)), re.MatchString(text); got != want {
				t.Errorf("%s in %q: %t", expr, text, got)
			}
			if got, want := exact.accepts(text), whole.MatchString(text); got != want {
				t.Errorf("%s is %q: %t", expr, text, got)
			}
		}
	}
}

// A text may be empty where the expression says so, and may be cut off by no
// end before.
func TestEmpty(t *testing.T) {
	for expr, want := range map[string]bool{"a*": true, "a?b?": true, "a+": false} {
		g, err := Regex(expr)
		if err != nil {
			t.Fatal(err)
		}
		a := g.Bind(NewVocabulary([][]byte{[]byte("a"), []byte("b"), nil, []byte("end")}, []int{3}))
		allowed := make([]bool, 6)
		if a.Allowed(a.Start(), allowed); a.Start().Final() != want || allowed[3] != want || !allowed[0] || allowed[2] || allowed[4] {
			t.Errorf("%s: final %t, allowed %v", expr, a.Start().Final(), allowed)
		}
		if next := a.Next(a.Start(), 3); (next != nil) != want || want && !next.Complete() {
			t.Errorf("%s: %v behind the end", expr, next)
		}
		if a.Allowed(a.Start(), allowed[:0]) {
			t.Errorf("%s: something of nothing may come", expr)
		}
	}
	if _, err := Regex("^$"); err == nil || !strings.Contains(err.Error(), "only the empty text") {
		t.Errorf("%v", err)
	}
}

// One automaton serves several goroutines.
func TestConcurrentUse(t *testing.T) {
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			a := Object().Bind(oneByte)
			s := a.Start()
			allowed := make([]bool, 256)
			for _, b := range []byte(`{"a":[1,{"b":"c"}]}`) {
				if a.Allowed(s, allowed); !allowed[b] {
					t.Errorf("%c may not come", b)
					return
				}
				s = a.Next(s, int(b))
			}
		})
	}
	wait.Wait()
}

// Stacks that go on alike are one: a state does not grow with what branches.
func TestAmbiguous(t *testing.T) {
	g, err := Schema([]byte(`{"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a := g.Bind(oneByte)
	s := a.Start()
	for range 2000 {
		s = a.Next(s, '[')
	}
	if len(s.items) > 10 {
		t.Errorf("%d items", len(s.items))
	}
	if s = a.read(s, []byte("null"+strings.Repeat("]", 2000))); s == nil || !s.Complete() {
		t.Error("what was opened can't be closed")
	}
}

// Whatever is kept is bounded, and forgetting changes nothing.
func TestForgets(t *testing.T) {
	a := Object().Bind(NewVocabulary(oneByte.tokens, nil))
	s := a.Start()
	for range 200 {
		for _, b := range []byte(`{"a":[`) {
			before := make([]bool, 256)
			a.Allowed(s, before)
			a.forget()
			after := make([]bool, 256)
			if a.Allowed(s, after); fmt.Sprint(before) != fmt.Sprint(after) {
				t.Fatal("forgetting changed what may come")
			}
			s = a.Next(s, int(b))
		}
	}
	for range 100_000 {
		s = a.Next(s, '[')
		if a.used > maxBytes {
			t.Fatalf("%d bytes are kept", a.used)
		}
	}
}

// A schema from anywhere compiles or is refused, in bounded time; what compiles
// can be begun.
func FuzzSchema(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["b"],"additionalProperties":{"type":["null","string"]}}`,
		`{"oneOf":[{"const":1},{"enum":["a",{"b":[]}]}],"$defs":{"x":false}}`,
		`{"allOf":[{"pattern":"^a|b$"},{"maxLength":3,"format":"date"}],"type":"string"}`,
		`{"prefixItems":[true,{"minimum":-1.5e2,"exclusiveMaximum":7}],"items":false,"minItems":1}`,
		`{"patternProperties":{"a+":{"type":"integer"}},"minLength":9}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		began := time.Now()
		g, err := Schema(schema)
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("%d bytes took %v", len(schema), took)
		}
		if err != nil {
			var unsupported *UnsupportedError
			var invalid *InvalidError
			if !errors.As(err, &unsupported) && !errors.As(err, &invalid) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if !g.Bind(oneByte).Allowed(g.Bind(oneByte).Start(), make([]bool, 256)) {
			t.Fatal("nothing may come first")
		}
	})
}

func FuzzRegex(f *testing.F) {
	for _, seed := range []string{`a*`, `^(\d{1,3}\.){3}$`, `[^\pL"]+|(?i:x)`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		began := time.Now()
		_, _ = Regex(expr)
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("%s took %v", expr, took)
		}
	})
}
