package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/source"
	"payload/internal/workspace"
)

type sourceOptions struct {
	sourceFlags
	component string // empty: every one
	pristine  bool
	prebuilt  string // a preset; empty for the source
}

func newSourceCmd(a *app, do func(context.Context, *app, sourceOptions) error) *cobra.Command {
	var opts sourceOptions
	cmd := &cobra.Command{
		Use:   "source [COMPONENT]",
		Short: "Materialise a component's patched source and print its path",
		Long: `Materialise a component's source: the pinned ref with the patch series applied,
checked against payload.lock, in the store. Only the path goes to stdout; without
a component, one path a line, in the order of payload.yaml.`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if len(pos) > 0 {
				opts.component = pos[0]
			} else if a.json {
				return &usageError{err: errors.New("--json needs a component"), command: cmd.CommandPath()}
			} else if opts.prebuilt != "" {
				return &usageError{err: errors.New("--prebuilt needs a component"), command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	cmd.Flags().BoolVar(&opts.pristine, "pristine", false, "leave the patches out")
	cmd.Flags().StringVar(&opts.prebuilt, "prebuilt", "", "what was compiled of the component for the `PRESET`, in place of its source")
	cmd.Flags().BoolVar(&opts.repair, "repair", false, "make the stored tree anew if it is damaged")
	cmd.Flags().BoolVar(&a.json, "json", false, "print what the tree is, as JSON")
	return cmd
}

// sourceReport is `payload source --json`; CMake's payload_source reads it.
type sourceReport struct {
	Schema    string   `json:"schema"`
	Component string   `json:"component"`
	Path      string   `json:"path"`
	Ref       string   `json:"ref"`
	Commit    string   `json:"commit"`
	Build     int      `json:"build"`
	Pristine  string   `json:"pristine"`
	Patched   string   `json:"patched"`
	From      string   `json:"from"`
	Unpatched bool     `json:"unpatched"`
	Depends   []string `json:"depends"`
}

func runSource(ctx context.Context, a *app, opts sourceOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	names := []string{opts.component}
	if opts.component == "" {
		names = nil
		for _, c := range w.File.Components {
			names = append(names, c.Name)
		}
	}
	for _, name := range names {
		if err := printSource(ctx, a, w, name, opts); err != nil {
			return err
		}
	}
	return nil
}

func printSource(ctx context.Context, a *app, w *workspace.Workspace, name string, opts sourceOptions) error {
	p, err := w.Pinned(name)
	if err != nil {
		return err
	}
	tree, err := treeOf(ctx, w, p, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // the lock goes with the process at the latest
	// CMake's payload_source says which build folder will link to the tree.
	if dir := os.Getenv("PAYLOAD_BUILD_DIR"); dir != "" {
		if err := w.Store().RecordBuild(ctx, dir, tree.Path, func() { a.voice.Say("waiting for a prune of the store") }); err != nil {
			a.voice.Say("note: %v; so payload cache prune does not spare the tree", err)
		}
	}
	if a.json {
		return a.printJSON(reportSource(w, p, tree))
	}
	fmt.Fprintln(a.stdout, tree.Path)
	return nil
}

func treeOf(ctx context.Context, w *workspace.Workspace, p workspace.Pinned, opts sourceOptions) (*source.Tree, error) {
	if opts.prebuilt == "" {
		return w.Tree(ctx, p, opts.pristine)
	}
	b, err := build.FindPrebuilt(w, p, opts.prebuilt)
	if err != nil {
		return nil, err
	}
	return w.PrebuiltTree(ctx, p, b)
}

func reportSource(w *workspace.Workspace, p workspace.Pinned, t *source.Tree) sourceReport {
	return sourceReport{
		Schema: "payload.source/v1", Component: p.Component.Name, Path: t.Path, Ref: t.Ref, Commit: t.Commit, Build: t.Build,
		Pristine: t.Pristine, Patched: t.Patched, From: t.From, Unpatched: t.Unpatched, Depends: w.Depends(p),
	}
}
