package report

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// pageData is what the page shows. It has everything in it: opened from a disk
// or an artefact, it asks no network for anything.
type pageData struct {
	Title, Summary, Counted string
	Severities              []pageFilter
	Groups                  []pageGroup
	Findings                []pageFinding
	Waived                  []Waived
}

type pageFilter struct {
	Name  string
	Count int
}

type pageGroup struct{ ID, Title string }

type pageFinding struct {
	Finding
	Group string // the finding's category, or its rule
	Help  string
	Words string // what the search looks in, lower case
}

func writeHTML(w io.Writer, r Report) error {
	data := pageData{Title: r.Title, Summary: r.Summary, Counted: Counted(r.Findings), Waived: r.Waived}
	for _, s := range []Severity{Error, Warning, Note} {
		data.Severities = append(data.Severities, pageFilter{string(s), Count(r.Findings, s)})
	}
	for _, f := range r.Findings {
		rule, _ := r.rule(f.ID)
		p := pageFinding{Finding: f, Group: rule.ID, Help: rule.Help}
		group := pageGroup{rule.ID, rule.Title}
		if f.Category != "" {
			p.Group, group = f.Category, pageGroup{f.Category, f.Category}
		}
		words := []string{f.ID, f.Title, f.Detail, f.Fix}
		for _, place := range slices.Concat(f.Where, f.Affects) {
			words = append(words, place.String())
		}
		p.Words = strings.ToLower(strings.Join(words, "\n"))
		data.Findings = append(data.Findings, p)
		if !slices.Contains(data.Groups, group) {
			data.Groups = append(data.Groups, group)
		}
	}
	return page.Execute(w, data)
}
