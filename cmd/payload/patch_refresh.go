package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"payload/internal/patch"
)

type patchRefreshOptions struct {
	sourceFlags
	component string
}

func newPatchRefreshCmd(a *app, do func(context.Context, *app, patchRefreshOptions) error) *cobra.Command {
	var opts patchRefreshOptions
	cmd := &cobra.Command{
		Use:   "refresh COMPONENT",
		Short: "Rewrite the series as it applies to the pinned ref",
		Long: `Rewrite the patches at the lines where they apply to the pinned ref, retargeted
and merged, without what upstream holds already. Patches that need none of it
keep their bytes. A series in conflict is left as it is (exit 4).`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component = pos[0]
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

func runPatchRefresh(ctx context.Context, a *app, opts patchRefreshOptions) error {
	w, p, err := a.openSeries(ctx, opts.sourceFlags, opts.component)
	if err != nil {
		return err
	}
	pristine, err := w.Pristine(ctx, p)
	if err != nil {
		return err
	}
	changes, _, err := patch.Refresh(ctx, w.Store().Repo(), "", pristine.Tree, p.Series)
	if err != nil {
		return w.Named(err, p)
	}
	return a.printChanges(changes, opts.component)
}

// seriesChanges is what `--json` prints for verbs that write the series.
type seriesChanges struct {
	Schema    string         `json:"schema"`
	Component string         `json:"component"`
	Changes   []patch.Change `json:"changes"`
}

// printChanges tells what was done to the files of a series.
func (a *app) printChanges(changes []patch.Change, component string) error {
	if a.json {
		return a.printJSON(seriesChanges{Schema: "payload.patch-changes/v1", Component: component, Changes: append([]patch.Change{}, changes...)})
	}
	written := 0
	for _, c := range changes {
		fmt.Fprintln(a.stdout, c)
		if c.Kind != patch.Ignored {
			written++
		}
	}
	if written == 0 {
		a.voice.Say("the series holds this already")
		return nil
	}
	a.voice.Say("now: payload lock %s", component)
	return nil
}
