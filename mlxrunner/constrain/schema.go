package constrain

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Schema compiles a JSON schema: draft 2020-12, and of drafts 6, 7 and 2019-09
// what means the same.
//
// Schemas that hold at one place are merged, so allOf is their keywords side by
// side, anyOf a rule for each branch, and two branches of oneOf exclude each
// other when merging both leaves nothing.
func Schema(source []byte) (g *Grammar, err error) {
	defer catch(&err)
	root, err := parse(source)
	if err != nil {
		return nil, &InvalidError{Why: err.Error()}
	}
	draft, err := draftOf(root)
	if err != nil {
		return nil, err
	}
	b := newBudget()
	c := &compiler{
		builder: builder{budget: b}, root: root, draft: draft,
		rules: map[string]int32{}, schemas: map[string]*schema{}, languages: map[string]dfa{},
	}
	c.last = c.end()
	c.start = c.value([]claim{{v: root}})
	for len(c.rest) > 0 {
		next := c.rest[0]
		c.rest = c.rest[1:]
		next()
	}
	live := c.live()
	for _, check := range c.checks {
		if live[check.both] {
			return nil, &UnsupportedError{Feature: "oneOf", Pointer: check.pointer, Why: "a value can be valid by more than one branch, or it is not seen that none can; anyOf allows that"}
		}
	}
	if !live[c.start] {
		return nil, &InvalidError{Why: "no value is valid"}
	}
	c.prune(live)
	return &Grammar{"schema:" + string(source), c.program}, nil
}

// Object is any JSON object.
func Object() *Grammar { return anyObject() }

var anyObject = sync.OnceValue(func() *Grammar {
	g, err := Schema([]byte(`{"type": "object"}`))
	if err != nil {
		panic(err)
	}
	return g
})

// A compiler turns schemas to rules. A rule is for a set of schemas that all
// hold, and is written once.
type compiler struct {
	builder
	root      *value
	draft     int
	rules     map[string]int32 // by what they read
	rest      []func()         // rules that have a start and are still to be written
	schemas   map[string]*schema
	languages map[string]dfa // of strings without their quotes
	checks    []check
	last      int32 // ends what was called
}

// check is a rule for two branches of a oneOf together, which has to be empty.
type check struct {
	both    int32
	pointer string
}

// A claim is a schema among those that hold at a place. With own, just its own
// keywords do: where they lead is decided.
type claim struct {
	v    *value
	own  bool
	from []*value // what led here, without anything read in between
}

func with(set []claim, h claim) []claim {
	if slices.ContainsFunc(set, func(have claim) bool { return have.v == h.v && have.own == h.own }) {
		return set
	}
	return append(slices.Clip(set), h)
}

func keyOf(set []claim) string {
	keys := make([]string, len(set))
	for i, h := range set {
		if keys[i] = "#" + h.v.pointer; h.own {
			keys[i] += " own"
		}
	}
	return "value\n" + strings.Join(keys, "\n")
}

// value gives the rule for values for which all of a set holds.
func (c *compiler) value(set []claim) int32 {
	return c.once(keyOf(set), func(start int32) {
		c.expand(expansion{pending: set}, func(found []*schema) { c.shapes(start, found) })
	})
}

// once gives the rule of a name; write is called, later, where there is none.
func (c *compiler) once(name string, write func(start int32)) int32 {
	start, ok := c.rules[name]
	if !ok {
		start = c.point()
		c.rules[name] = start
		c.rest = append(c.rest, func() { write(start) })
	}
	return start
}

// An expansion is a set on its way to keywords alone.
type expansion struct {
	pending []claim
	done    []*value  // whose branches were taken
	found   []*schema // whose keywords hold
	silent  bool      // branches of oneOf are not checked
}

func (e expansion) add(s *schema) expansion {
	if !slices.Contains(e.found, s) {
		e.found = append(slices.Clip(e.found), s)
	}
	return e
}

// expand gives, one after the other, the ways in which a set can hold: the
// schemas whose own keywords all do.
func (c *compiler) expand(e expansion, give func([]*schema)) {
	c.budget.spend(0, 1+len(e.pending)+len(e.done))
	if len(e.pending) == 0 {
		give(e.found)
		return
	}
	h := e.pending[0]
	c.budget.spend(0, len(h.from))
	e.pending = e.pending[1:]
	switch {
	case h.v.kind == boolean && h.v.text == "false":
		return // nothing is valid
	case h.v.kind == boolean, slices.Contains(e.done, h.v) && !h.own:
		c.expand(e, give)
		return
	}
	s := c.schema(h.v)
	e = e.add(s)
	if h.own {
		c.expand(e, give)
		return
	}
	e.done = append(slices.Clip(e.done), h.v)
	from := append(slices.Clip(h.from), h.v)
	follow := func(set []claim, v *value) []claim {
		if slices.Contains(from, v) {
			panic(refusal{&InvalidError{Pointer: h.v.pointer, Why: leadsBack}})
		}
		return with(set, claim{v: v, from: from})
	}
	for _, v := range s.all {
		e.pending = follow(e.pending, v)
	}
	if s.ref != "" {
		e.pending = follow(e.pending, c.resolve(s))
	}
	if s.oneOf != nil && !e.silent {
		c.exclude(e, s, follow)
	}
	for _, a := range branches(s.anyOf) {
		for _, b := range branches(s.oneOf) {
			next := e
			for _, v := range []*value{a, b} {
				if v != nil {
					next.pending = follow(next.pending, v)
				}
			}
			c.expand(next, give)
		}
	}
}

const leadsBack = "it leads back to itself, and nothing is read in between"

// branches are what one of has to hold; the one that is nil is no condition.
func branches(list []*value) []*value {
	if list == nil {
		return []*value{nil}
	}
	return list
}

// exclude has it checked that no two branches of a oneOf hold at once, where
// all the rest does.
func (c *compiler) exclude(e expansion, s *schema, follow func([]claim, *value) []claim) {
	var rest []claim
	for _, found := range e.found {
		rest = with(rest, claim{v: found.v, own: true})
	}
	for _, h := range e.pending {
		rest = with(rest, h)
	}
	for i, a := range s.oneOf {
		for _, b := range s.oneOf[:i] {
			c.budget.spend(0, len(rest))
			both := follow(follow(rest, b), a)
			c.checks = append(c.checks, check{c.value(both), s.v.pointer})
		}
	}
}

func (c *compiler) schema(v *value) *schema {
	if s := c.schemas[v.pointer]; s != nil {
		return s
	}
	if v.kind != object {
		invalid(v, "a schema")
	}
	s := readSchema(v, c.draft)
	c.schemas[v.pointer] = s
	return s
}

var pointerText = strings.NewReplacer("~1", "/", "~0", "~")

// resolve finds what a $ref points to.
func (c *compiler) resolve(s *schema) *value {
	v := c.root
	bad := func() {
		panic(refusal{&InvalidError{Pointer: s.v.pointer, Why: "$ref " + s.ref + " leads nowhere"}})
	}
	path, err := url.PathUnescape(s.ref[1:])
	if err != nil {
		bad()
	}
	for _, part := range strings.Split(path, "/")[1:] {
		part = pointerText.Replace(part)
		next := v.fields[part]
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v.list) {
			next = v.list[i]
		}
		if next == nil {
			bad()
		}
		v = next
	}
	return v
}
