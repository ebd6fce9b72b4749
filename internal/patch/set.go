package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"payload/internal/atomicfile"
)

// A series is many files, and no file system replaces many files at once. So a
// set is written in two steps, of which the second can be repeated:
//
//  1. all new files are written and synced in .export beside the patches, and
//     then the journal, by one rename: from here on the new series is decided;
//  2. each staged file is renamed to its place, obsolete ones are removed, and
//     the journal goes last.
//
// A kill before the journal leaves the old series, and staged files that the
// next write throws away. A kill after it is made good by the next reader:
// Load and Export call recoverSet before they look.
const (
	stagingName = ".export"
	journalName = "journal.json"
)

// journal is what step 2 has to do.
type journal struct {
	Place  []string `json:"place"`  // staged names, to be moved into the folder
	Remove []string `json:"remove"` // names to be taken out of it
}

// fileSet is a change to a folder of patches.
type fileSet struct {
	place  map[string][]byte
	remove []string
}

// writeSet makes the change as a whole. stop, for tests, is asked before each
// step and ends the write where it says so, as a kill would.
func writeSet(dir string, set fileSet, stop func(step string) bool) error {
	if err := recoverSet(dir); err != nil {
		return err
	}
	if len(set.place) == 0 && len(set.remove) == 0 {
		return nil
	}
	staging := filepath.Join(dir, stagingName)
	fail := func(err error) error { return fmt.Errorf("writing the patches to %s: %w", dir, err) }
	if err := os.RemoveAll(staging); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return fail(err)
	}
	j := journal{Remove: slices.Clone(set.remove)}
	for name, data := range set.place {
		if stop != nil && stop("stage "+name) {
			return errStopped
		}
		if err := writeSynced(filepath.Join(staging, name), data); err != nil {
			return fail(err)
		}
		j.Place = append(j.Place, name)
	}
	slices.Sort(j.Place)
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fail(err)
	}
	if stop != nil && stop("journal") {
		return errStopped
	}
	tmp := filepath.Join(staging, journalName+".tmp")
	if err := writeSynced(tmp, data); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, filepath.Join(staging, journalName)); err != nil {
		return fail(err)
	}
	if err := atomicfile.SyncDir(staging); err != nil {
		return fail(err)
	}
	return finishSet(dir, j, stop)
}

var errStopped = errors.New("stopped")

// recoverSet finishes a set whose journal was written. The folder may be
// missing.
func recoverSet(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, stagingName, journalName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finishing an interrupted export in %s: %w", dir, err)
	}
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("finishing an interrupted export in %s: reading its journal: %w", dir, err)
	}
	for _, name := range slices.Concat(j.Place, j.Remove) {
		if name != filepath.Base(name) || name == stagingName {
			return fmt.Errorf("finishing an interrupted export in %s: its journal names %q", dir, name)
		}
	}
	return finishSet(dir, j, nil)
}

func finishSet(dir string, j journal, stop func(step string) bool) error {
	staging := filepath.Join(dir, stagingName)
	fail := func(err error) error { return fmt.Errorf("writing the patches to %s: %w", dir, err) }
	for _, name := range j.Place {
		if stop != nil && stop("place "+name) {
			return errStopped
		}
		// Missing: an earlier try has moved it.
		if err := os.Rename(filepath.Join(staging, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fail(err)
		}
	}
	for _, name := range j.Remove {
		if stop != nil && stop("remove "+name) {
			return errStopped
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fail(err)
		}
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return fail(err)
	}
	if stop != nil && stop("finish") {
		return errStopped
	}
	if err := os.Remove(filepath.Join(staging, journalName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err)
	}
	if err := os.RemoveAll(staging); err != nil {
		return fail(err)
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
