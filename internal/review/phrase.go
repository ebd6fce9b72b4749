package review

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"payload/internal/report"
)

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
