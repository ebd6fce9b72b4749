package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/run"
)

// checkout is the user's own repository, read and committed to with the user's
// own git: identity, hooks and signing are theirs.
type checkout struct{ root string }

func (c checkout) git(ctx context.Context, args ...string) (string, error) {
	return c.feed(ctx, "", args...)
}

func (c checkout) feed(ctx context.Context, stdin string, args ...string) (string, error) {
	res, err := run.Do(ctx, run.Cmd{Dir: c.root, Args: append([]string{"git"}, args...), Stdin: strings.NewReader(stdin)})
	return strings.TrimSuffix(string(res.Stdout), "\n"), err
}

// Base is where a branch left the main one, and what was pinned there.
type Base struct {
	Commit string `json:"commit"`
	Name   string `json:"name"` // what the commit was found by: "origin/main"
	Ref    string `json:"ref"`  // empty where the pin file wasn't there
}

// BaseError is a --base that names nothing.
type BaseError struct {
	Name string
	Err  error
}

func (e *BaseError) Error() string {
	return fmt.Sprintf("looking for the pin on the base branch: --base %s: %v", e.Name, e.Err)
}
func (e *BaseError) Unwrap() error { return e.Err }

// base finds the base: asked as it is, or the merge base with the main branch.
// It is nil where the root lies in no repository, or one without main branch.
func (c checkout) base(ctx context.Context, asked string, comp config.Component) (*Base, error) {
	commit := func(name string) (string, error) { return c.git(ctx, "rev-parse", "-q", "--verify", name+"^{commit}") }
	b := &Base{Name: asked}
	if asked != "" {
		var err error
		if b.Commit, err = commit(asked); err != nil {
			return nil, &BaseError{Name: asked, Err: errors.New("no such commit, branch or tag")}
		}
	} else {
		names := []string{"origin/main", "origin/master", "main", "master"}
		if head, err := c.git(ctx, "symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD"); err == nil {
			names = append([]string{head}, names...)
		}
		i := slices.IndexFunc(names, func(name string) bool {
			_, err := commit(name)
			return err == nil
		})
		if i < 0 {
			return nil, ctx.Err()
		}
		b.Name = names[i]
		var err error
		if b.Commit, err = c.git(ctx, "merge-base", "HEAD", b.Name); err != nil {
			return nil, ctx.Err() // histories with nothing in common have no base
		}
	}
	text, err := c.git(ctx, "cat-file", "blob", b.Commit+":./"+comp.Pin)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	b.Ref = strings.TrimSpace(text)
	return b, nil
}

// committed is where a repository was before the update's commits.
type committed struct {
	Head  string            `json:"head"`
	Index map[string]string `json:"index"` // path: its lines of ls-files -s
}

// NotCommittableError is a --commit where no commit can be made.
type NotCommittableError struct{ Why string }

func (e *NotCommittableError) Error() string { return "committing the update: " + e.Why }

// committable says why no commit can be made here.
func (c checkout) committable(ctx context.Context) error {
	if _, err := c.git(ctx, "rev-parse", "-q", "--verify", "HEAD"); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &NotCommittableError{Why: c.root + " is no git repository with a commit"}
	}
	for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"} {
		path, err := c.git(ctx, "rev-parse", "--git-path", name)
		if err != nil {
			return err
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.root, path)
		}
		if _, err := os.Stat(path); err == nil {
			return &NotCommittableError{Why: "a merge, rebase, revert or cherry-pick is not finished"}
		}
	}
	if _, err := c.git(ctx, "var", "GIT_COMMITTER_IDENT"); err != nil {
		return &NotCommittableError{Why: err.Error()}
	}
	return nil
}

// remember notes what the commits will change.
func (c checkout) remember(ctx context.Context, paths []string) (*committed, error) {
	b := &committed{Index: map[string]string{}}
	for _, path := range paths {
		dir, err := filepath.EvalSymlinks(filepath.Dir(filepath.Join(c.root, filepath.FromSlash(path))))
		if _, below := place(c).below(dir); err == nil && !below {
			return nil, &NotCommittableError{Why: path + " lies outside of the repository, behind a link"}
		}
	}
	var err error
	if b.Head, err = c.git(ctx, "rev-parse", "HEAD"); err != nil {
		return nil, fmt.Errorf("committing the update: %w", err)
	}
	for _, path := range paths {
		if b.Index[path], err = c.git(ctx, "ls-files", "-s", "--full-name", "--", literal(path)); err != nil {
			return nil, fmt.Errorf("committing the update: %w", err)
		}
	}
	return b, nil
}

// literal is a path that git doesn't take for a pattern.
func literal(path string) string { return ":(literal)" + path }

// commit makes a commit of the paths alone. What is committed already is none.
func (c checkout) commit(ctx context.Context, paths []string, message string) (id string, err error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("committing the update: %w", err) }
	specs := []string{}
	for _, path := range paths {
		specs = append(specs, literal(path))
	}
	out, err := c.git(ctx, append([]string{"status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching", "--"}, specs...)...)
	if err != nil {
		return fail(err)
	}
	if out == "" {
		return "", nil
	}
	specs = specs[:0]
	var fresh []string
	for _, line := range git.SplitZ([]byte(out)) {
		// Porcelain names start at the repository's top, which may lie higher.
		spec := ":(top,literal)" + line[3:]
		specs = append(specs, spec)
		if strings.HasPrefix(line, "??") || strings.HasPrefix(line, "!!") {
			fresh = append(fresh, spec)
		}
	}
	if len(fresh) > 0 {
		if _, err := c.git(ctx, append([]string{"add", "-f", "--"}, fresh...)...); err != nil {
			return fail(err)
		}
	}
	if _, err := c.feed(ctx, message, append([]string{"commit", "-q", "-F", "-", "--only", "--"}, specs...)...); err != nil {
		return fail(err)
	}
	id, err = c.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return fail(err)
	}
	return id, nil
}

// since lists the commits after one, oldest first.
func (c checkout) since(ctx context.Context, head string) ([]string, error) {
	out, err := c.git(ctx, "rev-list", "--reverse", "--first-parent", head+"..HEAD")
	if err != nil {
		return nil, fmt.Errorf("committing the update: %w", err)
	}
	return append([]string{}, strings.Fields(out)...), nil
}

// uncommit takes the update's commits back. It refuses to take back others.
func (c checkout) uncommit(ctx context.Context, b *committed, paths []string) error {
	fail := func(err error) error { return fmt.Errorf("taking the commits of the update back: %w", err) }
	head, err := c.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return fail(err)
	}
	if head != b.Head {
		out, err := c.git(ctx, "diff", "--name-only", "--no-renames", "-z", b.Head, head)
		if err != nil {
			return fail(err)
		}
		prefix, err := c.git(ctx, "rev-parse", "--show-prefix")
		if err != nil {
			return fail(err)
		}
		n, err := c.git(ctx, "rev-list", "--count", "--first-parent", b.Head+".."+head)
		if err != nil {
			return fail(err)
		}
		foreign := slices.ContainsFunc(git.SplitZ([]byte(out)), func(path string) bool {
			own, below := strings.CutPrefix(path, prefix)
			return !below || !slices.Contains(paths, own)
		})
		if back, err := c.git(ctx, "merge-base", b.Head, head); err != nil || back != b.Head || foreign || n != "1" && n != "2" {
			return fail(fmt.Errorf("HEAD is %.12s, with more on top of %.12s than the update", head, b.Head))
		}
		if _, err := c.git(ctx, "update-ref", "-m", "payload update --abort", "HEAD", b.Head, head); err != nil {
			return fail(err)
		}
	}
	var lines strings.Builder
	for _, path := range paths {
		was := b.Index[path]
		now, err := c.git(ctx, "ls-files", "-s", "--full-name", "--", literal(path))
		if err != nil {
			return fail(err)
		}
		switch was {
		case now:
		case "":
			full, err := c.git(ctx, "ls-files", "--full-name", "--", literal(path))
			if err != nil {
				return fail(err)
			}
			fmt.Fprintf(&lines, "0 %s\t%s\n", strings.Repeat("0", len(head)), full)
		default:
			lines.WriteString(was + "\n")
		}
	}
	if lines.Len() > 0 {
		if _, err := c.feed(ctx, lines.String(), "update-index", "--index-info"); err != nil {
			return fail(err)
		}
	}
	return nil
}
