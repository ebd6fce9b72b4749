package workspace

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/pin"
	"payload/internal/source"
)

// PrebuiltError is compiled code that must not be used in place of the sources.
type PrebuiltError struct {
	Component, Ref, Preset string
	Why                    string
}

func (e *PrebuiltError) Error() string {
	return fmt.Sprintf("using prebuilt %s %s for preset %s: %s", e.Component, e.Ref, e.Preset, e.Why)
}

// Prebuilt finds the compiled files that stand for p's sources in a preset. It
// refuses, with a *PrebuiltError, where they would not be the same code.
// foreign says that the preset builds for another machine than this one.
func (w *Workspace) Prebuilt(p Pinned, preset string, foreign bool) (config.Prebuilt, error) {
	refuse := func(format string, args ...any) (config.Prebuilt, error) {
		return config.Prebuilt{}, &PrebuiltError{Component: p.Component.Name, Ref: p.Ref, Preset: preset, Why: fmt.Sprintf(format, args...)}
	}
	if n := len(p.Series.Patches); n > 0 {
		return refuse("%s holds %d patches, which it was compiled without: %s …", p.Component.Patches, n, p.Series.Patches[0].File)
	}
	if dir := w.Override(p.Component); dir != "" {
		return refuse("%s is to be used as its source, which it was not compiled from", dir)
	}
	found := p.Component.PrebuiltOf(p.Ref, preset)
	if len(found) == 0 {
		var others []string
		for _, b := range p.Component.Prebuilt {
			if slices.Contains(b.Presets, preset) {
				others = append(others, b.Ref)
			}
		}
		if len(others) > 0 {
			return refuse("%s has it of %s alone", config.FileName, strings.Join(others, ", "))
		}
		return refuse("%s names none", config.FileName)
	}
	if foreign {
		return found[0], nil
	}
	for _, b := range found {
		if config.RunsOn(b.Platform, runtime.GOOS, runtime.GOARCH) {
			return b, nil
		}
	}
	return refuse("there is none for %s/%s", runtime.GOOS, runtime.GOARCH)
}

// PrebuiltTree gives the files of b, read-only and held until closed.
func (w *Workspace) PrebuiltTree(ctx context.Context, p Pinned, b config.Prebuilt) (*source.Tree, error) {
	return w.store.Files(ctx, w.request(p), p.Component.Name+".prebuilt", b.Mirror())
}

// Toolchain gives the files of the toolchain of that name that runs on this
// machine, read-only and held until closed.
func (w *Workspace) Toolchain(ctx context.Context, name string) (*source.Tree, error) {
	t, err := w.File.ToolchainFor(name)
	if err != nil {
		return nil, err
	}
	req := source.Request{File: w.File, Kinds: w.opts.Kinds, Repair: w.opts.Repair, Tell: w.opts.Tell}
	return w.store.Files(ctx, req, name, t.Mirror())
}

// prebuiltRows are the lock's rows of the compiled files that payload.yaml has
// of p's ref.
func prebuiltRows(p Pinned) []pin.Prebuilt {
	var rows []pin.Prebuilt
	for _, b := range p.Component.Prebuilt {
		if b.Ref == p.Ref {
			rows = append(rows, pin.Prebuilt{From: b.Mirror().ID(), SHA256: b.SHA256})
		}
	}
	return rows
}
