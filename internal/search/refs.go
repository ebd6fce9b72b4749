// Package search finds the ref of upstream to move to: the refs in order, the
// latest that may be taken, the best at which all that is asked still holds,
// and the first at which a command fails.
//
// It owns the search and the state of a bisection; what holds at one ref is
// asked of the packages below and of functions that it is handed. It changes
// no pin, lock or patch.
package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"payload/internal/pin"
	"payload/internal/source"
	"payload/internal/workspace"
)

// Refs is a component's refs in order.
type Refs struct {
	Pinned    workspace.Pinned
	All       []string // oldest first, the pinned one among them
	Unordered []string // those that nothing puts in a place among All
	Away      string   // why upstream wasn't asked; All is what mirrors hold then

	facts pin.Facts
}

// UnorderedError is a ref without a place among upstream's others.
type UnorderedError struct{ Component, Ref, Why string }

func (e *UnorderedError) Error() string {
	return fmt.Sprintf("ordering the refs of %s: where %s stands among the others can't be told: %s", e.Component, e.Ref, e.Why)
}

func (r Refs) unordered(ref string) error {
	why := "neither names, commits nor build numbers say"
	switch {
	case r.Away != "":
		why = "upstream was not asked: " + r.Away
	case !pin.Numbered(r.Pinned.Component, ref):
		why = "it has no number"
	}
	return &UnorderedError{Component: r.Pinned.Component.Name, Ref: ref, Why: why}
}

// Options say how refs are listed.
type Options struct {
	// History allows fetching upstream's commits, without files, where names
	// alone don't order all refs.
	History bool
	Tell    func(format string, args ...any)
}

func (o Options) tell(format string, args ...any) {
	if o.Tell != nil {
		o.Tell(format, args...)
	}
}

// List gives a component's refs: upstream's tags of its families, and those
// that mirrors hold. Where upstream doesn't answer, mirrors alone are asked, and
// Away says so. A pinned tag that moved since the lock is a *pin.MovedTagError.
func List(ctx context.Context, w *workspace.Workspace, name string, opts Options) (Refs, error) {
	p, err := w.Asked(name)
	if err != nil {
		return Refs{}, err
	}
	r := Refs{Pinned: p, facts: pin.Facts{Commits: map[string]string{}, Builds: map[string]int{}}}
	refs := []string{p.Ref} // first: the others are put among its family
	if err := r.askTags(ctx, w); err != nil {
		return r, err
	}
	for ref := range r.facts.Commits {
		refs = append(refs, ref)
	}
	r.know(w)
	if w.Asks(source.FromMirror) {
		for _, m := range p.Component.Mirrors {
			refs = append(refs, m.Ref)
		}
	}
	refs = slices.DeleteFunc(refs, func(ref string) bool {
		return ref != p.Ref && !pin.InFamily(p.Component, p.Ref, ref)
	})
	slices.Sort(refs[1:]) // a map gave them
	r.All, r.Unordered = r.facts.Sort(refs)
	if r.Away != "" {
		opts.tell("note: the upstream of %s was not asked (%s); of the refs that mirrors hold: %s", name, r.Away, strings.Join(r.All, " "))
	}
	if opts.History && r.Away == "" && r.mixed() {
		r.askLineage(ctx, w, opts)
		r.All, r.Unordered = r.facts.Sort(refs)
	}
	return r, ctx.Err()
}

// askTags fills in the commits of upstream's tags.
func (r *Refs) askTags(ctx context.Context, w *workspace.Workspace) error {
	if !w.Asks(source.FromGit) {
		r.Away = "the kinds of source leave git out"
		return nil
	}
	timeout, err := pin.Timeout()
	if err != nil {
		return err
	}
	tags, err := pin.Tags(ctx, w.File.Location(r.Pinned.Component), timeout)
	if away, ok := errors.AsType[*pin.UnreachableError](err); ok {
		r.Away = away.Error()
		return nil
	}
	if err != nil {
		return err
	}
	if e := r.Pinned.Entry; e != nil {
		if err := e.Moved(tags); err != nil {
			return err
		}
	}
	for _, t := range tags {
		r.facts.Commits[t.Name] = t.Commit
	}
	return nil
}

// know adds what lock and mirrors say of refs that upstream said nothing of.
func (r *Refs) know(w *workspace.Workspace) {
	add := func(ref, commit string, build int) {
		if commit != "" && r.facts.Commits[ref] == "" {
			r.facts.Commits[ref] = commit
		}
		if build > 0 {
			r.facts.Builds[ref] = build
		}
	}
	for _, m := range r.Pinned.Component.Mirrors {
		add(m.Ref, m.Commit, m.Build)
	}
	for _, e := range w.Lock.Entries {
		if e.Component == r.Pinned.Component.Name {
			add(e.Ref, e.Commit, e.Build)
		}
	}
}

// mixed says whether names alone don't order all refs.
func (r *Refs) mixed() bool {
	for _, ref := range slices.Concat(r.All, r.Unordered) {
		if _, ok := pin.Compare(ref, r.Pinned.Ref); !ok {
			return true
		}
	}
	return false
}

func (r *Refs) askLineage(ctx context.Context, w *workspace.Workspace, opts Options) {
	h, err := w.Store().Lineage(ctx, w.File.Location(r.Pinned.Component), opts.tell)
	if err == nil {
		r.facts.Places, err = h.Places(ctx)
	}
	if err != nil && ctx.Err() == nil {
		opts.tell("note: %v; refs are ordered by build numbers alone", err)
	}
}

// Newer lists the refs after the pinned one that latest and best may take,
// oldest first, and how many they pass over. A pinned ref without a place among
// the others is an *UnorderedError.
func (r Refs) Newer() (newer []string, passedOver int, err error) {
	alone := len(r.All) == 1
	if alone && (len(r.Unordered) > 0 || !pin.Numbered(r.Pinned.Component, r.Pinned.Ref)) {
		return nil, 0, r.unordered(r.Pinned.Ref)
	}
	for _, ref := range r.All[slices.Index(r.All, r.Pinned.Ref)+1:] {
		if pin.PassedOver(r.Pinned.Component, ref) != "" {
			passedOver++
			continue
		}
		newer = append(newer, ref)
	}
	return newer, passedOver, nil
}

// Range lists the refs after old up to new. One that the list lacks, or that
// comes in the wrong order, is an error.
func (r Refs) Range(old, new string) ([]string, error) {
	at := map[string]int{}
	for i, ref := range r.All {
		at[ref] = i
	}
	for _, ref := range []string{old, new} {
		if _, ok := at[ref]; ok {
			continue
		}
		if slices.Contains(r.Unordered, ref) {
			return nil, r.unordered(ref)
		}
		why := ""
		if r.Away != "" {
			why = "; upstream was not asked (" + r.Away + "), and the mirrors hold " + fmt.Sprint(r.All)
		}
		return nil, &NotListedError{Component: r.Pinned.Component.Name, Ref: ref, Why: why}
	}
	if at[old] >= at[new] {
		return nil, &RangeError{Component: r.Pinned.Component.Name, Old: old, New: new}
	}
	return r.All[at[old]+1 : at[new]+1], nil
}

// RangeError is a range whose ends come in the wrong order, or are one.
type RangeError struct{ Component, Old, New string }

func (e *RangeError) Error() string {
	return fmt.Sprintf("reading the range %s..%s: %s does not come before %s", e.Old, e.New, e.Old, e.New)
}

// NotListedError is a ref that isn't among a component's tags.
type NotListedError struct{ Component, Ref, Why string }

func (e *NotListedError) Error() string {
	return fmt.Sprintf("%s is not among the tags of %s%s", e.Ref, e.Component, e.Why)
}

// Latest is the newest ref that may be taken, and how many the pin is behind.
// Where there is nothing newer, it's the pin.
func Latest(ctx context.Context, w *workspace.Workspace, name string, opts Options) (ref string, behind int, refs Refs, err error) {
	refs, err = List(ctx, w, name, opts)
	if err != nil {
		return "", 0, refs, err
	}
	newer, _, err := refs.Newer()
	if err != nil || len(newer) == 0 {
		return refs.Pinned.Ref, 0, refs, err
	}
	return newer[len(newer)-1], len(newer), refs, nil
}
