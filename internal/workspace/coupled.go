package workspace

import (
	"context"
	"fmt"
	"slices"

	"payload/internal/config"
	"payload/internal/pin"
)

// Agreement is one coupling, looked at: which ref of another component a
// component's own tree asks for, and which one that has.
type Agreement struct {
	Component string `json:"component"` // whose tree was read
	Ref       string `json:"ref"`       // at which ref
	Path      string `json:"path"`      // the file in that tree
	Line      int    `json:"line"`      // from 1; 0 where nothing was found
	Other     string `json:"other"`     // the component that it wants
	Wants     string `json:"wants"`     // at this ref; empty where nothing was found
	Has       string `json:"has"`       // the ref that Other has
	Agrees    bool   `json:"agrees"`
	Problem   string `json:"problem,omitempty"` // why Wants is empty
}

// String is the agreement as a sentence.
func (a Agreement) String() string {
	switch {
	case a.Wants == "":
		return fmt.Sprintf("%s %s does not tell which %s it wants: %s", a.Component, a.Ref, a.Other, a.Problem)
	case a.Agrees:
		return fmt.Sprintf("%s %s wants %s %s, as pinned", a.Component, a.Ref, a.Other, a.Wants)
	}
	return fmt.Sprintf("%s %s wants %s %s, and %s is pinned (%s:%d)", a.Component, a.Ref, a.Other, a.Wants, a.Has, a.Path, a.Line)
}

// Coupled looks at every coupling that name takes part in: what its own tree
// asks of others, and what the trees of others ask of it. refs holds the refs
// of components that are to move, in place of their pins; those that stand
// still are left out of it. A tree that can't be had is an error.
func (w *Workspace) Coupled(ctx context.Context, name string, refs map[string]string) ([]Agreement, error) {
	if _, err := w.File.Component(name); err != nil {
		return nil, err
	}
	list := []Agreement{}
	for _, c := range w.File.Components {
		for _, k := range c.Coupled {
			if c.Name != name && k.Component != name {
				continue
			}
			a, err := w.agreement(ctx, c, k, refs)
			if err != nil {
				return list, fmt.Errorf("asking %s which %s it wants: %w", c.Name, k.Component, err)
			}
			list = append(list, a)
		}
	}
	return list, nil
}

func (w *Workspace) agreement(ctx context.Context, c config.Component, k config.Coupled, refs map[string]string) (Agreement, error) {
	a := Agreement{Component: c.Name, Path: k.Path, Other: k.Component}
	p, err := w.moved(c.Name, refs)
	if err != nil {
		return a, err
	}
	other, err := w.moved(k.Component, refs)
	if err != nil {
		return a, err
	}
	a.Ref, a.Has = p.Ref, other.Ref
	tree, err := w.Pristine(ctx, p)
	if err != nil {
		return a, err
	}
	object := tree.Tree + ":" + k.Path
	has, err := w.store.Repo().Has(ctx, object)
	if err != nil {
		return a, fmt.Errorf("looking for %s: %w", k.Path, err)
	}
	if !has {
		a.Problem = k.Path + " is not there"
		return a, nil
	}
	text, err := w.store.Repo().Text(ctx, "cat-file", "blob", object)
	if err != nil {
		return a, fmt.Errorf("reading %s: %w", k.Path, err)
	}
	for _, at := range k.Regexp().FindAllStringSubmatchIndex(text, -1) {
		if at[2] < 0 || at[2] == at[3] {
			continue
		}
		said, line := text[at[2]:at[3]], pin.LineAt([]byte(text), at[2])
		if a.Wants != "" && said != a.Wants {
			a.Problem = fmt.Sprintf("line %d of %s says %s, line %d %s", a.Line, k.Path, a.Wants, line, said)
			a.Line, a.Wants = 0, ""
			return a, nil
		}
		if a.Wants == "" {
			a.Line, a.Wants = line, said
		}
	}
	if a.Wants == "" {
		a.Problem = fmt.Sprintf("nothing in %s matches %q", k.Path, k.Pattern)
		return a, nil
	}
	a.Agrees = names(a.Wants, other)
	return a, nil
}

// moved is a component at the ref that refs gives it, else at its pin.
func (w *Workspace) moved(name string, refs map[string]string) (Pinned, error) {
	p, err := w.Asked(name)
	if err != nil || refs[name] == "" {
		return p, err
	}
	return w.At(p, refs[name]), nil
}

// names says whether a ref, as another project writes it, is p's: the same
// text, the same version (v1.2 and 1.2), or p's commit.
func names(ref string, p Pinned) bool {
	order, ok := pin.Compare(ref, p.Ref)
	if ok && order == 0 {
		return true
	}
	commit := func(m config.Mirror) bool { return m.Commit == ref }
	return config.IsObjectID(ref) && (p.Entry != nil && p.Entry.Commit == ref || slices.ContainsFunc(p.Component.MirrorsOf(p.Ref), commit))
}
