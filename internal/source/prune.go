package source

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"payload/internal/folder"
	"payload/internal/git"
)

// PruneOptions say what goes. A tree that a process holds or, but for Damaged,
// that a build folder names stays in any case.
type PruneOptions struct {
	TreesOf TreesOf
	Older   time.Duration // only trees that weren't used for so long
	All     bool          // also the indexes that make reading an override quick
	Damaged bool          // damaged trees and repositories, and nothing else
	DryRun  bool          // only tell
}

// Pruned is what a Prune took away, or would have.
type Pruned struct {
	Trees   []Stored
	Spared  []Spared
	Files   []Removed // temporaries and whatever else is no tree
	Records int       // of build folders that use nothing any more
}

// Bytes is what was freed.
func (p Pruned) Bytes() (total int64) {
	for _, t := range p.Trees {
		total += t.Bytes
	}
	for _, f := range p.Files {
		total += f.Bytes
	}
	return total
}

// Spared is a tree that stayed.
type Spared struct {
	Stored
	Why string
}

// Removed is a file or folder of the store that was deleted.
type Removed struct {
	Path  string
	Bytes int64
}

// Prune deletes what nobody uses. Objects of the private repository stay: trees
// are laid out again from them, and processes that write objects hold no lock
// that would tell when collecting garbage is safe.
func (s *Store) Prune(ctx context.Context, opts PruneOptions) (Pruned, error) {
	p, err := s.prune(ctx, opts)
	return p, s.Full(err)
}

func (s *Store) prune(ctx context.Context, opts PruneOptions) (Pruned, error) {
	// What is damaged goes whoever uses it, so builds need not wait for that.
	if !opts.DryRun && !opts.Damaged {
		// No build can be recorded between the look and the deletion. One that is
		// still to be holds its trees.
		lock, err := s.lockBuilds(ctx, nil)
		if err != nil {
			return Pruned{}, err
		}
		defer release(lock)
	}
	users, stale, err := s.users(opts.TreesOf)
	if err != nil {
		return Pruned{}, err
	}
	trees, err := s.stock(users)
	if err != nil {
		return Pruned{}, err
	}
	var p Pruned
	if opts.Damaged { // first: trees are checked by means of it
		if err := s.pruneRepos(ctx, opts, &p); err != nil {
			return p, err
		}
	}
	for _, t := range trees {
		if err := ctx.Err(); err != nil {
			return p, context.Cause(ctx)
		}
		if err := s.pruneTree(ctx, t, opts, &p); err != nil {
			return p, err
		}
	}
	if opts.Damaged {
		return p, nil
	}
	p.Records = len(stale)
	p.Files = s.sweep(opts.DryRun)
	if opts.All {
		p.Files = append(p.Files, s.sweepOverrides(opts.DryRun)...)
	}
	if !opts.DryRun {
		for _, path := range stale {
			if err := os.Remove(path); err != nil {
				return p, fmt.Errorf("deleting the record of a build folder: %w", err)
			}
		}
	}
	return p, nil
}

// pruneTree deletes one tree unless there's a reason against it.
func (s *Store) pruneTree(ctx context.Context, t Stored, opts PruneOptions, p *Pruned) error {
	spare := func(why string) { p.Spared = append(p.Spared, Spared{Stored: t, Why: why}) }
	switch {
	case opts.Damaged: // of no use to the builds that name it
	case len(t.Builds) > 0:
		spare("used by " + strings.Join(t.Builds, ", "))
		return nil
	case opts.Older > 0 && time.Since(t.Used) < opts.Older:
		spare("last used " + t.Used.Format(time.DateOnly))
		return nil
	}
	lock := flock.New(t.Path + ".lock")
	defer release(lock)
	ok, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("locking %s: %w", t.Path, err)
	}
	if !ok {
		spare("in use by another process")
		return nil
	}
	if !s.laidOut(filepath.Base(t.Path)) {
		return nil // another prune was first
	}
	if opts.Damaged {
		bad, err := s.verifyTree(ctx, t)
		if err != nil || bad == nil {
			return err
		}
	}
	if !opts.DryRun {
		if err := s.discard(t.Path); err != nil {
			return err
		}
	}
	p.Trees = append(p.Trees, t)
	return nil
}

// pruneRepos deletes the damaged ones of the store's repositories.
func (s *Store) pruneRepos(ctx context.Context, opts PruneOptions, p *Pruned) error {
	if err := s.prunePrivate(ctx, opts, p); err != nil {
		return err
	}
	repos, err := s.commitRepos()
	if err != nil {
		return err
	}
	for _, repo := range repos {
		if err := s.pruneCommits(ctx, repo, opts, p); err != nil {
			return err
		}
	}
	return nil
}

// prunePrivate makes a damaged private repository anew, empty. What it held is
// read from its sources again; the trees on disk don't need it.
func (s *Store) prunePrivate(ctx context.Context, opts PruneOptions, p *Pruned) error {
	lock, err := s.lockGit(ctx, nil)
	if err != nil {
		return err
	}
	defer release(lock)
	bad, err := verifyRepo(ctx, s.repo)
	if err != nil || bad == nil {
		return err
	}
	if err := s.dropRepo(s.repo, opts, p); err != nil || opts.DryRun {
		return err
	}
	if _, err := git.Open(ctx, s.repo.Dir); err != nil {
		return fmt.Errorf("making the store's repository anew: %w", err)
	}
	return nil
}

// pruneCommits deletes a repository of upstream's commits if it's damaged: they
// are fetched again when somebody asks for them.
func (s *Store) pruneCommits(ctx context.Context, repo git.Repo, opts PruneOptions, p *Pruned) error {
	lock, err := acquire(ctx, repo.Dir+".lock", false, nil)
	if err != nil {
		return err
	}
	defer release(lock)
	bad, err := verifyCommits(ctx, repo)
	if err != nil || bad == nil {
		return err
	}
	return s.dropRepo(repo, opts, p)
}

// dropRepo deletes a repository whose lock is held.
func (s *Store) dropRepo(repo git.Repo, opts PruneOptions, p *Pruned) error {
	p.Files = append(p.Files, Removed{Path: repo.Dir, Bytes: sizeOf(repo.Dir)})
	if opts.DryRun {
		return nil
	}
	// Out of its place first, so that nobody meets half of it.
	tmp, err := temporary(filepath.Join(s.work(), filepath.Base(repo.Dir)))
	if err != nil {
		return err
	}
	if err := os.Rename(repo.Dir, filepath.Join(tmp, "git")); err != nil {
		return fmt.Errorf("deleting git objects of the store: %w", err)
	}
	return removeAll(tmp)
}

// halfAge is how old a file has to be before nobody can still be writing it.
const halfAge = 24 * time.Hour

// sweep deletes what killed processes left half-made: folders whose lock
// nobody holds, and files that nobody can still be writing. It returns what
// went; what can't be deleted yet goes another time.
func (s *Store) sweep(dryRun bool) (gone []Removed) {
	for _, folder := range []string{s.trees(), s.work(), s.builds()} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			name := entry.Name()
			base, _, _ := strings.Cut(name, ".")
			switch {
			case strings.HasSuffix(name, ".tmp"):
				gone = append(gone, removeUnlocked(filepath.Join(folder, base), filepath.Join(folder, name), dryRun)...)
			case strings.Contains(name, ".index."), strings.HasPrefix(name, "."):
				gone = append(gone, removeOld(filepath.Join(folder, name), entry, dryRun)...)
			}
		}
	}
	// git's own: objects and packs begun, locks, refs that were to last a moment.
	_ = filepath.WalkDir(s.repo.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile, or unreadable: another time
		}
		name := entry.Name()
		if strings.HasPrefix(name, "tmp_") || strings.HasPrefix(name, "fast_import_crash_") || strings.HasSuffix(name, ".lock") || filepath.Base(filepath.Dir(path)) == "writing" {
			gone = append(gone, removeOld(path, entry, dryRun)...)
		}
		return nil
	})
	return gone
}

// removeOld is remove, unless somebody may still be writing.
func removeOld(path string, entry fs.DirEntry, dryRun bool) []Removed {
	info, err := entry.Info()
	if err != nil || time.Since(info.ModTime()) < halfAge {
		return nil
	}
	return remove(path, dryRun)
}

// sweepOverrides deletes the indexes of folders that were used as a source.
func (s *Store) sweepOverrides(dryRun bool) (gone []Removed) {
	indexes, err := folder.Glob(s.work(), "override-*.index")
	if err != nil {
		return nil
	}
	for _, index := range indexes {
		gone = append(gone, removeUnlocked(strings.TrimSuffix(index, ".index"), index, dryRun)...)
	}
	return gone
}

// removeUnlocked is remove, unless somebody holds base's lock.
func removeUnlocked(base, path string, dryRun bool) []Removed {
	lock := flock.New(base + ".lock")
	defer release(lock)
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil
	}
	return remove(path, dryRun)
}

func remove(path string, dryRun bool) []Removed {
	r := Removed{Path: path, Bytes: sizeOf(path)}
	if !dryRun && removeAll(path) != nil {
		return nil
	}
	return []Removed{r}
}
