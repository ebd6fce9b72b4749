package mlx

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"payload/mlx/internal/c"
)

// An Error is an operation that MLX refused or could not carry out.
type Error struct {
	Op    string   // the operation, as Go names it: "Matmul"
	Of    []string // its arrays: "float32[2 3]"
	Text  string   // what MLX said
	Where string   // file and line of mlx-c, for a report to its authors
	Err   error    // what it was made of: a closure's own error, say
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	text := e.Text
	if i := strings.Index(text, "] "); strings.HasPrefix(text, "[") && i > 0 {
		text = text[i+len("] "):] // MLX's own name of the operation
	}
	text = strings.TrimSuffix(text, ".")
	if len(e.Of) == 0 {
		return fmt.Sprintf("mlx %s: %s", e.Op, text)
	}
	return fmt.Sprintf("mlx %s of %s: %s", e.Op, strings.Join(e.Of, ", "), text)
}

// What a scope answers when it is used wrongly.
var (
	// ErrClosed: the scope was closed before.
	ErrClosed = errors.New("the scope is closed")
	// ErrFreed: the array was freed before, or is the nil of a failed operation of another scope.
	ErrFreed = errors.New("the array is nil or was freed")
	// ErrThread: the scope belongs to another thread of the system.
	ErrThread = errors.New("the scope belongs to another thread; use it in the function that was given it (mlx/mlxthread)")
)

var handler atomic.Pointer[func(error)]

// SetErrorHandler has f called with every error of MLX, on the goroutine that
// gets it, before it is returned: for a log or a count. nil ends that.
func SetErrorHandler(f func(error)) {
	if f == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&f)
}

// wrap gives err the name of the operation and its arrays.
func wrap(op string, err error, of ...*Array) error {
	if err == nil {
		return nil
	}
	out := &Error{Op: op, Text: err.Error(), Err: err}
	var told *c.Error
	var inner *Error // of an operation in a closure: its own words say more
	if !errors.As(err, &inner) && errors.As(err, &told) {
		out.Text, out.Where = told.Text, told.Where
	}
	for _, a := range of {
		out.Of = append(out.Of, a.describe())
	}
	report(out)
	return out
}

func report(err error) {
	if f := handler.Load(); f != nil {
		(*f)(err)
	}
}
