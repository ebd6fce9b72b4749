package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/config"
	"payload/internal/report"
	"payload/internal/review"
	"payload/internal/review/page"
	"payload/internal/source"
	"payload/internal/verify"
	"payload/internal/workspace"
)

type reviewOptions struct {
	sourceFlags
	reportFlags
	component string
	old, new  string
	configure string
	commits   bool
	run       []string
}

func newReviewCmd(a *app, do func(context.Context, *app, reviewOptions) error) *cobra.Command {
	var opts reviewOptions
	cmd := &cobra.Command{
		Use:   "review COMPONENT OLD..NEW",
		Short: "Tell what an upstream update changes for this repository",
		Long: `Compare two refs of a component, without patches, by what payload.yaml watches
of it, and tell what a maintainer must look at, in five categories: build,
backends, server, streaming, models. What a file of this repository names comes
first, with the file and line.

Defaults of build options are evaluated by configuring each ref once, as a
sub-project with nothing set; the answer is kept. With --run two staged payloads
are started and asked too: their help, properties, models, a stream, their log.

Exit code 0 without errors, 3 with them.`,
		Example: "  payload review llama.cpp b10454..b11312 --output review.html",
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			usage := func(format string, args ...any) error {
				return &usageError{err: fmt.Errorf(format, args...), command: cmd.CommandPath()}
			}
			var ok bool
			if opts.old, opts.new, ok = strings.Cut(pos[1], ".."); !ok || opts.old == "" || opts.new == "" || strings.HasPrefix(opts.new, ".") {
				return usage("%s: the form is OLD..NEW", pos[1])
			}
			if !slices.Contains([]string{"auto", "never"}, opts.configure) {
				return usage("--configure %s: it is auto or never", opts.configure)
			}
			if err := opts.check(cmd, a); err != nil {
				return err
			}
			if len(opts.run) != 0 && len(opts.run) != 2 {
				return usage("--run takes two payloads: OLDDIR,NEWDIR")
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.addKinds(cmd)
	cmd.Flags().StringVar(&opts.configure, "configure", "auto", "evaluate the defaults of build options by configuring both refs: `auto` or never")
	cmd.Flags().BoolVar(&opts.commits, "commits", false, "name the upstream commit of each finding, fetching upstream's history if it is not here yet")
	cmd.Flags().StringSliceVar(&opts.run, "run", nil, "start and ask two staged payloads: `OLDDIR,NEWDIR`")
	opts.reportFlags.add(cmd, a)
	return cmd
}

func runReview(ctx context.Context, a *app, opts reviewOptions) error {
	res, w, err := reviewOf(ctx, a, opts)
	if err != nil {
		return err
	}
	err = opts.writeBy(a, func(out io.Writer, format report.Format) error {
		switch format {
		case report.Text:
			review.Text(out, res)
			return nil
		case report.Markdown:
			return review.Markdown(out, res)
		case report.HTML:
			p, err := review.Page(ctx, w.Store().Repo(), res)
			if err != nil {
				return err
			}
			return page.Write(out, p)
		}
		return report.Write(out, format, report.Report{
			Schema: review.Schema, Title: "payload review", Summary: res.Summary(), Findings: res.Findings,
			Fallback: config.FileName, Body: res,
		})
	})
	if err != nil {
		return err
	}
	a.voice.Say("%s %s..%s: %s", res.Component, res.Old.Ref, res.New.Ref, res.Summary())
	if res.Count(report.Error) > 0 {
		return &reported{code: exitFindings}
	}
	return nil
}

// reviewOf makes the review.
func reviewOf(ctx context.Context, a *app, opts reviewOptions) (review.Result, *workspace.Workspace, error) {
	var res review.Result
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return res, w, err
	}
	p, err := w.Asked(opts.component)
	if err != nil {
		return res, w, err
	}
	if p.Component.Watch == nil {
		a.voice.Say("note: %s says nothing of what to watch of %s; only its patches are judged", config.FileName, p.Component.Name)
	}
	in := review.Input{Repo: w.Store().Repo(), File: w.File, Component: p.Component, Carried: review.CarriedBy(p)}
	for ref, side := range map[string]*review.Side{opts.old: &in.Old, opts.new: &in.New} {
		pristine, err := w.Pristine(ctx, w.At(p, ref))
		if err != nil {
			return res, w, err
		}
		*side = review.Side{Ref: ref, Commit: pristine.Commit, Tree: pristine.Tree}
	}
	if opts.old == opts.new {
		in.Old = in.New
	}
	if in.Patches, err = review.Patches(ctx, w, p, opts.new); err != nil {
		return res, w, err
	}
	if in.History, err = history(ctx, a, w, p, in, opts.commits); err != nil {
		return res, w, err
	}
	if opts.configure == "auto" && in.Component.Watch != nil && in.Old.Tree != in.New.Tree {
		if in.Configured, err = configured(ctx, a, w, p, in); err != nil {
			return res, w, err
		}
	}
	if len(opts.run) == 2 {
		for i, dir := range opts.run {
			if in.Asked[i], err = review.Ask(ctx, verify.Folder(dir), a.voice.Say); err != nil {
				return res, w, err
			}
		}
	}
	res, err = review.Run(ctx, in)
	return res, w, err
}

// history is upstream's where it was fetched before, or may be fetched now. That
// it can't be had is told and stops nothing.
func history(ctx context.Context, a *app, w *workspace.Workspace, p workspace.Pinned, in review.Input, fetch bool) (*source.History, error) {
	if kept, ok := w.KeptHistory(ctx, p, in.Old.Commit, in.New.Commit); ok {
		return &kept, nil
	}
	if !fetch {
		return nil, nil
	}
	h, err := w.History(ctx, p, in.Old.Commit, in.New.Commit)
	if errors.Is(err, source.ErrNoHistory) {
		a.voice.Say("note: commits are not named: %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &h, nil
}

// configured evaluates the options of both refs. Where that can't be done here,
// what stands in the CMake files is compared, and the reason is told.
func configured(ctx context.Context, a *app, w *workspace.Workspace, p workspace.Pinned, in review.Input) (*review.ConfiguredPair, error) {
	if !slices.ContainsFunc(in.Component.Watch.Rules, func(r config.Rule) bool { return r.Find == "cmake" }) {
		return nil, nil
	}
	checkout := func(s review.Side) (string, func(), error) {
		tree, err := w.Tree(ctx, w.At(p, s.Ref), true)
		if err != nil {
			return "", nil, err
		}
		return tree.Path, func() { _ = tree.Close() }, nil
	}
	pair, err := review.Configure(ctx, filepath.Join(w.Store().Dir(), "configured"), in.Old, in.New, checkout, a.voice.Say)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return nil, err
		}
		a.voice.Say("note: defaults of build options are not evaluated: %v", err)
		return nil, nil
	}
	return pair, nil
}
