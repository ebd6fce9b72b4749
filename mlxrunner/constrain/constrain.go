// Package constrain says which tokens may come next, so that a text is what a
// JSON schema, a JSON object or a regular expression asks for.
//
// A Grammar is compiled once and bound to a vocabulary. The Automaton that this
// gives goes from State to State by tokens, whose bytes may end anywhere: in
// the middle of a character, of a number, or some elements further on. It knows
// nothing of models and of arrays.
//
// What is not supported is refused with an UnsupportedError, never ignored.
//
// # What a text looks like
//
// JSON is written without white space, but for one space that may follow a
// comma or a colon. Strings hold characters as they are; only quote, backslash
// and control characters are escaped, in the shortest way. Integers have no
// fraction and no exponent. The properties of an object come in the order of
// the schema (first those of "properties", then those that are only required),
// and others after them.
package constrain

import "fmt"

// A Grammar is what texts may be. It does not change, and may be used by any
// number of goroutines.
type Grammar struct {
	source string // tells grammars apart
	program
}

// An UnsupportedError names what a schema or an expression asks for and can't
// be had.
type UnsupportedError struct {
	Feature string // a keyword, "multipleOf", or a construct, `\b`
	Pointer string // JSON pointer of the schema that has it; "" for its root and for expressions
	Why     string
}

func (e *UnsupportedError) Error() string {
	at := ""
	if e.Pointer != "" {
		at = " at " + e.Pointer
	}
	return fmt.Sprintf("%s%s is not supported: %s", e.Feature, at, e.Why)
}

// An InvalidError is a schema or an expression that means nothing, or that no
// text can satisfy.
type InvalidError struct {
	Pointer string
	Why     string
}

func (e *InvalidError) Error() string {
	if e.Pointer == "" {
		return e.Why
	}
	return e.Pointer + ": " + e.Why
}
