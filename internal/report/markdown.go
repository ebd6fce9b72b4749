package report

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// longestComment is how much a comment on GitHub may hold, less room for the
// last line.
const longestComment = 65536 - 256

// writeMarkdown writes a comment for a pull request: a table, then the details
// behind a fold. What does not fit into a comment is counted.
func writeMarkdown(w io.Writer, r Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %s\n\n", r.Title, Counted(r.Findings))
	if r.Summary != "" {
		fmt.Fprintf(&b, "%s\n\n", plain(r.Summary))
	}
	if len(r.Findings) > 0 {
		b.WriteString("| | what | where |\n|---|---|---|\n")
	}
	left := 0
	for i, f := range r.Findings {
		where := ""
		if places := append(f.ours(), f.Where...); len(places) > 0 {
			where = code(places[0].String())
		}
		row := fmt.Sprintf("| %s | %s<br>%s | %s |\n", f.Severity, plain(f.Title), code(f.ID), where)
		if b.Len()+len(row) > longestComment*2/3 {
			left = len(r.Findings) - i
			break
		}
		b.WriteString(row)
	}
	for _, f := range r.Findings[:len(r.Findings)-left] {
		if part := details(f); b.Len()+len(part) <= longestComment {
			b.WriteString(part)
		}
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more findings do not fit here.\n", left)
	}
	if len(r.Waived) > 0 {
		var rows strings.Builder
		rows.WriteString("\n| waived | until | why |\n|---|---|---|\n")
		for _, v := range r.Waived {
			fmt.Fprintf(&rows, "| %s<br>%s | %s | %s |\n", plain(v.Finding.Title), code(v.Finding.ID), v.Expires, plain(v.Reason))
		}
		if b.Len()+rows.Len() <= longestComment {
			b.WriteString(rows.String())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func details(f Finding) string {
	if f.Detail == "" && f.Fix == "" && f.Command == "" {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n", html.EscapeString(f.Title))
	if f.Detail != "" {
		b.WriteString(fenced(strings.TrimSpace(f.Detail)))
	}
	for _, p := range f.Affects {
		fmt.Fprintf(&b, "- affects %s\n", code(p.String()))
	}
	if f.Command != "" {
		fmt.Fprintf(&b, "- see %s\n", code(f.Command))
	}
	if f.Fix != "" {
		fmt.Fprintf(&b, "- fix: %s\n", plain(f.Fix))
	}
	b.WriteString("\n</details>\n")
	return b.String()
}

// plain is text that Markdown shows as it is, in a table too.
func plain(s string) string {
	return markdownSpecial.Replace(strings.Join(strings.Fields(s), " "))
}

var markdownSpecial = strings.NewReplacer(
	"\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", "\\*", "_", "\\_", "`", "\\`", "[", "\\[", "]", "\\]", "~", "\\~",
)

// code is text in a code span, which a table allows; a bar would end the cell.
func code(s string) string {
	return "<code>" + strings.ReplaceAll(html.EscapeString(strings.Join(strings.Fields(s), " ")), "|", "&#124;") + "</code>"
}

// fenced is text in a code block whose fence is longer than any inside.
func fenced(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "text\n" + s + "\n" + fence + "\n"
}
