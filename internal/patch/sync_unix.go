//go:build unix

package patch

import (
	"errors"
	"os"
)

// syncDir makes renames in a folder last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
