package cmakerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"payload/internal/atomicfile"
	"payload/internal/run"
)

// Defaults are the cache entries of a project that is configured with none of
// a preset's values: what upstream chooses where nobody does.
type Defaults struct {
	Entries map[string]CacheEntry `json:"entries"`
	// Stopped is where CMake gave up, empty when it didn't. A project may need
	// what its presets set; the entries up to there are upstream's all the same.
	Stopped string `json:"stopped,omitempty"`
	Kept    bool   `json:"-"` // read from an earlier look
}

// ReadDefaults looks b's defaults up below dir, and configures a scratch folder
// there where they aren't known: of these sources, with this toolchain. b must
// be configured in its own folder, whose stamp says what the toolchain is, and
// locked.
func ReadDefaults(ctx context.Context, b Build, dir string) (Defaults, error) {
	fail := func(err error) (Defaults, error) {
		return Defaults{}, fmt.Errorf("reading the defaults of %s: %w", b.Project, err)
	}
	key, err := defaultsKey(b)
	if err != nil {
		return fail(err)
	}
	file := filepath.Join(dir, b.ID()+"-"+key[:16]+".json")
	var d Defaults
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &d) == nil && len(d.Entries) > 0 {
		d.Kept = true
		return d, nil
	}
	// The lock of the build folder keeps others out of the scratch folder, too.
	scratch := filepath.Join(dir, b.ID())
	if err := os.RemoveAll(scratch); err != nil { // of a run that was killed
		return fail(err)
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(scratch) }() // the next run deletes what stays
	d, err = configureDefaults(ctx, b, scratch)
	if err != nil {
		return fail(err)
	}
	if slices.ContainsFunc(b.Sources, func(s Source) bool { return s.Patched == "" }) {
		return d, nil // somebody's own folder, which changes as it likes
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fail(err)
	}
	return d, atomicfile.Write(file, append(text, '\n'), 0o644)
}

func configureDefaults(ctx context.Context, b Build, scratch string) (Defaults, error) {
	own := b.BinaryDir
	b.BinaryDir = scratch
	if err := link(b); err != nil {
		return Defaults{}, err
	}
	res, err := run.Do(ctx, run.Cmd{Args: DefaultsArgs(b), Env: slices.Concat(b.Preset.outside(), b.Preset.environ(), b.exeEnv())})
	d := Defaults{}
	if exit, ok := errors.AsType[*run.ExitError](err); ok && exit.Signal == "" {
		stop := parseConfigure(string(res.Stderr))
		if !filepath.IsAbs(stop.File) {
			stop.File = filepath.Join(b.SourceDir(), stop.File)
		}
		d.Stopped = strings.ReplaceAll(fmt.Sprintf("%s:%d: %s", b.rel(stop.File), stop.Line, stop.Message), scratch, own)
	} else if err != nil {
		return d, err
	}
	if d.Entries, err = cacheFile(scratch); err != nil {
		if d.Stopped != "" {
			err = errors.New(d.Stopped)
		}
		return d, err
	}
	for name, e := range d.Entries {
		e.Value = strings.ReplaceAll(e.Value, filepath.ToSlash(scratch), filepath.ToSlash(own))
		d.Entries[name] = e
		if _, set := b.Preset.Cache[name]; set && choosesTools(name) {
			delete(d.Entries, name) // given below, so no default
		}
	}
	return d, nil
}

// DefaultsArgs is the command line that configures b with no value of the
// preset but those that choose the machine and its tools.
func DefaultsArgs(b Build) []string {
	args := []string{"cmake", "-S", b.SourceDir(), "-B", b.BinaryDir}
	for _, o := range [][2]string{{"-G", b.Preset.Generator}, {"-A", b.Preset.Architecture}, {"-T", b.Preset.Toolset}, {"--toolchain", b.Preset.ToolchainFile}} {
		if o[1] != "" {
			args = append(args, o[0], o[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Preset.Cache)) {
		if v := b.Preset.Cache[name]; choosesTools(name) && v.Type != "" {
			args = append(args, "-D"+name+":"+v.Type+"="+v.Value)
		} else if choosesTools(name) {
			args = append(args, "-D"+name+"="+v.Value)
		}
	}
	return append(args, b.sourceArgs()...)
}

var toolChoices = regexp.MustCompile(`^CMAKE_(SYSTEM_\w+|OSX_\w+|SYSROOT\w*|TOOLCHAIN_FILE|MAKE_PROGRAM|FIND_ROOT_PATH\w*|[A-Z]+_(COMPILER(_TARGET)?|ARCHITECTURES|HOST_COMPILER))$`)

func choosesTools(name string) bool { return toolChoices.MatchString(name) }

// defaultsKey is over everything that decides the defaults: the trees, and of
// the stamp what isn't the preset's own choice.
func defaultsKey(b Build) (string, error) {
	s, err := readStamp(b.BinaryDir)
	if err != nil {
		return "", err
	}
	tools := map[string]string{}
	for name, v := range b.Preset.Cache {
		if choosesTools(name) {
			tools[name] = v.Value
		}
	}
	var trees []string
	for _, src := range b.Sources {
		trees = append(trees, src.Component, src.Patched)
	}
	text, err := json.Marshal([]any{
		trees, tools, s.Generator, s.CMake, s.Compilers, s.Variables, s.Inputs,
		b.Preset.Architecture, b.Preset.Toolset, b.Preset.ToolchainFile, b.Preset.Environment,
	})
	if err != nil {
		return "", err
	}
	return digestText(text), nil
}

// Same says whether two values of an entry mean the same to CMake.
func Same(a, b string) bool { return a == b || isOn(a) && isOn(b) || isOff(a) && isOff(b) }
