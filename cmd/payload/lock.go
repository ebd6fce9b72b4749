package main

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/pin"
	"payload/internal/workspace"
)

type lockOptions struct {
	sourceFlags
	component string // empty: all
	check     bool
}

func newLockCmd(a *app, do func(context.Context, *app, lockOptions) error) *cobra.Command {
	var opts lockOptions
	cmd := &cobra.Command{
		Use:   "lock [COMPONENT]",
		Short: "Resolve the pins as they stand and write payload.lock",
		Args:  args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if len(pos) > 0 {
				opts.component = pos[0]
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.addKinds(cmd)
	cmd.Flags().BoolVar(&opts.check, "check", false, "change nothing; exit 3 when pins or patches are not the lock's")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

type lockReport struct {
	Schema  string      `json:"schema"`
	Changed bool        `json:"changed"`
	Entries []lockEntry `json:"entries"`
}

type lockEntry struct {
	Component string `json:"component"`
	Ref       string `json:"ref"`
	Commit    string `json:"commit"`
	Build     int    `json:"build"`
	Patches   int    `json:"patches"`
	Agrees    bool   `json:"agrees"`
	Problem   string `json:"problem,omitempty"`
}

func runLock(ctx context.Context, a *app, opts lockOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	var names []string
	for _, c := range w.File.Components {
		if opts.component == "" || opts.component == c.Name {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		_, err := w.File.Component(opts.component)
		return err
	}
	if opts.check {
		return checkLock(a, w, names)
	}
	report := lockReport{Schema: "payload.lock/v1"}
	before := slices.Clone(w.Lock.Entries)
	for _, name := range names {
		err := a.voice.Step("lock "+name, func() error {
			e, err := w.Relock(ctx, name)
			if err != nil {
				return err
			}
			report.Entries = append(report.Entries, lockEntry{Component: name, Ref: e.Ref, Commit: e.Commit, Build: e.Build, Patches: len(e.Patches), Agrees: true})
			a.voice.Say("%s = %s, %d patches, %d sources", e.Ref, build.CommitInWords(e.Commit), len(e.Patches), len(e.Sources))
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.SortLock()
	report.Changed = !reflect.DeepEqual(before, w.Lock.Entries)
	if err := w.Lock.Save(w.File.Root); err != nil {
		return err
	}
	if report.Changed {
		a.voice.Say("payload.lock is written")
	} else {
		a.voice.Say("payload.lock holds this already")
	}
	if a.json {
		return a.printJSON(report)
	}
	return nil
}

func checkLock(a *app, w *workspace.Workspace, names []string) error {
	report := lockReport{Schema: "payload.lock/v1"}
	agree := true
	for _, name := range names {
		p, err := w.Pinned(name)
		entry := lockEntry{Component: name, Ref: p.Ref, Patches: len(p.Series.Patches)}
		var wrong *pin.Disagreement
		switch {
		case errors.As(err, &wrong):
			entry.Problem = wrong.Error()
		case err != nil:
			return err
		case p.Entry == nil:
			entry.Problem = "payload.lock has no entry for " + name
		default:
			entry.Agrees, entry.Commit, entry.Build = true, p.Entry.Commit, p.Entry.Build
		}
		if !entry.Agrees {
			agree = false
			a.voice.Say("%s", entry.Problem)
		}
		report.Entries = append(report.Entries, entry)
	}
	if a.json {
		if err := a.printJSON(report); err != nil {
			return err
		}
	}
	if !agree {
		a.voice.Say("hint: payload lock")
		return &reported{code: exitFindings}
	}
	a.voice.Say("pins and patches are payload.lock's")
	return nil
}
