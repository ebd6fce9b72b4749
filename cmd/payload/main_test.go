package main

import (
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gofrs/flock"
	"github.com/rogpeppe/go-internal/testscript"

	"payload/internal/testkit"
)

var rewrite = flag.Bool("update", false, "write the goldens of the scripts anew")

func TestMain(m *testing.M) {
	commands := map[string]func(){"payload": main}
	maps.Copy(commands, tracerCommands)
	testscript.Main(tableWriter{m}, commands)
}

// TestScripts runs testdata/script: each file is one behaviour of one verb,
// over a copy of testdata/toy, whose upstream becomes a git repository with
// tags b100 to b102.
func TestScripts(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../cmake")
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *rewrite,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PAYLOAD_CACHE", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("PAYLOAD_CMAKE", module)
			env.Setenv("CCACHE_DIR", filepath.Join(env.WorkDir, "ccache"))
			env.Setenv("GOCACHE", strings.TrimSpace(string(compiled)))
			if err := os.CopyFS(env.WorkDir, os.DirFS("testdata/toy")); err != nil {
				return err
			}
			// git keeps no empty folder, so a checkout has none.
			if err := os.MkdirAll(filepath.Join(env.WorkDir, "repo", "patches"), 0o755); err != nil {
				return err
			}
			return tagUpstream(filepath.Join(env.WorkDir, "upstream"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"replace": replace,
			"exits":   exits,
			"hold":    hold,
		},
	})
}

// tagUpstream gives the toy upstream its history: b100 as it stands, b101 with
// lines added above the greeting, b102 with a greeting that conflicts.
func tagUpstream(dir string) error {
	file := filepath.Join(dir, "toy.c")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	first := string(text)
	edit := func(old, new string) func() error {
		return func() error {
			text = []byte(strings.Replace(string(text), old, new, 1))
			return os.WriteFile(file, text, 0o644)
		}
	}
	// Written here: as files of this repository they would apply to it.
	traps := map[string]string{".gitattributes": "toy.c text eol=crlf\n", ".gitignore": "*.log\n"}
	for name, content := range traps {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	ctx := context.Background()
	if _, err := testkit.RunGit(ctx, dir, "init", "-q", "-b", "main"); err != nil {
		return err
	}
	for _, step := range []struct {
		tag  string
		edit func() error
	}{
		{"b100", edit("", "")},
		{"b101", edit("#include", "// One more line above everything.\n#include")},
		{"b102", edit("return \"hello\";", "return \"good day\";")},
	} {
		if err := step.edit(); err != nil {
			return err
		}
		for _, args := range [][]string{{"add", "-A", "-f"}, {"commit", "-q", "-m", step.tag}, {"tag", "-a", "-m", step.tag, step.tag}} {
			if _, err := testkit.RunGit(ctx, dir, args...); err != nil {
				return err
			}
		}
	}
	// The files lie as in b100, for scripts that use the folder itself.
	return os.WriteFile(file, []byte(first), 0o644)
}

// replace edits a file: replace OLD NEW FILE; OLD must be there.
func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace OLD NEW FILE")
	}
	path := ts.MkAbs(args[2])
	text, err := os.ReadFile(path)
	ts.Check(err)
	if !strings.Contains(string(text), args[0]) {
		ts.Fatalf("%s does not hold %q", args[2], args[0])
	}
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Chmod(path, 0o644))
	ts.Check(os.WriteFile(path, []byte(strings.Replace(string(text), args[0], args[1], 1)), 0o644))
	ts.Check(os.Chmod(path, info.Mode()))
}

// exits runs a command and compares its exit code: exits 3 payload lock.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// hold holds the stored tree whose path FILE has, as a build does, until the
// script ends: hold FILE.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold FILE")
	}
	lock := flock.New(strings.TrimSpace(ts.ReadFile(args[0])) + ".lock")
	if ok, err := lock.TryRLock(); err != nil || !ok {
		ts.Fatalf("holding the tree: %v, %v", ok, err)
	}
	ts.Defer(func() { _ = lock.Close() })
}
