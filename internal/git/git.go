// Package git speaks to the git command for work on private repositories:
// trees, indexes, fetches. It owns the isolation from the user's own git (no
// system or user configuration, no hooks, no attributes) and knows nothing of
// components, patches or pins.
package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/run"
)

// Repo is a bare repository of ours. Everything in it may be deleted and made
// again; nothing of the user's lies in it.
type Repo struct {
	Dir string // the git folder itself
}

// Attributes makes git keep every byte: no line-ending conversion, keyword or
// filter that a tree's own .gitattributes asks for, and the diff drivers whose
// function headings the patch engine compares.
const Attributes = `* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst
*.c diff=cpp
*.cc diff=cpp
*.cpp diff=cpp
*.cu diff=cpp
*.cuh diff=cpp
*.h diff=cpp
*.hpp diff=cpp
*.metal diff=cpp
*.m diff=objc
*.mm diff=objc
*.py diff=python
`

// isolated is the environment in which no configuration of the user or the
// system is read, and identity and dates are fixed, so that the same input
// gives the same ids everywhere.
var isolated = []string{
	"GIT_CONFIG_GLOBAL=" + os.DevNull,
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_AUTHOR_NAME=payload", "GIT_AUTHOR_EMAIL=payload@localhost", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
	"GIT_COMMITTER_NAME=payload", "GIT_COMMITTER_EMAIL=payload@localhost", "GIT_COMMITTER_DATE=2000-01-01T00:00:00Z",
}

// Open makes dir a private bare repository if it isn't one yet.
func Open(ctx context.Context, dir string) (Repo, error) {
	r := Repo{Dir: dir}
	if _, err := os.Stat(filepath.Join(dir, "info", "attributes")); err == nil {
		return r, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, fmt.Errorf("making the private repository: %w", err)
	}
	if _, err := run.Do(ctx, run.Cmd{Args: []string{"git", "init", "-q", "--bare", "--template=", dir}, Env: isolated}); err != nil {
		return r, fmt.Errorf("making the private repository %s: %w", dir, err)
	}
	settings := [][2]string{
		{"core.autocrlf", "false"}, {"core.fileMode", "true"}, {"core.symlinks", "true"}, {"core.ignoreCase", "false"},
		{"core.precomposeUnicode", "false"}, {"core.protectNTFS", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"},
		{"fetch.recurseSubmodules", "false"}, {"core.commitGraph", "false"}, {"advice.detachedHead", "false"},
	}
	for _, s := range settings {
		if _, err := r.Text(ctx, "config", s[0], s[1]); err != nil {
			return r, err
		}
	}
	// Written last: its presence says that the repository is complete.
	info := filepath.Join(dir, "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return r, fmt.Errorf("making the private repository: %w", err)
	}
	tmp := filepath.Join(info, fmt.Sprintf("attributes.%d", os.Getpid()))
	if err := os.WriteFile(tmp, []byte(Attributes), 0o644); err != nil {
		return r, fmt.Errorf("making the private repository: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(info, "attributes")); err != nil {
		return r, fmt.Errorf("making the private repository: %w", err)
	}
	return r, nil
}

// Call is one git command in a repository.
type Call struct {
	Args     []string
	Index    string // GIT_INDEX_FILE; empty for none
	WorkTree string // --work-tree; empty for none
	Env      []string
	Stdin    io.Reader
	Stderr   io.Writer // for progress of long fetches
}

// Do runs one git command and returns its stdout.
func (r Repo) Do(ctx context.Context, c Call) ([]byte, error) {
	args := []string{"git", "--git-dir=" + r.Dir}
	dir := r.Dir
	if c.WorkTree != "" {
		args = append(args, "--work-tree="+c.WorkTree, "-c", "core.bare=false")
		dir = c.WorkTree
	}
	env := append([]string{}, isolated...)
	if c.Index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.Index)
	}
	res, err := run.Do(ctx, run.Cmd{Dir: dir, Args: append(args, c.Args...), Env: append(env, c.Env...), Stdin: c.Stdin, Stderr: c.Stderr})
	return res.Stdout, err
}

// Text runs one git command without index or work tree and returns its stdout
// without the last line feed.
func (r Repo) Text(ctx context.Context, args ...string) (string, error) {
	out, err := r.Do(ctx, Call{Args: args})
	return strings.TrimSuffix(string(out), "\n"), err
}

// Has says whether the object exists in the repository.
func (r Repo) Has(ctx context.Context, object string) (bool, error) {
	_, err := r.Text(ctx, "cat-file", "-e", object)
	var exit *run.ExitError
	if errors.As(err, &exit) && exit.Signal == "" {
		return false, nil
	}
	return err == nil, err
}

// WriteDir stores the content of folder dir, ignored files included and a
// stray .git left out, and returns its tree id. index is where the index is
// kept; it holds the stat data that later makes Changed quick.
func (r Repo) WriteDir(ctx context.Context, dir, index string) (string, error) {
	if err := os.Remove(index); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("hashing %s: %w", dir, err)
	}
	// -f keeps what a .gitignore of the tree names. A nested .git, file or
	// folder, is never part of a source.
	add := Call{Index: index, WorkTree: dir, Args: []string{"add", "-A", "-f", "--", ".", ":(exclude,glob)**/.git", ":(exclude,glob)**/.git/**"}}
	if _, err := r.Do(ctx, add); err != nil {
		return "", fmt.Errorf("hashing %s: %w", dir, err)
	}
	return r.WriteTree(ctx, index)
}

// WriteTree stores the tree that an index holds and returns its id.
func (r Repo) WriteTree(ctx context.Context, index string) (string, error) {
	out, err := r.Do(ctx, Call{Index: index, Args: []string{"write-tree"}})
	if err != nil {
		return "", fmt.Errorf("writing a tree: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ReadTree fills an index with a tree.
func (r Repo) ReadTree(ctx context.Context, tree, index string) error {
	if _, err := r.Do(ctx, Call{Index: index, Args: []string{"read-tree", tree}}); err != nil {
		return fmt.Errorf("reading tree %s: %w", tree, err)
	}
	return nil
}

// Checkout writes a tree into the empty folder dir; index is left describing it.
func (r Repo) Checkout(ctx context.Context, tree, dir, index string) error {
	if err := r.ReadTree(ctx, tree, index); err != nil {
		return err
	}
	if _, err := r.Do(ctx, Call{Index: index, WorkTree: dir, Args: []string{"checkout-index", "-a", "-q", "-u"}}); err != nil {
		return fmt.Errorf("writing tree %s to %s: %w", tree, dir, err)
	}
	return nil
}

// Refresh rereads the stat data of every file of dir into index, for after
// permissions or places changed.
func (r Repo) Refresh(ctx context.Context, dir, index string) error {
	_, err := r.Do(ctx, Call{Index: index, WorkTree: dir, Args: []string{"update-index", "-q", "--really-refresh"}})
	if err != nil {
		return fmt.Errorf("refreshing the index of %s: %w", dir, err)
	}
	return nil
}

// Changed lists the files of dir that differ from tree: changed, missing, or
// extra ones (ignored files too). index must describe tree; a stat that did
// not change is trusted, ctime included.
func (r Repo) Changed(ctx context.Context, tree, dir, index string) ([]string, error) {
	var names []string
	for _, args := range [][]string{
		{"diff-index", "--cached", "--name-only", "-z", tree, "--"},
		{"diff-files", "--name-only", "-z"},
		{"ls-files", "--others", "-z"},
	} {
		out, err := r.Do(ctx, Call{Index: index, WorkTree: dir, Args: args})
		if err != nil {
			return nil, fmt.Errorf("checking %s: %w", dir, err)
		}
		names = append(names, splitZ(out)...)
	}
	return names, nil
}

// splitZ splits the output of a -z command.
func splitZ(out []byte) []string {
	text := strings.TrimSuffix(string(out), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}
