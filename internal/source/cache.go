package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"payload/internal/atomicfile"
	"payload/internal/git"
	"payload/internal/run"
)

// TreesOf lists the source trees that a build folder was configured with, as
// paths. Build folders belong to another package, so callers pass it in.
type TreesOf func(buildDir string) []string

// Size is what the store takes, in bytes.
type Size struct {
	Git   int64 // the private repository
	Other int64 // temporaries, downloads, locks, indexes of overrides
	Trees []Stored
}

// Total is all of it.
func (s Size) Total() int64 {
	total := s.Git + s.Other
	for _, t := range s.Trees {
		total += t.Bytes
	}
	return total
}

// Stored is a tree of the store as a list shows it.
type Stored struct {
	Path      string // the folder
	Component string // empty, as the next ones, where the tree's record is lost
	Ref       string
	Commit    string
	From      string
	Pristine  string // git tree ids
	Patched   string
	Patches   int
	Bytes     int64 // files, index and record
	Used      time.Time
	Builds    []string // build folders that use it
}

// Name is how a message calls the tree.
func (t Stored) Name() string {
	if t.Component == "" {
		return "the tree " + filepath.Base(t.Path)
	}
	return t.Component + " " + t.Ref
}

// Size measures the store.
func (s *Store) Size(treesOf TreesOf) (Size, error) {
	users, _, err := s.users(treesOf)
	if err != nil {
		return Size{}, err
	}
	trees, err := s.stock(users)
	if err != nil {
		return Size{}, err
	}
	commits, err := s.commitRepos()
	if err != nil {
		return Size{}, err
	}
	size := Size{Git: sizeOf(s.repo.Dir), Trees: trees}
	for _, repo := range commits {
		size.Git += sizeOf(repo.Dir)
	}
	size.Other = sizeOf(s.dir) - size.Total()
	return size, nil
}

// stock lists the trees that are laid out.
func (s *Store) stock(users map[string][]string) ([]Stored, error) {
	entries, err := os.ReadDir(s.trees())
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	var stock []Stored
	for _, entry := range entries {
		key := entry.Name()
		if !entry.IsDir() || strings.Contains(key, ".") {
			continue
		}
		t := Stored{Path: filepath.Join(s.trees(), key), Builds: users[key]}
		for _, part := range []string{t.Path, t.Path + ".json", t.Path + ".index"} {
			t.Bytes += sizeOf(part)
		}
		if info, err := os.Stat(t.Path + ".lock"); err == nil {
			t.Used = info.ModTime() // see hold
		}
		if r, err := readRecord(t.Path); err == nil {
			t.Component, t.Ref, t.Commit, t.From = r.Component, r.Ref, r.Commit, r.From
			t.Pristine, t.Patched, t.Patches = r.Pristine, r.Patched, len(r.Patches)
		}
		stock = append(stock, t)
	}
	slices.SortStableFunc(stock, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Ref, b.Ref))
	})
	return stock, nil
}

func readRecord(place string) (record, error) {
	var r record
	data, err := os.ReadFile(place + ".json")
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// sizeOf adds up the files at and below path. What goes away meanwhile counts
// for nothing.
func sizeOf(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// RecordBuild notes that a build folder uses trees of this store, which spares
// them from Prune for as long as the folder names them. To be called while the
// trees are held and after the folder names them. A tree that it is about to
// name is given as soon (else empty): it is spared for a few minutes already.
// waiting, where not nil, is called when a prune has to end first.
func (s *Store) RecordBuild(ctx context.Context, buildDir, soon string, waiting func()) error {
	dir, err := filepath.Abs(buildDir)
	if err != nil {
		return fmt.Errorf("recording the build folder: %w", err)
	}
	lock, err := s.lockBuilds(ctx, waiting)
	if err != nil {
		return fmt.Errorf("recording the build folder %s: %w", dir, err)
	}
	defer release(lock)
	if err := os.MkdirAll(s.builds(), 0o755); err != nil {
		return fmt.Errorf("recording the build folder %s: %w", dir, err)
	}
	text := dir + "\n"
	if soon != "" {
		text += filepath.Base(soon) + "\n"
	}
	return atomicfile.Write(filepath.Join(s.builds(), digest(dir)), []byte(text), 0o644)
}

// soonTime is how long a build folder may take to name the tree that it asked
// for: the rest of one configure step up to its link.
const soonTime = 10 * time.Minute

func (s *Store) builds() string { return filepath.Join(s.dir, "builds") }

// lockBuilds is held while a build folder is recorded, and by Prune from
// reading the records to deleting the last tree.
func (s *Store) lockBuilds(ctx context.Context, waiting func()) (*flock.Flock, error) {
	return acquire(ctx, s.builds()+".lock", false, waiting)
}

// users reads which build folders use which trees, by key. A tree's key says
// what it holds, so it does where a store was moved or is reached by a link.
// stale are the records of folders that name no tree any more.
func (s *Store) users(treesOf TreesOf) (users map[string][]string, stale []string, err error) {
	entries, err := os.ReadDir(s.builds())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading which builds use the store: %w", err)
	}
	users = map[string][]string{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") { // being written
			continue
		}
		path := filepath.Join(s.builds(), entry.Name())
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // pruned meanwhile
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading which builds use the store: %w", err)
		}
		dir, soon, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), "\n")
		trees := treesOf(dir)
		_, gone := os.Stat(dir)
		if info, err := entry.Info(); soon != "" && gone == nil && err == nil && time.Since(info.ModTime()) < soonTime {
			trees = append(trees, soon)
		}
		if len(trees) == 0 {
			stale = append(stale, path)
		}
		for _, tree := range trees {
			if key := filepath.Base(tree); !slices.Contains(users[key], dir) {
				users[key] = append(users[key], dir)
			}
		}
	}
	return users, stale, nil
}

// fsckLimit bounds the check of one repository, whose size has none.
const fsckLimit = 10 * time.Minute

// Verify checks every stored tree, the private repository and those of
// upstream's commits. It returns how many trees it checked and what is damaged;
// for a repository, Files holds git's words and Component is empty.
func (s *Store) Verify(ctx context.Context) (checked int, damaged []*DamagedError, err error) {
	checked, damaged, err = s.verify(ctx)
	return checked, damaged, s.Full(err)
}

func (s *Store) verify(ctx context.Context) (checked int, damaged []*DamagedError, err error) {
	trees, err := s.stock(nil)
	if err != nil {
		return 0, nil, err
	}
	for _, t := range trees {
		lock, err := acquire(ctx, t.Path+".lock", true, nil)
		if err != nil {
			return checked, damaged, err
		}
		bad, err := s.verifyTree(ctx, t)
		release(lock)
		if err != nil {
			return checked, damaged, err
		}
		checked++
		if bad != nil {
			damaged = append(damaged, bad)
		}
	}
	bad, err := verifyRepo(ctx, s.repo)
	if bad != nil {
		damaged = append(damaged, bad)
	}
	if err != nil {
		return checked, damaged, err
	}
	repos, err := s.commitRepos()
	if err != nil {
		return checked, damaged, err
	}
	for _, repo := range repos {
		lock, err := acquire(ctx, repo.Dir+".lock", true, nil)
		if err != nil {
			return checked, damaged, err
		}
		bad, err := verifyCommits(ctx, repo)
		release(lock)
		if err != nil {
			return checked, damaged, err
		}
		if bad != nil {
			damaged = append(damaged, bad)
		}
	}
	return checked, damaged, nil
}

// verifyTree checks one tree, whose lock is held.
func (s *Store) verifyTree(ctx context.Context, t Stored) (*DamagedError, error) {
	if !s.laidOut(filepath.Base(t.Path)) {
		return nil, nil // pruned meanwhile
	}
	r, err := readRecord(t.Path)
	if err != nil {
		return lostRecord(t.Component, t.Ref, t.Path), nil
	}
	tree := Tree{Path: t.Path, Component: r.Component, Ref: r.Ref, Patched: r.Patched, store: s, index: t.Path + ".index"}
	err = tree.Check(ctx)
	if bad, ok := errors.AsType[*DamagedError](err); ok {
		return bad, nil
	}
	return nil, err
}

func lostRecord(component, ref, place string) *DamagedError {
	return &DamagedError{Component: component, Ref: ref, Path: place, Files: []string{"its record " + filepath.Base(place) + ".json"}}
}

// commitRepos are the repositories of upstream's commits.
func (s *Store) commitRepos() (repos []git.Repo, err error) {
	for _, kind := range []string{historyKind, lineageKind} {
		entries, err := os.ReadDir(filepath.Join(s.dir, kind))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
		for _, entry := range entries {
			if entry.IsDir() {
				repos = append(repos, git.Repo{Dir: filepath.Join(s.dir, kind, entry.Name())})
			}
		}
	}
	return repos, nil
}

// verifyCommits checks a repository of upstream's commits, whose lock is held.
func verifyCommits(ctx context.Context, repo git.Repo) (*DamagedError, error) {
	switch _, err := os.Stat(repo.Dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // pruned meanwhile
	case err != nil:
		return nil, fmt.Errorf("checking the git objects of the store: %w", err)
	}
	if _, err := git.Open(ctx, repo.Dir); err != nil { // as its next user would
		return nil, err
	}
	// What was left out when fetching is not missing.
	return verifyRepo(ctx, repo, "-c", "remote.origin.promisor=true")
}

// verifyRepo checks the objects of a repository; settings are git's, before the
// name of its command.
func verifyRepo(ctx context.Context, repo git.Repo, settings ...string) (*DamagedError, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fsckLimit, fmt.Errorf("git fsck took longer than %s", fsckLimit))
	defer cancel()
	out, err := repo.Do(ctx, git.Call{Args: append(settings, "fsck", "--no-dangling", "--no-progress")})
	exit, failed := errors.AsType[*run.ExitError](err)
	// git answers 128 and more where it could not look: out of memory, a file
	// that can't be read. That is no word about the objects, unless it says so.
	if failed && exit.Signal == "" && ctx.Err() == nil && (exit.Code < 128 || errors.Is(err, run.ErrDamaged)) {
		words := strings.Split(strings.TrimSpace(exit.Stderr+string(out)), "\n")
		words = slices.DeleteFunc(words, func(line string) bool { return strings.HasPrefix(line, "notice: ") })
		return &DamagedError{Path: repo.Dir, Files: words}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checking the git objects of the store: %w", err)
	}
	return nil, nil
}

// Find gives the tree with this patched id as it lies in the store, checked and
// held until Close. It fetches nothing and lays nothing out: ok is false where
// the tree isn't there.
func (s *Store) Find(ctx context.Context, component, patched string) (t *Tree, ok bool, err error) {
	trees, err := s.stock(nil)
	if err != nil {
		return nil, false, err
	}
	for _, have := range trees {
		if have.Component != component || have.Patched != patched {
			continue
		}
		lock, err := acquire(ctx, have.Path+".lock", true, nil)
		if err != nil {
			return nil, false, err
		}
		if bad, err := s.verifyTree(ctx, have); err != nil || bad != nil || !s.laidOut(filepath.Base(have.Path)) {
			release(lock)
			if err != nil {
				return nil, false, err
			}
			continue
		}
		return &Tree{
			Path: have.Path, Component: component, Ref: have.Ref, Commit: have.Commit, Pristine: have.Pristine, Patched: patched,
			From: have.From, Stored: true, store: s, index: have.Path + ".index", lock: lock,
		}, true, nil
	}
	return nil, false, nil
}
