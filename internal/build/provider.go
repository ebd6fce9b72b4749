package build

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"

	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/source"
	"payload/internal/workspace"
)

// The providers of a component that payload.yaml has compiled files of. A
// preset chooses by its cache variable PAYLOAD_<NAME>_PROVIDER.
const (
	FromSource = "source"
	Prebuilt   = "prebuilt"
)

// ProviderError is a choice of provider where there is nothing to choose.
type ProviderError struct{ Preset, Provider string }

func (e *ProviderError) Error() string {
	return fmt.Sprintf("choosing the provider %s for preset %s: %s has no compiled files of anything that it builds", e.Provider, e.Preset, config.FileName)
}

// NoCrossError is a preset that can be built only on the system that it is for.
type NoCrossError struct{ Preset string }

func (e *NoCrossError) Error() string {
	return fmt.Sprintf("building preset %s for another system: it names no toolchain for that", e.Preset)
}

// extra is a folder of the store, other than a component's sources, that the
// project is handed.
type extra struct {
	component string // that it is compiled from; empty for a toolchain
	name      string // of the link
	variable  string
	from      string
	get       func(context.Context) (*source.Tree, error)
	tree      *source.Tree // once it is there
}

func (x *extra) source(f *config.File) cmakerun.Source {
	return cmakerun.Source{
		Component: x.name, Var: x.variable, Tree: x.tree.Path, Ref: x.tree.Ref, Pristine: x.tree.Pristine, Patched: x.tree.Patched,
		Depends: []string{filepath.Join(f.Root, config.FileName)},
	}
}

// decide sets a cache entry of the preset in place of what the preset says.
func (j *job) decide(name string, v cmakerun.CacheVariable) {
	j.preset.Cache = maps.Clone(j.preset.Cache)
	j.preset.Cache[name] = v
	j.set = append(j.set, name)
}

// provide settles for every component whether its sources are compiled, or
// what somebody compiled of them is used.
func (j *job) provide() error {
	choices := 0
	for _, p := range j.pinned {
		variable := "PAYLOAD_" + p.Component.Var() + "_PROVIDER"
		if len(p.Component.Prebuilt) == 0 {
			continue
		}
		choices++
		if j.opts.Provider != "" {
			j.decide(variable, cmakerun.CacheVariable{Type: "STRING", Value: j.opts.Provider})
		}
		if j.preset.Cache[variable].Value != Prebuilt {
			continue
		}
		b, err := j.w.Prebuilt(p, j.preset.Name, j.cross)
		if err != nil {
			return err
		}
		j.v.Say("%s as compiled in %s", p.Component.Name, b.Mirror().ID())
		j.extras = append(j.extras, &extra{
			component: p.Component.Name, name: p.Component.Name + ".prebuilt", variable: p.Component.Var() + "_PREBUILT", from: b.Mirror().ID(),
			get: func(ctx context.Context) (*source.Tree, error) { return j.w.PrebuiltTree(ctx, p, b) },
		})
	}
	if j.opts.Provider != "" && choices == 0 {
		return &ProviderError{Preset: j.preset.Name, Provider: j.opts.Provider}
	}
	return nil
}

// prebuiltOf is where the compiled files of a component come from; empty where
// its sources are compiled.
func (j *job) prebuiltOf(component string) string {
	for _, x := range j.extras {
		if x.component == component {
			return x.from
		}
	}
	return ""
}

// CanCross says whether a preset is for another system than this one and names
// a toolchain by which it can be built here all the same.
func CanCross(p cmakerun.Preset) bool {
	return p.Vendor.Cross != nil && p.Vendor.Cross.System != runtime.GOOS
}

// crossing takes the preset's toolchain, where one was asked for and is of use.
func (j *job) crossing() error {
	if !j.opts.Cross {
		return nil
	}
	c := j.preset.Vendor.Cross
	if c == nil {
		return &NoCrossError{Preset: j.preset.Name}
	}
	if !CanCross(j.preset) {
		j.v.Say("%s is for this system: built without a toolchain for another", j.preset.Name)
		return nil
	}
	toolchain, err := j.w.File.ToolchainFor(c.Toolchain)
	if err != nil {
		return err
	}
	j.cross = true
	j.extras = append(j.extras, &extra{
		name: "toolchain", variable: "PAYLOAD_TOOLCHAIN", from: toolchain.Mirror().ID(),
		get: func(ctx context.Context) (*source.Tree, error) { return j.w.Toolchain(ctx, c.Toolchain) },
	})
	file := filepath.Join(j.w.File.Abs(j.result.Project), filepath.FromSlash(c.File))
	j.decide("CMAKE_TOOLCHAIN_FILE", cmakerun.CacheVariable{Type: "FILEPATH", Value: filepath.ToSlash(file)})
	return nil
}

// FindPrebuilt finds what was compiled of p for a preset.
func FindPrebuilt(w *workspace.Workspace, p workspace.Pinned, preset string) (config.Prebuilt, error) {
	_, found, err := FindPreset(w.File, preset)
	if err != nil {
		return config.Prebuilt{}, err
	}
	return w.Prebuilt(p, preset, CanCross(found))
}
