package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/config"
)

// licenceTexts are words by which the licences of the modules here are told apart.
var licenceTexts = []struct{ words, licence string }{
	{"Apache License", "Apache-2.0"},
	{"Redistribution and use", "BSD-3-Clause"},
	{"Permission is hereby granted", "MIT"},
}

// TestOriginsOfModules holds payload.yaml's origins against the licences of what
// is linked into the payload's own programs, on every system.
func TestOriginsOfModules(t *testing.T) {
	f, err := config.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for _, c := range f.Components {
		for _, p := range c.Programs {
			programs++
			folders := map[string]string{"go": goroot(t)}
			for _, goos := range config.Systems {
				cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", "./"+p.Package)
				cmd.Dir, cmd.Env = f.Root, append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("go list for %s: %v", goos, err)
				}
				for line := range strings.Lines(string(out)) {
					if name, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
						folders[strings.ReplaceAll(name, "/", "_")] = dir
					}
				}
			}
			for name, dir := range folders {
				file := path.Join("licenses", path.Base(p.Package), name, "LICENSE")
				i := slices.IndexFunc(f.Packages.Origins, func(o config.Origin) bool { return config.Matches(o.Files, file) })
				if want := licenceIn(t, dir); f.Packages.Origins[i].License != want || f.Packages.Origins[i].Component != "" {
					t.Errorf("%s is licensed under %s, payload.yaml has it among %+v", file, want, f.Packages.Origins[i])
				}
			}
		}
	}
	if programs == 0 {
		t.Error("there are no programs")
	}
}

func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func licenceIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no licence: %v", dir, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range licenceTexts {
		if strings.Contains(string(text), l.words) {
			return l.licence
		}
	}
	t.Fatalf("%s: no known licence", files[0])
	return ""
}
