// Package page writes findings as one self-contained HTML page: categories, the
// order of risk, filters, side-by-side hunks, light and dark, usable by keyboard.
// It takes findings and diffs as data, so whatever makes report.Findings can use
// it; it runs no process.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"

	"payload/internal/report"
)

// Page is what is shown.
type Page struct {
	Title      string   // "toy b100..b102"
	Old, New   string   // headings of the two sides of a hunk
	Facts      []string // short lines below the title
	Categories []string // in the order of the buttons
	Entries    []Entry  // in the order of risk
}

// Entry is one finding with the hunks that show it.
type Entry struct {
	report.Finding
	Hunks []Hunk
}

// Hunk is one place of change in a file.
type Hunk struct {
	Path    string // the new one; with the old one where the file was renamed
	Section string // what git says the place belongs to
	Rows    []Row
	More    int // rows that were left out
}

// Row is a line at each side; a line number of 0 means that the side has none.
type Row struct {
	OldLine, NewLine int
	Old, New         string
}

// Kind tells how a row is coloured.
func (r Row) Kind() string {
	switch {
	case r.OldLine == 0:
		return "came"
	case r.NewLine == 0:
		return "gone"
	case r.Old != r.New:
		return "both"
	}
	return "same"
}

// Span is a piece of a changed line; Marked is what the other side lacks.
type Span struct {
	Text   string
	Marked bool
}

// Sides splits a changed row into what both lines share at their ends and what
// lies between.
func (r Row) Sides() [2][]Span {
	a, b := []rune(r.Old), []rune(r.New)
	if r.Kind() != "both" {
		return [2][]Span{{{Text: r.Old}}, {{Text: r.New}}}
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var sides [2][]Span
	for i, line := range [][]rune{a, b} {
		sides[i] = []Span{{Text: string(line[:head])}, {Text: string(line[head : len(line)-tail]), Marked: true}, {Text: string(line[len(line)-tail:])}}
	}
	return sides
}

// Counted is a filter button.
type Counted struct {
	Name  string
	Count int
}

// InCategories counts the entries of each category.
func (p Page) InCategories() []Counted {
	var list []Counted
	for _, c := range p.Categories {
		list = append(list, Counted{c, p.count(func(e Entry) bool { return e.Category == c })})
	}
	return list
}

// InSeverities counts the entries of each severity.
func (p Page) InSeverities() []Counted {
	var list []Counted
	for _, s := range []report.Severity{report.Error, report.Warning, report.Note} {
		list = append(list, Counted{string(s), p.count(func(e Entry) bool { return e.Severity == s })})
	}
	return list
}

// Ours counts the entries that name a place of this repository.
func (p Page) Ours() int { return p.count(func(e Entry) bool { return len(e.Affects) > 0 }) }

func (p Page) count(ok func(Entry) bool) int {
	n := 0
	for _, e := range p.Entries {
		if ok(e) {
			n++
		}
	}
	return n
}

//go:embed page.html
var source string

var tmpl = template.Must(template.New("page").Funcs(template.FuncMap{
	"inc":   func(i int) int { return i + 1 },
	"place": place,
	"first": func(places []report.Place, n int) []report.Place { return places[:min(n, len(places))] },
	"beyond": func(places []report.Place, n int) int {
		return max(0, len(places)-n)
	},
}).Parse(source))

func place(p report.Place) string {
	text := p.Path
	if p.Line > 0 {
		text += fmt.Sprintf(":%d", p.Line)
	}
	return text
}

// Write writes the page.
func Write(w io.Writer, p Page) error {
	p.Categories = slices.Clone(p.Categories)
	for _, e := range p.Entries {
		if !slices.Contains(p.Categories, e.Category) {
			p.Categories = append(p.Categories, e.Category)
		}
	}
	if err := tmpl.Execute(w, p); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
