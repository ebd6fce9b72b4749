package pin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/config"
	"payload/internal/testkit"
)

func copied(t *testing.T) (*config.File, config.Component) {
	t.Helper()
	root := t.TempDir()
	testkit.Write(t, filepath.Join(root, "Dockerfile"), "FROM scratch\nARG X=b100\nRUN one b100\nARG X=b99\n")
	testkit.Write(t, filepath.Join(root, "ci/env"), "Y: b100\r\nZ: 'b100'\n")
	return &config.File{Root: root}, config.Component{Name: "x", Copies: []config.Copy{
		{Path: "Dockerfile", Pattern: `^ARG X=(\S+)$`},
		{Path: "ci/env", Pattern: `^Y: (\S+)`},
		{Path: "ci/env", Pattern: `^Z: '([^']+)'`},
	}}
}

func TestCopiesNameFileAndLine(t *testing.T) {
	f, c := copied(t)
	got, err := Copies(f, c, "b100")
	want := []Place{
		{"Dockerfile", 2, "b100", true},
		{"Dockerfile", 4, "b99", false},
		{"ci/env", 1, "b100", true},
		{"ci/env", 2, "b100", true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSetCopiesChangesTheRefAlone(t *testing.T) {
	f, c := copied(t)
	if err := os.Chmod(f.Abs("ci/env"), 0o755); err != nil {
		t.Fatal(err)
	}
	changed, err := SetCopies(f, c, "v0.5.0")
	if err != nil || !slices.Equal(changed, []string{"Dockerfile", "ci/env"}) {
		t.Fatalf("%q, %v", changed, err)
	}
	docker, _ := os.ReadFile(f.Abs("Dockerfile"))
	env, _ := os.ReadFile(f.Abs("ci/env"))
	if string(docker) != "FROM scratch\nARG X=v0.5.0\nRUN one b100\nARG X=v0.5.0\n" || string(env) != "Y: v0.5.0\r\nZ: 'v0.5.0'\n" {
		t.Errorf("%q\n%q", docker, env)
	}
	if info, err := os.Stat(f.Abs("ci/env")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if changed, err := SetCopies(f, c, "v0.5.0"); err != nil || len(changed) > 0 {
		t.Errorf("again: %q, %v", changed, err)
	}
}

// A file that is named twice, in other words or by a link, is written once,
// with all its copies.
func TestCopiesInAFileOfTwoNames(t *testing.T) {
	f, c := copied(t)
	c.Copies[2].Path = "./ci/../ci/env"
	if err := os.Symlink("ci/env", f.Abs("link")); err == nil {
		c.Copies[1].Path = "link"
	}
	changed, err := SetCopies(f, c, "b101")
	if err != nil || len(changed) != 2 {
		t.Errorf("%q, %v", changed, err)
	}
	if env, _ := os.ReadFile(f.Abs("ci/env")); string(env) != "Y: b101\r\nZ: 'b101'\n" {
		t.Errorf("%q", env)
	}
}

// A copy that can't be found stops before anything is written.
func TestCopiesThatAreNotThere(t *testing.T) {
	for name, k := range map[string]config.Copy{
		"it is not there": {Path: "gone", Pattern: "(x)"},
		"nothing in it":   {Path: "Dockerfile", Pattern: "^nowhere (x)"},
		"does not find":   {Path: "Dockerfile", Pattern: "^RUN one (b100)"},
	} {
		f, c := copied(t)
		c.Copies = append(c.Copies, k)
		before, _ := os.ReadFile(f.Abs("Dockerfile"))
		_, err := SetCopies(f, c, "b101")
		var missing *CopyError
		if !errors.As(err, &missing) || missing.Path != k.Path || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want a CopyError of %s: %s", err, k.Path, name)
		}
		if after, _ := os.ReadFile(f.Abs("Dockerfile")); string(after) != string(before) {
			t.Errorf("%s: something was written", name)
		}
	}
}

// A pin file keeps everything but the ref.
func TestRewrite(t *testing.T) {
	for text, want := range map[string]string{
		"b100\n": "v2\n", "b100": "v2", "  b100\r\n": "  v2\r\n", "\ufeffb100\n": "\ufeffv2\n", "": "v2\n",
	} {
		if got := string(Rewrite([]byte(text), "v2")); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
