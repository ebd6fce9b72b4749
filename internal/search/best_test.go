package search

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/testkit"
	"payload/internal/workspace"
)

// upstream makes a repository with one commit and tag a number, of the files
// that content gives.
func upstream(t *testing.T, first, last int, content func(n int) map[string]string) testkit.Git {
	t.Helper()
	g := testkit.Repo(t)
	var in strings.Builder
	for n := first; n <= last; n++ {
		message := fmt.Sprintf("build %d\n", n)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata %d\n%s\n", 1000000000+n, len(message), message)
		for path, text := range content(n) {
			fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text)
		}
		fmt.Fprintf(&in, "reset refs/tags/b%d\nfrom refs/heads/main\n\n", n)
	}
	_, err := run.Do(t.Context(), run.Cmd{Dir: g.Dir, Args: []string{"git", "fast-import", "--quiet"}, Env: testkit.Identity, Stdin: strings.NewReader(in.String())})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// lines is a file of ten lines, of which some are given.
func lines(given map[int]string) string {
	var b strings.Builder
	for i := 1; i <= 10; i++ {
		if text, ok := given[i]; ok {
			fmt.Fprintln(&b, text)
		} else {
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	return b.String()
}

// change is a plain patch of line 5 of a file.
func change(path string) string {
	return fmt.Sprintf("--- a/%[1]s\n+++ b/%[1]s\n@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+line 5 of ours\n line 6\n line 7\n line 8\n", path)
}

func open(t *testing.T, upstream, pinned, more string, patches map[string]string) *workspace.Workspace {
	t.Helper()
	root := t.TempDir()
	t.Setenv("PAYLOAD_CACHE", filepath.Join(t.TempDir(), "cache"))
	testkit.Write(t, filepath.Join(root, "X_VERSION"), pinned+"\n")
	testkit.Write(t, filepath.Join(root, "payload.yaml"), fmt.Sprintf("version: 1\ncomponents:\n  x:\n    pin: X_VERSION\n    patches: patches\n    upstream: %q\n%s", upstream, more))
	for name, text := range patches {
		testkit.Write(t, filepath.Join(root, "patches", name), text)
	}
	w, err := workspace.Open(t.Context(), workspace.Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Two hundred commits, a break at the 137th for one patch and at the 60th for
// another: both are named within ten probes each.
func TestBestOf200NamesTheFirstBreakOfEachPatch(t *testing.T) {
	up := upstream(t, 1, 200, func(n int) map[string]string {
		a, b, c := map[int]string{1: fmt.Sprintf("build %d", n)}, map[int]string{}, map[int]string{}
		if n >= 137 {
			a[5] = "line 5 of theirs"
		}
		if n >= 60 {
			b[5] = "another line 5"
		}
		return map[string]string{"a": lines(a), "b": lines(b), "c": lines(c)}
	})
	for name, c := range map[string]struct {
		patches map[string]string
		best    string
		breaks  []string
		probes  int
	}{
		"one patch":    {map[string]string{"0001-a.patch": change("a")}, "b136", []string{"0001-a.patch b136 b137"}, 10},
		"three":        {map[string]string{"0001-a.patch": change("a"), "0002-c.patch": change("c"), "0003-b.patch": change("b")}, "b59", []string{"0001-a.patch b136 b137", "0003-b.patch b59 b60"}, 20},
		"never breaks": {map[string]string{"0002-c.patch": change("c")}, "b200", nil, 1},
	} {
		w := open(t, up.Dir, "b1", "", c.patches)
		f, err := Best(t.Context(), w, "x", BestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var breaks []string
		for _, b := range f.Breaks {
			breaks = append(breaks, fmt.Sprintf("%s %s %s", b.File, b.After, b.Ref))
			if b.Verdict != patch.Conflict || b.Again || b.Probes > 10 {
				t.Errorf("%s: %+v", name, b)
			}
		}
		if f.Ref != c.best || !slices.Equal(breaks, c.breaks) || len(f.Probes) > c.probes {
			t.Errorf("%s: best %s, breaks %q, %d probes: %+v", name, f.Ref, breaks, len(f.Probes), f.Probes)
		}
		t.Logf("%s: best %s, %d probes, breaks %q", name, f.Ref, len(f.Probes), breaks)
	}
}

// broken105 is tags b100 to b110 with a break at b105.
func broken105(t *testing.T) testkit.Git {
	t.Helper()
	return upstream(t, 100, 110, func(n int) map[string]string {
		a := map[int]string{10: fmt.Sprintf("build %d", n)}
		if n >= 105 {
			a[5] = "line 5 of theirs"
		}
		return map[string]string{"a": lines(a), "z": strings.Repeat("more\n", n-99)}
	})
}

func TestBestIsSixBehind(t *testing.T) {
	w := open(t, broken105(t).Dir, "b100", "", map[string]string{"0001-a.patch": change("a")})
	f, err := Best(t.Context(), w, "x", BestOptions{})
	if err != nil || f.Ref != "b104" || f.Behind != 6 || f.Ahead != 4 || f.Latest != "b110" || f.Series != patch.ResultClean {
		t.Fatalf("%+v, %v", f, err)
	}
	if f.Next == nil || f.Next.Ref != "b105" || f.Next.Check != "series" || !strings.Contains(f.Next.Why, "0001-a.patch") {
		t.Errorf("next %+v", f.Next)
	}
}

func TestBestAsksTheOtherChecks(t *testing.T) {
	w := open(t, broken105(t).Dir, "b100", "", map[string]string{"0001-a.patch": change("a")})
	asked := []string{}
	configures := Check{Name: "presets", Do: func(_ context.Context, ref string) (bool, string, error) {
		asked = append(asked, ref)
		return ref < "b103", "no such option", nil
	}}
	f, err := Best(t.Context(), w, "x", BestOptions{Checks: []Check{configures}})
	if err != nil || f.Ref != "b102" || f.Next == nil || f.Next.Ref != "b103" || f.Next.Check != "presets" || f.Next.Why != "no such option" {
		t.Errorf("%+v, %v", f, err)
	}
	for _, ref := range asked {
		if ref >= "b105" {
			t.Errorf("%s was configured, though its series doesn't apply", ref)
		}
	}
	if len(f.Breaks) != 1 || f.Breaks[0].Ref != "b105" || f.Breaks[0].After != "b104" {
		t.Errorf("the patch's own break: %+v", f.Breaks)
	}
	broken := errors.New("cmake is gone")
	configures.Do = func(context.Context, string) (bool, string, error) { return false, "", broken }
	if _, err := Best(t.Context(), w, "x", BestOptions{Checks: []Check{configures}}); !errors.Is(err, broken) {
		t.Errorf("an error in a check: %v", err)
	}
}

// Every ref changes two lines more than the one before: one in a, one in z.
func TestBestProposesASmallerStep(t *testing.T) {
	w := open(t, broken105(t).Dir, "b100", "", map[string]string{"0001-a.patch": change("a")})
	for max, want := range map[int]Step{
		4:   {4, "b102", 4}, // line 10 out and in, and two more lines
		100: {100, "b104", 6},
		2:   {2, "", 3},
	} {
		f, err := Best(t.Context(), w, "x", BestOptions{MaxReviewLines: max})
		if err != nil || f.Ref != "b104" || f.Step == nil || *f.Step != want {
			t.Errorf("%d lines: %+v, %v", max, f.Step, err)
		}
	}
	f, err := Best(t.Context(), w, "x", BestOptions{MaxReviewLines: 3, Paths: []string{"z"}})
	if err != nil || f.Step == nil || *f.Step != (Step{3, "b103", 3}) {
		t.Errorf("in one file: %+v, %v", f.Step, err)
	}
}

// What the pin's own series can't do is no question of a better ref.
func TestBestOfASeriesInConflict(t *testing.T) {
	w := open(t, broken105(t).Dir, "b106", "", map[string]string{"0001-a.patch": change("a")})
	_, err := Best(t.Context(), w, "x", BestOptions{})
	var conflict *patch.ConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("%v", err)
	}
}

func TestLatestThrottledAndIgnored(t *testing.T) {
	up := upstream(t, 100, 110, func(n int) map[string]string { return map[string]string{"a": fmt.Sprint(n)} })
	for more, want := range map[string]string{
		"":                                      "b110 10 0",
		"    throttle: 4\n":                     "b108 2 8",
		"    ignore: ['b110', 'b10[6-9]']\n":    "b105 5 5",
		"    ignore: ['b*']\n":                  "b100 0 10",
		"    throttle: 5\n    ignore: [b110]\n": "b105 1 9",
	} {
		w := open(t, up.Dir, "b100", more, nil)
		ref, behind, list, err := Latest(t.Context(), w, "x", Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, over, _ := list.Newer()
		if got := fmt.Sprint(ref, " ", behind, " ", over); got != want {
			t.Errorf("%q: %s, want %s", more, got, want)
		}
	}
}

// Build tags and versions in one order, by the commits that they name.
func TestListOrdersFamiliesByCommit(t *testing.T) {
	up := upstream(t, 100, 104, func(n int) map[string]string { return map[string]string{"a": fmt.Sprint(n)} })
	up.Run("tag", "-a", "-m", "a release", "v0.5.0", "b102")
	up.Run("tag", "v0.4.0", "b101")
	up.Run("tag", "other", "b104")
	w := open(t, up.Dir, "b100", "    tags: ['b[0-9]*', 'v*']\n", nil)
	list, err := List(t.Context(), w, "x", Options{History: true})
	want := []string{"b100", "b101", "v0.4.0", "b102", "v0.5.0", "b103", "b104"}
	if err != nil || !slices.Equal(list.All, want) || len(list.Unordered) > 0 {
		t.Errorf("%q, apart %q, %v", list.All, list.Unordered, err)
	}
	// A release that is between two builds is nobody's namesake.
	up.Run("checkout", "-q", "b102")
	up.Run("commit", "-q", "--allow-empty", "-m", "between")
	up.Run("tag", "v0.5.1")
	list, err = List(t.Context(), w, "x", Options{History: true})
	at := func(ref string) int { return slices.Index(list.All, ref) }
	if err != nil || at("v0.5.1") < at("v0.5.0") {
		t.Errorf("%q, %v", list.All, err)
	}
	list, err = List(t.Context(), w, "x", Options{})
	if err != nil || !slices.Equal(list.Unordered, []string{"v0.5.1"}) {
		t.Errorf("without history: %q, apart %q, %v", list.All, list.Unordered, err)
	}
}

func TestListFromMirrorsWhenUpstreamIsAway(t *testing.T) {
	old, new := t.TempDir(), t.TempDir()
	testkit.Write(t, filepath.Join(old, "a"), lines(nil))
	testkit.Write(t, filepath.Join(new, "a"), lines(map[int]string{1: "first"}))
	mirrors := fmt.Sprintf("    mirrors:\n      - {ref: b300, archive: %q}\n      - {ref: b100, archive: %q}\n", new, old)
	w := open(t, filepath.Join(t.TempDir(), "gone"), "b100", mirrors, map[string]string{"0001-a.patch": change("a")})
	f, err := Best(t.Context(), w, "x", BestOptions{})
	if err != nil || f.Ref != "b300" || f.Latest != "b300" || f.Away == "" || len(f.Probes) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestListRefusesAMovedTag(t *testing.T) {
	up := upstream(t, 100, 103, func(n int) map[string]string { return map[string]string{"a": lines(map[int]string{1: fmt.Sprint(n)})} })
	w := open(t, up.Dir, "b100", "", nil)
	if _, err := w.Relock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	up.Run("tag", "-f", "b100", "b101")
	_, err := List(t.Context(), w, "x", Options{})
	var moved *pin.MovedTagError
	if !errors.As(err, &moved) || moved.Ref != "b100" {
		t.Errorf("%v", err)
	}
}

func TestRange(t *testing.T) {
	r := Refs{All: []string{"b1", "b2", "b3", "b4"}, Unordered: []string{"v1"}}
	if got, err := r.Range("b1", "b3"); err != nil || !slices.Equal(got, []string{"b2", "b3"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, c := range [][2]string{{"b3", "b1"}, {"b2", "b2"}, {"b1", "b9"}, {"v1", "b2"}} {
		if got, err := r.Range(c[0], c[1]); err == nil {
			t.Errorf("%v gave %q", c, got)
		}
	}
}

// Which ref of one component goes with a ref of another.
func TestWanting(t *testing.T) {
	engine := upstream(t, 1, 4, func(n int) map[string]string { return map[string]string{"e": fmt.Sprint(n)} })
	binding := upstream(t, 10, 16, func(n int) map[string]string {
		return map[string]string{"deps": fmt.Sprintf("engine b%d\n", (n-8)/2)}
	})
	root := t.TempDir()
	t.Setenv("PAYLOAD_CACHE", filepath.Join(t.TempDir(), "cache"))
	testkit.Write(t, filepath.Join(root, "ENGINE"), "b1\n")
	testkit.Write(t, filepath.Join(root, "BINDING"), "b10\n")
	testkit.Write(t, filepath.Join(root, "payload.yaml"), fmt.Sprintf(`version: 1
components:
  engine: {pin: ENGINE, upstream: %q}
  binding:
    pin: BINDING
    upstream: %q
    coupled: [{component: engine, path: deps, pattern: '^engine (\S+)$'}]
`, engine.Dir, binding.Dir))
	w, err := workspace.Open(t.Context(), workspace.Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	for want, ref := range map[string]string{"b1": "b11", "b2": "b13", "b3": "b15", "b4": "b16", "b5": ""} {
		got, err := Wanting(t.Context(), w, "binding", "engine", want, Options{})
		if err != nil || got != ref {
			t.Errorf("wanting %s: %q, %v; want %q", want, got, err, ref)
		}
	}
	// As a check of the best ref: no later binding goes with the pinned engine.
	f, err := Best(t.Context(), w, "binding", BestOptions{Checks: []Check{CoupledCheck(w, "binding", false, Options{})}})
	if err != nil || f.Ref != "b11" || f.Next == nil || f.Next.Check != "coupled pins" || !strings.Contains(f.Next.Why, "binding b12 wants engine b2, and b1 is pinned (deps:1)") {
		t.Errorf("%+v, next %+v, %v", f, f.Next, err)
	}
	// Where both may move, each side is looked at.
	for name, want := range map[string]string{"binding": "b16", "engine": "b4"} {
		if f, err = Best(t.Context(), w, name, BestOptions{Checks: []Check{CoupledCheck(w, name, true, Options{})}}); err != nil || f.Ref != want {
			t.Errorf("%s with what is coupled: %s, %v", name, f.Ref, err)
		}
	}
}
