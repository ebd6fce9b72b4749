package review

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"payload/internal/cmakefile"
)

// The classes that CMake files hold, whatever the component.
const (
	options   = "options"
	packages  = "packages"  // find_package, pkg_check_modules
	libraries = "libraries" // find_library, and what is linked without being a target
	tools     = "tools"     // find_program
	network   = "network"
	targets   = "targets"
	generated = "generated"
	toolchain = "cmake"
)

var cmakeNouns = map[string][2]string{
	options: {"option"}, packages: {"package", ""}, libraries: {"library", "libraries"}, tools: {"tool"}, network: {"download"},
	targets: {"target"}, generated: {"generated file"}, toolchain: {"requirement"},
}

// cmakeFile reads one CMake file without running it.
type cmakeFile struct {
	e    *extractor
	path string
	ref  string
	vars map[string][]string // the values that each may have
	cond []string            // the conditions that hold where the reader is
	list []item
}

// cmake finds options, dependencies, targets and downloads in a CMake file.
// What was read before a fault counts.
func (e *extractor) cmake(path, ref, text string) []item {
	commands, _ := cmakefile.Parse(text) // upstream's CMake has accepted it; a fault here is ours
	f := &cmakeFile{e: e, path: path, ref: ref, vars: map[string][]string{}}
	for _, c := range commands {
		f.command(c)
	}
	return f.list
}

func (f *cmakeFile) add(id, name string, line int, attrs map[string]string) *item {
	if name == "" || strings.Contains(name, "${") && id != generated && id != network || !f.e.filter.ok(name) {
		return &item{}
	}
	for key, value := range attrs {
		if value == "" && key != "default" {
			delete(attrs, key)
		}
	}
	noun := cmakeNouns[id]
	c := class{id: id, what: noun[0], plural: noun[1], category: f.e.class.category, rule: f.e.plan.rule}
	it := item{class: c, name: name, attrs: attrs, at: unit{path: f.path, ref: f.ref}.place(line)}
	f.list = append(f.list, it)
	return &f.list[len(f.list)-1]
}

var cmakeVar = regexp.MustCompile(`\$\{([A-Za-z0-9_.-]+)\}`)

// expand replaces the variables that this file has set to one literal.
func (f *cmakeFile) expand(text string) string {
	for range 4 {
		next := cmakeVar.ReplaceAllStringFunc(text, func(r string) string {
			if values := f.vars[r[2:len(r)-1]]; len(values) == 1 {
				return values[0]
			}
			return r
		})
		if next == text {
			break
		}
		text = next
	}
	return text
}

// each gives what an argument may be: one text, or each value of a variable
// that is set differently in different branches.
func (f *cmakeFile) each(text string) []string {
	if m := cmakeVar.FindStringSubmatch(text); m != nil && m[0] == text && len(f.vars[m[1]]) > 1 {
		return f.vars[m[1]]
	}
	return []string{f.expand(text)}
}

// words are arguments with variables that hold lists replaced.
func (f *cmakeFile) words(args []cmakefile.Argument) []string {
	var list []string
	for _, a := range args {
		if text := f.expand(a.Text); text != a.Text && !a.Literal && strings.Contains(text, ";") {
			list = append(list, strings.Split(text, ";")...)
			continue
		}
		list = append(list, a.Text)
	}
	return list
}

func (f *cmakeFile) command(c cmakefile.Command) {
	args := f.words(c.Args)
	line := func(i int) int {
		if i < len(c.Args) {
			return c.Args[i].Line
		}
		return c.Line
	}
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	condition := strings.Join(f.cond, " and ")
	switch c.Name {
	case "if":
		f.cond = append(f.cond, strings.Join(args, " "))
		return
	case "elseif", "else":
		if len(f.cond) > 0 {
			f.cond[len(f.cond)-1] = strings.TrimSpace("else " + strings.Join(args, " "))
		}
		return
	case "endif":
		if len(f.cond) > 0 {
			f.cond = f.cond[:len(f.cond)-1]
		}
		return
	case "option":
		value := arg(2)
		if value == "" {
			value = "OFF"
		}
		f.add(options, arg(0), line(0), map[string]string{"default": f.expand(value), "help": arg(1), "type": "BOOL"})
	case "cmake_dependent_option":
		f.add(options, arg(0), line(0), map[string]string{"default": f.expand(arg(2)), "help": arg(1), "type": "BOOL", "depends": arg(3)})
	case "set":
		f.set(args, line)
	case "find_package":
		f.findPackage(args, c.Line, condition)
	case "pkg_check_modules", "pkg_search_module":
		required := slices.Contains(args, "REQUIRED")
		for _, m := range args[min(1, len(args)):] {
			if !slices.Contains([]string{"REQUIRED", "QUIET", "IMPORTED_TARGET", "GLOBAL", "NO_CMAKE_PATH"}, m) {
				f.add(packages, m, c.Line, map[string]string{"required": yes(required), "condition": condition})
			}
		}
	case "find_library", "find_program", "find_path":
		if c.Name != "find_path" {
			f.find(c.Name, args, c.Line, condition)
		}
	case "cmake_minimum_required":
		if i := slices.Index(args, "VERSION"); i >= 0 {
			f.add(toolchain, "CMake in "+f.path, c.Line, map[string]string{"version": arg(i + 1)})
		}
	case "target_compile_features":
		for _, a := range args[min(1, len(args)):] {
			if strings.HasPrefix(a, "cxx_std_") || strings.HasPrefix(a, "c_std_") {
				lang, version, _ := strings.Cut(a, "_std_")
				f.add(toolchain, strings.ToUpper(lang)+" standard of "+f.expand(arg(0)), c.Line, map[string]string{"version": version})
			}
		}
	case "add_library", "add_executable", "add_custom_target":
		f.target(c.Name, args, c.Line, condition)
	case "add_custom_command":
		f.customCommand(args, c.Line)
	case "configure_file":
		f.add(generated, base(f.expand(arg(1))), c.Line, map[string]string{"from": base(arg(0))})
	case "file":
		switch arg(0) {
		case "DOWNLOAD":
			f.add(network, f.expand(arg(1)), c.Line, map[string]string{"by": "file(DOWNLOAD)", "condition": condition})
		case "GENERATE":
			if i := slices.Index(args, "OUTPUT"); i >= 0 {
				f.add(generated, base(f.expand(arg(i+1))), c.Line, map[string]string{})
			}
		}
	case "fetchcontent_declare", "externalproject_add":
		f.fetch(c.Name, args, c.Line, condition)
	case "target_link_libraries":
		f.links(args, c.Line, condition)
	case "execute_process", "add_test":
	default:
		// A function of the project's own that makes a target.
		if _, ok := f.e.of.match(c.Name); ok && len(args) > 0 {
			rest := slices.DeleteFunc(slices.Clone(args[1:]), sourceName.MatchString)
			f.add(targets, f.expand(args[0]), c.Line, map[string]string{"kind": c.Name, "arguments": strings.Join(rest, " "), "condition": condition})
		}
	}
	if c.Name == "execute_process" || c.Name == "add_custom_command" || c.Name == "add_custom_target" {
		f.fetcher(c.Name, args, c.Line, condition)
	}
}

// sourceName is a file that a target is made from: which ones is no contract.
var sourceName = regexp.MustCompile(`\.(c|cc|cpp|cxx|cu|cuh|h|hpp|m|mm|metal|S)$`)

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func (f *cmakeFile) set(args []string, line func(int) int) {
	if len(args) == 0 {
		return
	}
	name := args[0]
	if i := slices.Index(args, "CACHE"); i > 0 {
		if i+2 >= len(args) || args[i+1] == "INTERNAL" || args[len(args)-1] == "FORCE" {
			return // no choice of a user's
		}
		f.add(options, name, line(0), map[string]string{"default": f.expand(strings.Join(args[1:i], ";")), "type": args[i+1], "help": args[i+2]})
		return
	}
	value := strings.Join(args[1:], ";")
	if standard, ok := strings.CutPrefix(name, "CMAKE_"); ok && strings.HasSuffix(standard, "_STANDARD") {
		f.add(toolchain, strings.TrimSuffix(standard, "_STANDARD")+" standard of "+f.path, line(0), map[string]string{"version": value})
	}
	value = strings.TrimSuffix(value, ";PARENT_SCOPE")
	if len(f.cond) > 0 && len(f.vars[name]) > 0 { // one of several values
		if !slices.Contains(f.vars[name], value) {
			f.vars[name] = append(f.vars[name], value)
		}
		return
	}
	f.vars[name] = []string{value}
}

// packageWords end a list of find_package's.
var packageWords = []string{"COMPONENTS", "OPTIONAL_COMPONENTS", "REQUIRED", "QUIET", "EXACT", "CONFIG", "MODULE", "NO_MODULE", "NAMES", "HINTS", "PATHS", "NO_DEFAULT_PATH", "NO_POLICY_SCOPE", "GLOBAL"}

func (f *cmakeFile) findPackage(args []string, line int, condition string) {
	if len(args) == 0 {
		return
	}
	version := ""
	if len(args) > 1 && args[1] != "" && args[1][0] >= '0' && args[1][0] <= '9' {
		version = args[1]
	}
	var components []string
	for _, key := range []string{"COMPONENTS", "REQUIRED"} {
		i := slices.Index(args, key)
		for n := i + 1; i >= 0 && n < len(args) && !slices.Contains(packageWords, args[n]); n++ {
			if !slices.Contains(components, args[n]) {
				components = append(components, args[n])
			}
		}
	}
	slices.Sort(components)
	f.add(packages, args[0], line, map[string]string{
		"required": yes(slices.Contains(args, "REQUIRED")), "version": version,
		"components": strings.Join(components, " "), "condition": condition,
	})
}

// find is find_library or find_program: named by what is looked for.
func (f *cmakeFile) find(command string, args []string, line int, condition string) {
	if len(args) < 2 {
		return
	}
	names := args[1:2]
	if i := slices.Index(args, "NAMES"); i >= 0 {
		names = nil
		for _, n := range args[i+1:] {
			if n == strings.ToUpper(n) && strings.Contains("HINTS PATHS PATH_SUFFIXES DOC REQUIRED NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH", n) {
				break
			}
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return
	}
	id := tools
	if command == "find_library" {
		id = libraries
	}
	for _, name := range f.each(names[0]) {
		it := f.add(id, name, line, map[string]string{"required": yes(slices.Contains(args, "REQUIRED")), "condition": condition})
		it.alt = append(it.alt, names[1:]...)
	}
}

func (f *cmakeFile) target(command string, args []string, line int, condition string) {
	if len(args) == 0 {
		return
	}
	kind := map[string]string{"add_executable": "executable", "add_custom_target": "custom"}[command]
	from := ""
	for i, a := range args[1:] {
		switch a {
		case "STATIC", "SHARED", "MODULE", "OBJECT", "INTERFACE", "IMPORTED":
			if kind == "" {
				kind = strings.ToLower(a)
			}
		case "ALIAS":
			kind = "alias"
			if i+2 < len(args) {
				from = f.expand(args[i+2])
			}
		}
	}
	if kind == "" {
		kind = "library"
	}
	f.add(targets, f.expand(args[0]), line, map[string]string{"kind": kind, "alias": from, "condition": condition})
}

func (f *cmakeFile) customCommand(args []string, line int) {
	i := slices.Index(args, "OUTPUT")
	if i < 0 {
		return
	}
	tool := ""
	if k := slices.Index(args, "COMMAND"); k >= 0 && k+1 < len(args) {
		tool = base(f.expand(args[k+1]))
	}
	for _, out := range args[i+1:] {
		if out == strings.ToUpper(out) && !strings.ContainsAny(out, "./$") {
			break
		}
		f.add(generated, base(f.expand(out)), line, map[string]string{"made_by": tool})
	}
}

func (f *cmakeFile) fetch(command string, args []string, line int, condition string) {
	if len(args) == 0 {
		return
	}
	value := func(key string) string {
		if i := slices.Index(args, key); i >= 0 && i+1 < len(args) {
			return f.expand(args[i+1])
		}
		return ""
	}
	by := "FetchContent"
	if command == "externalproject_add" {
		by = "ExternalProject"
	}
	if value("URL") == "" && value("GIT_REPOSITORY") == "" {
		if value("SOURCE_DIR") != "" {
			return // a folder that is there already
		}
	}
	f.add(network, args[0], line, map[string]string{
		"by": by, "url": value("URL") + value("GIT_REPOSITORY"), "tag": value("GIT_TAG"), "condition": condition,
	})
}

// Programs that go to the network, or run what does.
var fetchers = []string{"git", "curl", "wget", "npm", "npx", "pip", "pip3", "cargo", "go"}

func (f *cmakeFile) fetcher(command string, args []string, line int, condition string) {
	for i, a := range args {
		if a != "COMMAND" || i+1 >= len(args) {
			continue
		}
		program := base(f.expand(args[i+1]))
		if m := regexp.MustCompile(`^\$\{([A-Z]+)_(?:EXECUTABLE|PROGRAM)\}$`).FindStringSubmatch(program); m != nil {
			program = strings.ToLower(m[1])
		}
		if !slices.Contains(fetchers, program) || program == "git" && !slices.Contains(args, "clone") && !slices.Contains(args, "fetch") {
			continue
		}
		what := ""
		if i+2 < len(args) {
			what = " " + args[i+2]
		}
		f.add(network, program+what, line, map[string]string{"by": command, "condition": condition})
	}
}

var linkWords = []string{"PRIVATE", "PUBLIC", "INTERFACE", "LINK_PRIVATE", "LINK_PUBLIC", "debug", "optimized", "general"}

// links are libraries that are linked by name. Those that are targets are
// taken out when every file was read.
func (f *cmakeFile) links(args []string, line int, condition string) {
	if len(args) == 0 {
		return
	}
	for _, a := range args[1:] {
		a = f.expand(a)
		if slices.Contains(linkWords, a) || strings.ContainsAny(a, "$ <>()/") || a == "" {
			continue
		}
		f.add(libraries, a, line, map[string]string{"linked": "yes", "condition": condition})
	}
}

// countRequired sets required to how often a package is, so that a second call
// that became REQUIRED is seen beside one that was before.
func countRequired(items []item) []item {
	count := map[string]int{}
	for _, it := range items {
		if it.attrs["required"] != "" {
			count[it.identity()]++
		}
	}
	for _, it := range items {
		if n := count[it.identity()]; n > 0 {
			it.attrs["required"] = strconv.Itoa(n)
		}
	}
	return items
}

// withoutTargets takes out the linked libraries that the project makes itself,
// and imported targets of packages, which are found as such.
func withoutTargets(items []item) []item {
	own := map[string]bool{}
	for _, it := range items {
		if it.class.id == targets {
			own[it.name] = true
		}
	}
	return slices.DeleteFunc(items, func(it item) bool {
		return it.attrs["linked"] != "" && (own[it.name] || strings.Contains(it.name, "::"))
	})
}
