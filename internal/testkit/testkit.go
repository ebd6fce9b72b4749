// Package testkit makes what tests need: git repositories whose ids never
// change, and folders filled from text. It is imported by tests alone.
package testkit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/run"
)

// Identity is the environment under which git gives the same ids everywhere.
var Identity = []string{
	"GIT_AUTHOR_NAME=A U Thor", "GIT_AUTHOR_EMAIL=author@example.com", "GIT_AUTHOR_DATE=2001-02-03T04:05:06Z",
	"GIT_COMMITTER_NAME=C O Mitter", "GIT_COMMITTER_EMAIL=committer@example.com", "GIT_COMMITTER_DATE=2001-02-03T04:05:06Z",
	"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
}

// Git is a repository with a work tree, for playing upstream.
type Git struct {
	Dir string
	tb  testing.TB
}

// Repo makes an empty repository in a temporary folder.
func Repo(tb testing.TB) Git {
	tb.Helper()
	return RepoAt(tb, tb.TempDir())
}

// RepoAt makes dir a repository; files that are there stay uncommitted.
func RepoAt(tb testing.TB, dir string) Git {
	tb.Helper()
	g := Git{Dir: dir, tb: tb}
	g.Run("init", "-q", "-b", "main")
	return g
}

// Run runs one git command and returns its stdout without the last line feed.
func (g Git) Run(args ...string) string {
	g.tb.Helper()
	out, err := RunGit(context.Background(), g.Dir, args...)
	if err != nil {
		g.tb.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// RunGit runs git in dir under Identity.
func RunGit(ctx context.Context, dir string, args ...string) (string, error) {
	res, err := run.Do(ctx, run.Cmd{Dir: dir, Args: append([]string{"git"}, args...), Env: Identity})
	return strings.TrimSuffix(string(res.Stdout), "\n"), err
}

// Commit writes files (path to content, missing content "" deletes), commits
// everything, and tags the commit where tags are given. It returns the commit.
func (g Git) Commit(files map[string]string, tags ...string) string {
	g.tb.Helper()
	for path, content := range files {
		full := filepath.Join(g.Dir, filepath.FromSlash(path))
		if content == "" {
			if err := os.Remove(full); err != nil {
				g.tb.Fatal(err)
			}
			continue
		}
		Write(g.tb, full, content)
	}
	g.Run("add", "-A", "-f")
	g.Run("commit", "-q", "--allow-empty", "-m", "change "+strings.Join(tags, " "))
	for _, tag := range tags {
		g.Run("tag", tag)
	}
	return g.Run("rev-parse", "HEAD")
}

// Write writes one file and the folders above it.
func Write(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Fake puts an executable shell script called name into a folder that becomes
// the first of PATH until the test ends.
func Fake(tb testing.TB, name, script string) {
	tb.Helper()
	dir := tb.TempDir()
	path := filepath.Join(dir, name)
	Write(tb, path, "#!/bin/sh\n"+script)
	if err := os.Chmod(path, 0o755); err != nil {
		tb.Fatal(err)
	}
	t, ok := tb.(*testing.T)
	if !ok {
		tb.Fatal("Fake needs a *testing.T")
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
