package review

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
)

// What an option's default comes to as a sub-project is not what stands there:
// STANDALONE is off below another project.
const embedded = `cmake_minimum_required(VERSION 3.21)
project(toy C)
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  set(STANDALONE ON)
else()
  set(STANDALONE OFF)
endif()
option(TOY_TESTS "toy: build the tests" STANDALONE_VALUE)
option(TOY_FAST "toy: be fast" FAST_VALUE)
set(TOY_LEVEL "LEVEL_VALUE" CACHE STRING "toy: level")
`

func project(t *testing.T, tests, fast, level string) (dir, text string) {
	t.Helper()
	dir = t.TempDir()
	text = strings.NewReplacer("STANDALONE_VALUE", tests, "FAST_VALUE", fast, "LEVEL_VALUE", level).Replace(embedded)
	testkit.Write(t, filepath.Join(dir, "CMakeLists.txt"), text)
	return dir, text
}

func TestConfigureEvaluatesAsSubProject(t *testing.T) {
	oldDir, oldText := project(t, "ON", "${STANDALONE}", "3")
	newDir, newText := project(t, "${STANDALONE}", "OFF", "${STANDALONE}")
	old, new := Side{Ref: "b1", Tree: "1111"}, Side{Ref: "b2", Tree: "2222"}
	asked := 0
	checkout := func(s Side) (string, func(), error) {
		asked++
		return map[string]string{"b1": oldDir, "b2": newDir}[s.Ref], func() {}, nil
	}
	cache := t.TempDir()
	pair, err := Configure(t.Context(), cache, old, new, checkout, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{"TOY_TESTS": {"ON", "OFF"}, "TOY_FAST": {"OFF", "OFF"}, "TOY_LEVEL": {"3", "OFF"}} {
		if pair.Old[name] != want[0] || pair.New[name] != want[1] {
			t.Errorf("%s: %s and %s, want %v", name, pair.Old[name], pair.New[name], want)
		}
	}
	// The second time nothing is laid out and nothing configured.
	again, err := Configure(t.Context(), cache, old, new, checkout, t.Logf)
	if err != nil || again.New["TOY_TESTS"] != "OFF" || asked != 2 {
		t.Errorf("%v, %v, %d trees laid out", again, err, asked)
	}
	// Another tree of the same ref is asked anew.
	if _, err := Configure(t.Context(), cache, old, Side{Ref: "b2", Tree: "3333"}, checkout, t.Logf); err != nil || asked != 3 {
		t.Errorf("%v, %d trees laid out", err, asked)
	}

	f := build(t, map[string]string{
		"rules":              "        - {id: options, category: build, find: cmake, in: [CMakeLists.txt]}\n",
		"old/CMakeLists.txt": oldText, "new/CMakeLists.txt": newText,
	})
	in := f.input()
	in.Configured = pair
	res, err := Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	// TOY_FAST is written in another way and comes to the same.
	want := "warning build options.default-flipped: default of option TOY_TESTS: ON → OFF\n" +
		"warning build options.default-changed: default of option TOY_LEVEL: 3 → OFF\n" +
		"note build options.default-changed: default of option TOY_FAST: ${STANDALONE} → OFF\n"
	if got := lines(res.Findings); got != want || !res.Evaluated {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A project that can't be configured here is told; nothing of it is kept.
func TestConfigureFails(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "CMakeLists.txt"), "message(FATAL_ERROR \"toy needs a GPU\")\n")
	side := Side{Ref: "b1", Tree: "1111"}
	cache := t.TempDir()
	_, err := Configure(t.Context(), cache, side, side, func(Side) (string, func(), error) { return dir, func() {}, nil }, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "toy needs a GPU") {
		t.Errorf("%v", err)
	}
	if kept, _ := filepath.Glob(filepath.Join(cache, "*")); len(kept) > 0 {
		t.Errorf("kept %v", kept)
	}
	gone := errors.New("no such tree")
	if _, err := Configure(t.Context(), cache, side, side, func(Side) (string, func(), error) { return "", nil, gone }, t.Logf); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}
