package cmakerun

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"payload/internal/run"
)

// hungry adds a target that the real compiler makes from text, under a command.
func hungry(t *testing.T, text, launch string) Build {
	t.Helper()
	files := maps.Clone(projectFixture)
	files["repo/proj/app/hungry.c"] = text
	files["repo/proj/app/CMakeLists.txt"] += "add_library(hungry OBJECT hungry.c)\nset_property(TARGET hungry PROPERTY RULE_LAUNCH_COMPILE \"" + launch + "\")\n"
	b := fixtureIn(t, tree(t, files), "plain")
	configure(t, b)
	b.Targets = []string{"hungry"}
	return b
}

// The compiler's own words where the system gives it no more memory.
func TestCompilerOutOfMemory(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("int f(int x) {\n")
	for i := range 90000 {
		text.WriteString("x += " + strconv.Itoa(i) + " * x;\n")
	}
	text.WriteString("return x; }\n")
	b := hungry(t, text.String(), "prlimit --as=70000000")
	_, err := Compile(context.Background(), b, nil)
	if !errors.Is(err, run.ErrNoMemory) || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("got %v", err)
	}
}

// What a real compiler says when the system kills the part of it that compiles.
func TestCompilerKilled(t *testing.T) {
	t.Parallel()
	b := hungry(t, "#include \"endless.h\"\n", "")
	pipe := filepath.Join(b.SourceDir(), "endless.h")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	go func() {
		for range 200 {
			if pid := compilerOf(filepath.Join(b.SourceDir(), "hungry.c")); pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error("no compiler came")
		if w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = w.Close() // lets it end
		}
	}()
	_, err := Compile(context.Background(), b, nil)
	failed, ok := errors.AsType[*CompileError](err)
	if !ok || !errors.Is(err, run.ErrNoMemory) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(failed.File, "hungry") || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("the file is %q: %v", failed.File, err)
	}
}

// compilerOf finds the compiler proper that reads a file, below its driver.
func compilerOf(file string) int {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		words, _ := os.ReadFile(name) // ended meanwhile: empty
		program, args, _ := bytes.Cut(words, []byte{0})
		if filepath.Base(string(program)) != "cc1" || !bytes.Contains(args, []byte(file)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			return pid
		}
	}
	return 0
}
