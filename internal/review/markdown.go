package review

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/report"
)

// maxComment is what a pull-request comment may hold, in bytes, with some room
// for what is put around it. (GitHub takes 65,536 characters.)
const maxComment = 60000

// Markdown writes the review as a pull-request comment: what has to be looked
// at open, notes folded, cut where it grows too long.
func Markdown(w io.Writer, res Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s %s → %s\n\n%s\n", res.Component, res.Old.Ref, res.New.Ref, strings.Join(facts(res), " "))
	left := 0
	for _, category := range config.Categories {
		var loud, quiet []report.Finding
		for _, f := range res.Findings {
			switch {
			case f.Category != category:
			case f.Severity == report.Note && len(f.Affects) == 0:
				quiet = append(quiet, f)
			default:
				loud = append(loud, f)
			}
		}
		if len(loud)+len(quiet) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n", category)
		for _, f := range loud {
			left += addEntry(&b, entry(f))
		}
		if len(quiet) > 0 {
			fmt.Fprintf(&b, "\n<details><summary>%d notes</summary>\n\n", len(quiet))
			for _, f := range quiet {
				left += addEntry(&b, entry(f))
			}
			b.WriteString("\n</details>\n")
		}
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more: `payload review %s %s..%s`\n", left, res.Component, res.Old.Ref, res.New.Ref)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing Markdown: %w", err)
	}
	return nil
}

// addEntry adds an entry where there is room, else counts it.
func addEntry(b *strings.Builder, text string) int {
	if b.Len()+len(text) > maxComment {
		return 1
	}
	b.WriteString(text)
	return 0
}

func entry(f report.Finding) string {
	var b strings.Builder
	title := f.Title
	if len(title) > 600 {
		title = strings.ToValidUTF8(title[:600], "") + "…"
	}
	fmt.Fprintf(&b, "- **%s** %s", f.Severity, plain(title))
	if len(f.Affects) > 0 {
		var list []string
		for _, p := range f.Affects {
			list = append(list, code(placeText(p)))
		}
		b.WriteString("; in our files: " + strings.Join(list, ", "))
	}
	if upstream := slices.IndexFunc(f.Where, func(p report.Place) bool { return p.Ref != "" }); upstream >= 0 {
		p := f.Where[len(f.Where)-1]
		fmt.Fprintf(&b, " (%s %s)", plain(p.Ref), code(placeText(p)))
	}
	if f.Fix != "" {
		b.WriteString("<br>" + plain(f.Fix))
	}
	return b.String() + "\n"
}

func placeText(p report.Place) string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d", p.Path, p.Line)
	}
	return p.Path
}

// plain keeps text from being read as Markdown or HTML.
func plain(text string) string {
	return strings.NewReplacer("\\", "\\\\", "<", "&lt;", ">", "&gt;", "*", "\\*", "_", "\\_", "`", "\\`", "|", "\\|", "@", "@\u200b", "\n", " ").Replace(text)
}

func code(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

// Text writes the review for a terminal, a finding a paragraph. Notes that
// concern nothing of ours are one line.
func Text(w io.Writer, res Result) {
	for _, f := range res.Findings {
		fmt.Fprintf(w, "%-7s %s: %s\n", f.Severity, f.Category, f.Title)
		if f.Severity == report.Note && len(f.Affects) == 0 {
			continue
		}
		for line := range strings.SplitSeq(f.Detail, "\n") {
			if line != "" {
				fmt.Fprintf(w, "        %s\n", line)
			}
		}
		for _, p := range f.Affects {
			fmt.Fprintf(w, "        ours: %s\n", placeText(p))
		}
		for _, p := range f.Where[:min(len(f.Where), 4)] {
			fmt.Fprintf(w, "        %s: %s\n", p.Ref, placeText(p))
		}
		if f.Commit != "" {
			fmt.Fprintf(w, "        commit: %s\n", f.Commit)
		}
		if f.Fix != "" {
			fmt.Fprintf(w, "        do: %s\n", f.Fix)
		}
		if f.Command != "" {
			fmt.Fprintf(w, "        see: %s\n", f.Command)
		}
	}
}
