package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var percentSpec = regexp.MustCompile(`^%(?:\((\w+)\))?([-+ 0#]*)(\d*)(?:\.(\d+))?([a-zA-Z%])`)

// percent is Python's operator: %s, %r, %d, %i, %f, %e, %g, %x, %o, %%, with
// flags, width and precision, by place or by name.
func percent(in string, v any) string {
	values := []any{v}
	byName, _ := v.(*Dict)
	if l, ok := v.(*List); ok && l.form == tuple {
		values = l.Items
	}
	var out strings.Builder
	used := 0
	for in != "" {
		i := strings.IndexByte(in, '%')
		if i < 0 {
			out.WriteString(in)
			break
		}
		out.WriteString(in[:i])
		m := percentSpec.FindStringSubmatch(in[i:])
		if m == nil {
			fail("%q is no format", in[i:])
		}
		in = in[i+len(m[0]):]
		if m[5] == "%" {
			out.WriteByte('%')
			continue
		}
		var one any
		switch {
		case m[1] != "" && byName != nil:
			one, _ = byName.Get(m[1])
		case used < len(values):
			one = values[used]
			used++
		default:
			fail("a format has more places than values")
		}
		out.WriteString(percentOne(m[2]+m[3], m[4], m[5], one))
	}
	if byName == nil && used < len(values) {
		fail("a format has fewer places than values")
	}
	return out.String()
}

func percentOne(flags, precision, verb string, v any) string {
	if precision != "" {
		precision = "." + precision
	}
	spec := "%" + flags + precision
	switch verb {
	case "s":
		return fmt.Sprintf(spec+"s", toString(v))
	case "r", "a":
		return fmt.Sprintf(spec+"s", repr(v))
	}
	f, _, ok := number(v)
	if !ok {
		refuse(v)
		fail("%%%s wants a number, it is given %s", verb, typeName(v))
	}
	switch verb {
	case "d", "i", "u":
		return fmt.Sprintf(spec+"d", int(f))
	case "x", "X", "o":
		return fmt.Sprintf(spec+verb, int(f))
	case "e", "E", "f", "F", "g", "G":
		return fmt.Sprintf(spec+verb, f)
	}
	fail("%%%s is not supported", verb)
	return ""
}

var braces = regexp.MustCompile(`\{\{|\}\}|\{([^{}:!]*)(?:!([rs]))?(?::([^{}]*))?\}|[{}]`)

// format is str.format: {}, {0}, {name}, with !r, fill, alignment, width and
// precision. Attributes and subscripts in a place are refused.
func format(in string, a args) string {
	used := 0
	return braces.ReplaceAllStringFunc(in, func(found string) string {
		switch found {
		case "{{":
			return "{"
		case "}}":
			return "}"
		case "{", "}":
			fail("a brace stands alone in a format")
		}
		m := braces.FindStringSubmatch(found)
		var v any
		switch n, err := strconv.Atoi(m[1]); {
		case m[1] == "":
			v = a.need(used, "more values")
			used++
		case err == nil:
			v = a.need(n, "value "+m[1])
		default:
			var ok bool
			if v, ok = a.named.Get(m[1]); !ok {
				fail("format has no value for %q", m[1])
			}
		}
		if m[2] == "r" {
			v = repr(v)
		}
		return formatOne(m[3], v)
	})
}

var braceSpec = regexp.MustCompile(`^(?:(.)?([<>^=]))?([-+ ]?)(0?)(\d*)(,?)(?:\.(\d+))?([a-zA-Z%]?)$`)

func formatOne(spec string, v any) string {
	m := braceSpec.FindStringSubmatch(spec)
	if m == nil {
		fail("format %q is not supported", spec)
	}
	fill, align, zero, precision, verb := m[1], m[2], m[4], m[7], m[8]
	if m[6] != "" || verb == "%" {
		fail("format %q is not supported", spec)
	}
	f, whole, isNumber := number(v)
	_, isBool := v.(bool)
	out := toString(v)
	switch {
	case verb != "" && verb != "s":
		if whole && verb != "d" && verb != "x" && verb != "X" && verb != "o" {
			v = f
		}
		out = percentOne("", precision, verb, v)
	case precision != "" && isNumber && !whole:
		out = percentOne("", precision, "g", v)
	case precision != "":
		n, _ := strconv.Atoi(precision)
		out = string([]rune(out)[:min(n, len([]rune(out)))])
	}
	if isNumber && m[3] == "+" && f >= 0 {
		out = "+" + out
	}
	if fill == "" {
		fill = " "
	}
	if zero != "" && align == "" {
		fill, align = "0", "="
	}
	if align == "" {
		align = "<"
		if isNumber && !isBool {
			align = ">"
		}
	}
	width, _ := strconv.Atoi(m[5])
	if align == "=" && (strings.HasPrefix(out, "-") || strings.HasPrefix(out, "+")) {
		return out[:1] + pad(out[1:], width-1, fill, '=')
	}
	return pad(out, width, fill, align[0])
}
