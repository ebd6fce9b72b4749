package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/pack"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/workspace"
)

type doctorOptions struct {
	preset   string
	fix      bool
	markdown bool
}

func newDoctorCmd(a *app, do func(context.Context, *app, doctorOptions) error) *cobra.Command {
	var opts doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine has what the presets need",
		Long: `Check which tools the presets and the sources need, and which are there.
Without --preset, say of every preset whether it can be built here.
With --fix, what is missing is installed: by apt on Debian and Ubuntu, by brew on
macOS; elsewhere the commands are printed.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), a, opts) },
	}
	cmd.Flags().StringVar(&opts.preset, "preset", "", "look at what the `PRESET` needs alone")
	cmd.Flags().BoolVar(&opts.fix, "fix", false, "install what is missing")
	cmd.Flags().BoolVar(&opts.markdown, "markdown", false, "print the table of presets for a document")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("preset", "markdown")
	return cmd
}

type doctorReport struct {
	Schema  string           `json:"schema"`
	OK      bool             `json:"ok"`
	Presets []string         `json:"presets"`
	States  []presetState    `json:"states,omitempty"` // of every preset, when no single one was asked for
	Tools   []doctor.Finding `json:"tools"`
}

// presetState is whether a preset can be built here.
type presetState struct {
	Preset      string           `json:"preset"`
	Description string           `json:"description"`
	OK          bool             `json:"ok"`
	Cross       bool             `json:"cross,omitempty"` // it is for another system, and has a toolchain for this one
	Missing     []doctor.Finding `json:"missing,omitempty"`
}

// words are what the preset lacks.
func (p presetState) words() string {
	if p.OK && p.Cross {
		return "builds with --cross"
	}
	if p.OK {
		return "builds"
	}
	var parts []string
	for _, f := range p.Missing {
		parts = append(parts, f.Name+": "+f.Problem)
	}
	return "exit 6: " + strings.Join(parts, "; ")
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
		if findings, err = fix(ctx, a, needs, findings, opts.preset != ""); err != nil {
			return err
		}
	}
	missing := doctor.Missing(findings)
	report := doctorReport{Schema: "payload.doctor/v1", OK: len(missing) == 0, Presets: presets, Tools: findings}
	if opts.preset == "" {
		if report.States, err = statesOf(ctx, file); err != nil {
			return err
		}
		report.OK = slices.ContainsFunc(report.States, func(p presetState) bool { return p.OK })
	}
	if err := a.printDoctor(report, opts.markdown); err != nil {
		return err
	}
	if report.OK {
		return nil
	}
	if !opts.fix {
		a.voice.Say("%d missing; %s", len(missing), howToFix(missing, opts.preset))
	}
	return &reported{code: exitPrerequisite}
}

func (a *app) printDoctor(report doctorReport, markdown bool) error {
	switch {
	case a.json:
		return a.printJSON(report)
	case markdown:
		fmt.Fprintf(a.stdout, "| preset | is | on %s/%s |\n|---|---|---|\n", runtime.GOOS, runtime.GOARCH)
		for _, p := range report.States {
			fmt.Fprintf(a.stdout, "| `%s` | %s | %s |\n", p.Preset, p.Description, strings.ReplaceAll(p.words(), "|", "\\|"))
		}
		return nil
	}
	fmt.Fprintf(a.stdout, "presets: %s\n", strings.Join(report.Presets, ", "))
	width := 0
	for _, p := range report.States {
		width = max(width, len(p.Preset))
	}
	for _, p := range report.States {
		fmt.Fprintf(a.stdout, "%-*s  %s\n", width, p.Preset, p.words())
	}
	name, state := 0, 0
	for _, f := range report.Tools {
		name, state = max(name, len(f.Name)), max(state, len(stateOf(f)))
	}
	for _, f := range report.Tools {
		fmt.Fprintf(a.stdout, "%s  %-*s  %-*s  %s, for %s\n", markOf(f), name, f.Name, state, stateOf(f), f.Why, f.For)
	}
	return nil
}

// statesOf looks at what each preset of the repository needs.
func statesOf(ctx context.Context, file *config.File) ([]presetState, error) {
	presets, err := presetsOf(file)
	if err != nil {
		return nil, err
	}
	var states []presetState
	for _, p := range presets {
		cross := build.CanCross(p)
		findings, err := doctor.Look(ctx, build.Needs(p, cross))
		if err != nil {
			return nil, err
		}
		missing := doctor.Missing(findings)
		states = append(states, presetState{
			Preset: p.Name, Description: cmp.Or(p.DisplayName, p.Name), OK: len(missing) == 0, Cross: cross, Missing: missing,
		})
	}
	return states, nil
}

// presetsOf lists the presets of all projects.
func presetsOf(file *config.File) (presets []cmakerun.Preset, err error) {
	for _, project := range workspace.Projects(file) {
		all, err := cmakerun.ReadPresets(file.Abs(project))
		if err != nil {
			return nil, err
		}
		presets = append(presets, all.Visible()...)
	}
	return presets, nil
}

// needsOf gathers the needs of one preset, or of all that this machine could
// build, and of the mirrors that hold the pinned refs.
func needsOf(file *config.File, only string) (names []string, needs []doctor.Need, err error) {
	projects := map[string]bool{}
	if only != "" {
		project, preset, err := build.FindPreset(file, only)
		if err != nil {
			return nil, nil, err
		}
		projects[project] = true
		cross := build.CanCross(preset)
		names, needs = []string{only}, build.Needs(preset, cross)
		if cross {
			toolchain, err := file.ToolchainFor(preset.Vendor.Cross.Toolchain)
			if err != nil {
				return nil, nil, err
			}
			needs = append(needs, fetcher(toolchain.Name, toolchain.Mirror(), false)...)
		}
	} else {
		presets, err := presetsOf(file)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range presets {
			names = append(names, p.Name)
			if of := build.Needs(p, build.CanCross(p)); !slices.ContainsFunc(of, func(n doctor.Need) bool { return n.Fails != "" }) {
				needs = append(needs, of...)
			}
		}
		needs = append(needs, packaging(file)...)
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
			needs = append(needs, fetcher(c.Name+"'s mirror", m, only == "")...)
		}
		for _, b := range c.PrebuiltOf(ref, only) {
			needs = append(needs, fetcher("prebuilt "+c.Name, b.Mirror(), false)...)
		}
	}
	return names, needs, nil
}

// packaging is what a release takes: nothing that a person who only builds needs.
func packaging(file *config.File) (needs []doctor.Need) {
	for _, system := range config.Systems {
		if !slices.ContainsFunc(file.Packages.Groups, func(g config.Group) bool { return g.System == system }) {
			continue
		}
		for _, n := range pack.Needs(system) {
			n.Optional = true
			needs = append(needs, n)
		}
	}
	return needs
}

// fetcher is the tool that fetches a mirror, if that takes one.
func fetcher(what string, m config.Mirror, optional bool) []doctor.Need {
	tool, ok := mirrorTools[m.Kind()]
	if !ok {
		return nil
	}
	return []doctor.Need{{Name: tool, For: what + " " + m.ID(), Optional: optional}}
}

// mirrorTools is the tool that fetches a kind of mirror.
var mirrorTools = map[string]string{"pypi": "pip", "crate": "cargo"}

// fix installs what findings lack. Kits are large: they are made for a preset
// that was named, and only where nothing else keeps it from being built.
func fix(ctx context.Context, a *app, needs []doctor.Need, findings []doctor.Finding, named bool) ([]doctor.Finding, error) {
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
	_, kits, left := doctor.FixCommands(findings)
	if len(kits) == 0 || !named || len(doctor.Missing(left)) > 0 {
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

func markOf(f doctor.Finding) string {
	switch {
	case f.OK:
		return "ok  "
	case f.Optional:
		return "-   "
	}
	return "MISS"
}

func stateOf(f doctor.Finding) string {
	state := f.Found
	switch {
	case !f.OK && f.Optional:
		return f.Problem + " (optional)"
	case !f.OK:
		return f.Problem
	case state == "yes":
		state = "found"
	}
	if f.Min != "" {
		state += ", needs " + f.Min
	}
	return state
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
