package adopt

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// command is one call in a CMake file.
type command struct {
	name string // lower case
	line int
	args []argument
}

// argument is a word of a call, as it is written, without its quotes.
type argument struct {
	text    string
	line    int
	literal bool // a bracket argument, in which nothing is replaced
}

// scanner reads CMake's grammar: calls, comments, and three kinds of words.
type scanner struct {
	text string
	pos  int
	line int
}

var bracketOpen = regexp.MustCompile(`^\[(=*)\[`)

// commands reads a CMake file. What was read before a fault is returned too.
func commands(text string) ([]command, error) {
	s := &scanner{text: text, line: 1}
	var list []command
	for {
		s.space()
		if s.pos == len(s.text) {
			return list, nil
		}
		c := command{line: s.line, name: strings.ToLower(s.while(isName))}
		s.space()
		if c.name == "" || !s.take('(') {
			return list, fmt.Errorf("line %d is not CMake: a command and its arguments are wanted", c.line)
		}
		var err error
		if c.args, err = s.arguments(); err != nil {
			return list, fmt.Errorf("line %d: %s: %w", c.line, c.name, err)
		}
		list = append(list, c)
	}
}

func isName(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

func (s *scanner) advance(n int) string {
	part := s.text[s.pos : s.pos+n]
	s.pos += n
	s.line += strings.Count(part, "\n")
	return part
}

func (s *scanner) take(b byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == b {
		s.advance(1)
		return true
	}
	return false
}

func (s *scanner) while(ok func(byte) bool) string {
	n := s.pos
	for n < len(s.text) && ok(s.text[n]) {
		n++
	}
	return s.advance(n - s.pos)
}

// space passes over white space and comments.
func (s *scanner) space() {
	for {
		s.while(func(b byte) bool { return strings.IndexByte(" \t\r\n", b) >= 0 })
		if !s.take('#') {
			return
		}
		if _, ok := s.bracket(); !ok {
			s.while(func(b byte) bool { return b != '\n' })
		}
	}
}

// bracket reads [[text]] or [==[text]==].
func (s *scanner) bracket() (string, bool) {
	m := bracketOpen.FindStringSubmatch(s.text[s.pos:])
	if m == nil {
		return "", false
	}
	body, _, closed := strings.Cut(s.text[s.pos+len(m[0]):], "]"+m[1]+"]")
	if !closed {
		return "", false
	}
	s.advance(2*len(m[0]) + len(body))
	return strings.TrimPrefix(body, "\n"), true
}

func (s *scanner) arguments() ([]argument, error) {
	var args []argument
	for depth := 1; ; {
		s.space()
		a := argument{line: s.line}
		switch {
		case s.pos == len(s.text):
			return nil, errors.New("its closing parenthesis is missing")
		case s.take('('):
			depth++
			a.text = "("
		case s.take(')'):
			if depth--; depth == 0 {
				return args, nil
			}
			a.text = ")"
		case s.take('"'):
			text, ok := s.quoted()
			if !ok {
				return nil, errors.New("a quote is not closed")
			}
			a.text = text
		default:
			if a.text, a.literal = s.bracket(); !a.literal {
				var ok bool
				if a.text, ok = s.word(); !ok {
					return nil, errors.New("a quote is not closed")
				}
			}
		}
		args = append(args, a)
	}
}

// quoted reads to the closing quote; a backslash before a line's end joins lines.
func (s *scanner) quoted() (string, bool) {
	var b strings.Builder
	for s.pos < len(s.text) {
		switch {
		case s.take('"'):
			return b.String(), true
		case s.take('\\'):
			if s.pos < len(s.text) && s.text[s.pos] != '\n' {
				b.WriteString(unescape(s.advance(1)))
			} else {
				s.take('\n')
			}
		default:
			b.WriteString(s.advance(1))
		}
	}
	return "", false
}

// word reads an argument without quotes around it; -DA="b c" has some inside.
func (s *scanner) word() (string, bool) {
	var b strings.Builder
	for s.pos < len(s.text) && strings.IndexByte(" \t\r\n()#", s.text[s.pos]) < 0 {
		switch {
		case s.take('"'):
			inner, ok := s.quoted()
			if !ok {
				return "", false
			}
			b.WriteString(inner)
		case s.take('\\'):
			if s.pos < len(s.text) {
				b.WriteString(unescape(s.advance(1)))
			}
		default:
			b.WriteString(s.advance(1))
		}
	}
	return b.String(), true
}

func unescape(c string) string {
	switch c {
	case "n":
		return "\n"
	case "t":
		return "\t"
	case "r":
		return "\r"
	case ";":
		return `\;`
	}
	return c
}

// variables are those of one file that have one literal value.
type variables struct {
	value map[string]string
	open  map[string]bool // set in a way, or to several values, that only CMake could tell
}

// These write to a variable that one of their arguments names.
var writers = []string{"string", "list", "file", "math", "execute_process", "get_filename_component", "cmake_path", "foreach", "unset", "option", "find_program", "find_file", "find_path", "function", "macro", "cmake_parse_arguments"}

func (v *variables) learn(c command) {
	switch {
	case c.name == "set" && len(c.args) > 0:
		name := c.args[0].text
		value, ok := "", true
		for i, a := range c.args[1:] {
			if !a.literal && (a.text == "CACHE" || a.text == "PARENT_SCOPE") {
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
	case slices.Contains(writers, c.name):
		for _, a := range c.args {
			v.open[a.text] = true
		}
	}
}

var reference = regexp.MustCompile(`\$\{[A-Za-z0-9_./+-]+\}`)

// expand replaces the variables of an argument. missing names what is left.
func (v *variables) expand(a argument) (text, missing string) {
	if a.literal {
		return a.text, ""
	}
	text = reference.ReplaceAllStringFunc(a.text, func(r string) string {
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
	list, err := commands(text)
	declares := func(c command) bool {
		return c.name == "fetchcontent_declare" || c.name == "externalproject_add"
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
		if pinName.MatchString(setName(c)) && len(c.args) > 1 {
			// LIB_VERSION of set(LIB_VERSION b123), for an upstream that is named elsewhere.
			if value, missing := v.expand(c.args[1]); missing == "" {
				value = lowerID(value)
				f.pins = append(f.pins, pinned{
					variable: pinName.FindStringSubmatch(setName(c))[1], ref: value, why: refProblem(value),
					at: Where{Path: name, Line: c.line}, sure: sureRef.MatchString(value),
				})
			}
		}
	}
	for _, c := range list {
		if declares(c) && len(c.args) > 1 {
			f.declare(name, c, v)
		}
	}
}

func setName(c command) string {
	if c.name != "set" || len(c.args) == 0 {
		return ""
	}
	return c.args[0].text
}

// declare reads one declaration.
func (f *finder) declare(name string, c command, v *variables) {
	d := declaration{at: Where{Path: name, Line: c.line}}
	given := map[string]string{}
	unresolved := map[string]string{}
	key := ""
	for _, a := range c.args[1:] {
		if !a.literal && keyword.MatchString(a.text) {
			key = a.text
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
