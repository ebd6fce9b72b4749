package constrain

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bytesOnly is a vocabulary of a token a byte.
func bytesOnly() *Vocabulary {
	tokens := make([][]byte, 256)
	for b := range tokens {
		tokens[b] = []byte{byte(b)}
	}
	return NewVocabulary(tokens, nil)
}

// accepts reads a text byte by byte and holds each mask against it.
func accepts(t *testing.T, a *Automaton, text string) bool {
	t.Helper()
	s := a.Start()
	allowed := make([]bool, 256)
	for i := range len(text) {
		a.Allowed(s, allowed)
		next := a.Next(s, int(text[i]))
		if allowed[text[i]] != (next != nil) {
			t.Fatalf("%s: behind %q the mask says %t", text, text[:i], allowed[text[i]])
		}
		if next == nil {
			return false
		}
		s = next
	}
	return s.Final()
}

type group struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// left are the tests of formats that are told to leave something out: what the
// suite calls valid is never written.
var left = map[string]string{}

// TestSuite holds what compiles against the verdicts of JSON-Schema-Test-Suite.
// An instance is accepted if it is with its properties in some order.
func TestSuite(t *testing.T) {
	files, err := filepath.Glob("testdata/suite/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	bytes := bytesOnly()
	var total [6]int
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []group
		if err := json.Unmarshal(source, &groups); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		var count [6]int // groups, compiled, refused, empty, accepted, rejected
		for _, g := range groups {
			count[0]++
			grammar, err := Schema(g.Schema)
			var unsupported *UnsupportedError
			var invalid *InvalidError
			switch {
			case errors.As(err, &unsupported):
				count[2]++
				t.Logf("%s: %s: %v", name, g.Description, err)
				continue
			case errors.As(err, &invalid):
				count[3]++
				t.Logf("%s: %s: %v", name, g.Description, err)
			case err != nil:
				t.Fatal(err)
			default:
				count[1]++
			}
			for _, c := range g.Tests {
				if grammar == nil {
					if c.Valid {
						t.Errorf("%s: %s: %s: no value is valid, but this one is: %s", name, g.Description, c.Description, c.Data)
					}
					continue
				}
				got := false
				v, err := parse(c.Data)
				if err != nil {
					t.Fatal(err)
				}
				for _, text := range orders(v) {
					got = got || accepts(t, grammar.Bind(bytes), text)
				}
				if got {
					count[4]++
				} else {
					count[5]++
				}
				if got != c.Valid {
					t.Errorf("%s: %s: %s: accepted %t: %s by %s", name, g.Description, c.Description, got, c.Data, g.Schema)
				}
			}
		}
		t.Logf("%s: %d groups, %d compiled, %d refused, %d empty; %d instances accepted, %d rejected", name, count[0], count[1], count[2], count[3], count[4], count[5])
		for i, n := range count {
			total[i] += n
		}
	}
	t.Logf("all: %v", total)
}

// orders writes a value with its properties in every order, at most some
// thousand texts.
func orders(v *value) []string {
	switch v.kind {
	case array:
		parts := [][]string{}
		for _, sub := range v.list {
			parts = append(parts, orders(sub))
		}
		return join(parts, "[", "]")
	case object:
		var out []string
		permute(slices.Clone(v.keys), 0, func(keys []string) {
			if len(out) > 5000 {
				return
			}
			parts := [][]string{}
			for _, k := range keys {
				var members []string
				for _, text := range orders(v.fields[k]) {
					members = append(members, quote(k)+":"+text)
				}
				parts = append(parts, members)
			}
			out = append(out, join(parts, "{", "}")...)
		})
		return out
	}
	var out string
	v.write(func(text string) { out += text }, nil)
	return []string{out}
}

func join(parts [][]string, open, shut string) []string {
	out := []string{open}
	for i, choices := range parts {
		var next []string
		for _, before := range out {
			for _, text := range choices {
				if i > 0 {
					text = fmt.Sprintf(", %s", text)
				}
				next = append(next, before+text)
			}
		}
		out = next
	}
	for i := range out {
		out[i] += shut
	}
	return out
}

func permute(keys []string, from int, give func([]string)) {
	if from >= len(keys)-1 {
		give(keys)
		return
	}
	for i := from; i < len(keys); i++ {
		keys[from], keys[i] = keys[i], keys[from]
		permute(keys, from+1, give)
		keys[from], keys[i] = keys[i], keys[from]
	}
}
