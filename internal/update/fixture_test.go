package update

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/patch"
	"payload/internal/testkit"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// lines is a file of n lines, with some of them replaced.
func lines(name string, n int, with map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if text, ok := with[i]; ok {
			b.WriteString(text + "\n")
			continue
		}
		fmt.Fprintf(&b, "%s %d\n", name, i)
	}
	return b.String()
}

// The fixture: upstream's files at b100 and b101, and what each patch makes of
// a file of b100.
var (
	at100 = map[string]string{
		"clean.txt":     lines("clean", 20, nil),
		"offset.txt":    lines("offset", 20, nil),
		"merged.txt":    lines("merged", 20, nil),
		"done.txt":      lines("done", 20, nil),
		"partial.txt":   lines("partial", 40, nil),
		"old/moved.txt": lines("moved", 20, nil),
		"conflict.txt":  lines("conflict", 20, nil),
		"wanted.txt":    lines("wanted", 20, nil),
	}
	// Each change of upstream is a commit of its own; "" deletes.
	to101 = []struct {
		subject string
		files   map[string]string
	}{
		{"Write above", map[string]string{"offset.txt": "new line\nanother\n" + lines("offset", 20, nil)}},
		{"Change a neighbour", map[string]string{"merged.txt": lines("merged", 20, map[int]string{8: "merged eight"})}},
		{"Do it, reworded", map[string]string{"done.txt": "a first line\n" + lines("done", 20, map[int]string{10: "done by patch"})}},
		{"Do half of it", map[string]string{"partial.txt": lines("partial", 40, map[int]string{5: "partial by patch"})}},
		{"Move it", map[string]string{"old/moved.txt": "", "new/moved.txt": lines("moved", 20, nil)}},
		{"Speak otherwise", map[string]string{"conflict.txt": lines("conflict", 20, map[int]string{10: "conflict of upstream"})}},
		{"Add one, too", map[string]string{"added.txt": "upstream's\n"}},
		{"Hold what was waited for", map[string]string{"wanted.txt": lines("wanted", 20, map[int]string{1: "wanted is here"})}},
	}
	changes = []struct {
		name  string
		files map[string]string
		when  string // Drop-When
	}{
		{"clean", map[string]string{"clean.txt": lines("clean", 20, map[int]string{10: "clean by patch"})}, "never"},
		{"offset", map[string]string{"offset.txt": lines("offset", 20, map[int]string{10: "offset by patch"})}, "never"},
		{"merged", map[string]string{"merged.txt": lines("merged", 20, map[int]string{10: "merged by patch"})}, "never"},
		{"upstreamed", map[string]string{"done.txt": lines("done", 20, map[int]string{10: "done by patch"})}, "ref>=b200"},
		{"partial", map[string]string{"partial.txt": lines("partial", 40, map[int]string{5: "partial by patch", 30: "partial too"})}, "never"},
		{"moved", map[string]string{"old/moved.txt": lines("moved", 20, map[int]string{10: "moved by patch"})}, "never"},
		{"wanted", map[string]string{"wanted.txt": lines("wanted", 20, map[int]string{12: "wanted by patch"})}, "contains wanted.txt wanted is here"},
		{"conflict", map[string]string{"conflict.txt": lines("conflict", 20, map[int]string{10: "conflict of patch"})}, "never"},
		{"collision", map[string]string{"added.txt": "patch's\n"}, "never"},
		{"malformed", nil, ""},
		{"blocked", map[string]string{"conflict.txt": lines("conflict", 20, map[int]string{10: "conflict of patch, and more"})}, "never"},
	}
)

// every lists the fixture's patches; easy those that need nobody.
var (
	every = []string{"clean", "offset", "merged", "upstreamed", "partial", "moved", "wanted", "conflict", "collision", "malformed", "blocked"}
	easy  = every[:7]
)

// fixture is a repository of the component toy, pinned at b100, with some of
// the patches; upstream has b100 and b101.
type fixture struct {
	root     string
	upstream testkit.Git
}

func newFixture(t *testing.T, patches ...string) fixture {
	t.Helper()
	dir := t.TempDir()
	f := fixture{root: filepath.Join(dir, "repo"), upstream: testkit.RepoAt(t, mkdir(t, filepath.Join(dir, "upstream")))}
	f.upstream.Commit(at100, "b100")
	f.upstream.Run("checkout", "-q", "-b", "series")
	number := 0
	for _, c := range changes {
		if !slices.Contains(patches, c.name) {
			continue
		}
		number++
		name := filepath.Join(f.root, "patches", fmt.Sprintf("%04d-%s.patch", number, c.name))
		if c.files == nil {
			testkit.Write(t, name, "diff --git a/clean.txt b/clean.txt\n--- a/clean.txt\n+++ b/clean.txt\n@@ -1,3 +1,3 @@\n clean 1\n")
			continue
		}
		for path, text := range c.files {
			testkit.Write(t, filepath.Join(f.upstream.Dir, path), text)
		}
		f.upstream.Run("add", "-A")
		f.upstream.Run("commit", "-q", "-m", c.name+"\n\nWhy.\n\nUpstream-Status: Pending\nDrop-When: "+c.when)
		text := f.upstream.Run("format-patch", "-1", "--stdout", "-N", "--zero-commit", "--no-signature", "--full-index", "--binary")
		testkit.Write(t, name, text+"\n")
	}
	f.upstream.Run("checkout", "-q", "main")
	for _, c := range to101 {
		for path, text := range c.files {
			full := filepath.Join(f.upstream.Dir, path)
			if text == "" {
				if err := os.Remove(full); err != nil {
					t.Fatal(err)
				}
				continue
			}
			testkit.Write(t, full, text)
		}
		f.upstream.Run("add", "-A")
		f.upstream.Run("commit", "-q", "-m", c.subject)
	}
	f.upstream.Run("tag", "b101")
	testkit.Write(t, filepath.Join(f.root, "payload.yaml"), `version: 1
components:
  toy:
    pin: TOY_VERSION
    upstream: ../upstream
    patches: patches
    copies: [{path: ci/Dockerfile, pattern: '^ARG TOY=(\S+)$'}]
`)
	testkit.Write(t, filepath.Join(f.root, "TOY_VERSION"), "b100\n")
	testkit.Write(t, filepath.Join(f.root, "ci/Dockerfile"), "FROM scratch\nARG TOY=b100\n")
	testkit.Write(t, filepath.Join(f.root, ".gitignore"), "build/\n")
	if err := os.Chmod(filepath.Join(f.root, "ci/Dockerfile"), 0o755); err != nil {
		t.Fatal(err)
	}
	repo := testkit.RepoAt(t, f.root)
	repo.Run("config", "user.name", "A U Thor")
	repo.Run("config", "user.email", "author@example.com")
	if !slices.Contains(patches, "malformed") { // it can't be locked
		w := f.open(t)
		if _, err := w.Relock(t.Context(), "toy"); err != nil {
			t.Fatal(err)
		}
		if err := w.Lock.Save(f.root); err != nil {
			t.Fatal(err)
		}
	}
	repo.Run("add", "-A")
	repo.Run("commit", "-q", "-m", "pinned at b100")
	// Not committed: an edit of the series and a file of the user's.
	testkit.Write(t, filepath.Join(f.root, "notes.txt"), "mine\n")
	return f
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (f fixture) open(t *testing.T) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(t.Context(), workspace.Options{Dir: f.root})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func silent() *voice.Voice { return voice.New(io.Discard) }

func (f fixture) start(t *testing.T, opts Options) (Result, error) {
	t.Helper()
	opts.Component = "toy"
	return Start(t.Context(), f.open(t), silent(), built, opts)
}

// built plays the build: it leaves a mark of what was pinned.
func built(_ context.Context, preset string) (Built, error) {
	return Built{Preset: preset, Summary: "built"}, nil
}

// git runs git in the repository.
func (f fixture) git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := testkit.RunGit(t.Context(), f.root, args...)
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return out
}

// snapshot is every file and folder of a repository, with modes and content,
// and what its git knows.
func (f fixture) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(f.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(f.root, path)
		if rel == ".git" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += "\n" + string(data)
		}
		all[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all["git HEAD"] = f.git(t, "rev-parse", "HEAD^{tree}")
	all["git log"] = f.git(t, "log", "--format=%s")
	all["git index"] = f.git(t, "ls-files", "-s")
	all["git status"] = f.git(t, "status", "--porcelain", "--ignored")
	return all
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s is\n%s\nwant\n%s", what, name, got[name], want[name])
		}
	}
	for name := range got {
		if _, known := want[name]; !known {
			t.Errorf("%s: %s is left over", what, name)
		}
	}
}

func told(r Result) (verdicts, actions string) {
	var v, a []string
	for _, p := range r.Updates[0].Patches {
		v, a = append(v, string(p.Verdict)), append(a, string(p.Action))
	}
	return strings.Join(v, ", "), strings.Join(a, ", ")
}

// resolve writes a file of the work folder and marks it as resolved.
func (f fixture) resolve(t *testing.T, path, text string) {
	t.Helper()
	dir := filepath.Join(f.root, "build/update/toy")
	testkit.Write(t, filepath.Join(dir, path), text)
	if _, err := testkit.RunGit(t.Context(), dir, "add", path); err != nil {
		t.Fatal(err)
	}
}

func verdictOf(r Result, file string) patch.Verdict {
	for _, p := range r.Updates[0].Patches {
		if p.File == file {
			return p.Verdict
		}
	}
	return ""
}
