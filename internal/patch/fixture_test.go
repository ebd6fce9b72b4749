package patch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/git"
	"payload/internal/run"
)

// files describes a folder: path to content. A content that begins with
// "link:" is a symbolic link, one with "exec:" an executable file.
type files map[string]string

func (f files) write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range f {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "link:"); ok {
			err = os.Symlink(to, path)
		} else if text, ok := strings.CutPrefix(content, "exec:"); ok {
			err = os.WriteFile(path, []byte(text), 0o755)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// with is f with some files replaced; an empty name list deletes nothing.
func (f files) with(change files, gone ...string) files {
	out := files{}
	for k, v := range f {
		out[k] = v
	}
	for k, v := range change {
		out[k] = v
	}
	for _, k := range gone {
		delete(out, k)
	}
	return out
}

func newRepo(t *testing.T) git.Repo {
	t.Helper()
	repo, err := git.Open(t.Context(), filepath.Join(t.TempDir(), "private.git"))
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func treeOf(t *testing.T, repo git.Repo, f files) string {
	t.Helper()
	dir := t.TempDir()
	f.write(t, dir)
	id, err := repo.WriteDir(t.Context(), dir, filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// userGit is git as a person runs it in a checkout, with fixed identity.
func userGit(t *testing.T, dir string, stdin string, args ...string) string {
	t.Helper()
	out, err := tryGit(t.Context(), dir, stdin, args...)
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func tryGit(ctx context.Context, dir, stdin string, args ...string) (string, error) {
	env := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_AUTHOR_DATE=2026-02-03T04:05:06+0100",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com", "GIT_COMMITTER_DATE=2026-02-03T04:05:06+0100",
	}
	res, err := run.Do(ctx, run.Cmd{Dir: dir, Args: append([]string{"git"}, args...), Env: env, Stdin: strings.NewReader(stdin)})
	return string(res.Stdout), err
}

// checkout is a user's repository that holds f as its first commit.
func checkout(t *testing.T, f files) string {
	t.Helper()
	dir := t.TempDir()
	userGit(t, dir, "", "init", "-q", "--template=", "-b", "main")
	if err := os.MkdirAll(filepath.Join(dir, ".git", "info"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "info", "attributes"), []byte(git.Attributes), 0o644); err != nil {
		t.Fatal(err)
	}
	f.write(t, dir)
	commitAll(t, dir, "base")
	return dir
}

func commitAll(t *testing.T, dir, message string) {
	t.Helper()
	userGit(t, dir, "", "add", "-A", "-f")
	userGit(t, dir, message, "commit", "-q", "--allow-empty", "-F", "-")
}

func replaceAll(t *testing.T, dir string, f files) {
	t.Helper()
	userGit(t, dir, "", "rm", "-rqf", "--ignore-unmatch", ".")
	f.write(t, dir)
}

// seriesOf makes one patch with git for each step from one state to the next.
func seriesOf(t *testing.T, states ...files) []string {
	t.Helper()
	dir := checkout(t, states[0])
	for i, f := range states[1:] {
		replaceAll(t, dir, f)
		commitAll(t, dir, fmt.Sprintf("change %d\n\nWhy.\n\nUpstream-Status: Pending\nDrop-When: never\n", i+1))
	}
	var list []string
	for i := range states[1:] {
		at := fmt.Sprintf("HEAD~%d", len(states)-2-i)
		list = append(list, userGit(t, dir, "", "format-patch", "-1", "--stdout", "-N", "--zero-commit", "--no-signature", "--full-index", "--binary", at))
	}
	return list
}

// load is a series of patch texts, numbered from 1.
func load(t *testing.T, texts ...string) Series {
	t.Helper()
	dir := t.TempDir()
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d-p.patch", i+1)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verdicts is a report as one line for each patch.
func verdicts(r Report) string {
	var list []string
	for _, p := range r.Patches {
		list = append(list, string(p.Verdict))
	}
	return strings.Join(list, " ")
}

// blank takes the blob ids from a patch, so that only its text is left.
func blank(text string) string {
	var lines []string
	for _, l := range strings.SplitAfter(text, "\n") {
		if !strings.HasPrefix(l, "index ") {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "")
}

// numbered is n lines of text.
func numbered(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %d\n", name, i+1)
	}
	return b.String()
}

// show reads one file of a tree.
func show(t *testing.T, repo git.Repo, tree, path string) string {
	t.Helper()
	out, err := repo.Do(t.Context(), git.Call{Args: []string{"cat-file", "-p", tree + ":" + path}})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
