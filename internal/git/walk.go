package git

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Listing is what a folder holds, as paths relative to it with forward slashes.
type Listing struct {
	Files   []string // files and symbolic links
	Strays  []string // every .git, file or folder; never part of a source
	Empty   []string // folders without anything, which a tree can't hold
	Special []string // sockets, pipes, devices: git would pass over them without a word
}

// Walk lists a folder without following links.
func Walk(dir string) (Listing, error) {
	var list Listing
	filled := map[string]bool{}
	var folders []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == dir {
			if !entry.IsDir() {
				return fmt.Errorf("%s is not a folder", dir)
			}
			return nil
		}
		name := filepath.ToSlash(strings.TrimPrefix(path[len(dir):], string(filepath.Separator)))
		filled[filepath.Dir(path)] = true
		switch {
		case strings.EqualFold(entry.Name(), ".git"):
			list.Strays = append(list.Strays, name)
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			folders = append(folders, path)
		case entry.Type() == 0 || entry.Type() == fs.ModeSymlink:
			list.Files = append(list.Files, name)
		default:
			list.Special = append(list.Special, name)
		}
		return nil
	})
	for _, path := range folders {
		if !filled[path] {
			list.Empty = append(list.Empty, filepath.ToSlash(strings.TrimPrefix(path[len(dir):], string(filepath.Separator))))
		}
	}
	return list, err
}
