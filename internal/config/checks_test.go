package config

import (
	"strings"
	"testing"
	"time"
)

// TestChecksNameThePlace holds that what the checks can't use is refused, with
// line and column.
func TestChecksNameThePlace(t *testing.T) {
	whole := good + `affected:
  - {paths: ['a/**', '!a/*.md'], presets: ['*'], packages: [linux], runner: big}
required:
  - {option: X, value: "OFF", except: [b*], why: it dies}
generated:
  - {path: a/b, command: [x]}
  - {path: a/c, check: [x], write: [y]}
  - {path: a/d, component: other, from: z}
layout: {file: docs/layout.md, complete: [internal/*]}
waivers:
  - {id: a.b, path: '**/x', reason: r, expires: 2030-01-31}
`
	f, err := load(t, whole)
	if err != nil {
		t.Fatal(err)
	}
	c := f.Checks
	if len(c.Affected) != 1 || len(c.Generated) != 3 || c.Layout.File != "docs/layout.md" || c.Waivers[0].Line == 0 || c.Required[0].Line == 0 {
		t.Errorf("%+v", c)
	}
	if err := validate(t, compiled(t), whole); err != nil {
		t.Error(err)
	}
	for name, change := range map[string][2]string{
		"has no paths":                   {"paths: ['a/**', '!a/*.md'], ", ""},
		"is not a glob":                  {"'a/**'", "'a/[**'"},
		"needs option, value and why":    {", why: it dies", ""},
		"exactly one of command":         {"command: [x]", "command: [x], component: other, from: z"},
		"write goes with check":          {"command: [x]", "command: [x], write: [y]"},
		"component and from go together": {", from: z", ""},
		"is not a component":             {"component: other, from", "component: others, from"},
		"not a path below":               {"path: a/b", "path: ../b"},
		"layout needs file":              {"file: docs/layout.md, ", ""},
		"every waiver ends":              {", expires: 2030-01-31", ""},
		"is not a date":                  {"2030-01-31", "2030-02-31"},
		"needs the id of a finding":      {"id: a.b, ", ""},
		"path \"[**/x\" is not a glob":   {"'**/x'", "'[**/x'"},
		"unknown field":                  {"reason: r", "reasons: r"},
	} {
		text := strings.Replace(whole, change[0], change[1], 1)
		if text == whole {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "[") {
			t.Errorf("want line, column and %q: %v", name, err)
		}
	}
}

func TestMatches(t *testing.T) {
	globs := []string{"a/**", "!a/**/*.md", "a/keep.md"}
	for name, want := range map[string]bool{"a/x": true, "a/b/c": true, "a/x.md": false, "a/b/x.md": false, "a/keep.md": true, "b/x": false} {
		if Matches(globs, name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

func TestExpired(t *testing.T) {
	w := Waiver{Expires: "2026-11-30"}
	for day, want := range map[int]bool{29: false, 30: false, 31: true} {
		if w.Expired(time.Date(2026, 11, day, 23, 59, 0, 0, time.UTC)) != want {
			t.Errorf("on day %d: %t", day, !want)
		}
	}
}
