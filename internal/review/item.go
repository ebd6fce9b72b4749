package review

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/report"
)

// class is a kind of named thing: what its findings are called.
type class struct {
	id       string // begins the finding's id
	what     string // noun
	plural   string // empty: what and an s
	category string
	rule     config.Rule
}

func (c class) many() string {
	if c.plural != "" {
		return c.plural
	}
	if stem, ok := strings.CutSuffix(c.what, "y"); ok && !strings.HasSuffix(c.what, "ey") {
		return stem + "ies"
	}
	return c.what + "s"
}

// findingID is the id for a change: server.flag-removed, options.removed.
func (c class) findingID(change string) string {
	if strings.Contains(c.id, ".") {
		return c.id + "-" + change
	}
	return c.id + "." + change
}

// item is one named thing at one side.
type item struct {
	class class
	name  string
	alt   []string          // further names that mean the same: aliases of a flag
	scope string            // what it belongs to, a part of its identity: a type, a function
	attrs map[string]string // what else is known of it
	from  string            // which of the rule's names it was found by
	at    report.Place
	also  *report.Place // where its default stands, when that is elsewhere
	uses  []string      // how our files may name it; empty: name and alt
}

func (i item) identity() string { return i.class.id + "\x00" + i.scope + "\x00" + i.name }

// names are all names of the item, as our files may write them.
func (i item) names() []string {
	if len(i.uses) > 0 {
		return i.uses
	}
	return append([]string{i.name}, i.alt...)
}

// shown is the item's name for a title.
func (i item) shown() string {
	name := strings.Join(append([]string{i.name}, i.alt...), ", ")
	if i.class.rule.Find == "files" {
		name = i.name
	}
	name = strings.ReplaceAll(name, "\n", "\\n")
	if i.scope != "" && !strings.Contains(name, i.scope) {
		name += " of " + i.scope
	}
	return name
}

// names of a rule as patterns: a dotted path matches by its end, and * stands
// for any text.
type names struct {
	patterns []*namePattern
	known    map[string]string // of a name: the rule's spelling, empty for none
}

type namePattern struct {
	text string
	re   *regexp.Regexp
}

func compileNames(of []string) names {
	list := names{known: map[string]string{}}
	for _, text := range of {
		dotted := strings.ReplaceAll(text, "::", ".")
		re := regexp.MustCompile(`(^|\.)` + strings.ReplaceAll(regexp.QuoteMeta(dotted), `\*`, `[^.]*`) + `$`)
		list.patterns = append(list.patterns, &namePattern{text: text, re: re})
	}
	return list
}

func (n names) empty() bool { return len(n.patterns) == 0 }

// match gives the rule's own spelling of the name that path ends with. A file
// holds few names, each many times.
func (n names) match(path string) (string, bool) {
	if text, ok := n.known[path]; ok {
		return text, text != ""
	}
	name := strings.ReplaceAll(path, "::", ".")
	n.known[path] = ""
	for _, p := range n.patterns {
		if p.re.MatchString(name) {
			n.known[path] = p.text
			break
		}
	}
	return n.known[path], n.known[path] != ""
}

// last is the last part of a dotted or qualified name.
func last(name string) string {
	name = name[strings.LastIndexByte(name, '.')+1:]
	return name[strings.LastIndexByte(name, ':')+1:]
}

// nameFilter is a rule's match and except.
type nameFilter struct{ match, except *regexp.Regexp }

func compileFilter(r config.Rule) nameFilter {
	var f nameFilter
	if r.Match != "" {
		f.match = regexp.MustCompile(r.Match)
	}
	if r.Except != "" {
		f.except = regexp.MustCompile(r.Except)
	}
	return f
}

func (f nameFilter) ok(name string) bool {
	return (f.match == nil || f.match.MatchString(name)) && (f.except == nil || !f.except.MatchString(name))
}

// allowed applies a rule's only: an attribute that is there must match.
func allowed(only map[string]string, attrs map[string]string) bool {
	for key, pattern := range only {
		if value, ok := attrs[key]; ok && !regexp.MustCompile(pattern).MatchString(value) {
			return false
		}
	}
	return true
}

// merge joins items of one identity, as two registrations of a route in two
// branches are: attributes that differ are listed.
func merge(items []item) []item {
	var list []item
	index := map[string]int{}
	for _, it := range items {
		n, ok := index[it.identity()]
		if !ok {
			index[it.identity()] = len(list)
			list = append(list, it)
			continue
		}
		for key, value := range it.attrs {
			if key == "help" {
				continue
			}
			values := strings.Split(list[n].attrs[key], " | ")
			if list[n].attrs[key] == "" {
				values = nil
			}
			if !slices.Contains(values, value) && value != "" {
				values = append(values, value)
				slices.Sort(values)
				list[n].attrs[key] = strings.Join(values, " | ")
			}
		}
		for _, alt := range it.alt {
			if !slices.Contains(list[n].alt, alt) {
				list[n].alt = append(list[n].alt, alt)
			}
		}
	}
	return list
}

func base(p string) string { return path.Base(p) }
