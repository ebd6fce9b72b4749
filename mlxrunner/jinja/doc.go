// Package jinja renders the chat templates of checkpoints: the part of Jinja2
// that they are written in, under the settings of the reference library
// (trim_blocks, lstrip_blocks, loop controls, an immutable sandbox, no
// escaping). Values print, compare and iterate as Python's do, because the
// templates count on it.
//
// What it does not know, it refuses: inheritance, inclusion and imports when the
// template is read, filters and tests outside the list when they are reached. A
// template can neither change what it is given nor reach anything else. It is no
// general template engine.
package jinja

import "fmt"

// Error is a fault of a template, when it is read or rendered.
type Error struct {
	Line   int // of the template, 0 when not known
	Reason string
	Raised bool // by the template itself, with raise_exception
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// fail leaves the parser or a rendering. An interpreter has a place to fail in
// every line; Parse and Render, which recover, are the only ways in.
func fail(format string, args ...any) { panic(&Error{Reason: fmt.Sprintf(format, args...)}) }

func recovered(err *error) {
	switch e := recover().(type) {
	case nil:
	case *Error:
		*err = e
	default:
		panic(e)
	}
}
