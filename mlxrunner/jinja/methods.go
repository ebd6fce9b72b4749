package jinja

import (
	"slices"
	"strings"
	"unicode"
)

// method is what belongs to a value's type, bound to it. Those that would
// change a value fail: a template may not.
func method(of any, called string) (any, bool) {
	bind := func(f func(a args) any) (any, bool) {
		return function(func(plain []any, named *Dict) any { return f(args{called, plain, named}) }), true
	}
	switch v := of.(type) {
	case string:
		if f, ok := stringMethods[called]; ok {
			return bind(func(a args) any { return f(v, a) })
		}
	case *Dict:
		if f, ok := dictMethods[called]; ok {
			return bind(func(a args) any { return f(v, a) })
		}
	case *List:
		if f, ok := listMethods[called]; ok && v.form <= tuple {
			return bind(func(a args) any { return f(v, a) })
		}
	}
	return nil, false
}

func forbidden(a args) any {
	fail("%s would change a value: a template may not", a.of)
	return nil
}

var dictMethods = map[string]func(d *Dict, a args) any{
	"get": func(d *Dict, a args) any {
		key := a.need(0, "key")
		hashable(key)
		if v, ok := d.Get(key); ok {
			return v
		}
		v, _ := a.get(1, "default")
		return v
	},
	"keys":   func(d *Dict, _ args) any { return &List{d.keys, view} },
	"values": func(d *Dict, _ args) any { return &List{valuesOf(d), view} },
	"items":  func(d *Dict, _ args) any { return &List{pairsOf(d), view} },
	"copy":   func(d *Dict, _ args) any { return dictOf([]any{d}, NewDict()) },

	"clear":      func(_ *Dict, a args) any { return forbidden(a) },
	"pop":        func(_ *Dict, a args) any { return forbidden(a) },
	"popitem":    func(_ *Dict, a args) any { return forbidden(a) },
	"setdefault": func(_ *Dict, a args) any { return forbidden(a) },
	"update":     func(_ *Dict, a args) any { return forbidden(a) },
}

func valuesOf(d *Dict) []any {
	var out []any
	for _, key := range d.keys {
		out = append(out, d.values[key])
	}
	return out
}

func pairsOf(d *Dict) []any {
	var out []any
	for _, key := range d.keys {
		out = append(out, &List{[]any{key, d.values[key]}, tuple})
	}
	return out
}

var listMethods = map[string]func(l *List, a args) any{
	"count": func(l *List, a args) any {
		n, v := 0, a.need(0, "value")
		for _, one := range l.Items {
			if equal(one, v) {
				n++
			}
		}
		return n
	},
	"index": func(l *List, a args) any {
		v := a.need(0, "value")
		i := slices.IndexFunc(l.Items, func(one any) bool { return equal(one, v) })
		if i < 0 {
			fail("%s is not in the list", repr(v))
		}
		return i
	},
	"copy": func(l *List, _ args) any { return &List{slices.Clone(l.Items), l.form} },

	"append":  func(_ *List, a args) any { return forbidden(a) },
	"clear":   func(_ *List, a args) any { return forbidden(a) },
	"extend":  func(_ *List, a args) any { return forbidden(a) },
	"insert":  func(_ *List, a args) any { return forbidden(a) },
	"pop":     func(_ *List, a args) any { return forbidden(a) },
	"remove":  func(_ *List, a args) any { return forbidden(a) },
	"reverse": func(_ *List, a args) any { return forbidden(a) },
	"sort":    func(_ *List, a args) any { return forbidden(a) },
}

var stringMethods map[string]func(s string, a args) any

func init() { // format leads back here
	stringMethods = map[string]func(s string, a args) any{
		"strip":  func(s string, a args) any { return strip(s, a, true, true) },
		"lstrip": func(s string, a args) any { return strip(s, a, true, false) },
		"rstrip": func(s string, a args) any { return strip(s, a, false, true) },
		"split":  func(s string, a args) any { return texts(split(s, a, false)) },
		"rsplit": func(s string, a args) any { return texts(split(s, a, true)) },
		"splitlines": func(s string, a args) any {
			return texts(lines(s, a.bool(0, "keepends")))
		},
		"partition": func(s string, a args) any {
			sep := a.text(0, "sep", "")
			before, after, found := strings.Cut(s, sep)
			if !found {
				sep = ""
			}
			return &List{[]any{before, sep, after}, tuple}
		},
		"rpartition": func(s string, a args) any {
			sep := a.text(0, "sep", "")
			i := strings.LastIndex(s, sep)
			if i < 0 {
				return &List{[]any{"", "", s}, tuple}
			}
			return &List{[]any{s[:i], sep, s[i+len(sep):]}, tuple}
		},
		"startswith": func(s string, a args) any {
			return anyOf(a, func(part string) bool { return strings.HasPrefix(s, part) })
		},
		"endswith": func(s string, a args) any {
			return anyOf(a, func(part string) bool { return strings.HasSuffix(s, part) })
		},
		"removeprefix": func(s string, a args) any { return strings.TrimPrefix(s, a.text(0, "prefix", "")) },
		"removesuffix": func(s string, a args) any { return strings.TrimSuffix(s, a.text(0, "suffix", "")) },
		"replace": func(s string, a args) any {
			return strings.Replace(s, a.text(0, "old", ""), a.text(1, "new", ""), a.int(2, "count", -1))
		},
		"upper":      func(s string, _ args) any { return strings.ToUpper(s) },
		"lower":      func(s string, _ args) any { return strings.ToLower(s) },
		"casefold":   func(s string, _ args) any { return strings.ToLower(s) },
		"capitalize": func(s string, _ args) any { return capitalize(s) },
		"title":      func(s string, _ args) any { return title(s, unicode.IsLetter) },
		"count":      func(s string, a args) any { return strings.Count(s, a.text(0, "sub", "")) },
		"find":       func(s string, a args) any { return runeIndex(s, strings.Index(s, a.text(0, "sub", ""))) },
		"rfind":      func(s string, a args) any { return runeIndex(s, strings.LastIndex(s, a.text(0, "sub", ""))) },
		"index": func(s string, a args) any {
			i := strings.Index(s, a.text(0, "sub", ""))
			if i < 0 {
				fail("%s is not in the str", repr(a.plain[0]))
			}
			return runeIndex(s, i)
		},
		"join": func(s string, a args) any {
			var parts []string
			for _, v := range items(a.need(0, "iterable")) {
				part, ok := v.(string)
				if !ok {
					refuse(v)
					fail("join wants str, it is given %s", typeName(v))
				}
				parts = append(parts, part)
			}
			return strings.Join(parts, s)
		},
		"format":  func(s string, a args) any { return format(s, a) },
		"isdigit": func(s string, _ args) any { return all(s, unicode.IsDigit) },
		"isalpha": func(s string, _ args) any { return all(s, unicode.IsLetter) },
		"isalnum": func(s string, _ args) any {
			return all(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
		},
		"isspace": func(s string, _ args) any { return all(s, unicode.IsSpace) },
		"isupper": func(s string, _ args) any { return s == strings.ToUpper(s) && s != strings.ToLower(s) },
		"islower": func(s string, _ args) any { return s == strings.ToLower(s) && s != strings.ToUpper(s) },
		"ljust":   func(s string, a args) any { return pad(s, a.int(0, "width", 0), a.text(1, "fillchar", " "), '<') },
		"rjust":   func(s string, a args) any { return pad(s, a.int(0, "width", 0), a.text(1, "fillchar", " "), '>') },
		"center":  func(s string, a args) any { return pad(s, a.int(0, "width", 0), a.text(1, "fillchar", " "), '^') },
		"zfill":   func(s string, a args) any { return pad(s, a.int(0, "width", 0), "0", '>') },
	}
}

func texts(parts []string) *List {
	out := NewList()
	for _, part := range parts {
		out.Items = append(out.Items, part)
	}
	return out
}

func strip(s string, a args, left, right bool) string {
	in := unicode.IsSpace
	if chars, ok := a.get(0, "chars"); ok && chars != nil {
		set := a.text(0, "chars", "")
		in = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

// split cuts at a separator, or at runs of white space without one; at most so
// many times, from the right or the left.
func split(s string, a args, fromRight bool) []string {
	most := a.int(1, "maxsplit", -1)
	sep, ok := a.get(0, "sep")
	if !ok || sep == nil {
		return splitSpace(s, most, fromRight)
	}
	by := a.text(0, "sep", "")
	if by == "" {
		fail("%s by an empty str", a.of)
	}
	if !fromRight || most < 0 {
		if most < 0 {
			return strings.Split(s, by)
		}
		return strings.SplitN(s, by, most+1)
	}
	var out []string
	for ; most > 0; most-- {
		i := strings.LastIndex(s, by)
		if i < 0 {
			break
		}
		out = append(out, s[i+len(by):])
		s = s[:i]
	}
	out = append(out, s)
	slices.Reverse(out)
	return out
}

func splitSpace(s string, most int, fromRight bool) []string {
	if most < 0 {
		return strings.Fields(s)
	}
	var out []string
	for s = strings.TrimSpace(s); s != ""; most-- {
		i := strings.IndexFunc(s, unicode.IsSpace)
		if fromRight {
			i = strings.LastIndexFunc(s, unicode.IsSpace)
		}
		if i < 0 || most <= 0 {
			out = append(out, s)
			break
		}
		if fromRight {
			out = append(out, strings.TrimLeftFunc(s[i:], unicode.IsSpace))
			s = strings.TrimRightFunc(s[:i], unicode.IsSpace)
			continue
		}
		out = append(out, s[:i])
		s = strings.TrimLeftFunc(s[i:], unicode.IsSpace)
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

func lines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexAny(s, "\n\r\v\f\u0085\u2028\u2029")
		if i < 0 {
			return append(out, s)
		}
		end := i + len(string([]rune(s[i:])[:1]))
		if strings.HasPrefix(s[i:], "\r\n") {
			end = i + 2
		}
		line := s[:i]
		if keep {
			line = s[:end]
		}
		out = append(out, line)
		s = s[end:]
	}
	return out
}

// anyOf takes one str or a tuple of them.
func anyOf(a args, has func(part string) bool) bool {
	if l, ok := a.need(0, "prefix").(*List); ok && l.form == tuple {
		return slices.ContainsFunc(l.Items, func(v any) bool {
			part, ok := v.(string)
			return ok && has(part)
		})
	}
	return has(a.text(0, "prefix", ""))
}

func capitalize(s string) string {
	for i, r := range s {
		end := i + len(string(r))
		return strings.ToUpper(s[:end]) + strings.ToLower(s[end:])
	}
	return s
}

// title begins every word with a capital; inside says what goes on in a word.
func title(s string, inside func(rune) bool) string {
	was := false
	return strings.Map(func(r rune) rune {
		in := was
		was = inside(r)
		if in {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

func runeIndex(s string, i int) int {
	if i < 0 {
		return i
	}
	return len([]rune(s[:i]))
}

func all(s string, is func(rune) bool) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
}

// pad fills s up to a width in characters, to the left, right or both.
func pad(s string, width int, with string, align byte) string {
	n := width - len([]rune(s))
	if n <= 0 {
		return s
	}
	left := 0
	switch align {
	case '>', '=':
		left = n
	case '^':
		left = n / 2
	}
	return strings.Repeat(with, left) + s + strings.Repeat(with, n-left)
}
