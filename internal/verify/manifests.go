package verify

import (
	"context"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/manifest"
)

// described is what the manifests of a folder say: one, or several where groups
// are unpacked over each other.
type described struct {
	all   []manifest.Manifest
	names []string
}

// readManifests reads every manifest at the root of a payload. Without any, the
// error is a *manifest.MissingError.
func readManifests(dir string) (d described, err error) {
	names, err := manifest.Names(dir)
	if err != nil {
		return d, err
	}
	if len(names) == 0 {
		return d, &manifest.MissingError{Dir: dir}
	}
	for _, name := range names {
		m, err := manifest.ReadFile(dir, name)
		if err != nil {
			return d, err
		}
		d.all, d.names = append(d.all, m), append(d.names, name)
	}
	return d, nil
}

// files are those that the manifests list, by path.
func (d described) files() map[string]manifest.File {
	listed := map[string]manifest.File{}
	for _, m := range d.all {
		for _, f := range m.Files {
			listed[f.Path] = f
		}
	}
	return listed
}

// builds are the staged trees that the payload was made of.
func (d described) builds() []manifest.Build {
	var all []manifest.Build
	for _, m := range d.all {
		if len(m.Builds) > 0 {
			all = append(all, m.Builds...)
			continue
		}
		all = append(all, manifest.Build{Project: m.Project, Preset: m.Preset, Components: m.Components, Target: m.Target})
	}
	return all
}

func (d described) components() []manifest.Component {
	var all []manifest.Component
	for _, b := range d.builds() {
		all = append(all, b.Components...)
	}
	return all
}

// componentsOf are those that the payload in dir was made from.
func componentsOf(dir string) ([]manifest.Component, error) {
	d, err := readManifests(dir)
	return d.components(), err
}

// relies are the libraries of another group that files of this payload load, as
// far as they are not here themselves.
func (d described) relies() map[string]bool {
	outside := map[string]bool{}
	for _, m := range d.all {
		if m.Package == nil {
			continue
		}
		for _, r := range m.Package.Relies {
			outside[r.Path] = true
		}
	}
	for p := range d.files() {
		delete(outside, p)
	}
	return outside
}

// target is the oldest system that files have to load on. Where builds were
// merged, what lies in a folder that one of them has to itself has its target,
// and everything else the newest of those whose programs lie at the root.
type target struct {
	macOS   string
	glibc   string
	glibcxx string
	folders map[string]string // folder to its macOS
}

// targetOf is what the manifests declare, and what o asks for where that is
// older.
func targetOf(d described, o Options) target {
	t := target{glibc: o.Glibc, glibcxx: o.Glibcxx, folders: map[string]string{}}
	asked := o.MacOS
	for _, m := range d.all {
		if m.Package != nil && m.Package.Floor != nil {
			asked = oldest(asked, m.Package.Floor.MacOS)
			t.glibc = oldest(t.glibc, m.Package.Floor.Glibc)
			t.glibcxx = oldest(t.glibcxx, m.Package.Floor.Glibcxx)
		}
	}
	builds := d.builds()
	// A folder for a newer macOS may lie beside one that serves the one asked for:
	// by the same project, for the same processor.
	served := func(b manifest.Build) bool {
		return slices.ContainsFunc(builds, func(by manifest.Build) bool {
			return by.Project == b.Project && by.Arch == b.Arch && by.Target != nil && !newerThan(by.Target.MacOS, asked)
		})
	}
	for _, b := range builds {
		if b.Target == nil {
			continue
		}
		own, dirs := ownFolder(b), b.Folders
		if own != "" {
			dirs = append(slices.Clone(dirs), own)
		}
		for _, dir := range dirs {
			if len(builds) > 1 {
				t.folders[dir] = b.Target.MacOS
				if !served(b) {
					t.folders[dir] = oldest(b.Target.MacOS, asked)
				}
			}
		}
		if own == "" || len(builds) == 1 {
			t.macOS = newest(t.macOS, b.Target.MacOS)
		}
	}
	if t.macOS == "" { // what all builds share has to load where any of them does
		for _, v := range t.folders {
			t.macOS = oldest(t.macOS, v)
		}
	}
	t.macOS = oldest(t.macOS, asked)
	return t
}

// ownFolder is the folder at the payload's root that a build's programs lie in;
// empty for one that lies at the root.
func ownFolder(b manifest.Build) string {
	for _, c := range b.Components {
		if dir, _, ok := strings.Cut(c.Program, "/"); ok {
			return dir
		}
	}
	return ""
}

// macOSFor is the oldest macOS that a file has to load on.
func (t target) macOSFor(file string) string {
	top, _, _ := strings.Cut(path.Clean(file), "/")
	if own := t.folders[top]; own != "" {
		return own
	}
	return t.macOS
}

// oldest is the lower of two versions, newest the higher; an empty one is none.
func oldest(a, b string) string {
	if a == "" || b != "" && newerThan(a, b) {
		return b
	}
	return a
}

func newest(a, b string) string {
	if a == "" || newerThan(b, a) {
		return b
	}
	return a
}

// declaredArch is the architecture that the payload's packages are for; empty
// where no manifest says it.
func (d described) declaredArch() string {
	for _, m := range d.all {
		if m.Package != nil && m.Package.Arch != "" {
			return m.Package.Arch
		}
	}
	return ""
}

// single says whether a file need not be for every processor.
func (d described) single(file string) bool {
	return slices.ContainsFunc(d.all, func(m manifest.Manifest) bool {
		return m.Package != nil && slices.ContainsFunc(m.Package.Single, func(glob string) bool { return doublestar.MatchUnvalidated(glob, file) })
	})
}

// Described verifies the payload in o.Dir and runs what its manifests want to be
// run.
func Described(ctx context.Context, o Options) (Result, error) {
	d, err := readManifests(o.Dir)
	if err == nil { // else what is wrong is among the findings
		o.ask(d)
	}
	return Payload(ctx, o)
}

// union is a with what b has beyond it.
func union(a, b []string) []string {
	return append(slices.Clone(a), slices.DeleteFunc(slices.Clone(b), func(s string) bool { return slices.Contains(a, s) })...)
}

// ask has programs run, each once: first that of the last component that has
// one, with the backends and variants of all builds of it, but on a Mac those
// backends alone that are for its processor.
func (o *Options) ask(d described) {
	components := d.components()
	for _, c := range components {
		if c.Verify != "" {
			o.Kind, o.Program = c.Verify, c.Program
		}
	}
	for _, b := range d.builds() {
		here := b.Arch == "" || b.Arch == runtime.GOARCH || runtime.GOOS != "darwin"
		for _, c := range b.Components {
			if c.Verify == "" || c.Program != o.Program {
				continue
			}
			o.Variants = union(o.Variants, c.Variants)
			if here {
				o.Backends = union(o.Backends, c.Backends)
			}
		}
	}
	add := func(kind, file string) {
		if p := (Program{Kind: kind, Path: file}); kind != "" && file != o.Program && !slices.Contains(o.Programs, p) {
			o.Programs = append(o.Programs, p)
		}
	}
	for _, c := range components {
		add(c.Verify, c.Program)
		for _, own := range c.Programs {
			add(own.Verify, own.Path)
		}
	}
}
