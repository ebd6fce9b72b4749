// Package mlxtest holds what tests of arrays need: the real library or a skip
// that nobody overlooks, a check that nothing leaks, and comparing values.
//
// Only tests may import it; the linter holds that.
package mlxtest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/mlx"
	"payload/mlx/internal/watch"
)

// Required names the environment variable that says whether tests must have
// the library: 1 turns the skip of Library into a failure, 0 allows it on CI.
const Required = "PAYLOAD_MLX_REQUIRED"

// Library loads the real MLX library. Without one the test is skipped, saying
// where it was looked for; it fails where CI is true, PAYLOAD_MLX_PATH is set,
// or PAYLOAD_MLX_REQUIRED is 1. A library that is there and can't be used
// always fails.
func Library(tb testing.TB) {
	tb.Helper()
	err := mlx.Load()
	var missing *mlx.LoadError
	switch {
	case err == nil:
	case errors.As(err, &missing) && !mustHave(os.Getenv):
		tb.Skipf("NOT RUN: no MLX library here: %v", err)
	default:
		tb.Fatalf("the MLX library: %v", err)
	}
}

// mustHave tells whether a missing library is a failure.
func mustHave(env func(string) string) bool {
	switch env(Required) {
	case "0":
		return false
	case "1":
		return true
	}
	return env(mlx.PathVariable) != "" || env("CI") == "true"
}

// Scope gives a scope on the processor, on a thread of its own for the test,
// and checks at the end that nothing was left: neither an error that nobody
// looked at nor arrays that nobody freed. The test's goroutine is bound to its
// thread until then.
func Scope(tb testing.TB) *mlx.Scope {
	tb.Helper()
	Library(tb)
	runtime.LockOSThread()
	NoLeaks(tb)
	stream, err := mlx.NewStream(mlx.CPU)
	if err != nil {
		tb.Fatal(err)
	}
	s := mlx.NewScope(stream)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("the scope ended with an error: %v", err)
		}
		stream.Free()
	})
	return s
}

// NoLeaks fails the test when, at its end, more handles of MLX are alive than
// now, or the garbage collector found one that was never freed: then it says
// where that was made. Such tests don't run in parallel.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	before := watch.Live.Load()
	lost := make(chan string, 16)
	watch.Lost(func(stack string) {
		select {
		case lost <- stack:
		default: // enough are told
		}
	})
	tb.Cleanup(func() {
		defer watch.Lost(nil)
		now := watch.Live.Load()
		if now <= before {
			return
		}
		runtime.GC() // those that nobody holds are found
		tb.Errorf("%d handles of MLX were not freed", now-before)
		for {
			select {
			case stack := <-lost:
				tb.Errorf("one was made here:\n%s", stack)
			case <-time.After(100 * time.Millisecond):
				return
			}
		}
	})
}

// Tolerance says how far values may be from what is wanted: Abs, or Rel times
// the wanted value, whichever is more. The zero value wants equality.
type Tolerance struct{ Abs, Rel float64 }

// Close compares all elements of a, as float32, with want.
func Close(tb testing.TB, s *mlx.Scope, a *mlx.Array, shape []int, want []float32, tol Tolerance) {
	tb.Helper()
	got, err := mlx.Floats(s, a)
	if err != nil {
		tb.Fatal(err)
	}
	if !slices.Equal(a.Shape(), shape) {
		tb.Fatalf("shape %v, want %v", a.Shape(), shape)
	}
	if text := Differ(got, want, tol); text != "" {
		tb.Errorf("%s", text)
	}
}

// Differ says where got is too far from want: how many, and the worst. NaN
// equals NaN.
func Differ(got, want []float32, tol Tolerance) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d elements, want %d", len(got), len(want))
	}
	bad, worst, at := 0, 0.0, 0
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		off := math.Abs(g - w)
		if off <= max(tol.Abs, tol.Rel*math.Abs(w)) {
			continue
		}
		if bad++; !(off <= worst) { // a NaN is the worst
			worst, at = off, i
		}
	}
	if bad == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d elements are off by more than %g + %g of the value; the worst is number %d: %v, want %v",
		bad, len(want), tol.Abs, tol.Rel, at, got[at], want[at])
}

// Fails wants err to hold each of the texts.
func Fails(tb testing.TB, err error, texts ...string) {
	tb.Helper()
	if err == nil {
		tb.Error("no error")
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			tb.Errorf("error %q lacks %q", err, text)
		}
	}
}
