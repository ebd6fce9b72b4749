package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/search"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// What --ref takes besides a name.
const (
	refLatest = "latest"
	refBest   = "best"
)

// bestFlags say what the best ref has to be.
type bestFlags struct {
	presets        []string // that must still configure
	maxReviewLines int
	withCoupled    bool // coupled components may move too
}

// findBest searches for the best ref of a component: the series applies, the
// coupled pins agree, the presets configure.
func (a *app) findBest(ctx context.Context, w *workspace.Workspace, name string, f bestFlags) (search.Found, error) {
	options := search.Options{History: true, Tell: a.voice.Say}
	checks := []search.Check{search.CoupledCheck(w, name, f.withCoupled, options)}
	if len(f.presets) > 0 {
		checks = append(checks, a.configures(w, name, f.presets))
	}
	return search.Best(ctx, w, name, search.BestOptions{
		Options: options, Checks: checks, MaxReviewLines: f.maxReviewLines,
	})
}

// configures asks whether presets still configure, in a folder of its own.
func (a *app) configures(w *workspace.Workspace, name string, presets []string) search.Check {
	return search.Check{Name: "presets", Do: func(ctx context.Context, ref string) (bool, string, error) {
		for _, preset := range presets {
			dir := filepath.Join(w.File.Root, "build", "best", preset)
			_, err := build.Run(ctx, w.Quiet().Moved(name, ref), voice.New(io.Discard), build.Options{
				Preset: preset, ConfigureOnly: true, Binary: dir,
			})
			if rm := os.RemoveAll(dir); rm != nil && err == nil {
				return false, "", fmt.Errorf("clearing the scratch folder: %w", rm)
			}
			if why := refusesConfigure(err); why != "" {
				return false, why, nil
			}
			if err != nil {
				return false, "", err
			}
		}
		return true, "", nil
	}}
}

// refusesConfigure is what a source is to blame for when it doesn't configure;
// empty for what this machine is.
func refusesConfigure(err error) string {
	if e, ok := as[*cmakerun.ConfigureError](err); ok && e.Missing == "" && e.Message != "" {
		return e.Error()
	}
	var undeclared *cmakerun.UndeclaredOptionError
	var overruled *cmakerun.OverruledOptionError
	var target *cmakerun.UnknownTargetError
	if errors.As(err, &undeclared) || errors.As(err, &overruled) || errors.As(err, &target) {
		return err.Error()
	}
	return ""
}

// refNamed turns what --ref says into a ref: latest and best are searched for,
// and best is printed unless JSON was asked for.
func (a *app) refNamed(ctx context.Context, w *workspace.Workspace, name, ref string, f bestFlags) (string, *search.Found, error) {
	switch ref {
	case refLatest:
		latest, behind, refs, err := search.Latest(ctx, w, name, search.Options{History: true, Tell: a.voice.Say})
		if err != nil {
			return "", nil, err
		}
		a.voice.Say("%s: latest is %s, %s after the pin %s", name, latest, count(behind, "ref"), refs.Pinned.Ref)
		return latest, nil, nil
	case refBest:
		found, err := a.findBest(ctx, w, name, f)
		if err != nil {
			return "", nil, err
		}
		if !a.json {
			printBest(a.stdout, found)
		}
		return found.Ref, &found, nil
	}
	return ref, nil, nil
}

// printBest tells which ref is the best and what keeps the later ones out.
func printBest(w io.Writer, f search.Found) {
	fmt.Fprintf(w, "%s: %s\n", f.Component, bestInWords(f))
	if n := f.Next; n != nil && n.Check == search.Series {
		fmt.Fprintf(w, "  %s breaks next: the series does not apply\n", n.Ref)
	} else if n != nil {
		fmt.Fprintf(w, "  %s breaks next: %s: %s\n", n.Ref, n.Check, n.Why)
	}
	width := 0
	for _, b := range f.Breaks {
		width = max(width, len(b.File))
	}
	for _, b := range f.Breaks {
		again := ""
		if b.Again {
			again = ", and applies again at " + f.Latest
		}
		fmt.Fprintf(w, "  %-*s  applies up to %s, %s at %s%s\n", width, b.File, b.After, b.Verdict, b.Ref, again)
		for _, line := range splitDetail(b.Detail) {
			fmt.Fprintf(w, "      %s\n", line)
		}
	}
	if s := f.Step; s != nil && s.Ref != "" && s.Ref != f.Ref {
		fmt.Fprintf(w, "  a smaller step: %s, %s to review\n", s.Ref, count(s.Lines, "changed line"))
	} else if s != nil && s.Ref == "" {
		fmt.Fprintf(w, "  no smaller step: nothing that works changes %s at most (the next ref: %d)\n", count(s.Max, "line"), s.Lines)
	}
	if len(f.NoSource) > 0 {
		fmt.Fprintf(w, "  left out, since no source has them: %s\n", strings.Join(f.NoSource, ", "))
	}
	if f.Unordered > 0 {
		fmt.Fprintf(w, "  left out, since nothing says where they stand: %s\n", count(f.Unordered, "tag"))
	}
	if f.PassedBy > 0 {
		fmt.Fprintf(w, "  passed over by ignore and throttle: %s\n", count(f.PassedBy, "ref"))
	}
	if len(f.Probes) > 0 {
		var refs []string
		for _, p := range f.Probes {
			refs = append(refs, p.Ref)
		}
		fmt.Fprintf(w, "  asked %s: %s\n", count(len(refs), "ref"), strings.Join(refs, " "))
	}
}

func bestInWords(f search.Found) string {
	switch {
	case f.Latest == f.Pinned:
		return fmt.Sprintf("nothing comes after the pin %s", f.Pinned)
	case f.Ref == f.Pinned:
		return fmt.Sprintf("best is the pin itself, %s; none of what comes after it will do: %s", f.Ref, count(f.Behind, "ref"))
	case f.Behind == 0:
		return fmt.Sprintf("best is the latest, %s, %s after the pin %s", f.Ref, count(f.Ahead, "ref"), f.Pinned)
	}
	return fmt.Sprintf("best is %s, %s after the pin %s and %s behind the latest, %s", f.Ref, count(f.Ahead, "ref"), f.Pinned, count(f.Behind, "ref"), f.Latest)
}

// count is a number of things: "1 ref", "6 refs".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// check says which of them go with another ref than best.
func (f bestFlags) check(ref string) error {
	if ref != refBest && (len(f.presets) > 0 || f.maxReviewLines != 0) {
		return errors.New("--configures and --max-review-lines belong to --ref best")
	}
	if f.maxReviewLines < 0 {
		return fmt.Errorf("--max-review-lines %d: at least one line has to change", f.maxReviewLines)
	}
	return nil
}

// add adds the flags that only mean something for a best ref.
func (f *bestFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.presets, "configures", nil, "with --ref best: these `PRESETS` must still configure, separated by commas")
	cmd.Flags().IntVar(&f.maxReviewLines, "max-review-lines", 0, "with --ref best: propose a step that changes at most `N` lines")
}
