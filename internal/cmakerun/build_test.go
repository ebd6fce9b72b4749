package cmakerun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/internal/run"
	"payload/internal/testkit"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	treeA   = "1111111111111111111111111111111111111111"
	treeB   = "2222222222222222222222222222222222222222"
)

// The fixture is a repository with one project, which links a library out of
// a component's tree and installs it in two components.
var projectFixture = map[string]string{
	"repo/payload.lock": "version: 1\n",
	"repo/proj/app/CMakePresets.json": `{"version": 3, "configurePresets": [
  {"name": "base", "hidden": true, "generator": "Ninja", "binaryDir": "${sourceDir}/../../build/${presetName}",
   "cacheVariables": {"CMAKE_BUILD_TYPE": "Release", "APP_FAST": "ON"},
   "vendor": {"payload": {"targets": ["app", "lib"], "components": ["base", "extra"]}}},
  {"name": "plain", "inherits": "base"},
  {"name": "removed", "inherits": "base", "cacheVariables": {"APP_FASTER": "ON", "OLD_SLOW": "1", "APP_READ": "1", "CMAKE_CUDA_FLAGS": "-O", "APP_ELSEWHERE": "1"},
   "vendor": {"payload": {"read": ["APP_ELSEWHERE"]}}},
  {"name": "overruled", "inherits": "base", "cacheVariables": {"APP_FORCED": "ON"}},
  {"name": "no-target", "inherits": "base", "vendor": {"payload": {"targets": ["app", "bap"]}}},
  {"name": "fatal", "inherits": "base", "cacheVariables": {"APP_FATAL": "ON"}},
  {"name": "no-compiler", "inherits": "base", "cacheVariables": {"CMAKE_C_COMPILER": "no-such-cc"}},
  {"name": "sleepy-configure", "inherits": "base", "cacheVariables": {"APP_SLEEP": "ON"}},
  {"name": "with-env", "inherits": "base", "environment": {"CFLAGS": "-DFROM_ENV=1"}}
]}`,
	"repo/proj/app/CMakeLists.txt": `cmake_minimum_required(VERSION 3.21)
project(app C)
option(APP_FAST "be fast" OFF)
option(APP_SLOW "be slow" OFF)
option(APP_FATAL "stop" OFF)
option(APP_SLEEP "sleep" OFF)
set(APP_FORCED OFF CACHE BOOL "never on" FORCE)
if(APP_READ)
endif()
include(more.cmake)
if(APP_FATAL)
  message(WARNING "about to stop")
  message(FATAL_ERROR "the thing needed for
  this is not there")
endif()
if(APP_SLEEP)
  file(WRITE "${CMAKE_BINARY_DIR}/sleeping" "")
  execute_process(COMMAND sleep 60)
endif()
message(DEPRECATION "old")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${LIB_X_DEPENDS})
add_library(lib SHARED "${LIB_X_SOURCE_DIR}/lib.c")
add_executable(app app.c)
target_link_libraries(app PRIVATE lib)
target_compile_definitions(app PRIVATE REF="${LIB_X_REF}" BUILD=${LIB_X_BUILD_NUMBER})
# As a step that builds a project of its own says.
add_custom_command(TARGET app POST_BUILD COMMAND ${CMAKE_COMMAND} -E echo "[1/2] another project")
add_executable(broken EXCLUDE_FROM_ALL broken.c)
add_executable(unlinked EXCLUDE_FROM_ALL unlinked.c)
foreach(kind killed full silent)
  add_custom_target(${kind} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/${kind}.sh)
endforeach()
add_custom_command(OUTPUT slept COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/sleep.sh ${CMAKE_BINARY_DIR})
add_custom_target(sleepy DEPENDS slept)
install(TARGETS app DESTINATION lib/payload COMPONENT base)
install(TARGETS lib DESTINATION lib/payload/extra COMPONENT extra)
`,
	"repo/proj/app/more.cmake": "set(APP_TEXT \"a text\" CACHE STRING \"some text\")\n",
	"repo/proj/app/app.c":      "#include <stdio.h>\nint lib(void);\nint main(void) { printf(\"%s %d %d\\n\", REF, BUILD, lib()); return 0; }\n",
	"repo/proj/app/broken.c":   "int fine;\nint f(void) { return nothing; }\nint g(void) { return nothing_again; }\n",
	"repo/proj/app/unlinked.c": "int nowhere(void);\nint main(void) { return nowhere(); }\n",
	"repo/proj/app/killed.sh":  "echo 'cc: fatal error: Killed signal terminated program cc1plus' >&2; exit 1\n",
	"repo/proj/app/full.sh":    "echo 'big.c:1:1: fatal error: error writing to /tmp/x.s: No space left on device' >&2; exit 1\n",
	"repo/proj/app/silent.sh":  "exit 3\n",
	"repo/proj/app/sleep.sh":   "echo $$ > $1/pid.new; mv $1/pid.new $1/pid; sleep 60; echo woke\n",
	"store/a/lib.c":            "int lib(void) { return 41; }\n",
	"store/b/lib.c":            "int lib(void) { return 42; }\n",
}

func fixture(tb testing.TB, preset string) Build {
	tb.Helper()
	return fixtureIn(tb, tree(tb, projectFixture), preset)
}

func fixtureIn(tb testing.TB, dir, preset string) Build {
	tb.Helper()
	root := filepath.Join(dir, "repo")
	presets, err := ReadPresets(filepath.Join(root, "proj", "app"))
	if err != nil {
		tb.Fatal(err)
	}
	p, err := presets.Get(preset)
	if err != nil {
		tb.Fatal(err)
	}
	b := NewBuild(root, "proj/app", p)
	b.Jobs = 2
	b.Sources = []Source{{
		Component: "lib.x", Var: "LIB_X", Tree: filepath.Join(dir, "store", "a"), Ref: "v1", Commit: commitA, Build: 7,
		Patched: treeA, Depends: []string{filepath.Join(root, "payload.lock")},
	}}
	return b
}

func configure(tb testing.TB, b Build) *Configured {
	tb.Helper()
	c, err := Configure(context.Background(), b, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func compile(tb testing.TB, b Build) *Compiled {
	tb.Helper()
	c, err := Compile(context.Background(), b, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestFromPresetToInstalledFiles(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	var output []string
	c, err := Configure(context.Background(), b, func(line string) { output = append(output, line) })
	if err != nil {
		t.Fatal(err)
	}
	if c.Verdict != (Verdict{Recreate, "first build"}) || c.Warnings != 1 {
		t.Errorf("%+v, %d warnings; want a first build with the one deprecation", c.Verdict, c.Warnings)
	}
	if !slices.Contains(output, "-- Configuring done") {
		t.Errorf("output %q", output)
	}
	names, err := c.Reply.TargetNames()
	if err != nil || !slices.Equal(names, []string{"app", "broken", "full", "killed", "lib", "silent", "sleepy", "unlinked"}) {
		t.Errorf("targets %q, %v", names, err)
	}
	cache, err := c.Reply.Cache()
	if want := (CacheEntry{"APP_FAST", "BOOL", "ON", "be fast"}); err != nil || cache["APP_FAST"] != want {
		t.Errorf("cache entry %+v, %v; want %+v", cache["APP_FAST"], err, want)
	}
	compilers, err := c.Reply.Compilers()
	if err != nil || len(compilers) != 1 || compilers[0].Language != "C" || compilers[0].Version == "" || !filepath.IsAbs(compilers[0].Path) {
		t.Errorf("compilers %+v, %v", compilers, err)
	}

	var seen []Progress
	if _, err := Compile(context.Background(), b, func(p Progress) { seen = append(seen, p) }); err != nil {
		t.Fatal(err)
	}
	for i, p := range seen {
		if p.Done != i+1 || p.Total != 4 || p.Line == "" {
			t.Errorf("progress %d is %+v; want 4 steps, counted", i, p)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d steps, want 4", len(seen))
	}
	app, err := c.Reply.Target("app")
	if err != nil || app.Type != "EXECUTABLE" || len(app.Artefacts) == 0 {
		t.Fatalf("target app %+v, %v", app, err)
	}
	if out := mustRun(t, app.Artefacts[0]); out != "v1 7 41\n" {
		t.Errorf("the program prints %q", out)
	}

	c = configure(t, b)
	if c.Verdict.Action != Keep {
		t.Errorf("the second time: %+v", c.Verdict)
	}
	if steps := compile(t, b).Steps; steps != 0 {
		t.Errorf("a compile of nothing new took %d steps", steps)
	}

	prefix := t.TempDir()
	if err := Install(context.Background(), b, "extra", prefix); err != nil {
		t.Fatal(err)
	}
	var installed []string
	err = filepath.WalkDir(prefix, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			installed = append(installed, strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(prefix)))
		}
		return err
	})
	if err != nil || len(installed) != 1 || !strings.HasPrefix(installed[0], "/lib/payload/extra/liblib.") {
		t.Errorf("installed %q, %v", installed, err)
	}
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	res, err := run.Do(context.Background(), run.Cmd{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout)
}

// Every difference that makes old objects or an old cache wrong is noticed, and
// told by its name.
func TestStampNoticesEachDifference(t *testing.T) {
	b := fixture(t, "plain")
	fakeCompiler := filepath.Join(t.TempDir(), "cc")
	if err := os.Symlink(must(run.LookPath("cc")), fakeCompiler); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", fakeCompiler)
	configure(t, b)
	if v := Check(b); v != (Verdict{}) {
		t.Fatalf("directly after the configure: %+v", v)
	}

	type change struct {
		name   string
		do     func(t *testing.T, b *Build)
		action Action
		reason string
	}
	edit := func(path string, change func(string) string) func(*testing.T, *Build) {
		return func(t *testing.T, b *Build) {
			t.Helper()
			text, info := must(os.ReadFile(path)), must(os.Stat(path))
			testkit.Write(t, path, change(string(text)))
			t.Cleanup(func() {
				testkit.Write(t, path, string(text))
				if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	setVar := func(name, value string) func(*testing.T, *Build) {
		return func(_ *testing.T, b *Build) {
			b.Preset.Cache = copyMap(b.Preset.Cache)
			b.Preset.Cache[name] = CacheVariable{Value: value}
		}
	}
	src := func(f func(*Source)) func(*testing.T, *Build) {
		return func(_ *testing.T, b *Build) {
			b.Sources = slices.Clone(b.Sources)
			f(&b.Sources[0])
		}
	}
	for _, c := range []change{
		{"preset value", setVar("APP_FAST", "OFF"), Recreate, "preset changed: APP_FAST is OFF, was ON"},
		{"preset value added", setVar("APP_SLOW", "ON"), Recreate, "preset changed: APP_SLOW is ON, was not set"},
		{"generator", func(_ *testing.T, b *Build) { b.Preset.Generator = "Unix Makefiles" }, Recreate, "preset changed: generator is Unix Makefiles, was Ninja"},
		{"preset environment", func(_ *testing.T, b *Build) { b.Preset.Environment = map[string]string{"CFLAGS": "-O1"} }, Recreate, "preset changed: environment CFLAGS is -O1, was not set"},
		{"other preset", func(_ *testing.T, b *Build) { b.Preset.Name = "another" }, Recreate, "preset changed: another, was plain"},
		{"ref", src(func(s *Source) { s.Ref = "v2" }), Recreate, "sources changed: lib.x is v2, was v1"},
		{"moved tag", src(func(s *Source) { s.Commit = strings.Repeat("b", 40) }), Recreate, "sources changed: lib.x v1 is commit bbbbbbbbbbbb, was aaaaaaaaaaaa"},
		{"patches", src(func(s *Source) { s.Patched = treeB }), Recreate, "sources changed: lib.x v1 has other patches: tree 222222222222, was 111111111111"},
		{"build number", src(func(s *Source) { s.Build = 8 }), Recreate, "sources changed: lib.x is build number 8, was 7"},
		{"component gone", func(_ *testing.T, b *Build) { b.Sources = nil }, Recreate, "sources changed: 0 components, were 1"},
		{"link moved by bare cmake", func(t *testing.T, b *Build) {
			t.Helper()
			at := b.SourceLink(b.Sources[0])
			relinkTest(t, at, filepath.Join(filepath.Dir(b.Root), "store", "b"))
			t.Cleanup(func() { relinkTest(t, at, filepath.Join(filepath.Dir(b.Root), "store", "a")) })
		}, Recreate, "sources changed: something else pointed"},
		{"flags", func(t *testing.T, _ *Build) { t.Helper(); t.Setenv("CFLAGS", "-O0") }, Recreate, "environment changed: CFLAGS is -O0, was not set"},
		{"compiler replaced", func(t *testing.T, _ *Build) {
			t.Helper()
			relinkTest(t, fakeCompiler, must(run.LookPath("true")))
			t.Cleanup(func() { relinkTest(t, fakeCompiler, must(run.LookPath("cc"))) })
		}, Recreate, "compiler changed: " + fakeCompiler + " is not the "},
		{"compiler gone", func(t *testing.T, _ *Build) {
			t.Helper()
			if err := os.Remove(fakeCompiler); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { relinkTest(t, fakeCompiler, must(run.LookPath("cc"))) })
		}, Recreate, " is gone"},
		{"another compiler first on PATH", func(t *testing.T, _ *Build) { t.Helper(); testkit.Fake(t, "cc", "exit 1\n") }, Recreate, "compiler changed: cc is /"},
		{"cmake replaced", func(t *testing.T, _ *Build) { t.Helper(); testkit.Fake(t, "cmake", "exit 1\n") }, Recreate, "cmake changed: /"},
		{"cache edited", edit(filepath.Join(b.BinaryDir, "CMakeCache.txt"), func(s string) string {
			return strings.Replace(s, "APP_SLOW:BOOL=OFF", "APP_SLOW:BOOL=ON", 1)
		}), Recreate, "cache changed by another run of cmake: APP_SLOW is ON, was OFF"},
		{"stamp cut short", edit(filepath.Join(b.BinaryDir, stampName), func(s string) string { return s[:len(s)/2] }), Recreate, "the build stamp cannot be read"},
		{"launcher", func(_ *testing.T, b *Build) { b.Launcher = Launcher{Name: "ccache", Path: "/x/ccache"} }, Reconfigure, "compiler launcher changed: /x/ccache, was none"},
		{"project", edit(filepath.Join(b.Root, "proj", "app", "more.cmake"), func(s string) string { return s + "# more\n" }), Reconfigure, "project changed: proj/app/more.cmake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := b
			c.do(t, &changed)
			v := Check(changed)
			if v.Action != c.action || !strings.Contains(v.Reason, c.reason) {
				t.Errorf("%d %q, want %d %q", v.Action, v.Reason, c.action, c.reason)
			}
		})
		if v := Check(b); v != (Verdict{}) {
			t.Fatalf("after %s was undone: %+v", c.name, v)
		}
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(b.Sources[0].Depends[0], later, later); err != nil {
		t.Fatal(err)
	}
	if v := Check(b); v.Action != Refresh || !strings.HasSuffix(v.Reason, "payload.lock") {
		t.Errorf("after the lock was written: %+v", v)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func relinkTest(t *testing.T, at, target string) {
	t.Helper()
	_ = os.Remove(at) // it may be gone
	if err := os.Symlink(target, at); err != nil {
		t.Fatal(err)
	}
}

// New sources are older than the objects: only a new folder builds them.
func TestAnotherTreeIsBuiltFromNothing(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	configure(t, b)
	compile(t, b)
	old := time.Now().Add(-24 * time.Hour)
	other := filepath.Join(filepath.Dir(b.Root), "store", "b")
	if err := os.Chtimes(filepath.Join(other, "lib.c"), old, old); err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, filepath.Join(b.BinaryDir, "left-over"), "")
	b.Sources[0].Tree, b.Sources[0].Patched, b.Sources[0].Ref = other, treeB, "v2"
	c := configure(t, b)
	if c.Verdict.Action != Recreate {
		t.Fatalf("verdict %+v", c.Verdict)
	}
	compile(t, b)
	app := must(c.Reply.Target("app"))
	if out := mustRun(t, app.Artefacts[0]); out != "v2 7 42\n" {
		t.Errorf("the program prints %q", out)
	}
	for _, name := range []string{"left-over", "../" + filepath.Base(oldDir(b.BinaryDir))} {
		if _, err := os.Lstat(filepath.Join(b.BinaryDir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if _, err := os.Stat(filepath.Join(other, "lib.c")); err != nil {
		t.Errorf("clearing went through the link: %v", err)
	}
}

func TestMovedStoreKeepsTheBuild(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	configure(t, b)
	compile(t, b)
	moved := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(b.Sources[0].Tree, moved); err != nil {
		t.Fatal(err)
	}
	b.Sources[0].Tree = moved
	if c := configure(t, b); c.Verdict.Action != Keep {
		t.Errorf("verdict %+v", c.Verdict)
	}
	if target := must(os.Readlink(b.SourceLink(b.Sources[0]))); target != moved {
		t.Errorf("the link points at %s", target)
	}
	if steps := compile(t, b).Steps; steps != 0 {
		t.Errorf("%d steps", steps)
	}
}

func TestProjectChangeKeepsObjectsAndDropsTheCache(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	configure(t, b)
	testkit.Write(t, filepath.Join(b.BinaryDir, "left-over"), "")
	testkit.Write(t, filepath.Join(b.Root, "proj", "app", "more.cmake"), "set(APP_TEXT \"another\" CACHE STRING \"some text\")\n")
	c := configure(t, b)
	if want := (Verdict{Reconfigure, "project changed: proj/app/more.cmake"}); c.Verdict != want {
		t.Errorf("verdict %+v", c.Verdict)
	}
	if got := must(c.Reply.Cache())["APP_TEXT"].Value; got != "another" {
		t.Errorf("the default that changed is still %q", got)
	}
	if _, err := os.Stat(filepath.Join(b.BinaryDir, "left-over")); err != nil {
		t.Error(err)
	}
	testkit.Write(t, b.Sources[0].Depends[0], "version: 1 # again\n")
	later := time.Now().Add(time.Second)
	if err := os.Chtimes(b.Sources[0].Depends[0], later, later); err != nil {
		t.Fatal(err)
	}
	if c := configure(t, b); c.Verdict.Action != Refresh {
		t.Errorf("verdict %+v", c.Verdict)
	}
	if c := configure(t, b); c.Verdict.Action != Refresh { // the clock has not reached the file's time
		t.Errorf("verdict %+v", c.Verdict)
	}
	if err := os.Chtimes(b.Sources[0].Depends[0], time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if c := configure(t, b); c.Verdict.Action != Refresh {
		t.Errorf("verdict %+v", c.Verdict)
	}
	if c := configure(t, b); c.Verdict.Action != Keep {
		t.Errorf("verdict %+v", c.Verdict)
	}
}

func TestInterruptedConfigureLeavesNoStamp(t *testing.T) {
	t.Parallel()
	dir := tree(t, projectFixture)
	b := fixtureIn(t, dir, "sleepy-configure")
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by a test")
	go func() {
		waitFor(t, filepath.Join(b.BinaryDir, "sleeping"))
		cancel(stop)
	}()
	if _, err := Configure(ctx, b, nil); !errors.Is(err, stop) {
		t.Fatalf("error %v", err)
	}
	if v := Check(b); v.Action != Recreate || !strings.HasPrefix(v.Reason, "the last configure did not finish") {
		t.Errorf("verdict %+v", v)
	}
	// A deletion that was killed half-way left the folder under its other name.
	if err := os.Rename(b.BinaryDir, oldDir(b.BinaryDir)); err != nil {
		t.Fatal(err)
	}
	again := fixtureIn(t, dir, "plain")
	again.BinaryDir = b.BinaryDir
	if c := configure(t, again); c.Verdict.Reason != "first build" {
		t.Errorf("verdict %+v", c.Verdict)
	}
	if _, err := os.Stat(oldDir(b.BinaryDir)); err == nil {
		t.Error("the half-deleted folder is still there")
	}
}

func waitFor(t *testing.T, file string) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s never came", file)
}

// CMake configures well even where it can't write one of its answers.
func TestIncompleteAnswerIsConfiguredAnew(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	configure(t, b)
	for _, pattern := range []string{"target-app-*.json", "cache-v2-*.json", "codemodel-v2-*.json"} {
		for _, harm := range []func(string) error{os.Remove, func(path string) error { return os.Truncate(path, 9) }} {
			files, err := filepath.Glob(filepath.Join(b.BinaryDir, filepath.FromSlash(apiDir), "reply", pattern))
			if err != nil || len(files) != 1 {
				t.Fatalf("%s: %v, %v", pattern, files, err)
			}
			if err := harm(files[0]); err != nil {
				t.Fatal(err)
			}
			if c := configure(t, b); c.Verdict.Action != Recreate || !strings.Contains(c.Verdict.Reason, "not whole") {
				t.Errorf("%s: %+v", pattern, c.Verdict)
			}
			if c := configure(t, b); c.Verdict.Action != Keep {
				t.Errorf("%s, then: %+v", pattern, c.Verdict)
			}
		}
	}
}

func TestForeignFoldersAreNotDeleted(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	keep := filepath.Join(b.BinaryDir, "thesis.txt")
	testkit.Write(t, keep, "years of work")
	_, err := Configure(context.Background(), b, nil)
	if _, ok := errors.AsType[*FolderError](err); !ok {
		t.Errorf("a folder of other things: %v", err)
	}
	testkit.Write(t, filepath.Join(b.BinaryDir, "CMakeCache.txt"), "CMAKE_HOME_DIRECTORY:INTERNAL="+t.TempDir()+"\n")
	_, err = Configure(context.Background(), b, nil)
	if e, ok := errors.AsType[*FolderError](err); !ok || !strings.Contains(e.Why, "another project") {
		t.Errorf("another project's build folder: %v", err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{b.Root, filepath.Dir(b.Root), b.SourceDir()} {
		b.BinaryDir = dir
		if _, ok := errors.AsType[*FolderError](mayClear(b)); !ok {
			t.Errorf("%s may be cleared", dir)
		}
	}
}

// A copy of a checkout brings a build folder that compiles the original's files.
func TestCopiedCheckoutIsBuiltFromItsOwnFiles(t *testing.T) {
	t.Parallel()
	dir := tree(t, projectFixture)
	b := fixtureIn(t, dir, "plain")
	configure(t, b)
	compile(t, b)

	other := filepath.Join(t.TempDir(), "copy")
	mustRun(t, "cp", "-a", dir, other)
	c := fixtureIn(t, other, "plain")
	c.Sources[0].Tree = b.Sources[0].Tree // both use one store
	testkit.Write(t, filepath.Join(c.SourceDir(), "app.c"), "#include <stdio.h>\nint main(void) { puts(\"the copy\"); return 0; }\n")
	if got := configure(t, c).Verdict; got != (Verdict{Recreate, "the build folder was made for " + b.SourceDir()}) {
		t.Errorf("%+v", got)
	}
	compile(t, c)
	if out := mustRun(t, filepath.Join(c.BinaryDir, "app")); out != "the copy\n" {
		t.Errorf("it prints %q", out)
	}
	if got := Check(b); got.Action != Keep {
		t.Errorf("the original: %+v", got)
	}

	// Moved, after a configure that was not ours: nothing marks the folder.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	m := fixtureIn(t, moved, "plain")
	for _, name := range []string{".cmake", stampName} {
		if err := os.RemoveAll(filepath.Join(m.BinaryDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := configure(t, m).Verdict.Action; got != Recreate {
		t.Errorf("moved: %v", got)
	}

	// By another path to the same folder nothing changes.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(moved, link); err != nil {
		t.Fatal(err)
	}
	if got := placeDiffers(nil, fixtureIn(t, link, "plain")); got != "" {
		t.Errorf("through a link: %s", got)
	}
}

func TestWrongPresetsFailBeforeCompiling(t *testing.T) {
	dir := tree(t, projectFixture)
	fails := func(preset string) error {
		t.Helper()
		_, err := Configure(context.Background(), fixtureIn(t, dir, preset), nil)
		if err == nil {
			t.Fatalf("preset %s is taken", preset)
		}
		return err
	}
	if e, ok := errors.AsType[*UndeclaredOptionError](fails("removed")); !ok || e.Option != "APP_FASTER" || e.Nearest != "APP_FAST" ||
		!slices.Equal(e.More, []UndeclaredOption{{"OLD_SLOW", "APP_SLOW"}}) {
		t.Errorf("options that are gone: %+v", e)
	}
	if Check(fixtureIn(t, dir, "removed")).Action == Keep {
		t.Error("a folder with an undeclared option would be used the second time")
	}
	if e, ok := errors.AsType[*OverruledOptionError](fails("overruled")); !ok || e.Option != "APP_FORCED" || e.Got != "OFF" {
		t.Errorf("an option that the project turns off: %+v", e)
	}
	if e, ok := errors.AsType[*NoTargetError](fails("no-target")); !ok || e.Target != "bap" || e.Preset != "no-target" {
		t.Errorf("a target that does not exist: %+v", e)
	}
	out := "CMake Warning at a/CMakeLists.txt:3 (message):\n  No SDK\n  here.\n\n-- Done\nCMake Warning (dev) at b.cmake:2 (x):\n  not this\n"
	if got := warningsIn(out); !slices.Equal(got, []string{"No SDK here."}) {
		t.Errorf("warnings %q", got)
	}
	err := fails("fatal")
	e, ok := errors.AsType[*ConfigureError](err)
	if !ok || e.File != "CMakeLists.txt" || e.Line != 13 || e.Message != "the thing needed for this is not there" {
		t.Fatalf("an error in the project: %+v", e)
	}
	if want := `configuring preset "fatal": CMakeLists.txt:13: the thing needed for this is not there`; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if log := string(must(os.ReadFile(e.Log))); !strings.Contains(log, "about to stop") {
		t.Errorf("the log has not the whole output: %q", log)
	}
	if e, ok := errors.AsType[*ConfigureError](fails("no-compiler")); !ok || e.Missing != "C compiler" {
		t.Errorf("no compiler: %+v", e)
	}
	b := fixtureIn(t, dir, "plain")
	b.Targets = []string{"ap"}
	if _, err := Configure(context.Background(), b, nil); !errors.As(err, new(*UnknownTargetError)) {
		t.Errorf("a target asked for by hand: %v", err)
	}
	if Check(b).Action != Keep {
		t.Error("a target asked for by hand spoils the configure")
	}
}

func TestCompileFailures(t *testing.T) {
	b := fixture(t, "plain")
	configure(t, b)
	for _, c := range []struct {
		target, file, first string
		kind                error
		message             string
	}{
		{"broken", "broken.c", "broken.c:2:22: error: ", nil, "error: "},
		{"unlinked", "unlinked", "undefined reference to `nowhere'", nil, "undefined reference"},
		{"killed", "CMakeFiles/killed", "Killed signal terminated program cc1plus", run.ErrNoMemory, "out of memory"},
		{"full", "big.c", "No space left on device", run.ErrNoSpace, "no space left on the device"},
		{"silent", "CMakeFiles/silent", "the command failed and printed nothing", nil, "printed nothing"},
	} {
		b.Targets = []string{c.target}
		_, err := Compile(context.Background(), b, nil)
		e, ok := errors.AsType[*CompileError](err)
		if !ok {
			t.Errorf("%s: %v", c.target, err)
			continue
		}
		if !strings.HasSuffix(e.File, c.file) || !strings.Contains(e.FirstError, c.first) || e.Command == "" || e.Preset != "plain" {
			t.Errorf("%s: %+v", c.target, e)
		}
		if c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s is not %v: %v", c.target, c.kind, e.kind)
		}
		if !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %q", c.target, err)
		}
		if log := string(must(os.ReadFile(e.Log))); !strings.Contains(log, "FAILED: ") {
			t.Errorf("%s: log %q", c.target, log)
		}
	}
}

// What other versions and other compilers print.
func TestParseFailure(t *testing.T) {
	for name, c := range map[string]struct{ log, command, file, first string }{
		"ninja 1.12": {
			"[1/9] Building CXX object a.o\n[2/9] Building CXX object b.o\nFAILED: [code=1] b.o \n/usr/bin/c++ -c b.cpp\nb.cpp: In function 'f':\nb.cpp:3:7: error: no\n[3/9] Building c.o\nFAILED: c.o\n/usr/bin/c++ -c c.cpp\nc.cpp:1:1: error: other\nninja: build stopped: subcommand failed.\n",
			"/usr/bin/c++ -c b.cpp", "b.cpp", "b.cpp:3:7: error: no",
		},
		"nvcc":       {"FAILED: x.o\nnvcc -c x.cu\n/s/x.cu(12): error: identifier \"y\" is undefined\n", "nvcc -c x.cu", "/s/x.cu", `/s/x.cu(12): error: identifier "y" is undefined`},
		"msvc":       {"FAILED: x.obj\ncl /c x.c\nC:\\s\\x.c(3,5): error C2065: 'y': undeclared identifier\n", "cl /c x.c", `C:\s\x.c`, `C:\s\x.c(3,5): error C2065: 'y': undeclared identifier`},
		"ld on mac":  {"FAILED: app\nclang -o app\nUndefined symbols for architecture arm64:\n  \"_x\", referenced from: _main\nld: symbol(s) not found for architecture arm64\n", "clang -o app", "app", "ld: symbol(s) not found for architecture arm64"},
		"make":       {"[ 50%] Building C object a.o\n/s/a.c:1:2: error: no\nmake[2]: *** [a.o] Error 1\n", "", "/s/a.c", "/s/a.c:1:2: error: no"},
		"no command": {"ninja: error: loading 'build.ninja': No such file or directory\n", "", "", "ninja: error: loading 'build.ninja': No such file or directory"},
	} {
		e := parseFailure(c.log)
		if e.Command != c.command || e.File != c.file || e.FirstError != c.first {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if p, ok := parseProgress("[ 42%] Linking x"); !ok || p != (Progress{42, 100, "Linking x"}) {
		t.Errorf("progress of make: %+v", p)
	}
}

func TestPresetEnvironmentReachesTheCompiler(t *testing.T) {
	t.Parallel()
	b := fixture(t, "with-env")
	configure(t, b)
	if text := string(must(os.ReadFile(filepath.Join(b.BinaryDir, "build.ninja")))); !strings.Contains(text, "-DFROM_ENV=1") {
		t.Error("the preset's CFLAGS are not in the build")
	}
	if env := CompileCmd(b).Env; !slices.Contains(env, "CFLAGS=-DFROM_ENV=1") {
		t.Errorf("environment of the compile %q", env)
	}
}

func TestLockKeepsASecondBuildOut(t *testing.T) {
	t.Parallel()
	b := Build{BinaryDir: filepath.Join(t.TempDir(), "build", "x")}
	release, err := Lock(context.Background(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by a test")
	if _, err := Lock(ctx, b, func() { cancel(stop) }); !errors.Is(err, stop) {
		t.Errorf("the second one got it, or waited for something else: %v", err)
	}
	release()
	again, err := Lock(context.Background(), b, func() { t.Error("it is still held") })
	if err != nil {
		t.Fatal(err)
	}
	again()
}
