package source

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"payload/internal/git"
)

// admit refuses a tree that can't be laid out the same everywhere. It returns
// the paths where other repositories are meant to be.
func (s *Store) admit(ctx context.Context, tree, from string) (modules []string, err error) {
	out, err := s.repo.Do(ctx, git.Call{Args: []string{"ls-tree", "-r", "-t", "-z", "--full-tree", tree}})
	if err != nil {
		return nil, fmt.Errorf("reading tree %s: %w", tree, err)
	}
	names := collisions{}
	for _, line := range git.SplitZ(out) {
		about, name, _ := strings.Cut(line, "\t")
		fields := strings.Fields(about) // mode, type, id
		if len(fields) != 3 {
			return nil, fmt.Errorf("reading tree %s: git ls-tree printed %q", tree, line)
		}
		if err := names.add(name); err != nil {
			return nil, &RefusedError{From: from, Why: err.Error()}
		}
		switch fields[0] {
		case "160000":
			modules = append(modules, name)
		case "120000":
			target, err := s.repo.Text(ctx, "cat-file", "blob", fields[2])
			if err != nil {
				return nil, fmt.Errorf("reading link %s: %w", name, err)
			}
			if leaves(name, target) {
				return nil, &RefusedError{From: from, Why: fmt.Sprintf("link %s leads outside, to %s", name, target)}
			}
		}
	}
	return modules, nil
}

// collisions notes paths by their lower-case form.
type collisions map[string]string

// add refuses a path that a file system without case takes for another one.
func (c collisions) add(name string) error {
	low := strings.ToLower(name)
	if other, ok := c[low]; ok && other != name {
		return fmt.Errorf("%s and %s differ by case alone", other, name)
	}
	c[low] = name
	return nil
}

// leaves says whether a link at name, relative to the root, leads out of it.
func leaves(name, target string) bool {
	target = filepath.ToSlash(target)
	if path.IsAbs(target) || filepath.VolumeName(target) != "" {
		return true
	}
	return !filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(name), target)))
}

// without is the tree less some paths.
func (s *Store) without(ctx context.Context, tree string, paths []string) (string, error) {
	dir, err := os.MkdirTemp("", "payload-index-")
	if err != nil {
		return "", fmt.Errorf("changing tree %s: %w", tree, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary of ours
	index := filepath.Join(dir, "index")
	if err := s.repo.ReadTree(ctx, tree, index); err != nil {
		return "", err
	}
	remove := git.Call{Index: index, WorkTree: dir, Args: []string{"update-index", "--force-remove", "-z", "--stdin"}, Stdin: strings.NewReader(strings.Join(paths, "\x00"))}
	if _, err := s.repo.Do(ctx, remove); err != nil {
		return "", fmt.Errorf("changing tree %s: %w", tree, err)
	}
	return s.repo.WriteTree(ctx, index)
}
