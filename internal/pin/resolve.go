package pin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/run"
)

// DefaultTimeout is how long upstream has to answer before it counts as away.
const DefaultTimeout = 5 * time.Second

// Timeout is DefaultTimeout, or what PAYLOAD_GIT_TIMEOUT says: seconds, or a
// duration with a unit.
func Timeout() (time.Duration, error) {
	text := os.Getenv("PAYLOAD_GIT_TIMEOUT")
	if text == "" {
		return DefaultTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if seconds, errNumber := strconv.ParseFloat(text, 64); errNumber == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("reading PAYLOAD_GIT_TIMEOUT: %q is neither seconds nor a duration such as 5s", text)
	}
	return d, nil
}

// UnreachableError is an upstream that did not answer, or not with refs.
type UnreachableError struct {
	Location string
	Err      error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("asking %s: %v", e.Location, e.Err)
}
func (e *UnreachableError) Unwrap() error { return e.Err }

// NoRefError is a ref that upstream answered it does not have.
type NoRefError struct {
	Location, Ref string
}

func (e *NoRefError) Error() string {
	return fmt.Sprintf("%s has no tag or branch %s", e.Location, e.Ref)
}

// MovedTagError is a ref that upstream answers with another commit than it
// answered when the lock was written.
type MovedTagError struct {
	Component, Ref, Locked, Now string
}

func (e *MovedTagError) Error() string {
	return fmt.Sprintf("%s %s moved upstream: %s holds commit %s, upstream now answers %s", e.Component, e.Ref, LockName, e.Locked, e.Now)
}

// Answer is what upstream says about a ref.
type Answer struct {
	Commit string // full id; an annotated tag is followed to its commit
	Name   string // the full name that was found; empty where ref is a commit
	Branch bool   // the ref is a branch, so it moves
}

// Ask asks the repository at location what ref names. A tag goes before a
// branch of the same name, as in git itself. A full commit is taken as it is,
// without asking: whether it exists shows when it is fetched.
func Ask(ctx context.Context, location, ref string, timeout time.Duration) (Answer, error) {
	if err := CheckRef(ref); err != nil {
		return Answer{}, fmt.Errorf("resolving a ref: %w", err)
	}
	if config.IsObjectID(ref) {
		return Answer{Commit: ref}, nil
	}
	tag, branch := "refs/tags/"+ref, "refs/heads/"+ref
	late := fmt.Errorf("no answer within %s", timeout)
	asking, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	refs, err := git.LsRemote(asking, location, tag, tag+"^{}", branch)
	var missing *run.MissingError
	switch {
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("asking %s for %s: %w", location, ref, context.Cause(ctx))
	case errors.As(err, &missing):
		return Answer{}, err
	case asking.Err() != nil && err != nil:
		return Answer{}, &UnreachableError{Location: location, Err: late}
	case err != nil:
		return Answer{}, &UnreachableError{Location: location, Err: err}
	}
	found := map[string]string{}
	for _, r := range refs {
		found[r.Name] = r.ID
	}
	for _, name := range []string{tag + "^{}", tag, branch} {
		if id := found[name]; id != "" {
			return Answer{Commit: id, Name: strings.TrimSuffix(name, "^{}"), Branch: name == branch}, nil
		}
	}
	return Answer{}, &NoRefError{Location: location, Ref: ref}
}
