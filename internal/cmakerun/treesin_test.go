package cmakerun

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTreesIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := TreesIn(filepath.Join(dir, "gone")); got != nil {
		t.Errorf("no folder: %v", got)
	}
	// The stamp alone, the link alone, and the same tree by both.
	s := stamp{Schema: stampSchema, Sources: []stampSource{{Tree: "/store/trees/a"}, {Tree: "/store/trees/b"}}}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"b": "/store/trees/b", "c": "/store/trees/c"} {
		if err := os.Symlink(target, filepath.Join(dir, "src", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "src", "c.tree"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"/store/trees/a", "/store/trees/b", "/store/trees/c"}
	if got := TreesIn(dir); !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	// A configure that did not end has no stamp any more.
	if err := os.Remove(filepath.Join(dir, stampName)); err != nil {
		t.Fatal(err)
	}
	if got := TreesIn(dir); !slices.Equal(got, want[1:]) {
		t.Errorf("without a stamp: %v; want %v", got, want[1:])
	}
}
