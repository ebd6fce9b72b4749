package mlx

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"payload/mlx/internal/c"
	"payload/mlx/internal/watch"

	"github.com/ebitengine/purego"
)

// A Func is a function of arrays that MLX calls: to trace it, compile it or
// derive it. It gives arrays of s or of its inputs, and neither keeps nor frees
// them. Its scope ends when it returns.
type Func func(s *Scope, in []*Array) ([]*Array, error)

// A Closure is a Func as MLX has it, or what MLX made of one. Free it.
type Closure struct {
	h     c.Closure
	of    *function
	freed *atomic.Bool
}

// A function is a Func, or a VJPFunc, that C holds, and the last thing that
// went wrong in it.
type function struct {
	f      func(s *Scope, lists [][]*Array) ([]*Array, error)
	stream *Stream
	inner  []*function // of a closure that is made of others
	mu     sync.Mutex
	err    error
}

var functions registry[*function]

var functionAddress = sync.OnceValue(func() uintptr { return purego.NewCallback(callFunction) })

var vjpAddress = sync.OnceValue(func() uintptr { return purego.NewCallback(callVJP) })

var forgetAddress = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(id uintptr) uintptr {
		functions.take(id)
		return 0
	})
})

// callFunction is what C calls for every Func: nothing may panic through it.
func callFunction(res *c.VectorArray, in c.VectorArray, id uintptr) uintptr {
	return call(id, res, in)
}

// callVJP is what C calls for every VJPFunc.
func callVJP(res *c.VectorArray, primals, cotangents, values c.VectorArray, id uintptr) uintptr {
	return call(id, res, primals, cotangents, values)
}

func call(id uintptr, res *c.VectorArray, in ...c.VectorArray) uintptr {
	fn, ok := functions.get(id)
	if !ok {
		return 1
	}
	out, err := fn.run(in)
	if err != nil {
		fn.mu.Lock()
		fn.err = err
		fn.mu.Unlock()
		return 1
	}
	*res = out
	return 0
}

func (fn *function) run(in []c.VectorArray) (out c.VectorArray, err error) {
	s := NewScope(fn.stream)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the function panicked: %v\n%s", p, debug.Stack())
		}
		_ = s.Close() // its error was looked at
	}()
	args := make([][]*Array, len(in))
	for i, list := range in {
		args[i] = s.elements("Closure", list)
	}
	if s.err != nil {
		return 0, s.err
	}
	results, err := fn.f(s, args)
	if err == nil {
		err = s.err
	}
	if err != nil {
		return 0, err
	}
	if !s.ready("Closure", results...) {
		return 0, s.err
	}
	return vector(results)
}

// failed gives what went wrong in the Func in place of MLX's word for it.
func (fn *function) failed(err error) error {
	if fn == nil || err == nil {
		return err
	}
	for _, f := range fn.inner {
		err = f.failed(err)
	}
	fn.mu.Lock()
	defer fn.mu.Unlock()
	if fn.err != nil {
		err, fn.err = fn.err, nil
	}
	return err
}

// NewClosure gives f to MLX. nil after an error.
func (s *Scope) NewClosure(f Func) *Closure {
	if !s.ready("NewClosure") {
		return nil
	}
	fn := &function{stream: s.stream, f: func(s *Scope, lists [][]*Array) ([]*Array, error) { return f(s, lists[0]) }}
	id := functions.add(fn)
	h, err := c.ClosureNewFuncPayload(functionAddress(), id, forgetAddress())
	if err != nil {
		functions.take(id)
	}
	return s.closure("NewClosure", h, err, fn)
}

func (s *Scope) closure(op string, h c.Closure, err error, fn *function) *Closure {
	if err != nil {
		_ = s.fault(op, fn.failed(err)) // kept by the scope
		return nil
	}
	cl := &Closure{h: h, of: fn}
	cl.freed = watch.Made(cl)
	return cl
}

// Free gives the closure up. It may be called twice, and on nil.
func (cl *Closure) Free() {
	if cl == nil || cl.h == 0 {
		return
	}
	_ = c.ClosureFree(cl.h) // it can't fail on a handle of its own
	cl.h = 0
	watch.Freed(cl.freed)
}

// usable tells whether op can go on with cl and arrays.
func (s *Scope) usable(op string, cl *Closure, arrays ...*Array) bool {
	if s.err == nil && (cl == nil || cl.h == 0) {
		s.Fail(fmt.Errorf("mlx %s: the closure is nil or was freed", op))
	}
	return s.ready(op, arrays...)
}

// Apply calls a closure. After an error it gives nil.
func (s *Scope) Apply(cl *Closure, in ...*Array) []*Array {
	if !s.usable("Apply", cl, in...) {
		return nil
	}
	args, err := vector(in)
	if err != nil {
		_ = s.fault("Apply", err, in...) // kept by the scope
		return nil
	}
	defer func() { _ = c.VectorArrayFree(args) }() // it can't fail
	out, err := c.VectorArrayNew()
	if err == nil {
		err = cl.of.failed(c.ClosureApply(&out, cl.h, args))
	}
	return s.list("Apply", out, err, in...)
}

// Compile gives a closure that MLX compiles when it is first called with
// arrays of new types and shapes; shapeless, of new types and numbers of axes.
func (s *Scope) Compile(cl *Closure, shapeless bool) *Closure {
	if !s.usable("Compile", cl) {
		return nil
	}
	var h c.Closure
	err := c.Compile(&h, cl.h, shapeless)
	return s.closure("Compile", h, err, cl.of)
}

// Checkpoint gives a closure whose inner values are computed again for
// gradients, not kept.
func (s *Scope) Checkpoint(cl *Closure) *Closure {
	if !s.usable("Checkpoint", cl) {
		return nil
	}
	var h c.Closure
	err := c.Checkpoint(&h, cl.h)
	return s.closure("Checkpoint", h, err, cl.of)
}

// ValueAndGrad calls a closure that gives a scalar first, and derives that by
// the inputs that argnums number. After an error it gives nil.
func (s *Scope) ValueAndGrad(cl *Closure, argnums []int, in ...*Array) (values, grads []*Array) {
	const op = "ValueAndGrad"
	if !s.usable(op, cl, in...) {
		return nil, nil
	}
	var vg c.ClosureValueAndGrad
	if err := c.ValueAndGrad(&vg, cl.h, narrow(nil, argnums)); err != nil {
		_ = s.fault(op, cl.of.failed(err), in...) // kept by the scope
		return nil, nil
	}
	defer func() { _ = c.ClosureValueAndGradFree(vg) }() // it can't fail
	return s.two(op, cl, in, nil, func(a, b *c.VectorArray, args, _ c.VectorArray) error {
		return c.ClosureValueAndGradApply(a, b, vg, args)
	})
}

// VJP calls a closure and gives its results, and the products of cotangents
// with its Jacobian. After an error it gives nil.
func (s *Scope) VJP(cl *Closure, primals, cotangents []*Array) (values, products []*Array) {
	return s.two("VJP", cl, primals, cotangents, func(a, b *c.VectorArray, x, y c.VectorArray) error {
		return c.Vjp(a, b, cl.h, x, y)
	})
}

// JVP calls a closure and gives its results, and the products of its Jacobian
// with tangents. After an error it gives nil.
func (s *Scope) JVP(cl *Closure, primals, tangents []*Array) (values, products []*Array) {
	return s.two("JVP", cl, primals, tangents, func(a, b *c.VectorArray, x, y c.VectorArray) error {
		return c.Jvp(a, b, cl.h, x, y)
	})
}

// two makes a call with two lists that gives two.
func (s *Scope) two(op string, cl *Closure, x, y []*Array, f func(a, b *c.VectorArray, x, y c.VectorArray) error) (first, second []*Array) {
	if !s.usable(op, cl, x...) || !s.ready(op, y...) {
		return nil, nil
	}
	lists := make([]c.VectorArray, 4)
	var errs [4]error
	lists[0], errs[0] = vector(x)
	lists[1], errs[1] = vector(y)
	lists[2], errs[2] = c.VectorArrayNew()
	lists[3], errs[3] = c.VectorArrayNew()
	defer func() { _, _ = c.VectorArrayFree(lists[0]), c.VectorArrayFree(lists[1]) }() // they can't fail
	err := errors.Join(errs[:]...)
	if err == nil {
		err = cl.of.failed(f(&lists[2], &lists[3], lists[0], lists[1]))
	}
	return s.list(op, lists[2], err, x...), s.list(op, lists[3], err, x...)
}

// A VJPFunc gives, for each input, the product of cotangents with the Jacobian
// of a function, whose inputs were primals and whose results values. It is
// bound as a Func is.
type VJPFunc func(s *Scope, primals, cotangents, values []*Array) ([]*Array, error)

// CustomVJP gives a closure that is derived by vjp, not by what it does.
func (s *Scope) CustomVJP(cl *Closure, vjp VJPFunc) *Closure {
	const op = "CustomVJP"
	if !s.usable(op, cl) {
		return nil
	}
	back := &function{stream: s.stream, f: func(s *Scope, l [][]*Array) ([]*Array, error) { return vjp(s, l[0], l[1], l[2]) }}
	id := functions.add(back)
	custom, err := c.ClosureCustomNewFuncPayload(vjpAddress(), id, forgetAddress())
	if err != nil {
		functions.take(id)
		return s.closure(op, 0, err, cl.of)
	}
	defer func() { _ = c.ClosureCustomFree(custom) }() // MLX holds what it needs
	var h c.Closure
	err = c.CustomVjp(&h, cl.h, custom)
	return s.closure(op, h, err, &function{inner: []*function{cl.of, back}})
}

// Vmap calls a closure over an axis of each input, and stacks results along an
// axis of each: the closure is written for one element. An axis of -1 leaves
// an input whole. After an error it gives nil.
func (s *Scope) Vmap(cl *Closure, inAxes, outAxes []int, in ...*Array) []*Array {
	const op = "Vmap"
	traced, values := s.two(op, cl, in, nil, func(a, b *c.VectorArray, args, _ c.VectorArray) error {
		return c.DetailVmapTrace(a, b, cl.h, args, narrow(nil, inAxes))
	})
	if s.err != nil {
		return nil
	}
	lists := make([]c.VectorArray, 4)
	var errs [4]error
	for i, arrays := range [][]*Array{in, traced, values, nil} {
		lists[i], errs[i] = vector(arrays)
	}
	defer func() {
		for _, l := range lists[:3] {
			_ = c.VectorArrayFree(l) // it can't fail
		}
	}()
	err := errors.Join(errs[:]...)
	if err == nil {
		err = c.DetailVmapReplace(&lists[3], lists[0], lists[1], lists[2], narrow(nil, inAxes), narrow(nil, outAxes))
	}
	return s.list(op, lists[3], err, in...)
}

// SetCompile turns compiling on or off for the process: off, compiled closures
// run as they were written.
func SetCompile(on bool) error {
	if err := Load(); err != nil {
		return err
	}
	if on {
		return wrap("SetCompile", c.EnableCompile())
	}
	return wrap("SetCompile", c.DisableCompile())
}
