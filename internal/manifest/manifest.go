// Package manifest owns payload.json: what a staged payload was made from, what
// was verified of it, and every file in it. It describes folders and reads and
// writes the file; it judges nothing, that is internal/verify's work.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/atomicfile"
)

// Name is the manifest's file name, at the root of the payload.
const Name = "payload.json"

// NameFor is the manifest's name in the archive of a group that is unpacked over
// another one. Paths in it are relative to its folder, as in the other's.
func NameFor(group string) string { return "payload-" + group + ".json" }

// IsName says whether a file beside others of a payload is a manifest.
func IsName(name string) bool {
	group, ends := strings.CutSuffix(name, ".json")
	return name == Name || ends && strings.HasPrefix(group, "payload-") && !strings.ContainsAny(group, "/.") // an inventory ends in .cdx.json
}

// Schema is the value of the first key.
const Schema = "payload.manifest/v1"

// Manifest is payload.json.
type Manifest struct {
	Schema     string      `json:"schema"`
	Project    string      `json:"project,omitempty"` // CMake project, relative to the repository
	Preset     string      `json:"preset,omitempty"`
	Components []Component `json:"components"`
	Target     *Target     `json:"target,omitempty"` // absent where it is whatever the compiler was for
	Toolchain  Toolchain   `json:"toolchain"`
	Verified   *Verified   `json:"verified,omitempty"` // absent until verified
	// Builds are the trees that were merged, where there were several; what stands
	// above is then what they have in common, and what each was proven to be is here.
	Builds  []Build  `json:"builds,omitempty"`
	Package *Package `json:"package,omitempty"` // of an archive; absent in a staged tree
	Signing *Signing `json:"signing,omitempty"` // of Mach-O files in an archive
	Files   []File   `json:"files"`             // sorted by path, without manifests
}

// Build is one staged tree of several.
type Build struct {
	Project    string      `json:"project,omitempty"`
	Preset     string      `json:"preset,omitempty"`
	Arch       string      `json:"arch,omitempty"` // that it has every file for, where others are for another
	Components []Component `json:"components"`
	Target     *Target     `json:"target,omitempty"`
	Folders    []string    `json:"folders,omitempty"` // at the root, that this build alone has
	Toolchain  Toolchain   `json:"toolchain"`
	Verified   *Verified   `json:"verified,omitempty"`
}

// Package is what became of staged trees on the way into an archive.
type Package struct {
	Group string `json:"group"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	// Over is the group that this one is unpacked over, and Relies are libraries of
	// it that files of this one load, as they were when this one was proven.
	Over   string   `json:"over,omitempty"`
	Relies []Relied `json:"relies,omitempty"`
	// Single are globs of files that need not be for every processor.
	Single     []string    `json:"single,omitempty"`
	Compressor *Compressor `json:"compressor,omitempty"`
	Time       string      `json:"time"`            // of every entry, RFC 3339
	Floor      *Floor      `json:"floor,omitempty"` // that was asked for, and holds unless allowed
	// Budget is the most that files and folders may take unpacked, in bytes by path;
	// "." is all of the archive. It holds unless allowed.
	Budget  map[string]int64 `json:"budget,omitempty"`
	Commit  string           `json:"commit,omitempty"`  // of the repository that packaged
	Changed bool             `json:"changed,omitempty"` // the repository held changes that no commit has
	// Allowed is what would have been refused. Missing are the globs of files that
	// the group expects and the trees lack.
	Allowed []Allowed `json:"allowed,omitempty"`
	Missing []string  `json:"missing,omitempty"`
	Debug   *Debug    `json:"debug,omitempty"` // absent where no debug information was taken out
}

// Debug is the archive of the debug information that was taken out of files.
type Debug struct {
	Name   string     `json:"name"`
	SHA256 string     `json:"sha256"` // of the whole, where it is in parts
	Size   int64      `json:"size"`
	Files  []Debugged `json:"files"`
}

// Debugged is a file whose debug information lies in that archive.
type Debugged struct {
	Path string   `json:"path"` // relative, as in Files
	In   string   `json:"in"`   // path in the archive
	IDs  []string `json:"ids"`  // that both have, as BuildIDs gives them
}

// Signing is how the Mach-O files of an archive were signed.
type Signing struct {
	Kind      string `json:"kind"`           // adhoc, certificate or developer-id
	Team      string `json:"team,omitempty"` // of the certificate
	Runtime   bool   `json:"hardened_runtime,omitempty"`
	Timestamp string `json:"timestamp,omitempty"` // the authority
}

// Relied is a library outside an archive that files in it load.
type Relied struct {
	Path   string `json:"path"` // relative, as in Files
	SHA256 string `json:"sha256"`
}

// Compressor is what an archive was packed with: another version may give other
// bytes.
type Compressor struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Options string `json:"options"`
}

// AllowedBudget is Allowed.What where files were let be larger than the budget.
const AllowedBudget = "budget"

// Allowed is a reason to refuse that was passed over because it was asked for.
type Allowed struct {
	What   string `json:"what"`
	Preset string `json:"preset,omitempty"`
	Why    string `json:"why"`
}

// Component is one upstream and the state of it that was built.
type Component struct {
	Name      string  `json:"name"`
	Ref       string  `json:"ref"`
	Commit    string  `json:"commit,omitempty"`
	Build     int     `json:"build,omitempty"`
	Pristine  string  `json:"pristine,omitempty"` // git tree id before the patches
	Patched   string  `json:"patched,omitempty"`  // git tree id of what was compiled
	Patches   []Patch `json:"patches"`
	Source    string  `json:"source,omitempty"`    // "git", a mirror's id, or "override DIR"
	Unpatched bool    `json:"unpatched,omitempty"` // an override was used as it is
	Prebuilt  string  `json:"prebuilt,omitempty"`  // where what was compiled of it comes from, in place of these sources
	Program   string  `json:"program,omitempty"`   // what runtime verification starts
	Verify    string  `json:"verify,omitempty"`    // the kind of runtime verification that must pass
	// Backends are those that a running program must show; Variants are the CPU
	// variants that were built, each a module.
	Backends []string `json:"backends,omitempty"`
	Variants []string `json:"variants,omitempty"`
	// Programs are the repository's own that use the component.
	Programs []Program `json:"programs,omitempty"`
}

// Program is a command of the repository that is shipped in the payload.
type Program struct {
	Path    string `json:"path"`             // in the payload
	Package string `json:"package"`          // of the repository
	Go      string `json:"go"`               // the version of Go that compiled it
	Verify  string `json:"verify,omitempty"` // kind of runtime verification
}

// Patch is one carried patch.
type Patch struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// Target is what a payload was built for, where the preset says it.
type Target struct {
	MacOS string `json:"macos,omitempty"` // the oldest that every file must load on
}

// Toolchain is what compiled the payload.
type Toolchain struct {
	CMake     string     `json:"cmake,omitempty"` // version
	Generator string     `json:"generator,omitempty"`
	Compilers []Compiler `json:"compilers,omitempty"`
	Cross     string     `json:"cross,omitempty"` // where the compiler for another system came from
}

// Compiler is one language's compiler.
type Compiler struct {
	Language string `json:"language"` // "CXX"
	ID       string `json:"id"`       // "GNU"
	Version  string `json:"version"`
}

// Verified is what was proven of the payload when it was staged. It holds no
// times and no speeds: the same input gives the same bytes.
type Verified struct {
	Static   bool      `json:"static"`
	Kind     string    `json:"kind,omitempty"` // of runtime verification; empty when nothing was started
	Version  string    `json:"version,omitempty"`
	Backends []string  `json:"backends,omitempty"` // of devices, that did all of the work when it was theirs
	Variants []string  `json:"variants,omitempty"` // exercised by name
	Programs []string  `json:"programs,omitempty"` // of the repository, that were run and gave what they must
	Skipped  []Skipped `json:"skipped,omitempty"`
}

// Skipped is something that could not be exercised, and why.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// File is one entry of the payload: a regular file, or a link when Link is set.
type File struct {
	Path       string `json:"path"` // relative, with forward slashes
	SHA256     string `json:"sha256,omitempty"`
	Size       int64  `json:"size"` // bytes; 0 for a link
	Executable bool   `json:"executable,omitempty"`
	Link       string `json:"link,omitempty"` // target as stored
	Arch       string `json:"arch,omitempty"` // "amd64", "arm64"; several joined by "+"
	Floor      *Floor `json:"floor,omitempty"`
}

// Floor is the oldest system that a file loads on.
type Floor struct {
	Glibc   string `json:"glibc,omitempty"`   // "2.34"
	Glibcxx string `json:"glibcxx,omitempty"` // "3.4.30"
	MacOS   string `json:"macos,omitempty"`   // "14.0"
}

// MissingError is a folder without a manifest.
type MissingError struct{ Dir string }

func (e *MissingError) Error() string { return fmt.Sprintf("%s holds no %s", e.Dir, Name) }

// Read loads the manifest of the payload in dir. Without one the error is a
// *MissingError.
func Read(dir string) (Manifest, error) { return ReadFile(dir, Name) }

// Names lists the manifests in dir, payload.json first: those of groups that
// were unpacked over each other.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && IsName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return len(a) - len(b) })
	return names, nil
}

// ReadFile loads the manifest of that name in dir. Without one the error is a
// *MissingError.
func ReadFile(dir, name string) (Manifest, error) {
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, &MissingError{Dir: dir}
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("reading the manifest: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if m.Schema != Schema {
		return Manifest{}, fmt.Errorf("reading %s: schema %q, want %q", path, m.Schema, Schema)
	}
	return m, nil
}

// Write stores m as the manifest of dir, at once or not at all. Equal manifests
// give equal bytes.
func Write(dir string, m Manifest) error {
	m.Schema = Schema
	data, err := Encode(m)
	if err != nil {
		return fmt.Errorf("writing the manifest of %s: %w", dir, err)
	}
	return atomicfile.Write(filepath.Join(dir, Name), data, 0o644)
}

// Encode gives the bytes that Write stores.
func Encode(m Manifest) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
