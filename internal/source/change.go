package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/git"
)

// MergeError is a commit with several parents, which is no single change.
type MergeError struct{ Commit string }

func (e *MergeError) Error() string {
	return fmt.Sprintf("reading commit %s: it is a merge, and no single change", e.Commit)
}

// Change makes one commit of the repository at location, with its files and
// those of its parent, available in Repo, and gives the parent; it's empty for a
// first commit. One that is there isn't fetched.
func (s *Store) Change(ctx context.Context, location, commit string, tell func(format string, args ...any)) (parent string, err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("fetching commit %s from %s: %w", commit, location, err)
	}
	parents, there, err := s.change(ctx, commit)
	if err != nil {
		return fail(err)
	}
	if !there {
		// A fetch has no limit on its first answer.
		up := upstream{location: location}
		if err := up.reachable(ctx); err != nil {
			return fail(err)
		}
		lock, err := s.lockGit(ctx, func() { tell("waiting for another process that fetches") })
		if err != nil {
			return fail(err)
		}
		tell("fetching commit %s from %s", commit, location)
		err = s.fetchChange(ctx, location, commit)
		release(lock)
		if err != nil {
			return fail(err)
		}
		if parents, there, err = s.change(ctx, commit); err != nil {
			return fail(err)
		}
		if !there {
			return fail(errors.New("it did not come whole"))
		}
	}
	switch len(parents) {
	case 0:
		return "", nil
	case 1:
		return parents[0], nil
	}
	return "", &MergeError{Commit: commit}
}

func (s *Store) fetchChange(ctx context.Context, location, commit string) error {
	ref := "refs/payload/change/" + commit
	// git's own locks of a killed process; ours says that nobody holds them.
	for _, name := range []string{"shallow.lock", ref + ".lock"} {
		if err := os.Remove(filepath.Join(s.repo.Dir, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	alive, ctx, done := stall(ctx, nil)
	defer done()
	_, err := s.repo.Do(ctx, git.Call{
		Args:   []string{"-c", "protocol.version=2", "fetch", "--progress", "--depth=2", "--no-tags", "--", location, "+" + commit + ":" + ref},
		Stderr: alive,
	})
	return err
}

// change lists the parents of a commit as its object names them, whatever git
// takes for the end of its shallow history, and says whether all is there.
func (s *Store) change(ctx context.Context, commit string) (parents []string, there bool, err error) {
	has, err := s.repo.Has(ctx, commit+"^{tree}")
	if err != nil || !has {
		return nil, false, err
	}
	text, err := s.repo.Text(ctx, "cat-file", "commit", commit)
	if err != nil {
		return nil, false, err
	}
	head, _, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(head) {
		if id, ok := strings.CutPrefix(line, "parent "); ok {
			parents = append(parents, strings.TrimSpace(id))
		}
	}
	for _, parent := range parents {
		if has, err := s.repo.Has(ctx, parent+"^{tree}"); err != nil || !has {
			return parents, false, err
		}
	}
	return parents, true, nil
}
