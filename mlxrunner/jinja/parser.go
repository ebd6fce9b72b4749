package jinja

import (
	"slices"
	"strconv"
)

// Template is a template that was read. It may be rendered by any number of
// goroutines.
type Template struct{ body []statement }

// Parse reads a template.
func Parse(source string) (t *Template, err error) {
	defer recovered(&err)
	p := &parser{tokens: lex(source)}
	body := p.statements()
	if p.peek().kind != eof {
		p.fail("unexpected %q", p.tokens[p.at+1].text)
	}
	return &Template{body}, nil
}

// parser follows the grammar of Jinja2, by its names.
type parser struct {
	tokens []token
	at     int
	loops  int // around the current place
	depth  int // of brackets and blocks
}

// deeper counts a bracket or a block; the result, deferred, counts it off.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxDepth {
		p.fail("more than %d brackets and blocks within each other", maxDepth)
	}
	return func() { p.depth-- }
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != eof {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, args ...any) {
	defer atLine(p.peek().line)
	fail(format, args...)
}

// is says whether the next token is an operator or a name.
func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == operator || t.kind == name) && t.text == text
}

// accept takes the next token if it is text.
func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail("expected %q, found %q", text, p.peek().text)
	}
}

func (p *parser) name() string {
	if p.peek().kind != name {
		p.fail("expected a name, found %q", p.peek().text)
	}
	return p.take().text
}

// closes takes the end of a tag.
func (p *parser) closes() {
	if p.peek().kind != end {
		p.fail("unexpected %q in a tag", p.peek().text)
	}
	p.at++
}

// statements reads up to a tag that one of the words begins, which it leaves;
// without words, to the end.
func (p *parser) statements(until ...string) []statement {
	var body []statement
	for {
		t := p.peek()
		switch {
		case t.kind == eof:
			if len(until) > 0 {
				p.fail("the template ends, %s is missing", until[len(until)-1])
			}
			return body
		case t.kind == text:
			p.at++
			body = append(body, output(t.text))
		case t.text == "{{":
			p.at++
			e := p.tupleOf(true)
			p.closes()
			body = append(body, &print{t.line, e})
		default:
			if word := p.tokens[p.at+1]; word.kind == name && slices.Contains(until, word.text) {
				return body
			}
			p.at++
			body = append(body, p.statement())
		}
	}
}

// body reads statements up to {% word %}, and that.
func (p *parser) body(word string) []statement {
	body := p.statements(word)
	p.at += 2
	p.closes()
	return body
}

func (p *parser) statement() statement {
	defer p.deeper()()
	line := p.peek().line
	switch word := p.name(); word {
	case "for":
		return p.forLoop(line)
	case "if":
		return p.condition(line)
	case "set":
		return p.set(line)
	case "macro":
		m := p.macro(p.name())
		p.macroBody(m, "endmacro")
		return m
	case "call":
		c := &callBlock{line: line, caller: &macro{name: "caller"}}
		if p.is("(") {
			c.caller = p.macro("caller")
		}
		c.call = p.expression()
		p.macroBody(c.caller, "endcall")
		return c
	case "filter":
		f := &filterBlock{line: line, filters: p.filters(held{}, true)}
		p.closes()
		f.body = p.body("endfilter")
		return f
	case "generation": // marks what an assistant said, for training
		p.closes()
		return block(p.body("endgeneration"))
	case "with":
		return p.with(line)
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%s outside a loop", word)
		}
		p.closes()
		if word == "break" {
			return jump(stop)
		}
		return jump(skip)
	default:
		p.fail("tag %q is not supported", word)
	}
	return nil
}

func (p *parser) forLoop(line int) statement {
	f := &forLoop{line: line, target: p.target(false)}
	p.expect("in")
	f.over = p.tupleOf(false)
	if p.accept("if") {
		f.only = p.expression()
	}
	f.recursive = p.accept("recursive")
	p.closes()
	p.loops++
	f.body = p.statements("endfor", "else")
	p.loops--
	p.at++
	if p.take().text == "else" {
		p.closes()
		f.otherwise = p.statements("endfor")
		p.at += 2
	}
	p.closes()
	return f
}

func (p *parser) condition(line int) statement {
	c := &condition{line: line}
	for {
		c.tests = append(c.tests, p.tupleOf(true))
		p.closes()
		c.bodies = append(c.bodies, p.statements("elif", "else", "endif"))
		p.at++
		switch p.take().text {
		case "elif":
			continue
		case "else":
			p.closes()
			c.otherwise = p.statements("endif")
			p.at += 2
		}
		p.closes()
		return c
	}
}

func (p *parser) set(line int) statement {
	s := &set{line: line, target: p.target(true)}
	if p.accept("=") {
		s.value = p.tupleOf(true)
		p.closes()
		return s
	}
	if p.is("|") {
		s.filters = p.filters(held{}, false)
	}
	p.closes()
	s.body = p.body("endset")
	return s
}

func (p *parser) with(line int) statement {
	w := &with{line: line}
	for p.peek().kind != end {
		if len(w.names) > 0 {
			p.expect(",")
		}
		w.names = append(w.names, p.target(false))
		p.expect("=")
		w.values = append(w.values, p.expression())
	}
	p.closes()
	w.body = p.body("endwith")
	return w
}

// macro reads the parameters.
func (p *parser) macro(called string) *macro {
	m := &macro{name: called}
	p.expect("(")
	for !p.accept(")") {
		if len(m.params) > 0 {
			p.expect(",")
		}
		m.params = append(m.params, p.name())
		var otherwise expression
		if p.accept("=") {
			otherwise = p.expression()
		}
		m.defaults = append(m.defaults, otherwise)
	}
	return m
}

// macroBody reads the rest; a macro takes more than its parameters if it speaks
// of them.
func (p *parser) macroBody(m *macro, word string) {
	p.closes()
	start, loops := p.at, p.loops
	p.loops = 0
	m.body = p.body(word)
	p.loops = loops
	for _, t := range p.tokens[start:p.at] {
		m.varargs = m.varargs || t.kind == name && t.text == "varargs"
		m.kwargs = m.kwargs || t.kind == name && t.text == "kwargs"
	}
}

// target reads what is assigned to: a name, names, or an attribute of a
// namespace.
func (p *parser) target(attribute bool) target {
	t := target{}
	closing := ""
	if p.accept("(") {
		closing = ")"
	}
	for {
		t.names = append(t.names, p.name())
		if attribute && len(t.names) == 1 && p.accept(".") {
			t.attribute = p.name()
			return t
		}
		if !p.accept(",") {
			break
		}
		t.unpack = true
		if p.is("in") || p.is("=") || p.is(")") {
			break
		}
	}
	if closing != "" {
		p.expect(closing)
	}
	return t
}

// tupleOf reads an expression, or several with commas between them.
func (p *parser) tupleOf(conditional bool) expression {
	read := p.expression
	if !conditional {
		read = p.or
	}
	first := read()
	if !p.is(",") {
		return first
	}
	t := &sequence{form: tuple, items: []expression{first}}
	for p.accept(",") {
		if p.peek().kind == end || p.is("=") || p.is(")") || p.is("]") {
			break
		}
		t.items = append(t.items, read())
	}
	return t
}

func (p *parser) expression() expression {
	e := p.or()
	for p.is("if") {
		line := p.take().line
		c := &choice{line: line, yes: e, test: p.or()}
		if p.accept("else") {
			c.no = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() expression {
	e := p.and()
	for p.accept("or") {
		e = &logic{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expression {
	e := p.not()
	for p.accept("and") {
		e = &logic{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expression {
	defer p.deeper()()
	if p.accept("not") {
		return &not{p.not()}
	}
	return p.comparison()
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) comparison() expression {
	first := p.sum()
	c := &chain{line: p.peek().line, first: first}
	for {
		t := p.peek()
		switch {
		case t.kind == operator && slices.Contains(comparisons, t.text), p.is("in"):
			p.at++
			c.ops = append(c.ops, t.text)
		case p.is("not") && p.tokens[p.at+1].kind == name && p.tokens[p.at+1].text == "in":
			p.at += 2
			c.ops = append(c.ops, "not in")
		default:
			if len(c.ops) == 0 {
				return first
			}
			return c
		}
		c.rest = append(c.rest, p.sum())
	}
}

// operators reads operands with any of the operators between them, from the
// left.
func (p *parser) operators(operand func() expression, any ...string) expression {
	e := operand()
	for p.peek().kind == operator && slices.Contains(any, p.peek().text) {
		t := p.take()
		e = &operation{t.line, t.text, e, operand()}
	}
	return e
}

func (p *parser) sum() expression     { return p.operators(p.concat, "+", "-") }
func (p *parser) concat() expression  { return p.operators(p.product, "~") }
func (p *parser) product() expression { return p.operators(p.power, "*", "/", "//", "%") }

func (p *parser) power() expression {
	return p.operators(func() expression { return p.unary(true) }, "**")
}

func (p *parser) unary(filtered bool) expression {
	defer p.deeper()()
	var e expression
	if t := p.peek(); t.kind == operator && (t.text == "-" || t.text == "+") {
		p.at++
		e = &sign{t.line, t.text, p.unary(false)}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filtered {
		e = p.filtersAndTests(e)
	}
	return e
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expression {
	t := p.take()
	switch t.kind {
	case name:
		if value, ok := constants[t.text]; ok {
			return constant{value}
		}
		return &variable{t.line, t.text}
	case str:
		all := t.text
		for p.peek().kind == str {
			all += p.take().text
		}
		return constant{all}
	case integer:
		base := 10
		if otherBase.MatchString(t.text) {
			base = 0
		}
		n, err := strconv.ParseInt(t.text, base, 64)
		if err != nil {
			p.fail("number %s is too large", t.text)
		}
		return constant{int(n)}
	case float:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.fail("number %s is too large", t.text)
		}
		return constant{f}
	case operator:
		switch t.text {
		case "(":
			if p.accept(")") {
				return &sequence{form: tuple}
			}
			e := p.tupleOf(true)
			p.expect(")")
			return e
		case "[":
			return &sequence{form: list, items: p.list("]")}
		case "{":
			return p.dictionary()
		}
	}
	p.at--
	p.fail("unexpected %q", t.text)
	return nil
}

// list reads expressions up to a bracket.
func (p *parser) list(closing string) []expression {
	var all []expression
	for !p.accept(closing) {
		if len(all) > 0 {
			p.expect(",")
			if p.accept(closing) {
				break
			}
		}
		all = append(all, p.expression())
	}
	return all
}

func (p *parser) dictionary() expression {
	d := &dictionary{line: p.peek().line}
	for !p.accept("}") {
		if len(d.keys) > 0 {
			p.expect(",")
			if p.accept("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.expect(":")
		d.values = append(d.values, p.expression())
	}
	return d
}

func (p *parser) postfix(e expression) expression {
	for {
		t := p.peek()
		switch {
		case p.accept("."):
			if p.peek().kind == integer {
				n, _ := strconv.Atoi(p.take().text)
				e = &item{t.line, e, constant{n}}
				continue
			}
			e = &attribute{t.line, e, p.name()}
		case p.accept("["):
			e = p.subscript(t.line, e)
		case p.is("("):
			e = &call{t.line, e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) subscript(line int, of expression) expression {
	var parts [3]expression
	colons := 0
	for !p.accept("]") {
		if p.accept(":") {
			if colons++; colons > 2 {
				p.fail("a slice has three parts")
			}
			continue
		}
		if parts[colons] != nil {
			p.fail("unexpected %q in a subscript", p.peek().text)
		}
		parts[colons] = p.tupleOf(true)
	}
	switch {
	case colons > 0:
		return &slice{line, of, parts}
	case parts[0] == nil:
		p.fail("a subscript is empty")
	}
	return &item{line, of, parts[0]}
}

func (p *parser) arguments() arguments {
	var a arguments
	p.expect("(")
	for first := true; !p.accept(")"); first = false {
		if !first {
			p.expect(",")
			if p.accept(")") {
				break
			}
		}
		next := p.tokens[min(p.at+1, len(p.tokens)-1)]
		switch {
		case p.accept("*"):
			a.spread = append(a.spread, p.expression())
		case p.accept("**"):
			a.spreadNamed = append(a.spreadNamed, p.expression())
		case p.peek().kind == name && next.kind == operator && next.text == "=":
			a.names = append(a.names, p.name())
			p.expect("=")
			a.named = append(a.named, p.expression())
		default:
			a.plain = append(a.plain, p.expression())
		}
	}
	return a
}

// filters reads "| name(...)" any number of times; bare says that the first
// comes without its bar.
func (p *parser) filters(e expression, bare bool) expression {
	for bare || p.accept("|") {
		bare = false
		line := p.peek().line
		f := &filter{line: line, name: p.name(), of: e}
		if p.is("(") {
			f.args = p.arguments()
		}
		e = f
	}
	return e
}

func (p *parser) filtersAndTests(e expression) expression {
	for {
		t := p.peek()
		switch {
		case p.is("|"):
			e = p.filters(e, false)
		case p.accept("is"):
			e = p.test(t.line, e)
		case p.is("("):
			e = &call{t.line, e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) test(line int, of expression) expression {
	negated := p.accept("not")
	t := &test{line: line, of: of, name: p.name()}
	next := p.peek()
	switch {
	case p.is("("):
		t.args = p.arguments()
	case next.kind == str, next.kind == integer, next.kind == float, p.is("["), p.is("{"),
		next.kind == name && !slices.Contains([]string{"else", "or", "and", "is"}, next.text):
		t.args.plain = []expression{p.postfix(p.primary())}
	}
	if negated {
		return &not{t}
	}
	return t
}
