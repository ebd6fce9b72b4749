package review

import (
	"regexp"
	"slices"
	"strings"

	"payload/internal/report"
	"payload/internal/review/scan"
)

// unit is one file that an extractor reads.
type unit struct {
	*scan.File
	path string // as it lies at this side
	ref  string
}

func (s unit) place(line int) report.Place {
	return report.Place{Ref: s.ref, Path: s.path, Line: line}
}

// extractor finds the items of one rule in one file.
type extractor struct {
	plan   *plan
	class  class
	of     names
	filter nameFilter
	side   int
	trees  *trees
	types  *types // for the defaults of flags; nil without
}

// extractors by the kind that a rule names. cmake, logs, files and text are
// not made of tokens and have their own.
var extractors = map[string]func(*extractor, unit) []item{
	"flags": (*extractor).flags, "routes": (*extractor).routes, "arguments": (*extractor).arguments,
	"compared": (*extractor).compared, "literals": (*extractor).literals, "keys": (*extractor).keys,
	"enums": (*extractor).enums, "fields": (*extractor).fields, "functions": (*extractor).functions,
	"bodies": (*extractor).bodies, "tables": (*extractor).tables, "macros": (*extractor).macros,
	"exits": (*extractor).exits, "constants": (*extractor).constants,
}

// call is one call of a function that a rule names.
type call struct {
	at     int    // token of the last name
	callee string // dotted
	from   string // as the rule spells it
	open   int    // token of the bracket
	args   []scan.Span
}

// calls lists the calls of the functions that the rule names.
func (e *extractor) calls(s unit) []call {
	var list []call
	for i := range s.Tokens {
		callee, open, ok := s.Callee(i)
		if !ok {
			continue
		}
		if from, named := e.of.match(callee); named {
			list = append(list, call{i, callee, from, open, s.Args(open)})
		}
	}
	return list
}

// routes are calls such as server.get("/path", handler): the method is the
// last name of what is called.
func (e *extractor) routes(s unit) []item {
	var found []item
	for _, c := range e.calls(s) {
		args := c.args
		if len(args) == 0 {
			continue
		}
		path := ""
		for k := args[0].Start; k < args[0].End && path == ""; k++ {
			if text, _, isString := s.StringAt(k, args[0].End); isString {
				path = text
			}
		}
		if !strings.HasPrefix(path, "/") || !e.filter.ok(path) {
			continue
		}
		it := item{
			class: e.class, name: strings.ToUpper(last(c.callee)) + " " + path, from: c.from,
			attrs: map[string]string{}, at: s.place(s.Tokens[c.at].Line), uses: []string{path},
		}
		if len(args) > 1 {
			it.attrs["handler"] = handler(s, args[1])
		}
		found = append(found, it)
	}
	return found
}

// handler is the last name in an argument, without what wraps it; a lambda has
// none.
func handler(s unit, a scan.Span) string {
	name := ""
	for k := a.Start; k < a.End; k++ {
		if s.Tokens[k].Is("[") {
			return "a lambda"
		}
		if s.Tokens[k].Kind == scan.Ident {
			name = s.Tokens[k].Text
		}
	}
	return name
}

// arguments are strings given to calls of the named functions.
func (e *extractor) arguments(s unit) []item {
	var found []item
	for _, c := range e.calls(s) {
		for n, a := range c.args {
			if e.plan.rule.At != 0 && e.plan.rule.At != n+1 {
				continue
			}
			text, next, isString := s.StringAt(a.Start, a.End)
			if !isString || next != a.End && !s.Tokens[next].Is("+") || !e.filter.ok(text) {
				continue
			}
			found = append(found, item{class: e.class, name: strings.TrimSpace(text), from: c.from, attrs: map[string]string{"call": last(c.callee)}, at: s.place(s.Tokens[c.at].Line)})
		}
	}
	return found
}

// compared are strings that one of the named variables is compared with.
func (e *extractor) compared(s unit) []item {
	var found []item
	for i, t := range s.Tokens {
		if t.Kind != scan.String || i < 2 || !s.Tokens[i-1].Is("==") && !s.Tokens[i-1].Is("!=") {
			continue
		}
		from, ok := e.of.match(s.Tokens[i-2].Text)
		if ok && e.filter.ok(t.Text) {
			found = append(found, item{class: e.class, name: t.Text, from: from, attrs: map[string]string{}, at: s.place(t.Line)})
		}
	}
	return found
}

// literals are strings of the given form, anywhere or in the named functions.
func (e *extractor) literals(s unit) []item {
	var found []item
	for i := 0; i < len(s.Tokens); i++ {
		text, next, ok := s.StringAt(i, len(s.Tokens))
		if !ok {
			continue
		}
		line, scope := s.Tokens[i].Line, s.ScopeOf(i)
		i = next - 1
		if !e.of.empty() {
			if _, in := e.of.match(scope); !in {
				continue
			}
		}
		if e.filter.ok(text) {
			found = append(found, item{class: e.class, name: strings.TrimSpace(text), scope: last(scope), attrs: map[string]string{}, at: s.place(line), uses: []string{strings.TrimSpace(text)}})
		}
	}
	return found
}

// decls are declarations of a kind, of types that the rule names.
func (e *extractor) decls(s unit, kind scan.DeclKind, fill func(scan.Decl, *item) bool) []item {
	var found []item
	for _, d := range s.Decls {
		if d.Kind != kind {
			continue
		}
		of := d.Of
		if kind == scan.Func {
			of = d.Name
		}
		from := ""
		if !e.of.empty() {
			var ok bool
			if from, ok = e.of.match(of); !ok {
				continue
			}
		}
		it := item{class: e.class, name: d.Name, scope: d.Of, from: from, attrs: map[string]string{}, at: s.place(d.Line), uses: []string{last(d.Name)}}
		if e.filter.ok(d.Name) && fill(d, &it) {
			found = append(found, it)
		}
	}
	return found
}

func (e *extractor) enums(s unit) []item {
	return e.decls(s, scan.Enumerator, func(d scan.Decl, it *item) bool {
		if d.Value != "" {
			it.attrs["value"] = d.Value
		}
		return true
	})
}

func (e *extractor) fields(s unit) []item {
	return e.decls(s, scan.Field, func(d scan.Decl, it *item) bool {
		it.attrs["type"] = d.Type
		it.attrs["default"] = d.Value
		return true
	})
}

func (e *extractor) functions(s unit) []item {
	return e.decls(s, scan.Func, func(d scan.Decl, it *item) bool {
		it.scope = ""
		it.attrs["signature"] = d.Type
		if d.Deprecated != "" {
			it.attrs["deprecated"] = d.Deprecated
		}
		return true
	})
}

// bodies are the named functions themselves, by what they do.
func (e *extractor) bodies(s unit) []item {
	var found []item
	for _, scope := range s.Scopes {
		if from, ok := e.of.match(scope.Name); ok {
			found = append(found, item{
				class: e.class, name: scope.Name, from: from, at: s.place(s.Tokens[scope.Open].Line),
				attrs: map[string]string{"body": strings.Join(statements(s.File, scope.Open+1, scope.Close), "\n")},
				uses:  []string{last(scope.Name)},
			})
		}
	}
	return found
}

// statements cuts a body into statements in one spelling.
func statements(f *scan.File, start, end int) []string {
	var list []string
	from := start
	for i := start; i < end; i++ {
		t := f.Tokens[i]
		if m := f.Match[i]; m > i && (t.Is("(") || t.Is("[")) {
			i = m
			continue
		}
		if t.Is(";") || t.Is("{") || t.Is("}") {
			if text := f.Text(from, i); text != "" {
				list = append(list, text)
			}
			from = i + 1
		}
	}
	if text := f.Text(from, end); text != "" {
		list = append(list, text)
	}
	return list
}

// tables are initialisers of the named variables: a row is a string, or braces
// with one. The row's first string is the name; what else is in it tells two
// rows of one name apart.
func (e *extractor) tables(s unit) []item {
	var found []item
	for i, t := range s.Tokens {
		if t.Kind != scan.Ident {
			continue
		}
		from, ok := e.of.match(t.Text)
		if !ok {
			continue
		}
		k := i + 1
		for k < len(s.Tokens) && s.Tokens[k].Is("[") && s.Match[k] > 0 {
			k = s.Match[k] + 1
		}
		if k < len(s.Tokens) && s.Tokens[k].Is("=") {
			k++
		}
		if k >= len(s.Tokens) || !s.Tokens[k].Is("{") {
			continue
		}
		for _, row := range s.Args(k) {
			if it, ok := e.row(s, row); ok {
				it.from = from
				found = append(found, it)
			}
		}
	}
	return found
}

func (e *extractor) row(s unit, row scan.Span) (item, bool) {
	for row.Start < row.End && s.Tokens[row.Start].Kind == scan.Directive {
		row.Start++
	}
	if row.Start >= row.End {
		return item{}, false
	}
	it := item{class: e.class, attrs: map[string]string{}, at: s.place(s.Tokens[row.Start].Line)}
	start, end := row.Start, row.End
	if s.Tokens[start].Is("{") && s.Match[start] > 0 {
		end = s.Match[start]
		start++
	}
	var words []string
	for k := start; k < end; k++ {
		text, next, ok := s.StringAt(k, end)
		if ok && it.name == "" {
			it.name = text
			k = next - 1
			continue
		}
		if t := s.Tokens[k]; t.Kind == scan.Ident {
			words = append(words, t.Text)
		}
	}
	if it.name == "" || !e.filter.ok(it.name) {
		return it, false
	}
	if len(words) > 0 {
		it.attrs["entry"] = words[0]
	}
	return it, true
}

var define = regexp.MustCompile(`^#\s*define\s+([A-Za-z_]\w*)\s+(\S.*)$`)

// macros are definitions with a value and without parameters.
func (e *extractor) macros(s unit) []item {
	var found []item
	for _, t := range s.Tokens {
		if t.Kind != scan.Directive {
			continue
		}
		m := define.FindStringSubmatch(t.Text)
		if m == nil || !e.filter.ok(m[1]) {
			continue
		}
		value, _, _ := strings.Cut(m[2], "//")
		value, _, _ = strings.Cut(value, "/*")
		found = append(found, item{class: e.class, name: m[1], attrs: map[string]string{"value": strings.Join(strings.Fields(value), " ")}, at: s.place(t.Line)})
	}
	return found
}

// exits are the ways in which the named functions end with a number: the code
// and the last text before it.
func (e *extractor) exits(s unit) []item {
	var found []item
	for i, t := range s.Tokens {
		leaves := t.Is("return") || (t.Is("exit") || t.Is("_exit") || t.Is("_Exit") || t.Is("abort")) && i+1 < len(s.Tokens) && s.Tokens[i+1].Is("(")
		if !leaves {
			continue
		}
		scope := s.ScopeOf(i)
		from, ok := e.of.match(scope)
		if !ok {
			continue
		}
		k := i + 1
		for s.Tokens[k].Is("(") || s.Tokens[k].Is("-") {
			k++
		}
		code := s.Tokens[k]
		if code.Kind != scan.Number && !strings.HasPrefix(code.Text, "EXIT_") {
			continue
		}
		why := ""
		for k := i - 1; k > i-80 && k > 0 && !s.Tokens[k].Is("return"); k-- {
			if text := s.Tokens[k].Text; s.Tokens[k].Kind == scan.String && len(text) > 3 {
				why = strings.TrimSpace(text)
				break
			}
		}
		if why == "" {
			continue
		}
		found = append(found, item{class: e.class, name: code.Text + " after \"" + why + "\"", scope: last(scope), from: from, attrs: map[string]string{}, at: s.place(t.Line), uses: []string{why}})
	}
	return found
}

// constants are names that classes of a Python file set to a literal.
func (e *extractor) constants(s unit) []item {
	if s.Lang != scan.Python {
		return nil
	}
	type level struct {
		col  int
		name string
	}
	var stack []level
	var found []item
	for i := 0; i+2 < len(s.Tokens); i++ {
		t := s.Tokens[i]
		first := i == 0 || s.Tokens[i-1].Line != t.Line
		if !first || t.Kind != scan.Ident {
			continue
		}
		for len(stack) > 0 && stack[len(stack)-1].col >= t.Col {
			stack = stack[:len(stack)-1]
		}
		if t.Is("class") || t.Is("def") {
			stack = append(stack, level{t.Col, s.Tokens[i+1].Text})
			continue
		}
		// Only a literal that ends the statement: sums and calls are no constants.
		value := s.Tokens[i+2]
		if !s.Tokens[i+1].Is("=") || value.Kind != scan.String && value.Kind != scan.Number && !value.Is("auto") {
			continue
		}
		if i+3 < len(s.Tokens) && s.Tokens[i+3].Line == value.Line && !s.Tokens[i+3].Is("(") {
			continue
		}
		var path []string
		for _, l := range stack {
			path = append(path, l.name)
		}
		name := strings.Join(append(path, t.Text), ".")
		from, ok := "", true
		if !e.of.empty() {
			from, ok = e.of.match(strings.Join(path, "."))
			if !ok && len(path) > 0 {
				from, ok = e.of.match(path[0])
			}
		}
		if !ok || !e.filter.ok(name) {
			continue
		}
		it := item{class: e.class, name: name, from: from, attrs: map[string]string{}, at: s.place(t.Line), uses: []string{name}}
		switch value.Kind {
		case scan.String:
			it.attrs["value"] = value.Text
			it.uses = append(it.uses, value.Text)
		case scan.Number:
			it.attrs["value"] = value.Text
		}
		found = append(found, it)
	}
	return found
}

// files are the paths themselves.
func (e *extractor) files() []item {
	var found []item
	for _, path := range e.plan.paths[e.side] {
		if e.filter.ok(path) {
			found = append(found, item{class: e.class, name: path, attrs: map[string]string{}, at: report.Place{Path: path}, uses: []string{path, base(path)}})
		}
	}
	return found
}

// text finds matches of the rule's expression; the group "name" is the name,
// other groups are attributes.
func (e *extractor) text(path, ref, text string) []item {
	re := regexp.MustCompile("(?m)" + e.plan.rule.Match)
	var found []item
	for _, m := range re.FindAllStringSubmatchIndex(text, -1) {
		it := item{class: e.class, attrs: map[string]string{}, at: report.Place{Ref: ref, Path: path, Line: 1 + strings.Count(text[:m[0]], "\n")}}
		for n, group := range re.SubexpNames() {
			if group == "" || m[2*n] < 0 {
				continue
			}
			value := text[m[2*n]:m[2*n+1]]
			if group == "name" {
				it.name = value
			} else {
				it.attrs[group] = value
			}
		}
		if it.name != "" && (e.filter.except == nil || !e.filter.except.MatchString(it.name)) {
			found = append(found, it)
		}
	}
	return found
}

// keys are those of JSON objects that a function writes or reads.
func (e *extractor) keys(s unit) []item {
	var found []item
	add := func(i int, key, access string) {
		scope := s.ScopeOf(i)
		if !e.of.empty() {
			if _, ok := e.of.match(scope); !ok {
				return
			}
		}
		if scope == "" || !e.filter.ok(key) {
			return
		}
		found = append(found, item{class: e.class, name: key, scope: scope, attrs: map[string]string{"access": access}, at: s.place(s.Tokens[i].Line)})
	}
	readers := []string{"at", "contains", "value", "find", "erase", "count"}
	for i, t := range s.Tokens {
		switch {
		case t.Is("{"):
			for _, at := range pairs(s.File, i) {
				add(at, s.Tokens[at].Text, "written")
			}
		case t.Is("[") && i > 0 && i+2 < len(s.Tokens) && s.Tokens[i+1].Kind == scan.String && s.Match[i] == i+2 &&
			(s.Tokens[i-1].Kind == scan.Ident || s.Tokens[i-1].Is("]") || s.Tokens[i-1].Is(")")):
			access := "read"
			if assigned(s.File, i+3) {
				access = "written"
			}
			add(i+1, s.Tokens[i+1].Text, access)
		case t.Kind == scan.Ident && i+2 < len(s.Tokens) && s.Tokens[i+1].Is("("):
			args := s.Args(i + 1)
			method := i > 0 && (s.Tokens[i-1].Is(".") || s.Tokens[i-1].Is("->"))
			switch {
			case method && len(args) > 0 && slices.Contains(readers, t.Text):
				if text, next, ok := s.StringAt(args[0].Start, args[0].End); ok && next == args[0].End {
					add(args[0].Start, text, "read")
				}
			case method && (t.Is("push_back") || t.Is("emplace_back")) && len(args) == 1:
				if a := args[0]; pair(s.File, a) { // an object takes a pair, an array a list of two
					add(a.Start+1, s.Tokens[a.Start+1].Text, "written")
				}
			case !method && strings.HasPrefix(t.Text, "json_") && len(args) > 1:
				if text, next, ok := s.StringAt(args[1].Start, args[1].End); ok && next == args[1].End {
					add(args[1].Start, text, "read")
				}
			}
		}
	}
	return found
}

// pairs gives the keys of braces that make an object: each element is a pair
// whose first is a string. (The rule is nlohmann::json's for initializer lists.)
func pairs(f *scan.File, open int) []int {
	args := f.Args(open)
	var at []int
	for _, a := range args {
		for a.Start < a.End && f.Tokens[a.Start].Kind == scan.Directive {
			a.Start++
		}
		if a.Start == a.End {
			continue
		}
		if !pair(f, a) {
			return nil
		}
		at = append(at, a.Start+1)
	}
	return at
}

func pair(f *scan.File, a scan.Span) bool {
	if !f.Tokens[a.Start].Is("{") || f.Match[a.Start] != a.End-1 {
		return false
	}
	inner := f.Args(a.Start)
	return len(inner) == 2 && inner[0].End == inner[0].Start+1 && f.Tokens[inner[0].Start].Kind == scan.String
}

// assigned says whether an assignment follows token i, maybe after further
// subscripts.
func assigned(f *scan.File, i int) bool {
	for i < len(f.Tokens) && f.Tokens[i].Is("[") && f.Match[i] > 0 {
		i = f.Match[i] + 1
	}
	return i < len(f.Tokens) && f.Tokens[i].Is("=")
}
