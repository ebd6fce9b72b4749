package config

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Checks is what the file says to those who look at the repository as a whole:
// drift, affected and cache-key. Paths are relative to the root.
type Checks struct {
	Affected  []Affected  `yaml:"affected"`
	Required  []Required  `yaml:"required"`
	Generated []Generated `yaml:"generated"`
	Layout    *Layout     `yaml:"layout"`
	Waivers   []Waiver    `yaml:"waivers"`
}

// Affected says what a change to some files has to build. Files that no entry
// takes build every preset that is made from them.
type Affected struct {
	Paths    []string `yaml:"paths"`    // doublestar globs; !GLOB takes some out
	Presets  []string `yaml:"presets"`  // globs of preset names; empty: nothing has to be built
	Packages []string `yaml:"packages"` // what has to be packaged
	Runner   string   `yaml:"runner"`   // the machine that builds these presets
}

// Required is an option that presets have to set to one value.
type Required struct {
	Option  string   `yaml:"option"`
	Value   string   `yaml:"value"`
	Project string   `yaml:"project"` // of the presets; empty: every project
	Except  []string `yaml:"except"`  // globs of presets that may do otherwise
	Why     string   `yaml:"why"`
	Line    int      `yaml:"-"` // in the file, as the other Lines
}

// Generated is a file that something else decides. Exactly one of Command,
// Check and Component is set.
type Generated struct {
	Path      string   `yaml:"path"`
	Command   []string `yaml:"command"`   // prints the content
	Check     []string `yaml:"check"`     // exits with 0 when the file is what it would make
	Write     []string `yaml:"write"`     // for Check: makes the file anew
	Component string   `yaml:"component"` // the file is a copy of From in this component's patched tree
	From      string   `yaml:"from"`
	Line      int      `yaml:"-"`
}

// Layout is a document whose first code block shows the repository's tree.
type Layout struct {
	File     string   `yaml:"file"`
	Complete []string `yaml:"complete"` // globs of folders that the tree has to name
	Line     int      `yaml:"-"`
}

// Waiver accepts findings for a while.
type Waiver struct {
	ID      string `yaml:"id"`      // of the finding
	Key     string `yaml:"key"`     // of the finding; empty: any
	Path    string `yaml:"path"`    // glob of the file it is in; empty: any
	Reason  string `yaml:"reason"`  // for those who come later
	Expires string `yaml:"expires"` // YYYY-MM-DD, the last day it holds
	Line    int    `yaml:"-"`
}

// Expired says whether the waiver's last day is before today.
func (w Waiver) Expired(today time.Time) bool {
	return w.Expires < today.Format(time.DateOnly) // Parse has checked its form
}

// Matches says whether a doublestar pattern list takes a path: it matches one of
// the globs, and no later one with ! before it.
func Matches(globs []string, name string) bool {
	in := false
	for _, glob := range globs {
		rest, out := strings.CutPrefix(glob, "!")
		if doublestar.MatchUnvalidated(rest, name) {
			in = !out
		}
	}
	return in
}

func (c *Checks) check(tree *ast.File, f *File) error {
	for i, a := range c.Affected {
		where := fmt.Sprintf("$.affected[%d]", i)
		if len(a.Paths) == 0 {
			return At(tree, where, "affected %d has no paths", i+1)
		}
		for key, globs := range map[string][]string{"paths": a.Paths, "presets": a.Presets} {
			if err := validGlobs(tree, where+"."+key, fmt.Sprintf("%s of affected %d", key, i+1), globs); err != nil {
				return err
			}
		}
	}
	for i := range c.Required {
		r, where := &c.Required[i], fmt.Sprintf("$.required[%d]", i)
		r.Line = lineAt(tree, where)
		if r.Option == "" || r.Value == "" || r.Why == "" {
			return At(tree, where, "required %d needs option, value and why", i+1)
		}
		if err := validGlobs(tree, where+".except", fmt.Sprintf("except of required %d", i+1), r.Except); err != nil {
			return err
		}
	}
	for i := range c.Generated {
		c.Generated[i].Line = lineAt(tree, fmt.Sprintf("$.generated[%d]", i))
		if err := c.Generated[i].check(tree, fmt.Sprintf("$.generated[%d]", i), fmt.Sprintf("generated %d", i+1), f); err != nil {
			return err
		}
	}
	if c.Layout != nil {
		c.Layout.Line = lineAt(tree, "$.layout")
		if !inside(c.Layout.File) {
			return At(tree, "$.layout", "layout needs file, a path below %s", FileName)
		}
		if err := validGlobs(tree, "$.layout.complete", "complete of layout", c.Layout.Complete); err != nil {
			return err
		}
	}
	for i := range c.Waivers {
		w, where := &c.Waivers[i], fmt.Sprintf("$.waivers[%d]", i)
		w.Line = lineAt(tree, where)
		if _, err := time.Parse(time.DateOnly, w.Expires); err != nil {
			return At(tree, where, "waiver %d: expires %q is not a date such as 2030-01-31; every waiver ends", i+1, w.Expires)
		}
		if w.ID == "" || strings.TrimSpace(w.Reason) == "" {
			return At(tree, where, "waiver %d needs the id of a finding and a reason", i+1)
		}
		if w.Path != "" && !doublestar.ValidatePattern(w.Path) {
			return At(tree, where+".path", "waiver %d: path %q is not a glob", i+1, w.Path)
		}
	}
	return nil
}

func (g Generated) check(tree *ast.File, where, what string, f *File) error {
	kinds := 0
	for _, set := range []bool{len(g.Command) > 0, len(g.Check) > 0, g.Component != ""} {
		if set {
			kinds++
		}
	}
	switch {
	case !inside(g.Path):
		return At(tree, where, "%s: path %q is not a path below %s", what, g.Path, FileName)
	case kinds != 1:
		return At(tree, where, "%s: exactly one of command, check and component must be given", what)
	case len(g.Write) > 0 && len(g.Check) == 0:
		return At(tree, where+".write", "%s: write goes with check; what command prints is written as it is", what)
	case (g.Component == "") != (g.From == ""):
		return At(tree, where, "%s: component and from go together", what)
	}
	if g.Component != "" {
		if _, err := f.Component(g.Component); err != nil {
			return At(tree, where+".component", "%s: %v", what, err)
		}
	}
	return nil
}

func inside(file string) bool {
	return file != "" && filepath.IsLocal(filepath.FromSlash(file)) && path.Clean(file) == file
}

func validGlobs(tree *ast.File, where, what string, globs []string) error {
	for i, glob := range globs {
		if rest := strings.TrimPrefix(glob, "!"); rest == "" || !doublestar.ValidatePattern(rest) {
			return At(tree, fmt.Sprintf("%s[%d]", where, i), "%s: %q is not a glob", what, glob)
		}
	}
	return nil
}

// lineAt is the line of a YAML path; 0 where there is none.
func lineAt(tree *ast.File, where string) int {
	place, err := yaml.PathString(where)
	if err != nil {
		return 0
	}
	node, err := place.FilterFile(tree)
	if err != nil || node == nil {
		return 0
	}
	return node.GetToken().Position.Line
}
