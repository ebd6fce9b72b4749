package review

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/report"
	"payload/internal/review/scan"
)

func classOf(rule config.Rule) class {
	c := class{id: rule.ID, what: rule.What, category: rule.Category, rule: rule}
	if c.what == "" {
		c.what = strings.ReplaceAll(rule.ID[strings.LastIndexByte(rule.ID, '.')+1:], "-", " ")
	}
	return c
}

// severityOf is what a rule says about a change; ok is false when it says
// nothing. Off is the empty severity.
func severityOf(rule config.Rule, change string) (report.Severity, bool) {
	s, ok := rule.Severity[change]
	if s == "off" {
		s = ""
	}
	return report.Severity(s), ok
}

// globs select those of our files that may depend on what a rule finds.
func (r *reviewer) globs(rule config.Rule) []string {
	if len(rule.Ours) > 0 || r.in.Component.Watch == nil {
		return rule.Ours
	}
	return r.in.Component.Watch.Ours
}

// rule runs one rule: it looks at both sides and adds the differences.
func (r *reviewer) rule(p *plan) {
	r.watched(p)
	if len(p.paths[before]) == 0 || len(p.paths[after]) == 0 {
		return // what a glob that matches nothing hides is not removed; that was told
	}
	if p.rule.Find == "logs" {
		r.logs(p)
		return
	}
	was, is := r.items(p, before), r.items(p, after)
	was = r.lost(p, was, is)
	byClass := map[string][2][]item{}
	var order []string
	for side, items := range [][]item{was, is} {
		for _, it := range items {
			both, known := byClass[it.class.id]
			if !known {
				order = append(order, it.class.id)
			}
			both[side] = append(both[side], it)
			byClass[it.class.id] = both
		}
	}
	for _, id := range order {
		both := byClass[id]
		if id == options {
			r.evaluate(both[before], both[after])
		}
		r.report(compare(both[before], both[after]))
	}
}

// watched tells of globs that match nothing.
func (r *reviewer) watched(p *plan) {
	place := []report.Place{{Path: config.FileName, Line: p.rule.Line}}
	for _, glob := range p.lost {
		f := report.Finding{
			ID: "watch.path-gone", Key: "watch.path-gone:" + p.rule.ID + ":" + glob, Category: p.rule.Category, Severity: report.Error,
			Title:  fmt.Sprintf("watched path %s matches nothing any more", glob),
			Detail: fmt.Sprintf("Rule %s can't see what becomes of it at %s.", p.rule.ID, r.in.New.Ref), Affects: place,
			Fix: "write the new place into payload.yaml",
		}
		for _, path := range filter(r.trees.paths[before], glob) {
			f.Where = append(f.Where, report.Place{Ref: r.in.Old.Ref, Path: path})
			to, renamed := r.trees.renamed[path]
			if !renamed {
				continue
			}
			f.Where = append(f.Where, report.Place{Ref: r.in.New.Ref, Path: to})
			f.Title = fmt.Sprintf("watched path %s is now %s", glob, to)
			f.Detail = fmt.Sprintf("Rule %s followed the rename this once.", p.rule.ID)
			f.Fix = fmt.Sprintf("write %s into payload.yaml", to)
		}
		f.Where = f.Where[:min(len(f.Where), 6)]
		r.add(f)
	}
	for _, glob := range p.dead {
		r.add(report.Finding{
			ID: "watch.path-dead", Key: "watch.path-dead:" + p.rule.ID + ":" + glob, Category: p.rule.Category, Severity: report.Warning,
			Title:  fmt.Sprintf("watched path %s matches nothing at either ref", glob),
			Detail: fmt.Sprintf("Rule %s looks there in vain.", p.rule.ID), Affects: place, Fix: "correct the path in payload.yaml",
		})
	}
}

// items are what a rule finds at one side.
func (r *reviewer) items(p *plan, side int) []item {
	ref := []string{r.in.Old.Ref, r.in.New.Ref}[side]
	e := &extractor{plan: p, class: classOf(p.rule), of: compileNames(p.rule.Of), filter: compileFilter(p.rule), side: side, trees: r.trees, types: r.trees.types(p, side)}
	if p.rule.Find == "files" {
		found := e.files()
		for i := range found {
			found[i].at.Ref = ref
			if to, ok := r.trees.renamed[found[i].name]; ok && side == before {
				found[i].alt = []string{to} // git has told its new name
			}
		}
		return found
	}
	var found []item
	for _, path := range p.needed(r.trees, side) {
		switch p.rule.Find {
		case "cmake":
			found = append(found, e.cmake(path, ref, r.trees.text(side, path))...)
		case "text":
			text := r.trees.text(side, path)
			if isSource(path) {
				text = scan.WithoutComments(path, text)
			}
			found = append(found, e.text(path, ref, text)...)
		default:
			found = append(found, extractors[p.rule.Find](e, unit{r.trees.parse(side, path), path, ref})...)
		}
	}
	if p.rule.Find == "cmake" {
		found = countRequired(withoutTargets(found))
	}
	return found
}

// isSource says whether a file is in a language whose comments are known.
func isSource(path string) bool {
	return sourceName.MatchString(path) || strings.HasSuffix(path, ".py")
}

// declares are the kinds whose names stand for one place each: when it is
// empty, the rule looks for something that has another name now.
var declares = []string{"flags", "routes", "enums", "fields", "tables", "bodies", "constants", "exits"}

// lost tells of names of a rule under which nothing is found any more, and
// takes out what was found there: it isn't known to be gone.
func (r *reviewer) lost(p *plan, was, is []item) []item {
	if !slices.Contains(declares, p.rule.Find) {
		return was
	}
	count := [2]map[string]int{{}, {}}
	for side, items := range [][]item{was, is} {
		for _, it := range items {
			count[side][it.from]++
		}
	}
	for _, of := range slices.Sorted(maps.Keys(count[before])) {
		if of == "" || strings.Contains(of, "*") || count[after][of] > 0 || r.elsewhere(p, of) {
			continue
		}
		places := slices.DeleteFunc(slices.Clone(was), func(it item) bool { return it.from != of })
		r.add(report.Finding{
			ID: "watch.name-gone", Key: "watch.name-gone:" + p.rule.ID + ":" + of, Category: p.rule.Category, Severity: report.Error,
			Title:   fmt.Sprintf("watched name %s is gone", of),
			Detail:  fmt.Sprintf("Rule %s found %s by it, and finds none at %s.", p.rule.ID, counted(len(places), classOf(p.rule)), r.in.New.Ref),
			Where:   []report.Place{places[0].at},
			Affects: append([]report.Place{{Path: config.FileName, Line: p.rule.Line}}, r.ours.naming(r.globs(p.rule), "word", last(of))...),
			Fix:     "find what replaced it, and write that into payload.yaml",
		})
		was = slices.DeleteFunc(was, func(it item) bool { return it.from == of })
	}
	return was
}

// elsewhere says whether a file that did not change, and so was not read, may
// hold the name.
func (r *reviewer) elsewhere(p *plan, _ string) bool {
	return slices.ContainsFunc(p.paths[after], r.trees.same)
}

func counted(n int, c class) string {
	if n == 1 {
		return "1 " + c.what
	}
	return fmt.Sprintf("%d %s", n, c.many())
}
