// Package cmakefile reads the grammar of CMake files: calls and their arguments,
// without running anything. It knows no command's meaning.
package cmakefile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Command is one call in a CMake file.
type Command struct {
	Name string // lower case
	Line int
	Args []Argument
}

// Argument is a word of a call, as it is written, without its quotes.
type Argument struct {
	Text    string
	Line    int
	Literal bool // a bracket argument, in which nothing is replaced
}

// scanner reads CMake's grammar: calls, comments, and three kinds of words.
type scanner struct {
	text string
	pos  int
	line int
}

var bracketOpen = regexp.MustCompile(`^\[(=*)\[`)

// Parse reads a CMake file. What was read before a fault is returned too.
func Parse(text string) ([]Command, error) {
	s := &scanner{text: text, line: 1}
	var list []Command
	for {
		s.space()
		if s.pos == len(s.text) {
			return list, nil
		}
		c := Command{Line: s.line, Name: strings.ToLower(s.while(isName))}
		s.space()
		if c.Name == "" || !s.take('(') {
			return list, fmt.Errorf("line %d is not CMake: a command and its arguments are wanted", c.Line)
		}
		var err error
		if c.Args, err = s.arguments(); err != nil {
			return list, fmt.Errorf("line %d: %s: %w", c.Line, c.Name, err)
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

func (s *scanner) arguments() ([]Argument, error) {
	var args []Argument
	for depth := 1; ; {
		s.space()
		a := Argument{Line: s.line}
		switch {
		case s.pos == len(s.text):
			return nil, errors.New("its closing parenthesis is missing")
		case s.take('('):
			depth++
			a.Text = "("
		case s.take(')'):
			if depth--; depth == 0 {
				return args, nil
			}
			a.Text = ")"
		case s.take('"'):
			text, ok := s.quoted()
			if !ok {
				return nil, errors.New("a quote is not closed")
			}
			a.Text = text
		default:
			if a.Text, a.Literal = s.bracket(); !a.Literal {
				var ok bool
				if a.Text, ok = s.word(); !ok {
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
