package patch

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestConflictMarkers(t *testing.T) {
	text := "a\n<<<<<<< HEAD\nours 1\r\nours 2\n||||||| parent of 1\nbase\n=======\n>>>>>>> 1\nb\n<<<<<<< HEAD\n||||||| parent of 1\nc\n=======\nC\n=======\n>>>>>>> 1\nlast"
	sides, ours := conflicts("f", text)
	want := []Side{
		{Path: "f", Line: 2, Start: 2, Upstream: []string{"ours 1", "ours 2"}, Base: []string{"base"}, Patch: []string{}},
		{Path: "f", Line: 10, Start: 5, Upstream: []string{}, Base: []string{"c"}, Patch: []string{"C"}},
	}
	if !reflect.DeepEqual(sides, want) {
		t.Errorf("%+v", sides)
	}
	if got := strings.Join(ours, ""); got != "a\nours 1\r\nours 2\nb\nlast" {
		t.Errorf("ours: %q", got)
	}
	// A heading that only looks like a marker, or one that is never closed, is text.
	if sides, ours := conflicts("f", "Title\n=======\n>>>>>>> quoted\n"); len(sides) > 0 || len(ours) != 3 {
		t.Errorf("%+v, %q", sides, ours)
	}
}

// carried is a rebase's patches: verdict, what became of the file, content.
func carried(b *Rebased) string {
	var list []string
	for i, c := range b.Carried {
		what := "rewritten"
		switch {
		case c.To == "":
			what = "gone"
		case c.Same:
			what = "same"
		case !c.Content:
			what = "shifted"
		}
		list = append(list, string(b.Report.Patches[i].Verdict)+" "+what)
	}
	return strings.Join(list, ", ")
}

func TestRebase(t *testing.T) {
	a, b := numbered("a", 20), numbered("b", 20)
	edit := func(text, from, to string) string { return strings.Replace(text, from+"\n", to+"\n", 1) }
	s0 := files{"a": a, "b": b}
	s1 := s0.with(files{"a": edit(a, "a 10", "A 10")})
	s2 := s1.with(files{"b": edit(b, "b 10", "B 10")})
	s3 := s2.with(files{"b": edit(s2["b"], "B 10", "B ten")})
	s := load(t, seriesOf(t, s0, s1, s2, s3)...)
	repo := newRepo(t)
	base := treeOf(t, repo, s0)

	onto := treeOf(t, repo, files{"a": "0\n" + a, "b": edit(b, "b 8", "eight")})
	r, err := Rebase(t.Context(), repo, base, onto, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := carried(r); got != "offset shifted, merged rewritten, merged rewritten" {
		t.Error(got)
	}
	if got := show(t, repo, r.Tree, "b"); !strings.Contains(got, "eight\nb 9\nB ten\n") {
		t.Error(got)
	}
	// The same tree from what was exported, which stands as it is then.
	again, tree, err := Check(t.Context(), repo, onto, NewSeries("", r.Files))
	if err != nil || tree != r.Tree || verdicts(again) != "clean clean clean" {
		t.Errorf("%s, %v", verdicts(again), err)
	}

	// Without the second, the third has nothing to stand on.
	r, err = Rebase(t.Context(), repo, base, onto, s, map[string]Decision{"0002-p.patch": {Skip: true}})
	if err != nil {
		t.Fatal(err)
	}
	failed, stops := r.Failed()
	if !stops || failed.File != "0003-p.patch" || failed.Verdict != Blocked || !strings.Contains(failed.Detail, "0002-p.patch") || r.Tree != "" {
		t.Errorf("%+v", failed)
	}

	// A conflict, resolved: what stands on it is carried on.
	onto = treeOf(t, repo, files{"a": a, "b": edit(b, "b 10", "theirs")})
	if r, err = Rebase(t.Context(), repo, base, onto, s, nil); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(t.TempDir(), "work")
	stop, err := r.OpenConflict(t.Context(), repo, work)
	if err != nil || len(stop.Sides) != 1 || stop.Sides[0].Start != 10 || !slices.Equal(stop.Unmerged, []string{"b"}) || stop.Manual || stop.Settled {
		t.Fatalf("%+v, %v", stop, err)
	}
	// Opened again, it keeps what was done in it.
	if err := os.WriteFile(filepath.Join(work, "b"), []byte(edit(b, "b 10", "B 10")), 0o644); err != nil {
		t.Fatal(err)
	}
	if stop, err = r.OpenConflict(t.Context(), repo, work); err != nil || len(stop.Sides) > 0 {
		t.Fatalf("%+v, %v", stop, err)
	}
	userGit(t, work, "", "add", "b")
	file, resolved, err := Resolution(t.Context(), work)
	if err != nil || file != "0002-p.patch" {
		t.Fatalf("%s, %v", file, err)
	}
	if twice, again, err := Resolution(t.Context(), work); err != nil || twice != file || string(again) != string(resolved) {
		t.Errorf("taken again: %s, %v", twice, err)
	}
	if r, err = Rebase(t.Context(), repo, base, onto, s, map[string]Decision{file: {Resolved: resolved}}); err != nil {
		t.Fatal(err)
	}
	if got := carried(r); got != "clean same, clean rewritten, clean same" {
		t.Error(got)
	}
	if got := show(t, repo, r.Tree, "b"); got != s3["b"] {
		t.Error(got)
	}
}
