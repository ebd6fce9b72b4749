package constrain

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oneByte is a vocabulary of a token a byte.
var oneByte = func() *Vocabulary {
	tokens := make([][]byte, 256)
	for b := range tokens {
		tokens[b] = []byte{byte(b)}
	}
	return NewVocabulary(tokens, nil)
}()

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

var update = flag.Bool("update", false, "write the goldens")

// A tally counts what became of a file of the suite.
type tally struct {
	Groups, Compiled, Refused, Empty int // of schemas
	Accepted, Rejected               int // instances
}

func (n tally) String() string {
	return fmt.Sprintf("%6d %8d %7d %5d %8d %8d", n.Groups, n.Compiled, n.Refused, n.Empty, n.Accepted, n.Rejected)
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

// unwritten are valid, and not among what is written: times have no leap
// second, mail addresses no IPv6 literal.
var unwritten = []string{
	"format-date-time: a valid date-time with a leap second, UTC",
	"format-date-time: a valid date-time with a leap second, with minus offset",
	"format-email: an IPv6-address-literal after the @ is valid",
	"format-time: a valid time string with leap second, Zulu",
	"format-time: valid leap second, zero time-offset",
	"format-time: valid leap second, positive time-offset",
	"format-time: valid leap second, large positive time-offset",
	"format-time: valid leap second, negative time-offset",
	"format-time: valid leap second, large negative time-offset",
}

// TestSuite holds what compiles against the verdicts of JSON-Schema-Test-Suite:
// an instance is valid just if it is accepted with its properties in some order.
// testdata/suite.txt says how much compiles.
func TestSuite(t *testing.T) {
	files, err := filepath.Glob("testdata/suite/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var total tally
	got := fmt.Sprintf("%-24s %6s %8s %7s %5s %8s %8s\n", "file", "groups", "compiled", "refused", "empty", "accepted", "rejected")
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
		var n tally
		for _, g := range groups {
			g.hold(t, name, &n)
		}
		got += fmt.Sprintf("%-24s %s\n", name, n)
		total = tally{total.Groups + n.Groups, total.Compiled + n.Compiled, total.Refused + n.Refused, total.Empty + n.Empty, total.Accepted + n.Accepted, total.Rejected + n.Rejected}
	}
	got += fmt.Sprintf("%-24s %s\n", "all", total)
	const golden = "testdata/suite.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != got {
		t.Errorf("%s is not what compiles (-update writes it): %v\n%s", golden, err, got)
	}
}

// hold compiles the schema of a group and holds its instances against it.
func (g *group) hold(t *testing.T, name string, n *tally) {
	t.Helper()
	n.Groups++
	grammar, err := Schema(g.Schema)
	var unsupported *UnsupportedError
	var invalid *InvalidError
	switch {
	case errors.As(err, &unsupported):
		n.Refused++
		t.Logf("%s: %s: %v", name, g.Description, err)
		return
	case errors.As(err, &invalid):
		n.Empty++
		for _, c := range g.Tests {
			if c.Valid {
				t.Errorf("%s: %s: %v, but %s is valid", name, g.Description, err, c.Data)
			}
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	n.Compiled++
	a := grammar.Bind(oneByte)
	for _, c := range g.Tests {
		v, err := parse(c.Data)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(orders(v), func(text string) bool { return accepts(t, a, text) })
		if got {
			n.Accepted++
		} else {
			n.Rejected++
		}
		want := c.Valid && !slices.Contains(unwritten, name+": "+c.Description)
		if got != want {
			t.Errorf("%s: %s: %s: accepted %t: %s by %s", name, g.Description, c.Description, got, c.Data, g.Schema)
		}
	}
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
