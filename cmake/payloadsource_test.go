// Package cmake_test runs PayloadSource.cmake and PayloadInstall.cmake with the real CMake and Ninja
// on a small project, whose tool is a script that answers what the test put into a file.
package cmake_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fixture is a repository with one component, two.words, and one project, app.
type fixture struct {
	t      *testing.T
	root   string
	env    []string
	asked  string // a line for each time the tool was asked
	answer string // what it answers
}

const project = `cmake_minimum_required(VERSION 3.21)
project(app C)
list(APPEND CMAKE_MODULE_PATH "@MODULES@")
include(PayloadSource)
include(PayloadInstall)
payload_source(two.words)
file(WRITE "${CMAKE_BINARY_DIR}/seen" "${TWO_WORDS_REF} ${TWO_WORDS_COMMIT} ${TWO_WORDS_BUILD_NUMBER} ${TWO_WORDS_SOURCE_DIR}")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
payload_add_subdirectory(two.words EXCLUDE_FROM_ALL OUTPUTS "${CMAKE_BINARY_DIR}/bin")
payload_install(COMPONENT base TARGETS hello)
payload_install(COMPONENT plug FOLDER extra TARGETS plug)
`

const upstream = `cmake_minimum_required(VERSION 3.14...3.28)
project(words C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
option(WORDS_LOUD "say it loud" @LOUD@)
option(WORDS_TWICE "say it twice" @LOUD@)
option(WORDS_THRICE "say it thrice" @LOUD@)
set(WORDS_LAST ${WORDS_LOUD} CACHE INTERNAL "")
if(NOT "@FAIL@" STREQUAL "")
  message(FATAL_ERROR "@FAIL@")
endif()
add_library(inner SHARED inner.c)
set_target_properties(inner PROPERTIES VERSION 1.2.3 SOVERSION 1 PUBLIC_HEADER inner.h)
add_library(outer SHARED outer.c)
target_link_libraries(outer PRIVATE inner)
add_library(outer::outer ALIAS outer)
add_executable(hello main.c)
target_link_libraries(hello PRIVATE outer::outer)
add_executable(unwanted unwanted.c)
add_library(plug MODULE plug.c)
target_link_libraries(plug PRIVATE inner)
install(TARGETS unwanted)
install(FILES inner.h DESTINATION include)
foreach(option LOUD TWICE THRICE)
  target_compile_definitions(hello PRIVATE ${option}=$<BOOL:${WORDS_${option}}>)
endforeach()
`

// An hour at which no build of today has run: what ninja takes for unchanged.
var old = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	for _, tool := range []string{"cmake", "ninja", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("this test needs %s", tool)
		}
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, root: root, asked: filepath.Join(root, "asked"), answer: filepath.Join(root, "answer")}
	// Opened here so that a change to a module is not answered from the test cache.
	for _, module := range []string{"PayloadSource.cmake", "PayloadInstall.cmake"} {
		if _, err := os.ReadFile(module); err != nil {
			t.Fatal(err)
		}
	}
	f.write("payload.yaml", "version: 1\n")
	f.write("WORDS_VERSION", "one\n")
	f.write("compat/0001-a.patch", "")
	f.write("app/CMakeLists.txt", strings.ReplaceAll(project, "@MODULES@", modules))
	f.write("app/CMakePresets.json", `{"version": 3, "configurePresets": [{"name": "p", "generator": "Ninja",
		"binaryDir": "${sourceDir}/../build", "cacheVariables": {"CMAKE_BUILD_TYPE": "Release", "WORDS_TWICE": "ON"}}]}`)
	f.tool("tool")
	f.env = append(os.Environ(), "PAYLOAD_EXE="+filepath.Join(root, "tool"), "CMAKE_C_COMPILER_LAUNCHER=", "LC_ALL=C")
	f.tree("one", "OFF", "")
	f.tree("two", "ON", "")
	f.pin("one")
	return f
}

// tool writes a script that answers as the tool would.
func (f *fixture) tool(path string) {
	f.t.Helper()
	f.write(path, "#!/bin/sh\necho \"$@\" >> "+f.asked+"\necho looking >&2\nexec cat "+f.answer+"\n")
	if err := os.Chmod(filepath.Join(f.root, path), 0o755); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) write(path, text string) string {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// tree writes a tree of upstream's: the same names in each, other words, another default, old times.
func (f *fixture) tree(name, loud, fail string) {
	f.t.Helper()
	files := map[string]string{
		"CMakeLists.txt": strings.NewReplacer("@LOUD@", loud, "@FAIL@", fail).Replace(upstream),
		"inner.h":        "const char *inner(void);\n",
		"inner.c":        "#include \"inner.h\"\nconst char *inner(void) { return \"" + name + "\"; }\n",
		"outer.c":        "#include \"inner.h\"\nconst char *outer(void) { return inner(); }\n",
		"plug.c":         "#include \"inner.h\"\nconst char *plug(void) { return inner(); }\n",
		"unwanted.c":     "#error not to be built\n",
		"main.c": "#include <stdio.h>\nconst char *outer(void);\n" +
			"int main(void) { printf(\"%s/" + name + " %d%d%d %s\\n\", outer(), LOUD, TWICE, THRICE, __FILE__); return 0; }\n",
	}
	for file, text := range files {
		path := f.write(filepath.Join("store", name+"-5e8d", file), text)
		if err := os.Chtimes(path, old, old); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) path(tree string) string { return filepath.Join(f.root, "store", tree+"-5e8d") }

// pin makes the tool answer with a tree, as a person who edits the pin does.
func (f *fixture) pin(tree string) {
	f.t.Helper()
	f.write("WORDS_VERSION", tree+"\n")
	text, err := json.Marshal(map[string]any{
		"schema": "payload.source/v1", "path": f.path(tree), "ref": tree, "commit": "c-" + tree, "build": 7,
		"patched": "id-" + tree, "pristine": "x",
		"depends": []string{filepath.Join(f.root, "WORDS_VERSION"), filepath.Join(f.root, "compat")},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("answer", string(text))
}

func (f *fixture) try(args ...string) (string, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = f.root, f.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (f *fixture) run(args ...string) string {
	f.t.Helper()
	out, err := f.try(args...)
	if err != nil {
		f.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

func (f *fixture) configure(args ...string) string {
	f.t.Helper()
	return f.run(append([]string{"cmake", "-S", "app", "--preset", "p"}, args...)...)
}

func (f *fixture) build() string { f.t.Helper(); return f.run("cmake", "--build", "build") }

// says fails unless the program that was built prints the words.
func (f *fixture) says(want string) {
	f.t.Helper()
	if got := strings.TrimSpace(f.run(filepath.Join(f.root, "build/bin/hello"))); got != want {
		f.t.Fatalf("the program says %q, want %q", got, want)
	}
}

func (f *fixture) read(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.root, path))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

func (f *fixture) times() int {
	f.t.Helper()
	text, err := os.ReadFile(f.asked)
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return strings.Count(string(text), "source two.words --json\n")
}

func TestPlainCMakeFollowsThePin(t *testing.T) {
	f := newFixture(t)
	f.configure()
	f.build()
	f.says("one/one 010 two.words/main.c")
	if got, want := f.read("build/seen"), "one c-one 7 "+filepath.Join(f.root, "build/src/two.words"); got != want {
		t.Errorf("the project sees %q, want %q", got, want)
	}
	if out := f.build(); !strings.Contains(out, "no work to do") {
		t.Errorf("a second build did something:\n%s", out)
	}
	// Only the pin file is touched; ninja runs cmake itself, and everything in the tree is older than
	// what was built from the other one.
	for _, tree := range []struct{ name, says string }{
		{"two", "two/two 111 two.words/main.c"},
		{"one", "one/one 010 two.words/main.c"},
	} {
		f.pin(tree.name)
		f.build()
		f.says(tree.says)
	}
	for _, file := range []string{"build/build.ninja", "build/CMakeCache.txt"} {
		if text := f.read(file); strings.Contains(text, "-5e8d") {
			t.Errorf("%s names a tree of the store", file)
		}
	}
}

func TestValuesThatAPersonGaveStay(t *testing.T) {
	f := newFixture(t)
	f.configure()
	f.configure("-DWORDS_LOUD=OFF") // what the default is now, but now it is asked for
	f.build()
	f.says("one/one 010 two.words/main.c")
	f.pin("two")
	f.build()
	f.says("two/two 011 two.words/main.c")
	f.pin("one")
	f.build()
	f.says("one/one 010 two.words/main.c")
}

func TestPassedValuesAreForOneConfigure(t *testing.T) {
	f := newFixture(t)
	pass := []string{
		"-DTWO_WORDS_SOURCE_DIR:PATH=" + f.path("two"), "-DTWO_WORDS_REF:STRING=two", "-DTWO_WORDS_COMMIT:STRING=abc",
		"-DTWO_WORDS_BUILD_NUMBER:STRING=9", "-DTWO_WORDS_TREE:STRING=id-two", "-DTWO_WORDS_DEPENDS:STRING=" + filepath.Join(f.root, "WORDS_VERSION"),
	}
	f.configure(pass...)
	f.build()
	f.says("two/two 111 two.words/main.c")
	if got := f.read("build/seen"); !strings.HasPrefix(got, "two abc 9 ") {
		t.Errorf("the project sees %q", got)
	}
	if f.times() != 0 {
		t.Error("the tool was asked although all was given")
	}
	if strings.Contains(f.read("build/CMakeCache.txt"), "\nTWO_WORDS_") {
		t.Error("a given value is still in the cache")
	}
	f.pin("one") // touches WORDS_VERSION, which was passed as a file to watch
	f.build()
	f.says("one/one 010 two.words/main.c")
	if f.times() != 1 {
		t.Errorf("the tool was asked %d times, want once", f.times())
	}
}

func TestTheToolsOwnLinkIsKept(t *testing.T) {
	f := newFixture(t)
	link := filepath.Join(f.root, "build/src/two.words")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tree := range []string{"one", "two"} {
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(f.path(tree), link); err != nil {
			t.Fatal(err)
		}
		f.configure("-DTWO_WORDS_SOURCE_DIR=" + link)
		f.build()
		if got, err := os.Readlink(link); err != nil || got != f.path(tree) {
			t.Fatalf("the link leads to %s, %v", got, err)
		}
	}
	f.says("two/two 111 two.words/main.c")
	// The same folder under another spelling is the same link.
	other := filepath.Join(f.root, "other")
	if err := os.Symlink(filepath.Join(f.root, "build"), other); err != nil {
		t.Fatal(err)
	}
	f.configure("-DTWO_WORDS_SOURCE_DIR=" + filepath.Join(other, "src/two.words"))
	if got, err := os.Readlink(link); err != nil || got != f.path("two") {
		t.Fatalf("the link leads to %s, %v", got, err)
	}
}

// The tree is told by its id: the same tree in another place rebuilds nothing.
func TestAMovedStoreRebuildsNothing(t *testing.T) {
	f := newFixture(t)
	f.configure()
	f.build()
	moved := filepath.Join(f.root, "elsewhere")
	if err := os.Rename(f.path("one"), moved); err != nil {
		t.Fatal(err)
	}
	f.write("answer", strings.ReplaceAll(f.read("answer"), f.path("one"), moved))
	f.configure()
	if out := f.build(); !strings.Contains(out, "no work to do") {
		t.Errorf("a moved store rebuilt something:\n%s", out)
	}
}

func TestFreshKeepsNoObjects(t *testing.T) {
	f := newFixture(t)
	if out := f.run("cmake", "--version"); strings.HasPrefix(out, "cmake version 3.21") || strings.HasPrefix(out, "cmake version 3.22") ||
		strings.HasPrefix(out, "cmake version 3.23") {
		t.Log("this CMake has no --fresh")
		return
	}
	f.configure()
	f.build()
	f.pin("two")
	f.configure("--fresh")
	f.build()
	f.says("two/two 111 two.words/main.c")
}

// A configure that fails half-way leaves cache entries and no later configure may take them for given.
func TestAFailedConfigureLeavesNothing(t *testing.T) {
	f := newFixture(t)
	f.tree("bad", "ON", "no such thing")
	f.pin("bad")
	if out, err := f.try("cmake", "-S", "app", "--preset", "p"); err == nil || !strings.Contains(out, "no such thing") {
		t.Fatalf("%v\n%s", err, out)
	}
	f.pin("one")
	f.configure()
	f.build()
	f.says("one/one 010 two.words/main.c")
	f.pin("bad")
	if out, err := f.try("cmake", "--build", "build"); err == nil {
		t.Fatal(out)
	}
	f.pin("one")
	f.configure()
	f.build()
	f.says("one/one 010 two.words/main.c")
}

func TestAPatchConfiguresAgain(t *testing.T) {
	f := newFixture(t)
	f.configure()
	f.build()
	before := f.times()
	for i, change := range []func(){
		func() { f.write("compat/0001-a.patch", "changed\n") },
		func() { f.write("compat/0002-b.patch", "added\n") },
		func() { f.write("payload.yaml", "version: 1 # changed\n") },
		func() {
			if err := os.Remove(filepath.Join(f.root, "compat/0002-b.patch")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		time.Sleep(20 * time.Millisecond)
		change()
		f.build()
		if got := f.times() - before; got != i+1 {
			t.Fatalf("after change %d the tool was asked %d times", i+1, got)
		}
	}
	if out := f.build(); !strings.Contains(out, "no work to do") {
		t.Errorf("afterwards a build did something:\n%s", out)
	}
}

func TestTheToolsErrorIsShown(t *testing.T) {
	f := newFixture(t)
	f.write("tool", "#!/bin/sh\necho 'error: applying 0001-a.patch: hunk 1 rejected' >&2\nexit 4\n")
	for _, c := range []struct{ tool, want string }{
		{"echo 'error: applying 0001-a.patch: hunk 1 rejected' >&2\nexit 4\n", "hunk 1 rejected"},
		{"exit 4\n", "source two.words --json` in " + f.root + " ended\n  with 4"},
		{"echo usage: something else\n", "printed no path"},
		{"echo '{\"path\": \"/no/such/folder\"}'\n", "no such folder"},
	} {
		f.write("tool", "#!/bin/sh\n"+c.tool)
		out, err := f.try("cmake", "-S", "app", "--preset", "p")
		if err == nil || !strings.Contains(squeeze(out), squeeze(c.want)) || !strings.Contains(out, "CMake Error") {
			t.Errorf("%q: %v\n%s", c.tool, err, out)
		}
	}
}

// squeeze makes text comparable that CMake has broken into lines.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestWhereTheToolIsFound(t *testing.T) {
	f := newFixture(t)
	var bare []string
	for _, v := range f.env {
		if !strings.HasPrefix(v, "PAYLOAD_EXE=") {
			bare = append(bare, v)
		}
	}
	f.env = append(bare, "PAYLOAD_EXE=")

	t.Run("variable", func(t *testing.T) {
		f.t = t
		f.tool("named")
		f.configure("-DPAYLOAD_EXE=" + filepath.Join(f.root, "named"))
		f.run("cmake", "build")
		if f.times() != 2 {
			t.Errorf("asked %d times, want twice: PAYLOAD_EXE stays in the cache", f.times())
		}
		f.run("cmake", "-UPAYLOAD_EXE", "-DTWO_WORDS_SOURCE_DIR="+f.path("one"), "build")
	})
	t.Run("PATH", func(t *testing.T) {
		f.t = t
		f.tool("bin/payload")
		f.env = append(f.env, "PATH="+filepath.Join(f.root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
		before := f.times()
		f.configure()
		if f.times() != before+1 {
			t.Error("the tool on PATH was not asked")
		}
	})
	t.Run("go run", func(t *testing.T) {
		f.t = t
		if err := os.Remove(filepath.Join(f.root, "bin/payload")); err != nil {
			t.Fatal(err)
		}
		if path, err := exec.LookPath("payload"); err == nil {
			t.Logf("%s is on PATH and would be asked", path)
			return
		}
		f.write("go.mod", "module fixture\n\ngo 1.21\n")
		f.write("cmd/payload/main.go", "package main\n\nimport (\n\t\"io\"\n\t\"os\"\n)\n\nfunc main() {\n\ta, _ := os.Open(\""+f.answer+"\")\n\t_, _ = io.Copy(os.Stdout, a)\n}\n")
		f.pin("two")
		f.configure()
		f.build()
		f.says("two/two 111 two.words/main.c")
	})
	t.Run("nowhere", func(t *testing.T) {
		f.t = t
		if err := os.RemoveAll(filepath.Join(f.root, "cmd")); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath("payload"); err == nil {
			return
		}
		out, err := f.try("cmake", "-S", "app", "--preset", "p")
		if err == nil || !strings.Contains(squeeze(out), "Set PAYLOAD_EXE") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// Plain names, each library once, nothing of upstream's own rules, and a path that serves both folders.
func TestInstall(t *testing.T) {
	f := newFixture(t)
	f.configure()
	f.build()
	stage := filepath.Join(f.root, "stage")
	for _, component := range []string{"base", "plug"} {
		f.run("cmake", "--install", "build", "--prefix", stage, "--component", component)
	}
	f.run("cmake", "--install", "build", "--prefix", filepath.Join(f.root, "whole"))
	for _, dir := range []string{stage, filepath.Join(f.root, "whole")} {
		var got []string
		err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				rel, _ := filepath.Rel(dir, path)
				got = append(got, rel+" "+info.Mode().Type().String())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		so := ".so"
		if runtime.GOOS == "darwin" {
			so = ".dylib"
		}
		want := "lib/payload/extra/libplug.so ----------,lib/payload/hello ----------,lib/payload/libinner" + so + " ----------,lib/payload/libouter" + so + " ----------"
		if strings.Join(got, ",") != want {
			t.Errorf("%s holds\n%s\nwant\n%s", dir, strings.Join(got, ","), want)
		}
	}
	moved := filepath.Join(f.root, "moved")
	if err := os.Rename(stage, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(f.root, "build")); err != nil {
		t.Fatal(err)
	}
	if got := f.run(filepath.Join(moved, "lib/payload/hello")); got != "one/one 010 two.words/main.c\n" {
		t.Errorf("the installed program says %q", got)
	}
}
