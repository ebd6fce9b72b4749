package jinja

import "strings"

var tests map[string]func(v any, a args) bool

func init() {
	is := func(names ...string) func(v any, a args) bool {
		return func(v any, _ args) bool {
			for _, name := range names {
				if typeName(v) == name {
					return true
				}
			}
			return false
		}
	}
	compared := func(op string) func(v any, a args) bool {
		return func(v any, a args) bool { return holds(op, v, a.need(0, "other")) }
	}
	remainder := func(v any, by int) int {
		return (&operation{op: "%", left: constant{v}, right: constant{by}}).eval(nil).(int)
	}
	tests = map[string]func(v any, a args) bool{
		"defined":   func(v any, _ args) bool { return typeName(v) != "undefined" },
		"undefined": is("undefined"),
		"none":      is("NoneType"),
		"boolean":   is("bool"),
		"integer":   is("int"),
		"float":     is("float"),
		"number":    is("int", "float", "bool"),
		"string":    is("str"),
		"mapping":   is("dict"),
		"sequence":  is("str", "list", "tuple", "dict", "undefined"),
		"iterable":  is("str", "list", "tuple", "dict", "dict view", "generator", "undefined"),
		"callable":  is("function", "object"),
		"true":      func(v any, _ args) bool { return v == true },
		"false":     func(v any, _ args) bool { return v == false },
		"odd":       func(v any, _ args) bool { return remainder(v, 2) == 1 },
		"even":      func(v any, _ args) bool { return remainder(v, 2) == 0 },
		"divisibleby": func(v any, a args) bool {
			return remainder(v, a.int(0, "num", 1)) == 0
		},
		"lower": func(v any, _ args) bool { return stringMethods["islower"](toString(v), args{}).(bool) },
		"upper": func(v any, _ args) bool { return stringMethods["isupper"](toString(v), args{}).(bool) },
		"in":    func(v any, a args) bool { return contains(a.need(0, "seq"), v) },
		"sameas": func(v any, a args) bool {
			other := a.need(0, "other")
			return typeName(v) == typeName(other) && equal(v, other)
		},
		"filter": func(v any, _ args) bool { _, ok := filters[toString(v)]; return ok },
		"test":   func(v any, _ args) bool { _, ok := tests[strings.TrimSpace(toString(v))]; return ok },
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, "<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"},
	} {
		for _, name := range append(names, op) {
			tests[name] = compared(op)
		}
	}
}
