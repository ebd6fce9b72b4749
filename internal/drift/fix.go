package drift

import (
	"context"
	"fmt"
	"strings"

	"payload/internal/workspace"
)

// Fix cures what needs no decision, check by check, and says what it did. The
// lock comes last: it holds what the others may have changed.
func Fix(ctx context.Context, w *workspace.Workspace, opts Options) ([]string, error) {
	checks, err := selected(opts)
	if err != nil {
		return nil, err
	}
	var did []string
	apply := func(c Check) error {
		// Each starts from what the one before has left.
		r, err := open(ctx, w, opts)
		if err != nil {
			return err
		}
		done, err := c.fix(ctx, r)
		did = append(did, done...)
		if err != nil {
			return fmt.Errorf("fixing %s: %w", c.ID, err)
		}
		return nil
	}
	var lock *Check
	for _, c := range checks {
		switch {
		case c.fix == nil:
		case c.ID == "lock":
			lock = &c
		default:
			if err := apply(c); err != nil {
				return did, err
			}
		}
	}
	if lock != nil {
		err = apply(*lock)
	}
	return did, err
}

// Document is docs/drift.md: the table of checks, made from the table of checks.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Drift

<!-- Made by "payload drift --explain --format markdown": don't edit. -->

` + "`payload drift`" + ` looks for places of a repository that no longer say the same. It
changes nothing, takes about a second, and ends with 0, or with 3 where there are
errors or warnings. Each finding has file, line and what to do.

| check | what has to hold | ` + "`--fix`" + ` |
|---|---|---|
`)
	for _, c := range Checks() {
		fix := ""
		if c.Fixable() {
			fix = "yes"
		}
		title := c.Title
		if c.Upstream {
			title += " (with `--upstream`)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.ID, title, fix)
	}
	b.WriteString("\n")
	for _, c := range Checks() {
		fmt.Fprintf(&b, "**%s.** %s\n\n", c.ID, c.Explanation)
	}
	b.WriteString("`--check ID,ID` runs some alone, `--explain=ID` prints one of the texts above, `--format`\n" +
		"and `--output FILE` write text, JSON, SARIF 2.1.0, Markdown, HTML and GitHub's\nannotations. " +
		"A finding is accepted for a while by `waivers` in payload.yaml; see\n[payload-yaml.md](payload-yaml.md).\n")
	return b.String()
}
