package jinja

import (
	"math"
	"slices"
	"strings"
)

// expression has a value; statement writes.
type (
	expression interface{ eval(s *scope) any }
	statement  interface {
		run(s *scope, out *strings.Builder) flow
	}
)

// flow says how a statement ended.
type flow int

const (
	on   flow = iota
	stop      // break
	skip      // continue
)

// scope is the names that are set, and those around.
type scope struct {
	names  map[string]any
	around *scope
	*rendering
}

// rendering is what all scopes of one share. Its bounds keep a template from
// taking the process with it; no real one comes near.
type rendering struct {
	clock func(format string) string
	steps int // statements run, and rounds of loops
	depth int // macros within macros
}

const (
	maxSteps  = 1_000_000
	maxDepth  = 200     // of macros, and of brackets and blocks in a template
	maxRepeat = 1 << 24 // characters or elements that * gives
)

func (r *rendering) step() {
	if r.steps++; r.steps > maxSteps {
		fail("the template takes more than %d steps", maxSteps)
	}
}

func (s *scope) inner() *scope {
	return &scope{names: map[string]any{}, around: s, rendering: s.rendering}
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.around {
		if v, ok := s.names[name]; ok {
			return v, true
		}
	}
	return nil, false
}

type (
	constant struct{ value any }
	variable struct {
		line int
		name string
	}
	held     struct{} // what a block of a filter or a set wrote
	sequence struct {
		form  form
		items []expression
	}
	dictionary struct {
		line         int
		keys, values []expression
	}
	attribute struct {
		line int
		of   expression
		name string
	}
	item struct {
		line    int
		of, key expression
	}
	slice struct {
		line  int
		of    expression
		parts [3]expression
	}
	arguments struct {
		plain       []expression
		names       []string
		named       []expression
		spread      []expression
		spreadNamed []expression
	}
	call struct {
		line int
		of   expression
		args arguments
	}
	filter struct {
		line int
		name string
		of   expression
		args arguments
	}
	test struct {
		line int
		name string
		of   expression
		args arguments
	}
	not   struct{ of expression }
	logic struct {
		left, right expression
		or          bool
	}
	chain struct {
		line  int
		first expression
		ops   []string
		rest  []expression
	}
	operation struct {
		line        int
		op          string
		left, right expression
	}
	sign struct {
		line int
		op   string
		of   expression
	}
	choice struct {
		line          int
		yes, test, no expression
	}
)

func (e constant) eval(*scope) any { return e.value }

func (e *variable) eval(s *scope) any {
	if v, ok := s.get(e.name); ok {
		return v
	}
	if f, ok := globals[e.name]; ok {
		return f(s)
	}
	return Undefined{e.name}
}

// heldName can't be a variable's.
const heldName = " held"

func (held) eval(s *scope) any {
	v, _ := s.get(heldName)
	return v
}

func evalAll(s *scope, all []expression) []any {
	out := make([]any, len(all))
	for i, e := range all {
		out[i] = unmarked(e.eval(s))
	}
	return out
}

func (e *sequence) eval(s *scope) any { return &List{evalAll(s, e.items), e.form} }

func (e *dictionary) eval(s *scope) any {
	defer atLine(e.line)
	d := NewDict()
	for i, key := range e.keys {
		k := key.eval(s)
		hashable(k)
		d.Set(k, e.values[i].eval(s))
	}
	return d
}

func hashable(key any) {
	switch key.(type) {
	case *List, *Dict:
		fail("%s can't be a key", typeName(key))
	}
	refuse(key)
}

func (e *attribute) eval(s *scope) any {
	defer atLine(e.line)
	return getAttribute(unmarked(e.of.eval(s)), e.name)
}

// getAttribute looks for what belongs to the type, then for a key.
func getAttribute(of any, called string) any {
	switch of := of.(type) {
	case Undefined:
		of.fail()
	case *namespace:
		if v, ok := of.of.Get(called); ok {
			return v
		}
		return Undefined{"namespace object has no attribute " + called}
	case *loop:
		return of.attribute(called)
	}
	if m, ok := method(of, called); ok {
		return m
	}
	if d, ok := of.(*Dict); ok {
		if v, ok := d.Get(called); ok {
			return v
		}
	}
	return Undefined{typeName(of) + " has no attribute " + called + ", which"}
}

func (e *item) eval(s *scope) any {
	defer atLine(e.line)
	return getItem(unmarked(e.of.eval(s)), unmarked(e.key.eval(s)))
}

func getItem(of, key any) any {
	refuse(of)
	switch of := of.(type) {
	case *Dict:
		if _, ok := key.(*List); !ok {
			if v, ok := of.Get(key); ok {
				return v
			}
		}
	case *List:
		if i, ok := key.(int); ok && (of.form == list || of.form == tuple) {
			if i = fromEnd(i, len(of.Items)); i >= 0 && i < len(of.Items) {
				return of.Items[i]
			}
		}
	case string:
		if i, ok := key.(int); ok {
			runes := []rune(of)
			if i = fromEnd(i, len(runes)); i >= 0 && i < len(runes) {
				return string(runes[i])
			}
		}
	}
	if called, ok := key.(string); ok {
		if m, ok := method(of, called); ok {
			return m
		}
	}
	return Undefined{typeName(of) + " has no element " + toString(key) + ", which"}
}

func fromEnd(i, n int) int {
	if i < 0 {
		return i + n
	}
	return i
}

func (e *slice) eval(s *scope) any {
	defer atLine(e.line)
	of := unmarked(e.of.eval(s))
	refuse(of)
	var bounds [3]any
	for i, part := range e.parts {
		if part != nil {
			bounds[i] = part.eval(s)
		}
	}
	switch of := of.(type) {
	case string:
		runes := []rune(of)
		var out []rune
		for _, i := range indices(len(runes), bounds) {
			out = append(out, runes[i])
		}
		return string(out)
	case *List:
		if of.form == list || of.form == tuple {
			out := &List{form: of.form}
			for _, i := range indices(len(of.Items), bounds) {
				out.Items = append(out.Items, of.Items[i])
			}
			return out
		}
	}
	return Undefined{"a slice of " + typeName(of)}
}

// indices lists what a slice of n elements takes.
func indices(n int, bounds [3]any) []int {
	at := func(i int) (int, bool) {
		if bounds[i] == nil {
			return 0, false
		}
		b, ok := bounds[i].(int)
		if !ok {
			fail("a slice goes by int, not by %s", typeName(bounds[i]))
		}
		return b, true
	}
	step, given := at(2)
	if !given {
		step = 1
	}
	if step == 0 {
		fail("the step of a slice is 0")
	}
	low, high := 0, n // what an index is kept within
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(i, otherwise int) int {
		b, given := at(i)
		if !given {
			return otherwise
		}
		return min(max(fromEnd(b, n), low), high)
	}
	start, end := bound(0, low), bound(1, high)
	if step < 0 {
		start, end = bound(0, high), bound(1, low)
	}
	var out []int
	for i := start; step > 0 && i < end || step < 0 && i > end; i += step {
		out = append(out, i)
	}
	return out
}

func (a arguments) eval(s *scope) ([]any, *Dict) {
	plain, named := evalAll(s, a.plain), NewDict()
	for i, e := range a.named {
		named.Set(a.names[i], e.eval(s))
	}
	for _, e := range a.spread {
		plain = append(plain, items(e.eval(s))...)
	}
	for _, e := range a.spreadNamed {
		d, ok := e.eval(s).(*Dict)
		if !ok {
			fail("** wants a dict")
		}
		for _, key := range d.keys {
			named.Set(key, d.values[key])
		}
	}
	return plain, named
}

func (e *call) eval(s *scope) any {
	defer atLine(e.line)
	of := e.of.eval(s)
	plain, named := e.args.eval(s)
	return callValue(of, plain, named)
}

func callValue(of any, plain []any, named *Dict) any {
	switch of := of.(type) {
	case function:
		return of(plain, named)
	case *loop:
		return of.again(plain)
	}
	refuse(of)
	fail("%s can't be called", typeName(of))
	return nil
}

func (e *filter) eval(s *scope) any {
	defer atLine(e.line)
	of := unmarked(e.of.eval(s))
	plain, named := e.args.eval(s)
	return apply(e.name, of, args{e.name, plain, named})
}

func (e *test) eval(s *scope) any {
	defer atLine(e.line)
	of := unmarked(e.of.eval(s))
	plain, named := e.args.eval(s)
	return passes(e.name, of, args{e.name, plain, named})
}

// apply filters a value. A name that is not known fails here and not when the
// template is read: templates hold branches for tools that have more.
func apply(name string, v any, a args) any {
	f, ok := filters[name]
	if !ok {
		fail("filter %q is not supported", name)
	}
	return f(v, a)
}

// passes tests a value.
func passes(name string, v any, a args) bool {
	f, ok := tests[name]
	if !ok {
		fail("test %q is not supported", name)
	}
	return f(v, a)
}

func (e *not) eval(s *scope) any { return !truth(e.of.eval(s)) }

func (e *logic) eval(s *scope) any {
	left := e.left.eval(s)
	if truth(left) == e.or {
		return left
	}
	return e.right.eval(s)
}

func (e *chain) eval(s *scope) any {
	defer atLine(e.line)
	left := unmarked(e.first.eval(s))
	for i, op := range e.ops {
		right := unmarked(e.rest[i].eval(s))
		if !holds(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func holds(op string, a, b any) bool {
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in":
		return contains(b, a)
	case "not in":
		return !contains(b, a)
	case "<":
		return compare(a, b) < 0
	case "<=":
		return compare(a, b) <= 0
	case ">":
		return compare(a, b) > 0
	}
	return compare(a, b) >= 0
}

func contains(in, v any) bool {
	switch in := in.(type) {
	case string:
		part, ok := v.(string)
		if !ok {
			refuse(v)
			fail("%s can't be in a str", typeName(v))
		}
		return strings.Contains(in, part)
	case *Dict:
		hashable(v)
		_, ok := in.Get(v)
		return ok
	}
	return slices.ContainsFunc(items(in), func(one any) bool { return equal(one, v) })
}

func (e *operation) eval(s *scope) any {
	defer atLine(e.line)
	left, right := e.left.eval(s), e.right.eval(s)
	if e.op == "~" {
		return toString(left) + toString(right)
	}
	refuse(left, right)
	if e.op == "+" && (isMarkup(left) || isMarkup(right)) {
		return escaped(left) + escaped(right)
	}
	left, right = unmarked(left), unmarked(right)
	switch a := left.(type) {
	case string:
		switch b := right.(type) {
		case string:
			if e.op == "+" {
				return a + b
			}
		case int:
			if e.op == "*" {
				return strings.Repeat(a, times(len(a), b))
			}
		}
		if e.op == "%" {
			return percent(a, right)
		}
	case *List:
		switch b := right.(type) {
		case *List:
			if e.op == "+" && a.form == b.form && a.form <= tuple {
				return &List{slices.Concat(a.Items, b.Items), a.form}
			}
		case int:
			if e.op == "*" && a.form <= tuple {
				return &List{slices.Repeat(a.Items, times(len(a.Items), b)), a.form}
			}
		}
	case int:
		if b, ok := right.(string); ok && e.op == "*" {
			return strings.Repeat(b, times(len(b), a))
		}
	}
	x, whole, okLeft := number(left)
	y, wholeRight, okRight := number(right)
	if !okLeft || !okRight {
		fail("%s %s %s has no meaning", typeName(left), e.op, typeName(right))
	}
	if whole && wholeRight && e.op != "/" {
		return wholeNumbers(e.op, int(x), int(y))
	}
	return numbers(e.op, x, y)
}

// times is how often n characters or elements are repeated.
func times(n, count int) int {
	if n > 0 && count > maxRepeat/n {
		fail("%d times %d is too much", count, n)
	}
	return max(0, count)
}

func isMarkup(v any) bool { _, ok := v.(markup); return ok }

func escaped(v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	text, ok := v.(string)
	if !ok {
		fail("str + %s has no meaning", typeName(v))
	}
	return escape(text, args{}).(markup)
}

func wholeNumbers(op string, a, b int) any {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		f := math.Pow(float64(a), float64(b))
		if b < 0 {
			return f
		}
		return int(f)
	}
	if b == 0 {
		fail("division by zero")
	}
	// Python rounds down.
	q, r := a/b, a%b
	if r != 0 && (r < 0) != (b < 0) {
		q, r = q-1, r+b
	}
	if op == "//" {
		return q
	}
	return r
}

func numbers(op string, a, b float64) any {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		return math.Pow(a, b)
	}
	if b == 0 {
		fail("division by zero")
	}
	switch op {
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	}
	return a - b*math.Floor(a/b)
}

func (e *sign) eval(s *scope) any {
	defer atLine(e.line)
	of := e.of.eval(s)
	refuse(of)
	f, whole, ok := number(of)
	if !ok {
		fail("%s%s has no meaning", e.op, typeName(of))
	}
	if e.op == "-" {
		f = -f
	}
	if whole {
		return int(f)
	}
	return f
}

func (e *choice) eval(s *scope) any {
	switch {
	case truth(e.test.eval(s)):
		return e.yes.eval(s)
	case e.no != nil:
		return e.no.eval(s)
	}
	return Undefined{"a choice without else"}
}
