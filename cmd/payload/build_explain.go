package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/workspace"
)

type explainReport struct {
	Schema  string              `json:"schema"`
	Presets []build.Explanation `json:"presets"`
}

func explainBuilds(ctx context.Context, a *app, w *workspace.Workspace, launcher cmakerun.Launcher, opts buildOptions) error {
	report := explainReport{Schema: "payload.explain/v1"}
	for i, preset := range opts.presets {
		e, err := build.Explain(ctx, w, a.voice, build.Options{Preset: preset, Jobs: opts.jobs, Launcher: launcher})
		if err != nil {
			return err
		}
		report.Presets = append(report.Presets, e)
		if a.json {
			continue
		}
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := printOptions(a, e, opts.all); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(report)
	}
	return nil
}

// printOptions is the table, and below it what a table can't say.
func printOptions(a *app, e build.Explanation, all bool) error {
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OPTION\tPRESET\tUPSTREAM\tCACHE\t")
	hidden := 0
	var flipped []string
	most := 14 // so that a line fits 80 columns
	if all {
		most = 1000
	}
	for _, o := range e.Options {
		if o.Was != nil {
			flipped = append(flipped, fmt.Sprintf("  %s: %s, now %s", o.Name, cell(o.Was, most), cell(o.Default, most)))
		}
		if !all && !shownByDefault(o) {
			hidden++
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", o.Name, cell(o.Preset, most), cell(o.Default, most), cell(o.Cache, most), remark(o))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the options: %w", err)
	}
	if len(flipped) > 0 {
		var refs []string
		for _, s := range e.Before {
			refs = append(refs, s.Component+" "+s.Ref)
		}
		fmt.Fprintf(a.stdout, "\nUpstream's defaults in %s, which is staged:\n%s\n", strings.Join(refs, ", "), strings.Join(flipped, "\n"))
	}
	if hidden > 0 {
		a.voice.Say("%d more entries are as upstream has them: --all shows them", hidden)
	}
	if e.Stopped != "" {
		a.voice.Say("note: a default shown as - may only be unknown: without the preset's values CMake stopped at %s", e.Stopped)
	}
	switch {
	case e.BeforeWhy != "":
		a.voice.Say("whether a default was flipped since the last build is unknown: %s", e.BeforeWhy)
	case len(flipped) == 0:
		a.voice.Say("upstream's defaults are those of the last build")
	}
	return nil
}

// shownByDefault are the options that somebody chose, and those where upstream
// and the cache, or upstream now and before, say different things.
func shownByDefault(o build.Option) bool {
	mine := strings.HasPrefix(o.Name, "CMAKE_")
	return o.Preset != nil || o.Was != nil || o.Differs && !mine
}

// remark marks what is worth a look.
func remark(o build.Option) string {
	switch {
	case o.Was != nil:
		return "flipped"
	case o.Preset != nil && o.Cache != nil && !cmakerun.Same(*o.Preset, *o.Cache):
		return "overruled"
	case o.Differs:
		return "differs"
	case o.Preset != nil && o.Default != nil && o.Cache != nil:
		return "same"
	}
	return ""
}

// cell is a value as the table has it: at most so long, and - for none.
func cell(value *string, most int) string {
	switch {
	case value == nil:
		return "-"
	case *value == "":
		return `""`
	}
	text := []rune(strings.ReplaceAll(*value, "\n", " "))
	if len(text) > most {
		return string(text[:most-1]) + "…"
	}
	return string(text)
}
