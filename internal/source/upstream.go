package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/pin"
	"payload/internal/run"
)

// stallLimit is how long a fetch may be silent. There's no limit on the whole
// of it: a slow line that moves is fine.
const stallLimit = 60 * time.Second

// upstream is what the component's own repository says about the ref.
type upstream struct {
	location string
	asked    bool
	answer   pin.Answer
	err      error // why there's no answer
}

// ask fills in the answer, once. The error returned is one that ends the
// search; an upstream that doesn't answer is kept in err.
func (u *upstream) ask(ctx context.Context, req Request) error {
	if u.asked {
		return nil
	}
	timeout, err := pin.Timeout()
	if err != nil {
		return err
	}
	u.asked = true
	u.answer, u.err = pin.Ask(ctx, u.location, req.Ref, timeout)
	if ctx.Err() != nil {
		return u.err
	}
	if u.answer.Branch {
		req.tell("%s is a branch of upstream, so it moves; now at %s", req.Ref, u.answer.Commit)
	}
	return nil
}

// contradicts says whether a mirror claims another commit than upstream's.
func (u *upstream) contradicts(m config.Mirror) bool {
	return u.answer.Commit != "" && m.Commit != "" && m.Commit != u.answer.Commit
}

// Refs of the private repository.
func commitRef(commit string) string        { return "refs/payload/commit/" + commit }
func pristineRef(key string) string         { return "refs/payload/pristine/" + key }
func answerRef(location, ref string) string { return "refs/payload/answer/" + digest(location, ref) }
func snapshotRef(ref string) string         { return "refs/payload/snapshot/" + ref }

// fromGit reads the ref from upstream.
func (s *Store) fromGit(ctx context.Context, req Request, up *upstream) (found, error) {
	if err := req.comparable("git"); err != nil {
		return found{}, err
	}
	if err := up.ask(ctx, req); err != nil {
		return found{}, err
	}
	if up.err != nil {
		return found{}, up.err
	}
	commit := up.answer.Commit
	if e := req.Entry; e != nil && e.Commit != "" && commit != e.Commit {
		_, judged := e.Source("git")
		switch {
		case up.answer.Branch:
			commit = e.Commit // a branch moves; the lock says where it was
		case judged:
			return found{}, &pin.MovedTagError{Component: req.Component.Name, Ref: req.Ref, Locked: e.Commit, Now: commit}
		default:
			return found{}, fmt.Errorf("upstream's commit is %s, and %s holds %s, which came from a mirror", commit, pin.LockName, e.Commit)
		}
	}
	tree, ok, err := s.tree(ctx, pristineRef(commit))
	if err != nil {
		return found{}, err
	}
	if !ok {
		if tree, err = s.importCommit(ctx, req, up, commit); err != nil {
			return found{}, err
		}
	}
	if !config.IsObjectID(req.Ref) && commit == up.answer.Commit {
		if err := s.setRef(ctx, answerRef(up.location, req.Ref), commit); err != nil {
			return found{}, err
		}
	}
	return req.fromLock(Pristine{Tree: tree, Commit: commit, Build: pin.BuildNumber(req.Ref), From: "git"})
}

// importCommit fetches a commit and records its tree as a pristine one.
func (s *Store) importCommit(ctx context.Context, req Request, up *upstream, commit string) (string, error) {
	started := time.Now()
	req.tell("fetching commit %s from %s", commit, up.location)
	if err := s.fetch(ctx, req, up, commit); err != nil {
		return "", fmt.Errorf("fetching %s from %s: %w", commit, up.location, err)
	}
	tree, ok, err := s.tree(ctx, commitRef(commit))
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("fetching %s from %s: it did not come", commit, up.location)
	}
	modules, err := s.admit(ctx, tree, "git")
	if err != nil {
		return "", err
	}
	if len(modules) > 0 {
		req.tell("left out, since they are other repositories: %s", strings.Join(modules, ", "))
		if tree, err = s.without(ctx, tree, modules); err != nil {
			return "", err
		}
	}
	if err := s.setRef(ctx, pristineRef(commit), tree); err != nil {
		return "", err
	}
	req.tell("fetched in %.1fs", time.Since(started).Seconds())
	return tree, nil
}

// fetch brings one commit, without history, under commitRef.
func (s *Store) fetch(ctx context.Context, req Request, up *upstream, commit string) error {
	lock, err := s.lockGit(ctx, func() { req.tell("waiting for another process that fetches") })
	if err != nil {
		return err
	}
	defer release(lock)
	// git's own locks of a killed process; ours says that nobody holds them.
	for _, name := range []string{"shallow.lock", commitRef(commit) + ".lock"} {
		if err := os.Remove(filepath.Join(s.repo.Dir, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if config.IsObjectID(req.Ref) {
		// Nothing was asked yet: a fetch has no limit on its first answer.
		if err := up.reachable(ctx); err != nil {
			return err
		}
	}
	err = s.fetchInto(ctx, req, up.location, commit, commit)
	if errors.Is(err, run.ErrNoRef) && up.answer.Name != "" {
		// Some servers give out names only.
		err = s.fetchInto(ctx, req, up.location, up.answer.Name, commit)
	}
	if err != nil {
		return err
	}
	got, err := s.repo.Text(ctx, "rev-parse", "-q", "--verify", commitRef(commit)+"^{commit}")
	if err != nil {
		return err
	}
	if got != commit {
		if _, err := s.repo.Text(ctx, "update-ref", "-d", commitRef(commit)); err != nil {
			return err
		}
		return fmt.Errorf("%s moved to %s meanwhile", up.answer.Name, got)
	}
	return nil
}

// reachable fails quickly where upstream doesn't answer at all.
func (u *upstream) reachable(ctx context.Context) error {
	timeout, err := pin.Timeout()
	if err != nil {
		return err
	}
	late := fmt.Errorf("no answer within %s", timeout)
	asking, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	if _, err := git.LsRemote(asking, u.location, "HEAD"); err != nil {
		return &pin.UnreachableError{Location: u.location, Err: err}
	}
	return nil
}

// fetchInto fetches what, a name or an id, and stops when it stalls.
func (s *Store) fetchInto(ctx context.Context, req Request, location, what, commit string) error {
	alive, ctx, done := stall(ctx, req.Progress)
	defer done()
	_, err := s.repo.Do(ctx, git.Call{
		Args: []string{
			"-c", "protocol.version=2", "fetch", "--progress", "--depth=1", "--no-tags",
			"--", location, "+" + what + ":" + commitRef(commit),
		},
		Stderr: alive,
	})
	return err
}

// stall ends a context when nothing is written to alive for too long.
func stall(ctx context.Context, next io.Writer) (alive io.Writer, limited context.Context, done func()) {
	limited, cancel := context.WithCancelCause(ctx)
	stalled := fmt.Errorf("upstream fell silent for %s", stallLimit)
	p := &pulse{timer: time.AfterFunc(stallLimit, func() { cancel(stalled) }), next: next}
	return p, limited, func() {
		p.timer.Stop()
		cancel(nil)
	}
}

// pulse passes output on and keeps a timer from firing while there is some.
type pulse struct {
	timer *time.Timer
	next  io.Writer
}

func (p *pulse) Write(b []byte) (int, error) {
	p.timer.Reset(stallLimit)
	if p.next == nil {
		return len(b), nil
	}
	return p.next.Write(b)
}
