package verify

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"payload/internal/voice"
)

// elfSymbols are the names by which an ELF file is joined to others.
type elfSymbols struct {
	soname   string
	imports  []elf.ImportedSymbol // those that must be found
	weak     []elf.ImportedSymbol // those that the file can do without
	needs    []elf.DynamicVersionNeed
	exports  map[string]bool // "name", and "name@VERSION" where it has one
	versions map[string]bool // that it defines
}

func readSymbols(f *elf.File) (s elfSymbols, err error) {
	s.exports, s.versions = map[string]bool{}, map[string]bool{}
	if names, err := f.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
		s.soname = names[0]
	}
	all, err := f.DynamicSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return s, nil // joined to nothing
	}
	if err != nil {
		return s, err
	}
	for _, sym := range all {
		imported := elf.ImportedSymbol{Name: sym.Name, Version: sym.Version, Library: sym.Library}
		bind, hidden := elf.ST_BIND(sym.Info), elf.ST_VISIBILITY(sym.Other)
		switch {
		case sym.Section == elf.SHN_UNDEF && bind == elf.STB_GLOBAL:
			s.imports = append(s.imports, imported)
		case sym.Section == elf.SHN_UNDEF:
			s.weak = append(s.weak, imported)
		case bind == elf.STB_LOCAL, hidden == elf.STV_HIDDEN, hidden == elf.STV_INTERNAL:
		default:
			s.exports[sym.Name] = true
			if sym.Version != "" {
				s.exports[sym.Name+"@"+sym.Version] = true
			}
		}
	}
	if f.SectionByType(elf.SHT_GNU_VERSYM) == nil {
		return s, nil // none of its symbols has a version
	}
	if s.needs, err = f.DynamicVersionNeeds(); err != nil {
		return s, err
	}
	defined, err := f.DynamicVersions()
	for _, v := range defined {
		s.versions[v.Name] = true
	}
	return s, err
}

// checkSymbols makes sure that what each ELF file imports is exported by what
// the loader will have loaded with it. What the system's libraries bring is
// known by versions, which the floors are about.
func checkSymbols(res *Result, sys platform, objects []*object) {
	scopes := scopesOf(objects)
	for _, o := range objects {
		scope := scopes[o]
		if slices.ContainsFunc(scope, func(l *object) bool { return l.unknown }) {
			continue // a library is missing, which was reported; so are its symbols
		}
		var missing, versions []string
		for _, imp := range o.symbols.imports {
			switch {
			case sys.systemLibrary(imp.Library):
			case imp.Version == "":
				if !exported(scope, imp.Name) && !unversioned(o) && !ofSystem(sys, scope, imp.Name) {
					missing = append(missing, demangle.Filter(imp.Name))
				}
			case !slices.ContainsFunc(scope, func(l *object) bool { return l.symbols.versions[imp.Version] }):
				versions = append(versions, fmt.Sprintf("%s of %s, for %s", imp.Version, imp.Library, demangle.Filter(imp.Name)))
			case !exported(scope, imp.Name+"@"+imp.Version):
				missing = append(missing, demangle.Filter(imp.Name)+"@"+imp.Version)
			}
		}
		if len(missing) > 0 {
			res.static("symbols.undefined", o.path, fmt.Sprintf("%s needs %s, which nothing that it loads has", o.path, some(missing, 1)), "it needs "+some(missing, 12), o.path)
		}
		if len(versions) > 0 {
			res.static("symbols.version", o.path, fmt.Sprintf("%s needs the version %s, which is not defined", o.path, versions[0]), "it needs "+some(versions, 12), o.path)
		}
	}
}

func exported(scope []*object, name string) bool {
	return slices.ContainsFunc(scope, func(o *object) bool { return o.symbols.exports[name] })
}

// unversioned says whether a file asks the system's libraries for symbols by name
// alone, as Go's linker has it: which they are can't be told then.
func unversioned(o *object) bool { return len(o.system) > 0 && len(o.symbols.needs) == 0 }

// ofSystem says whether a symbol without a version is one that a library of the
// system in the scope is known to have.
func ofSystem(sys platform, scope []*object, name string) bool {
	for _, o := range scope {
		for _, lib := range o.system {
			if prefix := sys.symbols[lib]; prefix != "" && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// scopesOf gives for every object those among which its symbols are looked up:
// what it loads, and what each file at the top that leads to it loads.
func scopesOf(objects []*object) map[*object][]*object {
	loaded := map[*object]bool{}
	for _, o := range objects {
		for _, l := range o.loads {
			loaded[l] = true
		}
	}
	sets := map[*object]map[*object]bool{}
	for _, o := range objects {
		sets[o] = reach(o)
	}
	for _, top := range objects {
		if loaded[top] {
			continue
		}
		all := reach(top)
		for o := range all {
			maps.Copy(sets[o], all)
		}
	}
	scopes := map[*object][]*object{}
	for o, set := range sets {
		scopes[o] = slices.Collect(maps.Keys(set))
	}
	return scopes
}

// reach is an object and all that it loads.
func reach(o *object) map[*object]bool {
	all := map[*object]bool{}
	todo := []*object{o}
	for len(todo) > 0 {
		o, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if !all[o] {
			all[o] = true
			todo = append(todo, o.loads...)
		}
	}
	return all
}

// some lists the first of many, sorted.
func some(list []string, most int) string {
	return voice.List(slices.Compact(slices.Sorted(slices.Values(list))), most)
}

// checkImports makes sure that what a Mach-O image takes from a library of the
// payload is there: dyld looks into the library that was named at linking, and
// into no other.
func checkImports(res *Result, images []*image) {
	at, read := map[string]*image{}, map[string]bool{} // by path and architecture; by path
	for _, m := range images {
		at[m.path+":"+m.arch], read[m.path] = m, true
	}
	for _, m := range images {
		for _, name := range slices.Sorted(maps.Keys(m.found)) {
			file := m.found[name]
			switch {
			case at[file+":"+m.arch] != nil, res.has("macho.unreadable", file), res.has("macho.slices", file):
			case !read[file]:
				res.static("closure.missing", m.path+":"+name, fmt.Sprintf("%s needs %s, and what has that name is no library", m.path, path.Base(name)), "", m.path, file)
			default:
				res.static("closure.arch", m.path+":"+name+":"+m.arch, fmt.Sprintf("%s needs %s for %s, and the one in the payload is not for it", m.path, path.Base(name), m.arch), "", m.path, file)
			}
		}
		missing := map[string][]string{}
		for _, s := range m.imports {
			from := at[m.found[s.library]+":"+m.arch]
			if s.library != "" && !s.weak && from != nil && !provides(from, s.name, at, nil) {
				missing[s.library] = append(missing[s.library], demangle.Filter(strings.TrimPrefix(s.name, "_")))
			}
		}
		for _, library := range slices.Sorted(maps.Keys(missing)) {
			res.static("symbols.undefined", m.path+":"+library, fmt.Sprintf("%s needs %s of %s, which it does not have", m.path, some(missing[library], 1), path.Base(library)),
				"it needs "+some(missing[library], 12), m.path, m.found[library])
		}
	}
}

// provides says whether a library has a symbol, or passes on another's that may.
func provides(m *image, symbol string, at map[string]*image, seen []foreign) bool {
	to, ok := m.exports[symbol]
	if ok && to == (foreign{}) {
		return true
	}
	here := foreign{m.path, symbol}
	if slices.Contains(seen, here) {
		return false
	}
	others := m.reexports
	if ok {
		others, symbol = []string{to.library}, to.name
	}
	for _, name := range others {
		from := at[m.found[name]+":"+m.arch]
		if from == nil || provides(from, symbol, at, append(seen, here)) { // nil: the system's
			return true
		}
	}
	return false
}
