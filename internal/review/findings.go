package review

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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
			found = append(found, extractors[p.rule.Find](e, source{r.trees.parse(side, path), path, ref})...)
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

// attribute says how a change of one attribute is told.
type attribute struct {
	suffix string // of the id
	strong bool   // a warning by itself
	breaks bool   // an error where our files depend on the item
}

var attributes = map[string]attribute{
	"default":    {"default-changed", true, false},
	"argument":   {"argument-changed", true, true},
	"signature":  {"signature-changed", true, true},
	"type":       {"type-changed", true, true},
	"value":      {"value-changed", true, false},
	"required":   {"now-required", true, false},
	"version":    {"version-changed", true, false},
	"deprecated": {"deprecated", true, false},
	"kind":       {"kind-changed", false, false},
	"body":       {"changed", false, false},
	"help":       {"help-changed", false, false},
	"env":        {"env-changed", false, true},
	"handler":    {"handler-changed", false, false},
	"components": {"components-changed", false, false},
	"url":        {"url-changed", false, false},
	"tag":        {"tag-changed", false, false},
	"call":       {"call-changed", false, false},
	"arguments":  {"arguments-changed", false, false},
}

// report turns the differences of one class into findings.
func (r *reviewer) report(list []difference) {
	list = r.vanished(list)
	groups := map[string][]report.Finding{}
	var order []string
	for _, d := range list {
		for _, f := range r.findings1(d) {
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
		c = cmpClass(list[0])
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

func cmpClass(d difference) class {
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

// findings1 are the findings of one difference.
func (r *reviewer) findings1(d difference) []report.Finding {
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

// named is an item's name for a title; a key of a handler has its endpoint too.
func (r *reviewer) named(it item) string {
	name := it.shown()
	if routes := r.routes[last(it.scope)]; it.scope != "" && len(routes) > 0 {
		name += " (" + strings.Join(routes[:min(len(routes), 3)], ", ") + ")"
	}
	return name
}

// fix is the rule's advice, or one that names our files.
func fix(given string, affects []report.Place, format, name string) string {
	if given != "" || len(affects) == 0 {
		return given
	}
	var files []string
	for _, p := range affects {
		if !slices.Contains(files, p.Path) {
			files = append(files, p.Path)
		}
	}
	return fmt.Sprintf(format, name, strings.Join(files, ", "))
}

// describe tells what is known of an item.
func describe(it item) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(it.attrs)) {
		value := it.attrs[key]
		if value == "" || key == "body" || key == "access" {
			continue
		}
		if key == "required" {
			value = "yes"
		}
		list = append(list, strings.ReplaceAll(key, "_", " ")+": "+clip(value))
	}
	return strings.Join(list, "\n")
}

// changes lists the attributes that differ.
func changes(d difference) string {
	var list []string
	for _, key := range d.attrs {
		if key == "body" || key == "condition" || key == "access" {
			continue
		}
		list = append(list, fmt.Sprintf("%s was: %s\n%s is: %s", key, clip(d.old.attrs[key]), key, clip(d.new.attrs[key])))
	}
	return strings.Join(list, "\n")
}

func clip(text string) string {
	if len(text) > 400 {
		return strings.ToValidUTF8(text[:400], "") + "…"
	}
	return text
}

// changed gives a finding for each attribute that differs.
func (r *reviewer) changed(d difference, f report.Finding) []report.Finding {
	var found []report.Finding
	for _, key := range d.attrs {
		a, told := attributes[key]
		if !told {
			continue
		}
		one := f
		if key == "env" { // who uses the flag need not use the variable
			one.Affects = r.ours.naming(r.globs(d.old.class.rule), "word", strings.Fields(d.old.attrs[key])...)
		}
		was, is := d.old.attrs[key], d.new.attrs[key]
		one.ID = d.old.class.findingID(a.suffix)
		one.Severity = report.Note
		if a.strong {
			one.Severity = report.Warning
		}
		one.Detail = fmt.Sprintf("was: %s\nis: %s", clip(was), clip(is))
		r.phrase(&one, d, key, was, is)
		if one.Severity == "" {
			continue
		}
		for _, side := range []*item{d.old, d.new} {
			if key == "default" && side.also != nil {
				one.Where = append(slices.Clone(one.Where), *side.also)
			}
		}
		if s, ok := severityOf(d.old.class.rule, "changed"); ok && (a.strong || key == "body") {
			if s == "" {
				continue
			}
			one.Severity = s
		}
		if a.breaks && depends(one.Affects) {
			one.Severity = report.Error
		}
		one.Key = one.ID + ":" + d.old.keyName()
		found = append(found, one)
	}
	return found
}

// phrase writes the title of a changed attribute, and what to do.
func (r *reviewer) phrase(f *report.Finding, d difference, key, was, is string) {
	c, name := d.new.class, r.named(*d.new)
	f.Title = fmt.Sprintf("%s of %s %s: %s → %s", key, c.what, name, short(was), short(is))
	switch key {
	case "default":
		if d.new.attrs["evaluated"] == "same" {
			f.Severity = report.Note
			f.Detail += "\nEvaluated as a sub-project on this machine, both are " + d.new.attrs["is"] + "."
			return
		}
		if d.new.attrs["type"] == "BOOL" && isBool(was) && isBool(is) && isOn(was) != isOn(is) {
			f.ID = c.findingID("default-flipped")
		}
		if f.Fix == "" {
			if set := r.setsOption(d.new.name); set != nil {
				f.Detail += fmt.Sprintf("\n%s:%d sets it, so the new default does not reach that build.", set.Path, set.Line)
				f.Severity = report.Note
			} else {
				f.Fix = fmt.Sprintf("set %s where the old value is wanted", d.new.name)
			}
		}
	case "argument":
		switch {
		case was == "":
			f.ID, f.Title = c.findingID("takes-value"), fmt.Sprintf("%s %s now takes a value: %s", c.what, name, is)
		case is == "":
			f.ID, f.Title = c.findingID("takes-no-value"), fmt.Sprintf("%s %s takes no value any more", c.what, name)
		default:
			// Another word for the same value is no change of form.
			f.Severity = report.Note
			f.ID = c.findingID("help-changed")
			f.Title = fmt.Sprintf("%s %s describes its value as %s, was %s", c.what, name, is, was)
		}
		f.Fix = fix(f.Fix, f.Affects, "change how %s is given in %s", d.new.name)
	case "signature":
		f.Title = fmt.Sprintf("%s %s has another signature", c.what, name)
	case "type":
		f.Title = fmt.Sprintf("type of %s %s: %s → %s", c.what, name, short(was), short(is))
	case "required":
		f.Title = fmt.Sprintf("%s %s is now required", c.what, name)
		switch {
		case is == "":
			f.ID, f.Severity = c.findingID("not-required"), report.Note
			f.Title = fmt.Sprintf("%s %s is not required any more", c.what, name)
		case was != "" && number(is) < number(was):
			f.ID, f.Severity = c.findingID("not-required"), report.Note
			f.Title = fmt.Sprintf("%s %s is required in %s places, was %s", c.what, name, is, was)
		case was != "":
			f.Title = fmt.Sprintf("%s %s is required in %s places, was %s", c.what, name, is, was)
		}
		f.Detail = describe(*d.new)
	case "version":
		if c.id == toolchain {
			f.Title = fmt.Sprintf("%s: %s → %s", name, short(was), short(is))
		}
	case "deprecated":
		f.Title = fmt.Sprintf("%s %s is deprecated: %s", c.what, name, short(is))
		if is == "" {
			f.Severity = report.Note
			f.Title = fmt.Sprintf("%s %s is not deprecated any more", c.what, name)
		}
	case "body":
		f.Title = fmt.Sprintf("%s %s works differently", c.what, name)
		f.Detail = statementChanges(was, is)
	case "help":
		f.Title = fmt.Sprintf("%s %s is described differently", c.what, name)
	case "env":
		f.Title = fmt.Sprintf("%s %s: environment variable %s → %s", c.what, name, short(was), short(is))
	}
}

// number reads what countRequired wrote.
func number(text string) int {
	n, _ := strconv.Atoi(text) // 0 for none
	return n
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	switch {
	case text == "":
		return "none"
	case len(text) > 80:
		return strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}

// statementChanges lists statements that only one of two bodies has.
func statementChanges(was, is string) string {
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	gone, came := onlyIn(a, b), onlyIn(b, a)
	var list []string
	for _, s := range gone[:min(len(gone), 8)] {
		list = append(list, "- "+clip(s))
	}
	for _, s := range came[:min(len(came), 8)] {
		list = append(list, "+ "+clip(s))
	}
	if more := len(gone) + len(came) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more statements", more))
	}
	if len(list) == 0 {
		return "The same statements stand in another order."
	}
	return strings.Join(list, "\n")
}

func onlyIn(a, b []string) []string {
	count := map[string]int{}
	for _, s := range b {
		count[s]++
	}
	var list []string
	for _, s := range a {
		if count[s] > 0 {
			count[s]--
			continue
		}
		list = append(list, s)
	}
	return list
}

// isBool says whether a default is a plain yes or no, not an expression.
func isBool(value string) bool {
	return slices.Contains([]string{"ON", "OFF", "YES", "NO", "TRUE", "FALSE", "1", "0"}, strings.ToUpper(value))
}

// isOn is how CMake reads such a word.
func isOn(value string) bool {
	return slices.Contains([]string{"ON", "YES", "TRUE", "1"}, strings.ToUpper(value))
}
