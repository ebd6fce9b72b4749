package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/workspace"
)

type doctorOptions struct {
	preset string
	fix    bool
}

func newDoctorCmd(a *app, do func(context.Context, *app, doctorOptions) error) *cobra.Command {
	var opts doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine has what the presets need",
		Long: `Check which tools the presets and the sources need, and which are there.
With --fix, what is missing is installed: by apt on Debian and Ubuntu, by brew on
macOS; elsewhere the commands are printed.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), a, opts) },
	}
	cmd.Flags().StringVar(&opts.preset, "preset", "", "look at what the `PRESET` needs alone")
	cmd.Flags().BoolVar(&opts.fix, "fix", false, "install what is missing")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

type doctorReport struct {
	Schema  string           `json:"schema"`
	OK      bool             `json:"ok"`
	Presets []string         `json:"presets"`
	Tools   []doctor.Finding `json:"tools"`
}

func runDoctor(ctx context.Context, a *app, opts doctorOptions) error {
	file, err := a.config()
	if err != nil {
		return err
	}
	presets, needs, err := needsOf(file, opts.preset)
	if err != nil {
		return err
	}
	findings, err := doctor.Look(ctx, needs)
	if err != nil {
		return err
	}
	if opts.fix {
		if findings, err = fix(ctx, a, needs, findings); err != nil {
			return err
		}
	}
	missing := doctor.Missing(findings)
	report := doctorReport{Schema: "payload.doctor/v1", OK: len(missing) == 0, Presets: presets, Tools: findings}
	if a.json {
		if err := a.printJSON(report); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.stdout, "presets: %s\n", strings.Join(presets, ", "))
		for _, f := range findings {
			fmt.Fprintln(a.stdout, doctorLine(f))
		}
	}
	if report.OK {
		return nil
	}
	if !opts.fix {
		a.voice.Say("%d missing; %s", len(missing), howToFix(missing, opts.preset))
	}
	return &reported{code: exitPrerequisite}
}

// needsOf gathers the needs of one preset, or of all, and of the mirrors that
// hold the pinned refs.
func needsOf(file *config.File, only string) (names []string, needs []doctor.Need, err error) {
	projects := map[string]bool{}
	if only != "" {
		project, preset, err := build.FindPreset(file, only)
		if err != nil {
			return nil, nil, err
		}
		projects[project] = true
		names, needs = []string{only}, build.Needs(preset)
	} else {
		for _, project := range workspace.Projects(file) {
			all, err := cmakerun.ReadPresets(file.Abs(project))
			if err != nil {
				return nil, nil, err
			}
			for _, p := range all.Visible() {
				names, needs = append(names, p.Name), append(needs, build.Needs(p)...)
			}
		}
	}
	for _, c := range file.Components {
		if only != "" && !projects[c.Project] {
			continue
		}
		ref, err := pin.Read(file, c)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range c.MirrorsOf(ref) {
			if tool, ok := mirrorTools[m.Kind()]; ok {
				needs = append(needs, doctor.Need{Name: tool, For: c.Name + "'s mirror " + m.ID(), Optional: only == ""})
			}
		}
	}
	return names, needs, nil
}

// mirrorTools is the tool that fetches a kind of mirror.
var mirrorTools = map[string]string{"pypi": "pip", "crate": "cargo"}

func fix(ctx context.Context, a *app, needs []doctor.Need, findings []doctor.Finding) ([]doctor.Finding, error) {
	commands, _, left := doctor.FixCommands(findings)
	for _, f := range left {
		if !f.Optional {
			a.voice.Say("%s can't be installed from here: %s", f.Name, f.Get)
		}
	}
	for _, c := range commands {
		a.voice.Say("running: %s", run.Cmd{Args: c.Args})
	}
	if err := doctor.Fix(ctx, commands, a.stdin, a.voice); err != nil {
		return nil, err
	}
	findings, err := doctor.Look(ctx, needs)
	if err != nil {
		return nil, err
	}
	// What the packages brought may be too old.
	_, kits, _ := doctor.FixCommands(findings)
	if len(kits) == 0 {
		return findings, nil
	}
	for _, kit := range kits {
		a.voice.Say("%s: %s", kit, doctor.KitInWords(kit))
		if err := doctor.MakeKit(ctx, kit, a.voice); err != nil {
			return nil, err
		}
	}
	return doctor.Look(ctx, needs)
}

func doctorLine(f doctor.Finding) string {
	mark, state := "ok  ", f.Found
	switch {
	case !f.OK && f.Optional:
		mark, state = "-   ", f.Problem+" (optional)"
	case !f.OK:
		mark, state = "MISS", f.Problem
	case f.Found == "yes":
		state = "found"
	}
	if f.Min != "" && f.OK {
		state += ", needs " + f.Min
	}
	line := fmt.Sprintf("%s  %-8s %-34s %s, for %s", mark, f.Name, state, f.Why, f.For)
	return line
}

// fixCommand is doctor's own, for one preset or for all.
func fixCommand(preset string) string {
	if preset == "" {
		return "payload doctor --fix"
	}
	return "payload doctor --fix --preset " + preset
}

// howToGet says shortly how to come by what is missing.
func howToGet(missing []doctor.Finding, preset string) string {
	var parts []string
	_, _, left := doctor.FixCommands(missing)
	if len(left) < len(missing) {
		parts = append(parts, fixCommand(preset))
	}
	for _, f := range left {
		if f.Get != "" {
			parts = append(parts, f.Get)
		}
	}
	return strings.Join(parts, "; ")
}

// howToFix is that, with what --fix would do.
func howToFix(missing []doctor.Finding, preset string) string {
	commands, kits, left := doctor.FixCommands(missing)
	var parts []string
	if len(commands)+len(kits) > 0 {
		var does []string
		if len(commands) > 0 {
			does = append(does, "runs: "+pasteable(commands))
		}
		for _, kit := range kits {
			does = append(does, doctor.KitInWords(kit))
		}
		parts = append(parts, fixCommand(preset)+" "+strings.Join(does, ", and where that is too old "))
	}
	for _, f := range left {
		parts = append(parts, f.Name+": "+f.Get)
	}
	return strings.Join(parts, "; ")
}

// pasteable is the commands as one line of shell.
func pasteable(commands []doctor.Command) string {
	var lines []string
	for _, c := range commands {
		lines = append(lines, run.Cmd{Args: c.Args}.String())
	}
	return strings.Join(lines, " && ")
}
