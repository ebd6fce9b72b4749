// Package update moves a component to another ref as one transaction: the
// series is carried along, the repository is written to in one go, and what
// can't be carried is handed to a person in a work folder.
//
// It owns the list of steps, the state that survives a kill at any instant,
// and the journal by which the repository changes. It judges no patch
// (internal/patch does), and it writes nothing before everything is known: a
// conflict, a kill or an abort until then has touched no file of the
// repository.
package update

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"payload/internal/config"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/source"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// Options say what to move where.
type Options struct {
	Component   string
	Ref         string
	Base        string // the base branch, for reporting; empty: where the main one was left
	WithCoupled bool   // components that are coupled to it move too; see Coupled of payload.yaml
	DryRun      bool   // tell, and write nothing
	Preset      string // to build; empty for none
	Commit      bool   // make the two commits
}

// Finish says how an update that was opened before shall end; nil leaves what
// was asked for then. Component, where it is given, must be one that moves.
type Finish struct {
	Component string
	Preset    *string
	Commit    *bool
}

// Builder builds and verifies a preset of the repository as it stands.
type Builder func(ctx context.Context, preset string) (Built, error)

// job is the state that the steps hand on.
type job struct {
	place
	w     *workspace.Workspace
	v     *voice.Voice
	build Builder
	at    func(boundary string) // told at every boundary that a kill may fall on

	dry     bool
	state   *state
	comps   []*component
	result  Result
	files   map[string]*content // what changes; nil ones go
	journal *journal
}

// component is one that moves, on its way.
type component struct {
	now      workspace.Pinned
	to       workspace.Pinned // with the new series once that is known
	base     *Base
	old, new source.Pristine
	rebased  *patch.Rebased
	drop     map[string]string // files that go by their own condition, with why
	moved    Moved
}

func newJob(w *workspace.Workspace, v *voice.Voice, build Builder) *job {
	return &job{
		place: place{w.File.Root}, w: w, v: v, build: build, at: func(string) {},
		result: Result{Schema: Schema, Updates: []Moved{}, Files: Files{Mechanical: []string{}, Content: []string{}}, Coupled: []workspace.Agreement{}, Commits: []string{}},
	}
}

// Start moves a component. A patch that needs a person ends it with a
// *ConflictError, and it stays open; while another one is open the error is an
// *OpenError. The result holds what is known, whatever the error.
func Start(ctx context.Context, w *workspace.Workspace, v *voice.Voice, build Builder, opts Options) (Result, error) {
	j := newJob(w, v, build)
	err := j.start(ctx, opts)
	return j.result, err
}

func (j *job) start(ctx context.Context, opts Options) error {
	j.dry = opts.DryRun
	if err := pin.CheckRef(opts.Ref); err != nil {
		return fmt.Errorf("updating %s: %w", opts.Component, err)
	}
	j.state = &state{Version: 1, Preset: opts.Preset, Commit: opts.Commit, Base: opts.Base, Coupled: opts.WithCoupled, Decided: map[string]map[string]decided{}}
	if err := j.take(ctx, opts.Component, opts.Ref); err != nil {
		return err
	}
	if opts.Commit {
		if err := (checkout{j.root}).committable(ctx); err != nil {
			return err
		}
	}
	if opts.DryRun {
		return j.run(ctx)
	}
	release, err := j.open()
	if err != nil {
		return err
	}
	defer release()
	err = j.run(ctx)
	var conflict *ConflictError
	if err == nil || errors.As(err, &conflict) || j.journal != nil {
		return err
	}
	// Nothing was asked of anybody and nothing written: as if it had not begun.
	return errors.Join(err, j.clear(j.state, j.at))
}

// open claims the repository for this update.
func (j *job) open() (release func(), err error) {
	if err := j.litter(); err != nil {
		return nil, err
	}
	made, err := j.make()
	if err != nil {
		return nil, err
	}
	if release, err = j.hold(); err != nil {
		return nil, err
	}
	other, err := j.load()
	if err == nil && other != nil {
		err = &OpenError{Update: other.name()}
	}
	if err != nil {
		release()
		return nil, err
	}
	j.state.Made = made
	j.at("claimed")
	if err := j.save(j.state); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Continue goes on with the open update, after a conflict was resolved in its
// work folder, or after it was interrupted anywhere. A conflict that is not
// resolved is a *patch.UnresolvedError.
func Continue(ctx context.Context, w *workspace.Workspace, v *voice.Voice, build Builder, how Finish) (Result, error) {
	j := newJob(w, v, build)
	err := j.reopen(ctx, "--continue", how, j.resolution(ctx))
	return j.result, err
}

// resolution takes what was made of the conflict that the update stopped at.
func (j *job) resolution(ctx context.Context) func() error {
	return func() error {
		at := j.state.Stopped
		if at == nil {
			return nil
		}
		file, resolved, err := patch.Resolution(ctx, j.work(at.Component))
		if err != nil || file != at.File {
			return err // no folder, or not this one's: it is opened anew
		}
		j.decide(decided{Verdict: at.Verdict, Detail: at.Detail, Resolved: resolved})
		return nil
	}
}

// Skip leaves out the patch that the open update stopped at, and goes on.
func Skip(ctx context.Context, w *workspace.Workspace, v *voice.Voice, build Builder, reason string, how Finish) (Result, error) {
	j := newJob(w, v, build)
	err := j.reopen(ctx, "--skip", how, func() error {
		at := j.state.Stopped
		if at == nil {
			return ErrNoConflict
		}
		j.decide(decided{Verdict: at.Verdict, Detail: at.Detail, Reason: reason})
		return nil
	})
	return j.result, err
}

// ErrNoConflict is a --skip while no patch holds the update up.
var ErrNoConflict = errors.New("--skip: the open update waits for no patch")

// decide records what is settled about the patch that the update stopped at.
func (j *job) decide(d decided) {
	at := j.state.Stopped
	if j.state.Decided[at.Component] == nil {
		j.state.Decided[at.Component] = map[string]decided{}
	}
	j.state.Decided[at.Component][at.File] = d
	j.state.Stopped = nil
}

// reopen goes on with the open update once settle has had its say.
func (j *job) reopen(ctx context.Context, asked string, how Finish, settle func() error) error {
	release, err := j.enter(asked, how.Component)
	if err != nil {
		return err
	}
	defer release()
	if how.Preset != nil {
		j.state.Preset, j.state.Built = *how.Preset, false
	}
	if how.Commit != nil {
		j.state.Commit = *how.Commit
	}
	if j.journal != nil {
		if err := settle(); err != nil {
			return err
		}
		if err := j.save(j.state); err != nil {
			return err
		}
		j.result = *j.state.Result
		return j.run(ctx)
	}
	moves, known := j.state.Moves, j.state.Inputs
	j.state.Moves, j.state.Inputs = nil, nil
	for _, m := range moves {
		if err := j.take(ctx, m.Component, m.To); err != nil {
			return err
		}
	}
	if changed := differing(known, j.state.Inputs); len(changed) > 0 {
		return &ChangedError{Doing: asked, Paths: changed}
	}
	if err := settle(); err != nil {
		return err
	}
	if err := j.save(j.state); err != nil {
		return err
	}
	j.at("decided")
	err = j.run(ctx)
	var conflict *ConflictError
	if err != nil && j.journal == nil && !errors.As(err, &conflict) {
		j.v.Say("the update stays open: payload update --continue, or payload update --abort")
	}
	return err
}

// enter loads the open update and holds it. component, where it is given, must
// be one that it moves.
func (j *job) enter(asked, component string) (release func(), err error) {
	s, err := j.load()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.Join(&NoneOpenError{Asked: asked}, j.litter())
	}
	if release, err = j.hold(); err != nil {
		return nil, err
	}
	// Read again, now that nobody else writes it.
	if j.state, err = j.load(); err == nil && j.state == nil {
		err = &NoneOpenError{Asked: asked}
	}
	if err == nil && component != "" && !slices.ContainsFunc(j.state.Moves, func(m move) bool { return m.Component == component }) {
		err = &OpenError{Update: j.state.name()}
	}
	if err == nil {
		j.journal, err = j.read()
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Abort ends the open update and leaves the repository as it was before it. A
// file that was changed meanwhile is a *ChangedError, and then nothing is done.
// component, where it is given, must be one that moves.
func Abort(ctx context.Context, w *workspace.Workspace, v *voice.Voice, component string) (Result, error) {
	j := newJob(w, v, nil)
	err := j.abort(ctx, component)
	return j.result, err
}

func (j *job) abort(ctx context.Context, component string) error {
	release, err := j.enter("--abort", component)
	if err != nil {
		return err
	}
	defer release()
	if j.journal != nil {
		if _, err := j.left(*j.journal, oldSide); err != nil {
			return err // before the commits go
		}
	}
	if j.state.Before != nil {
		var paths []string
		for _, e := range j.journal.Files {
			paths = append(paths, e.Path)
		}
		if err := (checkout{j.root}).uncommit(ctx, j.state.Before, paths); err != nil {
			return err
		}
		j.at("uncommitted")
	}
	if j.journal != nil {
		if err := j.back(*j.journal, j.at); err != nil {
			return err
		}
	}
	for _, m := range j.state.Moves {
		j.result.Updates = append(j.result.Updates, Moved{Component: m.Component, From: m.From, To: m.To, Patches: []Patch{}})
	}
	j.result.Status = Aborted
	return j.clear(j.state, j.at)
}

// take adds a component to those that move, and what it is read from to the
// inputs.
func (j *job) take(ctx context.Context, name, ref string) error {
	p, err := j.w.Asked(name)
	if err != nil {
		return err
	}
	c := &component{now: p, to: j.w.At(p, ref)}
	if c.base, err = (checkout{j.root}).base(ctx, j.state.Base, p.Component); err != nil {
		return err
	}
	c.moved = Moved{Component: name, From: p.Ref, To: ref, Base: c.base, Patches: []Patch{}}
	j.comps = append(j.comps, c)
	j.state.Moves = append(j.state.Moves, move{Component: name, From: p.Ref, To: ref})
	if j.state.Inputs == nil {
		j.state.Inputs = map[string]string{}
	}
	for _, path := range j.inputs(p) {
		if j.state.Inputs[path], err = fingerprint(filepath.Join(j.root, filepath.FromSlash(path))); err != nil {
			return fmt.Errorf("reading what %s is made from: %w", name, err)
		}
	}
	return nil
}

// inputs lists the files of the repository that an update reads.
func (p place) inputs(of workspace.Pinned) []string {
	paths := []string{config.FileName, pin.LockName, of.Component.Pin}
	for _, k := range of.Component.Copies {
		paths = append(paths, k.Path)
	}
	for _, f := range of.Series.Patches {
		paths = append(paths, patchPath(of, f.File))
	}
	var read []string
	for _, path := range paths {
		read = append(read, p.content(path), p.name(path))
	}
	return read
}

func patchPath(p workspace.Pinned, file string) string { return path.Join(p.Component.Patches, file) }

// differing names the paths that two sets of fingerprints don't agree on.
func differing(a, b map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, known := a[name]; !known {
			names = append(names, name)
		}
	}
	return names
}
