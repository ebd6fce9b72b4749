package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/git"
	"payload/internal/run"
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
	fail := func(err error) (*History, error) {
		return nil, fmt.Errorf("fetching the history of %s: %w", location, err)
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
	tell("fetching the history of %s, without files", location)
	// A server that can't leave files out sends them too.
	err = fetching(ctx, repo, nil, "--filter=tree:0", "--no-tags", "--prune", "--force", "--", location, "+refs/tags/*:refs/tags/*")
	if err := errors.Join(err, os.Remove(fetch)); err != nil {
		return fail(err)
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

// HistoryCommit is a commit and the first line of its message.
type HistoryCommit struct {
	Commit  string `json:"commit"`
	Subject string `json:"subject"`
}

// Contains says whether ref, a full commit, leads back to another one, which may
// be abbreviated. One that leads to no tag is held by none.
func (h *History) Contains(ctx context.Context, ref, commit string) (bool, error) {
	places, err := h.Places(ctx)
	if err != nil {
		return false, err
	}
	full := "" // looked up here: git would ask upstream for what isn't there
	for id := range places {
		if strings.HasPrefix(id, commit) {
			if full != "" {
				return false, fmt.Errorf("reading the history: commit %s is ambiguous", commit)
			}
			full = id
		}
	}
	if _, ok := places[ref]; !ok {
		return false, fmt.Errorf("reading the history: commit %s leads to no tag", ref)
	}
	if full == "" {
		return false, nil
	}
	_, err = h.repo.Text(ctx, "merge-base", "--is-ancestor", full, ref)
	if exit, ok := errors.AsType[*run.ExitError](err); ok && exit.Code == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the history: %w", err)
	}
	return true, nil
}

// Between lists the commits that lead to b and not to a, the newest first.
func (h *History) Between(ctx context.Context, a, b string) ([]HistoryCommit, error) {
	out, err := h.repo.Text(ctx, "log", "-z", "--format=%H %s", a+".."+b)
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	list := []HistoryCommit{}
	for _, record := range git.SplitZ([]byte(out)) {
		commit, subject, _ := strings.Cut(record, " ")
		list = append(list, HistoryCommit{Commit: commit, Subject: subject})
	}
	return list, nil
}
