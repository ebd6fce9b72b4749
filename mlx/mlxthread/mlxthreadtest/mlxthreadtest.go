// Package mlxthreadtest gives tests an MLX thread that is watched: every
// operation checks that it runs where it must, and nothing may be left.
//
// Only tests may import it; the linter holds that.
package mlxthreadtest

import (
	"context"
	"testing"

	"payload/mlx"
	"payload/mlx/internal/watch"
	"payload/mlx/mlxtest"
	"payload/mlx/mlxthread"
)

// Start gives a thread on the processor, closed at the end of the test.
// Without the real library the test is skipped, or fails, as mlxtest.Library
// says. Operations from another goroutine than the thread's are errors, not
// only those that evaluate. Such tests don't run in parallel.
func Start(tb testing.TB) *mlxthread.Thread {
	tb.Helper()
	mlxtest.Library(tb)
	mlxtest.NoLeaks(tb)
	watch.Threads.Store(true)
	th, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		watch.Threads.Store(false)
		if err := th.Close(); err != nil {
			tb.Errorf("closing the MLX thread: %v", err)
		}
	})
	return th
}

// Do runs f on the thread and fails the test with its error.
func Do(tb testing.TB, th *mlxthread.Thread, f func(s *mlx.Scope) error) {
	tb.Helper()
	err := th.Do(tb.Context(), func(_ context.Context, s *mlx.Scope) error { return f(s) })
	if err != nil {
		tb.Fatal(err)
	}
}
