package report

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// Report is findings with what a reader has to know beside them.
type Report struct {
	Schema   string // of the JSON: "payload.drift/v1"
	Title    string // "payload drift"
	Summary  string // one sentence under the title
	Findings []Finding
	Waived   []Waived
	Rules    []Rule // the kinds of findings that were looked for
	// Fallback is the file to which a finding without a place is pinned where a
	// format wants one: code scanning drops results without a location.
	Fallback string
	// Body is what JSON holds; nil for schema, findings and waived.
	Body any
}

// Waived is a finding that somebody accepted for a while.
type Waived struct {
	Finding Finding `json:"finding"`
	Reason  string  `json:"reason"`
	Expires string  `json:"expires"` // YYYY-MM-DD, the last day
}

// Rule explains a kind of finding. ID is a finding's, or the part before a dot.
type Rule struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Help  string `json:"help"`
}

// Format names a way to write a report.
type Format string

// The formats.
const (
	Text     Format = "text"
	JSON     Format = "json"
	SARIF    Format = "sarif"
	Markdown Format = "markdown"
	HTML     Format = "html"
	GitHub   Format = "github"
)

// form is what is known of a format.
type form struct {
	format     Format
	extensions []string // of the files that hold it; none for what only a log understands
	write      func(io.Writer, Report) error
}

func forms() []form {
	return []form{
		{Text, []string{".txt"}, writeText},
		{JSON, []string{".json"}, writeJSON},
		{SARIF, []string{".sarif"}, writeSARIF},
		{Markdown, []string{".md"}, writeMarkdown},
		{HTML, []string{".html"}, writeHTML},
		{GitHub, nil, writeAnnotations},
	}
}

// Formats lists the names that ParseFormat takes.
func Formats() string {
	var names []string
	for _, f := range forms() {
		names = append(names, string(f.format))
	}
	return strings.Join(names, ", ")
}

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	for _, f := range forms() {
		if string(f.format) == name {
			return f.format, nil
		}
	}
	return "", fmt.Errorf("%q is no format; the formats are %s", name, Formats())
}

// FormatOf is the format that a file's name asks for: drift.sarif, drift.md.
func FormatOf(file string) (Format, error) {
	var known []string
	for _, f := range forms() {
		if slices.Contains(f.extensions, strings.ToLower(filepath.Ext(file))) {
			return f.format, nil
		}
		known = append(known, f.extensions...)
	}
	return "", fmt.Errorf("%s does not say its format; its name has to end in one of %s", file, strings.Join(known, ", "))
}

// Write writes a report. Findings come worst first, and those of one severity
// in the order they have.
func Write(w io.Writer, format Format, r Report) error {
	r.Findings = Ranked(r.Findings)
	for _, f := range forms() {
		if f.format == format {
			if err := f.write(w, r); err != nil {
				return fmt.Errorf("writing the report as %s: %w", format, err)
			}
			return nil
		}
	}
	return fmt.Errorf("writing the report: %q is no format", format)
}

// Ranked is findings, worst first.
func Ranked(findings []Finding) []Finding {
	ranked := slices.Clone(findings)
	slices.SortStableFunc(ranked, func(a, b Finding) int { return rank[b.Severity] - rank[a.Severity] })
	return ranked
}

// Count is how many findings have a severity.
func Count(findings []Finding, s Severity) int {
	n := 0
	for _, f := range findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// Counted is the findings in words: "2 errors, 1 note"; "nothing found".
func Counted(findings []Finding) string {
	var parts []string
	for _, s := range []Severity{Error, Warning, Note} {
		switch n := Count(findings, s); n {
		case 0:
		case 1:
			parts = append(parts, "1 "+string(s))
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", n, s))
		}
	}
	if parts == nil {
		return "nothing found"
	}
	return strings.Join(parts, ", ")
}

// String is path:line, with the ref where there is one.
func (p Place) String() string {
	text := p.Path
	if p.Line > 0 {
		text += fmt.Sprintf(":%d", p.Line)
	}
	if p.Ref != "" {
		text = p.Ref + ":" + text
	}
	return text
}

// rule finds the rule that explains a finding.
func (r Report) rule(id string) (Rule, int) {
	best, at := Rule{ID: id, Title: id}, -1
	for i, rule := range r.Rules {
		if rule.ID == id {
			return rule, i
		}
		if strings.HasPrefix(id, rule.ID+".") {
			best, at = rule, i
		}
	}
	return best, at
}

// ours lists the places of a finding that are files of the repository.
func (f Finding) ours() []Place {
	var found []Place
	for _, p := range slices.Concat(f.Where, f.Affects) {
		if p.Ref == "" && p.Path != "" && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

func writeJSON(w io.Writer, r Report) error {
	body := r.Body
	if body == nil {
		findings := r.Findings
		if findings == nil {
			findings = []Finding{}
		}
		body = struct {
			Schema   string    `json:"schema"`
			Findings []Finding `json:"findings"`
			Waived   []Waived  `json:"waived,omitempty"`
		}{r.Schema, findings, r.Waived}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(body)
}
