package drift

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/config"
	"payload/internal/report"
)

// linterFiles are the names that golangci-lint looks for.
var linterFiles = []string{".golangci.yml", ".golangci.yaml"}

func checkDepguard(_ context.Context, r *repo) ([]report.Finding, error) {
	var found []report.Finding
	for _, file := range linterFiles {
		if !r.has(file) {
			continue
		}
		text, err := r.text(file)
		if err != nil {
			return nil, err
		}
		root, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		rules := at(root, "linters", "settings", "depguard", "rules")
		if rules == nil { // version 1 of the form
			rules = at(root, "linters-settings", "depguard", "rules")
		}
		module, err := r.module()
		if err != nil {
			return nil, err
		}
		for _, rule := range pairs(rules) {
			for _, w := range texts(at(rule.Value, "files")) {
				glob := strings.TrimPrefix(w.text, "!")
				// The linter compares absolute paths; $all and $test are its own words.
				if strings.HasPrefix(glob, "$") || slices.ContainsFunc(r.files, func(f string) bool { return doublestar.MatchUnvalidated(glob, "/"+f) }) {
					continue
				}
				found = append(found, finding("depguard.dead", keyOf(rule)+" "+w.text, report.Error, place(file, w.line),
					fmt.Sprintf("rule %s is for %s, which matches no file", keyOf(rule), w.text), "", "take it out, or name what it became"))
			}
			for _, list := range []string{"deny", "allow"} {
				for _, entry := range items(at(rule.Value, list)) {
					pkg := entry
					if len(pairs(entry)) > 0 {
						pkg = at(entry, "pkg")
					}
					for _, w := range scalar(pkg) {
						name := strings.TrimSuffix(w.text, "$")
						rest, ours := strings.CutPrefix(name+"/", module+"/")
						if module == "" || !ours || r.has(strings.TrimSuffix(rest, "/")) || rest == "" {
							continue
						}
						found = append(found, finding("depguard.package", keyOf(rule)+" "+w.text, report.Error, place(file, w.line),
							fmt.Sprintf("rule %s names %s, which is no package", keyOf(rule), w.text), "", "take it out, or name what it became"))
					}
				}
			}
		}
	}
	return found, nil
}

// module is the path of the Go module at the root; empty without one.
func (r *repo) module() (string, error) {
	if !r.has("go.mod") {
		return "", nil
	}
	text, err := r.text("go.mod")
	if err != nil {
		return "", err
	}
	m := moduleLine.FindStringSubmatch(text)
	if m == nil {
		return "", nil
	}
	return m[1], nil
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)

// checkLayout reads the tree of a document: a path a line, a folder's own
// entries indented below it, words behind two spaces.
func checkLayout(_ context.Context, r *repo) ([]report.Finding, error) {
	l := r.file.Checks.Layout
	if l == nil {
		return nil, nil
	}
	if !r.has(l.File) {
		return []report.Finding{finding("layout.missing", l.File, report.Error, place(config.FileName, l.Line), l.File+" is not there", "", "")}, nil
	}
	text, err := r.text(l.File)
	if err != nil {
		return nil, err
	}
	var found []report.Finding
	named := map[string]bool{}
	type folder struct {
		indent int
		path   string
	}
	var above []folder
	first, inside := 0, false
	for i, row := range strings.Split(text, "\n") {
		if strings.HasPrefix(row, "```") {
			if inside {
				break
			}
			inside, first = true, i+1
			continue
		}
		if !inside || strings.TrimSpace(row) == "" {
			continue
		}
		indent := len(row) - len(strings.TrimLeft(row, " "))
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		dir := ""
		if len(above) > 0 {
			dir = above[len(above)-1].path
		}
		entry, _, _ := strings.Cut(strings.TrimSpace(row), "  ")
		for j, name := range strings.Fields(entry) { // several files may share a line
			full := path.Join(dir, name)
			if !looksLikePath(name) && j > 0 {
				break
			}
			named[full] = true
			if !r.has(full) {
				found = append(found, finding("layout.missing", full, report.Error, place(l.File, i+1), full+" is not there", "", "take it out, or name what it became"))
			}
			if strings.HasSuffix(name, "/") && j == 0 {
				above = append(above, folder{indent, full})
			}
		}
	}
	for _, dir := range r.folders() {
		if slices.ContainsFunc(l.Complete, func(glob string) bool { return doublestar.MatchUnvalidated(glob, dir) }) && !named[dir] {
			found = append(found, finding("layout.unlisted", dir, report.Error, place(l.File, first), "the tree does not name "+dir, "", "add a line for it"))
		}
	}
	return found, nil
}

// looksLikePath tells a second file on a line from the first word about it.
func looksLikePath(name string) bool {
	return strings.ContainsAny(name, "/._") || name == strings.ToUpper(name)
}

// folders are all folders that hold files of the repository.
func (r *repo) folders() []string {
	var list []string
	for _, file := range r.files {
		for dir := path.Dir(file); dir != "." && !slices.Contains(list, dir); dir = path.Dir(dir) {
			list = append(list, dir)
		}
	}
	slices.Sort(list)
	return list
}
