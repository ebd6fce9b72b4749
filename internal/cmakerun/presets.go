package cmakerun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files that hold presets, and the newest form of them that is read here
// (CMake 3.25's). A newer form may mean other things by the same words, so it
// is refused rather than guessed at.
const (
	presetsFile     = "CMakePresets.json"
	userPresetsFile = "CMakeUserPresets.json"
	maxVersion      = 6
	includeVersion  = 4
)

// Presets holds the configure presets of one project.
type Presets struct {
	Dir   string   // absolute folder of the project
	Files []string // every file read, in order

	visible []Preset              // in the order of the files
	byName  map[string]*rawPreset // hidden ones too
	names   []string              // in the order of the files
}

// rawPreset is one entry as the file has it.
type rawPreset struct {
	Name            string                     `json:"name"`
	Hidden          bool                       `json:"hidden"`
	Inherits        stringOrList               `json:"inherits"`
	DisplayName     string                     `json:"displayName"`
	Description     string                     `json:"description"`
	Generator       string                     `json:"generator"`
	Architecture    stringOrStrategy           `json:"architecture"`
	Toolset         stringOrStrategy           `json:"toolset"`
	ToolchainFile   string                     `json:"toolchainFile"`
	BinaryDir       string                     `json:"binaryDir"`
	InstallDir      string                     `json:"installDir"`
	CMakeExecutable string                     `json:"cmakeExecutable"`
	Condition       json.RawMessage            `json:"condition"`
	CacheVariables  map[string]*CacheVariable  `json:"cacheVariables"`
	Environment     map[string]*string         `json:"environment"`
	Vendor          map[string]json.RawMessage `json:"vendor"`

	file string
}

// CacheVariable is a value that a preset gives to a cache entry.
type CacheVariable struct {
	Type  string // BOOL, STRING, PATH, …; empty when the preset leaves it to the project
	Value string
}

// UnmarshalJSON reads the forms that CMake knows: a string, a boolean, or an
// object with a type and one of the two. null is a nil pointer.
func (v *CacheVariable) UnmarshalJSON(text []byte) error {
	var object struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	value := json.RawMessage(text)
	if bytes.HasPrefix(text, []byte("{")) {
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
		value = object.Value
	}
	var decoded any
	if err := json.Unmarshal(value, &decoded); err != nil {
		return errors.New("a cache variable has no value")
	}
	v.Type = object.Type
	switch decoded := decoded.(type) {
	case string:
		v.Value = decoded
	case bool:
		v.Value = "FALSE"
		if decoded {
			v.Value = "TRUE"
		}
		if object.Value == nil {
			v.Type = "BOOL"
		}
	default:
		return fmt.Errorf("a cache variable is %s, not a string, a boolean or null", value)
	}
	return nil
}

type stringOrList []string

func (l *stringOrList) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		*l = make([]string, 1)
		return json.Unmarshal(text, &(*l)[0])
	}
	return json.Unmarshal(text, (*[]string)(l))
}

// stringOrStrategy is an architecture or a toolset; only its value matters
// here.
type stringOrStrategy string

func (s *stringOrStrategy) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		return json.Unmarshal(text, (*string)(s))
	}
	var object struct {
		Value string `json:"value"`
	}
	err := json.Unmarshal(text, &object)
	*s = stringOrStrategy(object.Value)
	return err
}

// ReadPresets reads CMakePresets.json and CMakeUserPresets.json of a project
// and everything that they include. No file at all gives an error that wraps
// fs.ErrNotExist.
func ReadPresets(projectDir string) (*Presets, error) {
	dir, err := filepath.Abs(projectDir)
	if err != nil {
		return nil, fmt.Errorf("reading presets: %w", err)
	}
	p := &Presets{Dir: dir, byName: map[string]*rawPreset{}}
	for _, name := range []string{presetsFile, userPresetsFile} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := p.read(file, nil); err != nil {
			return nil, fmt.Errorf("reading presets: %w", err)
		}
	}
	if len(p.Files) == 0 {
		return nil, fmt.Errorf("reading presets of %s: no %s: %w", dir, presetsFile, fs.ErrNotExist)
	}
	for _, name := range p.names {
		if p.byName[name].Hidden {
			continue
		}
		preset, err := p.resolve(name)
		if err != nil {
			return nil, fmt.Errorf("reading preset %q of %s: %w", name, dir, err)
		}
		p.visible = append(p.visible, preset)
	}
	return p, nil
}

func (p *Presets) read(file string, includedBy []string) error {
	if slices.Contains(includedBy, file) {
		return fmt.Errorf("%s includes itself through %s", file, strings.Join(includedBy, ", "))
	}
	if slices.Contains(p.Files, file) {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p.Files = append(p.Files, file)
	var content struct {
		Version          *int              `json:"version"`
		Include          []string          `json:"include"`
		ConfigurePresets []json.RawMessage `json:"configurePresets"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return fmt.Errorf("%s:%w", file, atLine(text, err))
	}
	switch {
	case content.Version == nil:
		return fmt.Errorf("%s: no version", file)
	case *content.Version > maxVersion:
		return fmt.Errorf("%s: version %d, and %d is the newest that is read here", file, *content.Version, maxVersion)
	case len(content.Include) > 0 && *content.Version < includeVersion:
		return fmt.Errorf("%s: including files needs version %d; it has %d", file, includeVersion, *content.Version)
	}
	for _, include := range content.Include {
		if !filepath.IsAbs(include) {
			include = filepath.Join(filepath.Dir(file), filepath.FromSlash(include))
		}
		if err := p.read(include, append(slices.Clone(includedBy), file)); err != nil {
			return err
		}
	}
	for i, text := range content.ConfigurePresets {
		preset := rawPreset{file: file}
		if err := json.Unmarshal(text, &preset); err != nil {
			return fmt.Errorf("%s: configure preset %d %q: %w", file, i+1, preset.Name, plainTypeError(err))
		}
		if preset.Name == "" {
			return fmt.Errorf("%s: configure preset %d has no name", file, i+1)
		}
		if other, ok := p.byName[preset.Name]; ok {
			return fmt.Errorf("preset %q is in %s and again in %s", preset.Name, other.file, file)
		}
		p.byName[preset.Name] = &preset
		p.names = append(p.names, preset.Name)
	}
	return nil
}

// atLine adds the line to what encoding/json says about a whole file.
func atLine(text []byte, err error) error {
	offset := int64(0)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = kind.Offset
	}
	offset = min(offset, int64(len(text)))
	return fmt.Errorf("%d: %w", 1+bytes.Count(text[:offset], []byte("\n")), plainTypeError(err))
}

// plainTypeError takes the names of Go types out of what encoding/json says.
func plainTypeError(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return fmt.Errorf("%q must not be a JSON %s", kind.Field, kind.Value)
	}
	return err
}

// Visible lists the presets that are not hidden, in the order of the files;
// those whose condition is false are among them.
func (p *Presets) Visible() []Preset { return p.visible }

// UnknownPresetError is a preset that a project does not offer.
type UnknownPresetError struct {
	Dir     string // the project
	Name    string
	Hidden  bool     // it exists only for others to inherit from
	Nearest []string // what may have been meant, best first
	Known   []string
}

func (e *UnknownPresetError) Error() string {
	why := "no such preset"
	if e.Hidden {
		why = "it is hidden: other presets inherit from it"
	}
	return fmt.Sprintf("finding preset %q of %s: %s", e.Name, e.Dir, why)
}

// Get finds a preset. One that is unknown or hidden gives *UnknownPresetError;
// one whose condition is false says so in its Disabled.
func (p *Presets) Get(name string) (Preset, error) {
	var known []string
	for _, preset := range p.visible {
		known = append(known, preset.Name)
		if preset.Name == name {
			return preset, nil
		}
	}
	_, hidden := p.byName[name]
	return Preset{}, &UnknownPresetError{Dir: p.Dir, Name: name, Hidden: hidden, Nearest: Nearest(name, known, 3), Known: known}
}

// inherit gives a copy of raw with what its parents add. A field that is set
// stays; among parents the earlier one wins.
func (p *Presets) inherit(raw *rawPreset, children []string) (*rawPreset, error) {
	if slices.Contains(children, raw.Name) {
		return nil, fmt.Errorf("%q inherits from itself through %s", raw.Name, strings.Join(children, ", "))
	}
	merged := *raw
	merged.CacheVariables = copyMap(raw.CacheVariables)
	merged.Environment = copyMap(raw.Environment)
	own, err := payloadOf(raw)
	if err != nil {
		return nil, err
	}
	merged.Vendor = copyMap(own)
	for _, name := range raw.Inherits {
		parent, ok := p.byName[name]
		if !ok {
			return nil, fmt.Errorf("%q inherits from %q, which does not exist", raw.Name, name)
		}
		full, err := p.inherit(parent, append(slices.Clone(children), raw.Name))
		if err != nil {
			return nil, err
		}
		fill(&merged.Generator, full.Generator)
		fill(&merged.Architecture, full.Architecture)
		fill(&merged.Toolset, full.Toolset)
		fill(&merged.ToolchainFile, full.ToolchainFile)
		fill(&merged.BinaryDir, full.BinaryDir)
		fill(&merged.InstallDir, full.InstallDir)
		fill(&merged.CMakeExecutable, full.CMakeExecutable)
		if merged.Condition == nil {
			merged.Condition = full.Condition
		}
		addMissing(merged.CacheVariables, full.CacheVariables)
		addMissing(merged.Environment, full.Environment)
		addMissing(merged.Vendor, full.Vendor)
	}
	// A null condition stops inheriting, and children inherit none from here.
	// (CMake 3.25 forgets this for some presets that others inherit from, and
	// then refuses them as disabled; which ones depends on their names.)
	if string(merged.Condition) == "null" {
		merged.Condition = nil
	}
	return &merged, nil
}

func fill[S ~string](to *S, from S) {
	if *to == "" {
		*to = from
	}
}

func copyMap[V any](m map[string]V) map[string]V {
	c := make(map[string]V, len(m))
	addMissing(c, m)
	return c
}

func addMissing[V any](to, from map[string]V) {
	for name, value := range from {
		if _, ok := to[name]; !ok {
			to[name] = value
		}
	}
}
