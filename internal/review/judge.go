package review

import (
	"fmt"
	"slices"
	"strings"

	"payload/internal/report"
	"payload/internal/review/scan"
)

// report turns the differences of one class into findings.
func (r *reviewer) report(list []difference) {
	list = r.vanished(list)
	groups := map[string][]report.Finding{}
	var order []string
	for _, d := range list {
		for _, f := range r.judge(d) {
			group := ""
			if f.Severity == report.Note && !depends(f.Affects) {
				group = f.ID + "\x00" + f.Category
			}
			if group == "" {
				r.add(f)
				continue
			}
			if groups[group] == nil {
				order = append(order, group)
			}
			groups[group] = append(groups[group], f)
		}
	}
	c := class{}
	if len(list) > 0 {
		c = classIn(list[0])
	}
	for _, group := range order {
		if found := groups[group]; len(found) > maxSingle {
			r.add(together(c, found))
		} else {
			for _, f := range found {
				r.add(f)
			}
		}
	}
}

// vanished tells of functions that are gone with all that was found in them, as
// one finding each, and gives the other differences.
func (r *reviewer) vanished(list []difference) []difference {
	lost := map[string][]*item{}
	var order []string
	rest := slices.DeleteFunc(list, func(d difference) bool {
		if d.change != "removed" || d.new != nil || d.old.scope == "" || d.old.class.rule.Find != "keys" || r.hasScope(d.old) {
			return false
		}
		if lost[d.old.scope] == nil {
			order = append(order, d.old.scope)
		}
		lost[d.old.scope] = append(lost[d.old.scope], d.old)
		return true
	})
	for _, scope := range order {
		first := lost[scope][0]
		var names []string
		for _, it := range lost[scope] {
			names = append(names, it.name)
		}
		id := first.class.findingID("removed")
		r.add(report.Finding{
			ID: id, Key: id + ":" + scope, Category: first.class.category, Severity: report.Warning,
			Title: fmt.Sprintf("%s is gone, with its %s: %s", scope, counted(len(names), first.class), strings.Join(names, ", ")),
			Where: []report.Place{first.at}, Affects: r.ours.naming(r.globs(first.class.rule), "word", last(scope)),
		})
	}
	return rest
}

// hasScope says whether the function that an item was found in still exists.
func (r *reviewer) hasScope(it *item) bool {
	path := it.at.Path
	if to, ok := r.trees.renamed[path]; ok {
		path = to
	}
	return slices.ContainsFunc(r.trees.parse(after, path).Scopes, func(s scan.Scope) bool { return s.Name == it.scope })
}

func classIn(d difference) class {
	if d.new != nil {
		return d.new.class
	}
	return d.old.class
}

// maxSingle is how many notes of one kind stand alone; more are told together.
const maxSingle = 3

// together makes one note of many.
func together(c class, found []report.Finding) report.Finding {
	f := found[0]
	var names, details []string
	f.Where, f.Affects = nil, nil
	for _, one := range found {
		names = append(names, nameIn(one))
		if one.Detail != "" {
			details = append(details, nameIn(one)+": "+strings.ReplaceAll(one.Detail, "\n", "; "))
		}
		f.Where = append(f.Where, one.Where...)
		f.Affects = append(f.Affects, one.Affects...)
	}
	change := f.ID[strings.LastIndexAny(f.ID, ".")+1:]
	change = strings.TrimPrefix(change, strings.TrimPrefix(c.id[strings.LastIndexByte(c.id, '.')+1:], ".")+"-")
	said := map[string]string{
		"help-changed": "described differently", "env-changed": "with another environment variable", "handler-changed": "with another handler",
	}[change]
	if said == "" {
		said = strings.ReplaceAll(change, "-", " ")
	}
	f.Title = fmt.Sprintf("%s %s: %s", counted(len(found), c), said, strings.Join(names, ", "))
	f.Detail = strings.Join(details, "\n")
	f.Key = f.ID + ":" + strings.Join(names, ",")
	return f
}

// nameIn is the name that a single finding's key ends with.
func nameIn(f report.Finding) string { return strings.TrimPrefix(f.Key, f.ID+":") }

// judge gives the findings of one difference.
func (r *reviewer) judge(d difference) []report.Finding {
	it := d.old
	if it == nil {
		it = d.new
	}
	rule := it.class.rule
	f := report.Finding{Category: it.class.category, Fix: rule.Fix}
	for _, side := range []*item{d.old, d.new} {
		if side != nil && side.at.Path != "" {
			f.Where = append(f.Where, side.at)
		}
	}
	if d.change != "added" { // nothing can depend on what is new
		f.Affects = r.ours.naming(r.globs(rule), rule.Uses, it.names()...)
	}
	name := r.named(*it)
	if d.change == "changed" {
		return r.changed(d, f)
	}
	f.ID = it.class.findingID(d.change)
	f.Key = f.ID + ":" + it.keyName()
	switch d.change {
	case "added":
		f.Severity = report.Note
		f.Title = fmt.Sprintf("%s %s added", it.class.what, name)
		f.Detail = describe(*d.new)
	case "removed":
		f.Severity = report.Warning
		f.Title = fmt.Sprintf("%s %s removed", it.class.what, name)
		f.Detail = describe(*d.old)
		if d.new != nil {
			f.Detail = fmt.Sprintf("%s is still there.", d.new.shown())
			f.Fix = fix(f.Fix, f.Affects, "write %s in its place in %s", d.new.name)
		} else {
			f.Fix = fix(f.Fix, f.Affects, "take %s out of %s, or find what replaces it", it.name)
		}
	case "renamed":
		f.Severity = report.Warning
		now := d.new.shown()
		if d.new.scope == d.old.scope {
			now = strings.TrimSuffix(now, " of "+d.new.scope)
		}
		f.Title = fmt.Sprintf("%s %s is now %s", it.class.what, name, now)
		f.Detail = changes(d)
		f.Fix = fix(f.Fix, f.Affects, "write %s in its place in %s", d.new.name)
	}
	needed := weigh(&f, d)
	if s, ok := severityOf(rule, d.change); ok && !needed {
		f.Severity = s
	}
	if f.Severity == "" {
		return nil
	}
	if d.change != "added" && depends(f.Affects) && !needed {
		f.Severity = report.Error
	}
	return []report.Finding{f}
}

// weigh corrects the severity of what a build needs, of which more is a risk
// and less is none; needed says whether the item is such.
func weigh(f *report.Finding, d difference) (needed bool) {
	it := d.new
	if it == nil {
		it = d.old
	}
	switch it.class.id {
	case packages, libraries, tools, network:
	case generated:
		f.Severity, f.Affects = report.Note, nil
		return true
	case toolchain:
		f.Severity = ""
		if d.change == "added" {
			f.Severity = report.Note
		}
		return true
	default:
		return false
	}
	f.Severity = report.Note
	if d.change == "added" && (it.class.id == network || it.attrs["required"] != "") {
		f.Severity = report.Warning
		if it.class.id == network {
			f.Fix = "make sure that no preset of ours turns it on, or that its content is pinned"
		} else {
			f.Fix = "add it to the tools and packages that the presets need"
		}
	}
	if d.change != "added" {
		f.Affects, f.Fix = nil, ""
	}
	return true
}

// keyName names an item in a fingerprint: without lines and without the ref.
func (i item) keyName() string {
	if i.scope != "" {
		return i.scope + "." + i.name
	}
	return i.name
}
