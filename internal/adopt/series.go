package adopt

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/patch"
)

// series gives each folder of patches to its component, where it lies. A
// folder is carried over whole or not at all: half a series builds something
// that nobody has asked for.
func (f *finder) series(components []joined) error {
	var folders []string
	files := map[string][]string{}
	for _, name := range f.files {
		if ext := path.Ext(name); ext != ".patch" && ext != ".diff" {
			continue
		}
		dir := path.Dir(name)
		if files[dir] == nil {
			folders = append(folders, dir)
		}
		files[dir] = append(files[dir], name)
	}
	owner := map[int][]string{}
	for _, dir := range folders {
		fits, err := f.fits(dir, files[dir])
		if err != nil {
			return err
		}
		who := owners(dir, components, len(folders) == 1)
		switch {
		case !fits: // each reason is listed
		case len(who) == 0:
			f.skip(Where{Path: dir}, "no file says which component these patches are for")
		case len(who) > 1:
			f.skip(Where{Path: dir}, "these patches could be for %s or for %s", components[who[0]].Name, components[who[1]].Name)
		default:
			owner[who[0]] = append(owner[who[0]], dir)
		}
	}
	for i := range components {
		switch dirs := owner[i]; {
		case len(dirs) == 1:
			components[i].Patches = dirs[0]
		case len(dirs) > 1:
			for _, dir := range dirs {
				f.skip(Where{Path: dir}, "%s has several folders of patches (%s), and a component has one", components[i].Name, strings.Join(dirs, ", "))
			}
		}
	}
	return nil
}

// fits says whether a folder can be a series as it lies, and lists what is in the way.
func (f *finder) fits(dir string, names []string) (bool, error) {
	before := len(f.skipped)
	numbers := map[int]string{}
	slices.Sort(names)
	for _, name := range names {
		at := Where{Path: name}
		data, ok, err := f.text(name)
		if err != nil {
			return false, err
		}
		base := path.Base(name)
		if !ok {
			f.skip(at, "is not a text file, so %s is no series", dir)
			continue
		}
		p := patch.Parse(base, data)
		first, taken := numbers[p.Number]
		switch {
		case path.Ext(base) != ".patch":
			f.skip(at, "ends in %s; a series is made of *.patch, so rename it to carry over %s", path.Ext(base), dir)
		case p.Number < 0:
			f.skip(at, "begins with no number, so its place in the series is not known; rename it to carry over %s", dir)
		case taken:
			f.skip(at, "has the number %d, and so has %s: which of them comes first is not known", p.Number, first)
		case p.Malformed != "":
			f.skip(at, "can't be read as a patch: %s", p.Malformed)
		default:
			numbers[p.Number] = base
		}
	}
	return len(f.skipped) == before, nil
}

// owners are the components that a folder can belong to: those whose
// declaration names it; else those whose name is part of its path; else the
// only component, where this is the only folder.
func owners(dir string, components []joined, only bool) []int {
	var found []int
	for i, c := range components {
		if slices.ContainsFunc(c.declarations, func(d declaration) bool { return names(d, dir) }) {
			found = append(found, i)
		}
	}
	if len(found) > 0 {
		return found
	}
	for i, c := range components {
		variable := c.Var()
		if slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool {
			part = config.VarName(part)
			return part == variable || strings.HasPrefix(part, variable+"_") || strings.HasSuffix(part, "_"+variable)
		}) {
			found = append(found, i)
		}
	}
	if len(found) == 0 && only && len(components) == 1 {
		return []int{0}
	}
	return found
}

// names says whether a declaration speaks of a folder, from the repository's
// root or from the folder of its own file.
func names(d declaration, dir string) bool {
	ways := []string{dir}
	if below, ok := strings.CutPrefix(dir, path.Dir(d.at.Path)+"/"); ok {
		ways = append(ways, below)
	}
	for _, way := range ways {
		if way == "." {
			continue
		}
		if regexp.MustCompile(`(^|[^A-Za-z0-9_.-])` + regexp.QuoteMeta(way) + `($|[^A-Za-z0-9_-])`).MatchString(d.text) {
			return true
		}
	}
	return false
}
