package report

import (
	"fmt"
	"io"
	"strings"
)

// Line is a finding in one line, its details indented below.
func Line(f Finding) string {
	text := fmt.Sprintf("%s  %s  %s", f.Severity, f.ID, f.Title)
	if f.Detail != "" {
		text += ": " + strings.ReplaceAll(strings.TrimSpace(f.Detail), "\n", "\n    ")
	}
	return text
}

// writeText has a finding's first place before it, so that editors and terminals
// make a link of it.
func writeText(w io.Writer, r Report) error {
	for _, f := range r.Findings {
		text := Line(f)
		places := f.Where
		if len(places) > 0 {
			text = places[0].String() + ": " + text
			places = places[1:]
		}
		for _, p := range places {
			text += "\n    also " + p.String()
		}
		for _, p := range f.Affects {
			text += "\n    affects " + p.String()
		}
		if f.Commit != "" {
			text += "\n    commit " + f.Commit
		}
		if f.Command != "" {
			text += "\n    see: " + f.Command
		}
		if f.Fix != "" {
			text += "\n    fix: " + f.Fix
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	for _, v := range r.Waived {
		if _, err := fmt.Fprintf(w, "waived until %s  %s  %s: %s\n", v.Expires, v.Finding.ID, v.Finding.Title, v.Reason); err != nil {
			return err
		}
	}
	return nil
}
