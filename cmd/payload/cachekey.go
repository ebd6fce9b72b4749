package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/ci"
)

type cacheKeyOptions struct {
	preset  string
	explain bool
}

func newCacheKeyCmd(a *app, do func(context.Context, *app, cacheKeyOptions) error) *cobra.Command {
	var opts cacheKeyOptions
	cmd := &cobra.Command{
		Use:   "cache-key PRESET",
		Short: "Print the key under which a preset's build may be kept",
		Long: `Digest everything that decides what a preset's build folder holds: pins, lock,
patches, the expanded preset, CMake files, the variables that steer compilers,
and the compilers. The key alone goes to stdout. A cache with this key and
nothing to fall back on never brings back an older build.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.preset = pos[0]
			return do(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().BoolVar(&opts.explain, "explain", false, "print what goes into the key instead")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON, with what goes into the key")
	return cmd
}

func runCacheKey(ctx context.Context, a *app, opts cacheKeyOptions) error {
	w, err := a.open(ctx, sourceFlags{})
	if err != nil {
		return err
	}
	// Unknown and disabled presets are errors, as for build.
	dir, preset, err := build.FindPreset(w.File, opts.preset)
	if err != nil {
		return err
	}
	files, err := ci.Files(ctx, w.File)
	if err != nil {
		return err
	}
	projects, err := ci.Projects(w.File, files)
	if err != nil {
		return err
	}
	var key ci.Key
	for _, p := range projects {
		if p.Dir == dir {
			if key, err = ci.CacheKey(ctx, w, p, preset, build.Needs(preset, build.CanCross(preset))); err != nil {
				return err
			}
		}
	}
	switch {
	case a.json:
		return a.printJSON(key)
	case !opts.explain:
		_, err = fmt.Fprintln(a.stdout, key.Key)
		return err
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, p := range key.Parts {
		value, _, _ := strings.Cut(p.Value, "\n")
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.Kind, p.Name, value)
	}
	return table.Flush()
}
