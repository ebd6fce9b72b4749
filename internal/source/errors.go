package source

import (
	"fmt"
	"strings"

	"payload/internal/voice"
)

// NoSourceError is a component that no source could give.
type NoSourceError struct {
	Component, Ref string
	Tried          []Skipped
}

// Skipped is a source that was passed over, and why.
type Skipped struct {
	From string // "store", "git" or a mirror's ID
	Err  error
}

func (e *NoSourceError) Error() string {
	var why []string
	for _, t := range e.Tried {
		why = append(why, fmt.Sprintf("%s: %v", t.From, t.Err))
	}
	return fmt.Sprintf("finding sources of %s %s: %s", e.Component, e.Ref, strings.Join(why, "; "))
}

// Unwrap gives every reason.
func (e *NoSourceError) Unwrap() []error {
	var errs []error
	for _, t := range e.Tried {
		errs = append(errs, t.Err)
	}
	return errs
}

// DigestError is a download that isn't the file payload.yaml asks for.
type DigestError struct {
	From      string // the mirror's ID
	Want, Got string // SHA-256; Got is empty where the client did not tell
}

func (e *DigestError) Error() string {
	got := e.Got
	if got == "" {
		got = "another"
	}
	return fmt.Sprintf("downloading %s: its sha256 is %s, payload.yaml asks for %s", e.From, got, e.Want)
}

// MismatchError is a source that gives another tree than the lock holds for it.
type MismatchError struct {
	Component, Ref, From string
	What                 string // "pristine" or "patched"
	Want, Got            string // tree ids
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("checking %s %s from %s: its %s tree is %s, payload.lock holds %s", e.Component, e.Ref, e.From, e.What, e.Got, e.Want)
}

// RefusedError is a source whose content can't be laid out as it is
// everywhere: paths or links that lead outside, devices, names that collide.
type RefusedError struct {
	From, Why string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("reading %s: %s", e.From, e.Why) }

// DamagedError is a tree on disk that isn't what it was stored as.
type DamagedError struct {
	Component, Ref, Path string
	Files                []string // relative to Path; changed, missing and extra ones
	Override             bool     // Path is the user's own folder, changed while in use
}

func (e *DamagedError) Error() string {
	what := "the stored tree is damaged"
	if e.Override {
		what = "the folder changed while it was used"
	}
	return fmt.Sprintf("checking %s %s in %s: %s: %s", e.Component, e.Ref, e.Path, what, voice.List(e.Files, 10))
}

// StoreError is a store whose folder can't be used as it is: read-only,
// somebody else's, full, or no folder.
type StoreError struct {
	Doing string // "opening the store"
	Err   error
}

func (e *StoreError) Error() string { return e.Doing + ": " + e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }
