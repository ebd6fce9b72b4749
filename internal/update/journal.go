package update

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"payload/internal/atomicfile"
	"payload/internal/voice"
)

// The repository is written to in one go, by a journal:
//
//	.state/old/N, .state/new/N  the Nth file as it was and as it shall be
//	.state/journal.json         which files; written last, and with it the
//	                            update is decided
//	.state/tmp                  a file on its way to its place
//
// Before the journal nothing of the repository is touched. After it every file
// goes to its place by one rename, and any number of tries, in either
// direction, comes to the same end. A file that is neither what it was nor
// what it shall be has been changed by somebody; then nothing is written.
const journalFile = "journal.json"

// entry is one file of the journal.
type entry struct {
	Path string `json:"path"` // relative to the root, with forward slashes
	Old  string `json:"old"`  // fingerprints
	New  string `json:"new"`
	Link string `json:"link,omitempty"` // what it names, of a link that goes
}

type journal struct {
	Files []entry  `json:"files"`
	Made  []string `json:"made"` // folders that the new files need
}

// content is a file as it shall be.
type content struct {
	data []byte
	mode os.FileMode
}

// content is where a file's content lies: every link on the way followed, so
// that two names of one file are one. What leads out of the repository keeps
// its name.
func (p place) content(name string) string {
	real, err := filepath.EvalSymlinks(filepath.Join(p.root, filepath.FromSlash(name)))
	if err != nil { // not there yet
		return p.name(name)
	}
	if rel, ok := p.below(real); ok {
		return rel
	}
	return path.Clean(name)
}

// name is where a file's name lies: its folder without links, and then the
// name, which may be a link's.
func (p place) name(name string) string {
	full := filepath.Join(p.root, filepath.FromSlash(name))
	dir, err := filepath.EvalSymlinks(filepath.Dir(full))
	if err != nil {
		return path.Clean(name)
	}
	if rel, ok := p.below(filepath.Join(dir, filepath.Base(full))); ok {
		return rel
	}
	return path.Clean(name)
}

// below is a path without links as one of the repository; false where it lies
// outside.
func (p place) below(real string) (string, bool) {
	root, err := filepath.EvalSymlinks(p.root)
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(root, real)
	return filepath.ToSlash(rel), err == nil && filepath.IsLocal(rel)
}

// absent is the fingerprint of no file.
const absent = "absent"

// ChangedError is a file of the repository that was changed while an update
// was open.
type ChangedError struct {
	Doing string
	Paths []string
	// Kept names, for each path, the copy of it that would be put there, relative
	// to the root; empty where it would go. It is nil while nothing is written.
	Kept []string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: changed since the update was opened: %s", e.Doing, voice.List(e.Paths, 8))
}

// fingerprint tells a file's content and mode; links count as what they name.
func fingerprint(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return content{data, info.Mode().Perm()}.fingerprint(), nil
}

func (c content) fingerprint() string {
	sum := sha256.Sum256(c.data)
	return fmt.Sprintf("%s %04o", hex.EncodeToString(sum[:]), c.mode)
}

// prepare writes the journal for the files, of which nil ones are to be
// deleted. want is what the files have to be now.
func (p place) prepare(files map[string]*content, want map[string]string, at func(string)) (journal, error) {
	fail := func(err error) (journal, error) { return journal{}, fmt.Errorf("preparing the update: %w", err) }
	for _, name := range []string{"old", "new"} {
		if err := os.RemoveAll(p.internal(name)); err != nil {
			return fail(err)
		}
		if err := os.MkdirAll(p.internal(name), 0o755); err != nil {
			return fail(err)
		}
	}
	j := journal{Files: []entry{}, Made: []string{}}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(p.root, filepath.FromSlash(path))
		e := entry{Path: path, New: absent}
		var err error
		if e.Old, err = fingerprint(full); err != nil {
			return fail(err)
		}
		if known, read := want[path]; read && known != e.Old || !read && e.Old != absent {
			return journal{}, &ChangedError{Doing: "preparing the update", Paths: []string{path}}
		}
		if e.Old != absent {
			if err := copyFile(full, p.internal("old", fmt.Sprint(i))); err != nil {
				return fail(err)
			}
		}
		if to, err := os.Readlink(full); err == nil && files[path] == nil {
			e.Link = to
		}
		if c := files[path]; c != nil {
			e.New = c.fingerprint()
			if err := atomicfile.Write(p.internal("new", fmt.Sprint(i)), c.data, c.mode); err != nil {
				return fail(err)
			}
			for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
				if _, err := os.Stat(filepath.Join(p.root, dir)); errors.Is(err, fs.ErrNotExist) && !slices.Contains(j.Made, filepath.ToSlash(dir)) {
					j.Made = append(j.Made, filepath.ToSlash(dir))
				}
			}
		}
		j.Files = append(j.Files, e)
		at("prepared " + path)
	}
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fail(err)
	}
	if err := atomicfile.Write(p.internal(journalFile), append(data, '\n'), 0o644); err != nil {
		return fail(err)
	}
	return j, nil
}

// copyFile copies content and mode.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return atomicfile.Write(to, data, info.Mode().Perm())
}

// read gives the journal; nil where nothing is decided yet.
func (p place) read() (*journal, error) {
	data, err := os.ReadFile(p.internal(journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal of the update: %w", err)
	}
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("reading the journal of the update: %w", err)
	}
	for _, e := range j.Files {
		if !filepath.IsLocal(filepath.FromSlash(e.Path)) {
			return nil, fmt.Errorf("reading the journal of the update: it names %q", e.Path)
		}
	}
	return &j, nil
}

// side is one of the two versions that the journal keeps of each file.
type side struct {
	name  string // its folder
	doing string
	of    func(entry) string // its fingerprint
}

var (
	newSide = side{"new", "writing the update", func(e entry) string { return e.New }}
	oldSide = side{"old", "taking the update back", func(e entry) string { return e.Old }}
)

// forward puts the new files into their places, back the old ones.
func (p place) forward(j journal, at func(string)) error { return p.settle(j, newSide, at) }

func (p place) back(j journal, at func(string)) error {
	if err := p.settle(j, oldSide, at); err != nil {
		return err
	}
	for _, dir := range slices.Backward(slices.Sorted(slices.Values(j.Made))) {
		_ = os.Remove(filepath.Join(p.root, filepath.FromSlash(dir))) // not empty: others use it by now
	}
	return nil
}

// left lists the entries whose files aren't as one side has them. A file that
// neither side knows is a *ChangedError.
func (p place) left(j journal, to side) ([]int, error) {
	changed := &ChangedError{Doing: to.doing}
	var todo []int
	for i, e := range j.Files {
		now, err := fingerprint(filepath.Join(p.root, filepath.FromSlash(e.Path)))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", to.doing, err)
		case now == to.of(e):
		case now == e.Old || now == e.New:
			todo = append(todo, i)
		default:
			changed.Paths = append(changed.Paths, e.Path)
			kept := ""
			if to.of(e) != absent {
				kept = path.Join(folder, ".state", to.name, fmt.Sprint(i))
			}
			changed.Kept = append(changed.Kept, kept)
		}
	}
	if len(changed.Paths) > 0 {
		return nil, changed
	}
	return todo, nil
}

func (p place) settle(j journal, to side, at func(string)) error {
	fail := func(err error) error { return fmt.Errorf("%s: %w", to.doing, err) }
	todo, err := p.left(j, to)
	if err != nil {
		return err
	}
	for _, i := range todo {
		e := j.Files[i]
		full := filepath.Join(p.root, filepath.FromSlash(e.Path))
		switch {
		case to.of(e) == absent:
			err = os.Remove(full)
		case to.name == oldSide.name && e.Link != "":
			err = os.Symlink(e.Link, full)
		default:
			err = p.put(p.internal(to.name, fmt.Sprint(i)), full)
		}
		if err != nil {
			return fail(err)
		}
		at(to.name + " " + e.Path)
	}
	// Before anything forgets that there was a journal.
	var dirs []string
	for _, i := range todo {
		dirs = append(dirs, filepath.Dir(filepath.Join(p.root, filepath.FromSlash(j.Files[i].Path))))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := atomicfile.SyncDir(dir); err != nil {
			return fail(err)
		}
	}
	return nil
}

// put moves one file to its place.
func (p place) put(from, path string) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays one
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The copy in the journal stays: the way back, or a second try, needs it.
	if err := copyFile(from, p.internal("tmp")); err != nil {
		return err
	}
	if os.Rename(p.internal("tmp"), path) == nil {
		return nil
	}
	return copyFile(from, path) // build/ may lie on another disk
}
