package ci

import (
	"path/filepath"
	"slices"
	"testing"

	"payload/internal/config"
	"payload/internal/testkit"
)

const presets = `{"version": 3, "configurePresets": [
  {"name": "base", "hidden": true}, {"name": "one", "inherits": "base"}, {"name": "two", "inherits": "base"}]}`

// repository has two projects that share a folder of CMake modules.
func repository(t *testing.T, more string) (*config.File, []Project) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"payload.yaml": `version: 1
components:
  a: {pin: A_VERSION, upstream: ../a, patches: a/compat, project: a/server}
  b: {pin: B_VERSION, upstream: ../b, project: b}
  c: {pin: C_VERSION, upstream: ../c, patches: b/compat/c, project: b}
` + more,
		"payload.lock": "version: 1\nentries: []\n",
		"A_VERSION":    "1\n", "B_VERSION": "1\n", "C_VERSION": "1\n",
		"a/server/CMakeLists.txt": `list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_SOURCE_DIR}/../../cmake")
file(GLOB more "${CMAKE_CURRENT_SOURCE_DIR}/../extra/*/*.c*")
set(out "${CMAKE_CURRENT_SOURCE_DIR}/../../../elsewhere") # leaves the repository
`,
		"a/server/CMakePresets.json": presets, "a/server/README.md": "words", "a/server/x/testdata/y": "z",
		"a/compat/0001-x.patch": "x", "a/compat/README.md": "words", "a/extra/ggml/x.cpp": "x", "a/extra/ggml/x.md": "x", "a/other/x.cpp": "x",
		"cmake/Find.cmake": "", "cmake/embed.go": "package cmake\n",
		"b/CMakeLists.txt": `include("${CMAKE_CURRENT_LIST_DIR}/../cmake/Find.cmake")`, "b/CMakePresets.json": `{"version": 3, "configurePresets": [{"name": "three"}]}`,
		"b/bind.go": "package b\n", "b/compat/c/0001-x.patch": "x", "b/.gitignore": "x\n",
		"README.md": "words",
	} {
		testkit.Write(t, filepath.Join(root, name), text)
	}
	f, err := config.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	projects, err := Projects(f, files)
	if err != nil {
		t.Fatal(err)
	}
	return f, projects
}

func TestInputs(t *testing.T) {
	_, projects := repository(t, "")
	for i, want := range [][]string{
		{"A_VERSION", "a/compat/0001-x.patch", "a/extra/ggml/x.cpp", "a/server/CMakeLists.txt", "a/server/CMakePresets.json", "cmake/Find.cmake", "payload.lock", "payload.yaml"},
		{"B_VERSION", "C_VERSION", "b/CMakeLists.txt", "b/CMakePresets.json", "b/compat/c/0001-x.patch", "cmake/Find.cmake", "payload.lock", "payload.yaml"},
	} {
		if got := projects[i].Inputs(); !slices.Equal(got, want) {
			t.Errorf("%s is made from\n%q, want\n%q", projects[i].Dir, got, want)
		}
	}
}

func TestAffects(t *testing.T) {
	const rules = `affected:
  - {paths: ['a/**', '!**/*.md'], presets: [one], packages: [linux]}
  - {paths: [a/server/**], presets: ['t*'], packages: [linux, darwin], runner: big}
  - {paths: [B_VERSION]}
`
	for _, c := range []struct {
		rules   string
		changed []string
		presets []string
		runners []string
	}{
		{"", nil, nil, nil},
		{"", []string{"README.md", "b/bind.go", "a/server/README.md", "a/other/x.cpp"}, nil, nil},
		{"", []string{"a/compat/0001-x.patch"}, []string{"one", "two"}, []string{"", ""}},
		{"", []string{"a/compat/0002-gone.patch"}, []string{"one", "two"}, []string{"", ""}},
		{"", []string{"C_VERSION"}, []string{"three"}, []string{""}},
		{"", []string{"cmake/Find.cmake"}, []string{"one", "two", "three"}, []string{"", "", ""}},
		{"", []string{"payload.lock"}, []string{"one", "two", "three"}, []string{"", "", ""}},
		{rules, []string{"a/compat/0001-x.patch"}, []string{"one"}, []string{""}},
		{rules, []string{"a/server/CMakeLists.txt"}, []string{"one", "two", "three"}, []string{"", "big", "big"}},
		{rules, []string{"a/server/x.md", "a/other.md"}, []string{"two", "three"}, []string{"big", "big"}},
		{rules, []string{"B_VERSION"}, nil, nil},
		{rules, []string{"C_VERSION"}, []string{"three"}, []string{"big"}},
	} {
		f, projects := repository(t, c.rules)
		got := Affects(f, projects, c.changed)
		var runners []string
		for i, job := range got.Include {
			runners = append(runners, job.Runner)
			if job.Preset != got.Presets[i] {
				t.Errorf("%q: the matrix has %s, the list %s", c.changed, job.Preset, got.Presets[i])
			}
		}
		if !slices.Equal(got.Presets, c.presets) || !slices.Equal(runners, c.runners) {
			t.Errorf("%q builds %q on %q, want %q on %q", c.changed, got.Presets, runners, c.presets, c.runners)
		}
	}
	f, projects := repository(t, rules)
	if got := Affects(f, projects, []string{"a/server/CMakeLists.txt"}).Packages; !slices.Equal(got, []string{"linux", "darwin"}) {
		t.Errorf("packages %q", got)
	}
}
