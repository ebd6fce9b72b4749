package pack

import (
	"debug/buildinfo"
	"path"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"payload/internal/manifest"
)

// module is one that is linked into a program written in Go.
type module struct {
	path, version string
	purl          string
	licences      string // folder of its licences in the payload
}

// linked reads which modules a program was linked of, Go's own library first,
// from the build information that Go's linker leaves in it. Anything that was not
// written in Go has none.
func linked(file string) []module {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil
	}
	licences := path.Join("licenses", path.Base(info.Path)) // as build.programLicences lays them out
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	found := []module{{path: "stdlib", version: version, purl: goPurl("stdlib", version), licences: path.Join(licences, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		found = append(found, module{path: m.Path, version: m.Version, purl: goPurl(m.Path, m.Version), licences: path.Join(licences, strings.ReplaceAll(m.Path, "/", "_"))})
	}
	return found
}

// goPurl is the package URL of a module; the type golang has small letters only.
// The library that comes with Go has the name that Go's list of vulnerabilities
// has for it.
func goPurl(module, version string) string {
	return "pkg:golang/" + strings.ToLower(module) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// modules lists what is linked into a program, each with the licence of what lies
// in the folder of its licences.
func (b *inventory) modules(f manifest.File) {
	if f.Link != "" || f.Arch == "" {
		return
	}
	for _, m := range linked(b.j.at(f.Path)) {
		c := cdx.Component{BOMRef: "go:" + m.path + "@" + m.version, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version, PackageURL: m.purl}
		for _, text := range b.j.Manifest.Files {
			if !strings.HasPrefix(text.Path, m.licences+"/") {
				continue
			}
			b.owners[text.Path] = c.BOMRef
			if o, ok := b.j.originOf(text.Path); ok && c.Licenses == nil {
				c.Licenses = &cdx.Licenses{{Expression: o.License}}
			}
		}
		b.add(c)
		b.needs(fileRef(f.Path), c.BOMRef)
	}
}
