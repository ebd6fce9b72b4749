package drift

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"payload/internal/ci"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/report"
)

// presetFiles finds where presets say what they say.
type presetFiles struct {
	presets map[string]presetNode // by name
}

type presetNode struct {
	file string // relative to the root
	node ast.Node
}

// presetFilesOf reads a project's preset files again, for their lines. A file
// that git does not know is a person's own.
func (r *repo) presetFilesOf(p ci.Project) (presetFiles, error) {
	f := presetFiles{presets: map[string]presetNode{}}
	all, err := cmakerun.ReadPresets(r.file.Abs(p.Dir))
	if err != nil {
		return f, err
	}
	for _, file := range all.Files {
		rel, err := filepath.Rel(r.file.Root, file)
		if err != nil || !r.has(filepath.ToSlash(rel)) {
			continue
		}
		text, err := r.text(filepath.ToSlash(rel))
		if err != nil {
			return f, err
		}
		root, err := parse(text)
		if err != nil {
			return f, fmt.Errorf("reading %s: %w", filepath.ToSlash(rel), err)
		}
		for _, n := range items(at(root, "configurePresets")) {
			for _, name := range scalar(at(n, "name")) {
				f.presets[name.text] = presetNode{filepath.ToSlash(rel), n}
			}
		}
	}
	return f, nil
}

// where is the line of a preset, or of what it inherits, that has the key.
func (f presetFiles) where(preset string, keys ...string) report.Place {
	p, ok := f.presets[preset]
	if !ok {
		return report.Place{}
	}
	if n := at(p.node, keys...); n != nil {
		return place(p.file, line(n))
	}
	for _, parent := range texts(at(p.node, "inherits")) {
		if found := f.where(parent.text, keys...); found.Line > 0 {
			return found
		}
	}
	return report.Place{}
}

// own are a project's presets that are part of the repository.
func (f presetFiles) own(p ci.Project) []cmakerun.Preset {
	return slices.DeleteFunc(slices.Clone(p.Presets), func(preset cmakerun.Preset) bool {
		_, ok := f.presets[preset.Name]
		return !ok
	})
}

// shared joins findings at one place, which presets inherit, into one.
type shared struct {
	list    []report.Finding
	presets map[string][]string // by the finding's key
}

func (s *shared) add(f report.Finding, preset string) {
	if s.presets == nil {
		s.presets = map[string][]string{}
	}
	if s.presets[f.Key] == nil {
		s.list = append(s.list, f)
	}
	s.presets[f.Key] = append(s.presets[f.Key], preset)
}

func (s *shared) findings() []report.Finding {
	for i := range s.list {
		f := &s.list[i]
		f.Detail = strings.TrimSpace(f.Detail + "\nPresets: " + listed(s.presets[f.Key]))
	}
	return s.list
}

// known visits every preset of the repository with what the CMake files of its
// project and sources name. A project whose sources are not locked is left out:
// the lock check tells.
func (r *repo) known(ctx context.Context, visit func(p ci.Project, v vocabulary, files presetFiles, preset cmakerun.Preset)) error {
	for _, p := range r.projects {
		v, err := r.words[p.Dir](ctx)
		if err != nil {
			return err
		}
		if !v.whole {
			continue
		}
		files, err := r.presetFilesOf(p)
		if err != nil {
			return err
		}
		for _, preset := range files.own(p) {
			visit(p, v, files, preset)
		}
	}
	return nil
}

func checkOptions(ctx context.Context, r *repo) ([]report.Finding, error) {
	var found shared
	err := r.known(ctx, func(p ci.Project, v vocabulary, files presetFiles, preset cmakerun.Preset) {
		for _, option := range slices.Sorted(maps.Keys(preset.Cache)) {
			if v.knows(option) || slices.Contains(preset.Vendor.ReadBy, option) {
				continue
			}
			fix := "take it out"
			if near := cmakerun.Nearest(option, v.options(), 1); len(near) > 0 {
				fix = "set " + near[0] + ", if that is what is meant"
			}
			found.add(finding("options.undeclared", option, report.Error, files.where(preset.Name, "cacheVariables", option),
				fmt.Sprintf("%s is set, and %s neither declare nor read it", option, sourcesOf(p)), "", fix), preset.Name)
		}
	})
	return found.findings(), err
}

// sourcesOf names what a project is made of.
func sourcesOf(p ci.Project) string {
	names := []string{p.Dir}
	for _, c := range p.Components {
		names = append(names, c.Name)
	}
	return strings.Join(names, " and ")
}

func checkTargets(ctx context.Context, r *repo) ([]report.Finding, error) {
	var found shared
	err := r.known(ctx, func(_ ci.Project, v vocabulary, files presetFiles, preset cmakerun.Preset) {
		for _, name := range preset.Vendor.Targets {
			if !v.hasTarget(name) {
				found.add(finding("targets.missing", name, report.Error, files.where(preset.Name, "vendor", "payload", "targets"),
					fmt.Sprintf("no CMake file adds the target %s", name), "", ""), preset.Name)
			}
		}
		for _, name := range preset.Vendor.Components {
			if !v.hasComponent(name, preset) {
				found.add(finding("targets.component", name, report.Error, files.where(preset.Name, "vendor", "payload", "components"),
					fmt.Sprintf("no CMake file installs the component %s", name), "", ""), preset.Name)
			}
		}
	})
	return found.findings(), err
}

// hostFlags are what compilers take to mean "for this machine".
var hostFlags = regexp.MustCompile(`-m(arch|cpu|tune)=native\b|-xHost\b|-arch(itecture)?=native\b`)

func checkNative(_ context.Context, r *repo) ([]report.Finding, error) {
	var found shared
	for _, p := range r.projects {
		files, err := r.presetFilesOf(p)
		if err != nil {
			return nil, err
		}
		for _, preset := range files.own(p) {
			excepted := false
			for _, rule := range r.file.Checks.Required {
				if rule.Project != "" && rule.Project != p.Dir {
					continue
				}
				if config.Matches(rule.Except, preset.Name) {
					excepted = true
					continue
				}
				is, set := preset.Cache[rule.Option]
				if set && strings.EqualFold(is.Value, rule.Value) {
					continue
				}
				at, title := files.where(preset.Name, "cacheVariables", rule.Option), fmt.Sprintf("%s is %s, and has to be %s", rule.Option, is.Value, rule.Value)
				if !set {
					at, title = files.where(preset.Name, "name"), fmt.Sprintf("%s is not set, and has to be %s", rule.Option, rule.Value)
				}
				found.add(finding("native.required", rule.Option+" "+is.Value, report.Error, at, title, rule.Why,
					"set it, or name the preset in \"except\" of "+config.FileName), preset.Name)
			}
			if excepted {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(preset.Cache)) {
				if flag := hostFlags.FindString(preset.Cache[name].Value); flag != "" {
					found.add(finding("native.flags", name, report.Error, files.where(preset.Name, "cacheVariables", name),
						fmt.Sprintf("%s has %s: code for the machine that builds", name, flag), "", "name the processors that the payload is for"), preset.Name)
				}
			}
		}
	}
	return found.findings(), nil
}
