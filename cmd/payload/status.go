package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/sourcegraph/conc/iter"
	"github.com/spf13/cobra"

	"payload/internal/pin"
	"payload/internal/search"
	"payload/internal/update"
	"payload/internal/workspace"
)

type statusOptions struct{}

func newStatusCmd(a *app, do func(context.Context, *app, statusOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show pins, lock, patches and how far upstream moved", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), a, statusOptions{}) },
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

type statusReport struct {
	Schema     string            `json:"schema"`
	Root       string            `json:"root"`
	Update     string            `json:"update,omitempty"` // the one that is open: "llama.cpp to b11312"
	Components []componentStatus `json:"components"`
}

type componentStatus struct {
	Component string `json:"component"`
	Ref       string `json:"ref"`
	Commit    string `json:"commit,omitempty"`
	Lock      string `json:"lock"`              // locked, not locked or disagrees
	Problem   string `json:"problem,omitempty"` // how it disagrees
	Patches   int    `json:"patches"`
	Upstream  string `json:"upstream"` // in words
	Newer     int    `json:"newer"`    // refs after the pin that latest may take; -1: not known
	Latest    string `json:"latest,omitempty"`
	Over      int    `json:"passed_over"` // refs after the pin that ignore and throttle leave out
}

func runStatus(ctx context.Context, a *app, _ statusOptions) error {
	w, err := a.open(ctx, sourceFlags{})
	if err != nil {
		return err
	}
	report := statusReport{Schema: "payload.status/v1", Root: w.File.Root}
	if report.Update, err = update.Open(w); err != nil {
		return err
	}
	for _, c := range w.File.Components {
		s, err := statusOf(w, c.Name)
		if err != nil {
			return err
		}
		report.Components = append(report.Components, s)
	}
	// Every upstream is asked at once: one that is away costs its timeout alone.
	type answer struct {
		refs search.Refs
		err  error
	}
	answers := iter.Map(report.Components, func(s *componentStatus) answer {
		refs, err := search.List(ctx, w, s.Component, search.Options{})
		return answer{refs, err}
	})
	for i, got := range answers {
		if err := report.Components[i].compare(got.refs, got.err); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(report)
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPIN\tCOMMIT\tLOCK\tPATCHES\tUPSTREAM")
	for _, s := range report.Components {
		commit := s.Commit
		if commit == "" {
			commit = "-"
		}
		lock, _, _ := strings.Cut(s.Lock, ",") // that the commit is unknown stands beside it
		// Nine digits: a line with everything in it fits 80 columns.
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", s.Component, s.Ref, commit[:min(9, len(commit))], lock, s.Patches, s.Upstream)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if report.Update != "" {
		a.voice.Say("the update of %s is open\nhint: payload update --continue, or payload update --abort", report.Update)
	}
	for _, s := range report.Components {
		if s.Problem != "" {
			a.voice.Say("%s\nhint: payload lock %s", s.Problem, s.Component)
		}
	}
	return nil
}

// compare fills in how far upstream has moved.
func (s *componentStatus) compare(refs search.Refs, err error) error {
	newer, over, errNewer := refs.Newer()
	_, unordered := as[*search.UnorderedError](errNewer)
	moved, isMoved := as[*pin.MovedTagError](err)
	switch {
	case isMoved:
		s.Newer, s.Upstream = -1, fmt.Sprintf("MOVED %s to %.12s", moved.Ref, moved.Now)
	case err != nil:
		return err
	case refs.Away != "" && len(newer) > 0:
		s.Newer, s.Upstream = -1, "does not answer; mirrors hold "+newer[len(newer)-1]
	case refs.Away != "":
		s.Newer, s.Upstream = -1, "does not answer"
	case unordered:
		s.Newer, s.Upstream = -1, "tags have no order with it"
	case len(newer) == 0:
		s.Upstream = "nothing newer"
	default:
		s.Newer, s.Latest = len(newer), newer[len(newer)-1]
		s.Upstream = fmt.Sprintf("%d newer, latest %s", s.Newer, s.Latest)
	}
	if s.Over = over; over > 0 && !isMoved {
		s.Upstream += fmt.Sprintf(" (%d passed over)", over)
	}
	return nil
}

func statusOf(w *workspace.Workspace, name string) (componentStatus, error) {
	p, err := w.Pinned(name)
	s := componentStatus{Component: name, Ref: p.Ref, Patches: len(p.Series.Patches), Lock: "locked"}
	var wrong *pin.Disagreement
	switch {
	case errors.As(err, &wrong):
		s.Lock, s.Problem = "disagrees", wrong.Error()
	case err != nil:
		return s, err
	case p.Entry == nil:
		s.Lock = "not locked"
	default:
		if s.Commit = p.Entry.Commit; s.Commit == "" {
			s.Lock = "locked, commit unknown"
		}
	}
	return s, nil
}
