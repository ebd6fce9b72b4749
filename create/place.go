package create

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"payload/mlxrunner/model"
)

// ErrExists says that there is something in the place of the new checkpoint.
var ErrExists = errors.New("it exists")

// place is a folder that is being written, beside where it will stand.
type place struct {
	dir, dst string
	force    bool
	lock     *flock.Flock
}

// begin makes the folder. What a killed run left of it is cleared away; one
// that is still running is an error.
func begin(dst string, force bool) (*place, error) {
	dst, err := filepath.Abs(dst)
	if err != nil {
		return nil, fmt.Errorf("creating a checkpoint: %w", err)
	}
	parent, name := filepath.Split(dst)
	p := &place{dir: filepath.Join(parent, "."+name+".creating"), dst: dst, force: force}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating %s: %w", dst, err)
	}
	// The lock lies beside the folder, so that clearing it does not let go.
	p.lock = flock.New(p.dir + ".lock")
	held, err := p.lock.TryLock()
	if err == nil && !held {
		err = errors.New("another create is writing it")
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", dst, err)
	}
	err = errors.Join(os.RemoveAll(p.dir), p.restore(), os.RemoveAll(p.dir))
	if err == nil {
		err = free(dst, force)
	}
	if err == nil {
		err = os.Mkdir(p.dir, 0o755)
	}
	if err != nil {
		p.abandon()
		return nil, fmt.Errorf("creating %s: %w", dst, err)
	}
	return p, nil
}

// free says whether dst may be taken: nothing is there, or with force a folder
// that is empty or a checkpoint, so that nothing else is ever deleted.
func free(dst string, force bool) error {
	entries, err := os.ReadDir(dst)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !force {
		return ErrExists
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == model.ConfigName {
			return nil
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("it holds no %s, so it is no checkpoint that could be replaced", model.ConfigName)
	}
	return nil
}

// old is where what is replaced waits, whole, until the new one is in its place.
func (p *place) old() string { return p.dir + ".old" }

// restore puts a checkpoint back that a killed run had moved away. Where the new
// one came to its place, the old one goes to p.dir, to be deleted with that.
func (p *place) restore() error {
	to := p.dst
	if _, err := os.Lstat(p.dst); err == nil {
		to = p.dir
	}
	if err := os.Rename(p.old(), to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// finish puts the folder in its place.
func (p *place) finish() error {
	if err := free(p.dst, p.force); err != nil {
		return fmt.Errorf("creating %s: %w", p.dst, err)
	}
	old := p.old()
	err := os.Rename(p.dst, old)
	replaced := err == nil
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(p.dir, p.dst)
	}
	if err != nil {
		if replaced {
			err = errors.Join(err, os.Rename(old, p.dst))
		}
		return fmt.Errorf("putting the checkpoint to its place: %w", err)
	}
	if err := errors.Join(p.restore(), os.RemoveAll(p.dir)); err != nil {
		return fmt.Errorf("removing the checkpoint that was replaced: %w", err)
	}
	return nil
}

// abandon removes what finish did not take.
func (p *place) abandon() {
	_ = os.RemoveAll(p.dir)      // the next run does it otherwise
	_ = os.Remove(p.lock.Path()) // held still, so nobody else's
	_ = p.lock.Unlock()          // closing frees it anyway
}
