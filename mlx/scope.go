package mlx

import (
	"errors"
	"fmt"
	"slices"

	"payload/mlx/internal/c"
	"payload/mlx/internal/watch"
)

// A Scope runs operations on a stream, owns the arrays they make and keeps the
// first error. It is used by one goroutine at a time, on the thread of its
// stream.
type Scope struct {
	stream *Stream
	parent *Scope
	arrays []*Array
	err    error
	closed bool
	lost   *lost   // of arrays that are filled
	out    c.Array // where C puts a result: the scope is on the heap already
}

// NewScope opens a scope on stream.
func NewScope(stream *Stream) *Scope { return &Scope{stream: stream, lost: &lost{}} }

// Sub opens a scope inside: its arrays are freed by its own Close, its error
// becomes s's at Close, and s's error stops it too.
func (s *Scope) Sub() *Scope {
	return &Scope{stream: s.stream, parent: s, err: s.err, closed: s.closed, lost: s.lost}
}

// Stream gives the stream that the scope runs on.
func (s *Scope) Stream() *Stream { return s.stream }

// Beside has the operations of f run on the n-th stream beside the scope's own,
// from 1, where a processor computes them while it computes others. MLX makes
// either wait for what it needs of the other. A stream beside is made when it is
// first asked for, and ends with the scope's own.
func (s *Scope) Beside(n int, f func()) {
	if !s.ready("Beside") || s.onThread("Beside") != nil {
		return
	}
	own := s.stream
	beside, err := own.besides(n)
	if err != nil {
		s.Fail(err)
		return
	}
	s.stream = beside
	defer func() { s.stream = own }()
	f()
}

// Err gives the first error.
func (s *Scope) Err() error { return s.err }

// Fail makes err the scope's error if it has none: for what is found wrong
// between operations.
func (s *Scope) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Close frees the arrays that the scope owns and gives its first error.
// Closing twice is fine.
func (s *Scope) Close() error {
	for _, a := range s.arrays {
		a.Free()
	}
	s.arrays, s.closed = nil, true
	if s.parent != nil {
		s.parent.Fail(s.err)
	}
	return s.err
}

// Keep takes a out of the scope that owns it. Free it, or have another adopt it.
func (s *Scope) Keep(a *Array) *Array {
	if a != nil {
		a.disown()
	}
	return a
}

// Adopt makes s the owner of a.
func (s *Scope) Adopt(a *Array) *Array {
	if a != nil && a.owner != s {
		a.disown()
		a.owner = s
		s.arrays = append(s.arrays, a)
	}
	return a
}

// disown takes a off its owner's list. It was made lately, as a rule, so it is
// looked for from the end.
func (a *Array) disown() {
	if a.owner == nil {
		return
	}
	list := a.owner.arrays
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == a {
			a.owner.arrays = slices.Delete(list, i, i+1)
			break
		}
	}
	a.owner = nil
}

// Eval computes arrays and waits for them. It gives the scope's error, be it
// of an operation before.
func (s *Scope) Eval(arrays ...*Array) error {
	return s.evaluate("Eval", arrays, c.Eval)
}

// EvalOnly is Eval that frees all other arrays of the scope first. While the
// scope holds what lies between, MLX must keep its memory beside that of the
// results; freed, it is reused as the work goes on. Make it the last step of a
// scope, or build in a Sub scope and close that before evaluating.
func (s *Scope) EvalOnly(arrays ...*Array) error {
	s.arrays = slices.DeleteFunc(s.arrays, func(a *Array) bool {
		if slices.Contains(arrays, a) {
			return false
		}
		a.Free()
		return true
	})
	return s.Eval(arrays...)
}

// AsyncEval starts to compute arrays and does not wait.
func (s *Scope) AsyncEval(arrays ...*Array) error {
	return s.evaluate("AsyncEval", arrays, c.AsyncEval)
}

func (s *Scope) evaluate(op string, arrays []*Array, f func(c.VectorArray) error) error {
	if !s.ready(op, arrays...) {
		return s.err
	}
	if err := s.onThread(op); err != nil {
		return err
	}
	list, err := vector(arrays)
	if err != nil {
		return s.fault(op, err, arrays...)
	}
	defer func() { _ = c.VectorArrayFree(list) }() // it can't fail
	return s.evaluated(op, f(list), arrays...)
}

// evaluated gives the error of an evaluation, or what was lost while arrays were
// filled: in this one, or in an earlier one that was not waited for.
func (s *Scope) evaluated(op string, err error, of ...*Array) error {
	if err != nil {
		return s.fault(op, err, of...)
	}
	if err := s.lost.get(); err != nil {
		return s.fault(op, err)
	}
	return nil
}

// eval computes one array that is no one's but the caller's.
func (s *Scope) eval(op string, h c.Array) error {
	if err := s.onThread(op); err != nil {
		return err
	}
	return s.evaluated(op, c.ArrayEval(h))
}

// onThread says when the scope is used on another thread than its stream's.
func (s *Scope) onThread(op string) error {
	if c.ThreadID() == s.stream.thread {
		return nil
	}
	return s.fault(op, ErrThread)
}

// ready tells whether op can go on with arrays; else the scope has an error.
func (s *Scope) ready(op string, arrays ...*Array) bool {
	if s.err != nil {
		return false
	}
	if s.closed {
		s.err = fmt.Errorf("mlx %s: %w", op, ErrClosed)
		return false
	}
	for i, a := range arrays {
		if !a.Valid() {
			s.err = fmt.Errorf("mlx %s: argument %d: %w", op, i+1, ErrFreed)
			return false
		}
	}
	return !watch.Threads.Load() || s.onThread(op) == nil
}

// orZero gives the handle of an array that may be left out.
func orZero(a *Array) c.Array {
	if a == nil {
		return 0
	}
	return a.h
}

// fault makes err of op the scope's error and gives it.
func (s *Scope) fault(op string, err error, of ...*Array) error {
	if errors.Is(err, ErrThread) {
		err = fmt.Errorf("mlx %s: %w", op, err)
	} else {
		err = wrap(op, err, of...)
	}
	s.Fail(err)
	return s.err
}

// refuse is fault for an operation that gives an array.
func (s *Scope) refuse(op string, err error, of ...*Array) *Array {
	_ = s.fault(op, err, of...) // kept by the scope
	return nil
}

// made owns what a call gave.
func (s *Scope) made(op string, h c.Array, err error, of ...*Array) *Array {
	if err != nil {
		if h != 0 {
			_ = c.ArrayFree(h) // it can't fail
		}
		return s.refuse(op, err, of...)
	}
	a := &Array{h: h, owner: s}
	a.freed = watch.Made(a)
	s.arrays = append(s.arrays, a)
	return a
}

// took is made for a call that put its result into s.out.
func (s *Scope) took(op string, err error, of ...*Array) *Array {
	h := s.out
	s.out = 0
	return s.made(op, h, err, of...)
}

// vector makes MLX's list of arrays.
func vector(arrays []*Array) (c.VectorArray, error) {
	var room [16]c.Array
	handles := room[:0]
	for _, a := range arrays {
		handles = append(handles, a.h)
	}
	return c.VectorArrayNewData(handles)
}

// list gives the arrays of MLX's list, owned by s, and frees the list.
func (s *Scope) list(op string, v c.VectorArray, err error, of ...*Array) []*Array {
	defer func() { _ = c.VectorArrayFree(v) }() // it can't fail
	if err != nil {
		_ = s.fault(op, err, of...) // kept by the scope
		return nil
	}
	return s.elements(op, v, of...)
}

// elements gives the arrays of MLX's list, owned by s; nil after an error.
func (s *Scope) elements(op string, v c.VectorArray, of ...*Array) []*Array {
	out := make([]*Array, c.VectorArraySize(v))
	for i := range out {
		s.out = 0
		if out[i] = s.took(op, c.VectorArrayGet(&s.out, v, uint64(i)), of...); out[i] == nil {
			return nil
		}
	}
	return out
}
