package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/testkit"
)

func TestOverrideIsPatchedInTheStore(t *testing.T) {
	dir, s := t.TempDir(), openStore(t)
	fill(t, dir)
	// A clone with a repository nested in it, whose files count too.
	testkit.RepoAt(t, dir).Commit(nil)
	must(t, os.Mkdir(filepath.Join(dir, "nested"), 0o755))
	testkit.RepoAt(t, filepath.Join(dir, "nested")).Commit(map[string]string{"inner.c": "inner\n"})
	before, err := listing(dir)
	must(t, err)
	req, voice := request(t, filepath.Join(dir, "gone"))
	req = patched(req)
	req.Override = dir

	tree := get(t, s, req)
	assertHard(t, tree.Path)
	real, err := filepath.EvalSymlinks(dir)
	must(t, err)
	if tree.From != "override:"+real || tree.Commit != "" || tree.Build != 0 || tree.Unpatched || tree.Path == real {
		t.Errorf("got %+v", tree)
	}
	for name, want := range map[string]string{"nested/inner.c": "inner\n", "PATCHED": "patched\n"} {
		if data, err := os.ReadFile(filepath.Join(tree.Path, filepath.FromSlash(name))); err != nil || string(data) != want {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
	}
	voice.has(t, "reading the override "+real)
	after, err := listing(dir)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the override changed: %v to %v, %v", before, after, err)
	}

	testkit.Write(t, filepath.Join(dir, "mixed.c"), "edited\n")
	must(t, os.Remove(filepath.Join(dir, "crlf.txt")))
	edited := get(t, s, req)
	if data, err := os.ReadFile(filepath.Join(edited.Path, "mixed.c")); err != nil || string(data) != "edited\n" {
		t.Errorf("mixed.c holds %q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(edited.Path, "crlf.txt")); err == nil {
		t.Error("a deleted file is still there")
	}
}

func listing(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	return names, err
}

func TestOverrideOfLockedContentKeepsItsCommit(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	req, _ := request(t, up.Dir)
	req = patched(req)
	first := get(t, s, req)
	req.Entry = locked(req, first)
	req.Override = up.Dir
	tree := get(t, s, req)
	if tree.Commit != first.Commit || tree.Build != 7 || tree.Path != first.Path || !strings.HasPrefix(tree.From, "override:") {
		t.Errorf("got %+v; want the commit of %+v", tree, first)
	}
}

func TestUnpatchedOverride(t *testing.T) {
	dir, s := t.TempDir(), openStore(t)
	fill(t, dir)
	req, _ := request(t, filepath.Join(dir, "gone"))
	req = patched(req)
	req.Override, req.AllowUnpatched = dir, true
	tree, err := s.Tree(t.Context(), req)
	must(t, err)
	real, err := filepath.EvalSymlinks(dir)
	must(t, err)
	if tree.Path != real || !tree.Unpatched || tree.Patched != tree.Pristine {
		t.Errorf("got %+v", tree)
	}
	must(t, tree.Check(t.Context()))
	testkit.Write(t, filepath.Join(dir, "mixed.c"), "edited\n")
	var changed *DamagedError
	if err := tree.Check(t.Context()); !errors.As(err, &changed) || !changed.Override || !slices.Equal(changed.Files, []string{"mixed.c"}) {
		t.Errorf("after an edit: %v", err)
	}
	must(t, tree.Close())

	req.Override = filepath.Join(dir, "mixed.c")
	if _, err := s.Tree(t.Context(), req); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("a file as override: %v", err)
	}
}
