package pack

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"payload/internal/config"
	"payload/internal/manifest"
)

// sbomEnding is the end of the inventory's name, as CycloneDX asks for.
const sbomEnding = ".cdx.json"

// sbom is the CycloneDX inventory of the archive: what it is made of with
// licences and where that came from, every file with its digest, which file
// loads which, and what the system has to bring. It holds no serial number:
// equal archives have equal inventories.
func (j *Job) sbom() ([]byte, error) {
	b := &inventory{j: j, refs: map[string]bool{}, depends: map[string][]string{}, owners: map[string]string{}}
	edges, err := j.edges()
	if err != nil {
		return nil, err
	}
	main := b.archive()
	for _, c := range j.Manifest.Components {
		b.component(c)
	}
	for _, f := range j.Manifest.Files {
		b.modules(f)
	}
	for _, f := range j.Manifest.Files {
		b.file(main.BOMRef, f)
	}
	for _, r := range b.relied() {
		b.add(r)
	}
	for _, f := range j.Manifest.Files {
		for _, name := range edges[f.Path] {
			b.edge(f, name)
		}
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: j.Time.UTC().Format(time.RFC3339),
		Component: &main,
		Tools:     &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "payload", Version: j.Options.Version}}},
	}
	bom.Components = &b.components
	dependencies := b.dependencies()
	bom.Dependencies = &dependencies
	// Every file is listed; what a file was linked with statically is not known.
	bom.Compositions = &[]cdx.Composition{{Aggregate: cdx.CompositionAggregateComplete, Assemblies: &[]cdx.BOMReference{cdx.BOMReference(main.BOMRef)}}}
	var out bytes.Buffer
	enc := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	enc.SetPretty(true)
	enc.SetEscapeHTML(false)
	if err := enc.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("writing the inventory of %s: %w", j.Name(), err)
	}
	return out.Bytes(), nil
}

// inventory is an SBOM that is being written.
type inventory struct {
	j          *Job
	components []cdx.Component
	refs       map[string]bool
	depends    map[string][]string
	owners     map[string]string // of the texts of licences, by path: the module's entry
}

func (b *inventory) add(c cdx.Component) {
	if !b.refs[c.BOMRef] {
		b.refs[c.BOMRef] = true
		b.components = append(b.components, c)
	}
}

func (b *inventory) needs(from, to string) {
	if !slices.Contains(b.depends[from], to) {
		b.depends[from] = append(b.depends[from], to)
	}
}

func (b *inventory) dependencies() []cdx.Dependency {
	var list []cdx.Dependency
	for from, to := range b.depends {
		slices.Sort(to)
		list = append(list, cdx.Dependency{Ref: from, Dependencies: &to})
	}
	slices.SortFunc(list, func(x, y cdx.Dependency) int { return strings.Compare(x.Ref, y.Ref) })
	return list
}

func sha256Of(hex string) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex}}
}

// archive is what the inventory is of.
func (b *inventory) archive() cdx.Component {
	w := b.j.archive
	c := cdx.Component{
		BOMRef: "archive:" + b.j.Name(), Type: cdx.ComponentTypeApplication, Name: b.j.Name(), Hashes: sha256Of(w.SHA256),
		Properties: properties("file", w.Name, "group", b.j.Group.Name, "os", b.j.Group.System, "arch", b.j.Group.Arch),
	}
	for _, m := range b.j.Manifest.Components {
		if c.Version == "" {
			c.Version = m.Ref
		}
		b.needs(c.BOMRef, componentRef(m.Name))
	}
	return c
}

// properties makes a list of names and values; empty values are left out.
func properties(pairs ...string) *[]cdx.Property {
	var list []cdx.Property
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, cdx.Property{Name: "payload:" + pairs[i], Value: pairs[i+1]})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}

func componentRef(name string) string { return "upstream:" + name }

// component is an upstream project as it was built: its commit, the source that
// was read, and the patches on it.
func (b *inventory) component(m manifest.Component) {
	upstream := ""
	if c, err := b.j.w.File.Component(m.Name); err == nil {
		upstream = c.Upstream
	}
	c := cdx.Component{
		BOMRef: componentRef(m.Name), Type: cdx.ComponentTypeLibrary, Name: m.Name, Version: m.Ref, PackageURL: repositoryPurl(upstream, m),
		Properties: properties("commit", m.Commit, "tree", m.Patched, "pristine-tree", m.Pristine, "source", m.Source, "prebuilt", strings.Join(b.j.prebuilt(m.Name), ", ")),
	}
	if license := b.licenseOf(m.Name); license != "" {
		c.Licenses = &cdx.Licenses{{Expression: license}}
	}
	if strings.Contains(upstream, "://") {
		c.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: upstream}}
	}
	pedigree := &cdx.Pedigree{}
	var ancestors []cdx.Component
	for _, from := range append([]string{m.Source}, b.j.prebuilt(m.Name)...) {
		if purl := sourcePurl(from); purl != "" && !slices.ContainsFunc(ancestors, func(a cdx.Component) bool { return a.PackageURL == purl }) {
			ancestors = append(ancestors, cdx.Component{BOMRef: c.BOMRef + ":" + purl, Type: cdx.ComponentTypeLibrary, Name: nameOfPurl(purl), Version: versionOfPurl(purl), PackageURL: purl})
		}
	}
	if len(ancestors) > 0 {
		pedigree.Ancestors = &ancestors
	}
	var patches []cdx.Patch
	for _, p := range m.Patches {
		patches = append(patches, cdx.Patch{Type: cdx.PatchTypeUnofficial, Diff: &cdx.Diff{URL: path.Join(b.j.patchesOf(m.Name), p.File) + "#sha256=" + p.SHA256}})
	}
	if len(patches) > 0 {
		pedigree.Patches = &patches
		modified := true
		c.Modified = &modified
	}
	if pedigree.Ancestors != nil || pedigree.Patches != nil {
		c.Pedigree = pedigree
	}
	b.add(c)
}

// prebuilt is what brought a component compiled, in any of the trees: one may have
// another than the next.
func (j *Job) prebuilt(component string) (from []string) {
	for _, t := range j.Trees {
		for _, c := range t.Manifest.Components {
			if c.Name == component && c.Prebuilt != "" && !slices.Contains(from, c.Prebuilt) {
				from = append(from, c.Prebuilt)
			}
		}
	}
	return from
}

func (j *Job) patchesOf(component string) string {
	c, err := j.w.File.Component(component)
	if err != nil {
		return ""
	}
	return c.Patches
}

func (b *inventory) licenseOf(component string) string {
	for _, o := range b.j.w.File.Packages.Origins {
		if o.Component == component {
			return o.License
		}
	}
	return ""
}

// file is one file of the payload, whose it is, and what the archive knows of it.
func (b *inventory) file(main string, f manifest.File) {
	c := cdx.Component{BOMRef: fileRef(f.Path), Type: cdx.ComponentTypeFile, Name: payloadDir + "/" + f.Path}
	if f.Link != "" {
		c.Properties = properties("link", f.Link)
	} else {
		c.Hashes = sha256Of(f.SHA256)
		floor := manifest.Floor{}
		floor.Raise(f.Floor)
		c.Properties = properties("size", strconv.FormatInt(f.Size, 10), "arch", f.Arch, "glibc", floor.Glibc, "glibcxx", floor.Glibcxx, "macos", floor.MacOS)
	}
	if o, ok := b.j.originOf(f.Path); ok {
		c.Licenses = &cdx.Licenses{{Expression: o.License}}
		owner := b.owners[f.Path]
		if owner == "" {
			owner = b.owner(o)
		}
		b.needs(c.BOMRef, owner)
	}
	b.needs(main, c.BOMRef)
	b.add(c)
}

func fileRef(name string) string { return "file:" + name }

// originOf is whose a file is. A component that the trees are not made of has
// none of their files.
func (j *Job) originOf(file string) (config.Origin, bool) {
	for _, o := range j.w.File.Packages.Origins {
		if !config.Matches(o.Files, file) {
			continue
		}
		if o.Component == "" || slices.ContainsFunc(j.Manifest.Components, func(c manifest.Component) bool { return c.Name == o.Component }) {
			return o, true
		}
	}
	return config.Origin{}, false
}

// owner is the entry of what a file belongs to.
func (b *inventory) owner(o config.Origin) string {
	if o.Component != "" {
		return componentRef(o.Component)
	}
	c := cdx.Component{BOMRef: "third-party:" + o.Name, Type: cdx.ComponentTypeLibrary, Name: o.Name, PackageURL: o.Purl, Licenses: &cdx.Licenses{{Expression: o.License}}}
	b.add(c)
	return c.BOMRef
}

// relied are the libraries of the group below.
func (b *inventory) relied() (list []cdx.Component) {
	if b.j.Manifest.Package == nil {
		return nil
	}
	for _, r := range b.j.Manifest.Package.Relies {
		list = append(list, cdx.Component{
			BOMRef: fileRef(r.Path), Type: cdx.ComponentTypeFile, Name: payloadDir + "/" + r.Path, Hashes: sha256Of(r.SHA256), Scope: cdx.ScopeExcluded,
			Properties: properties("provided-by", b.j.Group.Over),
		})
	}
	return list
}

// edge notes that a file loads a library: one of the archive, one of the group
// below, or the system's.
func (b *inventory) edge(f manifest.File, name string) {
	if p := provider(b.j.Manifest.Files, f.Path, name); p != "" {
		if p != f.Path {
			b.needs(fileRef(f.Path), fileRef(p))
		}
		return
	}
	for _, r := range b.j.Manifest.Package.Relies {
		if path.Base(r.Path) == path.Base(name) {
			b.needs(fileRef(f.Path), fileRef(r.Path))
			return
		}
	}
	ref := "system:" + name
	b.add(cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: name, Scope: cdx.ScopeExcluded, Properties: properties("provided-by", "system")})
	b.needs(fileRef(f.Path), ref)
}
