package cmakerun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// Lock keeps other builds out of b's folder until release is called. waiting,
// where not nil, is called once when another one holds it.
func Lock(ctx context.Context, b Build, waiting func()) (release func(), err error) {
	// Beside the folder, because the folder itself may be deleted; never deleted,
	// because another process may be waiting on this very file.
	path := b.BinaryDir + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	lock := flock.New(path)
	ok, err := lock.TryLock()
	if err == nil && !ok {
		if waiting != nil {
			waiting()
		}
		_, err = lock.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err != nil {
		_ = lock.Close() // it was not taken
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = lock.Close() }, nil // it goes with the file handle whatever Close says
}
