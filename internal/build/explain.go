package build

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/cmakerun"
	"payload/internal/manifest"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// Explanation tells where the values of a preset's build come from.
type Explanation struct {
	Preset  string   `json:"preset"`
	Project string   `json:"project"`
	Binary  string   `json:"binary_dir"`
	Sources []Source `json:"sources"`
	// Stopped is where CMake gave up when none of the preset's values were
	// given; what is declared after that has no known default.
	Stopped string `json:"defaults_stopped,omitempty"`
	// Before is what the staged payload was built from, by component; null
	// where nothing is staged or its sources are not at hand any more.
	Before    []Source `json:"before"`
	BeforeWhy string   `json:"before_unknown,omitempty"` // why Before is null
	Options   []Option `json:"options"`                  // by name; all entries of the cache
	Seconds   float64  `json:"seconds"`
}

// Option is one cache entry. A value is null where the preset doesn't set it,
// nobody declares it without the preset's values, or CMake doesn't keep it.
type Option struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Help    string  `json:"help,omitempty"`
	Preset  *string `json:"preset"`
	Default *string `json:"default"`
	Cache   *string `json:"cache"`
	Differs bool    `json:"differs"` // cache and default are not the same
	// Was is the default of the sources in Before, where that is another one.
	Was *string `json:"default_before,omitempty"`
}

// Explain configures one preset, compiles nothing, and holds its values
// against upstream's defaults.
func Explain(ctx context.Context, w *workspace.Workspace, v *voice.Voice, opts Options) (Explanation, error) {
	begun := time.Now()
	opts.ConfigureOnly = true
	j := &job{w: w, v: v, opts: opts, begun: begun, result: Result{Preset: opts.Preset}}
	defer j.close()
	e := Explanation{Preset: opts.Preset}
	var now, before cmakerun.Defaults
	err := j.walk(ctx, []step{
		{"resolve", j.resolve, true},
		{"materialise", j.materialise, true},
		{"configure", j.configure, true},
		{"defaults", func(ctx context.Context) (err error) {
			if now, err = j.defaults(ctx, j.build); err != nil {
				return err
			}
			before, err = j.defaultsBefore(ctx, &e)
			return err
		}, true},
	})
	if err != nil {
		return e, err
	}
	cache, err := j.reply.Cache()
	if err != nil {
		return e, err
	}
	e.Project, e.Binary, e.Sources, e.Stopped = j.result.Project, j.result.Binary, j.result.Sources, now.Stopped
	e.Options = options(j.preset, cache, now.Entries, before.Entries)
	e.Seconds = time.Since(begun).Seconds()
	return e, nil
}

func (j *job) defaults(ctx context.Context, b cmakerun.Build) (cmakerun.Defaults, error) {
	d, err := cmakerun.ReadDefaults(ctx, b, filepath.Join(j.w.File.Root, "build", ".defaults"))
	switch {
	case err != nil:
	case d.Kept:
		j.v.Say("defaults as read before")
	case d.Stopped != "":
		j.v.Say("without the preset's values CMake stops at %s", d.Stopped)
	default:
		j.v.Say("configured a scratch folder without the preset's values")
	}
	return d, err
}

// defaultsBefore reads the defaults of what the staged payload was built from,
// where that is something else than now and still at hand.
func (j *job) defaultsBefore(ctx context.Context, e *Explanation) (cmakerun.Defaults, error) {
	m, err := manifest.Read(filepath.Join(j.dist(), "lib", "payload"))
	if err != nil {
		e.BeforeWhy = "nothing is staged"
		return cmakerun.Defaults{}, nil //nolint:nilerr // no payload is a fact, not a failure
	}
	b := j.build
	b.Sources = slices.Clone(b.Sources)
	same := true
	var sources []Source
	for _, c := range m.Components {
		i := slices.IndexFunc(b.Sources, func(s cmakerun.Source) bool { return s.Component == c.Name })
		if i < 0 || len(m.Components) != len(b.Sources) {
			e.BeforeWhy = "the staged payload is of other components"
			return cmakerun.Defaults{}, nil
		}
		sources = append(sources, Source{Component: c.Name, Ref: c.Ref, Commit: c.Commit, Pristine: c.Pristine, Patched: c.Patched, From: c.Source, Unpatched: c.Unpatched})
		if c.Patched == b.Sources[i].Patched {
			continue
		}
		same = false
		tree, ok, err := j.w.Store().Find(ctx, c.Name, c.Patched)
		if err != nil {
			return cmakerun.Defaults{}, err
		}
		if !ok {
			e.BeforeWhy = "the tree of " + c.Name + " " + c.Ref + ", which was built last, is not in the store any more"
			return cmakerun.Defaults{}, nil
		}
		j.trees = append(j.trees, tree)
		s := &b.Sources[i]
		s.Tree, s.Ref, s.Commit, s.Build, s.Pristine, s.Patched = tree.Path, c.Ref, c.Commit, c.Build, c.Pristine, c.Patched
	}
	e.Before = sources
	if same {
		return cmakerun.Defaults{}, nil
	}
	return j.defaults(ctx, b)
}

// options puts the values side by side, by name.
func options(p cmakerun.Preset, cache, now, before map[string]cmakerun.CacheEntry) []Option {
	names := map[string]bool{}
	for name := range p.Cache {
		names[name] = true
	}
	for name, entry := range cache {
		if entry.Type != "INTERNAL" && entry.Type != "STATIC" {
			names[name] = true
		}
	}
	for name := range now {
		names[name] = true
	}
	value := func(entries map[string]cmakerun.CacheEntry, name string) *string {
		if entry, ok := entries[name]; ok {
			return &entry.Value
		}
		return nil
	}
	var list []Option
	for _, name := range slices.Sorted(maps.Keys(names)) {
		o := Option{Name: name, Default: value(now, name), Cache: value(cache, name)}
		if set, ok := p.Cache[name]; ok {
			o.Preset, o.Type = &set.Value, set.Type
		}
		for _, entry := range []cmakerun.CacheEntry{cache[name], now[name]} {
			if entry.Type != "" && (o.Type == "" || o.Type == "UNINITIALIZED") {
				o.Type = entry.Type
			}
			if o.Help == "" {
				o.Help = strings.TrimSpace(entry.Help)
			}
		}
		o.Differs = o.Default != nil && o.Cache != nil && !cmakerun.Same(*o.Default, *o.Cache)
		if was := value(before, name); was != nil && o.Default != nil && !cmakerun.Same(*was, *o.Default) {
			o.Was = was
		}
		list = append(list, o)
	}
	return list
}
