package review

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/patch"
	"payload/internal/report"
	"payload/internal/review/page"
)

// Page is the review as a page, with the hunks that show each finding.
func Page(ctx context.Context, repo git.Repo, res Result) (page.Page, error) {
	p := page.Page{
		Title: fmt.Sprintf("%s %s..%s", res.Component, res.Old.Ref, res.New.Ref),
		Old:   res.Old.Ref, New: res.New.Ref, Facts: facts(res), Categories: config.Categories,
	}
	files, err := diffs(ctx, repo, res)
	if err != nil {
		return p, err
	}
	for _, f := range res.Findings {
		p.Entries = append(p.Entries, page.Entry{Finding: f, Hunks: hunksOf(f, res, files)})
	}
	return p, nil
}

// facts are the lines below a review's title.
func facts(res Result) []string {
	how := "Defaults of build options are those written in upstream's CMake files; nothing was configured."
	if res.Evaluated {
		how = "Defaults of build options were evaluated by configuring both refs as a sub-project on this machine."
	}
	return []string{
		fmt.Sprintf("%s. What this repository depends on comes first.", res.Summary()),
		how,
	}
}

// diffs reads the diffs of all files that findings are in, by either name.
func diffs(ctx context.Context, repo git.Repo, res Result) (map[string]patch.FileDiff, error) {
	var paths []string
	for _, f := range res.Findings {
		for _, p := range f.Where {
			if p.Ref != "" && p.Line > 0 {
				paths = append(paths, ":(literal)"+p.Path)
			}
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	files := map[string]patch.FileDiff{}
	if len(paths) == 0 {
		return files, nil
	}
	args := append([]string{"diff-tree", "-p", "-r", "-U3", "-M", "--full-index", "--no-color", res.Old.Tree, res.New.Tree, "--"}, paths...)
	out, err := repo.Do(ctx, git.Call{Args: args})
	if err != nil {
		return nil, fmt.Errorf("reading the diff of %s: %w", res.Component, err)
	}
	for _, d := range patch.Parse("", out).Diffs {
		files[d.Old], files[d.New] = d, d
	}
	return files, nil
}

// Bounds of what a finding shows.
const (
	around   = 9 // rows before and after a place
	maxRows  = 70
	maxHunks = 6
)

func hunksOf(f report.Finding, res Result, files map[string]patch.FileDiff) []page.Hunk {
	type key struct {
		path string
		at   int
	}
	lines := map[key][2][]int{} // a hunk's places, at each side
	var order []key
	for _, p := range f.Where {
		side := before
		if p.Ref == res.New.Ref {
			side = after
		}
		d, ok := files[p.Path]
		if !ok || p.Line == 0 || p.Ref == "" {
			continue
		}
		for i, h := range d.Hunks {
			start, count := h.OldStart, h.OldLines
			if side == after {
				start, count = h.NewStart, h.NewLines
			}
			if p.Line < start || p.Line >= start+max(count, 1) {
				continue
			}
			k := key{d.Path(), i}
			if _, known := lines[k]; !known {
				order = append(order, k)
			}
			both := lines[k]
			both[side] = append(both[side], p.Line)
			lines[k] = both
		}
	}
	var list []page.Hunk
	for _, k := range order[:min(len(order), maxHunks)] {
		d := files[k.path]
		h := page.Hunk{Path: d.Path(), Section: d.Hunks[k.at].Section}
		if d.Old != "" && d.New != "" && d.Old != d.New {
			h.Path = d.Old + " → " + d.New
		}
		h.Rows, h.More = excerpt(rows(d.Hunks[k.at]), lines[k])
		list = append(list, h)
	}
	return list
}

// rows pairs the removed lines of a hunk with the added ones that follow.
func rows(h patch.Hunk) []page.Row {
	var list []page.Row
	var gone, came []string
	oldLine, newLine := h.OldStart, h.NewStart
	flush := func() {
		for i := range max(len(gone), len(came)) {
			var r page.Row
			if i < len(gone) {
				r.OldLine, r.Old = oldLine, gone[i]
				oldLine++
			}
			if i < len(came) {
				r.NewLine, r.New = newLine, came[i]
				newLine++
			}
			list = append(list, r)
		}
		gone, came = nil, nil
	}
	for _, l := range h.Lines {
		text := strings.TrimRight(l.Text, "\r\n")
		switch l.Op {
		case '-':
			if len(came) > 0 {
				flush()
			}
			gone = append(gone, text)
		case '+':
			came = append(came, text)
		default:
			flush()
			list = append(list, page.Row{OldLine: oldLine, NewLine: newLine, Old: text, New: text})
			oldLine++
			newLine++
		}
	}
	flush()
	return list
}

// excerpt keeps the rows around the given lines, and counts the others.
func excerpt(list []page.Row, lines [2][]int) ([]page.Row, int) {
	keep := make([]bool, len(list))
	for i, r := range list {
		if slices.Contains(lines[before], r.OldLine) && r.OldLine > 0 || slices.Contains(lines[after], r.NewLine) && r.NewLine > 0 {
			for k := max(0, i-around); k < min(len(list), i+around+1); k++ {
				keep[k] = true
			}
		}
	}
	var kept []page.Row
	for i, r := range list {
		if keep[i] && len(kept) < maxRows {
			kept = append(kept, r)
		}
	}
	return kept, len(list) - len(kept)
}
