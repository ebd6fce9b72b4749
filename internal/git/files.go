package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"payload/internal/run"
)

// Files lists the files of a user's folder, relative to it with forward slashes:
// what git knows or would add, also where the folder lies inside a work tree; or
// every file of a folder that is no work tree, folders with a .git left out. A
// file that git knows may be gone from the disk.
func Files(ctx context.Context, dir string) (names []string, inGit bool, err error) {
	res, err := run.Do(ctx, run.Cmd{Dir: dir, Args: []string{"git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"}})
	if err == nil {
		return SplitZ(res.Stdout), true, nil
	}
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil
	}
	var exit *run.ExitError
	if !errors.As(err, &exit) || there(".git") {
		return nil, false, fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !d.IsDir() {
			names = append(names, rel)
			return nil
		}
		if rel != "." && (d.Name() == ".git" || there(rel+"/.git")) {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	return names, false, nil
}
