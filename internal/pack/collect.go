package pack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/build"
	"payload/internal/config"
	"payload/internal/manifest"
	"payload/internal/pin"
	"payload/internal/report"
)

// RefusedError is a package that must not be made of these trees.
type RefusedError struct {
	Group   string
	Reasons []manifest.Allowed // What is the allowance that would pass over it
}

// Error names a few reasons of each kind, since every file of a tree may be one.
func (e *RefusedError) Error() string {
	if len(e.Reasons) == 1 {
		return "refused: " + e.Reasons[0].Why
	}
	const most = 8
	text := fmt.Sprintf("refused, for %d reasons:", len(e.Reasons))
	for _, what := range Allowances {
		named := 0
		for _, r := range e.Reasons {
			if r.What != what {
				continue
			}
			if named++; named <= most {
				text += "\n  " + r.Why
			}
		}
		if named > most {
			text += fmt.Sprintf("\n  and %d more that --allow-%s would pass over", named-most, what)
		}
	}
	return text
}

// collect reads the staged trees and holds them against the lock, their own
// manifests and what was proven of them.
func collect(ctx context.Context, j *Job) error {
	var reasons []manifest.Allowed
	for _, preset := range j.Group.Presets {
		t := Tree{Preset: preset, Dir: filepath.Join(j.Options.From, preset, filepath.FromSlash(payloadDir))}
		res, m, err := build.Verify(ctx, t.Dir, true, j.v)
		if err != nil {
			return err
		}
		t.Manifest = m
		for _, why := range unlocked(j, m) {
			reasons = append(reasons, manifest.Allowed{What: AllowUnlocked, Preset: preset, Why: preset + ": " + why})
		}
		for _, why := range unverified(m) {
			reasons = append(reasons, manifest.Allowed{What: AllowUnverified, Preset: preset, Why: preset + " " + why})
		}
		changed := false
		for _, f := range res.Findings {
			if f.Severity == report.Error {
				reasons = append(reasons, manifest.Allowed{What: whatIsWrong(f.ID), Preset: preset, Why: preset + ": " + f.Title})
				changed = changed || whatIsWrong(f.ID) == AllowChanged
			}
		}
		if changed { // what is there is packaged, if it is allowed
			if t.Manifest.Files, err = manifest.Describe(t.Dir); err != nil {
				return err
			}
		}
		j.Trees = append(j.Trees, t)
	}
	other, err := j.chooseCompressor(ctx)
	if err != nil {
		return err
	}
	if err := j.refuse(append(reasons, other...)); err != nil {
		return err
	}
	return j.combine()
}

// refuse stops for what is not allowed, and notes what is.
func (j *Job) refuse(reasons []manifest.Allowed) error {
	var stop []manifest.Allowed
	for _, r := range reasons {
		if slices.Contains(j.Options.Allow, r.What) {
			j.Say("allowed, though %s", r.Why)
			j.result.Allowed = append(j.result.Allowed, r)
		} else {
			stop = append(stop, r)
		}
	}
	if len(stop) > 0 {
		return &RefusedError{Group: j.Group.Title(), Reasons: stop}
	}
	return nil
}

// whatIsWrong is the allowance for a finding: files that are not those that
// were staged, or files that were staged and fail a check.
func whatIsWrong(id string) string {
	switch id {
	case "manifest.missing", "manifest.unreadable", "files.missing", "files.extra", "files.mode", "links.changed", "digest.changed":
		return AllowChanged
	}
	return AllowUnverified
}

// unverified says what nobody proved of a staged tree.
func unverified(m manifest.Manifest) (why []string) {
	v := m.Verified
	switch {
	case v == nil:
		return []string{"was never verified"}
	case !v.Static:
		return []string{"failed the check of its files"}
	}
	for _, c := range m.Components {
		if c.Verify == "" || v.Kind != "" {
			continue
		}
		reason := "nothing of it was run"
		if len(v.Skipped) > 0 {
			reason += ": " + v.Skipped[0].Reason
		}
		return []string{"was checked, but " + reason}
	}
	return nil
}

// unlocked says in what a tree was not made from what payload.lock holds.
func unlocked(j *Job, m manifest.Manifest) (why []string) {
	for _, c := range m.Components {
		p, err := j.w.Pinned(c.Name)
		switch {
		case err != nil:
			why = append(why, err.Error())
		case p.Entry == nil:
			why = append(why, fmt.Sprintf("%s %s is not in %s", c.Name, p.Ref, pin.LockName))
		default:
			why = append(why, differs(c, *p.Entry)...)
		}
	}
	return why
}

// differs holds what a tree was made from against its row of the lock.
func differs(c manifest.Component, e pin.Entry) (why []string) {
	say := func(format string, args ...any) { why = append(why, c.Name+" "+fmt.Sprintf(format, args...)) }
	if c.Ref != e.Ref || c.Commit != e.Commit {
		say("was built from %s (%s), the lock has %s (%s)", c.Ref, build.CommitInWords(c.Commit), e.Ref, build.CommitInWords(e.Commit))
		return why
	}
	if c.Unpatched {
		say("was built without its patches")
		return why
	}
	var patches []pin.Patch
	for _, p := range c.Patches {
		patches = append(patches, pin.Patch(p))
	}
	if !slices.Equal(patches, e.Patches) {
		say("was built with other patches than the lock's")
	}
	switch row, known := e.Source(c.Source); {
	case !known:
		say("was built from %s, which the lock does not have", c.Source)
	case row.Pristine != c.Pristine || row.Patched != c.Patched:
		say("was built from another tree than the lock's: %s, which should be %s", c.Patched, row.Patched)
	}
	if c.Prebuilt != "" && !slices.ContainsFunc(e.Prebuilt, func(b pin.Prebuilt) bool { return b.From == c.Prebuilt }) {
		say("holds what %s brought compiled, which the lock does not have", c.Prebuilt)
	}
	return why
}

// combine makes one manifest of the trees'. Trees of one group are made from the
// same sources.
func (j *Job) combine() error {
	first := j.Trees[0].Manifest
	j.Manifest = first
	j.Manifest.Files, j.Manifest.Package = nil, nil
	if len(j.Trees) == 1 {
		return nil
	}
	j.Manifest = manifest.Manifest{Project: first.Project}
	for _, t := range j.Trees {
		m := t.Manifest
		arch := ""
		if archs := Archs(m.Files); j.Group.Arch == config.Universal && len(archs) == 1 {
			arch = archs[0]
		}
		j.Manifest.Builds = append(j.Manifest.Builds, manifest.Build{
			Arch: arch, Project: m.Project, Preset: m.Preset, Components: m.Components, Target: m.Target, Folders: j.foldersOf(t), Toolchain: m.Toolchain, Verified: m.Verified,
		})
		if m.Project != first.Project {
			j.Manifest.Project = ""
		}
		for _, c := range m.Components {
			if err := j.addComponent(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// Archs are the processors that every program and library of a tree is for.
func Archs(files []manifest.File) []string {
	var common []string
	first := true
	for _, f := range files {
		if f.Arch == "" || f.Link != "" {
			continue
		}
		archs := strings.Split(f.Arch, "+")
		if first {
			common, first = archs, false
		}
		common = slices.DeleteFunc(common, func(arch string) bool { return !slices.Contains(archs, arch) })
	}
	return common
}

// foldersOf are the folders at the package's root that one of its trees alone has.
func (j *Job) foldersOf(t Tree) []string {
	own := map[string]bool{}
	for _, other := range j.Trees { // t itself among them
		for _, f := range other.Manifest.Files {
			if dir, _, below := strings.Cut(f.Path, "/"); below && j.Group.Takes(f.Path) {
				_, seen := own[dir]
				own[dir] = other.Preset == t.Preset && (!seen || own[dir])
			}
		}
	}
	maps.DeleteFunc(own, func(_ string, mine bool) bool { return !mine })
	return slices.Sorted(maps.Keys(own))
}

var errOtherSources = errors.New("the trees of one group are made from the same sources")

func (j *Job) addComponent(c manifest.Component) error {
	have := j.Manifest.Components
	i := slices.IndexFunc(have, func(other manifest.Component) bool { return other.Name == c.Name })
	if i < 0 {
		j.Manifest.Components = append(have, c)
		return nil
	}
	h := &have[i]
	if h.Ref != c.Ref || h.Commit != c.Commit || h.Patched != c.Patched {
		return fmt.Errorf("%s is %s (%s) in one tree and %s (%s) in another: %w", c.Name, h.Ref, h.Patched, c.Ref, c.Patched, errOtherSources)
	}
	h.Backends = union(h.Backends, c.Backends)
	h.Variants = union(h.Variants, c.Variants)
	if h.Prebuilt != c.Prebuilt {
		h.Prebuilt = "" // each build says its own
	}
	return nil
}

func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
