package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/voice"
)

type buildOptions struct {
	sourceFlags
	presets       []string
	jobs          int
	launcher      string
	targets       []string
	configureOnly bool
	dryRun        bool
	explain       bool
	all           bool // of the options, with explain
	noRun         bool
	provider      string
	cross         bool
}

func newBuildCmd(a *app, do func(context.Context, *app, buildOptions) error) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "build --preset P[,P]",
		Short: "Build, stage and verify presets",
		Long: `Build presets: resolve the pins, materialise the patched sources, configure,
compile, stage to dist/PRESET/lib/payload, verify with real requests.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.presets = slices.DeleteFunc(opts.presets, func(p string) bool { return p == "" })
			if len(opts.presets) == 0 {
				return missingFlag(cmd, "preset")
			}
			if opts.jobs < 0 {
				return &usageError{err: fmt.Errorf("--jobs %d: at least one file has to be compiled at a time", opts.jobs), command: cmd.CommandPath()}
			}
			if opts.all && !opts.explain {
				return &usageError{err: errors.New("--all goes with --explain"), command: cmd.CommandPath()}
			}
			if p := opts.provider; p != "" && p != build.FromSource && p != build.Prebuilt {
				return &usageError{err: fmt.Errorf("--provider %s: it is %s or %s", p, build.FromSource, build.Prebuilt), command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&opts.presets, "preset", nil, "the `PRESETS` to build, separated by commas")
	f.IntVarP(&opts.jobs, "jobs", "j", 0, "compile `N` files at once (default: by cores and memory)")
	f.StringVar(&opts.launcher, "launcher", "auto", "compiler launcher: auto, none, or a `PROGRAM` such as ccache or sccache")
	f.StringSliceVar(&opts.targets, "target", nil, "compile these `TARGETS` alone; nothing is staged")
	f.BoolVar(&opts.configureOnly, "configure-only", false, "stop after configuring")
	f.BoolVar(&opts.noRun, "no-run", false, "verify the files alone, on a machine that can't run the payload; payload.json says so")
	f.StringVar(&opts.provider, "provider", "", "source or prebuilt: compile a component that comes compiled too, or not (default: the preset's `CHOICE`)")
	f.BoolVar(&opts.cross, "cross", false, "build a preset of another system here, with the toolchain that it names")
	f.BoolVarP(&opts.dryRun, "dry-run", "n", false, "print the commands and build nothing; sources are still made ready")
	f.BoolVar(&opts.explain, "explain", false, "show preset, upstream's defaults and cache side by side; compile nothing")
	f.BoolVar(&opts.all, "all", false, "with --explain: every cache entry, not only what is chosen or differs")
	f.BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// launcherError is a compiler launcher that was asked for and isn't there.
type launcherError struct {
	name string
	err  error
}

func (e *launcherError) Error() string { return fmt.Sprintf("--launcher %s: %v", e.name, e.err) }
func (e *launcherError) Unwrap() error { return e.err }

type buildReport struct {
	Schema string         `json:"schema"`
	Builds []build.Result `json:"builds"`
}

func runBuild(ctx context.Context, a *app, opts buildOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	launcher, err := cmakerun.FindLauncher(opts.launcher)
	if err != nil {
		return &launcherError{name: opts.launcher, err: err}
	}
	if opts.explain {
		return explainBuilds(ctx, a, w, launcher, opts)
	}
	report := buildReport{Schema: "payload.build/v1"}
	for _, preset := range opts.presets {
		res, err := build.Run(ctx, w, a.voice, build.Options{
			Preset: preset, Jobs: opts.jobs, Launcher: launcher, Targets: opts.targets,
			ConfigureOnly: opts.configureOnly, DryRun: opts.dryRun, NoRun: opts.noRun, Provider: opts.provider, Cross: opts.cross,
		})
		if err != nil {
			return err
		}
		report.Builds = append(report.Builds, res)
		if !a.json {
			for _, c := range res.Commands {
				fmt.Fprintln(a.stdout, c)
			}
		}
		if !opts.dryRun {
			a.voice.Say("%s", summary(res))
		}
	}
	if a.json {
		return a.printJSON(report)
	}
	return nil
}

// summary is the one line that a build ends with.
func summary(r build.Result) string {
	var refs []string
	for _, s := range r.Sources {
		ref := s.Component + " " + s.Ref
		if strings.HasPrefix(s.From, "override:") {
			ref = s.Component + " in " + strings.TrimPrefix(s.From, "override:")
		}
		if s.Unpatched {
			ref += " WITHOUT its patches"
		}
		if s.Prebuilt != "" {
			ref += " (" + s.Prebuilt + ")"
		}
		refs = append(refs, ref)
	}
	from := strings.Join(refs, ", ")
	took := voice.Duration(time.Duration(r.Seconds * float64(time.Second)))
	if r.Staged == "" {
		return fmt.Sprintf("%s: %s from %s in %s; nothing staged", r.Preset, done[r.Reached], from, took)
	}
	return fmt.Sprintf("%s: built from %s in %s; %s: %s (%d files, %s)", r.Preset, from, took, r.Verified.Proven(), r.Staged, r.Files, voice.Size(r.Bytes))
}

// done says what a build that was to stop early has done.
var done = map[string]string{"configure": "configured", "compile": "compiled"}
