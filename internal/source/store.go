package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"payload/internal/atomicfile"
	"payload/internal/git"
	"payload/internal/run"
)

// Store is a folder of checked trees and the private repository behind them.
// Several processes may use one at once.
type Store struct {
	dir  string
	repo git.Repo
}

// DefaultDir is $PAYLOAD_CACHE, or payload in the user's cache folder.
func DefaultDir() (string, error) {
	if dir := os.Getenv("PAYLOAD_CACHE"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &StoreError{Doing: "finding the cache folder", Err: err}
	}
	return filepath.Join(cache, "payload"), nil
}

// Open makes dir a store if it isn't one yet.
func Open(ctx context.Context, dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, opening(err)
	}
	s := &Store{dir: abs, repo: git.Repo{Dir: filepath.Join(abs, "git")}}
	if s.complete() && s.repo.Settled() {
		s.unlockGit()
		return s, nil
	}
	for _, d := range []string{s.trees(), s.work()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, opening(err)
		}
	}
	lock, err := acquire(ctx, s.repo.Dir+".lock", false, nil)
	if err != nil {
		return nil, opening(err)
	}
	defer release(lock)
	if !s.complete() { // what a killed process left can hold lock files of git
		if err := removeAll(s.repo.Dir); err != nil {
			return nil, opening(err)
		}
	}
	if _, err := git.Open(ctx, s.repo.Dir); err != nil {
		return nil, opening(s.Full(err))
	}
	return s, nil
}

// Full adds to a failure of something done in the store that its disk is full.
func (s *Store) Full(err error) error {
	if errors.Is(err, run.ErrNoSpace) {
		return err
	}
	return atomicfile.Full(err, s.work())
}

func opening(err error) error { return &StoreError{Doing: "opening the store", Err: err} }

// unlockGit deletes the lock of git's packed refs that a killed git left, for
// which every later write would wait a second in vain. git holds it for moments.
func (s *Store) unlockGit() {
	path := filepath.Join(s.repo.Dir, "packed-refs.lock")
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
		_ = os.Remove(path) // git says so where it can't be
	}
}

// complete says whether all of the store's folders are there. The repository's
// attributes are written last.
func (s *Store) complete() bool {
	for _, path := range []string{filepath.Join(s.repo.Dir, "info", "attributes"), s.trees(), s.work()} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// Dir is the store's folder.
func (s *Store) Dir() string { return s.dir }

// Repo is the private repository that holds the objects of every source.
func (s *Store) Repo() git.Repo { return s.repo }

func (s *Store) trees() string { return filepath.Join(s.dir, "trees") }
func (s *Store) work() string  { return filepath.Join(s.dir, "work") }

// acquire takes a file lock, exclusive or shared. Lock files are never
// deleted: another process may be waiting on the very file.
func acquire(ctx context.Context, path string, shared bool, waiting func()) (*flock.Flock, error) {
	lock := flock.New(path)
	try, wait := lock.TryLock, lock.TryLockContext
	if shared {
		try, wait = lock.TryRLock, lock.TryRLockContext
	}
	ok, err := try()
	if err == nil && !ok {
		if waiting != nil {
			waiting()
		}
		_, err = wait(ctx, 50*time.Millisecond)
	}
	if err != nil {
		_ = lock.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &StoreError{Doing: "locking " + path, Err: err}
	}
	return lock, nil
}

func release(lock *flock.Flock) {
	_ = lock.Close() // the lock goes with the file handle whatever close says
}

// tree is the id of the tree that a ref of the private repository leads to,
// where all of it is there.
func (s *Store) tree(ctx context.Context, ref string) (string, bool, error) {
	id, err := s.repo.Text(ctx, "rev-parse", "-q", "--verify", ref+"^{tree}")
	var exit *run.ExitError
	if errors.As(err, &exit) && exit.Code == 1 {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("reading %s of the store: %w", ref, err)
	}
	whole, err := s.repo.Whole(ctx, id)
	if err != nil {
		return "", false, fmt.Errorf("reading %s of the store: %w", ref, err)
	}
	return id, whole, nil
}

// setRef makes a ref of the private repository name an object.
func (s *Store) setRef(ctx context.Context, ref, object string) error {
	lock, err := s.lockGit(ctx, nil)
	if err != nil {
		return fmt.Errorf("recording %s: %w", ref, err)
	}
	defer release(lock)
	// git's own lock of a killed process; ours says that nobody else holds it.
	if err := os.Remove(filepath.Join(s.repo.Dir, filepath.FromSlash(ref)+".lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recording %s: %w", ref, err)
	}
	if _, err := s.repo.Text(ctx, "update-ref", ref, object); err != nil {
		return fmt.Errorf("recording %s: %w", ref, err)
	}
	return nil
}

// lockGit is held while refs or git's list of shallow commits change.
func (s *Store) lockGit(ctx context.Context, waiting func()) (lock *flock.Flock, err error) {
	return acquire(ctx, s.repo.Dir+".lock", false, waiting)
}

// digest is the SHA-256 over texts, none of which can run into the next.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s\n", len(t), t)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// removeAll deletes a folder even where its parts are read-only.
func removeAll(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o755) // before its content is read
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// temporary makes a folder base.*.tmp for the holder of base's exclusive lock.
// The name is new each time: a git or pip that outlived its killed parent may
// still be writing to the folder that it was given.
func temporary(base string) (string, error) {
	stale, err := filepath.Glob(base + ".*.tmp")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	for _, path := range stale {
		_ = removeAll(path) // what can't be deleted yet goes another time
	}
	dir, err := os.MkdirTemp(filepath.Dir(base), filepath.Base(base)+".*.tmp")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	return dir, nil
}
