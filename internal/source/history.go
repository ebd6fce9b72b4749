package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"payload/internal/git"
)

// History is upstream's commits and tags without any file, in a repository of
// their own: the store's holds single commits without what came before them.
type History struct{ repo git.Repo }

// History fetches the tags of the repository at location with all that leads
// to them. What came the last time isn't fetched again.
func (s *Store) History(ctx context.Context, location string, tell func(format string, args ...any)) (*History, error) {
	dir := filepath.Join(s.dir, "history", digest(location))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("fetching the history of %s: %w", location, err)
	}
	lock, err := acquire(ctx, dir+".lock", false, func() { tell("waiting for another process that fetches the history of %s", location) })
	if err != nil {
		return nil, fmt.Errorf("fetching the history of %s: %w", location, err)
	}
	defer release(lock)
	repo, err := git.Open(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("fetching the history of %s: %w", location, err)
	}
	// git's own lock of a killed process; ours says that nobody holds it.
	if err := os.Remove(filepath.Join(dir, "packed-refs.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("fetching the history of %s: %w", location, err)
	}
	tell("fetching the history of %s, without files", location)
	// A server that can't leave files out sends them too.
	err = fetching(ctx, repo, nil, "--filter=tree:0", "--no-tags", "--prune", "--force", "--", location, "+refs/tags/*:refs/tags/*")
	if err != nil {
		return nil, fmt.Errorf("fetching the history of %s: %w", location, err)
	}
	return &History{repo: repo}, nil
}

// Places numbers the commits that lead to tags, parents before children and
// else by date.
func (h *History) Places(ctx context.Context) (map[string]int, error) {
	out, err := h.repo.Text(ctx, "rev-list", "--date-order", "--reverse", "--tags")
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	places := map[string]int{}
	for i, commit := range strings.Fields(out) {
		places[commit] = i
	}
	return places, nil
}

// Between counts the commits that lead to b and not to a.
func (h *History) Between(ctx context.Context, a, b string) (int, error) {
	out, err := h.repo.Text(ctx, "rev-list", "--count", a+".."+b)
	if err != nil {
		return 0, fmt.Errorf("reading the history: %w", err)
	}
	return strconv.Atoi(out)
}
