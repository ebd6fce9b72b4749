//go:build real

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/ci"
	"payload/internal/run"
)

// TestRealDrift holds that this repository agrees with itself, and that a warm
// look at it takes less than two seconds.
func TestRealDrift(t *testing.T) {
	must(t, "source", "llama.cpp")                    // so that the store is warm
	tool := filepath.Join(t.TempDir(), "payload.exe") // any name will do
	do := func(args ...string) {
		t.Helper()
		res, err := run.Do(t.Context(), run.Cmd{Dir: root(t), Args: args})
		if err != nil {
			t.Fatalf("%v\n%s%s", err, res.Stdout, res.Stderr)
		}
	}
	do("go", "build", "-o", tool, "./cmd/payload")
	do(tool, "drift")
	started := time.Now()
	do(tool, "drift")
	if took := time.Since(started); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestRealDockerInputs builds, as far as a dry run goes, from nothing but what
// the Dockerfiles copy.
func TestRealDockerInputs(t *testing.T) {
	f, err := (&app{dir: root(t)}).config()
	if err != nil {
		t.Fatal(err)
	}
	files, err := ci.Files(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	dockerfiles, err := filepath.Glob(filepath.Join(root(t), "docker", "*.Dockerfile"))
	if err != nil || len(dockerfiles) == 0 {
		t.Fatalf("%d Dockerfiles, %v", len(dockerfiles), err)
	}
	for _, file := range dockerfiles {
		preset := strings.TrimSuffix(filepath.Base(file), ".Dockerfile")
		t.Run(preset, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, stage, _ := strings.Cut(string(text), " AS build\n")
			stage, _, _ = strings.Cut(stage, "\nFROM")
			dir := t.TempDir()
			for _, copied := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(stage, -1) {
				for _, source := range strings.Fields(copied[1]) {
					copyFiles(t, files, source, dir)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "payload.yaml")); err != nil {
				t.Fatalf("nothing was copied: %v", err)
			}
			var out, voice strings.Builder
			if code := Main([]string{"-C", dir, "build", "--preset", preset, "-n"}, strings.NewReader(""), &out, &voice); code != exitDone && code != exitPrerequisite {
				t.Errorf("exit %d\n%s", code, voice.String())
			}
		})
	}
}

func copyFiles(t *testing.T, files []string, source, dir string) {
	t.Helper()
	for _, name := range files {
		if !doublestar.MatchUnvalidated(source, name) && !doublestar.MatchUnvalidated(source+"/**", name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
