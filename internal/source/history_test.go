package source

import (
	"path/filepath"
	"testing"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/testkit"
)

// partial is an upstream that sends no file that wasn't asked for, and a store.
func partialUpstream(t *testing.T) (*Store, Request, [2]string) {
	t.Helper()
	up := testkit.Repo(t)
	up.Run("config", "uploadpack.allowFilter", "true")
	up.Run("config", "uploadpack.allowAnySHA1InWant", "true")
	first := up.Commit(map[string]string{"f": "one\ntwo\n"}, "b1")
	up.Commit(map[string]string{"f": "one\nsecond\n"}, "b2")
	last := up.Commit(map[string]string{"g": "other\n"}, "b3")
	root := t.TempDir()
	testkit.Write(t, filepath.Join(root, "payload.yaml"), "version: 1\ncomponents:\n  x: {pin: X, upstream: \"file://"+up.Dir+"\"}\n")
	f, err := config.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Component("x")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	return s, Request{File: f, Component: c}, [2]string{first, last}
}

// Files that come as they are asked for come the second time, too: what a
// process knew of upstream isn't kept in the repository.
func TestHistoryAsksForFilesEveryTime(t *testing.T) {
	s, req, ends := partialUpstream(t)
	for i, path := range []string{"g", "f"} {
		h, err := s.History(t.Context(), req, ends[0], ends[1])
		if err != nil {
			t.Fatal(err)
		}
		if found, err := h.Touching(t.Context(), ends[0], ends[1], path, 1, 1); err != nil || path == "g" && len(found) != 1 {
			t.Errorf("%d: %v, %v", i, found, err)
		}
		if found, ok, err := h.Bringing(t.Context(), ends[0], ends[1], path, map[string]string{"f": "second", "g": "other"}[path]); err != nil || !ok {
			t.Errorf("%d: %v, %v", i, found, err)
		}
	}
}

// A fetch that was killed leaves lock files of git behind.
func TestHistoryAfterAKilledFetch(t *testing.T) {
	for _, kind := range []string{"history", "lineage"} {
		s, req, ends := partialUpstream(t)
		dir := filepath.Join(s.dir, kind, digest(req.File.Location(req.Component)))
		if _, err := git.Open(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"config.lock", "shallow.lock", "packed-refs.lock", "refs/tags/b1.lock", "refs/payload/commit/" + ends[0] + ".lock"} {
			testkit.Write(t, filepath.Join(dir, name), "")
		}
		testkit.Write(t, filepath.Join(dir, "objects/pack/tmp_pack_x"), "")
		testkit.Write(t, dir+".fetching", "")
		if kind == "history" {
			if _, err := s.History(t.Context(), req, ends[0], ends[1]); err != nil {
				t.Errorf("%v", err)
			}
			continue
		}
		h, err := s.Lineage(t.Context(), req.File.Location(req.Component), t.Logf)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if list, err := h.Between(t.Context(), ends[0], ends[1]); err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
	}
}
