// Package scan reads C, C++ and Python far enough to find named things in them:
// tokens without comments, matching brackets, the function that a token lies
// in, declarations, fields, enum members. It needs no compiler, no headers and
// no definitions of macros, and it never fails: of text that it can't follow it
// finds less.
package scan

import (
	"strings"
)

// Kind is a kind of token.
type Kind uint8

// The kinds.
const (
	Ident Kind = iota
	Number
	String
	Char
	Punct
	Directive // a whole preprocessor line, continuations joined
)

// Token is one word of a source file.
type Token struct {
	Kind Kind
	Text string // of a string: its value, escapes resolved
	Line int    // from 1
	Col  int    // of the first byte in its line, from 0
}

// Is says whether the token is this punctuation mark or word.
func (t Token) Is(text string) bool { return t.Text == text && t.Kind != String && t.Kind != Char }

// Language says how a file is read.
type Language uint8

// The languages.
const (
	C Language = iota // and C++, CUDA, Metal, Objective-C
	Python
)

// LanguageOf tells a language by a file's name; C where it can't be told.
func LanguageOf(path string) Language {
	if strings.HasSuffix(path, ".py") {
		return Python
	}
	return C
}

// lexer cuts text into tokens.
type lexer struct {
	text   string
	lang   Language
	pos    int
	line   int
	start  int // of the current line
	tokens []Token
	open   []byte // brackets that are open
	ifs    []branch
	left   int // how many of them are skipped

	comments [][2]int // offsets
}

// branch is a preprocessor condition that is open.
type branch struct {
	depth   int // of brackets when it began
	skipped bool
}

func lex(text string, lang Language) []Token {
	l := &lexer{text: text, lang: lang, line: 1}
	l.tokens = make([]Token, 0, len(text)/5)
	for l.pos < len(l.text) {
		l.next()
	}
	return l.tokens
}

// WithoutComments blanks the comments of a source file; lines stay where they
// are.
func WithoutComments(path, text string) string {
	l := &lexer{text: text, lang: LanguageOf(path), line: 1}
	for l.pos < len(l.text) {
		l.next()
	}
	out := []byte(text)
	for _, c := range l.comments {
		for i := c[0]; i < c[1]; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	return string(out)
}

// skipping says whether the text lies in a branch that is left out.
func (l *lexer) skipping() bool { return l.left > 0 }

// skip sets whether the innermost branch is left out.
func (l *lexer) skip(out bool) {
	b := &l.ifs[len(l.ifs)-1]
	if out && !b.skipped {
		l.left++
	} else if !out && b.skipped {
		l.left--
	}
	b.skipped = out
}

func (l *lexer) advance(n int) {
	for i := l.pos; i < l.pos+n; i++ {
		if l.text[i] == '\n' {
			l.line++
			l.start = i + 1
		}
	}
	l.pos += n
}

func (l *lexer) comment(n int) {
	l.comments = append(l.comments, [2]int{l.pos, l.pos + n})
	l.advance(n)
}

func (l *lexer) emit(kind Kind, text string, line, col int) {
	if l.skipping() && kind != Directive {
		return
	}
	l.tokens = append(l.tokens, Token{Kind: kind, Text: text, Line: line, Col: col})
}

func (l *lexer) rest() string { return l.text[l.pos:] }

func isWord(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}

func (l *lexer) next() {
	c := l.text[l.pos]
	line, col := l.line, l.pos-l.start
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f':
		l.advance(1)
	case c == '\\' && l.pos+1 < len(l.text):
		l.advance(2)
	case l.lang == C && strings.HasPrefix(l.rest(), "//"):
		l.comment(l.lineEnd(true))
	case l.lang == C && strings.HasPrefix(l.rest(), "/*"):
		end := strings.Index(l.rest()[2:], "*/")
		if end < 0 {
			l.comment(len(l.rest()))
			return
		}
		l.comment(end + 4)
	case l.lang == Python && c == '#':
		l.comment(l.lineEnd(false))
	case l.lang == C && c == '#' && strings.TrimSpace(l.text[l.start:l.pos]) == "":
		n := l.lineEnd(true)
		text := strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(l.rest()[:n], "\\\r\n", " "), "\\\n", " "))
		l.advance(n)
		l.directive(text, line, col)
	case c == '"' || c == '\'' && l.lang == Python:
		l.quoted(false, line, col)
	case c == '\'':
		l.quoted(false, line, col)
	case c >= '0' && c <= '9' || c == '.' && l.pos+1 < len(l.text) && l.text[l.pos+1] >= '0' && l.text[l.pos+1] <= '9':
		n := 1
		for r := l.rest(); n < len(r) && (isWord(r[n]) || r[n] == '.' || r[n] == '\'' && l.lang == C && n+1 < len(r) && isWord(r[n+1]) ||
			(r[n] == '+' || r[n] == '-') && strings.IndexByte("eEpP", r[n-1]) >= 0 && !strings.HasPrefix(r, "0x")); {
			n++
		}
		l.emit(Number, l.rest()[:n], line, col)
		l.advance(n)
	case isWord(c):
		n := 1
		for r := l.rest(); n < len(r) && isWord(r[n]); {
			n++
		}
		word := l.rest()[:n]
		if n < len(l.rest()) && (l.rest()[n] == '"' || l.lang == Python && l.rest()[n] == '\'') && isPrefix(word, l.lang) {
			l.advance(n)
			l.quoted(strings.ContainsAny(word, "rR"), line, col)
			return
		}
		l.emit(Ident, word, line, col)
		l.advance(n)
	default:
		l.punct(line, col)
	}
}

func isPrefix(word string, lang Language) bool {
	if lang == Python {
		return len(word) <= 2 && strings.Trim(word, "rRbBfFuU") == ""
	}
	switch word {
	case "R", "L", "u", "U", "u8", "LR", "uR", "UR", "u8R":
		return true
	}
	return false
}

// lineEnd is how many bytes are left of the line; with continued, a backslash
// before its end joins the next one.
func (l *lexer) lineEnd(continued bool) int {
	r := l.rest()
	for n := 0; ; {
		i := strings.IndexByte(r[n:], '\n')
		if i < 0 {
			return len(r)
		}
		n += i
		if !continued || !strings.HasSuffix(strings.TrimSuffix(r[:n], "\r"), "\\") {
			return n
		}
		n++
	}
}

var two = []string{"::", "->", "==", "!=", "<=", ">=", "&&", "||", "<<", "+=", "-=", "*=", "/=", "|=", "&=", "++", "--"}

func (l *lexer) punct(line, col int) {
	r := l.rest()
	n := 1
	for _, p := range two {
		if strings.HasPrefix(r, p) {
			n = 2
		}
	}
	if !l.skipping() {
		switch r[0] {
		case '(', '[', '{':
			l.open = append(l.open, r[0])
		case ')', ']', '}':
			if len(l.open) > 0 {
				l.open = l.open[:len(l.open)-1]
			}
		}
	}
	l.emit(Punct, r[:n], line, col)
	l.advance(n)
}

// directive keeps the conditions: "#if 0" leaves its text out, and so does an
// alternative whose first branch opened brackets that it did not close, since
// both would close only once.
func (l *lexer) directive(text string, line, col int) {
	word, arg, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(text, "#")), " ")
	switch word {
	case "if", "ifdef", "ifndef":
		l.ifs = append(l.ifs, branch{depth: len(l.open)})
		l.skip(word == "if" && strings.TrimSpace(arg) == "0")
	case "else", "elif":
		if len(l.ifs) > 0 {
			b := l.ifs[len(l.ifs)-1]
			l.skip(!b.skipped && len(l.open) != b.depth)
		}
	case "endif":
		if len(l.ifs) > 0 {
			l.skip(false)
			l.ifs = l.ifs[:len(l.ifs)-1]
		}
	default:
		if !l.skipping() {
			l.emit(Directive, text, line, col)
		}
	}
}

// quoted reads a string or a character constant, raw or not.
func (l *lexer) quoted(raw bool, line, col int) {
	r := l.rest()
	quote := r[0]
	if l.lang == Python && len(r) >= 3 && r[1] == quote && r[2] == quote {
		end := strings.Index(r[3:], r[:3])
		if end < 0 {
			l.advance(len(r))
			return
		}
		l.emit(String, r[3:3+end], line, col)
		l.advance(end + 6)
		return
	}
	if raw && l.lang == C {
		open := strings.IndexByte(r, '(')
		if open < 0 || open > 18 {
			l.advance(1)
			return
		}
		closing := ")" + r[1:open] + "\""
		end := strings.Index(r[open:], closing)
		if end < 0 {
			l.advance(len(r))
			return
		}
		l.emit(String, r[open+1:open+end], line, col)
		l.advance(open + end + len(closing))
		return
	}
	var b strings.Builder
	n := 1
	for n < len(r) && r[n] != quote && r[n] != '\n' {
		if r[n] == '\\' && n+1 < len(r) {
			n++
			if raw {
				b.WriteByte('\\')
			}
			b.WriteString(unescape(r[n], raw))
		} else {
			b.WriteByte(r[n])
		}
		n++
	}
	if n < len(r) && r[n] == quote {
		n++
	}
	kind := String
	if quote == '\'' && l.lang == C {
		kind = Char
	}
	l.emit(kind, b.String(), line, col)
	l.advance(n)
}

func unescape(c byte, raw bool) string {
	if raw {
		return string(c)
	}
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case '\n':
		return ""
	case '\\', '"', '\'', '?':
		return string(c)
	}
	return "\\" + string(c)
}
