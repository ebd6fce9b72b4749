package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payload/cmake"
	"payload/internal/adopt"
	"payload/internal/config"
)

type initOptions struct {
	component config.Component
	ref       string
	adopt     bool
	dryRun    bool
}

func newInitCmd(a *app, do func(context.Context, *app, initOptions) error) *cobra.Command {
	var opts initOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first payload.yaml, or one for what the repository pins already",
		Long: `Write a first payload.yaml: with an example to fill in, with the component
that the flags name, or with --adopt for what the repository pins already: pin
files, makefiles, CMake declarations, submodules, patches. It lies in the
current folder, or in that of -C. Nothing that exists is changed.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd); err != nil {
				return err
			}
			return do(cmd.Context(), a, opts)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&opts.adopt, "adopt", false, "look for what the repository pins already")
	f.StringVar(&opts.component.Name, "component", "", "the `NAME` of a component to start with")
	f.StringVar(&opts.component.Upstream, "upstream", "", "its git repository: a `URL` or a path")
	f.StringVar(&opts.ref, "ref", "", "the `REF` to pin: a tag or a full commit")
	f.StringVar(&opts.component.Patches, "patches", "", "the `DIR` of its patches")
	f.StringVar(&opts.component.Project, "project", "", "the `DIR` of its CMake project; the CMake modules are put into cmake/")
	f.BoolVar(&opts.dryRun, "dry-run", false, "write nothing; print payload.yaml")
	f.BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// check holds the flags against each other.
func (o *initOptions) check(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	named := []string{"component", "upstream", "ref", "patches", "project"}
	if !slices.ContainsFunc(named, given) {
		return nil
	}
	if o.adopt {
		return &usageError{err: errors.New("--adopt finds the components; it takes none from flags"), command: cmd.CommandPath()}
	}
	for _, name := range named[:3] {
		if cmd.Flag(name).Value.String() == "" {
			return missingFlag(cmd, name)
		}
	}
	for _, path := range []*string{&o.component.Patches, &o.component.Project} {
		*path = filepath.ToSlash(*path)
	}
	return nil
}

type initReport struct {
	Schema     string          `json:"schema"`
	Root       string          `json:"root"`
	DryRun     bool            `json:"dry_run"`
	Written    []string        `json:"written"`
	Components []initComponent `json:"components"`
	Skipped    []adopt.Skipped `json:"skipped"`
	YAML       string          `json:"payload_yaml,omitempty"` // of a dry run
}

type initComponent struct {
	Component string        `json:"component"`
	Upstream  string        `json:"upstream"`
	Ref       string        `json:"ref"`
	Pin       string        `json:"pin"`
	NewPin    bool          `json:"new_pin"`
	Patches   string        `json:"patches,omitempty"`
	Project   string        `json:"project,omitempty"`
	From      []adopt.Where `json:"from"`
}

func runInit(ctx context.Context, a *app, opts initOptions) error {
	root, err := filepath.Abs(a.dir)
	if err != nil {
		return fmt.Errorf("starting in %s: %w", a.dir, err)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return fmt.Errorf("starting in %s: no such folder", root)
	}
	plan := adopt.Empty()
	if err := plan.Check(root); err != nil {
		return err
	}
	var found adopt.Found
	switch {
	case opts.adopt:
		if found, err = adopt.Look(ctx, root); err != nil {
			return err
		}
		// Told first: where nothing can be carried over, this says why.
		a.tellFound(found)
		if plan, err = adopt.For(found.Components); err != nil {
			return err
		}
	case opts.component.Name != "":
		c := adopt.Component{Component: opts.component, Ref: opts.ref, NewPin: true, From: []adopt.Where{}}
		c.Pin = c.Var() + "_VERSION"
		found.Components = []adopt.Component{c}
		if plan, err = adopt.For(found.Components); err != nil {
			return &usageError{err: err, command: "payload init"}
		}
	}
	if opts.component.Project != "" {
		if err := plan.Add("cmake", cmake.Modules); err != nil {
			return err
		}
	}
	report := initReport{Schema: "payload.init/v1", Root: root, DryRun: opts.dryRun, Written: []string{}, Components: []initComponent{}, Skipped: []adopt.Skipped{}}
	report.Skipped = append(report.Skipped, found.Skipped...)
	for _, c := range found.Components {
		report.Components = append(report.Components, initComponent{c.Name, c.Upstream, c.Ref, c.Pin, c.NewPin, c.Patches, c.Project, c.From})
	}
	if opts.dryRun {
		if err := plan.Check(root); err != nil {
			return err
		}
		report.YAML = string(plan.YAML())
		if !a.json {
			fmt.Fprint(a.stdout, report.YAML)
		}
	} else {
		if report.Written, err = plan.Write(root); err != nil {
			return err
		}
		a.voice.Say("written: %s", strings.Join(report.Written, ", "))
		if len(found.Components) > 0 {
			a.voice.Say("next: payload lock")
		} else {
			a.voice.Say("next: name a component in %s, then payload lock", config.FileName)
		}
	}
	if a.json {
		return a.printJSON(report)
	}
	return nil
}

func (a *app) tellFound(found adopt.Found) {
	for _, c := range found.Components {
		line := fmt.Sprintf("adopted %s at %s of %s", c.Name, c.Ref, c.Upstream)
		if c.Patches != "" {
			line += ", patches in " + c.Patches
		}
		var places []string
		for _, at := range c.From {
			places = append(places, at.String())
		}
		a.voice.Say("%s\n  from %s", line, strings.Join(places, ", "))
		if c.NewPin {
			a.voice.Say("  pin file %s is new; the places above keep their own copy of the ref", c.Pin)
		}
	}
	if len(found.Skipped) > 0 {
		a.voice.Say("not carried over:")
	}
	for _, s := range found.Skipped {
		a.voice.Say("  %s: %s", s.Where, s.Why)
	}
}
