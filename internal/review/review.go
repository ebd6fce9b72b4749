// Package review tells what a component's new ref changes for this repository.
//
// It reads the git objects of two pristine refs, never a patched tree, and
// compares sets of named things: options, flags, routes, keys, log lines, enum
// members, whatever the component's watch rules in payload.yaml find. Names are
// found in tokens, so a comment, another order or another layout is no change.
// Each difference becomes a report.Finding with its place at both refs and the
// places in this repository that name it; those come first.
//
// It owns no knowledge of any component: what is looked for is data. It writes
// nothing but a cache of what CMake answered.
package review

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/report"
	"payload/internal/source"
)

// Schema is the first key of the verb's JSON.
const Schema = "payload.review/v1"

// Side is one of the two refs.
type Side struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit,omitempty"` // upstream's, where the source says it
	Tree   string `json:"tree"`             // git tree id
}

// Input is what a review is made from.
type Input struct {
	Repo      git.Repo
	File      *config.File
	Component config.Component
	Old, New  Side
	// Configured gives what a real configure of each side answered; nil where
	// nobody configured. Patches are findings about carried patches.
	Configured *ConfiguredPair
	History    *source.History // upstream's, nil where it is not here
	Patches    []report.Finding
	Carried    []Carried
	Asked      [2]*Answers // of both programs, where they were started
}

// Carried is a patch of ours and the files that it changes.
type Carried struct {
	File  string // relative to the repository
	Paths []string
}

// Result is a finished review.
type Result struct {
	Schema    string           `json:"schema"`
	Component string           `json:"component"`
	Old       Side             `json:"old"`
	New       Side             `json:"new"`
	Files     int              `json:"files"`      // that differ
	Evaluated bool             `json:"configured"` // defaults come from a real configure of both refs
	Findings  []report.Finding `json:"findings"`
}

// Run compares the two sides. It reads each side once and starts a handful of
// git processes, however many files differ.
func Run(ctx context.Context, in Input) (Result, error) {
	res := Result{Schema: Schema, Component: in.Component.Name, Old: in.Old, New: in.New, Findings: []report.Finding{}}
	trees, err := readTrees(ctx, in)
	if err != nil {
		return res, err
	}
	res.Files = len(trees.changes)
	r := &reviewer{in: in, trees: trees}
	if in.Component.Watch != nil {
		for _, rule := range in.Component.Watch.Rules {
			r.plans = append(r.plans, trees.plan(rule, in.Component.Watch.Ignore))
		}
	}
	if err := trees.load(ctx, in.Repo, r.plans); err != nil {
		return res, err
	}
	if r.ours, err = readOurs(ctx, in.File.Root); err != nil {
		return res, err
	}
	r.routes = r.endpoints()
	for _, p := range r.plans {
		r.rule(p)
	}
	r.carried()
	r.asked()
	res.Evaluated = in.Configured != nil
	found := slices.Concat(r.findings, in.Patches)
	if err := addCommits(ctx, in, found); err != nil {
		return res, err
	}
	for i := range found {
		found[i].Command = r.command(found[i])
	}
	rank(found)
	res.Findings = append(res.Findings, unique(found)...)
	return res, nil
}

// reviewer collects findings.
type reviewer struct {
	in       Input
	trees    *trees
	plans    []*plan
	ours     *ours
	routes   map[string][]string // handler -> endpoints, at the new ref
	findings []report.Finding
}

func (r *reviewer) add(f report.Finding) { r.findings = append(r.findings, f) }

// carried tells which files of ours patches upstream has changed too, of those
// patches about which nothing worse is known.
func (r *reviewer) carried() {
	for _, c := range r.in.Carried {
		place := []report.Place{{Path: c.File}}
		judged := slices.ContainsFunc(r.in.Patches, func(f report.Finding) bool { return slices.Contains(f.Affects, place[0]) })
		for _, path := range c.Paths {
			if judged || r.trees.same(path) || r.trees.files[before][path] == "" || r.trees.files[after][path] == "" {
				continue
			}
			r.add(report.Finding{
				ID: "patches.target-changed", Key: "patches.target-changed:" + c.File + ":" + path, Category: patchCategory, Severity: report.Note,
				Title:  fmt.Sprintf("upstream changed %s, as %s does", path, c.File),
				Detail: "The patch still applies as it is. Whether it still means the same, only its diff tells.",
				Where:  []report.Place{{Ref: r.in.Old.Ref, Path: path}, {Ref: r.in.New.Ref, Path: path}}, Affects: place,
			})
		}
	}
}

// endpoints tells which endpoints a handler serves.
func (r *reviewer) endpoints() map[string][]string {
	found := map[string][]string{}
	for _, p := range r.plans {
		if p.rule.Find != "routes" {
			continue
		}
		for _, it := range r.items(p, after) {
			if h := it.attrs["handler"]; h != "" && !slices.Contains(found[h], it.name) {
				found[h] = append(found[h], it.name)
			}
		}
	}
	return found
}

// Count counts the findings of a severity.
func (r Result) Count(s report.Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// Summary says in one line how much was found.
func (r Result) Summary() string {
	number := func(n int, one string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %ss", n, one)
	}
	differ := " differ"
	if r.Files == 1 {
		differ = " differs"
	}
	return strings.Join([]string{
		number(r.Count(report.Error), "error"), number(r.Count(report.Warning), "warning"),
		number(r.Count(report.Note), "note") + "; " + number(r.Files, "file") + differ,
	}, ", ")
}

// unique makes keys differ: where several findings have one, a number follows.
func unique(found []report.Finding) []report.Finding {
	seen := map[string]int{}
	for i, f := range found {
		if seen[f.Key]++; seen[f.Key] > 1 {
			found[i].Key = fmt.Sprintf("%s#%d", f.Key, seen[f.Key])
		}
	}
	return found
}

var severityRank = map[report.Severity]int{report.Error: 0, report.Warning: 1, report.Note: 2}

// rank orders by risk: severity, then what our files depend on, then category.
func rank(found []report.Finding) {
	slices.SortStableFunc(found, func(a, b report.Finding) int {
		if d := severityRank[a.Severity] - severityRank[b.Severity]; d != 0 {
			return d
		}
		if d := min(len(b.Affects), 1) - min(len(a.Affects), 1); d != 0 {
			return d
		}
		return slices.Index(config.Categories, a.Category) - slices.Index(config.Categories, b.Category)
	})
}
