package verify

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// copyFolder makes dst a copy of src, without the files that skip names by
// their slash path. file makes one file: copyFile where src must be safe from a
// program that writes to its own files, linkFile between copies of our own, since
// a payload can hold gigabytes.
func copyFolder(src, dst string, file func(from, to string) error, skip func(string) bool) error {
	err := filepath.WalkDir(src, func(from string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, from)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case skip != nil && skip(filepath.ToSlash(rel)):
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is neither file, folder nor link", rel)
		}
		return file(from, to)
	})
	if err != nil {
		return fmt.Errorf("copying %s: %w", src, err)
	}
	return nil
}

// linkFile makes a hard link where the file system has them.
func linkFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	// A process that starts now would have out open until it is another program, and
	// the system starts no program that is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// minimalEnv is all that a started program sees of the world. Graphics drivers
// look up the home folder in the user database, unless XDG_CACHE_HOME is set.
func minimalEnv(home string) []string {
	if runtime.GOOS == "windows" {
		return []string{"SystemRoot=" + os.Getenv("SystemRoot"), "PATH=" + filepath.Join(os.Getenv("SystemRoot"), "System32"), "TEMP=" + home, "TMP=" + home}
	}
	return []string{"PATH=/usr/bin:/bin", "HOME=" + home, "XDG_CACHE_HOME=" + home, "TMPDIR=" + home, "LC_ALL=C"}
}
