// Package build turns a preset into a verified payload. It owns the one list
// of steps; what a step does belongs to the packages below.
package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"payload/internal/atomicfile"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/run"
	"payload/internal/source"
	"payload/internal/verify"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// Options say what to build and how far.
type Options struct {
	Preset        string
	Jobs          int // 0: by cores and memory
	Launcher      cmakerun.Launcher
	Targets       []string // compile these alone and stop there
	ConfigureOnly bool
	Binary        string // build folder in place of the preset's own; absolute
	DryRun        bool   // gather the commands, run nothing that builds
	NoRun         bool   // verify the files alone; the manifest says what was not run
	Provider      string // Source or Prebuilt, in place of what the preset says
	Cross         bool   // with the preset's toolchain for this machine, where the preset is for another system
}

// Result is a finished build: `payload build --json` prints it.
type Result struct {
	Preset   string         `json:"preset"`
	Project  string         `json:"project"`
	Binary   string         `json:"binary_dir"`
	Reached  string         `json:"reached"` // the last step that ended well
	Steps    []Step         `json:"steps"`
	Commands []string       `json:"commands,omitempty"` // what a dry run would have run
	Staged   string         `json:"staged,omitempty"`   // the payload's folder; empty when stopped before staging
	Files    int            `json:"files,omitempty"`
	Bytes    int64          `json:"bytes,omitempty"`
	Sources  []Source       `json:"sources"`
	Verified *verify.Result `json:"verification,omitempty"`
	Seconds  float64        `json:"seconds"`
}

// Step is how long one step took.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Source is a tree that went into the build.
type Source struct {
	Component string `json:"component"`
	Ref       string `json:"ref"`
	Commit    string `json:"commit"`
	Pristine  string `json:"pristine"`
	Patched   string `json:"patched"`
	From      string `json:"from"`
	Unpatched bool   `json:"unpatched,omitempty"` // an override was used as it is
	Prebuilt  string `json:"prebuilt,omitempty"`  // where what was compiled of it comes from, in place of this tree
}

// UnverifiedError is a payload that was staged and then failed its checks.
type UnverifiedError struct {
	Dir      string
	Preset   string
	Findings string // how many of each severity
	First    string
	NoDevice bool // nothing else is wrong than that a backend had no device here
}

func (e *UnverifiedError) Error() string {
	return fmt.Sprintf("verifying %s: %s, the first: %s", e.Dir, e.Findings, e.First)
}

// job is the state that the steps hand on.
type job struct {
	w       *workspace.Workspace
	v       *voice.Voice
	opts    Options
	begun   time.Time
	preset  cmakerun.Preset
	pinned  []workspace.Pinned
	trees   []*source.Tree
	tell    []string // variables that lead to the preset's tools
	extras  []*extra // what else the project is handed
	cross   bool
	set     []string // cache entries of the preset that the command line decides
	build   cmakerun.Build
	jobs    string // how many, and why
	unlock  func() // of the build folder
	reply   *cmakerun.Reply
	modules []string // base names of the modules that were compiled
	// compiledBy is the version of Go that built the repository's programs.
	compiledBy string
	result     Result
}

// Run builds one preset.
func Run(ctx context.Context, w *workspace.Workspace, v *voice.Voice, opts Options) (Result, error) {
	j := &job{w: w, v: v, opts: opts, begun: time.Now(), result: Result{Preset: opts.Preset}}
	defer j.close()
	err := j.walk(ctx, []step{
		{"resolve", j.resolve, true},
		{"materialise", j.materialise, true},
		{"configure", j.configure, true},
		{"compile", j.compile, !opts.ConfigureOnly},
		{"stage", j.stage, !opts.ConfigureOnly && len(opts.Targets) == 0 && !opts.DryRun},
		{"verify", j.verify, !opts.ConfigureOnly && len(opts.Targets) == 0 && !opts.DryRun},
	})
	if err != nil {
		return j.result, err
	}
	j.result.Seconds = time.Since(j.begun).Seconds()
	return j.result, nil
}

// step is one of the list, by its name in messages and results.
type step struct {
	name string
	do   func(context.Context) error
	when bool
}

func (j *job) walk(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if !s.when {
			continue
		}
		begun := time.Now()
		err := j.v.Step(s.name, func() error { return s.do(ctx) })
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("cancelled while building %s, in step %s: %w", j.opts.Preset, s.name, context.Cause(ctx))
		}
		if err != nil {
			return fmt.Errorf("building %s: %w", j.opts.Preset, j.full(err))
		}
		j.result.Reached = s.name
		j.result.Steps = append(j.result.Steps, Step{Name: s.name, Seconds: time.Since(begun).Seconds()})
	}
	return nil
}

// full adds to a failure that the disk of a folder that is built in is full.
func (j *job) full(err error) error {
	for _, folder := range []string{j.build.BinaryDir, filepath.Dir(j.dist())} {
		if exists(folder) && !errors.Is(err, run.ErrNoSpace) {
			err = atomicfile.Full(err, folder)
		}
	}
	return err
}

func (j *job) close() {
	if j.unlock != nil {
		j.unlock()
	}
	for _, t := range j.held() {
		_ = t.Close() // the lock goes with the process at the latest
	}
}

// held are the folders of the store that this build uses.
func (j *job) held() []*source.Tree {
	held := slices.Clone(j.trees)
	for _, x := range j.extras {
		if x.tree != nil {
			held = append(held, x.tree)
		}
	}
	return held
}

// resolve finds the preset, what its project is made of, and whether this
// machine has the tools, before any work is done.
func (j *job) resolve(ctx context.Context) error {
	project, preset, err := FindPreset(j.w.File, j.opts.Preset)
	if err != nil {
		return err
	}
	j.preset, j.result.Project = preset, project
	if err := j.crossing(); err != nil {
		return err
	}
	findings, err := doctor.Look(ctx, Needs(preset, j.cross))
	if err != nil {
		return err
	}
	if missing := doctor.Missing(findings); len(missing) > 0 {
		return &doctor.MissingError{Preset: preset.Name, Missing: missing, Cross: !j.cross && CanCross(preset)}
	}
	for _, f := range findings {
		for _, t := range f.Tell {
			if !slices.Contains(j.tell, t) {
				j.tell = append(j.tell, t)
			}
		}
	}
	for _, c := range j.w.Sharing(project) {
		p, err := j.w.Pinned(c.Name)
		if err != nil {
			return err
		}
		j.pinned = append(j.pinned, p)
		switch override := j.w.Override(c); {
		case override != "":
			j.v.Say("%s from %s, in place of %s", c.Name, override, p.Ref)
		case p.Entry == nil:
			j.v.Say("%s %s, %d patches, not locked", c.Name, p.Ref, len(p.Series.Patches))
		default:
			j.v.Say("%s %s = %s, %d patches, as locked", c.Name, p.Ref, CommitInWords(p.Entry.Commit), len(p.Series.Patches))
		}
	}
	return j.provide()
}

// CommitInWords is a commit id, or that there is none.
func CommitInWords(commit string) string {
	if commit == "" {
		return "a commit that no source tells"
	}
	return commit
}

// FindPreset looks for a configure preset in every project of the repository.
// A name that two projects have is an error: they would share one staged tree.
// A project that is not there has none: an image may hold one of several.
func FindPreset(f *config.File, name string) (project string, preset cmakerun.Preset, err error) {
	unknown := &cmakerun.UnknownPresetError{Dir: f.Root, Name: name}
	var missing error // of the projects that are not there
	for _, candidate := range workspace.Projects(f) {
		all, err := cmakerun.ReadPresets(f.Abs(candidate))
		if errors.Is(err, fs.ErrNotExist) {
			missing = errors.Join(missing, err)
			continue
		}
		if err != nil {
			return "", cmakerun.Preset{}, err
		}
		found, err := all.Get(name)
		var not *cmakerun.UnknownPresetError
		switch {
		case errors.As(err, &not):
			unknown.Hidden = unknown.Hidden || not.Hidden
			unknown.Nearest = append(unknown.Nearest, not.Nearest...)
			unknown.Known = append(unknown.Known, not.Known...)
		case err != nil:
			return "", cmakerun.Preset{}, err
		case project != "":
			return "", cmakerun.Preset{}, fmt.Errorf("finding preset %s: both %s and %s have one; rename one of them", name, project, candidate)
		default:
			project, preset = candidate, found
		}
	}
	if project == "" && missing != nil {
		return "", cmakerun.Preset{}, missing
	}
	if project == "" {
		return "", cmakerun.Preset{}, unknown
	}
	return project, preset, nil
}

// Needs lists what a preset asks of the machine: first the machine itself. With
// cross it is built for another system than this one.
func Needs(p cmakerun.Preset, cross bool) []doctor.Need {
	who := "preset " + p.Name
	var needs []doctor.Need
	tools := p.Vendor.Tools
	if cross {
		tools = p.Vendor.Cross.Tools
	} else if wrong := wrongMachine(p); wrong != "" {
		needs = append(needs, doctor.Need{Name: "machine", For: who, Fails: wrong, Get: "build " + p.Name + " on " + p.Vendor.Machine.Name})
	}
	needs = append(needs, doctor.Need{Name: "git", For: "sources"})
	for _, t := range tools {
		needs = append(needs, doctor.Need{Name: t.Name, Min: t.Min, Below: t.Below, Optional: t.Optional, For: who})
	}
	return append(needs, doctor.Need{Name: "ccache", For: "quick rebuilds", Optional: true})
}

// wrongMachine says why a preset can't be built on this machine whatever is
// installed; empty when it can.
func wrongMachine(p cmakerun.Preset) string {
	wanted := p.Vendor.Machine
	here := "this is " + runtime.GOOS + "/" + runtime.GOARCH
	switch {
	case p.Disabled != "" && wanted.Name != "":
		return here + ", " + wanted.Name + " is needed"
	case p.Disabled != "":
		return here + ", and the preset's condition is false: " + p.Disabled
	case len(wanted.Arch) > 0 && !slices.Contains(wanted.Arch, runtime.GOARCH):
		return here + ", " + wanted.Name + " is needed"
	}
	return ""
}

// materialise puts the patched trees in the store.
func (j *job) materialise(ctx context.Context) error {
	for _, p := range j.pinned {
		t, err := j.w.Tree(ctx, p, false)
		if err != nil {
			return err
		}
		j.trees = append(j.trees, t)
		j.result.Sources = append(j.result.Sources, Source{
			Component: t.Component, Ref: t.Ref, Commit: t.Commit, Pristine: t.Pristine, Patched: t.Patched,
			From: t.From, Unpatched: t.Unpatched, Prebuilt: j.prebuiltOf(t.Component),
		})
	}
	for _, x := range j.extras {
		var err error
		if x.tree, err = x.get(ctx); err != nil {
			return err
		}
	}
	return j.plan()
}

// plan is what CMake is asked for.
func (j *job) plan() error {
	// A configure that ninja starts asks the same tool that started ninja.
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program's own file: %w", err)
	}
	j.build = cmakerun.NewBuild(j.w.File.Root, j.result.Project, j.preset)
	if j.opts.Binary != "" {
		j.build.BinaryDir = j.opts.Binary
	}
	j.build.Launcher, j.build.Exe, j.build.Tell = j.opts.Launcher, exe, j.tell
	j.build.Set = j.set
	j.build.Jobs, j.build.Targets = j.opts.Jobs, j.opts.Targets
	why := "asked for"
	if j.build.Jobs == 0 {
		j.build.Jobs, why = cmakerun.Jobs()
	}
	j.jobs = fmt.Sprintf("%d jobs (%s)", j.build.Jobs, why)
	for i, t := range j.trees {
		s := cmakerun.Source{
			Component: t.Component, Var: j.pinned[i].Component.Var(), Tree: t.Path,
			Ref: t.Ref, Commit: t.Commit, Build: t.Build, Pristine: t.Pristine, Patched: t.Patched, Depends: j.w.Depends(j.pinned[i]),
		}
		if t.Unpatched {
			s.Patched = "" // somebody's own folder may change at any time
		}
		j.build.Sources = append(j.build.Sources, s)
	}
	for _, x := range j.extras {
		j.build.Sources = append(j.build.Sources, x.source(j.w.File))
	}
	if j.cross {
		j.build.Launcher = cmakerun.Launcher{} // a compiler in two words is none that launchers know
	}
	j.result.Binary = j.rel(j.build.BinaryDir)
	return nil
}

func (j *job) rel(path string) string {
	if r, err := filepath.Rel(j.w.File.Root, path); err == nil && filepath.IsLocal(r) {
		return filepath.ToSlash(r)
	}
	return path
}

// would notes a command of a dry run.
func (j *job) would(c run.Cmd) { j.result.Commands = append(j.result.Commands, c.String()) }

// dist is the folder of the preset's staged tree.
func (j *job) dist() string { return filepath.Join(j.w.File.Root, "dist", j.preset.Name) }

var errNothingStaged = errors.New("no file was installed")
