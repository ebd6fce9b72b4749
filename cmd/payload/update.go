package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/search"
	"payload/internal/update"
	"payload/internal/workspace"
)

type updateOptions struct {
	sourceFlags
	bestFlags
	component string // empty with one of the three that go on
	ref       string
	base      string
	dryRun    bool
	preset    string
	presetSet bool
	noBuild   bool
	jobs      int
	commit    bool
	commitSet bool

	goOn   bool
	skip   bool
	reason string
	abort  bool
}

func newUpdateCmd(a *app, do func(context.Context, *app, updateOptions) error) *cobra.Command {
	var opts updateOptions
	cmd := &cobra.Command{
		Use:   "update COMPONENT --ref REF|latest|best | update --continue | --skip --reason TEXT | --abort",
		Short: "Move a component to another ref, its patches carried along",
		Long: `Move a component to another ref as one transaction: get both trees, carry the
patches from one to the other, prove that the written series makes the same tree,
then write pin, lock, patches and every declared copy of the pin at once, and
build and verify. Backwards works too. --ref latest is the newest ref that
payload.yaml lets an update take; --ref best the newest at which the series applies,
coupled pins agree, and the preset that is built, or those of --configures, still
configure.

What upstream holds already is dropped, what moved is retargeted. A patch that
needs a person stops the update (exit 4) before anything is written: it lies in
build/update/COMPONENT as git leaves a conflict. Resolve it there, git add, then
--continue. --skip --reason TEXT leaves the patch out, --abort ends the update
and leaves the repository as it was. A killed update goes on with --continue.`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if len(pos) > 0 {
				opts.component = pos[0]
			}
			opts.presetSet, opts.commitSet = cmd.Flags().Changed("build"), cmd.Flags().Changed("commit")
			if err := opts.check(cmd); err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	opts.addKinds(cmd)
	opts.bestFlags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&opts.ref, "ref", "", "the `REF` to move to; also latest and best")
	f.StringVar(&opts.base, "base", "", "report against the pin at this `REF` of the repository (default: where the branch left the main one)")
	f.BoolVar(&opts.withCoupled, "with-coupled", false, "move the components too that are coupled to this one and disagree with the new ref")
	f.BoolVarP(&opts.dryRun, "dry-run", "n", false, "tell what would become of each patch and file, and write nothing")
	f.StringVar(&opts.preset, "build", "", "build and verify this `PRESET` (default: the first of the component's project that this machine can build)")
	f.BoolVar(&opts.noBuild, "no-build", false, "build nothing")
	f.IntVarP(&opts.jobs, "jobs", "j", 0, "compile `N` files at once (default: by cores and memory)")
	f.BoolVar(&opts.commit, "commit", false, "make two commits: what moved by itself, and what has to be read")
	f.BoolVar(&opts.goOn, "continue", false, "go on with the open update")
	f.BoolVar(&opts.skip, "skip", false, "leave out the patch that the open update stopped at, and go on")
	f.StringVar(&opts.reason, "reason", "", "why the patch is left out: `TEXT` for the commit's message")
	f.BoolVar(&opts.abort, "abort", false, "end the open update and leave everything as it was before")
	f.BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// check says what is wrong with the flags together.
func (o updateOptions) check(cmd *cobra.Command) error {
	ways := 0
	for _, way := range []bool{o.goOn, o.skip, o.abort} {
		if way {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("--continue, --skip and --abort exclude each other")
	case o.noBuild && o.presetSet:
		return errors.New("--build and --no-build exclude each other")
	case o.jobs < 0:
		return fmt.Errorf("--jobs %d: at least one file has to be compiled at a time", o.jobs)
	case o.skip && strings.TrimSpace(o.reason) == "":
		return errors.New("--skip needs --reason TEXT: why the patch is left out")
	case !o.skip && o.reason != "":
		return errors.New("--reason belongs to --skip")
	case ways == 0 && (o.component == "" || o.ref == ""):
		return errors.New("a component and --ref REF are needed, or one of --continue, --skip and --abort")
	case ways > 0 && (o.ref != "" || o.base != "" || o.withCoupled || o.dryRun):
		return errors.New("--ref, --base, --with-coupled and --dry-run belong to a new update")
	}
	return o.bestFlags.check(o.ref)
}

func runUpdate(ctx context.Context, a *app, opts updateOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	if opts.component != "" {
		if _, err := w.File.Component(opts.component); err != nil {
			return err
		}
	}
	builder := a.builder(opts)
	var res updateReport
	switch {
	case opts.abort:
		res.Result, err = update.Abort(ctx, w, a.voice, opts.component)
	case opts.skip:
		res.Result, err = update.Skip(ctx, w, a.voice, builder, opts.reason, opts.finish())
	case opts.goOn:
		res.Result, err = update.Continue(ctx, w, a.voice, builder, opts.finish())
	default:
		res, err = a.startUpdate(ctx, w, builder, opts)
	}
	var conflict *update.ConflictError
	stopped := errors.As(err, &conflict)
	if err != nil && !stopped {
		return err
	}
	if a.json {
		if err := a.printJSON(res); err != nil {
			return err
		}
		if stopped {
			return &reported{code: exitConflict}
		}
		return nil
	}
	printUpdate(a.stdout, res.Result)
	if err == nil {
		a.adviseOnUpdate(res.Result)
	}
	return err
}

// updateReport is `payload update --json`.
type updateReport struct {
	update.Result
	Best *search.Found `json:"best,omitempty"` // with --ref best
}

// startUpdate begins an update with what the flags leave open filled in.
func (a *app) startUpdate(ctx context.Context, w *workspace.Workspace, builder update.Builder, opts updateOptions) (res updateReport, err error) {
	open, err := update.Open(w)
	if err == nil && open != "" && !opts.dryRun {
		err = &update.OpenError{Update: open} // said before a long search
	}
	if err != nil {
		return res, err
	}
	preset := opts.preset
	if preset == "" && !opts.noBuild {
		if preset, err = affectedPreset(w.File, opts.component); err != nil {
			return res, err
		}
		if preset == "" && !opts.dryRun {
			a.voice.Say("no preset here builds %s: nothing will be built", opts.component)
		}
	}
	if preset != "" {
		if _, _, err := build.FindPreset(w.File, preset); err != nil {
			return res, err
		}
		if len(opts.presets) == 0 {
			opts.presets = []string{preset} // what will be built has to configure
		}
	}
	ref, best, err := a.refNamed(ctx, w, opts.component, opts.ref, opts.bestFlags)
	if err != nil {
		return res, err
	}
	if err := pin.CheckRef(ref); err != nil {
		return res, &usageError{err: fmt.Errorf("--ref %w", err), command: "payload update"}
	}
	res.Best = best
	res.Result, err = update.Start(ctx, w, a.voice, builder, update.Options{
		Component: opts.component, Ref: ref, Base: opts.base, WithCoupled: opts.withCoupled,
		DryRun: opts.dryRun, Preset: preset, Commit: opts.commit,
	})
	return res, err
}

// affectedPreset is the first preset of the component's project that this
// machine can build; empty where it has none.
func affectedPreset(f *config.File, component string) (string, error) {
	c, err := f.Component(component)
	if err != nil || c.Project == "" {
		return "", err
	}
	all, err := cmakerun.ReadPresets(f.Abs(c.Project))
	if err != nil {
		return "", err
	}
	for _, p := range all.Visible() {
		if p.Disabled == "" {
			return p.Name, nil
		}
	}
	return "", nil
}

// finish is what the flags change about an update that was opened before.
func (o updateOptions) finish() update.Finish {
	how := update.Finish{Component: o.component}
	if o.presetSet || o.noBuild {
		how.Preset = &o.preset
	}
	if o.commitSet {
		how.Commit = &o.commit
	}
	return how
}

// builder builds as `payload build` does, with the pins as they are by then.
func (a *app) builder(opts updateOptions) update.Builder {
	return func(ctx context.Context, preset string) (update.Built, error) {
		w, err := a.open(ctx, opts.sourceFlags)
		if err != nil {
			return update.Built{}, err
		}
		launcher, err := cmakerun.FindLauncher("auto")
		if err != nil {
			return update.Built{}, err
		}
		res, err := build.Run(ctx, w, a.voice, build.Options{Preset: preset, Jobs: opts.jobs, Launcher: launcher})
		if err != nil {
			return update.Built{}, err
		}
		return update.Built{Preset: preset, Staged: res.Staged, Summary: summary(res)}, nil
	}
}

func printUpdate(w io.Writer, r update.Result) {
	for _, m := range r.Updates {
		if r.Status == update.Aborted {
			fmt.Fprintf(w, "%s stays at %s\n", m.Component, m.From)
			continue
		}
		if m.From == m.To {
			fmt.Fprintf(w, "%s %s: %s\n", m.Component, m.To, r.Status)
		} else {
			fmt.Fprintf(w, "%s %s to %s: %s\n", m.Component, m.From, m.To, r.Status)
		}
		width := 0
		for _, p := range m.Patches {
			width = max(width, len(p.File))
		}
		for _, p := range m.Patches {
			fmt.Fprintf(w, "  %-*s  %s, %s\n", width, p.File, p.Verdict, p.Action)
			for _, line := range patchNotes(p) {
				fmt.Fprintf(w, "      %s\n", line)
			}
		}
	}
	if r.Conflict != nil {
		printConflict(w, *r.Conflict)
	}
	for _, group := range []struct {
		name  string
		files []string
	}{{"mechanical", r.Files.Mechanical}, {"to be read", r.Files.Content}} {
		if len(group.files) > 0 {
			fmt.Fprintf(w, "%s: %s\n", group.name, strings.Join(group.files, ", "))
		}
	}
	if r.Build != nil {
		fmt.Fprintln(w, r.Build.Summary)
	}
}

// patchNotes says about a patch what its verdict and action don't.
func patchNotes(p update.Patch) []string {
	var lines []string
	if p.Detail != "" {
		lines = strings.Split(strings.TrimSpace(p.Detail), "\n")
	}
	if p.Reason != "" {
		lines = append(lines, p.Reason)
	}
	for _, c := range p.Upstream {
		lines = append(lines, fmt.Sprintf("upstream's %.12s %s", c.ID, c.Subject))
	}
	if p.Now != "" && p.Now != p.File {
		lines = append(lines, "now "+p.Now)
	}
	return lines
}

func printConflict(w io.Writer, c update.Conflict) {
	switch {
	case c.Manual:
		fmt.Fprintf(w, "%s does not apply where it was made for either: its change has to be made by hand\n", c.File)
	case c.Settled:
		fmt.Fprintf(w, "%s: git merges it, perhaps into the wrong place: look at what it did\n", c.File)
	}
	for _, s := range c.Sides {
		if s.Line > 0 {
			fmt.Fprintf(w, "%s, line %d:\n", s.Path, s.Line)
		} else {
			fmt.Fprintf(w, "%s:\n", s.Path)
		}
		for _, side := range []struct {
			name  string
			lines []string
		}{{"before", s.Base}, {"upstream", s.Upstream}, {"patch", s.Patch}} {
			const most = 12
			if len(side.lines) == 0 && s.Line > 0 {
				fmt.Fprintf(w, "  %-8s | (nothing)\n", side.name)
			}
			for i, line := range side.lines {
				if i == most {
					fmt.Fprintf(w, "  %-8s | … and %d more lines\n", "", len(side.lines)-most)
					break
				}
				name := side.name
				if i > 0 {
					name = ""
				}
				fmt.Fprintf(w, "  %-8s | %s\n", name, line)
			}
		}
		for _, commit := range s.Commits {
			fmt.Fprintf(w, "  changed by upstream's %.12s %s\n", commit.ID, commit.Subject)
		}
	}
	if c.History != "" {
		fmt.Fprintf(w, "upstream's commits can't be named: %s\n", c.History)
	}
}

// adviseOnUpdate says what is left to do.
func (a *app) adviseOnUpdate(r update.Result) {
	for _, k := range r.Coupled {
		if !k.Agrees {
			a.voice.Say("warning: %s", k)
			if len(r.Updates) > 0 { // said again, it moves nothing twice
				a.voice.Say("hint: payload update %s --ref %s --with-coupled", r.Updates[0].Component, r.Updates[0].To)
			}
		}
	}
	switch {
	case r.Status == update.Unchanged:
		a.voice.Say("the repository holds this already")
	case r.Status == update.Done && len(r.Commits) == 0:
		for _, half := range []struct {
			files   []string
			message string
		}{{r.Files.Mechanical, r.Messages.Mechanical}, {r.Files.Content, r.Messages.Content}} {
			if len(half.files) > 0 {
				add := run.Cmd{Args: append([]string{"git", "add"}, half.files...)}
				a.voice.Say("%s && %s", add, run.Cmd{Args: []string{"git", "commit", "-m", strings.TrimSpace(half.message)}})
			}
		}
	}
}
