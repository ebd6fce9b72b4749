// Package atomicfile writes whole files so that a reader, or a kill at any
// moment, meets the old content or the new one and never half of either.
package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
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
	return os.Rename(tmp.Name(), path)
}
