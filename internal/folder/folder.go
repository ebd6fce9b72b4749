// Package folder finds files in folders of any name. filepath.Glob takes the
// brackets in a folder's name for a part of the pattern, and finds nothing.
package folder

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Glob lists what is below dir and has a path like the pattern, in which a slash
// parts folders. A folder that is not there holds nothing.
func Glob(dir, pattern string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(dir), pattern)
	for i, name := range names {
		names[i] = filepath.Join(dir, filepath.FromSlash(name))
	}
	return names, err
}
