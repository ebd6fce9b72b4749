package cmakerun

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"payload/internal/run"
)

// Preset is a configure preset with everything that it inherits, its macros
// replaced. Paths are absolute with forward slashes, as CMake writes them.
type Preset struct {
	Name          string
	DisplayName   string
	Description   string
	Generator     string // empty: CMake's default
	Architecture  string
	Toolset       string
	ToolchainFile string // as the preset has it, perhaps relative
	BinaryDir     string // empty: the caller chooses
	InstallDir    string
	Disabled      string // why its condition is false here; empty when it may be used
	Cache         map[string]CacheVariable
	Environment   map[string]string
	Vendor        Vendor // what it says to this tool

	lookedUp map[string]string // outside variables that the preset refers to and that are set
}

// environ is the preset's environment as run.Cmd takes it, for the steps that
// CMake does not apply it to.
func (p Preset) environ() []string { return pairs(p.Environment) }

// outside is what the preset refers to beyond the variables that children get
// anyway. To name a variable in a preset is to ask for it.
func (p Preset) outside() []string {
	extra := maps.Clone(p.lookedUp)
	for _, kv := range run.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		delete(extra, name)
	}
	return pairs(extra)
}

func pairs(m map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+"="+m[name])
	}
	return list
}

// expander replaces the macros of one preset.
type expander struct {
	raw      *rawPreset
	simple   map[string]string
	env      map[string]string // finished entries of the preset's environment
	pending  []string          // entries being worked out, to find cycles
	lookedUp map[string]string
}

// systems gives CMake's names of the systems that this program runs on.
var systems = map[string]string{"linux": "Linux", "darwin": "Darwin", "windows": "Windows", "freebsd": "FreeBSD"}

func (p *Presets) resolve(name string) (Preset, error) {
	raw, err := p.inherit(p.byName[name], nil)
	if err != nil {
		return Preset{}, err
	}
	dir := filepath.ToSlash(p.Dir)
	x := &expander{
		raw: raw,
		simple: map[string]string{
			"sourceDir":       dir,
			"sourceParentDir": path.Dir(dir),
			"sourceDirName":   path.Base(dir),
			"presetName":      raw.Name,
			"generator":       raw.Generator,
			"hostSystemName":  systems[runtime.GOOS],
			"fileDir":         filepath.ToSlash(filepath.Dir(raw.file)),
			"pathListSep":     string(os.PathListSeparator),
			"dollar":          "$",
		},
		env:      map[string]string{},
		lookedUp: map[string]string{},
	}
	preset := Preset{
		Name: raw.Name, DisplayName: raw.DisplayName, Description: raw.Description,
		Generator: raw.Generator, Architecture: string(raw.Architecture), Toolset: string(raw.Toolset),
		Cache: map[string]CacheVariable{}, Environment: x.env, lookedUp: x.lookedUp,
	}
	return preset, x.fill(&preset, dir)
}

func (x *expander) fill(preset *Preset, dir string) error {
	for _, name := range slices.Sorted(maps.Keys(x.raw.Environment)) {
		if err := x.resolveEnv(name); err != nil {
			return fmt.Errorf("environment %s: %w", name, err)
		}
	}
	for name, v := range x.raw.CacheVariables {
		if v == nil { // null: leave the entry alone, and inherit none
			continue
		}
		value, err := x.expand(v.Value)
		if err != nil {
			return fmt.Errorf("cache variable %s: %w", name, err)
		}
		preset.Cache[name] = CacheVariable{Type: v.Type, Value: value}
	}
	for _, f := range []struct {
		name, value string
		to          *string
		isPath      bool
	}{
		{"binaryDir", x.raw.BinaryDir, &preset.BinaryDir, true},
		{"installDir", x.raw.InstallDir, &preset.InstallDir, true},
		{"toolchainFile", x.raw.ToolchainFile, &preset.ToolchainFile, false},
	} {
		value, err := x.expand(f.value)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if f.isPath && value != "" {
			if !filepath.IsAbs(filepath.FromSlash(value)) {
				value = dir + "/" + value
			}
			value = path.Clean(value)
		}
		*f.to = value
	}
	if x.raw.Condition != nil {
		ok, why, err := x.holds(x.raw.Condition)
		if err != nil {
			return fmt.Errorf("condition: %w", err)
		}
		if !ok {
			preset.Disabled = why
		}
	}
	var err error
	preset.Vendor, err = decodeVendor(x.raw.Vendor)
	return err
}

// resolveEnv works out one entry of the preset's environment. A null entry is
// not part of it, and is read from outside.
func (x *expander) resolveEnv(name string) error {
	raw := x.raw.Environment[name]
	if _, done := x.env[name]; done || raw == nil {
		return nil
	}
	if slices.Contains(x.pending, name) {
		return fmt.Errorf("it refers to itself through %s", strings.Join(x.pending, ", "))
	}
	x.pending = append(x.pending, name)
	defer func() { x.pending = x.pending[:len(x.pending)-1] }()
	value, err := x.expand(*raw)
	if err != nil {
		return err
	}
	x.env[name] = value
	return nil
}

// spaces are the words that may stand between $ and {.
var spaces = []string{"", "env", "penv", "vendor"}

// expand replaces macros the way CMake does: a $ that begins no known kind of
// macro stays as it is, an unknown name is an error.
func (x *expander) expand(s string) (string, error) {
	var out strings.Builder
	for s != "" {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			break
		}
		// Letters belong to the attempt for as long as they can begin a word, and
		// the one that ends it is text too: "$env$env{X}" has no macro.
		n := 0
		for n < len(after) && after[n] != '{' && beginsSpace(after[:n]) {
			n++
		}
		space := after[:n]
		if n == len(after) || after[n] != '{' || !slices.Contains(spaces, space) {
			out.WriteString("$" + space)
			s = after[n:]
			continue
		}
		name, rest, closed := strings.Cut(after[n+1:], "}")
		if !closed {
			return "", fmt.Errorf("%q has a macro without its closing brace", s)
		}
		value, err := x.macro(space, name)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		s = rest
	}
	return out.String(), nil
}

func beginsSpace(s string) bool {
	return slices.ContainsFunc(spaces, func(space string) bool { return strings.HasPrefix(space, s) })
}

func (x *expander) macro(space, name string) (string, error) {
	switch space {
	case "":
		if value, ok := x.simple[name]; ok {
			return value, nil
		}
		return "", fmt.Errorf("${%s} is no macro", name)
	case "vendor":
		return "", fmt.Errorf("$vendor{%s} belongs to another tool", name)
	}
	if name == "" {
		return "", errors.New("a macro for the environment names no variable")
	}
	if own := x.raw.Environment[name]; space == "env" && own != nil {
		err := x.resolveEnv(name)
		return x.env[name], err
	}
	value, ok := os.LookupEnv(name)
	if ok {
		x.lookedUp[name] = value
	}
	return value, nil
}
