package ci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/run"
	"payload/internal/workspace"
)

// KeySchema is the value of the first key.
const KeySchema = "payload.cache-key/v1"

// Key names a build of a preset: two builds with one key are made from the same.
type Key struct {
	Schema string `json:"schema"`
	Preset string `json:"preset"`
	Key    string `json:"key"`
	Parts  []Part `json:"parts"`
}

// Part is one thing that the key depends on.
type Part struct {
	Kind  string `json:"kind"` // system, config, pin, patch, file, preset, variable or tool
	Name  string `json:"name"`
	Value string `json:"value"` // the SHA-256 of a file
}

// CacheKey digests everything that decides what a preset's build folder holds:
// pins and lock, patches, the preset as it is expanded, the project's files and
// what they name elsewhere, variables that steer compilers, and the tools. A lock
// that disagrees with the pins is an error, since the key would lie; a tool that is
// missing is a *doctor.MissingError. Paths below the root count relative to it.
// needs is what the preset asks of the machine; what is asked for other reasons,
// or may be missing, decides no object.
func CacheKey(ctx context.Context, w *workspace.Workspace, p Project, preset cmakerun.Preset, needs []doctor.Need) (Key, error) {
	key := Key{Schema: KeySchema, Preset: preset.Name}
	add := func(kind, name, value string) { key.Parts = append(key.Parts, Part{kind, name, value}) }
	add("system", runtime.GOOS, runtime.GOARCH)
	for _, c := range p.Components {
		pinned, err := w.Pinned(c.Name)
		if err != nil {
			return key, err
		}
		said, err := json.Marshal(c) // where it is built from what upstream offers built, too
		if err != nil {
			return key, fmt.Errorf("digesting %s of %s: %w", c.Name, config.FileName, err)
		}
		add("config", c.Name, hexSum(said))
		add("pin", c.Name, pinned.Ref)
		if pinned.Entry != nil {
			add("pin", c.Name+" commit", pinned.Entry.Commit)
			for _, s := range pinned.Entry.Sources {
				add("pin", c.Name+" tree from "+s.From, s.Patched)
			}
		}
		for _, d := range pinned.Series.Digests() {
			add("patch", c.Name+" "+d.File, d.SHA256)
		}
	}
	for _, file := range slices.Concat(p.Own, p.Named) {
		if path.Base(file) == "CMakePresets.json" {
			continue // as this preset expands, not what others say beside it
		}
		sum, err := digest(w.File.Abs(file))
		if err != nil {
			return key, err
		}
		add("file", file, sum)
	}
	said := cmakerun.Identity(preset)
	for _, name := range slices.Sorted(maps.Keys(said)) {
		kind, short := "preset", name
		if rest, ok := strings.CutPrefix(name, "variable "); ok {
			kind, short = "variable", rest
		}
		add(kind, short, anywhere(w.File, said[name]))
	}
	needs = slices.DeleteFunc(slices.Clone(needs), func(n doctor.Need) bool { return n.Optional || n.For != "preset "+preset.Name })
	tools, err := toolchain(ctx, preset, needs)
	if err != nil {
		return key, err
	}
	key.Parts = append(key.Parts, tools...)
	sum := sha256.New()
	for _, part := range key.Parts {
		fmt.Fprintf(sum, "%q %q %q\n", part.Kind, part.Name, part.Value)
	}
	key.Key = fmt.Sprintf("%s-%s-%s-%s", preset.Name, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:32])
	return key, nil
}

// anywhere is a preset's value as it reads in every checkout.
func anywhere(f *config.File, value string) string {
	return strings.ReplaceAll(value, filepath.ToSlash(f.Root), ".")
}

func digest(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("digesting an input: %w", err)
	}
	return hexSum(text), nil
}

func hexSum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// compilers are the places where a preset or a person names one.
var compilers = []string{"CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_CUDA_COMPILER", "CMAKE_HIP_COMPILER", "CMAKE_OBJCXX_COMPILER"}

// toolchain identifies the tools that a preset needs by what they say about
// themselves. Paths and times would differ between two machines of one image.
func toolchain(ctx context.Context, preset cmakerun.Preset, needs []doctor.Need) ([]Part, error) {
	found, err := doctor.Look(ctx, needs)
	if err != nil {
		return nil, err
	}
	if missing := doctor.Missing(found); len(missing) > 0 {
		return nil, &doctor.MissingError{Preset: preset.Name, Missing: missing}
	}
	var parts []Part
	programs, versions := map[string]string{}, map[string]string{}
	for _, f := range found {
		programs[f.Name], versions[f.Name] = f.Path, f.Found
	}
	for _, name := range compilers {
		if named := preset.Cache[name].Value; named != "" {
			programs[name] = named
		}
	}
	for _, name := range []string{"CC", "CXX", "CUDACXX"} {
		if named := strings.Fields(os.Getenv(name)); len(named) > 0 {
			programs[name] = named[0]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		// All that it says: -dumpversion leaves out the packager's patches. What is no
		// program, as headers are, is known by the version that was found.
		value := versions[name]
		res, err := run.Do(ctx, run.Cmd{Args: []string{programs[name], "--version"}, Env: []string{"LC_ALL=C"}, Expendable: true})
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if said := strings.TrimSpace(string(res.Stdout)); err == nil && said != "" {
			value = said
		}
		parts = append(parts, Part{"tool", name, value})
	}
	return parts, nil
}
