// Package config reads payload.yaml: which components a repository ships and
// where everything about them lies. It knows the file's form, not what any
// component is, and it never writes.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// FileName is the file that marks the root of a repository with payloads.
const FileName = "payload.yaml"

// File is a loaded payload.yaml.
type File struct {
	Root       string // absolute folder that holds the file
	Version    int
	Components []Component // in the order of the file
	Toolchains []Toolchain // in the order of the file
	Packages   Packages
	Checks     Checks
}

// document is the file's form. docs/payload.schema.json says the same; a test
// holds the two equal.
type document struct {
	Version    int           `yaml:"version"`
	Components yaml.MapSlice `yaml:"components"`
	Toolchains []Toolchain   `yaml:"toolchains"`
	Packages   Packages      `yaml:"packages"`
	Checks     `yaml:",inline"`
}

// Component is one upstream project that the repository pins. Paths are
// relative to File.Root, with forward slashes.
type Component struct {
	Name     string     `yaml:"-"`
	Pin      string     `yaml:"pin"`
	Upstream string     `yaml:"upstream"`
	Patches  string     `yaml:"patches"`
	Project  string     `yaml:"project"`
	Target   string     `yaml:"target"`
	Verify   string     `yaml:"verify"`
	Mirrors  []Mirror   `yaml:"mirrors"`
	Prebuilt []Prebuilt `yaml:"prebuilt"`
	Programs []Program  `yaml:"programs"` // staged beside what the component's presets make

	Tags     []string `yaml:"tags"`     // globs of the tags that are versions; empty: the pinned ref's family
	Ignore   []string `yaml:"ignore"`   // globs of refs that latest and best never take
	Throttle int      `yaml:"throttle"` // latest and best take only refs whose last number it divides; 0: all

	Copies  []Copy    `yaml:"copies"`
	Coupled []Coupled `yaml:"coupled"`

	Watch *Watch `yaml:"watch"` // what review compares; nil: its changes are not looked at
}

// Program is a command of this repository, in Go and without cgo, that uses a
// payload and is shipped in it.
type Program struct {
	Package string `yaml:"package"` // the command's folder; its last part is the program's name
	Verify  string `yaml:"verify"`  // kind of runtime verification; empty: its file alone is checked
	// Universal asks for one file for both processors on macOS, whichever the
	// preset's libraries are for.
	Universal bool `yaml:"universal"`
}

// Copy is another file of the repository that holds the component's ref.
type Copy struct {
	Path    string `yaml:"path"`
	Pattern string `yaml:"pattern"` // RE2; its one group is the ref, in every match
}

// Regexp is Pattern, matching at every line. Parse has checked it.
func (c Copy) Regexp() *regexp.Regexp { return regexp.MustCompile("(?m)" + c.Pattern) }

// Coupled says where this component's own tree names the ref of another
// component that it wants.
type Coupled struct {
	Component string `yaml:"component"`
	Path      string `yaml:"path"`    // in the component's tree
	Pattern   string `yaml:"pattern"` // RE2; its one group is the ref
}

// Regexp is Pattern, matching at every line. Parse has checked it.
func (c Coupled) Regexp() *regexp.Regexp { return regexp.MustCompile("(?m)" + c.Pattern) }

// Mirror is a place other than upstream that holds one ref's sources. Exactly
// one of PyPI, Crate and Archive is set.
type Mirror struct {
	Ref     string `yaml:"ref"`
	Commit  string `yaml:"commit"`
	Build   int    `yaml:"build"`   // upstream's build number, where the ref's name doesn't say it
	PyPI    string `yaml:"pypi"`    // name==version of a source distribution
	Crate   string `yaml:"crate"`   // name==version
	Archive string `yaml:"archive"` // a tar file or a folder, absolute or relative to the root
	Path    string `yaml:"path"`    // folder inside that is the component's root
	SHA256  string `yaml:"sha256"`  // of the downloaded file; not for a folder

	// Platform is the tag of a wheel, where PyPI names one and no source
	// distribution: see Prebuilt and Toolchain.
	Platform string `yaml:"-"`
}

// Kind is pypi, crate or archive.
func (m Mirror) Kind() string {
	switch {
	case m.PyPI != "":
		return "pypi"
	case m.Crate != "":
		return "crate"
	}
	return "archive"
}

// ID names the mirror in the lock and in messages: "pypi:name==1.2".
func (m Mirror) ID() string {
	switch m.Kind() {
	case "pypi":
		if m.Platform != "" {
			return "pypi:" + m.PyPI + "/" + m.Platform
		}
		return "pypi:" + m.PyPI
	case "crate":
		return "crate:" + m.Crate
	}
	return "archive:" + m.Archive
}

// Var is the component's name as a variable: capitals, every other character
// an underscore.
func (c Component) Var() string { return VarName(c.Name) }

// VarName turns a component's name into a variable's: llama.cpp is LLAMA_CPP.
func VarName(name string) string {
	return notVar.ReplaceAllString(strings.ToUpper(name), "_")
}

var notVar = regexp.MustCompile(`[^A-Z0-9]`)

// MirrorsOf lists the mirrors that hold ref, by name or, where ref is a full
// commit, by commit.
func (c Component) MirrorsOf(ref string) []Mirror {
	var found []Mirror
	for _, m := range c.Mirrors {
		if m.Ref == ref || IsObjectID(ref) && m.Commit == ref {
			found = append(found, m)
		}
	}
	return found
}

// Location is Upstream as git takes it: a relative path becomes absolute.
func (f *File) Location(c Component) string {
	if strings.Contains(c.Upstream, "://") || filepath.IsAbs(c.Upstream) || scpLike.MatchString(c.Upstream) {
		return c.Upstream
	}
	return filepath.Join(f.Root, filepath.FromSlash(c.Upstream))
}

var scpLike = regexp.MustCompile(`^[^/]+@[^/:]+:`)

// Abs is a path of the file as an absolute one; empty stays empty.
func (f *File) Abs(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(f.Root, filepath.FromSlash(path))
}

// UnknownComponentError names a component that payload.yaml lacks.
type UnknownComponentError struct {
	Name  string
	Known []string
}

func (e *UnknownComponentError) Error() string {
	return fmt.Sprintf("%s is not a component of %s (it has: %s)", e.Name, FileName, strings.Join(e.Known, ", "))
}

// Component finds a component by name.
func (f *File) Component(name string) (Component, error) {
	var known []string
	for _, c := range f.Components {
		if c.Name == name {
			return c, nil
		}
		known = append(known, c.Name)
	}
	return Component{}, &UnknownComponentError{Name: name, Known: known}
}

// ErrNoFile says that no folder upwards holds a payload.yaml.
var ErrNoFile = errors.New("no " + FileName + " here or in any folder above")

// Find walks up from dir to the folder that holds payload.yaml.
func Find(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", FileName, err)
	}
	for d := abs; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, FileName)); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("looking for %s from %s: %w", FileName, abs, ErrNoFile)
		}
	}
}

// Load reads and checks root's payload.yaml. Errors name line and column.
func Load(root string) (*File, error) {
	path := filepath.Join(root, FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", FileName, err)
	}
	f, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if f.Root, err = filepath.Abs(root); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return f, nil
}

// Parse reads and checks the text of a payload.yaml; Root is left empty. Errors
// name line and column.
func Parse(data []byte) (*File, error) {
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	var doc document
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict(), yaml.UseOrderedMap()).Decode(&doc); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	if doc.Version != 1 {
		return nil, At(tree, "$.version", "version %d is not known; this payload reads version 1", doc.Version)
	}
	if len(doc.Components) == 0 {
		return nil, At(tree, "$", "no components")
	}
	f := &File{Version: doc.Version, Toolchains: doc.Toolchains}
	for _, item := range doc.Components {
		name, ok := item.Key.(string)
		if !ok || !validName.MatchString(name) {
			return nil, At(tree, "$.components", "component name %v: letters, digits, dots, dashes and underscores only", item.Key)
		}
		where := "$.components.'" + name + "'"
		c := Component{Name: name}
		path, err := yaml.PathString(where)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", name, err)
		}
		node, err := path.FilterFile(tree)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", name, err)
		}
		if err := yaml.NodeToValue(node, &c, yaml.Strict()); err != nil {
			return nil, errors.New(yaml.FormatError(err, false, true))
		}
		if err := c.check(tree, where); err != nil {
			return nil, err
		}
		if err := c.checkUpdates(tree, where); err != nil {
			return nil, err
		}
		if err := c.checkWatch(tree, where); err != nil {
			return nil, err
		}
		f.Components = append(f.Components, c)
	}
	for i, t := range f.Toolchains {
		if err := t.check(tree, fmt.Sprintf("$.toolchains[%d]", i)); err != nil {
			return nil, err
		}
	}
	seen := map[string]string{}
	for _, c := range f.Components {
		if other, dup := seen[c.Var()]; dup {
			return nil, At(tree, "$.components", "components %s and %s share the variable prefix %s", other, c.Name, c.Var())
		}
		seen[c.Var()] = c.Name
	}
	f.Packages = doc.Packages
	if err := f.Packages.check(tree, f); err != nil {
		return nil, err
	}
	f.Checks = doc.Checks
	if err := f.Checks.check(tree, f); err != nil {
		return nil, err
	}
	for _, c := range f.Components {
		for i, k := range c.Coupled {
			if _, err := f.Component(k.Component); err != nil || k.Component == c.Name {
				return nil, At(tree, fmt.Sprintf("$.components.'%s'.coupled[%d].component", c.Name, i),
					"component %s is coupled to %q, which is no other component of this file", c.Name, k.Component)
			}
		}
	}
	return f, nil
}

var (
	validName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	objectID    = regexp.MustCompile(`^[0-9a-f]{40}$`)
	hexSHA256   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	nameVersion = regexp.MustCompile(`^[A-Za-z0-9._-]+==[A-Za-z0-9.+_-]+$`)
)

// IsObjectID says whether text is a full git id, of a commit or a tree. The
// private repositories hold SHA-1 objects, so longer ids can't be had.
func IsObjectID(text string) bool { return objectID.MatchString(text) }

// IsSHA256 says whether text is a SHA-256 in lower-case hexadecimal.
func IsSHA256(text string) bool { return hexSHA256.MatchString(text) }

func (c Component) check(tree *ast.File, where string) error {
	if c.Pin == "" {
		return At(tree, where, "component %s has no pin: the file that holds its ref", c.Name)
	}
	if c.Upstream == "" {
		return At(tree, where, "component %s has no upstream: a URL or a path", c.Name)
	}
	for key, path := range map[string]string{"pin": c.Pin, "patches": c.Patches, "project": c.Project} {
		if path != "" && !filepath.IsLocal(filepath.FromSlash(path)) {
			return At(tree, where+"."+key, "%s of component %s must lie below %s: %s", key, c.Name, FileName, path)
		}
	}
	for i, m := range c.Mirrors {
		at := func(key, format string, args ...any) error {
			prefix := fmt.Sprintf("mirror %d of component %s: ", i+1, c.Name)
			place := fmt.Sprintf("%s.mirrors[%d]", where, i)
			if key != "" {
				place += "." + key
			}
			return At(tree, place, "%s", prefix+fmt.Sprintf(format, args...))
		}
		kinds := 0
		for _, v := range []string{m.PyPI, m.Crate, m.Archive} {
			if v != "" {
				kinds++
			}
		}
		switch {
		case m.Ref == "":
			return at("", "no ref")
		case kinds != 1:
			return at("", "exactly one of pypi, crate and archive must be given")
		case m.Commit != "" && !IsObjectID(m.Commit):
			return at("commit", "commit %q is not a full commit id", m.Commit)
		case m.Build < 0:
			return at("build", "build %d is less than 0", m.Build)
		case m.SHA256 != "" && !IsSHA256(m.SHA256):
			return at("sha256", "sha256 %q is not 64 hexadecimal digits", m.SHA256)
		case m.Kind() != "archive" && m.SHA256 == "":
			return at("", "%s needs its sha256", m.ID())
		case m.PyPI != "" && !nameVersion.MatchString(m.PyPI):
			return at("pypi", "%q is not of the form name==version", m.PyPI)
		case m.Crate != "" && !nameVersion.MatchString(m.Crate):
			return at("crate", "%q is not of the form name==version", m.Crate)
		case m.Path != "" && !filepath.IsLocal(filepath.FromSlash(m.Path)):
			return at("path", "path %q leaves the download", m.Path)
		}
	}
	for i, p := range c.Programs {
		if p.Package == "" || !filepath.IsLocal(filepath.FromSlash(p.Package)) {
			return At(tree, fmt.Sprintf("%s.programs[%d]", where, i), "program %d of component %s needs its package: a folder below %s", i+1, c.Name, FileName)
		}
	}
	for i, b := range c.Prebuilt {
		if err := b.check(tree, fmt.Sprintf("%s.prebuilt[%d]", where, i), c.Name); err != nil {
			return err
		}
	}
	return nil
}

// checkUpdates checks the keys that say how the component moves to another ref.
func (c Component) checkUpdates(tree *ast.File, where string) error {
	for key, globs := range map[string][]string{"tags": c.Tags, "ignore": c.Ignore} {
		for i, glob := range globs {
			if _, err := path.Match(glob, ""); err != nil || glob == "" {
				return At(tree, fmt.Sprintf("%s.%s[%d]", where, key, i), "%s of component %s: %q is not a glob", key, c.Name, glob)
			}
		}
	}
	if c.Throttle < 0 {
		return At(tree, where+".throttle", "throttle of component %s: %d is less than 0", c.Name, c.Throttle)
	}
	for i, k := range c.Copies {
		if err := checkPlace(tree, fmt.Sprintf("%s.copies[%d]", where, i), fmt.Sprintf("copy %d of component %s", i+1, c.Name), k.Path, k.Pattern); err != nil {
			return err
		}
	}
	for i, k := range c.Coupled {
		if err := checkPlace(tree, fmt.Sprintf("%s.coupled[%d]", where, i), fmt.Sprintf("coupling %d of component %s", i+1, c.Name), k.Path, k.Pattern); err != nil {
			return err
		}
	}
	return nil
}

// checkPlace checks a file and the expression whose one group is a ref in it.
func checkPlace(tree *ast.File, where, what, file, pattern string) error {
	if file == "" || !filepath.IsLocal(filepath.FromSlash(file)) {
		return At(tree, where+".path", "%s: path %q is not a relative one that stays inside", what, file)
	}
	re, err := regexp.Compile("(?m)" + pattern)
	switch {
	case err != nil:
		return At(tree, where+".pattern", "%s: %v", what, err)
	case re.NumSubexp() != 1:
		return At(tree, where+".pattern", "%s: pattern %q must have one group, the ref; it has %d", what, pattern, re.NumSubexp())
	}
	return nil
}

// At is an error with the line and column of a YAML path.
func At(tree *ast.File, where, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if path, err := yaml.PathString(where); err == nil {
		if node, err := path.FilterFile(tree); err == nil && node != nil {
			pos := node.GetToken().Position
			return fmt.Errorf("[%d:%d] %s", pos.Line, pos.Column, text)
		}
	}
	return errors.New(text)
}
