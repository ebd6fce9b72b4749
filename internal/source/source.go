package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/pin"
	"payload/internal/run"
)

// Kind is a kind of source.
type Kind string

// The kinds of source. An override goes before all of them.
const (
	FromStore  Kind = "store"
	FromGit    Kind = "git"
	FromMirror Kind = "mirror"
)

// DefaultKinds is the order in which sources are tried.
var DefaultKinds = []Kind{FromStore, FromGit, FromMirror}

// ParseKinds reads a list such as "store,mirror". Empty means DefaultKinds.
func ParseKinds(text string) ([]Kind, error) {
	if strings.TrimSpace(text) == "" {
		return DefaultKinds, nil
	}
	var kinds []Kind
	for word := range strings.SplitSeq(text, ",") {
		kind := Kind(strings.TrimSpace(word))
		if !slices.Contains(DefaultKinds, kind) {
			return nil, fmt.Errorf("reading the kinds of source: %q is none of store, git and mirror", kind)
		}
		if slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("reading the kinds of source: %s is listed twice", kind)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// Request is one component at one ref, and how its sources may be had.
type Request struct {
	File      *config.File
	Component config.Component
	Ref       string
	Entry     *pin.Entry  // the lock's entry for Ref; nil when there is none
	Override  string      // a folder to use in place of every other source
	Kinds     []Kind      // in the order to try; nil means DefaultKinds
	Patches   []pin.Patch // identity of the series, in order

	// MadeFor is the pristine tree that the series was made for, where it is
	// carried to another one: what that gives is a tree of its own.
	MadeFor string

	// Apply makes the patched tree from the pristine one, both as objects in
	// repo. Nil asks for the pristine tree, whatever Patches says.
	Apply func(ctx context.Context, repo git.Repo, pristine string) (patched string, err error)

	compiled bool // no sources of the component, see Files

	AllowUnpatched bool // use the override as it is, where it is
	Repair         bool // make the stored tree again, whatever its state

	Tell     func(format string, args ...any) // one line a step; nil for silence
	Progress io.Writer                        // git's own progress of a long fetch; nil for none
}

func (r Request) tell(format string, args ...any) {
	if r.Tell != nil {
		r.Tell("%s %s: %s", r.Component.Name, r.Ref, fmt.Sprintf(format, args...))
	}
}

func (r Request) kinds() []Kind {
	if len(r.Kinds) == 0 {
		return DefaultKinds
	}
	return r.Kinds
}

// Pristine is upstream's tree as one source has it, as objects in the store's
// repository.
type Pristine struct {
	Tree   string // git tree id
	Commit string // empty where the source does not say
	Build  int    // upstream's build number; 0 where it has none
	From   string // "git", a mirror's ID, or "override:DIR"
	Stored bool   // found in the store, read from From some time before
}

// found is a Pristine on its way to a tree on disk.
type found struct {
	Pristine
	Patched string // what the lock says; empty where it says nothing of this series
}

// Pristine finds the sources without laying out any file. The objects are in
// Repo. To read one certain mirror, ask for FromMirror with a component that
// has that mirror alone.
func (s *Store) Pristine(ctx context.Context, req Request) (Pristine, error) {
	if req.Override != "" {
		f, _, err := s.override(ctx, req)
		return f.Pristine, err
	}
	f, err := s.find(ctx, req, false)
	return f.Pristine, err
}

// Tree gives the patched tree (the pristine one without Apply) as a read-only
// folder, checked and held until Close.
func (s *Store) Tree(ctx context.Context, req Request) (*Tree, error) {
	if req.Override == "" {
		f, err := s.find(ctx, req, !req.Repair)
		if err != nil {
			return nil, err
		}
		t, err := s.materialise(ctx, req, f)
		return t, s.Full(err)
	}
	f, dir, err := s.override(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.AllowUnpatched {
		return s.inPlace(req, f, dir), nil
	}
	return s.materialise(ctx, req, f)
}

// find tries the sources in order. With onDisk, a tree that is laid out
// already will do, whether or not its objects are there.
func (s *Store) find(ctx context.Context, req Request, onDisk bool) (found, error) {
	up := upstream{location: req.File.Location(req.Component)}
	if req.Entry == nil && slices.Contains(req.kinds(), FromGit) {
		if !config.IsObjectID(req.Ref) {
			req.tell("asking %s what it is", up.location)
		}
		if err := up.ask(ctx, req); err != nil {
			return found{}, err
		}
		if up.err != nil {
			req.tell("git passed over: %v", up.err)
		}
	}
	tried := &NoSourceError{Component: req.Component.Name, Ref: req.Ref}
	skip := func(from string, err error) {
		tried.Tried = append(tried.Tried, Skipped{From: from, Err: err})
		if from == "git" && req.Entry == nil && up.err != nil {
			return // told above, before the store was looked at
		}
		req.tell("%s passed over: %v", from, err)
	}
	for _, kind := range req.kinds() {
		switch kind {
		case FromStore:
			f, ok, err := s.stored(ctx, req, up, onDisk)
			if err != nil {
				return found{}, err
			}
			if ok {
				return f, nil
			}
			skip("store", errors.New("not there"))
		case FromGit:
			f, err := s.fromGit(ctx, req, &up)
			if err == nil {
				return f, nil
			}
			err = s.Full(err)
			if !Passable(ctx, err) {
				return found{}, err
			}
			skip("git", err)
		case FromMirror:
			mirrors := req.Component.MirrorsOf(req.Ref)
			if len(mirrors) == 0 {
				skip("mirrors", errors.New("none holds this ref"))
			}
			for _, m := range mirrors {
				f, err := s.fromMirror(ctx, req, up, m)
				if err == nil {
					return f, nil
				}
				err = s.Full(err)
				if !Passable(ctx, err) {
					return found{}, err
				}
				skip(m.ID(), err)
			}
		}
	}
	return found{}, tried
}

// Passable says whether the next source may be tried after err. A source that gave
// nothing is passed over; one that gave something wrong must be seen.
func Passable(ctx context.Context, err error) bool {
	var (
		digest   *DigestError
		mismatch *MismatchError
		refused  *RefusedError
		moved    *pin.MovedTagError
		missing  *run.MissingError
	)
	switch {
	case ctx.Err() != nil, errors.Is(err, run.ErrNoSpace), errors.Is(err, syscall.ENOSPC):
		return false
	case errors.As(err, &missing) && missing.Tool == "git":
		return false // nothing at all works without it
	case errors.As(err, &digest), errors.As(err, &mismatch), errors.As(err, &refused), errors.As(err, &moved):
		return false
	}
	return true
}

// fromLock gives what the lock says of a source, and refuses another tree.
func (r Request) fromLock(p Pristine) (found, error) {
	f := found{Pristine: p}
	if r.Entry == nil {
		return f, nil
	}
	f.Build = r.Entry.Build
	row, ok := r.Entry.Source(p.From)
	if !ok { // git's, at the commit that the lock holds: see comparable
		return f, nil
	}
	if row.Pristine != p.Tree {
		return found{}, &MismatchError{Component: r.Component.Name, Ref: r.Ref, From: p.From, What: "pristine", Want: row.Pristine, Got: p.Tree}
	}
	f.Patched = r.lockedPatched(row)
	return f, nil
}

// comparable says why nothing that a source gives for a locked ref can be told
// to be the right tree; nil where it can. A commit fixes what git gives, and
// only that.
func (r Request) comparable(from string) error {
	if r.Entry == nil {
		return nil
	}
	if _, ok := r.Entry.Source(from); ok || from == "git" && r.Entry.Commit != "" {
		return nil
	}
	return fmt.Errorf("%s does not say which tree it has; \"payload lock\" writes that", pin.LockName)
}

// lockedPatched is the patched tree of a row, as far as it's of this series.
func (r Request) lockedPatched(row pin.Source) string {
	switch {
	case r.Apply == nil:
		return row.Pristine
	case r.Entry != nil && slices.Equal(r.Entry.Patches, r.Patches):
		return row.Patched
	}
	return ""
}

// stored looks for a tree that any allowed source gave before.
func (s *Store) stored(ctx context.Context, req Request, up upstream, onDisk bool) (found, bool, error) {
	if req.Entry != nil {
		return s.storedLocked(ctx, req, onDisk)
	}
	kinds := req.kinds()
	alone := len(kinds) == 1 // the store alone may answer with anything it has
	if alone || slices.Contains(kinds, FromGit) {
		commit := up.answer.Commit
		if commit == "" { // no answer now: what upstream said last time
			id, err := s.repo.Text(ctx, "rev-parse", "-q", "--verify", answerRef(up.location, req.Ref)+"^{commit}")
			if err == nil {
				commit = id
				req.tell("upstream's last answer was commit %s", commit)
			}
		}
		if commit != "" {
			tree, ok, err := s.tree(ctx, pristineRef(commit))
			if err != nil || ok {
				return found{Pristine: Pristine{Tree: tree, Commit: commit, Build: pin.BuildNumber(req.Ref), From: "git", Stored: true}}, ok, err
			}
		}
	}
	if alone || slices.Contains(kinds, FromMirror) {
		for _, m := range req.Component.MirrorsOf(req.Ref) {
			if up.contradicts(m) {
				continue
			}
			p, ok, err := s.knownMirror(ctx, req, m)
			if err != nil || ok {
				return found{Pristine: p}, ok, err
			}
		}
	}
	return found{}, false, nil
}

// storedLocked looks for the trees that the lock names, in the order in which
// their sources would be tried. Those that may not be tried are left out.
func (s *Store) storedLocked(ctx context.Context, req Request, onDisk bool) (found, bool, error) {
	kinds := req.kinds()
	place := func(from string) int {
		if from == "git" {
			return slices.Index(kinds, FromGit)
		}
		return slices.Index(kinds, FromMirror)
	}
	rows := slices.Clone(req.Entry.Sources)
	if len(kinds) > 1 { // the store alone may answer with anything it has
		rows = slices.DeleteFunc(rows, func(row pin.Source) bool { return place(row.From) < 0 })
	}
	slices.SortStableFunc(rows, func(a, b pin.Source) int { return place(a.From) - place(b.From) })
	as := func(row pin.Source) found {
		p := Pristine{Tree: row.Pristine, Commit: req.Entry.Commit, Build: req.Entry.Build, From: row.From, Stored: true}
		return found{Pristine: p, Patched: req.lockedPatched(row)}
	}
	if onDisk {
		for _, row := range rows {
			if s.laidOut(treeKey(row.Pristine, req)) {
				return as(row), true, nil
			}
		}
	}
	for _, row := range rows {
		has, err := s.repo.Whole(ctx, row.Pristine+"^{tree}")
		if err != nil {
			return found{}, false, fmt.Errorf("looking in the store: %w", err)
		}
		if has {
			return as(row), true, nil
		}
	}
	return found{}, false, nil
}
