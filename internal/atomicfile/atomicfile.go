// Package atomicfile writes whole files so that a reader, or a kill at any
// moment, meets the old content or the new one and never half of either.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces the file path by data. The folder must exist.
func Write(path string, data []byte, mode os.FileMode) (err error) {
	// The name starts with a dot so that globs over the folder pass it over.
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()           // already closed, or about to be deleted
			_ = os.Remove(tmp.Name()) // the first error is the one to tell
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	if err := tmp.Chmod(mode); err != nil {
		return err
	}
	// Without it a power cut can leave the new name with no content.
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Full adds to a failure that a folder's disk is full, where it is (it has less
// than a mebibyte) and err doesn't say so. Many tools don't tell why they
// couldn't write a file, and CMake says things that have nothing to do with it.
func Full(err error, folder string) error {
	if err == nil || errors.Is(err, syscall.ENOSPC) {
		return err
	}
	probe, failed := os.CreateTemp(folder, ".room.*")
	if failed == nil {
		_, failed = probe.Write(make([]byte, 1<<20))
		_ = probe.Close()           // about to be deleted
		_ = os.Remove(probe.Name()) // a sweep gets what stays
	}
	if errors.Is(failed, syscall.ENOSPC) {
		return fmt.Errorf("%w; %w", err, failed)
	}
	return err
}
