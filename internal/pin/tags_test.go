package pin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"payload/internal/config"
	"payload/internal/git"
)

func TestInFamily(t *testing.T) {
	for _, c := range []struct {
		pinned string
		tags   []string
		yes    []string
		no     []string
	}{
		{"b100", nil, []string{"b1", "b99999"}, []string{"v1.0", "b1-x", "master", "gguf-v0.1"}},
		{"v0.32.2", nil, []string{"v1.0", "0.33"}, []string{"b1", "v0.33.0-rc1", "v0.33.0-dev"}},
		{"v0.33.0-rc1", nil, []string{"v0.33.0-rc2", "v0.33.0"}, []string{"b1"}},
		{"gguf-v0.9", nil, []string{"gguf-v0.10"}, []string{"v0.9", "gguf-x", "other-v0.9"}},
		{"b100", []string{"b[0-9]*", "v*"}, []string{"b7", "v0.5.0", "v1-rc1"}, []string{"gguf-v0.9", "bx"}},
		{strings.Repeat("a1", 20), nil, nil, []string{"b1", strings.Repeat("a2", 20)}},
	} {
		component := config.Component{Tags: c.tags}
		for _, ref := range c.yes {
			if !InFamily(component, c.pinned, ref) {
				t.Errorf("%s is not of the family of %s %v", ref, c.pinned, c.tags)
			}
		}
		for _, ref := range c.no {
			if InFamily(component, c.pinned, ref) {
				t.Errorf("%s is of the family of %s %v", ref, c.pinned, c.tags)
			}
		}
	}
}

func TestCompareOtherNames(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		order int
		ok    bool
	}{
		{"gguf-v0.9", "gguf-v0.10", -1, true},
		{"release-2024.12", "release-2025.1", -1, true},
		{"n007", "n7", 0, true},
		{"n18446744073709551616", "n18446744073709551617", -1, true},
		{"gguf-v0.9", "gguf-v0.9.1", 0, false},
		{"main", "other", 0, false},
		{strings.Repeat("1", 40), strings.Repeat("2", 40), 0, false},
	} {
		if order, ok := Compare(c.a, c.b); order != c.order || ok != c.ok {
			t.Errorf("%s and %s: %d, %t", c.a, c.b, order, ok)
		}
	}
}

func TestPassedOver(t *testing.T) {
	c := config.Component{Ignore: []string{"b11?"}, Throttle: 5}
	for ref, want := range map[string]string{"b110": "ignored", "b100": "", "b101": "throttled to every 5", "v0.5": "", "v5.1": "throttled to every 5"} {
		if got := PassedOver(c, ref); got != want {
			t.Errorf("%s: %q, want %q", ref, got, want)
		}
	}
}

// What orders refs of different families, from the best.
func TestFactsCompare(t *testing.T) {
	f := Facts{
		Commits: map[string]string{"b10": "c1", "b20": "c2", "b30": "c3", "v1": "c2", "v2": "c9", "v3": "c8"},
		Places:  map[string]int{"c1": 1, "c2": 2, "c3": 5, "c9": 3},
		Builds:  map[string]int{"v3": 25},
	}
	for _, c := range []struct {
		a, b string
		want string
	}{
		{"b10", "b20", "-1 name true"},
		{"b20", "v1", "0 commit true"},
		{"v2", "b20", "1 commit true"},
		{"v2", "b30", "-2 commit true"},
		{"v3", "b20", "5 build number true"},
		{"v3", "v1", "1 name true"},
		{"main", "b10", "0  false"},
	} {
		order, how, ok := f.Compare(c.a, c.b)
		if got := fmt.Sprint(order, " ", how, " ", ok); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.a, c.b, got, c.want)
		}
	}
	// A version without a number of its own has that of the build at its commit.
	only := Facts{Commits: map[string]string{"b20": "c2", "v1": "c2"}}
	if order, how, ok := only.Compare("v1", "b30"); order >= 0 || how != ByBuild || !ok {
		t.Errorf("v1 and b30: %d, %s, %t", order, how, ok)
	}
}

func TestFactsSort(t *testing.T) {
	f := Facts{
		Commits: map[string]string{"b1": "c1", "b2": "c2", "b3": "c3", "v0.1": "c1", "v0.2": "x2", "v0.1.1": "x9", "v0.3": "unknown"},
		Places:  map[string]int{"c1": 0, "c2": 1, "x2": 2, "c3": 3, "x9": 4},
	}
	// v0.1.1 was tagged after v0.2 was; a family's own order holds.
	ordered, apart := f.Sort([]string{"b2", "v0.3", "b3", "v0.2", "b1", "v0.1", "v0.1.1", "b2"})
	want := []string{"b1", "v0.1", "b2", "b3", "v0.1.1", "v0.2"}
	if !slices.Equal(ordered, want) || !slices.Equal(apart, []string{"v0.3"}) {
		t.Errorf("%q, apart %q; want %q", ordered, apart, want)
	}
}

// The order of thousands of tags takes no time that a person notices.
func BenchmarkSort(b *testing.B) {
	f := Facts{Commits: map[string]string{}, Places: map[string]int{}}
	var refs []string
	for i := range 6000 {
		ref := fmt.Sprintf("b%d", i)
		refs, f.Commits[ref], f.Places[fmt.Sprint(i)] = append(refs, ref), fmt.Sprint(i), i
		if i%60 == 0 {
			v := fmt.Sprintf("v0.%d", i/60)
			refs, f.Commits[v] = append(refs, v), fmt.Sprint(i)
		}
	}
	for b.Loop() {
		if ordered, _ := f.Sort(refs); len(ordered) != 6100 {
			b.Fatal(len(ordered))
		}
	}
}

func TestMoved(t *testing.T) {
	e := Entry{Component: "c", Ref: "b1", Commit: "old", Sources: []Source{{From: "git"}}}
	var moved *MovedTagError
	if err := e.Moved([]git.Tag{{Name: "b1", Commit: "new"}}); !errors.As(err, &moved) || moved.Now != "new" {
		t.Errorf("%v", err)
	}
	if err := e.Moved([]git.Tag{{Name: "b1", Commit: "old"}, {Name: "b2", Commit: "new"}}); err != nil {
		t.Errorf("the same commit: %v", err)
	}
	e.Sources[0].From = "pypi:x==1"
	if err := e.Moved([]git.Tag{{Name: "b1", Commit: "new"}}); err != nil {
		t.Errorf("what a mirror said: %v", err)
	}
}
