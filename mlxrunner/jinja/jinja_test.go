package jinja

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 30, 12, 34, 56, 0, time.UTC)

func recorded[T any](t *testing.T, name string) T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func names(t *testing.T, text []byte) *Dict {
	t.Helper()
	v, err := FromJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*Dict)
}

func render(source string, names *Dict) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(names, now)
}

// TestConstructs holds small templates against what Jinja2 makes of them; see
// scripts/templates/make.py.
func TestConstructs(t *testing.T) {
	r := recorded[struct {
		Names      json.RawMessage
		Constructs []struct {
			Template string
			Text     *string
		}
	}](t, "constructs.json")
	if len(r.Constructs) < 150 {
		t.Fatalf("%d constructs", len(r.Constructs))
	}
	for _, c := range r.Constructs {
		got, err := render(c.Template, names(t, r.Names))
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%s\ngives %q, the reference fails", c.Template, got)
		case c.Text != nil && err != nil:
			t.Errorf("%s\nfails: %v\nwant %q", c.Template, err, *c.Text)
		case c.Text != nil && got != *c.Text:
			t.Errorf("%s\ngives %q\nwant  %q", c.Template, got, *c.Text)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%s\nfails with %T", c.Template, err)
		}
	}
}

// TestRealTemplates renders conversations by the templates of well-known
// models, which the pinned llama.cpp carries: CHAT_TEMPLATES names the folder.
func TestRealTemplates(t *testing.T) {
	dir := os.Getenv("CHAT_TEMPLATES")
	if dir == "" {
		t.Skip("CHAT_TEMPLATES names no folder of templates; scripts/test does")
	}
	r := recorded[struct {
		Conversations map[string]json.RawMessage
		Results       map[string]*string
	}](t, "upstream.json")
	for key, want := range r.Results {
		file, conversation, _ := strings.Cut(key, " ")
		source, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		given := NewDict()
		given.Set("bos_token", "<s>")
		given.Set("eos_token", "</s>")
		given.Set("add_generation_prompt", true)
		n := names(t, r.Conversations[conversation])
		for _, k := range n.Keys() {
			v, _ := n.Get(k)
			given.Set(k, v)
		}
		got, err := render(string(source), given)
		sum := sha256.Sum256([]byte(got))
		switch {
		case want == nil && err == nil:
			t.Errorf("%s gives %q, the reference fails", key, got)
		case want != nil && err != nil:
			t.Errorf("%s fails: %v", key, err)
		case want != nil && hex.EncodeToString(sum[:8]) != *want:
			t.Errorf("%s gives another text than the reference:\n%s", key, got)
		}
	}
}

// A fault says where in the template it is and what is missing there.
func TestFaults(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ x.y }}":                           "line 2: x is undefined",
		"{{ none.y.z }}":                         "line 1: NoneType has no attribute y, which is undefined",
		"a\n\n{% for x in 5 %}{% endfor %}":      "line 3: int can't be iterated over",
		"{% if t %}":                             "line 1: the template ends, endif is missing",
		"{{ 'a' + 1 }}":                          "line 1: str + int has no meaning",
		"{{ [].append(1) }}":                     "append would change a value",
		"{{ 'x' | nope }}":                       `filter "nope" is not supported`,
		"{{ raise_exception('roles, please') }}": "line 1: roles, please",
		"{% include 'x' %}":                      `tag "include" is not supported`,
		"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}":    "brackets and blocks within each other",
		"{{ " + strings.Repeat("not ", 1000) + "1 }}":                                  "brackets and blocks within each other",
		strings.Repeat("{% if 1 %}", 1000):                                             "brackets and blocks within each other",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}":                              "macro m is 200 deep in itself",
		"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}":                      "a loop is 200 deep in itself",
		"{% for x in range(9999) %}{% for y in range(9999) %}{% endfor %}{% endfor %}": "more than 1000000 steps",
		"{{ 'abc' * 10 ** 9 }}":                                                        "1000000000 times 3 is too much",
		"{{ range(10 ** 6) }}":                                                         "a range of more than 100000 numbers",
	} {
		_, err := render(source, NewDict())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nfails with %v\nwant %q", source, err, want)
		}
		var e *Error
		if !errors.As(err, &e) || e.Raised != strings.Contains(source, "raise_exception") {
			t.Errorf("%s: raised by the template: %+v", source, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("{% for x in [1, {'a': (2,)}] %}{{ x|tojson ~ loop.index }}{% endfor %}")
	f.Add("{%- macro m(a=1) -%}{% if a is defined %}{{ a[1:] }}{% endif %}{%- endmacro %}{{ m('%s' % 1) }}")
	f.Add("{# c #}{% raw %}{{ {% endraw %}{% set ns.x = 1 %}")
	f.Fuzz(func(t *testing.T, source string) {
		_, err := render(source, NewDict())
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%q: %v", source, err)
		}
	})
}

func TestFromJSON(t *testing.T) {
	v, err := FromJSON([]byte(`{"z":[1,1.5,true,null,"x"],"a":{}}`))
	if err != nil || repr(v) != "{'z': [1, 1.5, True, None, 'x'], 'a': {}}" {
		t.Errorf("%s, %v", repr(v), err)
	}
	for _, text := range []string{"", "{", "[1", `{"a":}`, "1 2", "nope"} {
		if v, err := FromJSON([]byte(text)); err == nil {
			t.Errorf("%q is %s", text, repr(v))
		}
	}
}
