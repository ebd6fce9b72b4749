// Package drift looks for places in a repository that no longer say the same:
// pins and their copies, the series and what it exports to, presets and the
// options upstream has, the filters, keys and lists by which others decide what
// to build. Whatever goes out of step there fails silently: nothing is built, or
// something old is.
//
// It owns the table of checks in checks.go. Checks read; none of them changes a
// file, and --fix alone writes, for those whose cure is mechanical. It runs no
// build: what only a configure can tell is found by building.
package drift

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/sourcegraph/conc/iter"

	"payload/internal/ci"
	"payload/internal/config"
	"payload/internal/report"
	"payload/internal/workspace"
)

// Schema is the value of a result's first key.
const Schema = "payload.drift/v1"

// Options say what to look at.
type Options struct {
	Checks   []string // ids; empty: all that need no network
	Upstream bool     // also those that ask upstream
	Today    time.Time
	Timeout  time.Duration // for upstream's answers
	Exe      string        // this program, for generators that are it
}

// Result is what was found.
type Result struct {
	Schema   string           `json:"schema"`
	Checks   []Ran            `json:"checks"`
	Findings []report.Finding `json:"findings"`
	Waived   []report.Waived  `json:"waived"`
}

// Ran is a check that was run.
type Ran struct {
	ID       string `json:"id"`
	Findings int    `json:"findings"` // waived ones too
	Took     int64  `json:"took_ms"`
}

// Failed says whether there is something to do. Notes are for reading.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Severity != report.Note })
}

// UnknownCheckError is an id that no check has.
type UnknownCheckError struct{ ID string }

func (e *UnknownCheckError) Error() string {
	return fmt.Sprintf("there is no check %q; the checks are %s", e.ID, strings.Join(ids(), ", "))
}

func ids() []string {
	var list []string
	for _, c := range Checks() {
		list = append(list, c.ID)
	}
	return list
}

// Find gives the check with an id, or the one that a finding's id begins with.
func Find(id string) (Check, error) {
	for _, c := range Checks() {
		if id == c.ID || strings.HasPrefix(id, c.ID+".") {
			return c, nil
		}
	}
	return Check{}, &UnknownCheckError{ID: id}
}

// selected are the checks that options ask for, in the table's order.
func selected(opts Options) ([]Check, error) {
	wanted := map[string]bool{}
	for _, id := range opts.Checks {
		c, err := Find(id)
		if err != nil {
			return nil, err
		}
		wanted[c.ID] = true
	}
	var list []Check
	for _, c := range Checks() {
		if wanted[c.ID] || len(wanted) == 0 && (!c.Upstream || opts.Upstream) {
			list = append(list, c)
		}
	}
	return list, nil
}

// open reads what every check needs.
func open(ctx context.Context, w *workspace.Workspace, opts Options) (*repo, error) {
	files, err := ci.Files(ctx, w.File)
	if err != nil {
		return nil, err
	}
	projects, err := ci.Projects(w.File, files)
	if err != nil {
		return nil, err
	}
	return newRepo(w, opts, files, projects), nil
}

// Run runs the checks side by side. An error is a check that could not be run;
// what is wrong with the repository is in the findings.
func Run(ctx context.Context, w *workspace.Workspace, opts Options) (Result, error) {
	result := Result{Schema: Schema, Checks: []Ran{}, Findings: []report.Finding{}, Waived: []report.Waived{}}
	checks, err := selected(opts)
	if err != nil {
		return result, err
	}
	r, err := open(ctx, w, opts)
	if err != nil {
		return result, err
	}
	type answer struct {
		findings []report.Finding
		took     time.Duration
		err      error
	}
	answers := iter.Map(checks, func(c *Check) answer {
		started := time.Now()
		findings, err := c.run(ctx, r)
		if err != nil {
			err = fmt.Errorf("checking %s: %w", c.ID, err)
		}
		return answer{findings, time.Since(started), err}
	})
	var all []report.Finding
	for i, a := range answers {
		if a.err != nil {
			return result, a.err
		}
		all = append(all, a.findings...)
		result.Checks = append(result.Checks, Ran{ID: checks[i].ID, Findings: len(a.findings), Took: a.took.Milliseconds()})
	}
	result.waive(w.File, all, checks, opts.Today)
	return result, nil
}

// waive parts findings into those that stand and those that are accepted, and
// adds what is wrong with the waivers themselves.
func (r *Result) waive(f *config.File, all []report.Finding, checks []Check, today time.Time) {
	used := map[int]bool{}
	for _, finding := range all {
		waived := false
		for i, w := range f.Checks.Waivers {
			if !takes(w, finding) {
				continue
			}
			used[i] = true
			if !w.Expired(today) && !waived {
				waived = true
				r.Waived = append(r.Waived, report.Waived{Finding: finding, Reason: w.Reason, Expires: w.Expires})
			}
		}
		if !waived {
			r.Findings = append(r.Findings, finding)
		}
	}
	for i, w := range f.Checks.Waivers {
		at := report.Place{Path: config.FileName, Line: w.Line}
		c, err := Find(w.ID)
		ran := err == nil && slices.ContainsFunc(checks, func(o Check) bool { return o.ID == c.ID })
		switch {
		case err != nil:
			r.Findings = append(r.Findings, finding("waivers.unknown", w.ID, report.Error, at,
				fmt.Sprintf("the waiver of %s waives nothing", w.ID), "No check has findings with this id.", "payload drift --explain lists the checks"))
		case w.Expired(today):
			r.Findings = append(r.Findings, finding("waivers.expired", w.ID+" "+w.Expires, report.Error, at,
				fmt.Sprintf("the waiver of %s expired on %s", w.ID, w.Expires), "It was given because: "+w.Reason, "cure what it waived and delete it, or find a new reason and date"))
		case ran && !used[i]:
			r.Findings = append(r.Findings, finding("waivers.unused", w.ID+" "+w.Reason, report.Note, at,
				fmt.Sprintf("the waiver of %s is no longer needed", w.ID), "Nothing that it waives was found.", "delete it"))
		}
	}
}

func takes(w config.Waiver, f report.Finding) bool {
	if w.ID != f.ID || w.Key != "" && w.Key != f.Key {
		return false
	}
	in := func(p report.Place) bool { return doublestar.MatchUnvalidated(w.Path, p.Path) }
	return w.Path == "" || slices.ContainsFunc(f.Where, in)
}

// finding is a finding at one place. what tells it from others of its kind,
// whatever line they come to stand in.
func finding(id, what string, severity report.Severity, at report.Place, title, detail, fix string) report.Finding {
	kind, _, _ := strings.Cut(id, ".")
	return report.Finding{
		ID: id, Key: id + ":" + at.Path + ":" + what, Category: kind, Severity: severity, Title: title, Detail: detail, Fix: fix,
		Where: []report.Place{at},
	}
}

// Report is the result as all formats show it.
func (r Result) Report() report.Report {
	var rules []report.Rule
	for _, c := range Checks() {
		rules = append(rules, report.Rule{ID: c.ID, Title: c.Title, Help: c.Explanation})
	}
	summary := fmt.Sprintf("%d checks", len(r.Checks))
	if len(r.Waived) > 0 {
		summary += fmt.Sprintf(", %d waived", len(r.Waived))
	}
	return report.Report{
		Schema: Schema, Title: "payload drift", Summary: summary, Findings: r.Findings, Waived: r.Waived,
		Rules: rules, Fallback: config.FileName, Body: r,
	}
}
