package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A value is one of: nil (None), bool, int, float64, string, *List, *Dict,
// Undefined, *namespace, *loop or function.

// List is a Python sequence.
type List struct {
	Items []any
	form  form
}

// form is what kind of sequence a List is; it shows when it is printed, and
// in what it can't do.
type form int

const (
	list form = iota
	tuple
	view      // of a dictionary: no index
	generator // no length, always true
)

// NewList makes a list.
func NewList(items ...any) *List { return &List{Items: items} }

// Dict is a Python dictionary: it keeps the order in which keys came.
type Dict struct {
	keys   []any
	values map[any]any
}

// NewDict makes an empty dictionary.
func NewDict() *Dict { return &Dict{values: map[any]any{}} }

// Set puts a value under a key.
func (d *Dict) Set(key, value any) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = value
}

// Get gives the value of a key.
func (d *Dict) Get(key any) (any, bool) {
	value, ok := d.values[key]
	return value, ok
}

// Keys lists the keys in their order; not to be changed.
func (d *Dict) Keys() []any { return d.keys }

// Undefined is a name that stands for nothing. It prints as nothing, is false
// and empty, and fails where anything else is wanted of it.
type Undefined struct{ what string }

func (u Undefined) fail() { fail("%s is undefined", u.what) }

// markup is text that "safe" and "escape" give. It is text in every way but
// one: what is added to it is escaped.
type markup string

// unmarked is v as the text it is.
func unmarked(v any) any {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

type namespace struct{ of *Dict }

// function is what can be called.
type function func(args []any, named *Dict) any

// FromJSON reads a value; dictionaries keep the order of the text.
func FromJSON(data []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if value, err = fromTokens(d); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("there is more after the value, at byte %d", d.InputOffset())
	}
	return value, nil
}

func fromTokens(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		if n, err := strconv.Atoi(string(t)); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			out := NewList()
			for d.More() {
				item, err := fromTokens(d)
				if err != nil {
					return nil, err
				}
				out.Items = append(out.Items, item)
			}
			_, err := d.Token()
			return out, err
		}
		out := NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := fromTokens(d)
			if err != nil {
				return nil, err
			}
			out.Set(key, value)
		}
		_, err := d.Token()
		return out, err
	}
	return t, nil
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		return [...]string{"list", "tuple", "dict view", "generator"}[v.form]
	case *Dict:
		return "dict"
	case Undefined:
		return "undefined"
	case *namespace:
		return "namespace"
	case function:
		return "function"
	}
	return "object"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return v.form == generator || len(v.Items) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// number gives a number's value as a float; bools count as 0 and 1.
func number(v any) (f float64, whole, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true, true
		}
		return 0, true, true
	case int:
		return float64(v), true, true
	case float64:
		return v, false, true
	}
	return 0, false, false
}

func equal(a, b any) bool {
	if x, _, ok := number(a); ok {
		y, _, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		return b == any(a)
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case *List:
		other, ok := b.(*List)
		return ok && a.form == other.form && slices.EqualFunc(a.Items, other.Items, equal)
	case *Dict:
		other, ok := b.(*Dict)
		if !ok || len(a.keys) != len(other.keys) {
			return false
		}
		for _, key := range a.keys {
			value, ok := other.Get(key)
			if !ok || !equal(a.values[key], value) {
				return false
			}
		}
		return true
	case function:
		return false
	}
	return a == b
}

// compare orders two values, as far as Python does.
func compare(a, b any) int {
	if x, _, ok := number(a); ok {
		if y, _, ok := number(b); ok {
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	}
	if x, ok := a.(*List); ok {
		if y, ok := b.(*List); ok && x.form == y.form {
			return slices.CompareFunc(x.Items, y.Items, compare)
		}
	}
	refuse(a, b)
	fail("%s and %s have no order", typeName(a), typeName(b))
	return 0
}

// refuse fails if any of the values is undefined, with its name.
func refuse(values ...any) {
	for _, v := range values {
		if u, ok := v.(Undefined); ok {
			u.fail()
		}
	}
}

// items lists what a loop over v sees.
func items(v any) []any {
	switch v := v.(type) {
	case Undefined:
		return nil
	case string:
		var out []any
		for _, r := range v {
			out = append(out, string(r))
		}
		return out
	case *List:
		return v.Items
	case *Dict:
		return v.keys
	}
	fail("%s can't be iterated over", typeName(v))
	return nil
}

func length(v any) int {
	switch v := v.(type) {
	case Undefined:
		return 0
	case string:
		return len([]rune(v))
	case *List:
		if v.form != generator {
			return len(v.Items)
		}
	case *Dict:
		return len(v.keys)
	}
	fail("%s has no length", typeName(v))
	return 0
}

// toString is Python's str.
func toString(v any) string {
	v = unmarked(v)
	if s, ok := v.(string); ok {
		return s
	}
	if _, ok := v.(Undefined); ok {
		return ""
	}
	return repr(v)
}

// repr is Python's repr.
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int:
		return strconv.Itoa(v)
	case float64:
		return reprFloat(v)
	case string:
		return quote(v)
	case *List:
		parts := make([]string, len(v.Items))
		for i, item := range v.Items {
			parts[i] = repr(item)
		}
		inner := strings.Join(parts, ", ")
		if v.form != tuple {
			return "[" + inner + "]"
		}
		if len(parts) == 1 {
			inner += ","
		}
		return "(" + inner + ")"
	case *Dict:
		parts := make([]string, len(v.keys))
		for i, key := range v.keys {
			parts[i] = repr(key) + ": " + repr(v.values[key])
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "<Namespace " + repr(v.of) + ">"
	}
	return "<" + typeName(v) + ">"
}

// reprFloat is the shortest form that reads back, with an exponent from 1e16
// and below 1e-4.
func reprFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if size := math.Abs(f); size != 0 && (size >= 1e16 || size < 1e-4) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	out := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(out, ".") {
		out += ".0"
	}
	return out
}

func quote(s string) string {
	q := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		q = '"'
	}
	var out strings.Builder
	out.WriteRune(q)
	for _, r := range s {
		switch {
		case r == q || r == '\\':
			out.WriteString("\\" + string(r))
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == ' ' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	out.WriteRune(q)
	return out.String()
}
