package drift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"payload/internal/config"
	"payload/internal/pin"
	"payload/internal/report"
)

func checkLock(ctx context.Context, r *repo) ([]report.Finding, error) {
	var found []report.Finding
	lockText, err := os.ReadFile(r.file.Abs(pin.LockName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", pin.LockName, err)
	}
	relock := func(name string) string { return "payload lock " + name + ", or payload drift --fix" }
	known := map[string]bool{}
	for _, c := range r.file.Components {
		known[c.Name] = true
		p, err := r.w.Pinned(c.Name)
		var wrong *pin.Disagreement
		switch {
		case errors.As(err, &wrong) && len(wrong.Locked) > 0:
			f := finding("lock.pin", c.Name, report.Error, place(c.Pin, 1),
				fmt.Sprintf("%s is pinned at %s, and the lock holds %s", c.Name, wrong.Ref, strings.Join(wrong.Locked, ", ")), "", relock(c.Name))
			f.Where = append(f.Where, place(pin.LockName, lineOf(string(lockText), "component: "+c.Name)))
			found = append(found, f)
			continue
		case errors.As(err, &wrong):
			for _, said := range wrong.Patches { // "FILE (changed)"
				file, _, _ := strings.Cut(said, " (")
				at := place(path.Join(c.Patches, file), 1)
				if !r.has(at.Path) { // gone, or the order as a whole
					at = place(pin.LockName, max(1, lineOf(string(lockText), "file: "+file)))
				}
				found = append(found, finding("lock.patches", c.Name+" "+file, report.Error, at,
					fmt.Sprintf("the series of %s is not the one that is locked: %s", c.Name, said), "", relock(c.Name)))
			}
			continue
		case err != nil: // the pin itself can't be read
			found = append(found, finding("lock.unreadable", c.Name, report.Error, place(c.Pin, 1), fmt.Sprintf("the pin of %s can't be read", c.Name), err.Error(), ""))
			continue
		case p.Entry == nil:
			found = append(found, finding("lock.missing", c.Name, report.Error, place(c.Pin, 1), fmt.Sprintf("%s is not in %s", c.Name, pin.LockName), "Whatever a source answers would be built.", relock(c.Name)))
			continue
		}
		t, err := r.trees[c.Name](ctx)
		if err != nil {
			return nil, err
		}
		row, ok := p.Entry.Source(t.from)
		if ok && t.patched != "" && row.Patched != t.patched {
			found = append(found, finding("lock.tree", c.Name, report.Error, place(pin.LockName, lineOf(string(lockText), row.Patched)),
				fmt.Sprintf("the series makes another tree of %s %s than the lock says", c.Name, p.Ref),
				fmt.Sprintf("locked %s, made %s from %s", row.Patched, t.patched, t.from), relock(c.Name)))
		}
	}
	for _, e := range r.w.Lock.Entries {
		if !known[e.Component] {
			found = append(found, finding("lock.stale", e.Component, report.Warning, place(pin.LockName, lineOf(string(lockText), "component: "+e.Component)),
				fmt.Sprintf("the lock holds %s, which %s does not have", e.Component, config.FileName), "", "payload lock, or payload drift --fix"))
		}
	}
	return found, nil
}

// fixLock writes the lock anew for what disagrees.
func fixLock(ctx context.Context, r *repo) ([]string, error) {
	findings, err := checkLock(ctx, r)
	if err != nil || len(findings) == 0 {
		return nil, err
	}
	for _, c := range r.file.Components {
		if _, err := r.w.Relock(ctx, c.Name); err != nil {
			return nil, err
		}
	}
	r.w.SortLock()
	if err := r.w.Lock.Save(r.file.Root); err != nil {
		return nil, err
	}
	return []string{"wrote " + pin.LockName}, nil
}

func checkCopies(_ context.Context, r *repo) ([]report.Finding, error) {
	var found []report.Finding
	for _, c := range r.file.Components {
		if len(c.Copies) == 0 {
			continue
		}
		ref, err := pin.Read(r.file, c)
		if err != nil {
			continue // lock.unreadable
		}
		places, err := pin.Copies(r.file, c, ref)
		var gone *pin.CopyError
		if errors.As(err, &gone) {
			at := place(gone.Path, 0)
			if !r.has(gone.Path) {
				at = place(config.FileName, 0)
			}
			found = append(found, finding("copies.missing", c.Name+" "+gone.Path, report.Error, at,
				fmt.Sprintf("the copy of %s's pin in %s can't be found", c.Name, gone.Path), gone.Why, "correct \"copies\" of "+c.Name+" in "+config.FileName))
		} else if err != nil {
			return nil, err
		}
		for _, p := range places {
			if !p.Agrees {
				found = append(found, finding("copies.differs", c.Name, report.Error, place(p.Path, p.Line),
					fmt.Sprintf("%s is pinned at %s, and this copy says %s", c.Name, ref, p.Ref), "", "payload drift --fix"))
			}
		}
	}
	return found, nil
}

func fixCopies(_ context.Context, r *repo) ([]string, error) {
	var did []string
	for _, c := range r.file.Components {
		ref, err := pin.Read(r.file, c)
		if err != nil {
			return did, err
		}
		changed, err := pin.SetCopies(r.file, c, ref)
		for _, file := range changed {
			did = append(did, fmt.Sprintf("wrote %s into %s", ref, file))
		}
		var gone *pin.CopyError
		if err != nil && !errors.As(err, &gone) { // one that is gone is a person's to correct
			return did, err
		}
	}
	return did, nil
}

func checkCoupled(ctx context.Context, r *repo) ([]report.Finding, error) {
	var found []report.Finding
	for _, c := range r.file.Components {
		locked := len(c.Coupled) > 0
		for _, name := range append(others(c), c.Name) {
			p, err := r.w.Asked(name)
			locked = locked && err == nil && p.Entry != nil
		}
		if !locked { // nothing to compare, or the lock check tells
			continue
		}
		agreements, err := r.w.Coupled(ctx, c.Name, nil)
		if err != nil {
			return nil, err
		}
		for _, a := range agreements {
			if a.Agrees || a.Component != c.Name { // the other direction is that component's own
				continue
			}
			id, other := "coupled.differs", c
			if a.Wants == "" {
				id = "coupled.unknown"
			} else if other, err = r.file.Component(a.Other); err != nil {
				return nil, err
			}
			f := finding(id, c.Name+" "+a.Other, report.Error, place(other.Pin, 1), a.String(), "", "pin them together: payload update "+a.Other+" --ref "+a.Wants)
			if a.Wants == "" {
				f.Fix = "correct \"coupled\" of " + c.Name + " in " + config.FileName
			}
			if a.Line > 0 {
				f.Where = append(f.Where, report.Place{Ref: c.Name + "@" + a.Ref, Path: a.Path, Line: a.Line})
			}
			found = append(found, f)
		}
	}
	return found, nil
}

// others are the components that c is coupled to.
func others(c config.Component) []string {
	var names []string
	for _, k := range c.Coupled {
		names = append(names, k.Component)
	}
	return names
}
