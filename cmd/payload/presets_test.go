package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"payload/internal/build"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/doctor"
)

// The table in docs/presets.md is printed by payload doctor --markdown, on one
// machine or another; its rows are the presets that there are.
func TestPresetsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/presets.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "<!-- payload doctor --markdown -->\n")
	table, _, closed := strings.Cut(table, "<!-- end -->")
	if !found || !closed {
		t.Fatal("docs/presets.md has no table between its marks")
	}
	var rows, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| (builds|builds with --cross|exit 6: [^|]+) \\|$").FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1])
	}
	file, err := config.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	presets, err := presetsOf(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range presets {
		want = append(want, p.Name)
	}
	if !slices.Equal(rows, want) {
		t.Errorf("the table has %q,\nthe presets are %q;\nprint it anew: payload doctor --markdown", rows, want)
	}
}

// What is released must not be built for the machine that builds it.
func TestReleasePresets(t *testing.T) {
	folders := map[string]string{}
	presets, err := cmakerun.ReadPresets("../../llama/server")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range presets.Visible() {
		v := func(name string) string { return p.Cache[name].Value }
		if native := p.Name == "cuda_native"; native != (v("GGML_NATIVE") == "ON" || strings.Contains(v("CMAKE_CUDA_ARCHITECTURES"), "native")) {
			t.Errorf("%s: GGML_NATIVE %s, CMAKE_CUDA_ARCHITECTURES %s", p.Name, v("GGML_NATIVE"), v("CMAKE_CUDA_ARCHITECTURES"))
		}
		for _, tool := range p.Vendor.Tools {
			if !slices.Contains(doctor.Known(), tool.Name) {
				t.Errorf("%s needs %s, which no table has", p.Name, tool.Name)
			}
		}
		if p.Disabled != "" && p.Vendor.Machine.Name == "" {
			t.Errorf("%s can't be built here, and does not say on what machine it can", p.Name)
		}
		for _, n := range build.Needs(p, false) {
			if n.Name == "machine" && n.Get == "" {
				t.Errorf("%s: %+v", p.Name, n)
			}
		}
		folder := v("PAYLOAD_BACKEND_FOLDER")
		if folder == "" {
			continue
		}
		// The folder is the component; its target is built; something must do the work.
		if !slices.Contains(p.Vendor.Components, folder) || !slices.Contains(p.Vendor.Targets, v("PAYLOAD_BACKEND")) || len(p.Vendor.Backends) != 2 || p.Vendor.Backends[1] != "CPU" {
			t.Errorf("%s: folder %s, backend %s, and the tool is told %+v", p.Name, folder, v("PAYLOAD_BACKEND"), p.Vendor)
		}
		system := "others"
		if strings.HasSuffix(p.Name, "_windows") {
			system = "windows"
		}
		if other := folders[system+folder]; other != "" {
			t.Errorf("%s and %s have one folder, %s", other, p.Name, folder)
		}
		folders[system+folder] = p.Name
	}
	if len(folders) < 8 {
		t.Errorf("only %d presets have a folder", len(folders))
	}
}
