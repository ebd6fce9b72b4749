package cmakerun

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/run"
	"payload/internal/testkit"
)

// tree writes files below a new folder and returns it.
func tree(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	for name, content := range files {
		testkit.Write(tb, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	return dir
}

func readPresets(t *testing.T, dir string) *Presets {
	t.Helper()
	p, err := ReadPresets(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Everything that presets can say, in one project: CMake reads it too.
var presetsFixture = map[string]string{
	// What was configured is written out, to be compared.
	"CMakeLists.txt": `cmake_minimum_required(VERSION 3.23)
project(fixture NONE)
file(WRITE "${CMAKE_BINARY_DIR}/env.txt" "A=$ENV{A}\nB=$ENV{B}\nC=$ENV{C}\nGONE=$ENV{GONE}\nOUTSIDE=$ENV{OUTSIDE}\n")
`,
	"more/base.json": `{
  "version": 4,
  "include": ["deep.json"],
  "configurePresets": [
    {"name": "base", "hidden": true, "inherits": "deep", "generator": "Ninja",
     "binaryDir": "${sourceDir}/out/${presetName}",
     "cacheVariables": {"FROM": "base", "DIR": "${sourceDir}|${sourceParentDir}|${sourceDirName}", "GEN": "${generator}", "HERE": "${fileDir}",
       "HOST": "${hostSystemName}", "NO_MORE": "x", "T": true, "F": false},
     "environment": {"A": "base a", "GONE": "here", "C": "$env{A}/$penv{PATH}"},
     "vendor": {"payload": {"components": ["base"], "targets": ["one", "two"]}, "other.com/1": {"x": 1}}}
  ]}`,
	"more/deep.json": `{
  "version": 4,
  "configurePresets": [
    {"name": "deep", "hidden": true, "cacheVariables": {"FROM": "deep", "DEEP": "yes", "TYPED": {"type": "STRING", "value": "deep"}},
     "condition": {"type": "equals", "lhs": "${hostSystemName}", "rhs": "Nowhere"}}
  ]}`,
	"CMakePresets.json": `{
  "version": 5,
  "include": ["more/base.json"],
  "configurePresets": [
    {"name": "second", "hidden": true, "cacheVariables": {"FROM": "second", "ONLY_SECOND": "2", "TYPED": {"type": "FILEPATH", "value": "/second"}},
     "environment": {"A": "second a", "B": "second b"}, "installDir": "${sourceDir}/prefix"},
    {"name": "main", "inherits": ["base", "second"], "condition": true,
     "cacheVariables": {"NO_MORE": null, "OWN": {"type": "BOOL", "value": "ON"}, "OWN_BOOL": {"type": "BOOL", "value": false}, "UNTYPED": {"value": "u"},
       "MONEY": "a${dollar}b $notamacro{x} $5 $$ $env$env{A} $en{a} end$", "DOUBLED": "$${sourceDirName}", "ENV": "$env{B}-$env{A}-$penv{OUTSIDE}", "SEP": "a${pathListSep}b", "LIST": "a;b c"},
     "environment": {"B": "main b after $env{A}", "GONE": null, "OUTSIDE": "in $penv{OUTSIDE}"},
     "vendor": {"payload": {"targets": ["three"], "tools": [{"name": "cmake", "min": "3.21"}, {"name": "ninja", "why": "fast"}], "later": {"x": [1]}}}},
    {"name": "disabled", "inherits": "base"},
    {"name": "yes-null", "inherits": "base", "condition": null},
    {"name": "child", "inherits": "main", "binaryDir": "relative/../bin", "toolchainFile": "${sourceDir}/tool.cmake"},
    {"name": "yes-any", "generator": "Ninja", "condition": {"type": "anyOf", "conditions": [
       {"type": "const", "value": false},
       {"type": "inList", "string": "${presetName}", "list": ["a", "yes-${dollar}", "yes-any"]}]}},
    {"name": "no-all", "generator": "Ninja", "condition": {"type": "allOf", "conditions": [
       true, {"type": "not", "condition": {"type": "matches", "string": "x{2}y.z", "regex": "^x{2}y\\.[a-z]$"}}]}},
    {"name": "yes-match", "generator": "Ninja", "condition": {"type": "matches", "string": "a]b\\c", "regex": "^a[]b]b[\\d]c$"}},
    {"name": "yes-notmatch", "generator": "Ninja", "condition": {"type": "notMatches", "string": "${presetName}", "regex": "^no"}},
    {"name": "no-notin", "generator": "Ninja", "condition": {"type": "notInList", "string": "b", "list": ["a", "b"]}},
    {"name": "no-ne", "generator": "Ninja", "condition": {"type": "notEquals", "lhs": "$env{UNSET_VARIABLE}", "rhs": ""}},
    {"name": "no-const", "generator": "Ninja", "condition": false}
  ]}`,
	"CMakeUserPresets.json": `{
  "version": 5,
  "configurePresets": [{"name": "mine", "inherits": ["second", "main"], "cacheVariables": {"OWN": "OFF"}}]}`,
	"tool.cmake": "set(CMAKE_SYSTEM_NAME Generic)\n",
}

// The reading must be CMake's: for every preset, the same cache, the same
// environment, and the same refusal where a condition is false.
func TestPresetsMeanWhatCMakeReads(t *testing.T) {
	dir := tree(t, presetsFixture)
	t.Setenv("OUTSIDE", "from outside")
	p := readPresets(t, dir)
	var names []string
	for _, preset := range p.Visible() {
		names = append(names, preset.Name)
		t.Run(preset.Name, func(t *testing.T) {
			t.Parallel()
			b := NewBuild(dir, ".", preset)
			b.BinaryDir = filepath.Join(t.TempDir(), "bin") // several presets have none of their own
			res, err := run.Do(context.Background(), ConfigureCmd(b))
			if preset.Disabled != "" {
				if err == nil || !strings.Contains(string(res.Stderr), "disabled preset") {
					t.Fatalf("read as disabled (%s), but cmake says %v %s", preset.Disabled, err, res.Stderr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			cache := cacheTypes(t, b.BinaryDir)
			for name, want := range preset.Cache {
				got, ok := cache[name]
				if want.Type == "" {
					want.Type = "UNINITIALIZED"
				}
				if !ok || got != want {
					t.Errorf("%s: read as %+v, cmake has %+v", name, want, got)
				}
			}
			for _, name := range []string{"NO_MORE", "FROM", "DEEP", "ONLY_SECOND", "TYPED", "OWN"} {
				if _, has := cache[name]; has != (preset.Cache[name] != CacheVariable{}) {
					t.Errorf("%s is in cmake's cache: %v, and as read: %q", name, has, preset.Cache[name])
				}
			}
			env, err := os.ReadFile(filepath.Join(b.BinaryDir, "env.txt"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(env)) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				want := preset.Environment[name]
				if name == "OUTSIDE" && want == "" {
					continue
				}
				if value != want {
					t.Errorf("environment %s: read as %q, cmake has %q", name, want, value)
				}
			}
		})
	}
	want := []string{"main", "disabled", "yes-null", "child", "yes-any", "no-all", "yes-match", "yes-notmatch", "no-notin", "no-ne", "no-const", "mine"}
	if !slices.Equal(names, want) {
		t.Errorf("visible presets %q, want %q", names, want)
	}
}

func cacheTypes(t *testing.T, binDir string) map[string]CacheVariable {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(binDir, "CMakeCache.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cache := map[string]CacheVariable{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name, kind, ok := strings.Cut(key, ":"); ok && !strings.HasPrefix(line, "/") {
			cache[name] = CacheVariable{Type: kind, Value: value}
		}
	}
	return cache
}

func TestPresetFields(t *testing.T) {
	dir := tree(t, presetsFixture)
	p := readPresets(t, dir)
	main, err := p.Get("main")
	if err != nil {
		t.Fatal(err)
	}
	slash := filepath.ToSlash(dir)
	if want := slash + "/out/main"; main.BinaryDir != want {
		t.Errorf("binaryDir %q, want %q", main.BinaryDir, want)
	}
	if want := slash + "/prefix"; main.InstallDir != want {
		t.Errorf("installDir %q, want %q", main.InstallDir, want)
	}
	if v := main.Vendor; !slices.Equal(v.Components, []string{"base"}) || !slices.Equal(v.Targets, []string{"three"}) ||
		!slices.Equal(v.Tools, []Tool{{Name: "cmake", Min: "3.21"}, {Name: "ninja"}}) {
		t.Errorf("vendor data %+v", v)
	}
	child, err := p.Get("child")
	if err != nil {
		t.Fatal(err)
	}
	if want := slash + "/bin"; child.BinaryDir != want {
		t.Errorf("relative binaryDir %q, want %q", child.BinaryDir, want)
	}
	if want := slash + "/tool.cmake"; child.ToolchainFile != want {
		t.Errorf("toolchainFile %q, want %q", child.ToolchainFile, want)
	}
	if b := NewBuild(dir, "llama/server", Preset{Name: "cpu"}); b.BinaryDir != filepath.Join(dir, "build", "llama-server-cpu") {
		t.Errorf("build folder of a preset that names none: %s", b.BinaryDir)
	}
}

func TestUnusablePresets(t *testing.T) {
	p := readPresets(t, tree(t, presetsFixture))
	_, err := p.Get("chid")
	if e, ok := errors.AsType[*UnknownPresetError](err); !ok || e.Hidden || len(e.Nearest) == 0 || e.Nearest[0] != "child" {
		t.Errorf("unknown preset: %#v", err)
	}
	_, err = p.Get("base")
	if e, ok := errors.AsType[*UnknownPresetError](err); !ok || !e.Hidden {
		t.Errorf("hidden preset: %#v", err)
	}
	for name, why := range map[string]string{
		"disabled": `${hostSystemName} ("` + systems["linux"] + `") is not "Nowhere"`,
		"no-all":   `"x{2}y.z" matches "^x{2}y\\.[a-z]$"`,
		"no-notin": `"b" is one of ["a" "b"]`,
	} {
		if preset, err := p.Get(name); err != nil || preset.Disabled != why {
			t.Errorf("%s: %q, %v; want the reason %s", name, preset.Disabled, err, why)
		}
	}
}

func TestBrokenPresetFiles(t *testing.T) {
	one := func(preset string) map[string]string {
		return map[string]string{"CMakePresets.json": `{"version": 4, "configurePresets": [` + preset + `]}`}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"syntax":        {map[string]string{"CMakePresets.json": "{\"version\": 3,\n\n  oops}"}, "CMakePresets.json:3: invalid character"},
		"no version":    {map[string]string{"CMakePresets.json": "{}"}, "no version"},
		"newer version": {map[string]string{"CMakePresets.json": `{"version": 99}`}, "version 99, and 6 is the newest"},
		"include":       {map[string]string{"CMakePresets.json": `{"version": 4, "include": ["gone.json"]}`}, "gone.json"},
		"old include":   {map[string]string{"CMakePresets.json": `{"version": 3, "include": ["x.json"]}`}, "needs version 4"},
		"include cycle": {map[string]string{"CMakePresets.json": `{"version": 4, "include": ["x.json"]}`, "x.json": `{"version": 4, "include": ["CMakePresets.json"]}`}, "includes itself"},
		"wrong type":    {one(`{"name": "a", "binaryDir": 3}`), `configure preset 1 "a": "binaryDir" must not be a JSON number`},
		"wrong value":   {one(`{"name": "a", "cacheVariables": {"X": 3}}`), `configure preset 1 "a": a cache variable is 3`},
		"no name":       {one(`{}`), "configure preset 1 has no name"},
		"twice":         {one(`{"name": "a"}, {"name": "a"}`), `preset "a" is in`},
		"no parent":     {one(`{"name": "a", "inherits": "b"}`), `"a" inherits from "b", which does not exist`},
		"parent cycle":  {one(`{"name": "a", "inherits": "b"}, {"name": "b", "inherits": ["a"]}`), "inherits from itself"},
		"macro":         {one(`{"name": "a", "binaryDir": "${nonsense}"}`), "${nonsense} is no macro"},
		"open macro":    {one(`{"name": "a", "binaryDir": "${sourceDir"}`), "closing brace"},
		"env cycle":     {one(`{"name": "a", "environment": {"A": "$env{B}", "B": "$env{A}"}}`), "refers to itself"},
		"condition":     {one(`{"name": "a", "condition": {"type": "maybe"}}`), `"maybe" is no type of condition`},
		"vendor type":   {one(`{"name": "a", "vendor": {"payload": {"targets": "x"}}}`), "vendor payload targets"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadPresets(tree(t, c.files))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := ReadPresets(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no preset file: %v", err)
	}
}

func TestNearest(t *testing.T) {
	options := []string{"GGML_CUDA", "GGML_CPU", "GGML_CUDA_GRAPHS", "LLAMA_CURL", "GGML_AVX512_VNNI", "BUILD_SHARED_LIBS"}
	for name, want := range map[string]string{
		"LLAMA_CUDA":        "GGML_CUDA",
		"GGML_AVX512VNNI":   "GGML_AVX512_VNNI",
		"LLAMA_CUDA_GRAPHS": "GGML_CUDA_GRAPHS",
		"BUILD_SHARED_LIB":  "BUILD_SHARED_LIBS",
	} {
		if got := Nearest(name, options, 1); len(got) == 0 || got[0] != want {
			t.Errorf("nearest to %s: %q, want %s", name, got, want)
		}
	}
	if got := Nearest("ZZZ", options, 3); len(got) > 0 {
		t.Errorf("nothing is like ZZZ, got %q", got)
	}
}

func TestPresetReadsOnlyNamedVariables(t *testing.T) {
	t.Setenv("OUTSIDE", "from outside")
	t.Setenv("UNRELATED", "x")
	main, err := readPresets(t, tree(t, presetsFixture)).Get("main")
	if err != nil {
		t.Fatal(err)
	}
	if got := main.outside(); !slices.Equal(got, []string{"OUTSIDE=from outside"}) {
		t.Errorf("passed from outside: %q", got)
	}
	if got := slices.Sorted(maps.Keys(main.Environment)); !slices.Equal(got, []string{"A", "B", "C", "OUTSIDE"}) {
		t.Errorf("environment of the preset: %q", got)
	}
}
