package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"payload/internal/manifest"
)

// provenanceEnding is the end of the name of the statement. It is unsigned: a
// signature lies beside it.
const provenanceEnding = ".provenance.json"

// Statement is in-toto's Statement v1 with SLSA's provenance v1 as predicate.
// The fields are those of the two specifications (in-toto/attestation,
// spec/v1/statement.md; slsa.dev/spec/v1.0/provenance) that are filled here.
type Statement struct {
	Type          string      `json:"_type"`
	Subject       []Described `json:"subject"`
	PredicateType string      `json:"predicateType"`
	Predicate     Provenance  `json:"predicate"`
}

// Described is a ResourceDescriptor: something with its digests.
type Described struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Provenance is SLSA's predicate.
type Provenance struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
}

// BuildDefinition is what was asked for and of what it was made.
type BuildDefinition struct {
	BuildType            string      `json:"buildType"`
	ExternalParameters   Asked       `json:"externalParameters"`
	InternalParameters   Internal    `json:"internalParameters"`
	ResolvedDependencies []Described `json:"resolvedDependencies"`
}

// Asked is the command line.
type Asked struct {
	System  string   `json:"system"`
	Group   string   `json:"group"`
	Arch    string   `json:"arch"`
	Presets []string `json:"presets"`
	Glibc   string   `json:"glibc,omitempty"`
	MacOS   string   `json:"macos,omitempty"`
	MaxPart int64    `json:"maxPart,omitempty"`
	Allow   []string `json:"allow,omitempty"`
}

// Internal is what else decides the bytes.
type Internal struct {
	Time       string               `json:"time"`
	Compressor *manifest.Compressor `json:"compressor"`
	Builds     []BuiltWith          `json:"builds"`
}

// BuiltWith is what compiled a staged tree, and what was proven of it.
type BuiltWith struct {
	Preset    string             `json:"preset"`
	Toolchain manifest.Toolchain `json:"toolchain"`
	Verified  *manifest.Verified `json:"verified"`
}

// RunDetails is who packaged.
type RunDetails struct {
	Builder Builder `json:"builder"`
}

// Builder is the platform, by a URI, and its versions.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// The types of the statement. A build type is a URI that says how to read the
// parameters; docs/releasing.md does.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "urn:payload:package:v1"
	// LocalBuilder is who packages where nobody says who it is.
	LocalBuilder = "urn:payload:local"
)

// provenance is the statement about the package's files, without a time of its
// own: the same inputs give the same statement.
func (j *Job) provenance() ([]byte, error) {
	s := Statement{Type: statementType, PredicateType: predicateType, Subject: []Described{}}
	for _, f := range j.result.Files {
		s.Subject = append(s.Subject, Described{Name: f.Name, Digest: map[string]string{"sha256": f.SHA256}})
	}
	slices.SortFunc(s.Subject, func(a, b Described) int { return strings.Compare(a.Name, b.Name) })
	id := j.Options.Builder
	if id == "" {
		id = LocalBuilder
	}
	internal := Internal{Time: j.Manifest.Package.Time, Compressor: j.Manifest.Package.Compressor, Builds: []BuiltWith{}}
	for _, t := range j.Trees {
		internal.Builds = append(internal.Builds, BuiltWith{Preset: t.Preset, Toolchain: t.Manifest.Toolchain, Verified: t.Manifest.Verified})
	}
	allow := slices.Clone(j.Options.Allow)
	slices.Sort(allow)
	s.Predicate = Provenance{
		BuildDefinition: BuildDefinition{
			BuildType: buildType,
			ExternalParameters: Asked{
				System: j.Group.System, Group: j.Group.Name, Arch: j.Group.Arch, Presets: j.Group.Presets,
				Glibc: j.Options.Glibc, MacOS: j.Options.MacOS, MaxPart: j.Options.MaxPart, Allow: allow,
			},
			InternalParameters:   internal,
			ResolvedDependencies: j.dependencies(),
		},
		RunDetails: RunDetails{Builder: Builder{ID: id, Version: map[string]string{"payload": j.Options.Version}}},
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("writing the provenance of %s: %w", j.Name(), err)
	}
	return out.Bytes(), nil
}

// dependencies are the repository's commit, every upstream with commit and trees,
// what was read in its place, and the patches on it.
func (j *Job) dependencies() []Described {
	list := []Described{}
	if j.repo.commit != "" {
		d := Described{Name: "repository", Digest: map[string]string{"gitCommit": j.repo.commit}}
		if j.repo.changed {
			d.Annotations = map[string]string{"changed": "true"}
		}
		list = append(list, d)
	}
	for _, m := range j.Manifest.Components {
		c, err := j.w.File.Component(m.Name)
		if err != nil {
			continue // an unlocked tree of another repository, which the manifest tells
		}
		d := Described{Name: m.Name, Digest: map[string]string{"gitTree": m.Patched}, Annotations: map[string]string{"ref": m.Ref, "source": m.Source, "pristineTree": m.Pristine}}
		if m.Commit != "" {
			d.Digest["gitCommit"] = m.Commit
		}
		if strings.Contains(c.Upstream, "://") {
			d.URI = "git+" + c.Upstream + "@" + m.Ref
		}
		list = append(list, d)
		for _, mirror := range c.Mirrors {
			if mirror.ID() == m.Source {
				list = append(list, Described{Name: m.Source, URI: sourcePurl(m.Source), Digest: sha256Digest(mirror.SHA256)})
			}
		}
		for _, b := range c.Prebuilt {
			if from := b.Mirror().ID(); slices.Contains(j.prebuilt(m.Name), from) {
				list = append(list, Described{Name: from, URI: sourcePurl(from), Digest: sha256Digest(b.SHA256)})
			}
		}
		for _, p := range m.Patches {
			list = append(list, Described{Name: c.Patches + "/" + p.File, Digest: map[string]string{"sha256": p.SHA256}})
		}
	}
	return list
}

// sha256Digest is nil where a mirror is a folder, which has none.
func sha256Digest(hex string) map[string]string {
	if hex == "" {
		return nil
	}
	return map[string]string{"sha256": hex}
}
