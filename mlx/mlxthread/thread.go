// Package mlxthread holds a goroutine on one thread of the system, on which
// arrays of MLX live.
//
// MLX evaluates an array only on the thread for whose stream it was built, and
// a goroutine has no thread of its own. So a Thread owns one: functions are
// handed to it, run one after the other in the order they came, and get a
// Scope of its stream. It refuses what would hang or corrupt: a wait for
// itself from inside, a call after Close, a scope used elsewhere.
//
// MLX keeps a stream's place for the life of the process: start few threads,
// and keep them.
package mlxthread

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"payload/mlx"
)

// What a Thread answers when it is used wrongly.
var (
	// ErrClosed: the thread was closed before the function could run.
	ErrClosed = errors.New("the MLX thread is closed")
	// ErrInside: a function of the thread asked the same thread to run
	// another and wait for it, which would never end.
	ErrInside = errors.New("a function on the MLX thread can't wait for another on the same thread; call it directly")
	// ErrExited: a function ended the thread's goroutine (runtime.Goexit, or
	// FailNow of a test), and with it the thread.
	ErrExited = errors.New("a function ended the MLX thread's goroutine")
)

// A PanicError is a panic of a function; the thread lives on.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("a function on the MLX thread panicked: %v\n%s", e.Value, e.Stack)
}

// A Func runs on a thread. Its scope ends when it returns: what it owns is
// freed then, and its error is the function's where that has none. The context
// is the one it was handed in with; a long function looks at it between steps.
type Func func(ctx context.Context, s *mlx.Scope) error

// A Job is a function that was handed in.
type Job struct {
	ctx    context.Context // the job's own, handed to its function
	f      Func
	thread *Thread
	taken  atomic.Bool // by the thread to run it, or by who gives it up
	done   chan struct{}
	err    error
}

// Queue is how many functions a thread takes in ahead of the one that runs.
const Queue = 64

// A Thread runs functions on one thread of the system.
type Thread struct {
	device mlx.Device
	id     uintptr // of the system's thread
	jobs   chan *Job
	stop   chan struct{} // closed by Close: no job is taken any more
	ended  chan struct{} // closed when the goroutine is gone
	once   sync.Once
	err    error // of taking down, set before ended is closed
	exited bool
}

// Start makes a thread with a stream of its own on d, loading MLX if that was
// not done. Close it.
func Start(d mlx.Device) (*Thread, error) {
	t := &Thread{device: d, jobs: make(chan *Job, Queue), stop: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error)
	go t.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting an MLX thread on %v: %w", d, err)
	}
	return t, nil
}

// Device gives the device of the thread's stream.
func (t *Thread) Device() mlx.Device { return t.device }

// run is the goroutine. It never unlocks its thread, so that the system's
// thread ends with it and nothing of Go runs on one that MLX knows.
func (t *Thread) run(started chan<- error) {
	runtime.LockOSThread()
	defer close(t.ended)
	stream, err := mlx.NewStream(t.device)
	if err != nil {
		started <- err
		return
	}
	t.id = mlx.ThreadID()
	if err := stream.SetDefault(); err != nil {
		started <- err
		return
	}
	started <- nil
	t.exited = true // until the loop ends as it should
	defer func() {
		t.err = errors.Join(stream.Synchronize(), mlx.ClearStreams())
		stream.Free()
	}()
	t.loop(stream)
	t.exited = false
}

func (t *Thread) loop(stream *mlx.Stream) {
	for {
		select {
		case <-t.stop:
			return
		case j := <-t.jobs:
			j.run(stream)
		}
	}
}

// run carries a job out. Goexit passes through the deferred function, and
// ends the thread.
func (j *Job) run(stream *mlx.Stream) {
	if !j.taken.CompareAndSwap(false, true) {
		return // given up
	}
	if j.err = context.Cause(j.ctx); j.err != nil {
		close(j.done)
		return
	}
	s := mlx.NewScope(stream)
	returned := false
	defer func() {
		if p := recover(); p != nil {
			j.err = &PanicError{Value: p, Stack: string(debug.Stack())}
		} else if !returned {
			j.err = ErrExited
		}
		if err := s.Close(); j.err == nil {
			j.err = err
		}
		close(j.done)
	}()
	j.err = j.f(j.ctx, s)
	returned = true
}

// Inside tells whether the caller runs on the thread, in one of its functions.
func (t *Thread) Inside() bool {
	select {
	case <-t.ended:
		return false // the system may have given the number to another thread
	default:
		return mlx.ThreadID() == t.id
	}
}

// Submit hands f in and does not wait for it: only for room in the queue, as
// long as ctx allows. A job whose ctx ends before its turn never runs.
func (t *Thread) Submit(ctx context.Context, f Func) (*Job, error) {
	if t.Inside() {
		return nil, ErrInside
	}
	j := &Job{ctx: ctx, f: f, thread: t, done: make(chan struct{})}
	select {
	case <-t.stop:
		return nil, ErrClosed
	case <-t.ended:
		return nil, t.gone()
	default:
	}
	select {
	case t.jobs <- j:
		return j, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.stop:
		return nil, ErrClosed
	case <-t.ended:
		return nil, t.gone()
	}
}

// gone says why no job is run any more.
func (t *Thread) gone() error {
	if t.exited {
		return ErrExited
	}
	return ErrClosed
}

// Wait waits until the job's function has returned and gives its error, or
// until ctx ends. Then the function may still run, with what it refers to.
func (j *Job) Wait(ctx context.Context) error {
	if j.thread.Inside() {
		return ErrInside
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-j.thread.ended:
		return j.left()
	}
}

// left is the answer for a job of a thread that is gone.
func (j *Job) left() error {
	select {
	case <-j.done:
		return j.err
	default:
		return j.thread.gone()
	}
}

// Do runs f on the thread and gives its error. When ctx ends before f's turn,
// f never runs; once it runs, Do waits for it, so that what f refers to is the
// caller's again when Do returns.
func (t *Thread) Do(ctx context.Context, f Func) error {
	j, err := t.Submit(ctx, f)
	if err != nil {
		return err
	}
	ended := ctx.Done()
	for {
		select {
		case <-j.done:
			return j.err
		case <-t.ended:
			return j.left()
		case <-ended:
			if j.taken.CompareAndSwap(false, true) {
				return context.Cause(ctx)
			}
			ended = nil // it runs: wait
		}
	}
}

// Call is Do for a function that gives a value.
func Call[T any](ctx context.Context, t *Thread, f func(ctx context.Context, s *mlx.Scope) (T, error)) (T, error) {
	var out T
	err := t.Do(ctx, func(ctx context.Context, s *mlx.Scope) (err error) {
		out, err = f(ctx, s)
		return err
	})
	return out, err
}

// Close lets the function that runs return, refuses all others with ErrClosed
// and takes the thread down. Arrays that were kept can be freed after, not
// evaluated. Closing twice is fine; from inside it is ErrInside.
func (t *Thread) Close() error {
	if t.Inside() {
		return ErrInside
	}
	t.once.Do(func() { close(t.stop) })
	<-t.ended
	return t.err
}
