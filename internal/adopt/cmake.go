package adopt

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"payload/internal/cmakefile"
)

// variables are those of one file that have one literal value.
type variables struct {
	value map[string]string
	open  map[string]bool // set in a way, or to several values, that only CMake could tell
}

// These write to a variable that one of their arguments names.
var writers = []string{"string", "list", "file", "math", "execute_process", "get_filename_component", "cmake_path", "foreach", "unset", "option", "find_program", "find_file", "find_path", "function", "macro", "cmake_parse_arguments"}

func (v *variables) learn(c cmakefile.Command) {
	switch {
	case c.Name == "set" && len(c.Args) > 0:
		name := c.Args[0].Text
		value, ok := "", true
		for i, a := range c.Args[1:] {
			if !a.Literal && (a.Text == "CACHE" || a.Text == "PARENT_SCOPE") {
				break
			}
			text, missing := v.expand(a)
			ok = ok && missing == ""
			if i > 0 {
				value += ";"
			}
			value += text
		}
		before, known := v.value[name]
		if !ok || known && before != value {
			v.open[name] = true
		}
		v.value[name] = value
	case slices.Contains(writers, c.Name):
		for _, a := range c.Args {
			v.open[a.Text] = true
		}
	}
}

var reference = regexp.MustCompile(`\$\{[A-Za-z0-9_./+-]+\}`)

// expand replaces the variables of an argument. missing names what is left.
func (v *variables) expand(a cmakefile.Argument) (text, missing string) {
	if a.Literal {
		return a.Text, ""
	}
	text = reference.ReplaceAllStringFunc(a.Text, func(r string) string {
		name := r[2 : len(r)-1]
		if value, ok := v.value[name]; ok && !v.open[name] {
			return value
		}
		return r
	})
	if i := strings.IndexByte(text, '$'); i >= 0 {
		return text, text[i:]
	}
	return text, ""
}

// What begins the next part of FetchContent_Declare or ExternalProject_Add.
var keyword = regexp.MustCompile(`^[A-Z][A-Z_]+$`)

// script reads what a CMake file declares.
func (f *finder) script(name, text string) {
	list, err := cmakefile.Parse(text)
	declares := func(c cmakefile.Command) bool {
		return c.Name == "fetchcontent_declare" || c.Name == "externalproject_add"
	}
	if err != nil && strings.Contains(strings.ToLower(text), "fetchcontent_declare") {
		f.skip(Where{Path: name}, "is read up to a fault only: %v", err)
	}
	// A file's own folder: what is below it becomes relative to the repository.
	here := "./" + path.Dir(name)
	v := &variables{value: map[string]string{"CMAKE_CURRENT_LIST_DIR": here}, open: map[string]bool{}}
	if path.Base(name) == "CMakeLists.txt" {
		v.value["CMAKE_CURRENT_SOURCE_DIR"] = here
		if path.Dir(name) == "." {
			v.value["CMAKE_SOURCE_DIR"], v.value["PROJECT_SOURCE_DIR"] = here, here
		}
	}
	for _, c := range list {
		v.learn(c)
		if pinName.MatchString(setName(c)) && len(c.Args) > 1 {
			// LIB_VERSION of set(LIB_VERSION b123), for an upstream that is named elsewhere.
			if value, missing := v.expand(c.Args[1]); missing == "" {
				value = lowerID(value)
				f.pins = append(f.pins, pinned{
					variable: pinName.FindStringSubmatch(setName(c))[1], ref: value, why: refProblem(value),
					at: Where{Path: name, Line: c.Line}, sure: sureRef.MatchString(value),
				})
			}
		}
	}
	for _, c := range list {
		if declares(c) && len(c.Args) > 1 {
			f.declare(name, c, v)
		}
	}
}

func setName(c cmakefile.Command) string {
	if c.Name != "set" || len(c.Args) == 0 {
		return ""
	}
	return c.Args[0].Text
}

// declare reads one declaration.
func (f *finder) declare(name string, c cmakefile.Command, v *variables) {
	d := declaration{at: Where{Path: name, Line: c.Line}}
	given := map[string]string{}
	unresolved := map[string]string{}
	key := ""
	for _, a := range c.Args[1:] {
		if !a.Literal && keyword.MatchString(a.Text) {
			key = a.Text
			continue
		}
		value, missing := v.expand(a)
		d.text += " " + value
		if _, again := given[key]; !again {
			given[key], unresolved[key] = value, missing
		}
	}
	literal := func(key string) string {
		if unresolved[key] == "" {
			return ""
		}
		return fmt.Sprintf("%s holds %s, which this file does not set to one literal value", key, unresolved[key])
	}
	switch {
	case given["GIT_REPOSITORY"] != "":
		d.upstream, d.ref = given["GIT_REPOSITORY"], lowerID(given["GIT_TAG"])
		switch {
		case literal("GIT_REPOSITORY") != "":
			d.upstream, d.why = "", literal("GIT_REPOSITORY")
		case strings.HasPrefix(d.upstream, "../"):
			d.upstream, d.why = "", fmt.Sprintf("GIT_REPOSITORY %s is relative to wherever this repository was cloned from", d.upstream)
		case isPath(d.upstream):
			d.upstream = path.Clean(d.upstream)
		}
		switch {
		case d.why != "":
		case d.ref == "":
			d.why = "has no GIT_TAG, so whatever the default branch holds is taken: nothing is pinned"
		case literal("GIT_TAG") != "":
			d.open, d.why = true, literal("GIT_TAG")
		default:
			d.why = refProblem(d.ref)
		}
	case given["URL"] != "":
		upstream, ref, ok := archiveOf(given["URL"])
		switch {
		case literal("URL") != "":
			d.why = literal("URL")
		case given["URL_HASH"] == "" && given["URL_MD5"] == "":
			d.why = "URL has no URL_HASH, so what it holds is not pinned"
		case !ok:
			d.why = fmt.Sprintf("URL %s is no forge's archive of a ref, so its git repository is not known", given["URL"])
		default:
			d.upstream, d.ref, d.why = upstream, ref, refProblem(ref)
		}
	case given["SVN_REPOSITORY"] != "" || given["HG_REPOSITORY"] != "" || given["CVS_REPOSITORY"] != "":
		d.why = "is not a git repository"
	default: // a folder that is there already
		return
	}
	if d.why != "" {
		d.ref = ""
	}
	f.declarations = append(f.declarations, d)
}
