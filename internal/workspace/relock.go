package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/source"
)

// apply is the function by which the store makes p's patched tree.
func (w *Workspace) apply(p Pinned) func(context.Context, git.Repo, string) (string, error) {
	return func(ctx context.Context, repo git.Repo, pristine string) (string, error) {
		tree, report, err := patch.Apply(ctx, repo, pristine, p.Series)
		var conflict *patch.ConflictError
		if errors.As(err, &conflict) {
			conflict.Report.Component, conflict.Report.Ref = p.Component.Name, p.Ref
			return "", err
		}
		if err != nil {
			return "", fmt.Errorf("applying the series to %s %s: %w", p.Component.Name, p.Ref, err)
		}
		for _, v := range report.Patches {
			if v.Verdict != patch.Clean {
				w.tell("warning: %s on %s %s: %s; see: payload patch check %s", v.File, p.Component.Name, p.Ref, v.Verdict, p.Component.Name)
			}
		}
		return tree, nil
	}
}

// Relock resolves one component's pin as it stands: its commit, and the trees
// of every source that can be read. A source that doesn't answer keeps the row
// it had for this ref. The lock in memory is changed; it still has to be saved.
func (w *Workspace) Relock(ctx context.Context, name string) (pin.Entry, error) {
	p, err := w.Asked(name)
	if err != nil {
		return pin.Entry{}, err
	}
	old, _ := w.Lock.Entry(name, p.Ref)
	entry := pin.Entry{Component: name, Ref: p.Ref, Build: pin.BuildNumber(p.Ref), Patches: p.Series.Digests()}
	var unread []error
	for _, s := range w.lockable(p) {
		got, err := w.store.Pristine(ctx, s.request)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return entry, err
		default:
			unread = append(unread, err)
			got, err = w.kept(ctx, old, s.from)
			if err != nil {
				w.tell("%s: %s could not be read and is not locked", name, s.from)
				continue
			}
			w.tell("%s: %s could not be read; its row is kept", name, s.from)
		}
		if entry.Commit != "" && got.Commit != "" && entry.Commit != got.Commit {
			return entry, fmt.Errorf("locking %s %s: %s is commit %s, but another source says %s", name, p.Ref, s.from, got.Commit, entry.Commit)
		}
		if got.Commit != "" {
			entry.Commit = got.Commit
		}
		patched, err := w.apply(p)(ctx, w.store.Repo(), got.Tree)
		if err != nil {
			return entry, err
		}
		entry.Sources = append(entry.Sources, pin.Source{From: s.from, Pristine: got.Tree, Patched: patched})
	}
	if len(entry.Sources) == 0 {
		return entry, fmt.Errorf("locking %s %s: no source could be read: %w", name, p.Ref, errors.Join(unread...))
	}
	// One entry a component: an older ref's beside it could only be out of date.
	w.Lock.Entries = slices.DeleteFunc(w.Lock.Entries, func(e pin.Entry) bool { return e.Component == name })
	w.Lock.Put(entry)
	return entry, nil
}

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
	request source.Request
}

// lockable lists the sources of p: upstream, then each mirror of the ref.
func (w *Workspace) lockable(p Pinned) []lockableSource {
	p.Entry = nil // the old row must not stop the new one
	req := w.request(p)
	req.Override = ""
	all := p.Component.MirrorsOf(p.Ref)
	req.Component.Mirrors = nil
	kinds := w.opts.Kinds
	if kinds == nil {
		kinds = source.DefaultKinds
	}
	var found []lockableSource
	for _, kind := range kinds {
		req.Kinds = []source.Kind{kind}
		switch kind {
		case source.FromGit:
			found = append(found, lockableSource{from: string(source.FromGit), request: req})
		case source.FromMirror:
			for _, m := range all {
				r := req
				r.Component.Mirrors = []config.Mirror{m}
				found = append(found, lockableSource{from: m.ID(), request: r})
			}
		case source.FromStore:
		}
	}
	return found
}

// kept is what the old entry says of a source that can't be read now, as far
// as its objects are still here to apply the series to.
func (w *Workspace) kept(ctx context.Context, old pin.Entry, from string) (source.Pristine, error) {
	for _, row := range old.Sources {
		if row.From != from {
			continue
		}
		has, err := w.store.Repo().Has(ctx, row.Pristine+"^{tree}")
		if err != nil {
			return source.Pristine{}, err
		}
		if has {
			return source.Pristine{Tree: row.Pristine, Commit: old.Commit, Build: old.Build, From: from}, nil
		}
	}
	return source.Pristine{}, errors.New("not in the lock")
}
