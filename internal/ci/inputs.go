// Package ci answers what continuous integration asks of a repository: which
// files a preset is made from, what a change has to build, and under which key
// a build may be kept.
//
// It owns the list of inputs, which affected, cache-key and drift share: a file
// that one of them forgot would be a change that nobody builds. It only reads,
// and it runs no build.
package ci

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/cmakefile"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/pin"
	"payload/internal/workspace"
)

// Files lists the files of the repository that git knows or would add and that
// are there, relative to its root, sorted.
func Files(ctx context.Context, f *config.File) ([]string, error) {
	names, _, err := git.Files(ctx, f.Root)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Lstat(f.Abs(name))
		return err != nil
	})
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Project is a CMake project and the files that its presets are made from.
type Project struct {
	Dir        string // as payload.yaml names it
	Components []config.Component
	Presets    []cmakerun.Preset // in the order of their files; those that can't be built here too
	Shared     []string          // inputs of every project: payload.yaml and the lock
	Own        []string          // pins, patches, the project's files
	Named      []string          // what its CMake files take from elsewhere in the repository
}

// Inputs are all files that the presets are made from, sorted.
func (p Project) Inputs() []string {
	all := slices.Concat(p.Shared, p.Own, p.Named)
	slices.Sort(all)
	return slices.Compact(all)
}

// notInputs are files that no build reads, wherever they lie: words for people,
// and the code of other languages, which its own tools build.
var notInputs = []string{"**/*.md", "**/*.go", "**/go.{mod,sum}", "**/testdata/**", "**/.*", "**/CMakeUserPresets.json"}

// Projects finds the inputs of every CMake project that payload.yaml names.
// files is the repository, as Files lists it.
func Projects(f *config.File, files []string) ([]Project, error) {
	var found []Project
	for _, dir := range workspace.Projects(f) {
		p := Project{Dir: dir}
		presets, err := cmakerun.ReadPresets(f.Abs(dir))
		if err != nil {
			return nil, err
		}
		p.Presets = presets.Visible()
		globs := []string{path.Join(dir, "**")}
		for _, c := range f.Components {
			if c.Project != dir {
				continue
			}
			p.Components = append(p.Components, c)
			globs = append(globs, c.Pin)
			if c.Patches != "" {
				globs = append(globs, path.Join(c.Patches, "**"))
			}
		}
		for _, file := range presets.Files { // those that they include, too
			if rel, ok := relative(f.Root, file); ok {
				globs = append(globs, rel)
			}
		}
		named, err := namedElsewhere(f, dir, files)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			switch {
			case file == config.FileName, file == pin.LockName:
				p.Shared = append(p.Shared, file)
			case config.Matches(notInputs, file):
			case config.Matches(globs, file):
				p.Own = append(p.Own, file)
			case config.Matches(named, file):
				p.Named = append(p.Named, file)
			}
		}
		found = append(found, p)
	}
	return found, nil
}

func relative(root, file string) (string, bool) {
	rel, err := filepath.Rel(root, file)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// namedElsewhere finds what a project's CMake files take from elsewhere in the
// repository: the folders of ${CMAKE_CURRENT_SOURCE_DIR}/../../cmake and the like.
func namedElsewhere(f *config.File, dir string, files []string) ([]string, error) {
	var globs []string
	for _, file := range files {
		if !strings.HasPrefix(file, dir+"/") || path.Base(file) != "CMakeLists.txt" && path.Ext(file) != ".cmake" {
			continue
		}
		text, err := os.ReadFile(f.Abs(file))
		if err != nil {
			return nil, fmt.Errorf("reading a CMake file: %w", err)
		}
		commands, _ := cmakefile.Parse(string(text)) // a fault is for CMake to tell; what stands before it counts
		here := path.Dir(file)
		for _, c := range commands {
			for _, a := range c.Args {
				named, ok := below(a.Text, here, dir)
				if ok && !strings.HasPrefix(named, dir+"/") && named != "." && filepath.IsLocal(named) {
					globs = append(globs, fixedPart(named), path.Join(fixedPart(named), "**"))
				}
			}
		}
	}
	slices.Sort(globs)
	return slices.Compact(globs), nil
}

// below reads a path of a CMake file that begins with a folder of the project.
func below(text, here, project string) (string, bool) {
	for variable, dir := range map[string]string{
		"${CMAKE_CURRENT_SOURCE_DIR}/": here, "${CMAKE_CURRENT_LIST_DIR}/": here,
		"${CMAKE_SOURCE_DIR}/": project, "${PROJECT_SOURCE_DIR}/": project,
	} {
		if rest, ok := strings.CutPrefix(text, variable); ok {
			return path.Join(dir, rest), true
		}
	}
	return "", false
}

// fixedPart is a path up to the first folder that is not said in full.
func fixedPart(name string) string {
	if i := strings.IndexAny(name, "*?[$"); i >= 0 {
		return path.Dir(name[:i] + "x")
	}
	return name
}

// PresetProject is the project that has a preset.
func PresetProject(projects []Project, name string) (Project, cmakerun.Preset, bool) {
	for _, p := range projects {
		for _, preset := range p.Presets {
			if preset.Name == name {
				return p, preset, true
			}
		}
	}
	return Project{}, cmakerun.Preset{}, false
}

// matchesAny says whether one of the globs of names takes a name.
func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { return doublestar.MatchUnvalidated(glob, name) })
}
