package constrain

import (
	"strings"
	"unicode/utf8"
)

// spaces is what \s is in ECMA-262, written for Go, where it is ASCII alone.
const spaces = `\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`

// ecma writes an expression of ECMA-262, as "pattern" has it, in Go's syntax,
// where one text means different things. What Go lacks altogether its parser
// refuses.
func ecma(expr, pointer string) string {
	refuse := func(what, why string) {
		panic(refusal{&UnsupportedError{Feature: what, Pointer: pointer, Why: why}})
	}
	var out strings.Builder
	inClass := false
	for i := 0; i < len(expr); {
		r, n := utf8.DecodeRuneInString(expr[i:])
		rest := expr[i:]
		switch {
		case r == '\\' && len(rest) > 1:
			n = ecmaEscape(&out, rest, inClass, refuse)
		case inClass:
			if strings.HasPrefix(rest, "[:") {
				out.WriteString(`\[`) // a character among others there
				break
			}
			inClass = r != ']'
			out.WriteString(rest[:n])
		case r == '[':
			inClass = true
			if strings.HasPrefix(rest, "[]") || strings.HasPrefix(rest, "[^]") {
				refuse(rest[:strings.IndexByte(rest, ']')+1], "an empty class is no class in Go")
			}
			out.WriteString("[")
		case r == '.':
			out.WriteString(`[^\n\r\x{2028}\x{2029}]`)
		case strings.HasPrefix(rest, "(?") && !strings.HasPrefix(rest, "(?:") && !namedGroup(rest):
			refuse(rest[:min(3, len(rest))], "the expressions of Go (RE2) don't have it")
		default:
			out.WriteString(rest[:n])
		}
		i += n
	}
	return out.String()
}

func namedGroup(rest string) bool {
	return strings.HasPrefix(rest, "(?<") && !strings.HasPrefix(rest, "(?<=") && !strings.HasPrefix(rest, "(?<!")
}

// ecmaEscape writes what begins with a backslash and gives its length.
func ecmaEscape(out *strings.Builder, rest string, inClass bool, refuse func(what, why string)) int {
	switch c := rest[1]; c {
	case 's':
		if inClass {
			out.WriteString(spaces)
		} else {
			out.WriteString("[" + spaces + "]")
		}
	case 'S':
		if inClass {
			refuse(rest[:2], "inside of a class it has no form in Go")
		}
		out.WriteString("[^" + spaces + "]")
	case 'u':
		if len(rest) < 6 || strings.Trim(rest[2:6], "0123456789abcdefABCDEF") != "" {
			refuse(rest[:2], `only \u and four hexadecimal digits are`)
		}
		if strings.Contains("dD", rest[2:3]) && strings.Contains("89abcdefABCDEF", rest[3:4]) {
			refuse(rest[:6], "it is half a character")
		}
		out.WriteString(`\x{` + rest[2:6] + "}")
		return 6
	case 'x':
		if len(rest) < 4 || strings.Trim(rest[2:4], "0123456789abcdefABCDEF") != "" {
			refuse(rest[:2], `only \x and two hexadecimal digits are`)
		}
		out.WriteString(rest[:4])
		return 4
	case 'b':
		if inClass {
			out.WriteString(`\x08`)
			break
		}
		out.WriteString(rest[:2]) // refused where it is compiled
	case '0', 'a', 'A', 'C', 'Q', 'E', 'z', 'Z':
		// Go's own meanings: a bell, anchors, literals.
		refuse(rest[:2], "what it means differs between expressions of schemas and of Go")
	default:
		_, n := utf8.DecodeRuneInString(rest[1:])
		out.WriteString(rest[:1+n])
		return 1 + n
	}
	return 2
}
