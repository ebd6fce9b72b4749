package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/git"
)

// History is upstream's commits, for telling which of them did what. It is a
// repository of its own: the one behind the trees is shallow, and what it
// lacks must stay lacking.
type History struct{ repo git.Repo }

// ErrNoHistory says that upstream's history can't be had here.
var ErrNoHistory = errors.New("upstream's history is not here")

// historyLimit is how long naming commits may take: it helps, and nothing waits on it.
const historyLimit = 60 * time.Second

// History fetches what leads up to the commits from req's upstream: commits and
// folders, while files come as they are asked for where upstream can do that.
// Where git is not among req's kinds, a commit is not known, or upstream
// doesn't answer, the error is ErrNoHistory.
func (s *Store) History(ctx context.Context, req Request, commits ...string) (History, error) {
	if !slices.Contains(req.kinds(), FromGit) {
		return History{}, fmt.Errorf("%w: git is not among the kinds of source", ErrNoHistory)
	}
	if slices.Contains(commits, "") {
		return History{}, fmt.Errorf("%w: a source does not tell its commit", ErrNoHistory)
	}
	location := req.File.Location(req.Component)
	dir := filepath.Join(s.dir, "history", digest(location))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return History{}, fmt.Errorf("opening upstream's history: %w", err)
	}
	lock, err := acquire(ctx, dir+".lock", false, func() { req.tell("waiting for another process that fetches upstream's history") })
	if err != nil {
		return History{}, err
	}
	defer release(lock)
	repo, err := git.Open(ctx, dir)
	if err != nil {
		return History{}, err
	}
	h := History{repo: repo}
	if h.has(ctx, commits) {
		return h, nil
	}
	up := upstream{location: location}
	if err := up.reachable(ctx); err != nil {
		if ctx.Err() != nil {
			return History{}, err
		}
		return History{}, fmt.Errorf("%w: %w", ErrNoHistory, err)
	}
	req.tell("fetching upstream's history from %s", location)
	for _, setting := range [][2]string{{"remote.origin.url", location}, {"remote.origin.promisor", "true"}, {"remote.origin.partialclonefilter", "blob:none"}} {
		if _, err := repo.Text(ctx, "config", setting[0], setting[1]); err != nil {
			return History{}, err
		}
	}
	specs := []string{}
	for _, commit := range commits { // by name, so that the next fetch can build on them
		specs = append(specs, "+"+commit+":refs/payload/commit/"+commit)
	}
	alive, fetching, done := stall(ctx, req.Progress)
	defer done()
	_, err = repo.Do(fetching, git.Call{
		Args:   append([]string{"-c", "protocol.version=2", "fetch", "--progress", "--no-tags", "--filter=blob:none", "--", "origin"}, specs...),
		Stderr: alive,
	})
	if ctx.Err() != nil {
		return History{}, err
	}
	if err != nil || !h.has(ctx, commits) {
		return History{}, fmt.Errorf("%w: fetching it from %s: %w", ErrNoHistory, location, err)
	}
	return h, nil
}

// KeptHistory is upstream's history where it was fetched before, up to the
// commits; ok is false where it was not. Nobody is asked.
func (s *Store) KeptHistory(ctx context.Context, req Request, commits ...string) (h History, ok bool) {
	dir := filepath.Join(s.dir, "history", digest(req.File.Location(req.Component)))
	if _, err := os.Stat(filepath.Join(dir, "info", "attributes")); err != nil || slices.Contains(commits, "") {
		return h, false
	}
	h = History{repo: git.Repo{Dir: dir}}
	return h, h.has(ctx, commits)
}

// Changes is git's log of what the commits between two others did to files,
// newest first: a NUL and the commit's id on a line, then its diff without
// context.
func (h History) Changes(ctx context.Context, from, to string, paths []string) ([]byte, error) {
	asking, cancel := context.WithTimeoutCause(ctx, historyLimit, fmt.Errorf("no answer within %s", historyLimit))
	defer cancel()
	args := append([]string{"log", "--format=%x00%H", "-p", "-U0", "--no-renames", "--no-color", from + ".." + to, "--"}, paths...)
	out, err := h.repo.Do(asking, git.Call{Args: args})
	if err != nil {
		return nil, fmt.Errorf("reading upstream's history: %w", err)
	}
	return out, nil
}

// HistoryIn is the history that a complete repository holds.
func HistoryIn(repo git.Repo) History { return History{repo: repo} }

func (h History) has(ctx context.Context, commits []string) bool {
	for _, commit := range commits {
		if _, err := h.repo.Text(ctx, "-c", "remote.origin.promisor=false", "cat-file", "-e", commit+"^{commit}"); err != nil {
			return false
		}
	}
	return true
}

// Commit is one commit of upstream.
type Commit struct {
	ID      string `json:"id"`
	Subject string `json:"subject"`
}

// Touching lists the commits between two others that changed lines start to end
// of a file, counted from 1 in the later one; newest first.
func (h History) Touching(ctx context.Context, from, to, path string, start, end int) ([]Commit, error) {
	return h.log(ctx, "-s", fmt.Sprintf("-L%d,%d:%s", start, end, path), from+".."+to)
}

// Of lists the commits between two others that changed a file, newest first.
func (h History) Of(ctx context.Context, from, to, path string) ([]Commit, error) {
	return h.log(ctx, from+".."+to, "--", path)
}

// Bringing is the first commit between two others after which a file holds the
// line more or fewer times than before.
func (h History) Bringing(ctx context.Context, from, to, path, line string) (Commit, bool, error) {
	found, err := h.log(ctx, "-S"+line, from+".."+to, "--", path)
	if err != nil || len(found) == 0 {
		return Commit{}, false, err
	}
	return found[len(found)-1], true, nil
}

// Holds says whether commit is one of those that lead up to another.
func (h History) Holds(ctx context.Context, commit, in string) bool {
	_, err := h.repo.Text(ctx, "merge-base", "--is-ancestor", commit, in)
	return err == nil
}

func (h History) log(ctx context.Context, args ...string) ([]Commit, error) {
	asking, cancel := context.WithTimeoutCause(ctx, historyLimit, fmt.Errorf("no answer within %s", historyLimit))
	defer cancel()
	out, err := h.repo.Text(asking, append([]string{"log", "--no-merges", "--format=%H %s"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("reading upstream's history: %w", err)
	}
	var list []Commit
	for line := range strings.Lines(out) {
		if id, subject, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			list = append(list, Commit{ID: id, Subject: subject})
		}
	}
	return list, nil
}
