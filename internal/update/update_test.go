package update

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/testkit"
)

// TestMain keeps one store for all: what upstream gave once is there.
func TestMain(m *testing.M) {
	os.Exit(func() int { //nolint:forbidigo // tests have a main of their own
		if code, ran := crashing(); ran {
			return code
		}
		dir, err := os.MkdirTemp("", "payload-update-")
		if err != nil {
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := os.Setenv("PAYLOAD_CACHE", filepath.Join(dir, "cache")); err != nil {
			return 1
		}
		return m.Run()
	}())
}

// A series of one patch of each verdict is judged to its end, stops at each
// patch that needs a person, and ends with the right tree. A second run
// changes nothing.
func TestEveryVerdict(t *testing.T) {
	f := newFixture(t, every...)
	before := f.snapshot(t)
	r, err := f.start(t, Options{Ref: "b101", DryRun: true})
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("dry run: %v", err)
	}
	wantVerdicts := "clean, offset, merged, upstreamed, partial, moved, clean, conflict, collision, malformed, blocked"
	verdicts, actions := told(r)
	if verdicts != wantVerdicts {
		t.Errorf("verdicts %s, want %s", verdicts, wantVerdicts)
	}
	if want := "kept, refreshed, rewritten, dropped, rewritten, rewritten, dropped, waiting, waiting, waiting, waiting"; actions != want {
		t.Errorf("actions %s, want %s", actions, want)
	}
	same(t, "after a dry run", f.snapshot(t), before)

	// The conflict, resolved by hand.
	_, err = f.start(t, Options{Ref: "b101"})
	if !errors.As(err, &conflict) || conflict.Conflict.File != "0008-conflict.patch" || conflict.Conflict.Folder != "build/update/toy" {
		t.Fatalf("%v", err)
	}
	s := conflict.Conflict.Sides
	if len(s) != 1 || s[0].Path != "conflict.txt" || s[0].Line != 10 || s[0].Start != 10 ||
		!slices.Equal(s[0].Upstream, []string{"conflict of upstream"}) || !slices.Equal(s[0].Patch, []string{"conflict of patch"}) || !slices.Equal(s[0].Base, []string{"conflict 10"}) ||
		len(s[0].Commits) != 1 || s[0].Commits[0].Subject != "Speak otherwise" {
		t.Errorf("sides: %+v", s)
	}
	same(t, "outside build after a conflict", without(f.snapshot(t)), without(before))
	if _, err := f.start(t, Options{Ref: "b100"}); !isOpen(err, "toy to b101") {
		t.Errorf("a second update: %v", err)
	}
	f.resolve(t, "conflict.txt", lines("conflict", 20, map[int]string{10: "conflict of both"}))
	// The collision, resolved by a commit of one's own.
	_, err = f.goOn(t)
	if !errors.As(err, &conflict) || conflict.Conflict.File != "0009-collision.patch" || conflict.Conflict.Verdict != patch.Collision {
		t.Fatalf("%v", err)
	}
	f.resolve(t, "added.txt", "upstream's\npatch's\n")
	work := filepath.Join(f.root, "build/update/toy")
	if _, err := testkit.RunGit(t.Context(), work, "commit", "-q", "--no-edit"); err != nil {
		t.Fatal(err)
	}
	// The malformed one is left out.
	_, err = f.goOn(t)
	if !errors.As(err, &conflict) || conflict.Conflict.File != "0010-malformed.patch" || !conflict.Conflict.Manual {
		t.Fatalf("%v", err)
	}
	// The blocked one: what it depends on stands now, in other words.
	_, err = Skip(t.Context(), f.open(t), silent(), built, "it was cut off", Finish{})
	if !errors.As(err, &conflict) || conflict.Conflict.File != "0011-blocked.patch" {
		t.Fatalf("%v", err)
	}
	f.resolve(t, "conflict.txt", lines("conflict", 20, map[int]string{10: "conflict of both, and more"}))
	r, err = f.goOn(t)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, actions = told(r)
	if want := "clean, offset, merged, upstreamed, partial, moved, clean, conflict, collision, malformed, conflict"; verdicts != want {
		t.Errorf("verdicts at the end %s, want %s", verdicts, want)
	}
	if want := "kept, refreshed, rewritten, dropped, rewritten, rewritten, dropped, resolved, resolved, skipped, resolved"; actions != want {
		t.Errorf("actions at the end %s, want %s", actions, want)
	}
	if up := r.Updates[0].Patches[3].Upstream; len(up) != 1 || up[0].Subject != "Do it, reworded" {
		t.Errorf("upstreamed by %+v", up)
	}
	if !strings.Contains(r.Messages.Content, "0010-malformed.patch: malformed, skipped: it was cut off") {
		t.Errorf("the reason is not in the message:\n%s", r.Messages.Content)
	}
	f.wantTree(t, map[string]string{
		"clean.txt":     lines("clean", 20, map[int]string{10: "clean by patch"}),
		"offset.txt":    "new line\nanother\n" + lines("offset", 20, map[int]string{10: "offset by patch"}),
		"merged.txt":    lines("merged", 20, map[int]string{8: "merged eight", 10: "merged by patch"}),
		"done.txt":      "a first line\n" + lines("done", 20, map[int]string{10: "done by patch"}),
		"partial.txt":   lines("partial", 40, map[int]string{5: "partial by patch", 30: "partial too"}),
		"new/moved.txt": lines("moved", 20, map[int]string{10: "moved by patch"}),
		"wanted.txt":    lines("wanted", 20, map[int]string{1: "wanted is here"}),
		"conflict.txt":  lines("conflict", 20, map[int]string{10: "conflict of both, and more"}),
		"added.txt":     "upstream's\npatch's\n",
	})
	after := f.snapshot(t)
	if names := f.git(t, "status", "--porcelain"); strings.Contains(names, "0001-clean") || !strings.Contains(names, "D patches/0004-upstreamed.patch") {
		t.Errorf("status:\n%s", names)
	}
	if info, err := os.Stat(filepath.Join(f.root, "ci/Dockerfile")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the copy's mode: %v, %v", info.Mode(), err)
	}

	r, err = f.start(t, Options{Ref: "b101"})
	if err != nil || r.Status != Unchanged || len(r.Files.Mechanical)+len(r.Files.Content) > 0 {
		t.Errorf("a second run: %v, %+v", err, r.Files)
	}
	same(t, "after a second run", f.snapshot(t), after)
}

// Back to the ref before, by the same rules.
func TestBackwards(t *testing.T) {
	f := newFixture(t, every[:3]...)
	before := f.snapshot(t)
	if _, err := f.start(t, Options{Ref: "b101", Commit: true}); err != nil {
		t.Fatal(err)
	}
	if got := f.git(t, "log", "--format=%s"); got != "Carry the patches to toy b101\nUpdate toy from b100 to b101\npinned at b100" {
		t.Errorf("log:\n%s", got)
	}
	if got := f.git(t, "show", "--format=", "--name-only", "HEAD"); got != "patches/0003-merged.patch" {
		t.Errorf("the commit to be read changes:\n%s", got)
	}
	r, err := f.start(t, Options{Ref: "b100"})
	if err != nil {
		t.Fatal(err)
	}
	if verdicts, _ := told(r); verdicts != "clean, offset, merged" {
		t.Errorf("verdicts %s", verdicts)
	}
	for name, text := range f.snapshot(t) {
		if !strings.HasPrefix(name, "git ") && text != before[name] {
			t.Errorf("%s is\n%s\nwant\n%s", name, text, before[name])
		}
	}
}

// A patch that names blobs nobody has defeats `git am --3way`, not this.
func TestNoBlobsNeeded(t *testing.T) {
	f := newFixture(t)
	shallow := filepath.Join(t.TempDir(), "clone")
	if _, err := testkit.RunGit(t.Context(), t.TempDir(), "clone", "-q", "--depth=1", "--branch=b101", "file://"+f.upstream.Dir, shallow); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(f.root, "patches/0001-merged.patch")
	testkit.Write(t, name, `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A U Thor <author@example.com>
Date: Sat, 3 Feb 2001 04:05:06 +0000
Subject: [PATCH] merged

Upstream-Status: Pending
Drop-When: never
---
diff --git a/merged.txt b/merged.txt
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/merged.txt
+++ b/merged.txt
@@ -7,7 +7,7 @@
 merged 7
 merged 8
 merged 9
-merged 10
+merged by patch
 merged 11
 merged 12
 merged 13
`)
	if _, err := testkit.RunGit(t.Context(), shallow, "am", "-q", "--3way", name); err == nil {
		t.Fatal("git am --3way applies it, so this proves nothing")
	}
	r, err := f.start(t, Options{Ref: "b101"})
	if err != nil {
		t.Fatal(err)
	}
	if verdictOf(r, "0001-merged.patch") != patch.Merged {
		t.Errorf("verdicts: %+v", r.Updates[0].Patches)
	}
	f.wantTree(t, map[string]string{"merged.txt": lines("merged", 20, map[int]string{8: "merged eight", 10: "merged by patch"})})
}

// What was changed while an update was open is neither lost nor overlooked.
func TestChangedMeanwhile(t *testing.T) {
	f := newFixture(t, every[:8]...)
	if _, err := f.start(t, Options{Ref: "b101"}); err == nil {
		t.Fatal("no conflict")
	}
	f.resolve(t, "conflict.txt", "resolved\n")
	dockerfile := filepath.Join(f.root, "ci/Dockerfile")
	testkit.Write(t, dockerfile, "FROM other\nARG TOY=b100\n")
	var changed *ChangedError
	if _, err := f.goOn(t); !errors.As(err, &changed) || !slices.Equal(changed.Paths, []string{"ci/Dockerfile"}) {
		t.Errorf("%v", err)
	}
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(dockerfile); string(text) != "FROM other\nARG TOY=b100\n" {
		t.Errorf("the user's change is gone: %s", text)
	}

	// After it was written, taking it back would lose the change.
	broken := func(context.Context, string) (Built, error) { return Built{}, errors.New("it does not compile") }
	if _, err := Start(t.Context(), f.open(t), silent(), broken, Options{Component: "toy", Ref: "b101", Preset: "p"}); err == nil {
		t.Fatal("no conflict")
	}
	f.resolve(t, "conflict.txt", "resolved\n")
	_, err := Continue(t.Context(), f.open(t), silent(), broken, Finish{})
	var build *WrittenError
	if !errors.As(err, &build) {
		t.Fatal(err)
	}
	testkit.Write(t, dockerfile, "FROM third\nARG TOY=b101\n")
	before := f.snapshot(t)
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); !errors.As(err, &changed) || !slices.Equal(changed.Paths, []string{"ci/Dockerfile"}) {
		t.Errorf("%v", err)
	}
	same(t, "after a refused abort", f.snapshot(t), before)
	// Going on keeps it: it may be what makes it build.
	if r, err := f.goOn(t); err != nil || r.Status != Done || r.Build == nil {
		t.Errorf("%v, %+v", err, r)
	}
	if text, _ := os.ReadFile(dockerfile); string(text) != "FROM third\nARG TOY=b101\n" {
		t.Errorf("the user's change is gone: %s", text)
	}
}

// A conflict is only taken as resolved when it is.
func TestUnresolved(t *testing.T) {
	f := newFixture(t, every[:8]...)
	if _, err := f.start(t, Options{Ref: "b101"}); err == nil {
		t.Fatal("no conflict")
	}
	dir := filepath.Join(f.root, "build/update/toy")
	add := func() {
		if _, err := testkit.RunGit(t.Context(), dir, "add", "-A"); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(why string) {
		t.Helper()
		var left *patch.UnresolvedError
		if _, err := f.goOn(t); !errors.As(err, &left) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
	expect("not marked as resolved: conflict.txt")
	add()
	expect("conflict markers are left: conflict.txt")
	testkit.Write(t, filepath.Join(dir, "conflict.txt"), lines("conflict", 20, map[int]string{10: "conflict of upstream"}))
	add()
	expect("nothing is changed there")
	testkit.Write(t, filepath.Join(dir, "conflict.txt"), "resolved\n")
	if _, err := testkit.RunGit(t.Context(), dir, "commit", "-q", "-a", "--no-edit"); err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, filepath.Join(dir, "clean.txt"), "more\n")
	expect("changed after the commit, and not committed: clean.txt")
	if _, err := testkit.RunGit(t.Context(), dir, "commit", "-q", "-a", "-m", "more"); err != nil {
		t.Fatal(err)
	}
	expect("one commit on top of")
	if _, err := testkit.RunGit(t.Context(), dir, "reset", "-q", "--soft", "HEAD^"); err != nil {
		t.Fatal(err)
	}
	if _, err := testkit.RunGit(t.Context(), dir, "commit", "-q", "--amend", "--no-edit"); err != nil {
		t.Fatal(err)
	}
	r, err := f.goOn(t)
	if err != nil {
		t.Fatal(err)
	}
	f.wantTree(t, map[string]string{"conflict.txt": "resolved\n", "clean.txt": "more\n"})
	if r.Updates[0].Patches[7].Now != "0008-conflict.patch" {
		t.Errorf("%+v", r.Updates[0].Patches[7])
	}
}

// Nothing that can't be started is left open.
func TestNothingStaysOpen(t *testing.T) {
	f := newFixture(t, "clean")
	before := f.snapshot(t)
	for _, opts := range []Options{{Ref: "b999"}, {Ref: "b 1"}, {Ref: "b101", Base: "nowhere"}} {
		if r, err := f.start(t, opts); err == nil || r.Status == Done {
			t.Errorf("%+v: %v", opts, err)
		}
		same(t, "after a failed start", f.snapshot(t), before)
	}
	var none *NoneOpenError
	if _, err := f.goOn(t); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	same(t, "after nothing was open", f.snapshot(t), before)
}

// The root may lie below the top of its git repository, and what else is staged
// there is nobody's business. Where no commit can be made, nothing begins.
func TestCommitInSubfolder(t *testing.T) {
	f := newFixture(t, every[:4]...)
	if err := os.RemoveAll(filepath.Join(f.root, ".git")); err != nil {
		t.Fatal(err)
	}
	var cannot *NotCommittableError
	if _, err := f.start(t, Options{Ref: "b101", Commit: true}); !errors.As(err, &cannot) {
		t.Errorf("%v", err)
	}
	top := testkit.RepoAt(t, filepath.Dir(f.root))
	top.Run("config", "user.name", "A U Thor")
	top.Run("config", "user.email", "author@example.com")
	testkit.Write(t, filepath.Join(top.Dir, ".gitignore"), "upstream/\n")
	top.Run("add", "-A")
	top.Run("commit", "-q", "-m", "all")
	testkit.Write(t, filepath.Join(top.Dir, "staged.txt"), "mine\n")
	top.Run("add", "staged.txt")
	r, err := f.start(t, Options{Ref: "b101", Commit: true})
	if err != nil || len(r.Commits) != 2 {
		t.Fatalf("%v, %q", err, r.Commits)
	}
	if got := top.Run("status", "--porcelain"); got != "A  staged.txt" {
		t.Errorf("status: %s", got)
	}
	if got := top.Run("show", "--format=", "--name-only", r.Commits[0]); got != "repo/TOY_VERSION\nrepo/ci/Dockerfile\nrepo/patches/0002-offset.patch\nrepo/payload.lock" {
		t.Errorf("the first commit changes %s", got)
	}

	// A hook that refuses leaves it open, and aborting takes a commit back.
	testkit.Write(t, filepath.Join(top.Dir, ".git/hooks/commit-msg"), "#!/bin/sh\n! grep -q '^Carry' $1\n")
	if err := os.Chmod(filepath.Join(top.Dir, ".git/hooks/commit-msg"), 0o755); err != nil {
		t.Fatal(err)
	}
	head := top.Run("rev-parse", "HEAD")
	if _, err := f.start(t, Options{Ref: "b100", Commit: true}); err == nil {
		t.Fatal("the hook was not asked")
	}
	if top.Run("rev-parse", "HEAD") == head {
		t.Fatal("the first half is not committed")
	}
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); err != nil {
		t.Fatal(err)
	}
	if now := top.Run("rev-parse", "HEAD"); now != head || top.Run("status", "--porcelain") != "A  staged.txt" {
		t.Errorf("HEAD is %s, status %s", now, top.Run("status", "--porcelain"))
	}
}

// The base branch is what a review compares with, not what the series stands on.
func TestBase(t *testing.T) {
	f := newFixture(t, "clean")
	f.git(t, "checkout", "-q", "-b", "bump")
	if _, err := f.start(t, Options{Ref: "b101", Commit: true}); err != nil {
		t.Fatal(err)
	}
	r, err := f.start(t, Options{Ref: "b101"})
	if err != nil {
		t.Fatal(err)
	}
	b := r.Updates[0].Base
	if b == nil || b.Ref != "b100" || b.Name != "main" || b.Commit != f.git(t, "rev-parse", "main") {
		t.Errorf("base %+v", b)
	}
	if r, err = f.start(t, Options{Ref: "b101", Base: "HEAD"}); err != nil || r.Updates[0].Base.Ref != "b101" {
		t.Errorf("base %+v, %v", r.Updates[0].Base, err)
	}
}

// A patch whose own condition holds goes, whether or not it still applies: here
// once upstream holds a certain commit.
func TestDropWhenCommit(t *testing.T) {
	f := newFixture(t, "clean")
	brought := f.upstream.Run("rev-parse", "b101~1")
	name := filepath.Join(f.root, "patches/0001-clean.patch")
	for _, c := range []struct {
		commit string
		action Action
	}{{brought, Dropped}, {f.upstream.Run("rev-parse", "series"), Kept}} {
		text := f.git(t, "show", "HEAD:patches/0001-clean.patch")
		testkit.Write(t, name, strings.Replace(text, "Drop-When: never", "Drop-When: commit "+c.commit, 1)+"\n")
		r, err := f.start(t, Options{Ref: "b101", DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if p := r.Updates[0].Patches[0]; p.Action != c.action {
			t.Errorf("commit %s: %+v", c.commit, p)
		}
	}
}

// Where upstream's history can't be had, that is said; nothing else changes.
func TestConflictWithoutHistory(t *testing.T) {
	t.Setenv("PAYLOAD_CACHE", filepath.Join(t.TempDir(), "cache")) // one that knows what this upstream answered
	f := newFixture(t, "conflict")
	w := f.open(t)
	p, err := w.Asked("toy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Pristine(t.Context(), w.At(p, "b101")); err != nil { // so that the store has it
		t.Fatal(err)
	}
	if err := os.Rename(f.upstream.Dir, f.upstream.Dir+".gone"); err != nil {
		t.Fatal(err)
	}
	r, err := f.start(t, Options{Ref: "b101"})
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	if c := r.Conflict; len(c.Sides) != 1 || len(c.Sides[0].Commits) > 0 || !strings.Contains(c.History, "history is not here") {
		t.Errorf("%+v", c)
	}
}

// A tag that names another commit than when it was locked is not moved from.
func TestMovedTag(t *testing.T) {
	f := newFixture(t, "clean")
	before := f.snapshot(t)
	f.upstream.Run("tag", "-f", "b100", "b101")
	var moved *pin.MovedTagError
	if _, err := f.start(t, Options{Ref: "b101"}); !errors.As(err, &moved) {
		t.Errorf("%v", err)
	}
	same(t, "after a moved tag", f.snapshot(t), before)
}

func (f fixture) goOn(t *testing.T) (Result, error) {
	t.Helper()
	return Continue(t.Context(), f.open(t), silent(), built, Finish{})
}

// wantTree compares files of the tree that the lock names.
func (f fixture) wantTree(t *testing.T, files map[string]string) {
	t.Helper()
	w := f.open(t)
	p, err := w.Pinned("toy")
	if err != nil {
		t.Fatal(err)
	}
	if p.Ref != "b101" || p.Entry == nil {
		t.Fatalf("pinned is %s, locked %+v", p.Ref, p.Entry)
	}
	tree, err := w.Tree(t.Context(), p, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(tree.Path, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is\n%s\nwant\n%s (%v)", name, got, want, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(f.root, "ci/Dockerfile")); err != nil || !strings.Contains(string(text), "ARG TOY=b101\n") {
		t.Errorf("the copy of the pin: %s, %v", text, err)
	}
}

// without leaves out the folder of the open update.
func without(s map[string]string) map[string]string {
	for name := range s {
		if name == "build" || strings.HasPrefix(name, "build"+string(filepath.Separator)) || name == "git status" {
			delete(s, name)
		}
	}
	return s
}

func isOpen(err error, name string) bool {
	var open *OpenError
	return errors.As(err, &open) && open.Update == name
}
