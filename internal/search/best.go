package search

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/source"
	"payload/internal/workspace"
)

// Probes is how many refs are asked at least before the search for the best
// ref gives up looking beyond a break. Halving 200 refs takes nine.
const Probes = 10

// The names of what is always asked, as a Probe and a Break have them.
const (
	Series = "series"
	Source = "source" // whether there is one at all
)

// Check is something that has to hold at a ref besides that the series applies.
type Check struct {
	Name string // what is looked at: "presets", "coupled pins"

	// Do tells whether it holds and, where it doesn't, why.
	Do func(ctx context.Context, ref string) (ok bool, why string, err error)
}

// BestOptions say what the best ref has to be.
type BestOptions struct {
	Options
	Checks         []Check  // in order, the cheap ones first
	MaxReviewLines int      // propose a step of at most this many changed lines; 0: none
	Paths          []string // count these alone, as git's path patterns; none: all
}

// Found is the best ref and why no later one is.
type Found struct {
	Schema    string       `json:"schema"` // payload.best/v1
	Component string       `json:"component"`
	Pinned    string       `json:"pinned"`
	Ref       string       `json:"ref"` // the best; the pinned one where no later one will do
	Series    patch.Result `json:"series"`
	Latest    string       `json:"latest"`
	Behind    int          `json:"behind"`         // refs from Ref to Latest
	Ahead     int          `json:"ahead"`          // refs from Pinned to Ref
	Next      *Break       `json:"next,omitempty"` // what breaks right after Ref
	Breaks    []PatchBreak `json:"breaks"`         // a patch that fails at some ref that was asked
	Step      *Step        `json:"step,omitempty"`
	Probes    []Probe      `json:"probes"` // in the order in which they were made
	NoSource  []string     `json:"no_source"`
	PassedBy  int          `json:"passed_over"` // refs that ignore and throttle leave out
	Unordered int          `json:"unordered"`   // refs that have no place among the others
	Away      string       `json:"away,omitempty"`
}

// Break is a ref at which something doesn't hold.
type Break struct {
	Ref   string `json:"ref"`
	Check string `json:"check"` // Series, or a Check's name
	Why   string `json:"why"`
}

// PatchBreak is the first ref at which a patch doesn't apply any more.
type PatchBreak struct {
	File    string        `json:"file"`
	After   string        `json:"after"` // the last ref before at which it applies
	Ref     string        `json:"ref"`
	Verdict patch.Verdict `json:"verdict"`
	Detail  string        `json:"detail"`
	Again   bool          `json:"again"`  // it applies at the latest ref
	Probes  int           `json:"probes"` // refs that were asked for it beyond those asked before
}

// Step is a smaller update than the best one.
type Step struct {
	Max   int    `json:"max"`   // lines
	Ref   string `json:"ref"`   // empty where even the next ref changes more
	Lines int    `json:"lines"` // changed from the pinned ref to Ref, or to the next one
}

// Probe is one ref that was asked.
type Probe struct {
	Ref    string       `json:"ref"`
	Series patch.Result `json:"series,omitempty"`
	Failed string       `json:"failed,omitempty"` // Series, Source or a Check's name
	Why    string       `json:"why,omitempty"`
}

// prober asks refs, and remembers.
type prober struct {
	w       *workspace.Workspace
	p       workspace.Pinned
	refs    []string
	opts    BestOptions
	reports map[int]patch.Report
	probes  map[int]*Probe
	order   []*Probe
}

// Best finds the newest ref at which the series applies (clean or with a
// refresh) and every check holds, and for each patch that fails somewhere the
// first ref at which it does. A series that doesn't apply at the pinned ref
// itself is a *patch.ConflictError.
func Best(ctx context.Context, w *workspace.Workspace, name string, opts BestOptions) (Found, error) {
	list, err := List(ctx, w, name, opts.Options)
	if err != nil {
		return Found{}, err
	}
	f := Found{
		Schema: "payload.best/v1", Component: name, Pinned: list.Pinned.Ref, Ref: list.Pinned.Ref, Latest: list.Pinned.Ref,
		Breaks: []PatchBreak{}, Probes: []Probe{}, NoSource: []string{}, Unordered: len(list.Unordered), Away: list.Away,
	}
	newer, passedBy, err := list.Newer()
	if err != nil {
		return f, err
	}
	f.PassedBy = passedBy
	base, err := w.CheckSeries(ctx, list.Pinned, list.Pinned.Ref)
	if err != nil {
		return f, err
	}
	if f.Series = base.Result; f.Series == patch.ResultConflict {
		return f, &patch.ConflictError{Report: base}
	}
	if len(newer) == 0 {
		return f, nil
	}
	f.Latest = newer[len(newer)-1]
	s := &prober{w: w.Quiet(), p: list.Pinned, refs: newer, opts: opts, reports: map[int]patch.Report{}, probes: map[int]*Probe{}}
	search := newAsked(len(newer), func(i int) (outcome, error) { return s.ask(ctx, i) })
	best, broken, err := search.newest(Probes)
	if err != nil {
		return f, err
	}
	f.Ahead, f.Behind = best+1, len(newer)-1-best
	if best >= 0 {
		f.Ref, f.Series = newer[best], s.reports[best].Result
	}
	if broken < len(newer) {
		b := s.probes[broken]
		f.Next = &Break{Ref: b.Ref, Check: b.Failed, Why: b.Why}
	}
	if f.Breaks, err = s.breaks(ctx); err != nil {
		return f, err
	}
	if opts.MaxReviewLines > 0 && best >= 0 {
		if f.Step, err = s.step(ctx, best, search); err != nil {
			return f, err
		}
	}
	for _, p := range s.order {
		if p.Failed == Source {
			f.NoSource = append(f.NoSource, p.Ref)
			continue
		}
		f.Probes = append(f.Probes, *p)
	}
	return f, nil
}

// ask asks all of one ref.
func (s *prober) ask(ctx context.Context, i int) (outcome, error) {
	report, o, err := s.series(ctx, i)
	if err != nil || o != good {
		return o, err
	}
	p := s.probes[i]
	if report.Result == patch.ResultConflict {
		return bad, nil
	}
	for _, c := range s.opts.Checks {
		ok, why, err := c.Do(ctx, s.refs[i])
		if err != nil {
			return out, fmt.Errorf("checking the %s of %s %s: %w", c.Name, s.p.Component.Name, s.refs[i], err)
		}
		if !ok {
			p.Failed, p.Why = c.Name, why
			s.opts.tell("%s %s: %s: %s", s.p.Component.Name, p.Ref, p.Failed, p.Why)
			return bad, nil
		}
	}
	return good, nil
}

// series judges the patches at one ref; it's out where no source has the ref.
func (s *prober) series(ctx context.Context, i int) (patch.Report, outcome, error) {
	if p := s.probes[i]; p != nil {
		if p.Failed == Source {
			return patch.Report{}, out, nil
		}
		return s.reports[i], good, nil
	}
	ref := s.refs[i]
	report, err := s.w.CheckSeries(ctx, s.p, ref)
	p := &Probe{Ref: ref, Series: report.Result}
	if missing, ok := errors.AsType[*source.NoSourceError](err); ok && source.Passable(ctx, err) && missing.Ref == ref {
		p.Failed, p.Why, p.Series, err = Source, missing.Error(), "", nil
	}
	if err != nil {
		return report, out, err
	}
	s.probes[i], s.reports[i], s.order = p, report, append(s.order, p)
	if p.Failed != "" {
		s.opts.tell("%s %s is left out: %s", s.p.Component.Name, ref, p.Why)
		return report, out, nil
	}
	if report.Result == patch.ResultConflict {
		p.Failed, p.Why = Series, (&patch.ConflictError{Report: report}).Error()
	}
	s.opts.tell("%s %s: %s", s.p.Component.Name, ref, report.Result)
	return report, good, nil
}

// breaks finds the first break of every patch that fails at some ref that was
// asked.
func (s *prober) breaks(ctx context.Context) ([]PatchBreak, error) {
	found := []PatchBreak{}
	for n, of := range s.p.Series.Patches {
		before := len(s.order)
		a := newAsked(len(s.refs), func(i int) (outcome, error) {
			report, o, err := s.series(ctx, i)
			if err == nil && o == good && report.Patches[n].Failed() {
				o = bad
			}
			return o, err
		})
		for i := range s.refs {
			if s.probes[i] == nil {
				continue
			}
			if _, err := a.at(i); err != nil {
				return found, err
			}
		}
		last, first, err := a.firstBad()
		if err != nil {
			return found, err
		}
		if first == len(s.refs) {
			continue
		}
		after := s.p.Ref
		if last >= 0 {
			after = s.refs[last]
		}
		o, err := a.at(len(s.refs) - 1)
		if err != nil {
			return found, err
		}
		verdict := s.reports[first].Patches[n]
		found = append(found, PatchBreak{
			File: of.File, After: after, Ref: s.refs[first], Verdict: verdict.Verdict, Detail: verdict.Detail,
			Again: o == good, Probes: len(s.order) - before,
		})
	}
	return found, nil
}

// step finds the newest good ref up to best that changes few enough lines.
func (s *prober) step(ctx context.Context, best int, search *asked) (*Step, error) {
	step := &Step{Max: s.opts.MaxReviewLines}
	lines := map[int]int{}
	fits := newAsked(best+1, func(i int) (outcome, error) {
		n, err := s.w.ChangedLines(ctx, s.p, s.refs[i], s.opts.Paths)
		if missing, ok := errors.AsType[*source.NoSourceError](err); ok && source.Passable(ctx, err) && missing.Ref == s.refs[i] {
			return out, nil
		}
		lines[i] = n
		if n > step.Max {
			return bad, err
		}
		return good, err
	})
	// Lines grow with the refs, as good as always.
	last, first, err := fits.narrow(-1, best+1)
	if err != nil {
		return nil, err
	}
	if last >= 0 {
		upTo := &asked{n: last + 1, known: search.known, ask: search.ask}
		if last, _, err = upTo.newest(Probes); err != nil {
			return nil, err
		}
	}
	if last < 0 {
		step.Lines = lines[min(first, best)]
		return step, nil
	}
	step.Ref = s.refs[last]
	step.Lines, err = s.w.ChangedLines(ctx, s.p, step.Ref, s.opts.Paths)
	return step, err
}

// CoupledCheck asks whether the pins that are coupled to name's agree with a
// ref of it; with along, whether there are refs at which they would.
func CoupledCheck(w *workspace.Workspace, name string, along bool, opts Options) Check {
	return Check{Name: "coupled pins", Do: func(ctx context.Context, ref string) (bool, string, error) {
		list, err := w.Coupled(ctx, name, map[string]string{name: ref})
		if err != nil {
			return false, "", err
		}
		for _, a := range list {
			agrees := a.Agrees
			switch {
			case agrees || !along:
			case a.Component == name:
				agrees = a.Wants != ""
			default:
				other, err := Wanting(ctx, w, a.Component, name, ref, opts)
				if err != nil {
					return false, "", err
				}
				agrees = other != ""
			}
			if !agrees {
				return false, a.String(), nil
			}
		}
		return true, "", nil
	}}
}

// Wanting finds the newest ref of name whose tree wants other at otherRef, for
// moving both at once. It is empty where none does.
func Wanting(ctx context.Context, w *workspace.Workspace, name, other, otherRef string, opts Options) (string, error) {
	list, err := List(ctx, w, name, opts)
	if err != nil {
		return "", err
	}
	// Newest first and not by halves: what is wanted rises and then passes by.
	for _, ref := range slices.Backward(list.All) {
		if ref != list.Pinned.Ref && pin.PassedOver(list.Pinned.Component, ref) != "" {
			continue
		}
		agreed, err := w.Coupled(ctx, name, map[string]string{name: ref, other: otherRef})
		if missing, ok := errors.AsType[*source.NoSourceError](err); ok && source.Passable(ctx, err) && missing.Ref == ref {
			continue
		}
		if err != nil {
			return "", err
		}
		for _, a := range agreed {
			if a.Component != name || a.Other != other {
				continue
			}
			if a.Agrees {
				return ref, nil
			}
			if order, ok := pin.Compare(a.Wants, otherRef); ok && order < 0 {
				return "", nil // older ones want older ones
			}
		}
	}
	return "", nil
}
