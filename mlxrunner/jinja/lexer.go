package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind int

const (
	text  kind = iota // between tags
	begin             // {% or {{
	end               // %} or }}
	name
	operator
	str
	integer
	float
	eof
)

type token struct {
	kind kind
	text string // of a string, what it stands for
	line int
}

// lexer cuts a template into tokens. White space beside tags goes as Jinja2
// takes it with trim_blocks and lstrip_blocks: the newline after a tag of a
// statement or a comment, and the indentation before it when it is first on its
// line. A minus takes all of it, a plus nothing.
type lexer struct {
	in   string
	at   int
	line int
	out  []token
	// startsLine says whether what comes begins a line.
	startsLine bool
}

func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{in: strings.TrimSuffix(source, "\n"), line: 1, startsLine: true}
	for l.at < len(l.in) {
		l.next()
	}
	l.put(eof, "")
	return l.out
}

func (l *lexer) put(k kind, text string) { l.out = append(l.out, token{k, text, l.line}) }

// fail names the line.
func (l *lexer) fail(format string, args ...any) {
	defer atLine(l.line)
	fail(format, args...)
}

// atLine, deferred, gives a fault without a line this one.
func atLine(line int) {
	if r := recover(); r != nil {
		if e, ok := r.(*Error); ok && e.Line == 0 {
			e.Line = line
		}
		panic(r)
	}
}

// next takes the text up to a tag, and the tag.
func (l *lexer) next() {
	rest := l.in[l.at:]
	open := nextTag(rest)
	if open < 0 {
		l.data(rest)
		l.at = len(l.in)
		return
	}
	before, tag := rest[:open], rest[open:open+2]
	sign := byte(0)
	if open+2 < len(rest) && (rest[open+2] == '-' || rest[open+2] == '+') {
		sign = rest[open+2]
	}
	before = l.before(before, sign, tag != "{{")
	l.data(before)
	l.line += strings.Count(rest[len(before):open], "\n")
	l.at += open + 2
	if sign != 0 {
		l.at++
	}
	switch tag {
	case "{#":
		l.comment()
	case "{%":
		if !l.raw() {
			l.put(begin, tag)
			l.inside("%}")
		}
	default:
		l.put(begin, tag)
		l.inside("}}")
	}
}

// before is what stays of the text before a tag.
func (l *lexer) before(text string, sign byte, statement bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, unicode.IsSpace)
	}
	lineStart := strings.LastIndexByte(text, '\n') + 1
	indented := (lineStart > 0 || l.startsLine) && strings.Trim(text[lineStart:], " \t\v\f") == ""
	if statement && sign != '+' && indented {
		return text[:lineStart]
	}
	return text
}

func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '%' || s[i+1] == '{' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

func (l *lexer) data(s string) {
	if s != "" {
		l.put(text, s)
		l.line += strings.Count(s, "\n")
	}
}

func (l *lexer) comment() {
	i := strings.Index(l.in[l.at:], "#}")
	if i < 0 {
		l.fail("a comment has no end")
	}
	body := l.in[l.at : l.at+i]
	l.line += strings.Count(body, "\n")
	l.at += i + 2
	l.after(strings.HasSuffix(body, "-"), strings.HasSuffix(body, "+"), true)
}

// after takes the white space behind a tag.
func (l *lexer) after(minus, plus, statement bool) {
	rest := l.in[l.at:]
	taken := 0
	switch {
	case minus:
		taken = len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace))
	case statement && !plus && strings.HasPrefix(rest, "\n"):
		taken = 1
	}
	l.line += strings.Count(rest[:taken], "\n")
	l.at += taken
	l.startsLine = taken > 0 && rest[taken-1] == '\n'
}

// raw takes {% raw %} and what it holds, as text.
func (l *lexer) raw() bool {
	if !isTag(l.in[l.at:], "raw") {
		return false
	}
	i := strings.Index(l.in[l.at:], "%}")
	minus := l.in[l.at+i-1] == '-'
	l.at += i + 2
	l.after(minus, false, true)
	for i := l.at; ; i += 2 {
		j := strings.Index(l.in[i:], "{%")
		if j < 0 {
			l.fail("raw has no endraw")
		}
		i += j
		if isTag(strings.TrimLeft(l.in[i+2:], "-+"), "endraw") {
			body := l.in[l.at:i]
			kept := l.before(body, l.in[i+2], true)
			l.data(kept)
			l.line += strings.Count(body[len(kept):], "\n")
			close := strings.Index(l.in[i:], "%}")
			minus := l.in[i+close-1] == '-'
			l.at = i + close + 2
			l.after(minus, false, true)
			return true
		}
	}
}

func isTag(s, word string) bool {
	end := strings.Index(s, "%}")
	return end >= 0 && strings.TrimSpace(strings.TrimRight(s[:end], "-+")) == word
}

var otherBase = regexp.MustCompile(`^0([xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)`)

// Longest first.
var operators = []string{
	"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(", ")", "[", "]", "{", "}",
	"<", ">", "=", ".", ":", "|", ",", ";",
}

// inside cuts the inside of a tag, up to its end.
func (l *lexer) inside(closing string) {
	depth := 0 // a dictionary's brace may stand before the end of a tag
	for l.at < len(l.in) {
		rest := l.in[l.at:]
		c := rest[0]
		minus := (c == '-' || c == '+') && strings.HasPrefix(rest[1:], closing)
		switch {
		case c == '\n':
			l.line++
			l.at++
		case c == ' ', c == '\t', c == '\v', c == '\f':
			l.at++
		case depth == 0 && (minus || strings.HasPrefix(rest, closing)):
			l.put(end, closing)
			l.at += len(closing)
			if minus {
				l.at++
			}
			l.after(minus && c == '-', minus && c == '+', closing == "%}")
			return
		case c == '\'' || c == '"':
			l.quoted(c)
		case c >= '0' && c <= '9':
			l.number()
		case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf:
			word := strings.TrimLeftFunc(rest, func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) })
			if len(word) == len(rest) {
				l.fail("unexpected %.8q", rest)
			}
			l.put(name, rest[:len(rest)-len(word)])
			l.at += len(rest) - len(word)
		default:
			depth += l.operator(rest)
		}
	}
	l.fail("a tag has no %s", closing)
}

// operator takes one and says by how much it deepens the nesting of brackets.
func (l *lexer) operator(rest string) int {
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		l.put(operator, op)
		l.at += len(op)
		switch op {
		case "(", "[", "{":
			return 1
		case ")", "]", "}":
			return -1
		}
		return 0
	}
	l.fail("unexpected %.8q", rest)
	return 0
}

func (l *lexer) number() {
	rest := l.in[l.at:]
	if m := otherBase.FindString(rest); m != "" {
		l.put(integer, strings.ReplaceAll(m, "_", ""))
		l.at += len(m)
		return
	}
	n := len(rest) - len(strings.TrimLeft(rest, "0123456789_"))
	k := integer
	if n+1 < len(rest) && rest[n] == '.' && rest[n+1] >= '0' && rest[n+1] <= '9' {
		k = float
		n++
		n += len(rest[n:]) - len(strings.TrimLeft(rest[n:], "0123456789_"))
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		m := n + 1
		if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
			m++
		}
		if digits := len(rest[m:]) - len(strings.TrimLeft(rest[m:], "0123456789")); digits > 0 {
			k = float
			n = m + digits
		}
	}
	l.put(k, strings.ReplaceAll(rest[:n], "_", ""))
	l.at += n
}

func (l *lexer) quoted(quote byte) {
	var out strings.Builder
	line := l.line
	for i := l.at + 1; i < len(l.in); i++ {
		switch c := l.in[i]; c {
		case quote:
			l.at = i + 1
			l.out = append(l.out, token{str, out.String(), line})
			return
		case '\\':
			i += l.escape(l.in[i+1:], &out)
		default:
			if c == '\n' {
				l.line++
			}
			out.WriteByte(c)
		}
	}
	l.fail("a string has no end")
}

var escapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': "",
}

// escape writes what stands for the characters after a backslash, and says how
// many they are.
func (l *lexer) escape(rest string, out *strings.Builder) int {
	if rest == "" {
		l.fail("a string has no end")
	}
	if with, ok := escapes[rest[0]]; ok {
		out.WriteString(with)
		return 1
	}
	if rest[0] >= '0' && rest[0] <= '7' {
		n := 1
		for n < min(3, len(rest)) && rest[n] >= '0' && rest[n] <= '7' {
			n++
		}
		value, _ := strconv.ParseUint(rest[:n], 8, 16)
		out.WriteRune(rune(value))
		return n
	}
	if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[rest[0]]; digits > 0 {
		if len(rest) <= digits {
			l.fail("a string has no end")
		}
		value, err := strconv.ParseUint(rest[1:1+digits], 16, 32)
		if err != nil {
			l.fail("\\%s is not a character", rest[:1+digits])
		}
		out.WriteRune(rune(value))
		return 1 + digits
	}
	// Python keeps a backslash that escapes nothing.
	_, n := utf8.DecodeRuneInString(rest)
	out.WriteString("\\" + rest[:n])
	return n
}
