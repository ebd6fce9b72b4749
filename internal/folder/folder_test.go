package folder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestGlobTakesAnyFolder(t *testing.T) {
	for _, name := range []string{"plain", "with [brackets]", "un[closed"} {
		dir := filepath.Join(t.TempDir(), name)
		below := filepath.Join(dir, "a", "x.crate")
		if err := os.MkdirAll(filepath.Dir(below), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(below, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Glob(dir, "*/*.crate"); err != nil || !slices.Equal(got, []string{below}) {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := Glob(filepath.Join(dir, "gone"), "*"); err != nil || len(got) > 0 {
			t.Errorf("%v, %v", got, err)
		}
	}
}
