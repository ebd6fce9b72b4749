package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"payload/internal/drift"
	"payload/internal/pin"
	"payload/internal/report"
)

type driftOptions struct {
	reportFlags
	checks   []string
	explain  string
	upstream bool
	fix      bool
}

// everyCheck is what --explain means without an id.
const everyCheck = "all"

func newDriftCmd(a *app, do func(context.Context, *app, driftOptions) error) *cobra.Command {
	var opts driftOptions
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Find what no longer agrees: pins, patches, presets, workflows",
		Long: `Look for places of the repository that went out of step, without changing any:
exit 3 when there are errors or warnings. Findings are waived in payload.yaml,
with a reason and a last day. --explain lists the checks.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd, a); err != nil {
				return err
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd, a)
	cmd.Flags().StringSliceVar(&opts.checks, "check", nil, "run these checks alone: a `LIST` of ids")
	cmd.Flags().BoolVar(&opts.upstream, "upstream", false, "ask upstream, too: how far behind, moved tags, merged patches, the newest ref")
	cmd.Flags().BoolVar(&opts.fix, "fix", false, "first cure what needs no decision: the lock, copies, numbers and form of patches, generated files")
	cmd.Flags().StringVar(&opts.explain, "explain", "", "print what a check or a finding is about, by its `ID`; without one, the list of checks")
	cmd.Flags().Lookup("explain").NoOptDefVal = everyCheck
	return cmd
}

func runDrift(ctx context.Context, a *app, opts driftOptions) error {
	if opts.explain != "" {
		return explainDrift(a, opts)
	}
	timeout, err := pin.Timeout()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	w, err := a.open(ctx, sourceFlags{})
	if err != nil {
		return err
	}
	look := drift.Options{Checks: opts.checks, Upstream: opts.upstream, Today: time.Now(), Timeout: timeout, Exe: exe}
	if opts.fix {
		did, err := drift.Fix(ctx, w, look)
		for _, line := range did {
			a.voice.Say("fixed: %s", line)
		}
		if err != nil {
			return err
		}
		if w, err = a.open(ctx, sourceFlags{}); err != nil { // as it reads now
			return err
		}
	}
	started := time.Now()
	result, err := drift.Run(ctx, w, look)
	if err != nil {
		return err
	}
	if err := opts.write(a, result.Report()); err != nil {
		return err
	}
	summary := fmt.Sprintf("%d checks in %.1f s: %s", len(result.Checks), time.Since(started).Seconds(), report.Counted(result.Findings))
	if len(result.Waived) > 0 {
		summary += fmt.Sprintf(", %d waived", len(result.Waived))
	}
	a.voice.Say("%s", summary)
	if !result.Failed() {
		return nil
	}
	if !opts.fix {
		for _, f := range result.Findings {
			if c, err := drift.Find(f.ID); err == nil && c.Fixable() {
				a.voice.Say("hint: payload drift --fix cures what needs no decision")
				break
			}
		}
	}
	return &reported{code: exitFindings}
}

// explainDrift prints the table of checks, or one of them.
func explainDrift(a *app, opts driftOptions) error {
	if opts.explain == everyCheck && report.Format(opts.format) == report.Markdown {
		_, err := fmt.Fprint(a.stdout, drift.Document())
		return err
	}
	if opts.explain != everyCheck {
		c, err := drift.Find(opts.explain)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s: %s\n\n%s\n", c.ID, c.Title, wrapped(c.Explanation, 78))
		return err
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, c := range drift.Checks() {
		fmt.Fprintf(table, "%s\t%s\n", c.ID, c.Title)
	}
	return table.Flush()
}

// wrapped breaks a text into lines of at most so many letters.
func wrapped(text string, width int) string {
	var out strings.Builder
	column := 0
	for _, w := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(w) > width:
			out.WriteByte('\n')
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(w)
		column += len(w)
	}
	return out.String()
}
