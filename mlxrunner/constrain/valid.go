package constrain

import (
	"slices"
	"unicode/utf8"
)

// choices are the values of enum and const for which all of some schemas' own
// keywords hold. One of the schemas has to have them.
func (c *compiler) choices(may types, held []*schema) []*value {
	chooses := slices.IndexFunc(held, func(s *schema) bool { return s.choices != nil })
	var found []*value
	for _, v := range held[chooses].choices[0].values {
		ok := typeOf(v)&may != 0
		for _, s := range held {
			ok = ok && c.fits(v, s)
		}
		if ok {
			found = append(found, v)
		}
	}
	return found
}

// possible tells whether something may hold for a value, as far as enum, const
// and type tell.
func (c *compiler) possible(set []claim) (can bool) {
	c.expand(expansion{pending: set, silent: true}, func(held []*schema) {
		may, chosen := types(anyType), false
		for _, s := range held {
			may &= s.types
			chosen = chosen || s.choices != nil
		}
		can = can || may != 0 && (!chosen || len(c.choices(may, held)) > 0)
	})
	return can
}

func typeOf(v *value) types {
	switch v.kind {
	case null:
		return isNull
	case boolean:
		return isBoolean
	case text:
		return isString
	case array:
		return isArray
	case object:
		return isObject
	}
	if d, ok := readDecimal(v.text); ok && d.part == "" {
		return isInteger
	}
	return isFraction
}

// valid tells whether a schema holds for a value.
func (c *compiler) valid(v, by *value, from []*value) bool {
	c.budget.spend(0, 1)
	if by.kind == boolean {
		return by.text == "true"
	}
	for _, before := range from {
		if before == by {
			panic(refusal{&InvalidError{Pointer: by.pointer, Why: leadsBack}})
		}
	}
	from = append(from[:len(from):len(from)], by)
	s := c.schema(by)
	if !c.fits(v, s) || s.ref != "" && !c.valid(v, c.resolve(s), from) {
		return false
	}
	of := func(list []*value) (n int) {
		for _, sub := range list {
			if c.valid(v, sub, from) {
				n++
			}
		}
		return n
	}
	return of(s.all) == len(s.all) && (s.anyOf == nil || of(s.anyOf) > 0) && (s.oneOf == nil || of(s.oneOf) == 1)
}

// fits tells whether a schema's own keywords hold for a value.
func (c *compiler) fits(v *value, s *schema) bool {
	if typeOf(v)&s.types == 0 {
		return false
	}
	for _, among := range s.choices {
		if !among.keys[v.key()] {
			return false
		}
	}
	if s.applies&typeOf(v) == 0 {
		return true
	}
	switch v.kind {
	case number:
		d, ok := readDecimal(v.text)
		return ok && above(s.low, order(d, s.low)) && below(s.high, order(d, s.high))
	case text:
		length := utf8.RuneCountInString(v.text)
		if length < s.minLength || s.maxLength >= 0 && length > s.maxLength {
			return false
		}
		for _, expr := range s.patterns {
			if !c.matches(s, expr, v.text) {
				return false
			}
		}
		for _, name := range s.formats {
			if !c.format(name).accepts(inside(v.text)) {
				return false
			}
		}
	case array:
		return c.fitsList(v, s)
	case object:
		return c.fitsFields(v, s)
	}
	return true
}

func (c *compiler) fitsList(v *value, s *schema) bool {
	if len(v.list) < s.minItems || s.maxItems >= 0 && len(v.list) > s.maxItems {
		return false
	}
	for i, sub := range v.list {
		by := s.items
		if i < len(s.prefix) {
			by = s.prefix[i]
		}
		if by != nil && !c.valid(sub, by, nil) {
			return false
		}
	}
	return true
}

func (c *compiler) fitsFields(v *value, s *schema) bool {
	for _, name := range s.required {
		if v.fields[name] == nil {
			return false
		}
	}
	for _, name := range v.keys {
		for _, by := range s.member(s.properties[name], func(expr string) bool { return c.matches(s, expr, name) }) {
			if !c.valid(v.fields[name], by, nil) {
				return false
			}
		}
	}
	return true
}

// order is where a number lies against a bound.
func order(d decimal, b *bound) int32 {
	if b == nil {
		return same
	}
	switch d.compare(b.decimal) {
	case -1:
		return less
	case 1:
		return more
	}
	return same
}
