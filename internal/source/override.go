package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// override hashes the user's folder into the private repository and returns
// where it is. The folder itself isn't changed.
func (s *Store) override(ctx context.Context, req Request) (found, string, error) {
	dir, err := filepath.Abs(req.Override)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return found{}, "", fmt.Errorf("reading the override of %s: %w", req.Component.Name, err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return found{}, "", fmt.Errorf("reading the override of %s: %s is not a folder", req.Component.Name, dir)
	}
	req.tell("reading the override %s", dir)
	tree, err := s.hashOverride(ctx, req, dir)
	if err != nil {
		return found{}, "", err
	}
	from := "override:" + dir
	if _, err := s.admit(ctx, tree, from); err != nil {
		return found{}, "", err
	}
	f := found{Pristine: Pristine{Tree: tree, From: from}}
	// Commit and build number are the pinned ones only where the content is.
	if req.Entry != nil {
		for _, row := range req.Entry.Sources {
			if row.Pristine == tree {
				f.Commit, f.Build = req.Entry.Commit, req.Entry.Build
				f.Patched = req.lockedPatched(row)
			}
		}
	}
	return f, dir, nil
}

// hashOverride keeps the index, so that only what changed is read next time.
func (s *Store) hashOverride(ctx context.Context, req Request, dir string) (string, error) {
	base := s.overrideBase(dir)
	lock, err := acquire(ctx, base+".lock", false, func() { req.tell("waiting for another process that reads %s", dir) })
	if err != nil {
		return "", err
	}
	defer release(lock)
	// What a killed git left; the lock says that nobody else is at it.
	if err := removeAll(base + ".index.lock"); err != nil {
		return "", err
	}
	return s.repo.WriteDir(ctx, dir, base+".index")
}

func (s *Store) overrideBase(dir string) string {
	return filepath.Join(s.work(), "override-"+digest(dir))
}

// inPlace hands out the override itself.
func (s *Store) inPlace(req Request, f found, dir string) *Tree {
	req.tell("using %s as it is, without the patches", dir)
	return &Tree{
		Path: dir, Component: req.Component.Name, Ref: req.Ref, Commit: f.Commit, Build: f.Build,
		Pristine: f.Tree, Patched: f.Tree, From: f.From, Unpatched: true,
		store: s, index: s.overrideBase(dir) + ".index",
	}
}
