package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// Packages says which archives a release is made of, and what else an inventory
// of their files has to tell.
type Packages struct {
	// Zstd is the version of the program that archives are packed with. Another
	// one gives other bytes, so it is part of what makes a release reproducible.
	Zstd    string   `yaml:"zstd"`
	Groups  []Group  `yaml:"groups"`
	Origins []Origin `yaml:"origins"`
	Signing Signing  `yaml:"signing"`
}

// Signing is how Mach-O files are signed.
type Signing struct {
	Prefix    string `yaml:"prefix"`    // begins each file's identifier: "org.example."
	Runtime   bool   `yaml:"runtime"`   // the hardened runtime, with a certificate
	Timestamp string `yaml:"timestamp"` // URL of a time-stamping authority (RFC 3161), with a certificate
}

// Group is one archive of a release.
type Group struct {
	Name   string `yaml:"name"`
	System string `yaml:"system"` // linux, darwin or windows
	Arch   string `yaml:"arch"`   // Go's name, or universal: presets of several are merged
	// Presets are what was built and staged for it; several are merged into one
	// tree.
	Presets []string `yaml:"presets"`
	Files   []string `yaml:"files"` // doublestar globs of what is taken, relative to the payload; !GLOB takes some out; empty: all
	// Over is another group of the same system and processor, over which this one
	// is unpacked: what it holds is not held again.
	Over    string   `yaml:"over"`
	Expects []string `yaml:"expects"` // globs; where a group has no such file the package is made without it, and says so
	// Single has globs of Mach-O files of a universal group that need not be for
	// every processor.
	Single []string `yaml:"single"`
	// Entitlements of Mach-O programs, by path in the payload.
	Entitlements map[string]map[string]any `yaml:"entitlements"`
	// Budget is how large files and folders may be unpacked, by path in the
	// payload: "300MB", as ParseSize reads it. "." is all of the archive's.
	Budget map[string]string `yaml:"budget"`
}

// Title names a group in messages and file names: linux-amd64-base.
func (g Group) Title() string { return g.System + "-" + g.Arch + "-" + g.Name }

// Takes says whether a file of a staged payload belongs to the group.
func (g Group) Takes(file string) bool { return len(g.Files) == 0 || Matches(g.Files, file) }

// Origin says whose some files are. The first origin that takes a file has it.
type Origin struct {
	Files     []string `yaml:"files"`     // doublestar globs, relative to the payload
	Component string   `yaml:"component"` // of this file; or a name
	Name      string   `yaml:"name"`
	License   string   `yaml:"license"` // SPDX expression
	Purl      string   `yaml:"purl"`    // for a name
}

// Universal is the arch of a group that has every program for both of a Mac's
// processors.
const Universal = "universal"

var (
	groupName  = regexp.MustCompile(`^[a-z0-9][a-z0-9_]*$`)
	zstdNumber = regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	// Systems are those that packages are made for.
	Systems = []string{"linux", "darwin", "windows"}
)

func (p *Packages) check(tree *ast.File, f *File) error {
	if p.Zstd != "" && !zstdNumber.MatchString(p.Zstd) {
		return At(tree, "$.packages.zstd", "packages: zstd %q is no version such as 1.5.7", p.Zstd)
	}
	seen := map[string]bool{}
	for i, g := range p.Groups {
		where := fmt.Sprintf("$.packages.groups[%d]", i)
		switch {
		case !groupName.MatchString(g.Name):
			return At(tree, where, "group %d: the name %q may have small letters, digits and underscores only", i+1, g.Name)
		case !slices.Contains(Systems, g.System):
			return At(tree, where, "group %s: system %q is none of %v", g.Name, g.System, Systems)
		case !groupName.MatchString(g.Arch):
			return At(tree, where, "group %s: arch %q is no name of a processor", g.Name, g.Arch)
		case seen[g.Title()]:
			return At(tree, where, "two groups are %s", g.Title())
		case len(g.Presets) == 0:
			return At(tree, where, "group %s has no presets", g.Title())
		case g.System == "linux" && p.Zstd == "":
			return At(tree, where, "packages need zstd, the version that %s is packed with", g.Title())
		}
		seen[g.Title()] = true
		if g.System != "darwin" && (len(g.Single) > 0 || len(g.Entitlements) > 0) {
			return At(tree, where, "group %s: single and entitlements are for darwin", g.Title())
		}
		for name, size := range g.Budget {
			if _, err := ParseSize(size); err != nil || path.Clean(name) != name || path.IsAbs(name) {
				return At(tree, where+".budget", "group %s: budget has paths in the payload with sizes such as 300MB, not %s: %s", g.Title(), name, size)
			}
		}
		for _, preset := range g.Presets {
			if path.Base(preset) != preset || preset == "." || preset == ".." {
				return At(tree, where, "group %s: %q is no name of a preset", g.Title(), preset)
			}
		}
		for key, globs := range map[string][]string{"files": g.Files, "expects": g.Expects, "single": g.Single} {
			if err := validGlobs(tree, where+"."+key, key+" of group "+g.Title(), globs); err != nil {
				return err
			}
		}
	}
	for i, g := range p.Groups {
		base := Group{Name: g.Over, System: g.System, Arch: g.Arch}
		if g.Over != "" && (g.Over == g.Name || !seen[base.Title()]) {
			return At(tree, fmt.Sprintf("$.packages.groups[%d].over", i), "group %s lies over %q, and there is no other group %s", g.Title(), g.Over, base.Title())
		}
	}
	for i, o := range p.Origins {
		where := fmt.Sprintf("$.packages.origins[%d]", i)
		if len(o.Files) == 0 || (o.Component == "") == (o.Name == "") || o.License == "" || o.Purl != "" && o.Name == "" {
			return At(tree, where, "origin %d needs files, a license, and a component, or a name that may have a purl", i+1)
		}
		if err := validGlobs(tree, where+".files", fmt.Sprintf("files of origin %d", i+1), o.Files); err != nil {
			return err
		}
		if o.Component != "" {
			if _, err := f.Component(o.Component); err != nil {
				return At(tree, where+".component", "origin %d: %v", i+1, err)
			}
		}
	}
	return nil
}
