package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/config"
	"payload/internal/patch"
	"payload/internal/search"
	"payload/internal/workspace"
)

func newPatchCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "patch", Short: "Check and edit the patch series of a component", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newPatchCheckCmd(a, runPatchCheck), newPatchEditCmd(a, runPatchEdit), newPatchExplainCmd(a, runPatchExplain),
		newPatchExportCmd(a, runPatchExport), newPatchImportCmd(a, runPatchImport), newPatchNewCmd(a, runPatchNew), newPatchRefreshCmd(a, runPatchRefresh),
	)
	return cmd
}

type patchCheckOptions struct {
	sourceFlags
	bestFlags
	component string
	ref       string
}

func newPatchCheckCmd(a *app, do func(context.Context, *app, patchCheckOptions) error) *cobra.Command {
	var opts patchCheckOptions
	cmd := &cobra.Command{
		Use:   "check COMPONENT",
		Short: "Tell for each patch whether and how it applies",
		Long: `Apply the series to the pinned ref, or to --ref, in memory, each patch on top of
those before it, and tell the verdict of each. Exit 0: clean. Exit 3: the series
applies but needs a refresh. Exit 4: it does not apply.

--ref latest is the newest ref that payload.yaml lets an update take. --ref best is
the newest at which the series applies, coupled pins agree and the presets of
--configures still configure; how far behind the latest it is, what breaks next, and
the first ref at which each patch breaks are told too.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			if err := opts.bestFlags.check(opts.ref); err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.sourceFlags.add(cmd)
	opts.bestFlags.add(cmd)
	cmd.Flags().StringVar(&opts.ref, "ref", "", "check against this `REF` in place of the pin; also latest and best")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// patchCheckReport is `payload patch check --json`.
type patchCheckReport struct {
	patch.Report
	Best *search.Found `json:"best,omitempty"` // with --ref best
}

func runPatchCheck(ctx context.Context, a *app, opts patchCheckOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	p, err := w.Asked(opts.component)
	if err != nil {
		return err
	}
	ref, best, err := a.refNamed(ctx, w, opts.component, opts.ref, opts.bestFlags)
	if err != nil {
		return err
	}
	if ref == "" {
		ref = p.Ref
	}
	report, err := w.CheckSeries(ctx, p, ref)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(patchCheckReport{Report: report, Best: best}); err != nil {
			return err
		}
	} else {
		printPatchReport(a.stdout, report)
	}
	switch report.Result {
	case patch.ResultClean:
		return nil
	case patch.ResultRefresh:
		if ref == p.Ref {
			a.voice.Say("hint: payload patch refresh %s", opts.component)
		}
		return &reported{code: exitFindings}
	}
	return &reported{code: exitConflict}
}

func printPatchReport(w io.Writer, r patch.Report) {
	fmt.Fprintf(w, "%s %s: %s\n", r.Component, r.Ref, r.Result)
	width := 0
	for _, v := range r.Patches {
		width = max(width, len(v.File))
	}
	for _, v := range r.Patches {
		fmt.Fprintf(w, "  %-*s  %s\n", width, v.File, v.Verdict)
		for _, line := range splitDetail(v.Detail) {
			fmt.Fprintf(w, "      %s\n", line)
		}
	}
}

// splitDetail gives the facts of a verdict, one a line.
func splitDetail(detail string) []string {
	return strings.FieldsFunc(detail, func(r rune) bool { return r == '\n' })
}

type patchEditOptions struct {
	sourceFlags
	component string
	done      bool
}

func newPatchEditCmd(a *app, do func(context.Context, *app, patchEditOptions) error) *cobra.Command {
	var opts patchEditOptions
	cmd := &cobra.Command{
		Use:   "edit COMPONENT [--done]",
		Short: "Open the series as commits in a work folder, to change them",
		Long: `Open the patched source as an ordinary git repository in build/patch/COMPONENT,
one commit a patch, to be changed with ordinary git (rebase -i, commit --amend).
--done writes the commits back, as ` + "`payload patch export`" + ` does.
Only the folder's path goes to stdout.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	cmd.Flags().BoolVar(&opts.done, "done", false, "write the series from the commits")
	return cmd
}

func runPatchEdit(ctx context.Context, a *app, opts patchEditOptions) error {
	if opts.done {
		return runPatchExport(ctx, a, patchExportOptions{component: opts.component})
	}
	return a.openWork(ctx, opts.sourceFlags, opts.component, func(w *workspace.Workspace, p workspace.Pinned, pristine, dir string) error {
		dropped, err := patch.Open(ctx, w.Store().Repo(), pristine, p.Ref, p.Series, dir)
		if err != nil {
			return err
		}
		for _, file := range dropped {
			a.voice.Say("%s changes nothing here any more and has no commit", file)
		}
		a.voice.Say("change the commits there, then: payload patch edit %s --done", opts.component)
		return nil
	})
}

type patchNewOptions struct {
	sourceFlags
	component string
	title     string
}

func newPatchNewCmd(a *app, do func(context.Context, *app, patchNewOptions) error) *cobra.Command {
	var opts patchNewOptions
	cmd := &cobra.Command{
		Use:   "new COMPONENT --title TITLE",
		Short: "Open the series as commits in a work folder, for one more patch",
		Long: `Open the patched source as an ordinary git repository in build/patch/COMPONENT:
the pristine tree and one commit a patch. Edit there; what is not committed
becomes a patch with the given title at ` + "`payload patch export COMPONENT`" + `.
Only the folder's path goes to stdout.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			if opts.title == "" {
				return missingFlag(cmd, "title")
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	cmd.Flags().StringVar(&opts.title, "title", "", "the new patch's first line")
	return cmd
}

func workFolder(w *workspace.Workspace, component string) string {
	return filepath.Join(w.File.Root, "build", "patch", component)
}

// openSeries opens the repository for a component that has a place for patches.
func (a *app) openSeries(ctx context.Context, f sourceFlags, name string) (*workspace.Workspace, workspace.Pinned, error) {
	w, err := a.open(ctx, f)
	if err != nil {
		return nil, workspace.Pinned{}, err
	}
	p, err := w.Asked(name)
	if err == nil && p.Component.Patches == "" {
		err = &noPatchesError{component: name}
	}
	return w, p, err
}

// noPatchesError is a component for which payload.yaml names no folder of patches.
type noPatchesError struct{ component string }

func (e *noPatchesError) Error() string {
	return fmt.Sprintf("%s names no folder for the patches of %s", config.FileName, e.component)
}

func runPatchNew(ctx context.Context, a *app, opts patchNewOptions) error {
	return a.openWork(ctx, opts.sourceFlags, opts.component, func(w *workspace.Workspace, p workspace.Pinned, pristine, dir string) error {
		if err := patch.New(ctx, w.Store().Repo(), pristine, p.Ref, p.Series, dir, opts.title); err != nil {
			return err
		}
		a.voice.Say("edit there, then: payload patch export %s", opts.component)
		return nil
	})
}

// openWork opens a component's work folder on its pristine tree, as fill does
// it, and prints the folder's path.
func (a *app) openWork(ctx context.Context, f sourceFlags, component string, fill func(w *workspace.Workspace, p workspace.Pinned, pristine, dir string) error) error {
	w, p, err := a.openSeries(ctx, f, component)
	if err != nil {
		return err
	}
	pristine, err := w.Pristine(ctx, p)
	if err != nil {
		return err
	}
	dir := workFolder(w, component)
	if err := fill(w, p, pristine.Tree, dir); err != nil {
		return w.Named(err, p)
	}
	fmt.Fprintln(a.stdout, dir)
	return nil
}

type patchExportOptions struct{ component string }

func newPatchExportCmd(a *app, do func(context.Context, *app, patchExportOptions) error) *cobra.Command {
	var opts patchExportOptions
	cmd := &cobra.Command{
		Use:   "export COMPONENT",
		Short: "Write the series from the commits of the work folder",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			return do(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

func runPatchExport(ctx context.Context, a *app, opts patchExportOptions) error {
	w, p, err := a.openSeries(ctx, sourceFlags{}, opts.component)
	if err != nil {
		return err
	}
	changes, err := patch.Export(ctx, workFolder(w, opts.component), w.File.Abs(p.Component.Patches))
	if err != nil {
		return err
	}
	return a.printChanges(changes, opts.component)
}
