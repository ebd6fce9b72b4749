package patch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/git"
)

// snapshot is every file of a folder, .git left out.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			m[e.Name()+"/"] = ""
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = string(data)
	}
	return m
}

func writeSeries(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files(texts).write(t, dir)
	return dir
}

func mustLoad(t *testing.T, dir string) Series {
	t.Helper()
	s, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sample is a tree and a series of three: a mail, one with much to preserve,
// and a plain diff with more context than git writes.
func sample(t *testing.T) (repo git.Repo, tree, dir string) {
	t.Helper()
	base := files{"a.txt": numbered("a", 20), "b.txt": numbered("b", 20), ".gitignore": "*.out\n"}
	second := base.with(files{"a.txt": strings.Replace(numbered("a", 20), "a 10\n", "A 10\n", 1)})
	texts := seriesOf(t, base, second)
	repo = newRepo(t)
	odd := `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: =?UTF-8?q?J=C3=B6rg=20M=C3=BCller?= <jm@example.com>
Date: Tue, 3 Feb 2026 04:05:06 -0330
Subject: [PATCH 2/9] [core] a long subject that git folds when it writes it, since it is
 longer than a line of a mail may be

Why.

Upstream-Status: Submitted https://example.com/1
Drop-When: ref>=b2
---
diff --git a/b.txt b/b.txt
--- a/b.txt
+++ b/b.txt
@@ -1,3 +1,3 @@
-b 1
+B 1
 b 2
 b 3
`
	plain := "--- x/b.txt\n+++ x/b.txt\n@@ -5,9 +5,9 @@\n b 5\n b 6\n b 7\n b 8\n-b 9\n+B 9\n b 10\n b 11\n b 12\n b 13\n"
	dir = writeSeries(t, map[string]string{"0001-change-1.patch": texts[0], "0005-odd.patch": odd, "0007-plain-one.patch": plain, "compat.cpp": "int x;\n"})
	return repo, treeOf(t, repo, base), dir
}

func TestUntouchedSeriesKeepsEveryByte(t *testing.T) {
	t.Parallel()
	repo, tree, dir := sample(t)
	before := snapshot(t, dir)
	work := filepath.Join(t.TempDir(), "w")
	if dropped, err := Open(t.Context(), repo, tree, "v1", mustLoad(t, dir), work); err != nil || len(dropped) != 0 {
		t.Fatalf("%v, %v", dropped, err)
	}
	log := userGit(t, work, "", "log", "--format=%s|%an|%ae|%ad", "--date=iso")
	want := "plain one|payload|payload@localhost|2000-01-01 00:00:00 +0000\n" +
		"[core] a long subject that git folds when it writes it, since it is longer than a line of a mail may be|Jörg Müller|jm@example.com|2026-02-03 04:05:06 -0330\n" +
		"change 1|Ada|ada@example.com|2026-02-03 04:05:06 +0100\n" +
		"pristine v1|payload|payload@localhost|2000-01-01 00:00:00 +0000\n"
	if log != want {
		t.Errorf("log:\n%s", log)
	}
	changes, err := Export(t.Context(), work, dir)
	if err != nil || len(changes) != 0 {
		t.Errorf("changes %v, %v", changes, err)
	}
	if !maps.Equal(before, snapshot(t, dir)) {
		t.Error("the series changed")
	}
	changes, _, err = Refresh(t.Context(), repo, "", tree, mustLoad(t, dir))
	if err != nil || len(changes) != 0 || !maps.Equal(before, snapshot(t, dir)) {
		t.Errorf("refresh: changes %v, %v", changes, err)
	}
}

func TestNewPatch(t *testing.T) {
	t.Parallel()
	repo, tree, dir := sample(t)
	work := filepath.Join(t.TempDir(), "w")
	if err := New(t.Context(), repo, tree, "v1", mustLoad(t, dir), work, "speed up b"); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(t.Context(), work, dir); !errors.Is(err, ErrNothing) {
		t.Errorf("without an edit: %v", err)
	}
	files{"new.c": "int y;\n", "b.out": "built\n"}.write(t, work)
	if err := os.WriteFile(filepath.Join(work, "b.txt"), []byte("changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var inTheWay *WorkError
	if err := New(t.Context(), repo, tree, "v1", mustLoad(t, dir), work, "another"); !errors.As(err, &inTheWay) {
		t.Errorf("a folder with edits was replaced: %v", err)
	}
	before := snapshot(t, dir)
	changes, err := Export(t.Context(), work, dir)
	if err != nil || fmt.Sprint(changes) != "[added 0008-speed-up-b.patch ignored b.out: a .gitignore names it; git add -f takes it in]" {
		t.Fatalf("changes %v, %v", changes, err)
	}
	after := snapshot(t, dir)
	p := Parse("x.patch", []byte(after["0008-speed-up-b.patch"]))
	if status, _ := p.Message.Trailer(UpstreamStatus); status != "Pending" || p.Message.Subject != "speed up b" || len(p.MetadataFaults()) != 0 {
		t.Errorf("message %+v, faults %v", p.Message, p.MetadataFaults())
	}
	delete(after, "0008-speed-up-b.patch")
	if !maps.Equal(before, after) {
		t.Error("the other files changed")
	}
	patched, report, err := Apply(t.Context(), repo, tree, mustLoad(t, dir))
	if err != nil || report.Result != ResultClean || show(t, repo, patched, "b.txt") != "changed\n" || show(t, repo, patched, "new.c") != "int y;\n" {
		t.Errorf("%s: %v", verdicts(report), err)
	}
	// Exported: the folder may be used again and replaced.
	if changes, err := Export(t.Context(), work, dir); err != nil || len(changes) != 1 {
		t.Errorf("again: %v, %v", changes, err)
	}
	// Replaced, but for a file that is in no patch.
	if err := New(t.Context(), repo, tree, "v1", mustLoad(t, dir), work, "another"); !errors.As(err, &inTheWay) || !strings.Contains(err.Error(), "b.out") {
		t.Errorf("an ignored file: %v", err)
	}
	if err := os.Remove(filepath.Join(work, "b.out")); err != nil {
		t.Fatal(err)
	}
	if err := New(t.Context(), repo, tree, "v1", mustLoad(t, dir), work, "another"); err != nil {
		t.Errorf("after the export: %v", err)
	}
}

func TestExportOfCommits(t *testing.T) {
	t.Parallel()
	repo, tree, dir := sample(t)
	before := snapshot(t, dir)
	work := filepath.Join(t.TempDir(), "w")
	if _, err := Open(t.Context(), repo, tree, "v1", mustLoad(t, dir), work); err != nil {
		t.Fatal(err)
	}
	// The second is taken out, a commit comes between, the last is reworded.
	userGit(t, work, "", "checkout", "-q", "HEAD~2")
	files{"c.txt": "c\n"}.write(t, work)
	commitAll(t, work, "add c")
	userGit(t, work, "", "cherry-pick", "series")
	userGit(t, work, "plain one\n\nNow with a reason.\n", "commit", "-q", "--amend", "-F", "-")
	changes, err := Export(t.Context(), work, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(changes); got != "[added 0002-add-c.patch updated 0007-plain-one.patch removed 0005-odd.patch]" {
		t.Errorf("changes %s", got)
	}
	after := snapshot(t, dir)
	if names := slices.Sorted(maps.Keys(after)); fmt.Sprint(names) != "[0001-change-1.patch 0002-add-c.patch 0007-plain-one.patch compat.cpp]" || after["0001-change-1.patch"] != before["0001-change-1.patch"] {
		t.Errorf("files %v", names)
	}
}

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	repo, tree, dir := sample(t)
	work := filepath.Join(t.TempDir(), "w")
	var none *NoWorkFolderError
	if _, err := Export(t.Context(), work, dir); !errors.As(err, &none) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Open(t.Context(), repo, tree, "v1", mustLoad(t, dir), work); err != nil {
		t.Fatal(err)
	}
	files{"c.txt": "c\n"}.write(t, work)
	var untitled *UntitledError
	if _, err := Export(t.Context(), work, dir); !errors.As(err, &untitled) || untitled.Files[0] != "c.txt" {
		t.Errorf("no title: %v", err)
	}
	commitAll(t, work, "add c")
	var inTheWay *WorkError
	if _, err := Open(t.Context(), repo, tree, "v1", mustLoad(t, dir), work); !errors.As(err, &inTheWay) {
		t.Errorf("a folder with commits was replaced: %v", err)
	}
	userGit(t, work, "", "checkout", "-q", "-b", "side", "HEAD~2")
	commitAll(t, work, "side")
	userGit(t, work, "", "merge", "-q", "-m", "merge", "series")
	if _, err := Export(t.Context(), work, dir); !errors.As(err, &inTheWay) || !strings.Contains(err.Error(), "merge commit") {
		t.Errorf("a merge: %v", err)
	}
	userGit(t, work, "", "checkout", "-q", "series")
	files{"0009-by-hand.patch": "x"}.write(t, dir)
	var stale *StaleError
	if _, err := Export(t.Context(), work, dir); !errors.As(err, &stale) || stale.File != "0009-by-hand.patch" {
		t.Errorf("a changed series: %v", err)
	}
	other := filepath.Join(t.TempDir(), "o")
	files{"mine": "m"}.write(t, other)
	if _, err := Open(t.Context(), repo, tree, "v1", Series{}, other); !errors.As(err, &inTheWay) {
		t.Errorf("someone's folder was replaced: %v", err)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	base := files{"a.txt": numbered("a", 20), "b.txt": numbered("b", 20), "old/c.txt": numbered("c", 20)}
	edit := func(f files, name, from, to string) files {
		return f.with(files{name: strings.Replace(f[name], from+"\n", to+"\n", 1)})
	}
	one := edit(base, "a.txt", "a 10", "A")
	two := edit(one, "b.txt", "b 10", "B")
	three := edit(two, "old/c.txt", "c 10", "C")
	texts := seriesOf(t, base, one, two, three)
	dir := writeSeries(t, map[string]string{"0001-change-1.patch": texts[0], "0002-change-2.patch": texts[1], "0003-change-3.patch": texts[2]})
	now := files{"a.txt": "0\n" + numbered("a", 20), "b.txt": two["b.txt"], "new/c.txt": numbered("c", 20)}
	onto := treeOf(t, repo, now)
	s := mustLoad(t, dir)
	_, want, err := CheckFrom(t.Context(), repo, treeOf(t, repo, base), onto, s)
	if err != nil {
		t.Fatal(err)
	}
	changes, report, err := Refresh(t.Context(), repo, treeOf(t, repo, base), onto, s)
	if err != nil || verdicts(report) != "offset upstreamed moved" {
		t.Fatalf("%s: %v", verdicts(report), err)
	}
	if got := fmt.Sprint(changes); got != "[updated 0001-change-1.patch updated 0003-change-3.patch removed 0002-change-2.patch]" {
		t.Errorf("changes %s", got)
	}
	report, tree, err := Check(t.Context(), repo, onto, mustLoad(t, dir))
	if err != nil || verdicts(report) != "clean clean" || tree != want {
		t.Errorf("refreshed: %s, tree %s, want %s: %v", verdicts(report), tree, want, err)
	}
	before := snapshot(t, dir)
	if changes, _, err := Refresh(t.Context(), repo, "", onto, mustLoad(t, dir)); err != nil || len(changes) != 0 || !maps.Equal(before, snapshot(t, dir)) {
		t.Errorf("again: %v, %v", changes, err)
	}
}

// A kill between any two steps leaves the old series or the new one.
func TestSetIsWrittenAsAWhole(t *testing.T) {
	t.Parallel()
	old := map[string]string{"0001-a.patch": "a\n", "0002-b.patch": "b\n", "keep.cpp": "k\n"}
	set := fileSet{place: map[string][]byte{"0001-a.patch": []byte("A\n"), "0003-c.patch": []byte("c\n")}, remove: []string{"0002-b.patch"}}
	want := map[string]string{"0001-a.patch": "A\n", "0003-c.patch": "c\n", "keep.cpp": "k\n"}
	steps, stopped := 0, 0
	for k := 0; ; k++ {
		dir := writeSeries(t, old)
		n, decided := 0, false
		err := writeSet(dir, set, func(step string) bool {
			n++
			decided = decided || strings.HasPrefix(step, "place") || strings.HasPrefix(step, "remove") || step == "finish"
			return n > k
		})
		if err == nil {
			steps = k
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		stopped++
		mustLoad(t, dir) // what every reader does
		got := snapshot(t, dir)
		if !decided {
			delete(got, stagingName+"/") // left for the next write
			if !maps.Equal(got, old) {
				t.Errorf("stopped at step %d: %v", k, got)
			}
			// The next write makes it good.
			if err := writeSet(dir, set, nil); err != nil {
				t.Fatal(err)
			}
			got = snapshot(t, dir)
		}
		if !maps.Equal(got, want) {
			t.Errorf("stopped at step %d: %v", k, got)
		}
	}
	if steps < 7 || stopped != steps {
		t.Errorf("%d steps, %d stops", steps, stopped)
	}
}
