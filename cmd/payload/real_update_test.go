//go:build real

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"payload/internal/testkit"
	"payload/internal/update"
)

// realBranch is a repository pinned at an older ref of a real component, with
// the series in testdata/real, which was written for that ref.
func realBranch(t *testing.T, component, pinFile, ref, patches string) string {
	t.Helper()
	t.Setenv("PAYLOAD_SOURCE_KINDS", "store,mirror")
	dir := t.TempDir()
	yaml, err := os.ReadFile(filepath.Join(root(t), "payload.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, filepath.Join(dir, "payload.yaml"), string(yaml))
	for _, name := range []string{"LLAMA_CPP_VERSION", "MLX_VERSION", "MLX_C_VERSION"} {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Write(t, filepath.Join(dir, name), string(text))
	}
	testkit.Write(t, filepath.Join(dir, pinFile), ref+"\n")
	testkit.Write(t, filepath.Join(dir, ".gitignore"), "build/\n")
	if err := os.CopyFS(filepath.Join(dir, patches), os.DirFS(filepath.Join("testdata", "real", component))); err != nil {
		t.Fatal(err)
	}
	must(t, "-C", dir, "lock", component)
	repo := testkit.RepoAt(t, dir)
	repo.Run("add", "-A")
	repo.Run("commit", "-q", "-m", "pinned at "+ref)
	return dir
}

// updateIn runs an update and reads its result.
func updateIn(t *testing.T, dir string, want int, args ...string) update.Result {
	t.Helper()
	code, out, _ := payload(t, append([]string{"-C", dir, "update", "--json"}, args...)...)
	if code != want {
		t.Fatalf("exit %d, want %d:\n%s", code, want, out)
	}
	var r update.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func wantPatches(t *testing.T, r update.Result, want ...string) {
	t.Helper()
	var got []string
	for _, p := range r.Updates[0].Patches {
		got = append(got, string(p.Verdict)+", "+string(p.Action))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the patches are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRealUpdate moves real llama.cpp over 858 builds with a series of six
// patches, of which one conflicts.
func TestRealUpdate(t *testing.T) {
	dir := realBranch(t, "llama.cpp", "LLAMA_CPP_VERSION", "b10454", "llama/compat")
	r := updateIn(t, dir, exitConflict, "llama.cpp", "--ref", "b11312", "--no-build")
	wantPatches(t, r, "clean, kept", "offset, refreshed", "upstreamed, dropped", "moved, rewritten", "clean, kept", "conflict, waiting")
	if r.Conflict == nil || len(r.Conflict.Sides) != 1 || r.Conflict.Sides[0].Path != "ggml/src/ggml-backend-reg.cpp" || !strings.Contains(strings.Join(r.Conflict.Sides[0].Upstream, "\n"), "cwd_ec") {
		t.Fatalf("conflict: %+v", r.Conflict)
	}
	work := filepath.Join(dir, filepath.FromSlash(r.Conflict.Folder))
	file := filepath.Join(work, "ggml", "src", "ggml-backend-reg.cpp")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The patch's side: neither the old line nor upstream's new ones.
	sides := regexp.MustCompile(`(?s)<{7} .*?\n={7}\n(.*?)>{7} [^\n]*\n`)
	testkit.Write(t, file, sides.ReplaceAllString(string(text), "$1"))
	if _, err := testkit.RunGit(t.Context(), work, "add", "-A"); err != nil {
		t.Fatal(err)
	}
	r = updateIn(t, dir, exitDone, "--continue")
	wantPatches(t, r, "clean, kept", "offset, refreshed", "upstreamed, dropped", "moved, rewritten", "clean, kept", "conflict, resolved")
	out, _ := must(t, "-C", dir, "source", "llama.cpp")
	tree := strings.TrimSpace(out)
	for path, holds := range map[string]bool{
		"ggml/src/ggml-backend-reg.cpp cwd_ec":               false,
		"vendor/hash/sha1/sha1.c Nothing of an empty tensor": true,
		"ggml/src/ggml-cpu/amx/mmq.cpp __asm__ __volatile__": true,
		"ggml/src/ggml.cpp GGML_BACKTRACE":                   true,
	} {
		name, want, _ := strings.Cut(path, " ")
		data, err := os.ReadFile(filepath.Join(tree, filepath.FromSlash(name)))
		if err != nil || strings.Contains(string(data), want) != holds {
			t.Errorf("%s: %v, want %v (%v)", path, !holds, holds, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "build")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left in build: %v", err)
	}
	if r = updateIn(t, dir, exitDone, "llama.cpp", "--ref", "b11312", "--no-build"); r.Status != update.Unchanged {
		t.Errorf("a second run: %s", r.Status)
	}
}

// TestRealUpdateOfABinding moves real mlx-c, and asks which MLX it wants.
func TestRealUpdateOfABinding(t *testing.T) {
	dir := realBranch(t, "mlx-c", "MLX_C_VERSION", "v0.6.0", "mlx/compat/mlx-c")
	r := updateIn(t, dir, exitDone, "mlx-c", "--ref", "v0.7.0", "--no-build")
	wantPatches(t, r, "upstreamed, dropped", "clean, kept", "offset, refreshed")
	if len(r.Coupled) != 1 || !r.Coupled[0].Agrees || r.Coupled[0].Wants != "v0.32.2" {
		t.Errorf("coupled: %+v", r.Coupled)
	}
	r = updateIn(t, dir, exitDone, "mlx-c", "--ref", "v0.6.0", "--no-build")
	wantPatches(t, r, "clean, kept", "offset, refreshed")
}
