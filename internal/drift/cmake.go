package drift

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"payload/internal/ci"
	"payload/internal/cmakefile"
	"payload/internal/cmakerun"
)

// vocabulary is what the CMake files of a project and its sources name. It is
// read from their text alone: what only runs under some condition counts too.
type vocabulary struct {
	declared   map[string]bool // options and cache entries
	read       map[string]bool // variables that are looked at somewhere
	packages   map[string]bool // lower case, of find_package
	targets    []*regexp.Regexp
	components map[string]bool // of install, as they are written
	whole      bool            // every tree was there to be read
}

var (
	reference = regexp.MustCompile(`\$(?:CACHE)?\{([A-Za-z0-9_./+-]+)\}`)
	wholeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	isCMake   = func(name string) bool { return path.Base(name) == "CMakeLists.txt" || path.Ext(name) == ".cmake" }
)

// vocabularyOf reads the CMake files of a project, of its components' trees, and
// of what the project names elsewhere.
func (r *repo) vocabularyOf(ctx context.Context, p ci.Project) (vocabulary, error) {
	v := vocabulary{declared: map[string]bool{}, read: map[string]bool{}, packages: map[string]bool{}, components: map[string]bool{}}
	for _, c := range p.Components {
		t, err := r.trees[c.Name](ctx)
		if err != nil || t.pristine == "" {
			return v, err
		}
		texts, err := r.blobs(ctx, t.best(), isCMake)
		if err != nil {
			return v, err
		}
		for _, text := range texts {
			v.learn(text)
		}
	}
	for _, file := range slices.Concat(p.Own, p.Named) {
		if !isCMake(file) {
			continue
		}
		text, err := r.text(file)
		if err != nil {
			return v, err
		}
		v.learn(text)
	}
	v.whole = true
	return v, nil
}

// learn reads one file. One with a fault is read up to it.
func (v *vocabulary) learn(text string) {
	commands, _ := cmakefile.Parse(text)
	values := map[string][]string{} // of plain set() calls, for set(TARGET x) add_executable(${TARGET})
	for _, c := range commands {
		args := words(c)
		for i, a := range args {
			for _, m := range reference.FindAllStringSubmatch(a, -1) {
				v.read[m[1]] = true
			}
			if a == "COMPONENT" && i+1 < len(args) {
				v.components[args[i+1]] = true
			}
		}
		if len(args) == 0 {
			continue
		}
		switch {
		case c.Name == "if" || c.Name == "elseif" || c.Name == "while":
			for _, a := range args { // a bare name is a variable there
				if wholeName.MatchString(a) {
					v.read[a] = true
				}
			}
		case c.Name == "find_package":
			v.packages[strings.ToLower(args[0])] = true
		case c.Name == "set" && slices.Contains(args, "CACHE"):
			v.declared[args[0]] = true
		case c.Name == "set" && len(args) > 1:
			values[args[0]] = append(values[args[0]], args[1:]...)
		case strings.Contains(c.Name, "option") || strings.HasPrefix(c.Name, "find_"):
			// option, cmake_dependent_option, a project's own function around them. What
			// only tells that a name is obsolete has another first argument.
			v.declared[args[0]] = true
		case strings.Contains(c.Name, "add_") || strings.HasPrefix(c.Name, "payload_"):
			v.addTarget(args[0], values)
		}
	}
}

func words(c cmakefile.Command) []string {
	list := make([]string, 0, len(c.Args))
	for _, a := range c.Args {
		if !a.Literal {
			list = append(list, a.Text)
		}
	}
	return list
}

// addTarget learns a target's name; what it takes from a variable is each value
// that the file sets, or else anything.
func (v *vocabulary) addTarget(name string, values map[string][]string) {
	names := []string{name}
	if m := reference.FindStringSubmatch(name); m != nil && m[0] == name && values[m[1]] != nil {
		names = values[m[1]]
	}
	for _, n := range names {
		var pattern strings.Builder
		last := 0
		for _, at := range reference.FindAllStringIndex(n, -1) {
			pattern.WriteString(regexp.QuoteMeta(n[last:at[0]]) + ".+")
			last = at[1]
		}
		pattern.WriteString(regexp.QuoteMeta(n[last:]))
		if text := pattern.String(); text != ".+" { // a name that is a variable alone says nothing
			v.targets = append(v.targets, regexp.MustCompile("^(?:"+text+")$"))
		}
	}
}

// modules are variables that CMake itself and its own modules read.
var modules = []string{"CMAKE_", "FETCHCONTENT_", "BUILD_SHARED_LIBS", "BUILD_TESTING", "CPACK_", "BLA_"}

// hint is what a module for find_package reads beside what it declares; the
// package's name stands before it.
var hint = regexp.MustCompile(`^(.+?)_(ROOT|DIR|ROOT_DIR|INCLUDE_DIRS?|LIBRARY|LIBRARIES|[A-Z]+_LIBRARY|EXECUTABLE|[A-Z]+_EXECUTABLE|USE_STATIC_LIBS)$`)

// knows says whether an option of a preset is one that somebody declares or reads.
func (v *vocabulary) knows(option string) bool {
	for _, prefix := range modules {
		if strings.HasPrefix(option, prefix) {
			return true
		}
	}
	if m := hint.FindStringSubmatch(option); m != nil && v.packages[strings.ToLower(m[1])] {
		return true // Vulkan_INCLUDE_DIR, of find_package(Vulkan)
	}
	return v.declared[option] || v.read[option]
}

func (v *vocabulary) hasTarget(name string) bool {
	return slices.ContainsFunc(v.targets, func(re *regexp.Regexp) bool { return re.MatchString(name) })
}

// hasComponent says whether something is installed as a component. Its name may
// come from a variable that the preset sets.
func (v *vocabulary) hasComponent(name string, preset cmakerun.Preset) bool {
	for said := range v.components {
		is := reference.ReplaceAllStringFunc(said, func(r string) string {
			return preset.Cache[reference.FindStringSubmatch(r)[1]].Value
		})
		if is == name {
			return true
		}
	}
	return false
}

func (v *vocabulary) options() []string {
	var names []string
	for name := range v.declared {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
