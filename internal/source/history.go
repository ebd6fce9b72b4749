package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/git"
	"payload/internal/run"
)

// Folders of the store that hold a repository for each upstream.
const (
	historyKind = "history"
	lineageKind = "lineage"
)

// History is upstream's commits, for telling which of them did what. It is a
// repository of its own: the one behind the trees is shallow, and what it
// lacks must stay lacking.
type History struct{ of partial }

// ErrNoHistory says that upstream's history can't be had here.
var ErrNoHistory = errors.New("upstream's history is not here")

// historyLimit is how long naming commits may take: it helps, and nothing waits on it.
const historyLimit = 60 * time.Second

// History fetches what leads up to the commits from req's upstream: commits and
// folders, while files come as they are asked for where upstream can do that.
// Where it can't be had for whatever reason the error is ErrNoHistory, but for
// that of ctx.
func (s *Store) History(ctx context.Context, req Request, commits ...string) (History, error) {
	if !slices.Contains(req.kinds(), FromGit) {
		return History{}, fmt.Errorf("%w: git is not among the kinds of source", ErrNoHistory)
	}
	if slices.Contains(commits, "") {
		return History{}, fmt.Errorf("%w: a source does not tell its commit", ErrNoHistory)
	}
	h := History{partial{location: req.File.Location(req.Component), filter: "blob:none"}}
	specs := []string{}
	for _, commit := range commits { // by name, so that the next fetch can build on them
		specs = append(specs, "+"+commit+":refs/payload/commit/"+commit)
	}
	holds := func() bool { return h.of.holds(ctx, commits) }
	err := h.of.fetch(ctx, s, historyKind, req.Progress, req.tell, holds, specs...)
	if err == nil && !holds() {
		err = fmt.Errorf("%s does not give %s", h.of.location, strings.Join(commits, " and "))
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNoHistory, err)
	}
	return h, err
}

// KeptHistory is upstream's history where it was fetched before, up to the
// commits; ok is false where it was not. Nobody is asked.
func (s *Store) KeptHistory(ctx context.Context, req Request, commits ...string) (h History, ok bool) {
	dir := filepath.Join(s.dir, historyKind, digest(req.File.Location(req.Component)))
	if _, err := os.Stat(filepath.Join(dir, "info", "attributes")); err != nil || slices.Contains(commits, "") {
		return h, false
	}
	h = HistoryIn(git.Repo{Dir: dir})
	return h, h.of.holds(ctx, commits)
}

// HistoryIn is the history that a repository holds as it is.
func HistoryIn(repo git.Repo) History { return History{partial{repo: repo}} }

// partial is a repository of upstream's commits in the store, without most of
// what they hold.
type partial struct {
	repo     git.Repo
	location string // empty where nobody is to be asked for what is lacking
	filter   string // what is left out, as git has it
}

// fetch opens the repository in the store's folder kind, and fills it unless
// it holds what is wanted.
func (p *partial) fetch(ctx context.Context, s *Store, kind string, progress io.Writer, tell func(string, ...any), holds func() bool, specs ...string) error {
	fail := func(err error) error {
		return fmt.Errorf("fetching the commits of %s: %w", p.location, err)
	}
	dir := filepath.Join(s.dir, kind, digest(p.location))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fail(err)
	}
	lock, err := acquire(ctx, dir+".lock", false, func() { tell("waiting for another process that fetches the commits of %s", p.location) })
	if err != nil {
		return fail(err)
	}
	defer release(lock)
	fetching := dir + ".fetching"
	if _, err := os.Stat(fetching); err == nil {
		if err := clearLeft(dir); err != nil {
			return fail(err)
		}
	}
	if err := os.WriteFile(fetching, nil, 0o644); err != nil {
		return fail(err)
	}
	if p.repo, err = git.Open(ctx, dir); err == nil && !holds() {
		err = p.fill(ctx, progress, tell, specs)
		exit, failed := errors.AsType[*run.ExitError](err)
		if failed && run.TellsOfDamage(exit.Stderr) { // upstream's, or what lies here?
			if bad, _ := verifyCommits(ctx, p.repo); bad != nil {
				err = fmt.Errorf("%w: %w", run.ErrDamaged, err)
			}
		}
	}
	if ctx.Err() != nil { // git may have been killed, and the mark tells the next one
		return fail(context.Cause(ctx))
	}
	if err := errors.Join(err, os.Remove(fetching)); err != nil {
		return fail(err)
	}
	return nil
}

// clearLeft deletes what a killed git leaves in a repository: its lock files,
// which stop every other, and packs that were begun.
func clearLeft(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.HasSuffix(path, ".lock") || strings.HasPrefix(entry.Name(), "tmp_") {
			return os.Remove(path)
		}
		return nil
	})
}

func (p *partial) fill(ctx context.Context, progress io.Writer, tell func(string, ...any), specs []string) error {
	up := upstream{location: p.location}
	if err := up.reachable(ctx); err != nil {
		return err
	}
	tell("fetching the commits of %s, without files", p.location)
	// A server that can't leave files out sends them too.
	alive, limited, done := stall(ctx, progress)
	defer done()
	_, err := p.repo.Do(limited, git.Call{
		Args: append(p.args(
			"-c", "protocol.version=2", "fetch", "--progress", "--filter="+p.filter, "--no-tags", "--", "origin"), specs...),
		Stderr: alive,
	})
	return err
}

// args tells git with each command where to get what is lacking: the
// repository's own configuration is put back whenever it's opened.
func (p *partial) args(args ...string) []string {
	if p.location == "" {
		return args
	}
	return append([]string{
		"-c", "remote.origin.url=" + p.location, "-c", "remote.origin.promisor=true",
		"-c", "remote.origin.partialclonefilter=" + p.filter,
	}, args...)
}

func (p *partial) holds(ctx context.Context, commits []string) bool {
	for _, commit := range commits {
		if _, err := p.repo.Text(ctx, "-c", "remote.origin.promisor=false", "cat-file", "-e", commit+"^{commit}"); err != nil {
			return false
		}
	}
	return true
}

// log lists commits as git log does.
func (p *partial) log(ctx context.Context, args ...string) ([]Commit, error) {
	out, err := p.repo.Text(ctx, p.args(append([]string{"log", "--format=%H %s"}, args...)...)...)
	if err != nil {
		return nil, fmt.Errorf("reading upstream's history: %w", err)
	}
	list := []Commit{}
	for line := range strings.Lines(out) {
		if id, subject, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			list = append(list, Commit{ID: id, Subject: subject})
		}
	}
	return list, nil
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
	_, err := h.of.repo.Text(ctx, "merge-base", "--is-ancestor", commit, in)
	return err == nil
}

// Changes is git's log of what the commits between two others did to files,
// newest first: a NUL and the commit's id on a line, then its diff without
// context.
func (h History) Changes(ctx context.Context, from, to string, paths []string) ([]byte, error) {
	asking, cancel := context.WithTimeoutCause(ctx, historyLimit, fmt.Errorf("no answer within %s", historyLimit))
	defer cancel()
	args := h.of.args("log", "--format=%x00%H", "-p", "-U0", "--no-renames", "--no-color", from+".."+to, "--")
	out, err := h.of.repo.Do(asking, git.Call{Args: append(args, paths...)})
	if err != nil {
		return nil, fmt.Errorf("reading upstream's history: %w", err)
	}
	return out, nil
}

func (h History) log(ctx context.Context, args ...string) ([]Commit, error) {
	asking, cancel := context.WithTimeoutCause(ctx, historyLimit, fmt.Errorf("no answer within %s", historyLimit))
	defer cancel()
	return h.of.log(asking, append([]string{"--no-merges"}, args...)...)
}
