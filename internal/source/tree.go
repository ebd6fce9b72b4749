package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"payload/internal/atomicfile"
	"payload/internal/git"
	"payload/internal/pin"
)

// Tree is a component's files on disk, read-only and held until Close.
type Tree struct {
	Path      string // the folder
	Component string
	Ref       string
	Commit    string // empty where the source does not say
	Build     int    // upstream's build number; 0 where it has none
	Pristine  string // git tree id before the series
	Patched   string // git tree id of what lies in Path
	From      string // "git", a mirror's ID, or "override:DIR"
	Stored    bool   // nothing was read from From this time
	Unpatched bool   // Path is the override itself, without the series

	store *Store
	index string
	lock  *flock.Flock // nil for an override in place
}

// record is what lies beside a stored tree.
type record struct {
	Component string      `json:"component"`
	Ref       string      `json:"ref"`
	Commit    string      `json:"commit,omitempty"`
	From      string      `json:"from"`
	Pristine  string      `json:"pristine"`
	Patched   string      `json:"patched"`
	Patches   []pin.Patch `json:"patches,omitempty"`
}

// treeKey names the tree that a pristine one and the series give.
func treeKey(pristine string, req Request) string {
	parts := []string{"tree/v1", pristine}
	if req.Apply != nil {
		for _, p := range req.Patches {
			parts = append(parts, p.SHA256)
		}
		if req.MadeFor != "" {
			parts = append(parts, "carried from "+req.MadeFor)
		}
	}
	return digest(parts...)
}

func (s *Store) laidOut(key string) bool {
	_, err := os.Stat(filepath.Join(s.trees(), key))
	return err == nil
}

// materialise gives the tree of f, laying it out first where it isn't there.
func (s *Store) materialise(ctx context.Context, req Request, f found) (*Tree, error) {
	key := treeKey(f.Tree, req)
	place := filepath.Join(s.trees(), key)
	waiting := func() { req.tell("waiting for another process that uses or makes the tree") }
	for {
		if s.laidOut(key) && !req.Repair {
			lock, err := acquire(ctx, place+".lock", true, waiting)
			if err != nil {
				return nil, err
			}
			if s.laidOut(key) { // still, now that nobody can take it away
				t, err := s.hold(ctx, req, f, place, lock)
				if err != nil {
					release(lock)
				}
				return t, err
			}
			release(lock)
		}
		lock, err := acquire(ctx, place+".lock", false, waiting)
		if err != nil {
			return nil, err
		}
		if req.Repair {
			req.tell("deleting the stored tree to make it again")
			err = s.discard(place)
			req.Repair = false
		}
		if err == nil && !s.laidOut(key) {
			err = s.build(ctx, req, f, place)
		}
		release(lock)
		if err != nil {
			return nil, err
		}
		// Once more, with the lock that users share.
	}
}

// hold checks a tree that is there and hands it out.
func (s *Store) hold(ctx context.Context, req Request, f found, place string, lock *flock.Flock) (*Tree, error) {
	t := &Tree{
		Path: place, Component: req.Component.Name, Ref: req.Ref, Commit: f.Commit, Build: f.Build,
		Pristine: f.Tree, From: f.From, Stored: f.Stored, store: s, index: place + ".index", lock: lock,
	}
	r, err := readRecord(place)
	if err != nil || r.Pristine != f.Tree {
		return nil, lostRecord(t.Component, t.Ref, place)
	}
	if f.Patched != "" && f.Patched != r.Patched {
		return nil, &MismatchError{Component: t.Component, Ref: t.Ref, From: f.From, What: "patched", Want: f.Patched, Got: r.Patched}
	}
	t.Patched = r.Patched
	if err := t.Check(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(place+".lock", now, now) // when it was last used; another user's store can't be told
	how := "from " + f.From
	if f.Stored {
		how = "from the store (read from " + f.From + ")"
	}
	req.tell("using %s, tree %.12s", how, t.Patched)
	return t, nil
}

// build lays out a tree beside its place, under the exclusive lock.
func (s *Store) build(ctx context.Context, req Request, f found, place string) (err error) {
	started := time.Now()
	patched := f.Tree
	if req.Apply != nil {
		if patched, err = req.Apply(ctx, s.repo, f.Tree); err != nil {
			return err
		}
	}
	if f.Patched != "" && f.Patched != patched {
		return &MismatchError{Component: req.Component.Name, Ref: req.Ref, From: f.From, What: "patched", Want: f.Patched, Got: patched}
	}
	if _, err := s.admit(ctx, patched, "the patched tree"); err != nil {
		return err
	}
	s.sweep(false)
	tmp, err := temporary(place)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = removeAll(tmp) // the next sweep gets what stays
		}
	}()
	files, index := filepath.Join(tmp, "files"), filepath.Join(tmp, "index")
	if err := os.Mkdir(files, 0o755); err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	if err := s.repo.Checkout(ctx, patched, files, index); err != nil {
		return err
	}
	if err := readOnly(files); err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	// A fresh index, so that every byte is read back, and with the stat data
	// that the files have now that they are read-only.
	if err := os.Remove(index); err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	got, err := s.repo.WriteDir(ctx, files, index)
	if err != nil {
		return err
	}
	if got != patched {
		names, err := s.differing(ctx, patched, got)
		if err != nil {
			return err
		}
		return &DamagedError{Component: req.Component.Name, Ref: req.Ref, Path: files, Files: names}
	}
	about, err := json.MarshalIndent(record{
		Component: req.Component.Name, Ref: req.Ref, Commit: f.Commit, From: f.From,
		Pristine: f.Tree, Patched: patched, Patches: req.Patches,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	if err := atomicfile.Write(place+".json", append(about, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Rename(index, place+".index"); err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	// Last: a tree that is in its place is complete.
	if err := os.Rename(files, place); err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	if err := os.Chmod(place, 0o555); err != nil {
		return fmt.Errorf("laying out tree %s: %w", patched, err)
	}
	req.tell("tree %.12s laid out in %.1fs", patched, time.Since(started).Seconds())
	return os.Remove(tmp)
}

// readOnly takes the write permission from everything below dir. dir itself
// keeps it: without it a folder can't be moved to another parent.
func readOnly(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir || entry.Type() == fs.ModeSymlink {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode().Perm()&^0o222)
	})
}

// discard deletes a stored tree and what lies beside it, but for the lock.
func (s *Store) discard(place string) error {
	// Out of its place first: a tree in its place counts as complete.
	tmp, err := temporary(place)
	if err != nil {
		return err
	}
	if err := os.Chmod(place, 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting %s: %w", place, err)
	}
	if err := os.Rename(place, filepath.Join(tmp, "files")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting %s: %w", place, err)
	}
	for _, path := range []string{place + ".json", place + ".index"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deleting %s: %w", place, err)
		}
	}
	return removeAll(tmp)
}

// Check compares the files with what was stored and gives a *DamagedError
// where they differ: for before use, and again after compiling, since a
// superuser writes through read-only.
func (t *Tree) Check(ctx context.Context) error {
	names, err := t.store.changed(ctx, t.Path, t.index, t.Patched)
	if err != nil {
		return fmt.Errorf("checking %s %s: %w", t.Component, t.Ref, err)
	}
	if t.Unpatched {
		// In somebody's own folder these are no part of the source.
		names = slices.DeleteFunc(names, func(name string) bool {
			info, err := os.Lstat(filepath.Join(t.Path, filepath.FromSlash(name)))
			return strings.EqualFold(path.Base(name), ".git") || err == nil && info.IsDir()
		})
	}
	if len(names) > 0 {
		return &DamagedError{Component: t.Component, Ref: t.Ref, Path: t.Path, Files: names, Override: t.Unpatched}
	}
	return nil
}

// Close lets others replace the tree.
func (t *Tree) Close() error {
	if t.lock == nil {
		return nil
	}
	if err := t.lock.Close(); err != nil {
		return fmt.Errorf("letting go of %s: %w", t.Path, err)
	}
	return nil
}

// changed lists what differs between a folder and a tree. Stat data settles it
// when all is well. Where it doesn't (a cache moved to another disk has other
// times and inodes everywhere), every byte is read again.
func (s *Store) changed(ctx context.Context, dir, index, tree string) ([]string, error) {
	quick, err := s.repo.Changed(ctx, tree, dir, index)
	if err == nil && len(quick) == 0 {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	list, err := git.Walk(dir)
	if err != nil {
		return nil, err
	}
	extra := slices.Concat(list.Strays, list.Empty, list.Special)
	if len(list.Special) > 0 {
		return extra, nil // can't be hashed
	}
	fresh, err := os.CreateTemp(filepath.Dir(index), filepath.Base(index)+".*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(fresh.Name()) }() // renamed by then, when all went well
	if err := fresh.Close(); err != nil {
		return nil, err
	}
	if err := os.Remove(fresh.Name()); err != nil {
		return nil, err
	}
	got, err := s.repo.WriteDir(ctx, dir, fresh.Name())
	if err != nil {
		return nil, err
	}
	if got != tree {
		names, err := s.differing(ctx, tree, got)
		if err != nil {
			// The objects are gone too; the index still knew the names.
			names = quick
		}
		// A folder is empty because its files are gone: they are named already.
		extra = slices.DeleteFunc(extra, func(folder string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, folder+"/") })
		})
		if extra = append(extra, names...); len(extra) == 0 {
			extra = []string{"tree " + got + " in place of " + tree}
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		return slices.Compact(extra), nil
	}
	return nil, os.Rename(fresh.Name(), index)
}

// differing names the files that are not the same in two trees.
func (s *Store) differing(ctx context.Context, a, b string) ([]string, error) {
	out, err := s.repo.Do(ctx, git.Call{Args: []string{"diff-tree", "-r", "-z", "--name-only", "--no-renames", a, b}})
	if err != nil {
		return nil, fmt.Errorf("comparing trees %s and %s: %w", a, b, err)
	}
	return git.SplitZ(out), nil
}
