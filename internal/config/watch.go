package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Watch says what of a component's source this repository and the users of its
// payload depend on, and where in this repository that would show.
type Watch struct {
	Ours   []string `yaml:"ours"`   // globs of our files that may depend on upstream; !GLOB takes some out; empty: all
	Ignore []string `yaml:"ignore"` // globs of upstream's files that no rule looks at
	Rules  []Rule   `yaml:"rules"`
}

// Rule finds named things in upstream's source. What two refs have of them is
// compared.
type Rule struct {
	ID       string            `yaml:"id"`       // begins the ids of its findings: server.flag gives server.flag-removed
	Category string            `yaml:"category"` // one of Categories
	Find     string            `yaml:"find"`     // one of Finds
	What     string            `yaml:"what"`     // noun for titles; empty: the end of ID
	In       []string          `yaml:"in"`       // globs of upstream's files; !GLOB takes some out
	Of       []string          `yaml:"of"`       // names that Find starts from: functions, variables, types; * is a wildcard
	At       int               `yaml:"at"`       // which argument of a call, from 1; 0: any
	Match    string            `yaml:"match"`    // RE2 that the found name must match
	Except   string            `yaml:"except"`   // RE2 that it must not match
	Chain    map[string]string `yaml:"chain"`    // attribute: method chained to the call, whose arguments are its value
	Only     map[string]string `yaml:"only"`     // attribute: RE2 that its value must match, where it has one
	Defaults *Defaults         `yaml:"defaults"`
	Patterns map[string]string `yaml:"patterns"` // what consumers look for in log lines: name: RE2
	Uses     string            `yaml:"uses"`     // how our files name it: word, quoted or none; empty: word
	Ours     []string          `yaml:"ours"`     // in place of Watch.Ours, for this rule
	Severity map[string]string `yaml:"severity"` // change: error, warning, note or off
	Fix      string            `yaml:"fix"`      // what a person should do

	Line         int            `yaml:"-"` // in payload.yaml
	PatternLines map[string]int `yaml:"-"`
}

// Defaults says where the initial values lie that help texts are printed with.
type Defaults struct {
	In   []string          `yaml:"in"`   // globs of files with the types
	Vars map[string]string `yaml:"vars"` // variable: its type
}

// Categories are those of a review, in the order of reading.
var Categories = []string{"build", "backends", "server", "streaming", "models"}

// form is what a kind of Find needs.
type form struct{ of, match, patterns bool }

// Finds are the kinds of things that a rule can find.
var finds = map[string]form{
	"cmake": {}, "flags": {of: true}, "routes": {of: true}, "arguments": {of: true}, "compared": {of: true},
	"literals": {match: true}, "keys": {}, "enums": {of: true}, "fields": {of: true}, "functions": {}, "bodies": {of: true},
	"tables": {of: true}, "logs": {of: true, patterns: true}, "macros": {}, "exits": {of: true}, "constants": {}, "files": {}, "text": {match: true},
}

// Finds lists the kinds of Find, sorted.
func Finds() []string { return slices.Sorted(maps.Keys(finds)) }

// Changes are what can have happened to a thing that a rule finds.
var Changes = []string{"added", "removed", "renamed", "changed"}

var (
	levels = []string{"error", "warning", "note", "off"}
	uses   = []string{"", "word", "quoted", "none"}
	ruleID = regexp.MustCompile(`^[a-z][a-z0-9-]*(\.[a-z0-9-]+)?$`)
)

// checkWatch checks the rules and remembers where they stand.
func (c *Component) checkWatch(tree *ast.File, where string) error {
	if c.Watch == nil {
		return nil
	}
	at := where + ".watch"
	for key, globs := range map[string][]string{"ours": c.Watch.Ours, "ignore": c.Watch.Ignore} {
		if err := checkGlobs(tree, at+"."+key, key+" of the watch of "+c.Name, globs); err != nil {
			return err
		}
	}
	if len(c.Watch.Rules) == 0 {
		return At(tree, at, "the watch of component %s has no rules", c.Name)
	}
	seen := map[string]int{}
	for i := range c.Watch.Rules {
		r := &c.Watch.Rules[i]
		place := fmt.Sprintf("%s.rules[%d]", at, i)
		what := fmt.Sprintf("watch rule %d of component %s", i+1, c.Name)
		if r.ID != "" {
			what = fmt.Sprintf("watch rule %s of component %s", r.ID, c.Name)
		}
		if err := r.check(tree, place, what); err != nil {
			return err
		}
		if other, twice := seen[r.ID]; twice && c.Watch.Rules[other].Find != r.Find {
			return At(tree, place+".id", "%s: rule %d has this id and finds %s; this one finds %s", what, other+1, c.Watch.Rules[other].Find, r.Find)
		}
		seen[r.ID] = i
		r.Line = lineOf(tree, place+".id")
		r.PatternLines = map[string]int{}
		for name := range r.Patterns {
			r.PatternLines[name] = lineOf(tree, place+".patterns.'"+name+"'")
		}
	}
	return nil
}

func (r *Rule) check(tree *ast.File, place, what string) error {
	fail := func(key, format string, args ...any) error {
		return At(tree, place+"."+key, "%s: %s", what, fmt.Sprintf(format, args...))
	}
	kind, known := finds[r.Find]
	switch {
	case !ruleID.MatchString(r.ID):
		return fail("id", "id %q is not of the form area.thing, in lower case", r.ID)
	case !slices.Contains(Categories, r.Category):
		return fail("category", "category %q is none of %s", r.Category, strings.Join(Categories, ", "))
	case !known:
		return fail("find", "find %q is none of %s", r.Find, strings.Join(Finds(), ", "))
	case len(r.In) == 0:
		return At(tree, place, "%s: it has no in: the files to look at", what)
	case kind.of && len(r.Of) == 0:
		return At(tree, place, "%s: find %s needs of: the names to start from", what, r.Find)
	case kind.match && r.Match == "":
		return At(tree, place, "%s: find %s needs match", what, r.Find)
	case kind.patterns && len(r.Patterns) == 0:
		return At(tree, place, "%s: find %s needs patterns", what, r.Find)
	case r.At < 0:
		return fail("at", "at %d is less than 0", r.At)
	case !slices.Contains(uses, r.Uses):
		return fail("uses", "uses %q is none of word, quoted, none", r.Uses)
	}
	lists := map[string][]string{"in": r.In, "ours": r.Ours}
	if r.Defaults != nil {
		lists["defaults.in"] = r.Defaults.In
	}
	for key, globs := range lists {
		if err := checkGlobs(tree, place+"."+key, what+": "+key, globs); err != nil {
			return err
		}
	}
	expressions := map[string]string{"match": r.Match, "except": r.Except}
	for key, group := range map[string]map[string]string{"only": r.Only, "patterns": r.Patterns} {
		for name, text := range group {
			expressions[key+".'"+name+"'"] = text
		}
	}
	for key, text := range expressions {
		if _, err := regexp.Compile(text); err != nil {
			return fail(key, "%v", err)
		}
	}
	if r.Find == "text" && !slices.Contains(regexp.MustCompile(r.Match).SubexpNames(), "name") {
		return fail("match", "match %q needs a group (?P<name>…)", r.Match)
	}
	for change, level := range r.Severity {
		if !slices.Contains(Changes, change) || !slices.Contains(levels, level) {
			return fail("severity.'"+change+"'", "severity is a map of %s to one of %s", strings.Join(Changes, ", "), strings.Join(levels, ", "))
		}
	}
	return nil
}

func checkGlobs(tree *ast.File, where, what string, globs []string) error {
	for i, glob := range globs {
		glob = strings.TrimPrefix(glob, "!")
		if !doublestar.ValidatePattern(glob) || glob == "" {
			return At(tree, fmt.Sprintf("%s[%d]", where, i), "%s: %q is not a glob", what, glob)
		}
	}
	return nil
}

// lineOf is the line of a YAML path, 0 when there is none.
func lineOf(tree *ast.File, where string) int {
	path, err := yaml.PathString(where)
	if err != nil {
		return 0
	}
	node, err := path.FilterFile(tree)
	if err != nil || node == nil {
		return 0
	}
	return node.GetToken().Position.Line
}
