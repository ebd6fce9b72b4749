package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/git"
)

// Lineage is upstream's commits and tags without any folder or file, which is
// enough to tell what came before what, and little to fetch. It's a repository of
// its own: the store's holds single commits without what came before them.
type Lineage struct{ repo git.Repo }

// Lineage fetches the tags of the repository at location with all that leads
// to them. What came the last time isn't fetched again.
func (s *Store) Lineage(ctx context.Context, location string, tell func(format string, args ...any)) (*Lineage, error) {
	dir := filepath.Join(s.dir, "lineage", digest(location))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("fetching the order of commits of %s: %w", location, err)
	}
	lock, err := acquire(ctx, dir+".lock", false, func() { tell("waiting for another process that fetches the commits of %s", location) })
	if err != nil {
		return nil, fmt.Errorf("fetching the order of commits of %s: %w", location, err)
	}
	defer release(lock)
	fail := func(err error) (*Lineage, error) {
		return nil, fmt.Errorf("fetching the order of commits of %s: %w", location, err)
	}
	// What a killed fetch left can hold lock files of git.
	fetch := dir + ".fetching"
	if _, err := os.Stat(fetch); err == nil {
		if err := removeAll(dir); err != nil {
			return fail(err)
		}
	}
	if err := os.WriteFile(fetch, nil, 0o644); err != nil {
		return fail(err)
	}
	repo, err := git.Open(ctx, dir)
	if err != nil {
		return fail(err)
	}
	tell("fetching the commits of %s, without files", location)
	// A server that can't leave files out sends them too.
	alive, limited, done := stall(ctx, nil)
	defer done()
	_, err = repo.Do(limited, git.Call{
		Args: []string{
			"-c", "protocol.version=2", "fetch", "--progress", "--filter=tree:0", "--no-tags", "--prune", "--force",
			"--", location, "+refs/tags/*:refs/tags/*",
		},
		Stderr: alive,
	})
	if err := errors.Join(err, os.Remove(fetch)); err != nil {
		return fail(err)
	}
	return &Lineage{repo: repo}, nil
}

// Places numbers the commits that lead to tags, parents before children and
// else by date.
func (l *Lineage) Places(ctx context.Context) (map[string]int, error) {
	out, err := l.repo.Text(ctx, "rev-list", "--date-order", "--reverse", "--tags")
	if err != nil {
		return nil, fmt.Errorf("reading the order of commits: %w", err)
	}
	places := map[string]int{}
	for i, commit := range strings.Fields(out) {
		places[commit] = i
	}
	return places, nil
}

// LineageCommit is a commit and the first line of its message.
type LineageCommit struct {
	ID      string `json:"id"`
	Subject string `json:"subject"`
}

// Between lists the commits that lead to b and not to a, the newest first.
func (l *Lineage) Between(ctx context.Context, a, b string) ([]LineageCommit, error) {
	out, err := l.repo.Text(ctx, "log", "-z", "--format=%H %s", a+".."+b)
	if err != nil {
		return nil, fmt.Errorf("reading the order of commits: %w", err)
	}
	list := []LineageCommit{}
	for _, record := range git.SplitZ([]byte(out)) {
		commit, subject, _ := strings.Cut(record, " ")
		list = append(list, LineageCommit{ID: commit, Subject: subject})
	}
	return list, nil
}
