package patch

import (
	"path"
	"regexp"
	"strings"
)

// language says which lines of a file head a function.
type language struct {
	// heads are the rules of git's diff drivers that may have made the text
	// after a hunk's second @@; the last is git's rule for files without one.
	heads []func(string) bool
	// function is the stricter rule by which two places are compared: it
	// leaves out declarations, which come and go between functions.
	function func(string) bool
}

var (
	anyHead    = regexp.MustCompile(`^[A-Za-z_$]`)
	cHead      = regexp.MustCompile(`^(::\s*)?[A-Za-z_]`)
	cLabel     = regexp.MustCompile(`^[ \t]*[A-Za-z_][A-Za-z_0-9]*:\s*($|/[/*])`)
	pythonHead = regexp.MustCompile(`^[ \t]*(class|(async[ \t]+)?def)[ \t]`)
	objcHead   = regexp.MustCompile(`^[ \t]*[-+][ \t]*\([^)]*\)[ \t]*[A-Za-z_]|^@(implementation|interface|protocol)[ \t]|^[ \t]*([A-Za-z_]\w*[ \t]+)+[A-Za-z_]\w*[ \t]*\([^;]*$`)
	objcNot    = regexp.MustCompile(`^[ \t]*(do|for|if|else|return|switch|while)\b`)
	goHead     = regexp.MustCompile(`^[ \t]*(func[ \t]|type[ \t].*(struct|interface)\s*\{)`)
	rustHead   = regexp.MustCompile(`^[ \t]*(pub(\([^)]*\))?[ \t]+)?((async|const|unsafe|extern([ \t]+"[^"]+"))[ \t]+)*(struct|enum|union|mod|trait|fn|impl|macro_rules!)[< \t]`)
)

func cHeading(line string) bool { return !cLabel.MatchString(line) && cHead.MatchString(line) }

func objcHeading(line string) bool { return !objcNot.MatchString(line) && objcHead.MatchString(line) }

// opens leaves out lines that end in a semicolon, and blocks that hold
// functions rather than being one.
func opens(head func(string) bool) func(string) bool {
	return func(line string) bool {
		text := strings.TrimSpace(line)
		return head(line) && !strings.HasSuffix(text, ";") && !strings.HasPrefix(text, `extern "C"`) && !strings.HasPrefix(text, "using ")
	}
}

func languageOf(head func(string) bool) *language {
	return &language{heads: []func(string) bool{head, anyHead.MatchString}, function: opens(head)}
}

var (
	langC      = languageOf(cHeading)
	langObjC   = &language{heads: []func(string) bool{objcHeading, cHeading, anyHead.MatchString}, function: opens(func(l string) bool { return objcHeading(l) || cHeading(l) })}
	langPython = languageOf(pythonHead.MatchString)
	langGo     = languageOf(goHead.MatchString)
	langRust   = languageOf(rustHead.MatchString)
	langAny    = languageOf(anyHead.MatchString)
)

var languages = map[string]*language{
	".c": langC, ".cc": langC, ".cpp": langC, ".cxx": langC, ".cu": langC, ".cuh": langC, ".h": langC, ".hh": langC, ".hpp": langC, ".inc": langC,
	".metal": langC, ".cl": langC, ".comp": langC, ".glsl": langC, ".wgsl": langC, ".hip": langC, ".java": langC, ".js": langC, ".ts": langC, ".swift": langC,
	".m": langObjC, ".mm": langObjC,
	".py": langPython, ".pyi": langPython, ".go": langGo, ".rs": langRust,
	// No functions in these: every line in the first column would be a heading.
	".txt": nil, ".cmake": nil, ".in": nil, ".md": nil, ".rst": nil, ".json": nil, ".yaml": nil, ".yml": nil, ".toml": nil, ".cfg": nil, ".ini": nil, ".xml": nil, ".html": nil, ".css": nil, ".csv": nil, "": nil,
}

// languageFor is nil for a file without functions.
func languageFor(file string) *language {
	lang, known := languages[strings.ToLower(path.Ext(file))]
	if !known {
		return langAny
	}
	return lang
}

// heading is the index of the nearest line above at for which is holds, or -1.
func heading(lines []string, at int, is func(string) bool) int {
	for i := min(at, len(lines)) - 1; i >= 0; i-- {
		if is(lines[i]) {
			return i
		}
	}
	return -1
}

// headText is the line at i as messages and comparisons show it.
func headText(lines []string, i int) string {
	if i < 0 {
		return ""
	}
	return strings.TrimSpace(lines[i])
}

// sectionLimit is where git cuts the text after a hunk's second @@.
const sectionLimit = 80

func sameSection(section, line string) bool {
	line = strings.TrimSpace(line)
	if len(section) >= sectionLimit-3 {
		return strings.HasPrefix(line, section)
	}
	return line == section
}

// inSection says whether a hunk that begins at line at lies below the heading
// that the patch names.
func (l *language) inSection(section string, lines []string, at int) bool {
	for _, is := range l.heads {
		if i := heading(lines, at, is); i >= 0 && sameSection(section, lines[i]) {
			return true
		}
	}
	for i := min(at, len(lines)) - 1; i >= 0; i-- {
		if sameSection(section, lines[i]) {
			return true
		}
		if l.function(lines[i]) {
			return false
		}
	}
	return false
}

// sameFunction says whether line i of a and line j of b lie in the same
// function, where to maps lines of a to lines of b. A function whose heading
// was rewritten in its place is the same one, unless either heading also
// stands in the other file: then it is another function that came to lie there.
func (l *language) sameFunction(a []string, i int, b []string, j int, to []int) bool {
	ha, hb := heading(a, i, l.function), heading(b, j, l.function)
	switch {
	case ha < 0 || hb < 0:
		return ha == hb
	case to[ha] == hb:
		return true
	case to[ha] >= 0:
		return false
	}
	ta, tb := headText(a, ha), headText(b, hb)
	if ta == tb {
		return l.count(a, ta) == 1 && l.count(b, tb) == 1
	}
	for _, t := range to {
		if t == hb {
			return false
		}
	}
	return l.count(b, ta) == 0 && l.count(a, tb) == 0
}

// count is how many functions have that heading.
func (l *language) count(lines []string, text string) int {
	n := 0
	for i, line := range lines {
		if l.function(line) && headText(lines, i) == text {
			n++
		}
	}
	return n
}
