package git

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListAndObjects(t *testing.T) {
	ctx := context.Background()
	repo, err := Open(ctx, filepath.Join(t.TempDir(), "git"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"a/x\ty.txt": "one\n\ntwo", "b": ""} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := repo.WriteDir(ctx, dir, filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := repo.List(ctx, tree)
	if err != nil || len(entries) != 2 || entries[0].Path != "a/x\ty.txt" || entries[1].Path != "b" || entries[0].Mode != "100644" {
		t.Fatalf("%+v, %v", entries, err)
	}
	x, b := entries[0].ID, entries[1].ID
	absent := strings.Repeat("1", 40)
	got, err := repo.Objects(ctx, []string{x, absent, b, x[:10], tree})
	if err != nil || len(got) != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []Object{{x, "blob", "one\n\ntwo"}, {}, {b, "blob", ""}, {x, "blob", "one\n\ntwo"}} {
		if got[i] != want {
			t.Errorf("object %d is %+v, want %+v", i, got[i], want)
		}
	}
	if got[4].ID != tree || got[4].Kind != "tree" {
		t.Errorf("the tree is %+v", got[4])
	}
	if got, err := repo.Objects(ctx, nil); got != nil || err != nil {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	if _, err := repo.List(ctx, absent); err == nil || !strings.Contains(err.Error(), "listing tree "+absent) {
		t.Errorf("%v", err)
	}
}
