package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/source"
)

// apply is the function by which the store makes p's patched tree, of a series
// that was made for the tree base, where that is another one.
func (w *Workspace) apply(p Pinned, base string) func(context.Context, git.Repo, string) (string, error) {
	return func(ctx context.Context, repo git.Repo, pristine string) (string, error) {
		tree, report, err := patch.ApplyFrom(ctx, repo, base, pristine, p.Series)
		if err != nil {
			return "", w.Named(w.store.Full(err), p)
		}
		if base != "" {
			return tree, nil // carried: that it doesn't lie as it did is what was asked for
		}
		for _, v := range report.Patches {
			if v.Verdict != patch.Clean {
				w.tell("warning: %s on %s %s: %s; see: payload patch check %s", v.File, p.Component.Name, p.Ref, v.Verdict, p.Component.Name)
			}
		}
		return tree, nil
	}
}

// Named is an error about p's series, with what the series is for.
func (w *Workspace) Named(err error, p Pinned) error {
	var conflict *patch.ConflictError
	if errors.As(err, &conflict) {
		conflict.Report.Component, conflict.Report.Ref = p.Component.Name, p.Ref
		return err // its own message names them
	}
	return fmt.Errorf("patches of %s %s: %w", p.Component.Name, p.Ref, err)
}

// Relock resolves one component's pin as it stands: its commit, and the trees
// of every source that can be read. A source that isn't asked, or doesn't
// answer, keeps the row it had for this ref. The lock in memory is changed; it
// still has to be saved.
func (w *Workspace) Relock(ctx context.Context, name string) (pin.Entry, error) {
	p, err := w.Asked(name)
	if err != nil {
		return pin.Entry{}, err
	}
	return w.RelockAs(ctx, p)
}

// RelockAs is Relock for a component with another pin or series than the
// repository holds.
func (w *Workspace) RelockAs(ctx context.Context, p Pinned) (pin.Entry, error) {
	name := p.Component.Name
	old, _ := w.Lock.Entry(name, p.Ref)
	entry := pin.Entry{Component: name, Ref: p.Ref, Build: pin.BuildNumber(p.Ref), Patches: p.Series.Digests(), Prebuilt: prebuiltRows(p)}
	var unread []string
	for _, s := range w.lockable(p) {
		got, err := source.Pristine{}, errNotAsked
		if s.asked {
			got, err = w.store.Pristine(ctx, s.request)
		}
		if err != nil && !errors.Is(err, errNotAsked) && !source.Passable(ctx, err) {
			return entry, err // what a source gave is wrong: that must be seen
		}
		keep := false
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s: %v", s.from, err))
			row, ok := old.Source(s.from)
			keep = ok && slices.Equal(old.Patches, entry.Patches)
			if ok && !keep { // the series changed; is what it applies to still here?
				ok, _ = w.store.Repo().Has(ctx, row.Pristine+"^{tree}")
			}
			if !ok {
				w.tell("%s: not locked from %s: %v", name, s.from, err)
				continue
			}
			w.tell("%s: the row of %s is kept: %v", name, s.from, err)
			got = source.Pristine{Tree: row.Pristine, Commit: old.Commit}
		}
		if entry.Commit != "" && got.Commit != "" && entry.Commit != got.Commit {
			return entry, fmt.Errorf("locking %s %s: %s is commit %s, but another source says %s", name, p.Ref, s.from, got.Commit, entry.Commit)
		}
		if got.Commit != "" {
			entry.Commit = got.Commit
		}
		entry.Build = max(entry.Build, got.Build)
		if keep {
			row, _ := old.Source(s.from)
			entry.Sources = append(entry.Sources, row)
			continue
		}
		patched, err := w.apply(p, "")(ctx, w.store.Repo(), got.Tree)
		if err != nil {
			return entry, err
		}
		entry.Sources = append(entry.Sources, pin.Source{From: s.from, Pristine: got.Tree, Patched: patched})
	}
	if len(entry.Sources) == 0 {
		return entry, fmt.Errorf("locking %s %s: no source could be read: %s", name, p.Ref, strings.Join(unread, "; "))
	}
	// One entry a component: an older ref's beside it could only be out of date.
	w.Lock.Entries = slices.DeleteFunc(w.Lock.Entries, func(e pin.Entry) bool { return e.Component == name })
	w.Lock.Put(entry)
	return entry, nil
}

var errNotAsked = errors.New("not asked")

// SortLock puts the lock's entries in payload.yaml's order and drops those of
// components that are gone.
func (w *Workspace) SortLock() {
	var names []string
	for _, c := range w.File.Components {
		names = append(names, c.Name)
	}
	w.Lock.Entries = slices.DeleteFunc(w.Lock.Entries, func(e pin.Entry) bool { return !slices.Contains(names, e.Component) })
	w.Lock.Sort(names)
}

// lockableSource is one source that gets a row of its own.
type lockableSource struct {
	from    string
	asked   bool // the kinds that are allowed have it
	request source.Request
}

// lockable lists the sources of p: upstream, then each mirror of the ref.
func (w *Workspace) lockable(p Pinned) []lockableSource {
	p.Entry = nil // the old row must not stop the new one
	kinds := w.kinds()
	request := func(kind source.Kind, mirrors ...config.Mirror) source.Request {
		req := w.request(p)
		req.Override, req.Kinds, req.Component.Mirrors = "", []source.Kind{kind}, mirrors
		return req
	}
	found := []lockableSource{{
		from: string(source.FromGit), asked: slices.Contains(kinds, source.FromGit), request: request(source.FromGit),
	}}
	for _, m := range p.Component.MirrorsOf(p.Ref) {
		found = append(found, lockableSource{
			from: m.ID(), asked: slices.Contains(kinds, source.FromMirror), request: request(source.FromMirror, m),
		})
	}
	return found
}
