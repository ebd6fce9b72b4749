package scan

import (
	"slices"
	"strings"
)

// File is a source file as tokens and scopes.
type File struct {
	Path   string
	Lang   Language
	Tokens []Token
	Match  []int // of a bracket: the index of its partner, else -1
	Scopes []Scope
	Decls  []Decl

	inner []int // for each token the innermost scope that names something, -1 for none
}

// Scope is a function's body or that of a named lambda.
type Scope struct {
	Name  string // with the class: "server::start"; of a lambda, the name it is assigned to
	Open  int    // token index of its brace
	Close int
	Head  int // token index where the declaration begins
}

// DeclKind tells what a declaration declares.
type DeclKind uint8

// The kinds.
const (
	Func DeclKind = iota
	Field
	Enumerator
)

// Decl is a declared function, a field of a type, or a member of an enum.
type Decl struct {
	Kind       DeclKind
	Of         string // the type; empty for functions outside one
	Name       string
	Type       string // of a function: result and parameter types; of a field, its type
	Value      string // of a field: its initial value; of an enumerator, what it is set to
	Deprecated string // the advice, where it is declared deprecated
	Path       string // filled in by who keeps declarations of several files
	Line       int
	EndLine    int
}

// Parse reads a file.
func Parse(path, text string) *File {
	f := &File{Path: path, Lang: LanguageOf(path)}
	f.Tokens = lex(text, f.Lang)
	f.pair()
	if f.Lang == C {
		f.container(0, len(f.Tokens), "")
	}
	f.nest()
	return f
}

// pair matches brackets; a wrong one closes what it can.
func (f *File) pair() {
	f.Match = make([]int, len(f.Tokens))
	var open []int
	partner := map[string]string{")": "(", "]": "[", "}": "{"}
	for i, t := range f.Tokens {
		f.Match[i] = -1
		if t.Kind != Punct {
			continue
		}
		switch t.Text {
		case "(", "[", "{":
			open = append(open, i)
		case ")", "]", "}":
			for k := len(open) - 1; k >= 0; k-- {
				if f.Tokens[open[k]].Text == partner[t.Text] {
					f.Match[i], f.Match[open[k]] = open[k], i
					open = open[:k]
					break
				}
			}
		}
	}
}

// nest finds lambdas with a name, then fills in the scope of every token.
func (f *File) nest() {
	for i := range f.Tokens {
		if s, ok := f.lambda(i); ok {
			f.Scopes = append(f.Scopes, s)
		}
	}
	slices.SortStableFunc(f.Scopes, func(a, b Scope) int { return a.Open - b.Open })
	f.inner = make([]int, len(f.Tokens))
	for i := range f.inner {
		f.inner[i] = -1
	}
	for n, s := range f.Scopes { // outer ones come first, so inner ones overwrite
		for i := s.Open; i <= s.Close && i < len(f.inner); i++ {
			f.inner[i] = n
		}
	}
}

// lambda recognises "name = [captures](parameters) … {" at its first bracket.
func (f *File) lambda(i int) (Scope, bool) {
	if !f.at(i).Is("[") || i < 2 || !f.at(i-1).Is("=") || f.at(i-2).Kind != Ident || f.Match[i] < 0 {
		return Scope{}, false
	}
	k := f.Match[i] + 1
	if f.at(k).Is("(") && f.Match[k] > 0 {
		k = f.Match[k] + 1
	}
	for n := 0; n < 12 && k < len(f.Tokens) && !f.at(k).Is("{") && !f.at(k).Is(";"); n++ { // -> type, mutable
		k++
	}
	if !f.at(k).Is("{") || f.Match[k] < 0 {
		return Scope{}, false
	}
	return Scope{Name: f.at(i - 2).Text, Head: i - 2, Open: k, Close: f.Match[k]}, true
}

func (f *File) at(i int) Token {
	if i < 0 || i >= len(f.Tokens) {
		return Token{}
	}
	return f.Tokens[i]
}

// ScopeOf names the function that a token lies in; empty for none.
func (f *File) ScopeOf(i int) string {
	if n := f.inner[i]; n >= 0 {
		return f.Scopes[n].Name
	}
	return ""
}

// maxNested is how deep types lie in each other at most; deeper ones are no
// source that a person wrote.
const maxNested = 50

// container reads the declarations between two tokens; of is the type that
// they belong to.
func (f *File) container(i, end int, of string) {
	if strings.Count(of, "::") > maxNested {
		return
	}
	for i < end {
		next := f.declaration(i, end, of)
		if next <= i {
			next = i + 1
		}
		i = next
	}
}

// head is what was seen of a declaration so far.
type head struct {
	start   int
	paren   int // of the parameters, -1 before them
	equals  int // -1 before an initialiser
	init    bool
	keyword string // struct, class, union, enum, namespace, extern
	kwAt    int
}

// These stand before a parenthesis and aren't functions.
var notNames = []string{"__attribute__", "__declspec", "alignas", "decltype", "noexcept", "__launch_bounds__", "requires", "explicit"}

func isCaps(word string) bool {
	return word == strings.ToUpper(word) && strings.ContainsAny(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// declaration reads one declaration and gives the index behind it.
func (f *File) declaration(start, end int, of string) int {
	h := head{start: start, paren: -1, equals: -1}
	for i := start; i < end; i++ {
		t := f.Tokens[i]
		if t.Kind == Directive {
			if i == h.start {
				h.start++
			}
			continue
		}
		if t.Kind == Ident && h.paren < 0 && h.equals < 0 {
			switch t.Text {
			case "struct", "class", "union", "enum", "namespace":
				if h.keyword == "" || h.keyword == "enum" && t.Text != "enum" {
					if h.keyword == "" {
						h.keyword, h.kwAt = t.Text, i
					}
				}
			case "extern":
				if f.at(i+1).Kind == String {
					h.keyword, h.kwAt = "extern", i
				}
			case "public", "private", "protected":
				if f.at(i + 1).Is(":") {
					return i + 2
				}
			}
			continue
		}
		if t.Kind != Punct {
			continue
		}
		switch t.Text {
		case ";":
			f.finish(h, i, of)
			return i + 1
		case "<":
			if h.paren < 0 && h.equals < 0 {
				if k := f.angle(i, end); k > 0 {
					i = k
				}
			}
		case "(":
			m := f.Match[i]
			if m < 0 || m >= end {
				return i + 1
			}
			prev := f.at(i - 1)
			operator := i > 0 && (f.at(i-1).Is("operator") || f.at(i-2).Is("operator"))
			skip := slices.Contains(notNames, prev.Text) ||
				isCaps(prev.Text) && prev.Kind == Ident && f.startsDeclaration(m+1) && !strings.Contains(strings.ToLower(prev.Text), "deprecated")
			if h.paren < 0 && h.equals < 0 && !skip && (prev.Kind == Ident || operator || f.at(i+1).Is("*")) {
				h.paren = i
			}
			i = m
		case "[":
			if m := f.Match[i]; m > 0 && m < end {
				i = m
			}
		case "=":
			if !f.at(i-1).Is("operator") && h.equals < 0 {
				h.equals = i
			}
		case ":":
			if h.paren >= 0 && h.equals < 0 {
				h.init = true
			}
		case "{":
			m := f.Match[i]
			if m < 0 || m >= end && end < len(f.Tokens) {
				return i + 1
			}
			if h.equals >= 0 {
				i = m
				continue
			}
			if h.paren >= 0 {
				if h.init && (f.at(i-1).Kind == Ident || f.at(i-1).Is(">")) {
					i = m // a member's initialiser
					continue
				}
				f.function(h, i, m, of)
				return m + 1
			}
			switch h.keyword {
			case "namespace", "extern":
				f.container(i+1, m, of)
				return m + 1
			case "enum":
				f.enum(h, i, m, of)
			case "struct", "class", "union":
				f.container(i+1, m, join(of, f.typeName(h, i, m, end)))
			}
			i = m
		case "}":
			return i + 1
		}
	}
	return end
}

// startsDeclaration says whether a declaration goes on at token i, rather than
// a body or an end.
func (f *File) startsDeclaration(i int) bool {
	t := f.at(i)
	return t.Kind == Ident && !slices.Contains([]string{"const", "noexcept", "override", "final"}, t.Text)
}

// angle gives the index of the ">" that closes template arguments; 0 when "<"
// compares.
func (f *File) angle(i, end int) int {
	depth := 0
	for k := i; k < end && k < i+400; k++ {
		switch t := f.Tokens[k]; {
		case t.Is("<"):
			depth++
		case t.Is("<<"):
			return 0
		case t.Is(">"):
			if depth--; depth == 0 {
				return k
			}
		case t.Is("("), t.Is("["), t.Is("{"):
			if f.Match[k] < 0 {
				return 0
			}
			k = f.Match[k]
		case t.Is(";"), t.Is("}"), t.Is(")"):
			return 0
		}
	}
	return 0
}

func join(of, name string) string {
	if of == "" {
		return name
	}
	if name == "" {
		return of
	}
	return of + "::" + name
}

// typeName is the name of a type whose body is between two braces: before it,
// or behind it for "typedef struct {…} name" and "struct {…} member".
func (f *File) typeName(h head, open, close, end int) string {
	name := ""
	for k := h.kwAt + 1; k < open; k++ {
		t := f.Tokens[k]
		if t.Is(":") {
			break
		}
		if t.Kind == Ident && t.Text != "class" && t.Text != "struct" && t.Text != "final" && !isCaps(t.Text) {
			name = t.Text
		}
	}
	for k := close + 1; name == "" && k < end && !f.at(k).Is(";"); k++ {
		if f.at(k).Kind == Ident {
			name = f.at(k).Text
		}
	}
	return name
}

// function records a body.
func (f *File) function(h head, open, close int, of string) {
	name := join(of, f.nameBefore(h.paren))
	f.Scopes = append(f.Scopes, Scope{Name: name, Open: open, Close: close, Head: h.start})
	f.Decls = append(f.Decls, Decl{
		Kind: Func, Of: of, Name: name, Type: f.signature(h.start, h.paren),
		Line: f.at(h.paren - 1).Line, EndLine: f.at(close).Line,
	})
}

// nameBefore is the possibly qualified name that ends before token i.
func (f *File) nameBefore(i int) string {
	k := i - 1
	name := f.at(k).Text
	if f.at(k).Kind != Ident && f.at(k-1).Is("operator") {
		k--
		name = f.at(k).Text + name
	}
	for f.at(k - 1).Is("~") {
		k--
		name = "~" + name
	}
	for f.at(k-1).Is("::") && f.at(k-2).Kind == Ident {
		name = f.at(k-2).Text + "::" + name
		k -= 2
	}
	return name
}

// finish records a declaration that ends with a semicolon.
func (f *File) finish(h head, end int, of string) {
	if h.start >= end || f.at(h.start).Is("using") || f.at(h.start).Is("typedef") || f.at(h.start).Is("return") || f.at(h.start).Is("friend") {
		return
	}
	if h.paren >= 0 && !f.at(h.paren+1).Is("*") {
		f.prototype(h.start, h.paren, of, "")
		return
	}
	if of == "" || h.keyword == "enum" && f.hasBody(h.start, end) {
		return
	}
	if h.paren >= 0 { // a pointer to a function
		k := h.paren + 1
		for f.at(k).Is("*") || isCaps(f.at(k).Text) {
			k++
		}
		f.field(of, f.at(k), f.Text(h.start, h.paren)+" "+f.Text(h.paren, end), "", end)
		return
	}
	if f.hasBody(h.start, end) && h.equals < 0 && h.keyword != "" {
		return // the fields of the type inside were recorded
	}
	f.fields(h.start, end, of)
}

// hasBody says whether braces lie between two tokens.
func (f *File) hasBody(start, end int) bool {
	return slices.ContainsFunc(f.Tokens[start:end], func(t Token) bool { return t.Is("{") })
}

// prototype records a declared function. DEPRECATED(declaration, "advice") is
// read inside.
func (f *File) prototype(start, paren int, of, advice string) {
	callee := f.at(paren - 1).Text
	if advice == "" && strings.Contains(strings.ToLower(callee), "deprecated") {
		args := f.Args(paren)
		if len(args) == 2 {
			advice = "deprecated"
			if t := f.at(args[1].Start); t.Kind == String {
				advice = t.Text
			}
			for k := args[0].Start; k < args[0].End; k++ {
				if f.at(k).Is("(") && f.at(k-1).Kind == Ident {
					f.prototype(args[0].Start, k, of, advice)
					return
				}
			}
		}
		return
	}
	if isCaps(callee) || start == paren-1 && of == "" {
		return // a macro's call
	}
	f.Decls = append(f.Decls, Decl{
		Kind: Func, Of: of, Name: join(of, f.nameBefore(paren)), Type: f.signature(start, paren), Deprecated: advice,
		Line: f.at(paren - 1).Line, EndLine: f.at(f.Match[paren]).Line,
	})
}

// fields records "type a = 1, b[2];".
func (f *File) fields(start, end int, of string) {
	typ := ""
	from := start
	for from < end {
		stop := from
		for stop < end && !f.at(stop).Is(",") {
			if f.at(stop).Is("<") {
				if k := f.angle(stop, end); k > 0 {
					stop = k
				}
			}
			if m := f.Match[stop]; m > stop {
				stop = m
			}
			stop++
		}
		name, value := -1, ""
		k := from
		for ; k < stop; k++ {
			t := f.at(k)
			if t.Is("<") {
				if m := f.angle(k, stop); m > 0 {
					k = m
					continue
				}
			}
			if t.Is("=") {
				value = f.Text(k+1, stop)
				break
			}
			if t.Is("{") {
				value = f.Text(k+1, f.Match[k])
				break
			}
			if t.Is("[") || t.Is(":") {
				if t.Is("[") && f.Match[k] > 0 {
					k = f.Match[k]
					continue
				}
				break
			}
			if t.Kind == Ident {
				name = k
			}
		}
		if name > from || name >= 0 && typ != "" {
			if typ == "" {
				typ = f.Text(from, name)
			}
			f.field(of, f.at(name), typ, value, stop)
		}
		from = stop + 1
	}
}

func (f *File) field(of string, name Token, typ, value string, end int) {
	for _, word := range []string{"mutable ", "static ", "constexpr ", "struct ", "enum "} {
		typ = strings.TrimPrefix(typ, word)
	}
	f.Decls = append(f.Decls, Decl{Kind: Field, Of: of, Name: name.Text, Type: typ, Value: value, Line: name.Line, EndLine: f.at(end).Line})
}

func (f *File) enum(h head, open, close int, of string) {
	name := join(of, f.typeName(h, open, close, len(f.Tokens)))
	for _, a := range f.split(open+1, close) {
		for a.Start < a.End && f.at(a.Start).Kind == Directive {
			a.Start++
		}
		if a.Start >= a.End || f.at(a.Start).Kind != Ident {
			continue
		}
		value := ""
		if f.at(a.Start + 1).Is("=") {
			value = f.Text(a.Start+2, a.End)
		}
		f.Decls = append(f.Decls, Decl{Kind: Enumerator, Of: name, Name: f.at(a.Start).Text, Value: value, Line: f.at(a.Start).Line, EndLine: f.at(a.Start).Line})
	}
}

// Span is a range of tokens, End excluded.
type Span struct{ Start, End int }

// Args splits what lies in a bracket at its commas.
func (f *File) Args(open int) []Span {
	if open >= len(f.Tokens) || f.Match[open] < 0 {
		return nil
	}
	return f.split(open+1, f.Match[open])
}

func (f *File) split(start, end int) []Span {
	var spans []Span
	from := start
	for i := start; i < end; i++ {
		if m := f.Match[i]; m > i {
			i = m
			continue
		}
		if f.Tokens[i].Is(",") {
			spans = append(spans, Span{from, i})
			from = i + 1
		}
	}
	if from < end {
		spans = append(spans, Span{from, end})
	}
	return spans
}

// Text joins tokens in one spelling, whatever the spaces and comments were.
func (f *File) Text(start, end int) string {
	var b strings.Builder
	var prev Token
	for i := start; i < end && i < len(f.Tokens); i++ {
		t := f.Tokens[i]
		if t.Kind == Directive {
			continue
		}
		if b.Len() > 0 && spaced(prev, t) {
			b.WriteByte(' ')
		}
		switch t.Kind {
		case String:
			b.WriteString(quote(t.Text))
		case Char:
			b.WriteString("'" + t.Text + "'")
		default:
			b.WriteString(t.Text)
		}
		prev = t
	}
	return b.String()
}

func quote(s string) string {
	return `"` + strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n", "\t", "\\t", "\r", "\\r").Replace(s) + `"`
}

func spaced(a, b Token) bool {
	tight := func(t Token, marks string) bool { return t.Kind == Punct && strings.Contains(marks, t.Text) }
	return !tight(a, "([{.->::~!") && !tight(b, ")]},;.->::(") || a.Is(",")
}

// signature is a function's result and its parameters' types, without their
// names, default values and macros.
func (f *File) signature(start, paren int) string {
	var result []string
	nameStart := paren - 1
	if f.at(nameStart - 1).Is("operator") {
		nameStart--
	}
	for f.at(nameStart-1).Is("::") && f.at(nameStart-2).Kind == Ident {
		nameStart -= 2
	}
	for i := start; i < nameStart; i++ {
		t := f.at(i)
		if t.Kind == Directive || t.Kind == Ident && (isCaps(t.Text) && len(t.Text) > 1 || slices.Contains(notNames, t.Text) || slices.Contains([]string{"static", "inline", "extern", "virtual", "struct", "enum", "explicit", "constexpr"}, t.Text)) {
			continue
		}
		if t.Is("(") && f.Match[i] > 0 && (isCaps(f.at(i-1).Text) || slices.Contains(notNames, f.at(i-1).Text)) {
			i = f.Match[i] // of an attribute
			continue
		}
		result = append(result, t.Text)
	}
	var params []string
	for _, a := range f.Args(paren) {
		params = append(params, f.paramType(a))
	}
	return strings.Join(result, " ") + " (" + strings.Join(params, ", ") + ")"
}

func (f *File) paramType(a Span) string {
	end := a.End
	for k := a.Start; k < a.End; k++ {
		if f.at(k).Is("=") {
			end = k
			break
		}
	}
	suffix := ""
	last := end - 1
	for f.at(last).Is("]") && f.Match[last] > a.Start {
		suffix = "[]"
		last = f.Match[last] - 1
	}
	if last > a.Start && f.at(last).Kind == Ident && !slices.Contains([]string{"int", "char", "long", "short", "unsigned", "float", "double", "bool", "const"}, f.at(last).Text) &&
		!slices.Contains([]string{"struct", "enum", "const", "unsigned", "::"}, f.at(last-1).Text) {
		end = last
	} else if suffix != "" {
		end = last + 1
	}
	var words []string
	for k := a.Start; k < end; k++ {
		if t := f.at(k); t.Kind != Directive && !t.Is("struct") && !t.Is("enum") {
			words = append(words, t.Text)
		}
	}
	return strings.Join(words, " ") + suffix
}

// StringAt gives the value of the string that begins at token i: adjacent
// literals joined, with a format macro such as PRId64 between them as "d". next
// is the index behind it; ok is false where no string begins.
func (f *File) StringAt(i, end int) (value string, next int, ok bool) {
	for i < end && (f.at(i).Kind == String || ok && f.at(i).Kind == Ident && strings.HasPrefix(f.at(i).Text, "PRI")) {
		if f.at(i).Kind == String {
			value += f.at(i).Text
		} else {
			value += "d"
		}
		ok = true
		i++
	}
	return value, i, ok
}

// Callee gives the dotted path that is called at token i, when i is the last
// name of one: "ctx.http.get"; "->" and "::" count as dots.
func (f *File) Callee(i int) (path string, open int, ok bool) {
	if f.at(i).Kind != Ident || !f.at(i+1).Is("(") && !f.at(i+1).Is("{") || f.Match[i+1] < 0 {
		return "", 0, false
	}
	path = f.at(i).Text
	for k := i; (f.at(k-1).Is(".") || f.at(k-1).Is("->") || f.at(k-1).Is("::")) && f.at(k-2).Kind == Ident; k -= 2 {
		path = f.at(k-2).Text + "." + path
	}
	return path, i + 1, true
}
