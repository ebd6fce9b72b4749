package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/report"
	"payload/internal/review"
	"payload/internal/workspace"
)

type reviewOptions struct {
	sourceFlags
	component string
	old, new  string
	configure string
	markdown  string
	html      string
	runOld    string
	runNew    string
	limit     string
}

func newReviewCmd(a *app, do func(context.Context, *app, reviewOptions) error) *cobra.Command {
	var opts reviewOptions
	cmd := &cobra.Command{
		Use:   "review COMPONENT OLD..NEW",
		Short: "Tell what an upstream update changes for this repository",
		Args:  args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			var ok bool
			if opts.old, opts.new, ok = strings.Cut(pos[1], ".."); !ok || opts.old == "" || opts.new == "" {
				return &usageError{err: fmt.Errorf("%s: the form is OLD..NEW", pos[1]), command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.addKinds(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print the findings as JSON")
	return cmd
}

func runReview(ctx context.Context, a *app, opts reviewOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	p, err := w.Asked(opts.component)
	if err != nil {
		return err
	}
	in := review.Input{Repo: w.Store().Repo(), File: w.File, Component: p.Component}
	if in.Old, err = side(ctx, w, p, opts.old); err != nil {
		return err
	}
	if in.New, err = side(ctx, w, p, opts.new); err != nil {
		return err
	}
	if in.Patches, err = review.Patches(ctx, w, p, opts.new); err != nil {
		return err
	}
	res, err := review.Run(ctx, in)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(res); err != nil {
			return err
		}
	} else {
		printReview(a, res)
	}
	if res.Count(report.Error) > 0 {
		return &reported{code: exitFindings}
	}
	return nil
}

func side(ctx context.Context, w *workspace.Workspace, p workspace.Pinned, ref string) (review.Side, error) {
	pristine, err := w.Pristine(ctx, w.At(p, ref))
	if err != nil {
		return review.Side{}, err
	}
	return review.Side{Ref: ref, Commit: pristine.Commit, Tree: pristine.Tree}, nil
}

func printReview(a *app, res review.Result) {
	for _, f := range res.Findings {
		fmt.Fprintf(a.stdout, "%-7s %-9s %s\n", f.Severity, f.Category, f.Title)
	}
}

var _ = errors.New
