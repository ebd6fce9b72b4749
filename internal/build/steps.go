package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/cmakerun"
	"payload/internal/manifest"
	"payload/internal/relocate"
	"payload/internal/report"
	"payload/internal/verify"
	"payload/internal/voice"
)

func (j *job) configure(ctx context.Context) error {
	if j.opts.DryRun {
		verdict := cmakerun.Check(j.build)
		if verdict.Action == cmakerun.Keep {
			j.v.Say("nothing to configure")
			return nil
		}
		j.v.Say("would configure: %s", verdict.Reason)
		j.would(cmakerun.ConfigureCmd(j.build))
		return nil
	}
	var err error
	j.unlock, err = cmakerun.Lock(ctx, j.build, func() { j.v.Say("waiting for another build in %s", j.result.Binary) })
	if err != nil {
		return err
	}
	done, err := cmakerun.Configure(ctx, j.build, nil)
	// The folder names its trees even where configuring failed.
	waiting := func() { j.v.Say("waiting for a prune of the store") }
	if err := j.w.Store().RecordBuild(ctx, j.build.BinaryDir, "", waiting); err != nil && ctx.Err() == nil {
		j.v.Say("note: %v; so payload cache prune does not spare its trees", err)
	}
	if err != nil {
		return err
	}
	j.reply = done.Reply
	switch {
	case done.Verdict.Action == cmakerun.Keep:
		j.v.Say("nothing to configure in %s", j.result.Binary)
	case done.Warnings > 0:
		j.v.Say("%s: %s; CMake warnings: %d, in %s", j.result.Binary, done.Verdict.Reason, done.Warnings, j.rel(j.build.ConfigureLog()))
	default:
		j.v.Say("%s: %s", j.result.Binary, done.Verdict.Reason)
	}
	return nil
}

func (j *job) compile(ctx context.Context) error {
	if j.opts.DryRun {
		j.would(cmakerun.CompileCmd(j.build))
		return nil
	}
	with := j.jobs
	if j.build.Launcher.Name != "" {
		with += ", through " + j.build.Launcher.Name
	}
	j.v.Say("%s", with)
	done, err := cmakerun.Compile(ctx, j.build, func(p cmakerun.Progress) {
		j.v.Progress(p.Done, p.Total, strings.TrimSuffix(filepath.Base(p.Line), ".o"))
	})
	if err != nil {
		j.showFailure(err)
		return err
	}
	if done.Steps == 0 {
		j.v.Say("nothing to compile")
	} else {
		j.v.Say("%d steps in %s", done.Steps, voice.Duration(done.Took))
	}
	// Root writes through read-only: what was compiled must still be what was checked.
	for _, t := range j.held() {
		if err := t.Check(ctx); err != nil {
			return fmt.Errorf("after compiling: %w", err)
		}
	}
	return nil
}

// showFailure shows the command that failed and the beginning of what it
// printed: the first error is at its top.
func (j *job) showFailure(err error) {
	var failed *cmakerun.CompileError
	if !errors.As(err, &failed) {
		return
	}
	if failed.Command != "" {
		j.v.Say("%s", failed.Command)
	}
	const most = 20
	lines := strings.Split(strings.TrimSpace(failed.Output), "\n")
	for _, line := range lines[:min(most, len(lines))] {
		j.v.Say("%s", line)
	}
	if len(lines) > most {
		j.v.Say("… and %d more lines", len(lines)-most)
	}
}

// stage installs the preset's components beside the final place, describes
// them, and puts them there at once.
func (j *job) stage(ctx context.Context) (err error) {
	if err := j.sweep(); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	fresh := filepath.Join(j.staging(), "new")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	defer func() {
		// Where the tree before could not be put back, the next build does that.
		if exists(j.dist()) || !exists(j.aside()) {
			err = errors.Join(err, os.RemoveAll(j.staging()))
		}
	}()
	components := j.preset.Vendor.Components
	if len(components) == 0 {
		components = []string{""}
	}
	lib := filepath.Join(fresh, "lib", "payload")
	before := 0
	for _, c := range components {
		if err := cmakerun.Install(ctx, j.build, c, fresh); err != nil {
			return err
		}
		files, err := filesBelow(fresh)
		if err != nil {
			return fmt.Errorf("staging: %w", err)
		}
		if len(files) == before {
			return fmt.Errorf("staging component %q of preset %s: %w; the project has no install rule for it", c, j.preset.Name, errNothingStaged)
		}
		before = len(files)
		for _, f := range files {
			if !strings.HasPrefix(f, lib+string(filepath.Separator)) {
				return fmt.Errorf("staging component %q of preset %s: %s lies outside lib/payload, where nothing is described or verified", c, j.preset.Name, f[len(fresh)+1:])
			}
		}
	}
	if err := j.complete(lib); err != nil {
		return err
	}
	if err := j.programs(ctx, lib); err != nil {
		return err
	}
	if err := j.relocate(lib); err != nil {
		return err
	}
	if err := j.describe(lib); err != nil {
		return err
	}
	if err := swap(fresh, j.dist(), j.aside()); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	staged := filepath.Join(j.dist(), "lib", "payload")
	files, err := filesBelow(staged)
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	for _, f := range files {
		info, err := os.Lstat(f)
		if err != nil {
			return fmt.Errorf("staging: %w", err)
		}
		j.result.Bytes += info.Size()
	}
	j.result.Files, j.result.Staged = len(files), j.rel(staged)
	j.v.Say("%d files, %s, to %s", j.result.Files, voice.Size(j.result.Bytes), j.result.Staged)
	return nil
}

// staging is where a preset's tree is put together, and aside where the one
// before it waits until the new one is in its place. No preset's name can make
// another's: a name has no slash.
func (j *job) staging() string {
	return filepath.Join(filepath.Dir(j.dist()), ".staging", j.preset.Name)
}
func (j *job) aside() string { return filepath.Join(j.staging(), "old") }

// sweep makes the folder to stage in, and clears what a killed build left. A
// tree that it had put aside goes back first. The build folder's lock is held,
// so nobody else stages this preset.
func (j *job) sweep() error {
	if !exists(j.dist()) && exists(j.aside()) {
		if err := os.Rename(j.aside(), j.dist()); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(j.staging()); err != nil {
		return err
	}
	return os.MkdirAll(j.staging(), 0o755)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// swap puts the folder fresh where old is, and puts old back when it can't.
func swap(fresh, old, aside string) error {
	had := exists(old)
	if had {
		if err := os.Rename(old, aside); err != nil {
			return err
		}
	}
	if err := os.Rename(fresh, old); err != nil {
		if had {
			err = errors.Join(err, os.Rename(aside, old))
		}
		return err
	}
	return nil
}

// complete makes sure that every module that was compiled is staged. A program
// finds its modules at run time and is quiet about one that is not there.
func (j *job) complete(lib string) error {
	names, err := j.reply.TargetNames()
	if err != nil {
		return err
	}
	staged, err := filesBelow(lib)
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	for _, name := range names {
		t, err := j.reply.Target(name)
		if err != nil {
			return err
		}
		if t.Type != "MODULE_LIBRARY" || len(t.Artefacts) == 0 {
			continue
		}
		if _, err := os.Stat(t.Artefacts[0]); err != nil {
			continue // the preset's targets don't need it
		}
		base := filepath.Base(t.Artefacts[0])
		j.modules = append(j.modules, base)
		if !slices.ContainsFunc(staged, func(f string) bool { return filepath.Base(f) == base }) {
			return fmt.Errorf("staging preset %s: module %s was compiled, but no component of the preset installs it", j.preset.Name, base)
		}
	}
	return nil
}

// relocate lets staged libraries that somebody compiled find each other where
// they lie now. What was compiled here has to be right by itself.
func (j *job) relocate(lib string) error {
	compiled := map[string]bool{}
	for _, x := range j.extras {
		if x.component == "" {
			continue
		}
		files, err := filesBelow(x.tree.Path)
		if err != nil {
			return fmt.Errorf("staging: %w", err)
		}
		for _, f := range files {
			compiled[filepath.Base(f)] = true
		}
	}
	staged, err := filesBelow(lib)
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	for _, f := range staged {
		if !compiled[filepath.Base(f)] {
			continue
		}
		changed, err := relocate.Beside(f)
		if err != nil {
			return fmt.Errorf("staging: %w", err)
		}
		if changed {
			j.v.Say("%s now looks for libraries beside itself", filepath.Base(f))
		}
	}
	return nil
}

// filesBelow lists everything in dir that isn't a folder.
func filesBelow(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// describe writes payload.json for the files of lib.
func (j *job) describe(lib string) error {
	files, err := manifest.Describe(lib)
	if err != nil {
		return err
	}
	compilers, err := j.reply.Compilers()
	if err != nil {
		return err
	}
	m := manifest.Manifest{
		Project: j.result.Project, Preset: j.preset.Name, Files: files,
		Toolchain: manifest.Toolchain{CMake: j.reply.CMake, Generator: j.reply.Generator},
	}
	if minimum := j.preset.Cache["CMAKE_OSX_DEPLOYMENT_TARGET"].Value; minimum != "" {
		m.Target = &manifest.Target{MacOS: minimum}
	}
	for _, x := range j.extras {
		if x.component == "" {
			m.Toolchain.Cross = x.from
		}
	}
	for _, c := range compilers {
		m.Toolchain.Compilers = append(m.Toolchain.Compilers, manifest.Compiler{Language: c.Language, ID: c.ID, Version: c.Version})
	}
	for i, t := range j.trees {
		p := j.pinned[i]
		c := manifest.Component{
			Name: t.Component, Ref: t.Ref, Commit: t.Commit, Build: t.Build,
			Pristine: t.Pristine, Patched: t.Patched, Patches: []manifest.Patch{}, Source: t.From, Unpatched: t.Unpatched,
			Prebuilt: j.prebuiltOf(t.Component), Program: programIn(files, p.Component.Target), Verify: p.Component.Verify,
		}
		for _, own := range p.Component.Programs {
			name := j.programName(own)
			c.Programs = append(c.Programs, manifest.Program{Path: name, Package: own.Package, Go: j.compiledBy, Verify: own.Verify})
		}
		if c.Verify != "" {
			c.Backends, c.Variants = j.preset.Vendor.Backends, verify.Variants(c.Verify, j.modules)
		}
		if !t.Unpatched {
			for _, d := range p.Series.Digests() {
				c.Patches = append(c.Patches, manifest.Patch{File: d.File, SHA256: d.SHA256})
			}
		}
		m.Components = append(m.Components, c)
	}
	return manifest.Write(lib, m)
}

// programIn is the staged file that a program's target made: the preset may
// put it in a folder. It is the bare name where there is none, which
// verification reports.
func programIn(files []manifest.File, target string) string {
	for _, f := range files {
		if base := path.Base(f.Path); target != "" && (base == target || base == target+".exe") {
			return f.Path
		}
	}
	return target
}

// verify proves the staged tree, and writes into its manifest what was proven.
func (j *job) verify(ctx context.Context) error {
	dir := filepath.Join(j.dist(), "lib", "payload")
	res, m, err := Verify(ctx, dir, j.opts.NoRun, j.v)
	if err != nil {
		return err
	}
	j.result.Verified = &res
	if res.Failed() {
		for _, f := range res.Findings {
			j.v.Say("%s", report.Line(f))
		}
		return &UnverifiedError{Dir: j.result.Staged, Preset: j.preset.Name, Findings: report.Counted(res.Findings), First: res.Findings[0].Title, NoDevice: noDevice(res.Findings)}
	}
	m.Verified = res.Verified()
	return manifest.Write(dir, m)
}

// noDevice says whether all that is wrong is that a backend had no device to
// run on.
func noDevice(findings []report.Finding) bool {
	return !slices.ContainsFunc(findings, func(f report.Finding) bool {
		return f.Severity == report.Error && f.ID != verify.FindingIdle && f.ID != verify.FindingBroken
	})
}

// Verify checks the payload in dir as its own manifest asks: the files, and
// then, unless noRun, the programs in it that have a runtime verification.
func Verify(ctx context.Context, dir string, noRun bool, v *voice.Voice) (verify.Result, manifest.Manifest, error) {
	m, err := manifest.Read(dir)
	if err != nil {
		m = manifest.Manifest{} // what is wrong with it is among the findings
	}
	res, err := verify.Described(ctx, verify.Options{Dir: dir, NoRun: noRun, Tell: v.Say})
	return res, m, err
}
