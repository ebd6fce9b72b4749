package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sourcegraph/conc/pool"
)

// Describe lists every file and link below dir, the manifest left out, sorted
// by path. Files are hashed side by side; one that changes meanwhile is not
// noticed. Anything but a file, folder or link is an error.
func Describe(dir string) ([]File, error) {
	found, err := walk(dir)
	if err != nil {
		return nil, fmt.Errorf("describing %s: %w", dir, err)
	}
	work := pool.New().WithErrors().WithMaxGoroutines(max(2, runtime.GOMAXPROCS(0)))
	for i := range found {
		f := &found[i] // each task owns its element
		if f.Link == "" {
			work.Go(func() error { return describe(dir, f) })
		}
	}
	if err := work.Wait(); err != nil {
		return nil, fmt.Errorf("describing %s: %w", dir, err)
	}
	return found, nil
}

// List is Describe without what is in the files: paths and links alone.
func List(dir string) ([]File, error) {
	found, err := walk(dir)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	return found, nil
}

func walk(dir string) ([]File, error) {
	found := []File{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := File{Path: filepath.ToSlash(rel)}
		switch {
		case IsName(f.Path):
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			if f.Link, err = os.Readlink(path); err != nil {
				return err
			}
			f.Link = filepath.ToSlash(f.Link)
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is neither file, folder nor link", f.Path)
		}
		found = append(found, f)
		return nil
	})
	slices.SortFunc(found, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return found, err
}

func describe(dir string, f *File) error {
	file, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.Path)))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	f.Executable = info.Mode()&0o111 != 0
	h := sha256.New()
	if f.Size, err = io.Copy(h, file); err != nil {
		return err
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	f.Arch, f.Floor = Inspect(file, f.Size)
	return nil
}

// Digest is the SHA-256 of a file, in hex.
func Digest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
