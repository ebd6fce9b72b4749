package constrain

import (
	"fmt"
	"slices"
	"strings"
)

// shapes adds to a rule the values, type by type, for which the keywords of
// some schemas all hold.
func (c *compiler) shapes(start int32, held []*schema) {
	may := types(anyType)
	for _, s := range held {
		may &= s.types
	}
	if slices.ContainsFunc(held, func(s *schema) bool { return s.choices != nil }) {
		c.literals(start, may, held)
		return
	}
	add := func(rule int32) { c.call(start, rule, c.last) }
	if may&isNull != 0 {
		add(c.literal("null"))
	}
	if may&isBoolean != 0 {
		add(c.literal("true"))
		add(c.literal("false"))
	}
	if may&isInteger != 0 {
		add(c.number(held, may&isFraction == 0))
	}
	if may&isString != 0 {
		add(c.str(held))
	}
	if may&isArray != 0 {
		add(c.array(held))
	}
	if may&isObject != 0 {
		add(c.object(held))
	}
}

// about are the schemas whose keywords say something of a type, and the name of
// a rule for them.
func about(held []*schema, t types, kind string) ([]*schema, string) {
	var some []*schema
	for _, s := range held {
		if s.applies&t != 0 {
			some = append(some, s)
			kind += "\n#" + s.v.pointer
		}
	}
	return some, kind
}

// literal gives the rule of one text.
func (c *compiler) literal(text string) int32 {
	return c.once("literal\n"+text, func(start int32) { c.spell(start, text) })
}

// literals adds the values of enum and const for which everything holds.
func (c *compiler) literals(start int32, may types, held []*schema) {
	for _, v := range c.choices(may, held) {
		if v.kind != array && v.kind != object {
			v.write(func(text string) { c.spell(start, text) }, nil)
			continue
		}
		at := []int32{start}
		v.write(func(text string) {
			to := c.point()
			for _, from := range at {
				c.edge(from, to, text[0], text[0])
			}
			at = []int32{c.text(to, text[1:])}
		}, func(sign byte) {
			both := c.separator(at[0], sign)
			at = both[:]
		})
		c.points[at[0]].final = true
	}
}

// spell adds a text to those that are spelt from a point on. What texts begin
// with alike is there once.
func (c *compiler) spell(at int32, text string) {
	for i := range len(text) {
		edges := c.points[at].edges
		if j := slices.IndexFunc(edges, func(e edge) bool { return e.lo == text[i] }); j >= 0 {
			at = edges[j].to
			continue
		}
		to := c.point()
		c.edge(at, to, text[i], text[i])
		at = to
	}
	c.points[at].final = true
}

// number gives the rule of numbers.
func (c *compiler) number(held []*schema, whole bool) int32 {
	n := span{whole: whole}
	for _, s := range held {
		n.low, n.high = narrow(n.low, s.low, 1), narrow(n.high, s.high, -1)
	}
	return c.found("number\n"+n.String(), func() int32 { return c.rule(n.dfa(c.budget)) })
}

// found gives the rule of a name, which write writes at once where there is none.
func (c *compiler) found(name string, write func() int32) int32 {
	start, ok := c.rules[name]
	if !ok {
		start = write()
		c.rules[name] = start
	}
	return start
}

// str gives the rule of strings.
func (c *compiler) str(held []*schema) int32 {
	least, most, parts := limits(held)
	return c.found(fmt.Sprintf("string\n%d\n%d\n%s", least, most, strings.Join(parts, "\n")), func() int32 {
		if len(parts) == 0 && (least > 0 || most >= 0) {
			return c.counted(least, most)
		}
		return c.quotes(c.content(held))
	})
}

// counted writes the rule of strings of so many characters, with a point for
// each: a dfa would have a dozen.
func (c *compiler) counted(least, most int) int32 {
	character := c.found("character", func() int32 { return c.rule(c.character()) })
	start := c.point()
	at := c.text(start, `"`)
	for n := 0; ; n++ {
		if n >= least {
			c.edge(at, c.last, '"', '"')
		}
		if n == most {
			return start
		}
		if most < 0 && n == least {
			c.call(at, character, at)
			return start
		}
		next := c.point()
		c.call(at, character, next)
		at = next
	}
}

// limits are the least and the greatest length, and the expressions.
func limits(held []*schema) (least, most int, parts []string) {
	most = -1
	for _, s := range held {
		least = max(least, s.minLength)
		if s.maxLength >= 0 && (most < 0 || s.maxLength < most) {
			most = s.maxLength
		}
		for _, expr := range s.patterns {
			parts = append(parts, "pattern "+expr)
		}
		for _, name := range s.formats {
			parts = append(parts, "format "+name)
		}
	}
	slices.Sort(parts)
	return least, most, slices.Compact(parts)
}

// content is what strings hold, as it stands between the quotes.
func (c *compiler) content(held []*schema) dfa {
	least, most, _ := limits(held)
	parts := []dfa{c.lengths(least, most)}
	for _, s := range held {
		for _, expr := range s.patterns {
			parts = append(parts, c.pattern(expr, s.v.pointer))
		}
		for _, name := range s.formats {
			parts = append(parts, c.format(name))
		}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return product(c.budget, all, parts...)
}

// language keeps what was made of strings.
func (c *compiler) language(name string, construct func() dfa) dfa {
	d, ok := c.languages[name]
	if !ok {
		d = construct()
		c.languages[name] = d
	}
	return d
}

func (c *compiler) format(name string) dfa {
	return c.language("format "+name, func() dfa { return expression(c.budget, quoted, formats[name], "", false) })
}

// pattern is the strings of which a part matches.
func (c *compiler) pattern(expr, pointer string) dfa {
	return c.language("pattern "+expr, func() dfa {
		return expression(c.budget, quoted, ecma(expr, pointer), pointer, true)
	})
}

// lengths is the strings of so many characters; most is -1 for any number.
func (c *compiler) lengths(least, most int) dfa {
	if most >= 0 && least > most {
		return nil
	}
	return c.language(fmt.Sprintf("lengths %d %d", least, most), func() dfa {
		one := c.character()
		copies := max(least, most) + 1
		c.budget.spend(copies*len(one), copies*len(one)) // before any of it is made
		d := make(dfa, 0, copies*len(one))
		for n := range copies {
			first := int32(len(d))
			next := first + int32(len(one))
			if n == copies-1 && most < 0 {
				next = first
			}
			for _, s := range one {
				var edges []edge
				for _, e := range s.edges {
					to := e.to + first
					if one[e.to].final {
						to = next
					}
					if n != most {
						edges = append(edges, edge{e.lo, e.hi, to})
					}
				}
				d = append(d, dfaState{edges: edges})
			}
			d[first].final = n >= least
		}
		return trim(d)
	})
}

// character is the strings of one.
func (c *compiler) character() dfa {
	return c.language("character", func() dfa { return expression(c.budget, quoted, "(?s:.)", "", false) })
}

// array gives the rule of arrays.
func (c *compiler) array(held []*schema) int32 {
	held, name := about(held, isArray, "array")
	return c.once(name, func(start int32) {
		least, most, apart := 0, -1, 0 // apart: places with schemas of their own
		for _, s := range held {
			least, apart = max(least, s.minItems), max(apart, len(s.prefix))
			if s.maxItems >= 0 && (most < 0 || s.maxItems < most) {
				most = s.maxItems
			}
		}
		before := []int32{c.text(start, "[")} // where an item may begin
		if least == 0 {
			c.edge(before[0], c.last, ']', ']')
		}
		places := max(apart, least, 1)
		if most >= 0 {
			places = most
		}
		var again int32
		for i := range places {
			item, after := c.value(c.item(held, i)), c.point()
			for _, at := range before {
				c.call(at, item, after)
			}
			if i+1 >= least {
				c.edge(after, c.last, ']', ']')
			}
			both := c.separator(after, ',')
			before, again = both[:], after
		}
		if most < 0 {
			// All that follow are alike.
			item := c.value(c.item(held, places))
			if item != c.value(c.item(held, places-1)) {
				again = c.point()
				c.edge(again, c.last, ']', ']')
				both := c.separator(again, ',')
				for _, at := range both {
					c.call(at, item, again)
				}
			}
			for _, at := range before {
				c.call(at, item, again)
			}
		}
	})
}

// item is what holds for the item at a place.
func (c *compiler) item(of []*schema, i int) []claim {
	var set []claim
	for _, s := range of {
		if i < len(s.prefix) {
			set = add(set, s.prefix[i])
		} else if s.items != nil {
			set = add(set, s.items)
		}
	}
	return set
}

// add adds a schema to a set, but for one that always holds.
func add(set []claim, v *value) []claim {
	if v.kind == boolean && v.text == "true" {
		return set
	}
	return with(set, claim{v: v})
}

// A property is one that a schema names.
type property struct {
	name     string
	set      []claim
	required bool
	begin    int32 // behind the quote before its name
	after    int32 // behind its value
}

// object gives the rule of objects.
func (c *compiler) object(held []*schema) int32 {
	held, name := about(held, isObject, "object")
	return c.once(name, func(start int32) {
		named := c.properties(held)
		for _, p := range named {
			if p.required && !c.possible(p.set) {
				return
			}
		}
		others := c.others(held, named)
		for i := range named {
			p := &named[i]
			p.begin, p.after = c.point(), c.point()
			c.member(c.text(p.begin, quote(p.name)[1:]), c.value(p.set), p.after)
		}
		last := c.point()
		first := c.text(start, "{")
		c.members(first, named, others, last)
		c.edge(last, c.last, '}', '}')
		next := c.separator(last, ',')
		c.members(next[0], nil, others, last)
		c.members(next[1], nil, others, last)
		missing := func(named []property) bool {
			return slices.ContainsFunc(named, func(p property) bool { return p.required })
		}
		if !missing(named) {
			c.edge(first, c.last, '}', '}')
		}
		for i, p := range named {
			rest := named[i+1:]
			if !missing(rest) {
				c.edge(p.after, c.last, '}', '}')
			}
			next := c.separator(p.after, ',')
			c.members(next[0], rest, others, last)
			c.members(next[1], rest, others, last)
		}
	})
}

// members adds to a point what may come of some properties and, where none of
// them has to come before, of others.
func (c *compiler) members(from int32, named []property, others []other, last int32) {
	for _, p := range named {
		c.edge(from, p.begin, '"', '"')
		if p.required {
			return
		}
	}
	for _, o := range others {
		after := c.point()
		c.call(from, o.name, after)
		c.member(after, o.value, last)
	}
}

// member writes what follows a name.
func (c *compiler) member(from, value, after int32) {
	for _, at := range c.separator(from, ':') {
		c.call(at, value, after)
	}
}

// properties are those that schemas name, in their order.
func (c *compiler) properties(held []*schema) []property {
	var named []property
	index := map[string]int{}
	note := func(name string) *property {
		i, ok := index[name]
		if !ok {
			i = len(named)
			index[name] = i
			named = append(named, property{name: name, set: c.valueOf(held, name)})
		}
		return &named[i]
	}
	for _, s := range held {
		for _, name := range s.names {
			note(name)
		}
	}
	for _, s := range held {
		for _, name := range s.required {
			note(name).required = true
		}
	}
	return named
}

// valueOf is what holds for the value of a property.
func (c *compiler) valueOf(of []*schema, name string) []claim {
	var set []claim
	for _, s := range of {
		for _, v := range s.member(s.properties[name], func(expr string) bool { return c.matches(s, expr, name) }) {
			set = add(set, v)
		}
	}
	return set
}

// matches tells whether an expression of a schema matches a text.
func (c *compiler) matches(s *schema, expr, text string) bool {
	return c.pattern(expr, s.v.pointer).accepts(inside(text))
}

// inside is what stands between the quotes.
func inside(text string) string {
	text = quote(text)
	return text[1 : len(text)-1]
}

// member lists what a schema says of the value of a property: named, or nil,
// is what it says by its name.
func (s *schema) member(named *value, matches func(expr string) bool) []*value {
	var found []*value
	if named != nil {
		found = append(found, named)
	}
	for _, expr := range s.patternProperties {
		if matches(expr) {
			found = append(found, s.byPattern[expr])
		}
	}
	if found == nil && s.additional != nil {
		found = append(found, s.additional)
	}
	return found
}

// other are names that no schema names, and what their values are.
type other struct{ name, value int32 }

// maxPatterns bounds the expressions for names: each may match or not.
const maxPatterns = 6

// others are the kinds of names that are not among those named: one kind for
// each set of expressions that match, and no other does.
func (c *compiler) others(held []*schema, named []property) []other {
	var exprs []string
	for _, s := range held {
		for _, expr := range s.patternProperties {
			if !slices.Contains(exprs, expr) {
				exprs = append(exprs, expr)
			}
		}
		if len(exprs) > maxPatterns {
			panic(refusal{&UnsupportedError{Feature: "patternProperties", Pointer: s.v.pointer, Why: fmt.Sprintf("at most %d expressions for one object are", maxPatterns)}})
		}
	}
	names, label := c.names(named)
	var all []other
	for matched := range 1 << len(exprs) {
		matches := func(expr string) bool { return matched>>slices.Index(exprs, expr)&1 != 0 }
		var set []claim
		for _, s := range held {
			for _, v := range s.member(nil, matches) {
				set = add(set, v)
			}
		}
		if slices.ContainsFunc(set, func(h claim) bool { return h.v.kind == boolean }) {
			continue // false: no such property may be there
		}
		name := c.found(fmt.Sprintf("names\n%s\n%q\n%b", label, exprs, matched), func() int32 {
			if len(exprs) == 0 && len(named) == 0 {
				return c.str(nil)
			}
			parts := []dfa{c.lengths(0, -1), names}
			for _, expr := range exprs {
				parts = append(parts, c.pattern(expr, ""))
			}
			return c.quotes(product(c.budget, func(accepted []bool) bool {
				for i, is := range accepted[1:] {
					if is != (matched>>i&1 != 0) {
						return false
					}
				}
				return !accepted[0]
			}, parts...))
		})
		all = append(all, other{name, c.value(set)})
	}
	return all
}

// names is the automaton of some properties' names, with what it is called.
func (c *compiler) names(named []property) (dfa, string) {
	n := &nfa{budget: c.budget, write: quoted}
	from, to := n.state(), n.state()
	var label []string
	for _, p := range named {
		label = append(label, quote(p.name))
		if p.name == "" {
			n.jump(from, to)
			continue
		}
		n.text(from, to, inside(p.name))
	}
	slices.Sort(label)
	return n.dfa(from, to), strings.Join(label, ",")
}
