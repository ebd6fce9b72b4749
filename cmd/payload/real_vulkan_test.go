//go:build real

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/manifest"
	"payload/internal/verify"
)

// TestRealVulkan builds the real Vulkan backend and has it do all of the work,
// on Mesa's llvmpipe where there is no GPU. It takes six minutes on two cores
// with a warm compiler cache, too long for every change.
func TestRealVulkan(t *testing.T) {
	if os.Getenv("PAYLOAD_TEST_ALL") == "" {
		t.Skip("NOT RUN: the Vulkan backend is built and run by scripts/test --all")
	}
	if os.Getenv("GGML_VK_VISIBLE_DEVICES") == "" {
		t.Setenv("GGML_VK_VISIBLE_DEVICES", "0") // llvmpipe has to be chosen
	}
	t.Run("old headers", func(t *testing.T) {
		sdk := t.TempDir()
		dir := filepath.Join(sdk, "include", "vulkan")
		header := "#define VK_HEADER_VERSION 239\n#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 3, VK_HEADER_VERSION)\n"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "vulkan_core.h"), []byte(header), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("VULKAN_SDK", sdk)
		code, _, said := payload(t, "build", "--preset", "vulkan")
		if code != exitPrerequisite || !strings.Contains(said, "version 1.3.239 is too old, 1.3.275 is needed") || strings.Contains(said, "materialise") {
			t.Errorf("exit %d: %s", code, said)
		}
	})

	out, _ := must(t, "build", "--preset", "vulkan", "--json")
	var report buildReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	staged := filepath.Join(root(t), "dist", "vulkan", "lib", "payload")
	t.Run("verified", func(t *testing.T) {
		ran := report.Builds[0].Verified.Runtime.Backends
		if len(ran) != 1 || ran[0].Name != "Vulkan" || ran[0].Requests == 0 {
			t.Fatalf("ran %+v", ran)
		}
		if !strings.Contains(ran[0].Log["device"], "Vulkan0") || !strings.Contains(ran[0].Log["layers offloaded"], "offloaded 4/4 layers") {
			t.Errorf("the log has %q", ran[0].Log)
		}
		m, err := manifest.Read(staged)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.Verified.Backends, []string{"Vulkan"}) {
			t.Errorf("payload.json says %+v", m.Verified)
		}
	})
	// What is released is the folder alone, over the base of another preset.
	t.Run("same base", func(t *testing.T) {
		m, err := manifest.Read(staged)
		if err != nil {
			t.Fatal(err)
		}
		cpu, err := manifest.Read(filepath.Join(root(t), "dist", "cpu_ci", "lib", "payload"))
		if err != nil {
			t.Skipf("NOT RUN: %v", err)
		}
		for _, f := range m.Files {
			i := slices.IndexFunc(cpu.Files, func(c manifest.File) bool { return c.Path == f.Path })
			if i >= 0 && cpu.Files[i].SHA256 != f.SHA256 {
				t.Errorf("%s is another file than that of cpu_ci", f.Path)
			}
			if outside := !strings.HasPrefix(f.Path, "vulkan/"); i < 0 && outside {
				t.Errorf("%s lies outside the backend's folder, and cpu_ci has none", f.Path)
			}
		}
	})
	for name, hide := range map[string]string{"device hidden": "GGML_VK_VISIBLE_DEVICES=", "no driver": "VK_DRIVER_FILES=" + filepath.Join(t.TempDir(), "none.json")} {
		t.Run(name, func(t *testing.T) {
			variable, value, _ := strings.Cut(hide, "=")
			t.Setenv(variable, value)
			code, out, _ := payload(t, "verify", staged, "--json")
			var res verify.Result
			if err := json.Unmarshal([]byte(out), &res); err != nil {
				t.Fatal(err)
			}
			if code != exitVerification || len(res.Findings) != 1 || res.Findings[0].ID != verify.FindingIdle ||
				!strings.HasPrefix(res.Findings[0].Title, "the CPU did the work, not Vulkan: 4 of 4 layers lay on the CPU") {
				t.Errorf("exit %d, %+v", code, res.Findings)
			}
		})
	}
	t.Run("build without the device", func(t *testing.T) {
		t.Setenv("GGML_VK_VISIBLE_DEVICES", "")
		code, _, said := payload(t, "build", "--preset", "vulkan")
		if code != exitVerification || !strings.Contains(said, "hint: choose a device") {
			t.Errorf("exit %d: %s", code, said)
		}
		_, said = must(t, "build", "--preset", "vulkan", "--no-run")
		if !strings.Contains(said, "NOT run: llama-server, Vulkan") {
			t.Errorf("it says %s", said)
		}
	})
}
