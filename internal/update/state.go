package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"payload/internal/atomicfile"
	"payload/internal/patch"
	"payload/internal/workspace"
)

// The folder of an open update, below the repository's root:
//
//	build/update/COMPONENT/        the conflict that is being resolved
//	build/update/.state/state.json what is asked for and what was decided
//	build/update/.state/…          the journal, see journal.go
//	build/update/.lock             held while a process works on the update
const (
	folder    = "build/update"
	stateFile = "state.json"
)

// state is state.json. With it and the repository as it was, everything else
// can be computed again.
type state struct {
	Version int      `json:"version"`
	Moves   []move   `json:"moves"`
	Preset  string   `json:"preset"` // to build; empty for none
	Commit  bool     `json:"commit"`
	Base    string   `json:"base,omitempty"`
	Coupled bool     `json:"coupled,omitempty"` // components that are coupled to these move, too
	Made    []string `json:"made"`              // folders that were made for the update, outermost first

	// Inputs are the files that the update read, relative to the root, with
	// what they were; see fingerprint.
	Inputs  map[string]string             `json:"inputs"`
	Decided map[string]map[string]decided `json:"decided"` // component, file
	Stopped *stopped                      `json:"stopped,omitempty"`

	// From here on for an update that was written to the repository.
	Result *Result `json:"result,omitempty"`
	// Written: every file was in its place. What a person changes after that, to
	// make it build, is theirs.
	Written bool       `json:"written"`
	Built   bool       `json:"built"`
	Before  *committed `json:"before,omitempty"` // where HEAD was before the commits
}

// move is one component that moves.
type move struct {
	Component string `json:"component"`
	From      string `json:"from"`
	To        string `json:"to"`
}

// decided is a conflict that a person has settled.
type decided struct {
	Verdict  patch.Verdict `json:"verdict"` // what it was
	Detail   string        `json:"detail"`
	Reason   string        `json:"reason,omitempty"`   // why it is skipped
	Resolved []byte        `json:"resolved,omitempty"` // or the patch that takes its place
}

// stopped is the conflict that the update waits for.
type stopped struct {
	Component string        `json:"component"`
	File      string        `json:"file"`
	Verdict   patch.Verdict `json:"verdict"`
	Detail    string        `json:"detail"`
}

// OpenError is an update that can't be started while another one is open.
type OpenError struct {
	Update string // "toy to b102"
	Busy   bool   // another process is at work on it
}

func (e *OpenError) Error() string {
	if e.Busy {
		return "updating: another process is at work on an update here"
	}
	return "updating: the update of " + e.Update + " is still open"
}

// NoneOpenError is a --continue, --skip or --abort without anything to go on with.
type NoneOpenError struct{ Asked string }

func (e *NoneOpenError) Error() string { return e.Asked + ": no update is open here" }

// name is how an open update is called.
func (s *state) name() string {
	var names []string
	for _, m := range s.Moves {
		names = append(names, m.Component+" to "+m.To)
	}
	return strings.Join(names, " and ")
}

// place is the update's folder in one repository.
type place struct{ root string }

func (p place) dir() string { return filepath.Join(p.root, filepath.FromSlash(folder)) }
func (p place) internal(name ...string) string {
	return filepath.Join(append([]string{p.dir(), ".state"}, name...)...)
}
func (p place) work(component string) string { return filepath.Join(p.dir(), component) }

// Open tells which update is open in a repository; empty for none.
func Open(w *workspace.Workspace) (string, error) {
	s, err := place{w.File.Root}.load()
	if err != nil || s == nil {
		return "", err
	}
	return s.name(), nil
}

// load is nil where no update is open.
func (p place) load() (*state, error) {
	data, err := os.ReadFile(p.internal(stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the open update: %w", err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("reading the open update in %s: %w", p.internal(stateFile), err)
	}
	if s.Version != 1 {
		return nil, fmt.Errorf("reading the open update in %s: version %d is not known; finish it with the payload that began it", p.internal(stateFile), s.Version)
	}
	return &s, nil
}

func (p place) save(s *state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("recording the update: %w", err)
	}
	return atomicfile.Write(p.internal(stateFile), append(data, '\n'), 0o644)
}

// make makes the folder and names those that were not there.
func (p place) make() (made []string, err error) {
	for dir := p.dir(); dir != p.root; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			rel, err := filepath.Rel(p.root, dir)
			if err != nil {
				return nil, fmt.Errorf("opening an update: %w", err)
			}
			made = append([]string{filepath.ToSlash(rel)}, made...)
		}
	}
	if err := os.MkdirAll(p.internal(), 0o755); err != nil {
		return nil, fmt.Errorf("opening an update: %w", err)
	}
	return made, nil
}

// hold takes the lock for this process.
func (p place) hold() (release func(), err error) {
	name := filepath.Join(p.dir(), ".lock")
	lock := flock.New(name)
	ok, err := lock.TryLock()
	if err == nil && ok {
		// The process that held it may have deleted the file meanwhile. Then
		// another file has the name, and its lock is the one that counts.
		now := flock.New(name)
		again, errAgain := now.TryLock()
		if errAgain == nil && !again {
			_ = now.Close()
			return func() { _ = lock.Close() }, nil
		}
		_ = lock.Close()
		lock, ok, err = now, again, errAgain
	}
	switch {
	case err != nil:
		_ = lock.Close()
		return nil, fmt.Errorf("opening an update: locking %s: %w", name, err)
	case !ok:
		_ = lock.Close()
		return nil, &OpenError{Busy: true}
	}
	return func() { _ = lock.Close() }, nil
}

// clear ends the update: without state.json there is none, and what is left of
// its folder is litter.
func (p place) clear(s *state, at func(string)) error {
	if err := os.Remove(p.internal(stateFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("closing the update: %w", err)
	}
	// Before the journal goes: a state that came back without one would be another update.
	if err := atomicfile.SyncDir(p.internal()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("closing the update: %w", err)
	}
	at("over")
	return p.sweep(s.Made, at)
}

// sweep deletes the folder of an update that is over, and folders that were made for it.
func (p place) sweep(made []string, at func(string)) error {
	entries, err := os.ReadDir(p.dir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("closing the update: %w", err)
	}
	for _, e := range entries {
		if e.Name() == ".lock" { // last: it is held
			continue
		}
		if err := os.RemoveAll(filepath.Join(p.dir(), e.Name())); err != nil {
			return fmt.Errorf("closing the update: %w", err)
		}
		at("swept " + e.Name())
	}
	_ = os.Remove(filepath.Join(p.dir(), ".lock")) // Windows keeps a file that is open; the next update takes it
	for _, dir := range slices.Backward(made) {
		_ = os.Remove(filepath.Join(p.root, filepath.FromSlash(dir))) // not empty: others use it by now
	}
	return nil
}

// litter deletes what a process left that was killed while it closed an update.
// Which folders it had made nobody knows any more; empty ones are no loss.
func (p place) litter() error {
	if _, err := os.Stat(p.dir()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	release, err := p.hold()
	if err != nil {
		return err
	}
	defer release()
	if s, err := p.load(); err != nil || s != nil {
		return err
	}
	return p.sweep([]string{path.Dir(folder), folder}, func(string) {})
}
