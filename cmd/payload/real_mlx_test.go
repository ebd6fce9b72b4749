//go:build real

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"payload/internal/build"
	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/verify"
)

// buildReal builds one preset of this repository and gives what was built, its
// manifest and its folder.
func buildReal(t *testing.T, preset string, args ...string) (build.Result, manifest.Manifest, string) {
	t.Helper()
	out, _ := must(t, slices.Concat([]string{"build", "--preset", preset, "--json"}, args)...)
	var r buildReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	staged := filepath.Join(root(t), "dist", preset, "lib", "payload")
	m, err := manifest.Read(staged)
	if err != nil {
		t.Fatal(err)
	}
	return r.Builds[0], m, staged
}

// damaged copies a payload, changes the copy, and gives what verification finds.
func damaged(t *testing.T, staged string, change func(dir string)) []report.Finding {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "payload")
	if err := os.CopyFS(dir, os.DirFS(staged)); err != nil {
		t.Fatal(err)
	}
	change(dir)
	code, out, _ := payload(t, "verify", dir, "--json")
	if code != exitVerification {
		t.Errorf("exit %d, want %d", code, exitVerification)
	}
	var res verify.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatal(err)
	}
	return res.Findings
}

func wantFinding(t *testing.T, found []report.Finding, id string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f report.Finding) bool { return f.ID == id }) {
		t.Errorf("no finding %s among %+v", id, found)
	}
}

func remove(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealMLX builds the payload of the real MLX from upstream's wheel, runs
// it, and takes it apart.
func TestRealMLX(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("mlx_cpu is for Linux")
	}
	_, m, staged := buildReal(t, "mlx_cpu")
	checkMLX(t, m)
	if m.Components[0].Prebuilt == "" {
		t.Error("payload.json does not say that the library is the wheel's")
	}
	must(t, "verify", staged)

	found := damaged(t, staged, func(dir string) { remove(t, filepath.Join(dir, "mlx_cpu", "libgfortran*")) })
	wantFinding(t, found, "closure.missing")
	wantFinding(t, found, "runtime.exit")
	wantFinding(t, found, "answer.wrong")
}

// checkMLX holds what any payload of MLX for the CPU must have.
func checkMLX(t *testing.T, m manifest.Manifest) {
	t.Helper()
	if m.Verified == nil || !m.Verified.Static || m.Verified.Kind != "array-library" || m.Verified.Version != "0.32.2" {
		t.Errorf("verified is %+v", m.Verified)
	}
	if m.Verified != nil && !slices.Equal(m.Verified.Programs, []string{"mlxrunner"}) {
		t.Errorf("programs verified are %v", m.Verified.Programs)
	}
	if len(m.Components) != 2 || m.Components[0].Name != "mlx" || m.Components[1].Name != "mlx-c" || len(m.Components[1].Patches) == 0 {
		t.Errorf("components are %+v", m.Components)
	}
	var files []string
	for _, f := range m.Files {
		files = append(files, f.Path)
	}
	for _, want := range []string{"mlx_cpu/libmlx.so", "mlx_cpu/libmlxc.so", "mlx_cpu/mlx-check", "mlxrunner", "licenses/mlxrunner/go/LICENSE", "licenses/mlxrunner/github.com_ebitengine_purego/LICENSE", "licenses/mlx/LICENSE", "licenses/mlx-c/LICENSE", "licenses/mlx_cpu/gfortran.txt"} {
		if !slices.Contains(files, want) {
			t.Errorf("no %s among %q", want, files)
		}
	}
}

// TestRealMLXSource compiles the real MLX from its pinned tree.
func TestRealMLXSource(t *testing.T) {
	if os.Getenv("PAYLOAD_TEST_ALL") == "" || runtime.GOOS != "linux" {
		t.Skip("NOT RUN: MLX is compiled by scripts/test --all, on Linux")
	}
	_, m, staged := buildReal(t, "mlx_cpu", "--provider", "source")
	checkMLX(t, m)
	if m.Components[0].Prebuilt != "" {
		t.Errorf("the library is %s", m.Components[0].Prebuilt)
	}
	found := damaged(t, staged, func(dir string) { remove(t, filepath.Join(dir, "mlx_cpu", "libopenblas*")) })
	wantFinding(t, found, "closure.missing")
}

// TestRealMLXDarwin cuts the real payloads for macOS on Linux, where nothing of
// them can be run.
func TestRealMLXDarwin(t *testing.T) {
	if os.Getenv("PAYLOAD_TEST_ALL") == "" || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("NOT RUN: payloads for macOS are cut by scripts/test --all, on Linux for x86-64")
	}
	for preset, macOS := range map[string]string{"mlx_metal_v3": "14.0", "mlx_metal_v4": "26.2"} {
		t.Run(preset, func(t *testing.T) {
			built, m, staged := buildReal(t, preset, "--cross")
			static := built.Verified.Static
			if static.Arch != "arm64" || static.Floor.MacOS != macOS || static.MachO < 4 || len(built.Verified.Findings) > 0 {
				t.Errorf("static is %+v, findings %+v", static, built.Verified.Findings)
			}
			if m.Verified == nil || !m.Verified.Static || m.Verified.Kind != "" || len(m.Verified.Skipped) != 2 {
				t.Errorf("payload.json does not say that it was not run: %+v", m.Verified)
			}
			must(t, "verify", staged)
			lib := filepath.Join(preset, "libmlxc.dylib")
			flip := func(at int64) func(string) {
				return func(dir string) { flipByte(t, filepath.Join(dir, lib), at) }
			}
			wantFinding(t, damaged(t, staged, flip(0x8000)), "macho.signature-page")
			wantFinding(t, damaged(t, staged, func(dir string) { remove(t, filepath.Join(dir, preset, "libmlx.dylib")) }), "closure.missing")
			wantFinding(t, damaged(t, staged, func(dir string) { remove(t, filepath.Join(dir, preset, "mlx.metallib")) }), "metallib.missing")
		})
	}
}

func flipByte(t *testing.T, file string, at int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}
