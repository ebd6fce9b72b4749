package jinja

import "strings"

type (
	output string
	block  []statement
	jump   flow
	print  struct {
		line int
		of   expression
	}
	// target is names, which take the elements of a value with unpack, or one
	// attribute of a namespace.
	target struct {
		names     []string
		unpack    bool
		attribute string
	}
	set struct {
		line    int
		target  target
		value   expression // nil: what body writes, through filters
		filters expression
		body    []statement
	}
	with struct {
		line   int
		names  []target
		values []expression
		body   []statement
	}
	condition struct {
		line      int
		tests     []expression
		bodies    [][]statement
		otherwise []statement
	}
	forLoop struct {
		line            int
		target          target
		over, only      expression
		recursive       bool
		body, otherwise []statement
	}
	macro struct {
		name     string
		params   []string
		defaults []expression
		body     []statement
		// whether it takes more arguments, and more with names
		varargs, kwargs bool
	}
	callBlock struct {
		line   int
		caller *macro
		call   expression
	}
	filterBlock struct {
		line    int
		filters expression
		body    []statement
	}
)

func runAll(body []statement, s *scope, out *strings.Builder) flow {
	for _, one := range body {
		s.step()
		if f := one.run(s, out); f != on {
			return f
		}
	}
	return on
}

// written is what body writes.
func written(body []statement, s *scope) string {
	var out strings.Builder
	runAll(body, s, &out)
	return out.String()
}

func (o output) run(_ *scope, out *strings.Builder) flow {
	out.WriteString(string(o))
	return on
}

func (b block) run(s *scope, out *strings.Builder) flow { return runAll(b, s, out) }

func (j jump) run(*scope, *strings.Builder) flow { return flow(j) }

func (p *print) run(s *scope, out *strings.Builder) flow {
	defer atLine(p.line)
	out.WriteString(toString(p.of.eval(s)))
	return on
}

func (t target) assign(s *scope, v any) {
	switch {
	case t.attribute != "":
		of, _ := s.get(t.names[0])
		ns, ok := of.(*namespace)
		if !ok {
			fail("%s is no namespace: its attributes can't be set", t.names[0])
		}
		ns.of.Set(t.attribute, v)
	case t.unpack:
		refuse(v)
		all := items(v)
		if len(all) != len(t.names) {
			fail("%d values for %d names", len(all), len(t.names))
		}
		for i, name := range t.names {
			s.names[name] = all[i]
		}
	default:
		s.names[t.names[0]] = v
	}
}

func (e *set) run(s *scope, _ *strings.Builder) flow {
	defer atLine(e.line)
	if e.value != nil {
		e.target.assign(s, e.value.eval(s))
		return on
	}
	e.target.assign(s, filtered(e.filters, e.body, s))
	return on
}

// filtered is what body writes, through filters; nil for none.
func filtered(filters expression, body []statement, s *scope) any {
	inner := s.inner()
	text := written(body, inner)
	if filters == nil {
		return text
	}
	inner.names[heldName] = text
	return filters.eval(inner)
}

func (e *filterBlock) run(s *scope, out *strings.Builder) flow {
	defer atLine(e.line)
	out.WriteString(toString(filtered(e.filters, e.body, s)))
	return on
}

func (e *with) run(s *scope, out *strings.Builder) flow {
	defer atLine(e.line)
	inner := s.inner()
	for i, value := range e.values {
		e.names[i].assign(inner, value.eval(s))
	}
	return runAll(e.body, inner, out)
}

func (e *condition) run(s *scope, out *strings.Builder) flow {
	for i, test := range e.tests {
		if truth(evalAt(e.line, test, s)) {
			return runAll(e.bodies[i], s, out)
		}
	}
	return runAll(e.otherwise, s, out)
}

func evalAt(line int, e expression, s *scope) any {
	defer atLine(line)
	return e.eval(s)
}

func (e *forLoop) run(s *scope, out *strings.Builder) flow {
	e.over1(evalAt(e.line, e.over, s), 1, s, out)
	return on
}

// over1 runs the loop over a value, at a depth of its recursion.
func (e *forLoop) over1(over any, depth int, s *scope, out *strings.Builder) {
	all := e.chosen(over, s)
	if len(all) == 0 {
		runAll(e.otherwise, s, out)
		return
	}
	l := &loop{all: all, depth: depth}
	if e.recursive {
		l.recurse = func(v any) any {
			if depth == maxDepth {
				fail("a loop is %d deep in itself", maxDepth)
			}
			var inner strings.Builder
			e.over1(v, depth+1, s, &inner)
			return inner.String()
		}
	}
	for i, v := range all {
		s.step()
		l.at = i
		inner := s.inner()
		inner.names["loop"] = l
		e.assign(inner, v)
		if runAll(e.body, inner, out) == stop {
			return
		}
	}
}

func (e *forLoop) assign(s *scope, v any) {
	defer atLine(e.line)
	e.target.assign(s, v)
}

// chosen lists what the loop goes over.
func (e *forLoop) chosen(over any, s *scope) []any {
	defer atLine(e.line)
	all := items(over)
	if e.only == nil {
		return all
	}
	var out []any
	for _, v := range all {
		inner := s.inner()
		e.target.assign(inner, v)
		if truth(e.only.eval(inner)) {
			out = append(out, v)
		}
	}
	return out
}

// loop is the variable of that name.
type loop struct {
	all       []any
	at, depth int
	last      *List // what changed() saw
	recurse   func(any) any
}

func (l *loop) attribute(called string) any {
	n := len(l.all)
	neighbour := func(i int) any {
		if i < 0 || i >= n {
			return Undefined{"loop has no " + called + " here: it"}
		}
		return l.all[i]
	}
	switch called {
	case "index":
		return l.at + 1
	case "index0":
		return l.at
	case "revindex":
		return n - l.at
	case "revindex0":
		return n - l.at - 1
	case "first":
		return l.at == 0
	case "last":
		return l.at == n-1
	case "length":
		return n
	case "depth":
		return l.depth
	case "depth0":
		return l.depth - 1
	case "previtem":
		return neighbour(l.at - 1)
	case "nextitem":
		return neighbour(l.at + 1)
	case "cycle":
		return function(func(plain []any, _ *Dict) any {
			if len(plain) == 0 {
				fail("cycle has nothing to go through")
			}
			return plain[l.at%len(plain)]
		})
	case "changed":
		return function(func(plain []any, _ *Dict) any {
			now := &List{Items: plain, form: tuple}
			same := l.last != nil && equal(l.last, now)
			l.last = now
			return !same
		})
	}
	return Undefined{"loop has no attribute " + called + ", which"}
}

func (l *loop) again(plain []any) any {
	if l.recurse == nil || len(plain) != 1 {
		fail("loop can be called with one value, in a recursive for alone")
	}
	return l.recurse(plain[0])
}

func (m *macro) run(s *scope, _ *strings.Builder) flow {
	s.names[m.name] = m.function(s)
	return on
}

// function is the macro, which sees the names around the place of its definition.
func (m *macro) function(around *scope) function {
	return func(plain []any, named *Dict) any {
		s := around.inner()
		rest := &List{form: tuple}
		if len(plain) > len(m.params) {
			rest.Items = plain[len(m.params):]
			if !m.varargs {
				fail("macro %s takes %d arguments, it is given %d", m.name, len(m.params), len(plain))
			}
		}
		used := 0
		for i, param := range m.params {
			value, isNamed := named.Get(param)
			switch {
			case i < len(plain):
				if isNamed {
					fail("macro %s is given %s twice", m.name, param)
				}
				value = plain[i]
			case isNamed:
				used++
			case m.defaults[i] != nil:
				value = m.defaults[i].eval(s)
			default:
				value = Undefined{"parameter " + param + " was not provided: it"}
			}
			s.names[param] = value
		}
		others := NewDict()
		for _, key := range named.keys {
			if _, isParam := s.names[key.(string)]; !isParam {
				others.Set(key, named.values[key])
			}
		}
		if caller, ok := others.Get("caller"); ok {
			s.names["caller"] = caller
			others = without(others, "caller")
		}
		if len(others.keys) > 0 && !m.kwargs {
			fail("macro %s takes no argument %s", m.name, toString(others.keys[0]))
		}
		s.names["varargs"], s.names["kwargs"] = rest, others
		if s.depth++; s.depth > maxDepth {
			fail("macro %s is %d deep in itself", m.name, maxDepth)
		}
		defer func() { s.depth-- }()
		return written(m.body, s)
	}
}

func without(d *Dict, key string) *Dict {
	out := NewDict()
	for _, k := range d.keys {
		if k != key {
			out.Set(k, d.values[k])
		}
	}
	return out
}

func (e *callBlock) run(s *scope, out *strings.Builder) flow {
	defer atLine(e.line)
	c, ok := e.call.(*call)
	if !ok {
		fail("call wants a call")
	}
	of := c.of.eval(s)
	plain, named := c.args.eval(s)
	named.Set("caller", e.caller.function(s))
	out.WriteString(toString(callValue(of, plain, named)))
	return on
}
