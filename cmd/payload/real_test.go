//go:build real

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"payload/internal/build"
	"payload/internal/manifest"
	"payload/internal/verify"
)

// payload runs the command line in this repository's root, as CI does, and
// gives back its exit code and both streams.
func payload(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, voice bytes.Buffer
	code = Main(append([]string{"-C", root(t)}, args...), strings.NewReader(""), &out, &voice)
	t.Logf("payload %s: exit %d\n%s", strings.Join(args, " "), code, voice.String())
	return code, out.String(), voice.String()
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := payload(t, args...)
	if code != exitDone {
		t.Fatalf("payload %s: exit %d\n%s", strings.Join(args, " "), code, stdout)
	}
	return stdout, stderr
}

// TestReal builds the real, pinned llama.cpp with the small set of CPU
// variants, and takes the result apart. The steps build on each other.
func TestReal(t *testing.T) {
	must(t, "lock", "--check")
	out, _ := must(t, "build", "--preset", "cpu_ci", "--json")
	var report buildReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	built := report.Builds[0]
	staged := filepath.Join(root(t), "dist", "cpu_ci", "lib", "payload")

	t.Run("verified", func(t *testing.T) { checkVerified(t, built) })
	t.Run("manifest", func(t *testing.T) { checkManifest(t, staged) })
	t.Run("again", func(t *testing.T) {
		_, voice := must(t, "build", "--preset", "cpu_ci")
		if !strings.Contains(voice, "nothing to configure") {
			t.Error("a second build configures")
		}
		// Upstream's target for the web pages runs at every build, and does nothing.
		log, err := os.ReadFile(filepath.Join(root(t), "build", "llama-server-cpu_ci", "payload-build.log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, work := range []string{"Building C", "Linking C"} {
			if strings.Contains(string(log), work) {
				t.Errorf("a second build works:\n%s", log)
			}
		}
	})
	t.Run("offline", func(t *testing.T) {
		t.Setenv("PAYLOAD_SOURCE_KINDS", "store")
		must(t, "source", "llama.cpp")
	})
	t.Run("damaged payload", func(t *testing.T) { checkDamaged(t, staged) })
	t.Run("series", func(t *testing.T) {
		out, _ := must(t, "patch", "check", "llama.cpp")
		if !strings.HasPrefix(out, "llama.cpp b11312: clean\n") {
			t.Errorf("patch check says:\n%s", out)
		}
	})
}

// checkVerified asserts that the real server answered, with every variant that
// was built and that this machine can run.
func checkVerified(t *testing.T, built build.Result) {
	t.Helper()
	if built.Verified == nil || built.Verified.Runtime == nil {
		t.Fatal("nothing was run")
	}
	run := built.Verified.Runtime
	if !strings.Contains(run.Version, "11312") || !strings.Contains(run.Version, "0c1e57098") {
		t.Errorf("version line %q names neither build 11312 nor its commit", run.Version)
	}
	names := map[string]bool{}
	for _, v := range run.Variants {
		names[v.Name] = v.Requests > 0 && v.DecodeTPS > 0
	}
	for _, s := range run.Skipped {
		names[s.Name] = s.Reason != ""
	}
	if runtime.GOARCH != "amd64" {
		return
	}
	for _, variant := range []string{"x64", "haswell", "skylakex", "sapphirerapids"} {
		if !names[variant] {
			t.Errorf("variant %s was neither exercised nor skipped with a reason: %+v", variant, run)
		}
	}
	if len(run.Variants) == 0 || run.Variants[0].Name == "" {
		t.Errorf("no variant was exercised by name")
	}
}

func checkManifest(t *testing.T, staged string) {
	t.Helper()
	m, err := manifest.Read(staged)
	if err != nil {
		t.Fatal(err)
	}
	c := m.Components[0]
	if c.Ref != "b11312" || c.Commit != "0c1e57098bba43ac29e6e3b677cdceebdd22334f" || c.Build != 11312 || len(c.Patches) == 0 || c.Pristine == c.Patched {
		t.Errorf("payload.json says %+v", c)
	}
	if m.Verified == nil || !m.Verified.Static || len(m.Verified.Variants) == 0 {
		t.Errorf("payload.json does not say what was verified: %+v", m.Verified)
	}
	if !slices.ContainsFunc(m.Files, func(f manifest.File) bool { return f.Path == "llama-server" && f.Executable }) {
		t.Error("payload.json has no llama-server")
	}
}

// checkDamaged takes one library out of a copy: both halves must notice.
func checkDamaged(t *testing.T, staged string) {
	t.Helper()
	broken := filepath.Join(t.TempDir(), "payload")
	if err := os.CopyFS(broken, os.DirFS(staged)); err != nil {
		t.Fatal(err)
	}
	matches, err := filepath.Glob(filepath.Join(broken, "libggml-base.*"))
	if err != nil || len(matches) == 0 {
		t.Fatalf("no libggml-base in %s: %v", staged, err)
	}
	for _, m := range matches {
		if err := os.Remove(m); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := payload(t, "verify", broken, "--json")
	var res verify.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatal(err)
	}
	if code != exitVerification {
		t.Errorf("exit %d, want %d", code, exitVerification)
	}
	for _, id := range []string{"files.missing", "closure.missing"} {
		found := false
		for _, f := range res.Findings {
			found = found || f.ID == id
		}
		if !found {
			t.Errorf("no finding %s", id)
		}
	}
}
