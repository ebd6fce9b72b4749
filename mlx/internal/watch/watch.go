// Package watch is how the test harnesses look into package mlx: what is
// alive, what was lost, and whether every operation checks its thread.
package watch

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// Live counts the handles of MLX that Go holds: arrays and closures.
var Live atomic.Int64

// Threads makes every operation check that it runs on its scope's thread,
// not only those that evaluate.
var Threads atomic.Bool

// lost is called with the stack of a creation whose handle was collected
// before it was freed.
var lost atomic.Pointer[func(stack string)]

// Lost has f called for every handle, made from now on, that the garbage
// collector finds unfreed. nil ends that. The handle stays lost: only a test
// may ask, and fail.
func Lost(f func(stack string)) {
	if f == nil {
		lost.Store(nil)
		return
	}
	lost.Store(&f)
}

// Made counts a new handle. The flag that it gives must be set when the
// handle is freed; it is nil while nobody asks.
func Made[T any](owner *T) *atomic.Bool {
	Live.Add(1)
	f := lost.Load()
	if f == nil {
		return nil
	}
	freed := new(atomic.Bool)
	stack := string(debug.Stack())
	runtime.AddCleanup(owner, func(freed *atomic.Bool) {
		if !freed.Load() {
			(*f)(stack)
		}
	}, freed)
	return freed
}

// Freed counts a handle that is gone.
func Freed(flag *atomic.Bool) {
	Live.Add(-1)
	if flag != nil {
		flag.Store(true)
	}
}
