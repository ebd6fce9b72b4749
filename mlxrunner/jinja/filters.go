package jinja

import (
	"cmp"
	"encoding/json"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

var filters map[string]func(v any, a args) any

func init() { // map and select lead back here
	filters = map[string]func(v any, a args) any{
		"abs": func(v any, a args) any {
			f, whole, ok := number(v)
			if !ok {
				refuse(v)
				fail("abs wants a number, it is given %s", typeName(v))
			}
			if whole {
				return int(math.Abs(f))
			}
			return math.Abs(f)
		},
		"attr": func(v any, a args) any {
			refuse(v)
			if m, ok := method(v, a.text(0, "name", "")); ok {
				return m
			}
			return Undefined{a.text(0, "name", "")}
		},
		"batch":      batch,
		"capitalize": func(v any, _ args) any { return capitalize(toString(v)) },
		"center":     func(v any, a args) any { return pad(toString(v), a.int(0, "width", 80), " ", '^') },
		"count":      func(v any, _ args) any { return length(v) },
		"length":     func(v any, _ args) any { return length(v) },
		"default":    otherwise,
		"d":          otherwise,
		"dictsort":   dictSort,
		"e":          escape,
		"escape":     escape,
		"first":      func(v any, _ args) any { return end0(items(v), 0) },
		"last":       func(v any, _ args) any { return end0(items(v), -1) },
		"float":      toFloat,
		"int":        toInt,
		"format": func(v any, a args) any {
			if a.named != nil && len(a.named.keys) > 0 {
				return percent(toString(v), a.named)
			}
			return percent(toString(v), &List{a.plain, tuple})
		},
		"groupby": groupBy,
		"indent":  indent,
		"items": func(v any, _ args) any {
			if _, ok := v.(Undefined); ok {
				return &List{form: generator}
			}
			d, ok := v.(*Dict)
			if !ok {
				fail("items wants a dict, it is given %s", typeName(v))
			}
			return &List{pairsOf(d), generator}
		},
		"join":       join,
		"list":       func(v any, _ args) any { return NewList(slices.Clone(items(v))...) },
		"lower":      func(v any, _ args) any { return strings.ToLower(toString(v)) },
		"upper":      func(v any, _ args) any { return strings.ToUpper(toString(v)) },
		"map":        mapOver,
		"max":        func(v any, a args) any { return extreme(v, a, 1) },
		"min":        func(v any, a args) any { return extreme(v, a, -1) },
		"reject":     func(v any, a args) any { return chosen(v, a, false, false) },
		"rejectattr": func(v any, a args) any { return chosen(v, a, true, false) },
		"select":     func(v any, a args) any { return chosen(v, a, false, true) },
		"selectattr": func(v any, a args) any { return chosen(v, a, true, true) },
		"replace": func(v any, a args) any {
			return strings.Replace(toString(v), toString(a.need(0, "old")), toString(a.need(1, "new")), a.int(2, "count", -1))
		},
		"reverse": func(v any, _ args) any {
			out := slices.Clone(items(v))
			slices.Reverse(out)
			if _, ok := v.(string); ok {
				return toString(join(NewList(out...), args{}))
			}
			return &List{out, generator}
		},
		"round":  round,
		"safe":   func(v any, _ args) any { return markup(toString(v)) },
		"string": func(v any, _ args) any { return toString(v) },
		"sort":   sorted,
		"sum":    sum,
		"title": func(v any, _ args) any {
			return title(toString(v), func(r rune) bool { return !strings.ContainsRune("-({[<", r) && !unicode.IsSpace(r) })
		},
		"tojson":    toJSON,
		"trim":      func(v any, a args) any { return strip(toString(v), a, true, true) },
		"unique":    unique,
		"wordcount": func(v any, _ args) any { return len(strings.Fields(toString(v))) },
	}
}

// end0 is the first or the last of all.
func end0(all []any, i int) any {
	if len(all) == 0 {
		return Undefined{"an element of an empty sequence"}
	}
	return all[fromEnd(i, len(all))]
}

func batch(v any, a args) any {
	n := a.int(0, "linecount", 0)
	if n < 1 {
		fail("batch wants a number from 1")
	}
	out := &List{form: generator}
	for part := range slices.Chunk(items(v), n) {
		row := NewList(slices.Clone(part)...)
		if fill, ok := a.get(1, "fill_with"); ok && fill != nil {
			for len(row.Items) < n {
				row.Items = append(row.Items, fill)
			}
		}
		out.Items = append(out.Items, row)
	}
	return out
}

func otherwise(v any, a args) any {
	_, undefined := v.(Undefined)
	if undefined || a.bool(1, "boolean") && !truth(v) {
		if d, ok := a.get(0, "default_value"); ok {
			return d
		}
		return ""
	}
	return v
}

func escape(v any, _ args) any { return markup(html.EscapeString(toString(v))) }

func toFloat(v any, a args) any {
	if f, _, ok := number(v); ok {
		return f
	}
	if f, err := strconv.ParseFloat(strings.TrimSpace(toString(v)), 64); err == nil {
		return f
	}
	if d, ok := a.get(0, "default"); ok {
		return d
	}
	return 0.0
}

func toInt(v any, a args) any {
	if f, _, ok := number(v); ok {
		return int(f)
	}
	text := strings.TrimSpace(toString(v))
	if n, err := strconv.ParseInt(text, a.int(1, "base", 10), 64); err == nil {
		return int(n)
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return int(f)
	}
	return a.int(0, "default", 0)
}

func indent(v any, a args) any {
	with := ""
	switch width, ok := a.get(0, "width"); w := width.(type) {
	case string:
		with = w
	case int:
		with = strings.Repeat(" ", w)
	default:
		if ok {
			fail("indent wants a number or a str, it is given %s", typeName(width))
		}
		with = "    "
	}
	first, blank := a.bool(1, "first"), a.bool(2, "blank")
	all := lines(toString(v)+"\n", false)
	for i := 1; i < len(all); i++ {
		if blank || all[i] != "" {
			all[i] = with + all[i]
		}
	}
	out := strings.Join(all, "\n")
	if first {
		out = with + out
	}
	return out
}

func join(v any, a args) any {
	sep := ""
	if d, ok := a.get(0, "d"); ok {
		sep = toString(d)
	}
	by := attributeOf(a, 1)
	var parts []string
	for _, one := range items(v) {
		parts = append(parts, toString(by(one)))
	}
	return strings.Join(parts, sep)
}

// attributeOf gives each value's attribute that the argument names, dotted for
// those of attributes; without the argument, the value.
func attributeOf(a args, i int) func(any) any {
	name, ok := a.get(i, "attribute")
	if !ok || name == nil {
		return func(v any) any { return v }
	}
	var otherwise any
	if a.named != nil {
		otherwise, _ = a.named.Get("default")
	}
	return path(name, otherwise)
}

// path goes from attribute to attribute; what is missing on the way is
// otherwise, where that is given.
func path(name, otherwise any) func(any) any {
	var keys []any
	if n, ok := name.(int); ok {
		keys = append(keys, n)
	} else {
		for _, part := range strings.Split(toString(name), ".") {
			if n, err := strconv.Atoi(part); err == nil {
				keys = append(keys, n)
				continue
			}
			keys = append(keys, part)
		}
	}
	return func(v any) any {
		for _, key := range keys {
			v = getItem(v, key)
			if _, undefined := v.(Undefined); undefined && otherwise != nil {
				v = otherwise
			}
		}
		return v
	}
}

func mapOver(v any, a args) any {
	out := &List{form: generator}
	if !truth(v) {
		return out
	}
	if _, ok := a.named.Get("attribute"); ok {
		by := attributeOf(a, len(a.plain))
		for _, one := range items(v) {
			out.Items = append(out.Items, by(one))
		}
		return out
	}
	name := a.text(0, "filter", "")
	rest := args{name, a.plain[min(1, len(a.plain)):], a.named}
	for _, one := range items(v) {
		out.Items = append(out.Items, apply(name, one, rest))
	}
	return out
}

// chosen keeps the values, or those with an attribute, that a test holds for,
// or does not. Without a test it is whether they are true.
func chosen(v any, a args, attribute, want bool) any {
	by := func(v any) any { return v }
	rest := a.plain
	if attribute {
		by = path(a.need(0, "attribute"), nil)
		rest = rest[1:]
	}
	holds := func(v any) bool { return truth(v) }
	if len(rest) > 0 {
		given := args{toString(rest[0]), rest[1:], a.named}
		holds = func(v any) bool { return passes(given.of, v, given) }
	}
	out := &List{form: generator}
	if !truth(v) { // whatever it is
		return out
	}
	for _, one := range items(v) {
		if holds(by(one)) == want {
			out.Items = append(out.Items, one)
		}
	}
	return out
}

// folded makes strings compare without case, as the sorting filters do unless
// told otherwise.
func folded(a args, i int, by func(any) any) func(any) any {
	if a.bool(i, "case_sensitive") {
		return by
	}
	return func(v any) any {
		v = by(v)
		if s, ok := v.(string); ok {
			return strings.ToLower(s)
		}
		return v
	}
}

func sorted(v any, a args) any {
	by := folded(a, 1, attributeOf(a, 2))
	out := slices.Clone(items(v))
	slices.SortStableFunc(out, func(x, y any) int {
		if a.bool(0, "reverse") {
			x, y = y, x
		}
		return compare(by(x), by(y))
	})
	return NewList(out...)
}

func dictSort(v any, a args) any {
	d, ok := v.(*Dict)
	if !ok {
		refuse(v)
		fail("dictsort wants a dict, it is given %s", typeName(v))
	}
	place := 0
	if a.text(1, "by", "key") == "value" {
		place = 1
	}
	by := folded(a, 0, path(place, nil))
	out := pairsOf(d)
	slices.SortStableFunc(out, func(x, y any) int {
		if a.bool(2, "reverse") {
			x, y = y, x
		}
		return compare(by(x), by(y))
	})
	return NewList(out...)
}

func unique(v any, a args) any {
	by := folded(a, 0, attributeOf(a, 1))
	out := &List{form: generator}
	var seen []any
	for _, one := range items(v) {
		key := by(one)
		if !slices.ContainsFunc(seen, func(s any) bool { return equal(s, key) }) {
			seen = append(seen, key)
			out.Items = append(out.Items, one)
		}
	}
	return out
}

func groupBy(v any, a args) any {
	by := path(a.need(0, "attribute"), nil)
	all := slices.Clone(items(v))
	slices.SortStableFunc(all, func(x, y any) int { return compare(by(x), by(y)) })
	out := NewList()
	for _, one := range all {
		key := by(one)
		if n := len(out.Items); n > 0 {
			if last := out.Items[n-1].(*List); equal(last.Items[0], key) {
				group := last.Items[1].(*List)
				group.Items = append(group.Items, one)
				continue
			}
		}
		out.Items = append(out.Items, &List{[]any{key, NewList(one)}, tuple})
	}
	return out
}

func extreme(v any, a args, direction int) any {
	by := folded(a, 0, attributeOf(a, 1))
	all := items(v)
	if len(all) == 0 {
		return Undefined{"the " + a.of + " of an empty sequence"}
	}
	best := all[0]
	for _, one := range all[1:] {
		if cmp.Compare(compare(by(one), by(best)), 0) == direction {
			best = one
		}
	}
	return best
}

func sum(v any, a args) any {
	by := attributeOf(a, 0)
	total, ok := a.get(1, "start")
	if !ok {
		total = 0
	}
	for _, one := range items(v) {
		total = (&operation{op: "+", left: constant{total}, right: constant{by(one)}}).eval(nil)
	}
	return total
}

func round(v any, a args) any {
	f, _, ok := number(v)
	if !ok {
		refuse(v)
		fail("round wants a number, it is given %s", typeName(v))
	}
	scale := math.Pow(10, float64(a.int(0, "precision", 0)))
	switch method := a.text(1, "method", "common"); method {
	case "common":
		return math.RoundToEven(f*scale) / scale
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	default:
		fail("round has no method %q", method)
	}
	return nil
}

// toJSON is Python's json.dumps with the reference's settings: characters stay
// as they are, keys keep their order.
func toJSON(v any, a args) any {
	j := jsonWriter{item: ", ", key: ": ", sort: a.bool(3, "sort_keys"), ascii: a.bool(0, "ensure_ascii")}
	switch indent, _ := a.get(1, "indent"); w := indent.(type) {
	case int:
		j.indent, j.lines = strings.Repeat(" ", max(0, w)), true
	case string:
		j.indent, j.lines = w, true
	}
	if j.lines {
		j.item = ","
	}
	if separators, ok := a.get(2, "separators"); ok && separators != nil {
		two := items(separators)
		if len(two) != 2 {
			fail("tojson wants two separators")
		}
		j.item, j.key = toString(two[0]), toString(two[1])
	}
	j.value(v, "\n")
	return j.out.String()
}

type jsonWriter struct {
	out         strings.Builder
	item, key   string
	indent      string
	lines       bool
	sort, ascii bool
}

func (j *jsonWriter) value(v any, newline string) {
	switch v := v.(type) {
	case nil:
		j.out.WriteString("null")
	case bool:
		j.out.WriteString(strconv.FormatBool(v))
	case int:
		j.out.WriteString(strconv.Itoa(v))
	case float64:
		j.out.WriteString(strings.NewReplacer("inf", "Infinity", "nan", "NaN").Replace(reprFloat(v)))
	case string:
		j.text(v)
	case *List:
		if v.form > tuple {
			fail("tojson of a %s", typeName(v))
		}
		j.members("[", "]", len(v.Items), newline, func(i int, inner string) { j.value(v.Items[i], inner) })
	case *Dict:
		keys := v.keys
		if j.sort {
			keys = slices.Clone(keys)
			slices.SortFunc(keys, compare)
		}
		j.members("{", "}", len(keys), newline, func(i int, inner string) {
			j.text(toString(keys[i]))
			j.out.WriteString(j.key)
			j.value(v.values[keys[i]], inner)
		})
	default:
		refuse(v)
		fail("tojson of a %s", typeName(v))
	}
}

func (j *jsonWriter) members(open, closing string, n int, newline string, member func(i int, inner string)) {
	j.out.WriteString(open)
	inner := newline + j.indent
	for i := range n {
		if i > 0 {
			j.out.WriteString(j.item)
		}
		if j.lines {
			j.out.WriteString(inner)
		}
		member(i, inner)
	}
	if j.lines && n > 0 {
		j.out.WriteString(newline)
	}
	j.out.WriteString(closing)
}

func (j *jsonWriter) text(s string) {
	var plain strings.Builder
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		fail("tojson: %v", err)
	}
	out := strings.TrimSuffix(plain.String(), "\n")
	// Go escapes two characters that Python does not.
	out = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(out)
	if j.ascii {
		out = asciiOnly(out)
	}
	j.out.WriteString(out)
}

func asciiOnly(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			out.WriteRune(r)
		case r < 0x10000:
			out.WriteString(`\u` + hex4(r))
		default:
			r -= 0x10000
			out.WriteString(`\u` + hex4(0xd800+r>>10) + `\u` + hex4(0xdc00+r&0x3ff))
		}
	}
	return out.String()
}

func hex4(r rune) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", 4-len(s)) + s
}
