package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"payload/internal/testkit"
)

// listed reads a build folder whose file "tree" names what it uses.
func listed(dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "tree"))
	if err != nil {
		return nil
	}
	return []string{string(data)}
}

func TestPruneGoesByBuildsAndAge(t *testing.T) {
	s, _, tree := lockedTree(t)
	dir := t.TempDir()
	note := filepath.Join(dir, "tree")
	prune := func(opts PruneOptions) Pruned {
		t.Helper()
		opts.TreesOf = listed
		p, err := s.Prune(t.Context(), opts)
		must(t, err)
		return p
	}
	// Reached by a link, or before the store moved, it is the same tree.
	testkit.Write(t, note, filepath.Join("elsewhere", "trees", filepath.Base(tree.Path)))
	for range 2 { // recorded twice, it counts once
		must(t, s.RecordBuild(t.Context(), dir, "", nil))
	}
	size, err := s.Size(listed)
	must(t, err)
	if len(size.Trees) != 1 || len(size.Trees[0].Builds) != 1 || size.Trees[0].Patches != 1 || size.Trees[0].Bytes == 0 || size.Git == 0 || time.Since(size.Trees[0].Used) > time.Minute {
		t.Errorf("got %+v", size)
	}
	if got := prune(PruneOptions{All: true}); len(got.Spared) != 1 || len(got.Trees)+got.Records != 0 {
		t.Errorf("named by a build: %+v", got)
	}
	// The folder names another tree now.
	testkit.Write(t, note, filepath.Join(s.trees(), "other"))
	if got := prune(PruneOptions{Older: time.Hour}); len(got.Spared) != 1 || len(got.Trees) != 0 {
		t.Errorf("young: %+v", got)
	}
	old := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(tree.Path+".lock", old, old))
	if got := prune(PruneOptions{Older: time.Hour}); len(got.Trees) != 1 || got.Bytes() < size.Trees[0].Bytes || got.Records != 0 {
		t.Errorf("old: %+v", got)
	}
	for _, part := range []string{"", ".json", ".index"} {
		if _, err := os.Stat(tree.Path + part); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q is still there: %v", part, err)
		}
	}
	// It names none: its record goes.
	must(t, os.Remove(note))
	if got := prune(PruneOptions{DryRun: true}); got.Records != 1 {
		t.Errorf("dry run: %+v", got)
	}
	if got := prune(PruneOptions{}); got.Records != 1 {
		t.Errorf("a folder without trees: %+v", got)
	}
	if got := prune(PruneOptions{}); got.Records != 0 {
		t.Errorf("its record was still there: %+v", got)
	}
}

// A use counts as one, also of a tree that has been there for long.
func TestUseIsDated(t *testing.T) {
	s, req, tree := lockedTree(t)
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(tree.Path+".lock", old, old))
	get(t, s, req)
	p, err := s.Prune(t.Context(), PruneOptions{TreesOf: listed, Older: 24 * time.Hour})
	must(t, err)
	if len(p.Trees) != 0 || len(p.Spared) != 1 {
		t.Errorf("got %+v", p)
	}
}

func TestPruneSweeps(t *testing.T) {
	s, req, _ := lockedTree(t)
	old := time.Now().Add(-48 * time.Hour)
	gone := []string{
		filepath.Join(s.work(), "abc.1.tmp"),
		filepath.Join(s.trees(), "abc.2.tmp"),
		filepath.Join(s.trees(), ".abc.json.3"),
		filepath.Join(s.trees(), "abc.index.4"),
		filepath.Join(s.repo.Dir, "objects", "pack", "tmp_pack_5"),
		filepath.Join(s.repo.Dir, "objects", "ab", "tmp_obj_6"),
		filepath.Join(s.repo.Dir, "packed-refs.lock"),
		filepath.Join(s.repo.Dir, "refs", "payload", "pristine", "abc.lock"),
		filepath.Join(s.repo.Dir, "refs", "payload", "writing", "7-1"),
		filepath.Join(s.repo.Dir, "fast_import_crash_8"),
		filepath.Join(s.builds(), ".abc.9"),
	}
	for _, path := range gone {
		testkit.Write(t, path, "x")
		must(t, os.Chtimes(path, old, old))
	}
	held, err := acquire(t.Context(), filepath.Join(s.work(), "def.lock"), false, nil)
	must(t, err)
	defer release(held)
	kept := []string{
		filepath.Join(s.work(), "def.1.tmp"),
		filepath.Join(s.trees(), "abc.index.6"),
		filepath.Join(s.repo.Dir, "objects", "ab", "tmp_obj_10"),
	}
	for _, path := range kept {
		testkit.Write(t, path, "x")
	}
	req.Override = t.TempDir()
	testkit.Write(t, filepath.Join(req.Override, "file"), "x")
	req.Entry = nil
	_, err = s.Pristine(t.Context(), req)
	must(t, err)
	index := s.overrideBase(req.Override) + ".index"

	p, err := s.Prune(t.Context(), PruneOptions{TreesOf: listed})
	must(t, err)
	if len(p.Files) != len(gone) {
		t.Errorf("got %+v; want %v", p.Files, gone)
	}
	for _, path := range gone {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	for _, path := range append(kept, index) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if p, err = s.Prune(t.Context(), PruneOptions{TreesOf: listed, All: true}); err != nil || len(p.Files) != 1 || p.Files[0].Path != index {
		t.Errorf("all: %+v, %v", p, err)
	}
}

// A git that was killed while it deleted a ref leaves a lock that every later
// write would wait a second for.
func TestLockOfPackedRefsDoesNotStay(t *testing.T) {
	s, _, _ := lockedTree(t)
	path := filepath.Join(s.repo.Dir, "packed-refs.lock")
	testkit.Write(t, path, "")
	_, err := Open(t.Context(), s.Dir())
	must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a lock that somebody may hold is gone: %v", err)
	}
	old := time.Now().Add(-2 * time.Minute)
	must(t, os.Chtimes(path, old, old))
	_, err = Open(t.Context(), s.Dir())
	must(t, err)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old lock is still there: %v", err)
	}
}

// Between the answer to a configure step and its link, only the record tells.
func TestPruneSparesWhatIsAboutToBeLinked(t *testing.T) {
	s, _, tree := lockedTree(t)
	dir := t.TempDir()
	must(t, s.RecordBuild(t.Context(), dir, tree.Path, nil))
	opts := PruneOptions{TreesOf: func(string) []string { return nil }}
	if got, err := s.Prune(t.Context(), opts); err != nil || len(got.Spared) != 1 || got.Records != 0 {
		t.Errorf("just asked for: %+v, %v", got, err)
	}
	old := time.Now().Add(-2 * soonTime)
	must(t, os.Chtimes(filepath.Join(s.builds(), digest(dir)), old, old))
	if got, err := s.Prune(t.Context(), opts); err != nil || len(got.Trees) != 1 || got.Records != 1 {
		t.Errorf("never linked: %+v, %v", got, err)
	}
}

func TestFindGivesWhatLiesThere(t *testing.T) {
	s, _, tree := lockedTree(t)
	found, ok, err := s.Find(t.Context(), tree.Component, tree.Patched)
	if err != nil || !ok || found.Path != tree.Path || found.Ref != tree.Ref {
		t.Fatalf("got %+v, %v, %v", found, ok, err)
	}
	if p, err := s.Prune(t.Context(), PruneOptions{TreesOf: listed}); err != nil || len(p.Trees) != 0 {
		t.Errorf("a tree that is held was pruned: %+v, %v", p, err)
	}
	must(t, found.Close())
	for _, c := range [][2]string{{"other", tree.Patched}, {tree.Component, strings.Repeat("0", 40)}} {
		if _, ok, err := s.Find(t.Context(), c[0], c[1]); ok || err != nil {
			t.Errorf("%v: %v, %v", c, ok, err)
		}
	}
	must(t, os.Chmod(filepath.Join(tree.Path, "mixed.c"), 0o644))
	must(t, os.WriteFile(filepath.Join(tree.Path, "mixed.c"), nil, 0o644))
	if _, ok, err := s.Find(t.Context(), tree.Component, tree.Patched); ok || err != nil {
		t.Errorf("a damaged tree: %v, %v", ok, err)
	}
}
