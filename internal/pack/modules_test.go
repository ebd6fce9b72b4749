package pack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/archive"
	"payload/internal/config"
	"payload/internal/manifest"
)

// listed is what the tests read of an inventory's entry.
type listed struct {
	Ref      string `json:"bom-ref"`
	Version  string
	Purl     string
	Licenses []struct{ Expression string }
	Pedigree struct{ Ancestors []struct{ Purl string } }
}

// inventoryOf gives the entries of a job's inventory and what each needs.
func inventoryOf(t *testing.T, j *Job) (entries map[string]listed, needs map[string][]string) {
	t.Helper()
	data, err := j.sbom()
	if err != nil {
		t.Fatal(err)
	}
	valid(t, "bom-1.6.schema.json", data)
	var bom struct {
		Components   []listed
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	entries, needs = map[string]listed{}, map[string][]string{}
	for _, c := range bom.Components {
		entries[c.Ref] = c
	}
	for _, d := range bom.Dependencies {
		needs[d.Ref] = d.DependsOn
	}
	return entries, needs
}

// TestModules puts a program written in Go among the files: what is linked into it
// is listed, with the licences that lie beside it.
func TestModules(t *testing.T) {
	r := newRelease(t)
	j := &Job{w: r.w, Payload: t.TempDir(), archive: archive.Written{SHA256: strings.Repeat("c", 64)}}
	source := r.write("tool.go", "package main\n\nimport cdx \"github.com/CycloneDX/cyclonedx-go\"\n\nfunc main() { println(cdx.NewBOM().Version) }\n")
	if text, err := exec.Command("go", "build", "-o", j.at("tool"), source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	modules := linked(j.at("tool"))
	at := slices.IndexFunc(modules, func(m module) bool { return m.path == "github.com/CycloneDX/cyclonedx-go" })
	if at < 1 || modules[0].path != "stdlib" || strings.HasPrefix(modules[0].version, "go") {
		t.Fatalf("the program is linked of %v", modules)
	}
	m := modules[at]
	r.w.File.Packages.Origins = slices.Insert(r.w.File.Packages.Origins, 0, config.Origin{Files: []string{m.licences + "/**"}, Name: "apache", License: "Apache-2.0"})
	text := m.licences + "/LICENSE"
	j.Manifest = manifest.Manifest{
		Components: []manifest.Component{{Name: "toy", Ref: "v1"}}, Package: &manifest.Package{},
		Files: []manifest.File{{Path: text, SHA256: strings.Repeat("a", 64)}, {Path: "tool", SHA256: strings.Repeat("b", 64), Arch: "amd64"}},
	}
	if err := os.MkdirAll(filepath.Dir(j.at(text)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.at(text), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	entries, needs := inventoryOf(t, j)
	ref := "go:" + m.path + "@" + m.version
	if c := entries[ref]; c.Purl != "pkg:golang/github.com/cyclonedx/cyclonedx-go@"+m.version || len(c.Licenses) != 1 || c.Licenses[0].Expression != "Apache-2.0" {
		t.Errorf("%s is %+v", ref, c)
	}
	if !slices.Contains(needs["file:tool"], ref) || !slices.Equal(needs["file:"+text], []string{ref}) {
		t.Errorf("the program needs %v, the licence belongs to %v", needs["file:tool"], needs["file:"+text])
	}
	if c := entries["go:stdlib@"+modules[0].version]; c.Purl != "pkg:golang/stdlib@"+modules[0].version {
		t.Errorf("Go's own library is %+v", c)
	}
}

// TestPrebuiltOfEachTree holds that what two trees were brought compiled, one of
// each, is in the proof of the payload that is made of both.
func TestPrebuiltOfEachTree(t *testing.T) {
	r := newRelease(t)
	wheels := []config.Prebuilt{
		{Ref: "v1", PyPI: "toy==1.0", Platform: "macosx_14_0_arm64", SHA256: strings.Repeat("1", 64)},
		{Ref: "v1", PyPI: "toy==1.0", Platform: "macosx_26_0_arm64", SHA256: strings.Repeat("2", 64)},
	}
	r.w.File.Components[0].Prebuilt = wheels
	j := &Job{w: r.w, Payload: t.TempDir(), archive: archive.Written{SHA256: strings.Repeat("c", 64)}}
	for _, w := range wheels {
		c := manifest.Component{Name: "toy", Ref: "v1", Prebuilt: w.Mirror().ID()}
		j.Trees = append(j.Trees, Tree{Manifest: manifest.Manifest{Components: []manifest.Component{c}}})
	}
	if err := j.combine(); err != nil {
		t.Fatal(err)
	}
	j.Manifest.Package = &manifest.Package{}
	digests := map[string]string{}
	for _, d := range j.dependencies() {
		digests[d.Name] = d.Digest["sha256"]
	}
	for _, w := range wheels {
		if digests[w.Mirror().ID()] != w.SHA256 {
			t.Errorf("%s is not in %v", w.Mirror().ID(), digests)
		}
	}
	entries, _ := inventoryOf(t, j)
	if a := entries["upstream:toy"].Pedigree.Ancestors; len(a) != 1 || a[0].Purl != "pkg:pypi/toy@1.0" {
		t.Errorf("it descends from %v", a)
	}
}
