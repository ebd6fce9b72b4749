package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"payload/internal/manifest"
)

// Needed is the newest version of a system's library that files ask for, and
// what asks for it.
type Needed struct {
	What    string   `json:"what"`    // "glibc", "GLIBCXX" or "macOS"
	Version string   `json:"version"` // "2.35"
	Path    string   `json:"path"`    // the file
	Library string   `json:"library,omitempty"`
	Symbols []string `json:"symbols,omitempty"` // that have this version
}

func (n Needed) String() string {
	text := fmt.Sprintf("needs %s %s (%s", n.What, n.Version, n.Path)
	if len(n.Symbols) > 0 {
		text += fmt.Sprintf(": %s of %s", some(n.Symbols, 2), n.Library)
	}
	return text + ")"
}

// versioned are the libraries whose symbols have versions that say how old a
// system may be.
var versioned = []struct {
	what string
	of   func(symbolVersion string) string // empty for a version of another library
}{
	{"glibc", manifest.GlibcOf},
	{"GLIBCXX", func(v string) string {
		rest, _ := strings.CutPrefix(v, "GLIBCXX_")
		if rest == v {
			return ""
		}
		return rest
	}},
}

// needs are what an object asks for, each version of each library.
func (o *object) needs() []Needed {
	var all []Needed
	for _, lib := range o.symbols.needs {
		for _, need := range lib.Needs {
			for _, v := range versioned {
				version := v.of(need.Dep)
				if version == "" || !newerThan(version, "0") { // PRIVATE is no version
					continue
				}
				n := Needed{What: v.what, Version: version, Path: o.path, Library: lib.Name}
				for _, s := range slices.Concat(o.symbols.imports, o.symbols.weak) {
					if s.Version == need.Dep && s.Library == lib.Name {
						n.Symbols = append(n.Symbols, demangle.Filter(s.Name))
					}
				}
				slices.Sort(n.Symbols)
				all = append(all, n)
			}
		}
	}
	return all
}

// checkFloors finds what decides how old a system may be, and reports each file
// that asks for more than the target has.
func checkFloors(res *Result, objects []*object, images []*image, t target) {
	highest := map[string]Needed{}
	note := func(n Needed) {
		if have, ok := highest[n.What]; !ok || newerThan(n.Version, have.Version) {
			highest[n.What] = n
		}
	}
	most := map[string]string{"glibc": t.glibc, "GLIBCXX": t.glibcxx}
	for _, o := range objects {
		over := map[string][]Needed{}
		for _, n := range o.needs() {
			note(n)
			if limit := most[n.What]; limit != "" && newerThan(n.Version, limit) {
				over[n.What] = append(over[n.What], n)
			}
		}
		for what, list := range over {
			slices.SortStableFunc(list, func(a, b Needed) int {
				if newerThan(a.Version, b.Version) {
					return -1
				}
				return 1
			})
			var lines []string
			for _, n := range list {
				lines = append(lines, fmt.Sprintf("%s %s of %s: %s", n.What, n.Version, n.Library, orNothing(some(n.Symbols, 8))))
			}
			res.static("floor."+strings.ToLower(what), o.path, fmt.Sprintf("%s needs %s %s for %s of %s, and %s is to be enough", o.path, what, list[0].Version, orNothing(some(list[0].Symbols, 1)), list[0].Library, most[what]),
				strings.Join(lines, "\n"), o.path)
		}
	}
	for _, m := range images {
		if m.macOS != "" {
			note(Needed{What: "macOS", Version: m.macOS, Path: m.path})
		}
	}
	for _, what := range []string{"glibc", "GLIBCXX", "macOS"} {
		if n, ok := highest[what]; ok {
			res.Static.Floors = append(res.Static.Floors, n)
		}
	}
}

// systemNeeds are the libraries that files need from outside the payload.
func systemNeeds(objects []*object, images []*image, dlls []*dll) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.system...)
	}
	for _, m := range images {
		for _, name := range m.needed {
			if ofMacOS(name) {
				names = append(names, name)
			}
		}
	}
	for _, d := range dlls {
		for _, name := range d.needed {
			if ofWindows(platforms["windows"], name) {
				names = append(names, strings.ToLower(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func ofMacOS(library string) bool {
	return strings.HasPrefix(library, "/usr/lib/") || strings.HasPrefix(library, "/System/Library/")
}
