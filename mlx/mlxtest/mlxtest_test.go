package mlxtest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/internal/watch"
)

func TestDiffer(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		got, want []float32
		tol       Tolerance
		text      string
	}{
		{[]float32{1, nan, inf}, []float32{1, nan, inf}, Tolerance{}, ""},
		{[]float32{1.01}, []float32{1}, Tolerance{Abs: 0.02}, ""},
		{[]float32{101}, []float32{100}, Tolerance{Rel: 0.02}, ""},
		{[]float32{1}, []float32{1, 2}, Tolerance{}, "1 elements, want 2"},
		{[]float32{1, 2, 5}, []float32{1, 1, 1}, Tolerance{Abs: 0.5}, "2 of 3 elements are off by more than 0.5 + 0 of the value; the worst is number 2: 5, want 1"},
		{[]float32{3, nan}, []float32{1, 1}, Tolerance{}, "the worst is number 1: NaN"},
		{[]float32{inf}, []float32{1}, Tolerance{Rel: 1}, "number 0: +Inf, want 1"},
		{[]float32{1}, []float32{inf}, Tolerance{Abs: 1}, "number 0: 1, want +Inf"},
	} {
		got := Differ(c.got, c.want, c.tol)
		if c.text == "" && got != "" || !strings.Contains(got, c.text) {
			t.Errorf("%v and %v: %q, want %q", c.got, c.want, got, c.text)
		}
	}
}

func TestMustHave(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"CI": "true"}, true},
		{map[string]string{"CI": "true", Required: "0"}, false},
		{map[string]string{mlx.PathVariable: "x"}, true},
		{map[string]string{Required: "1"}, true},
	} {
		if got := mustHave(func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

// A recorder stands in for a test that must fail.
type recorder struct {
	testing.TB
	failed  []string
	cleanup []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }
func (r *recorder) Fatal(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) end() {
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
}

func TestALeakFailsTheTest(t *testing.T) {
	outer := Scope(t)
	r := &recorder{TB: t}
	NoLeaks(r)
	outer.Keep(outer.Ones(mlx.Float32, 2)) // and nobody holds it
	r.end()
	text := strings.Join(r.failed, "\n")
	if !strings.Contains(text, "1 handles of MLX were not freed") || !strings.Contains(text, "TestALeakFailsTheTest") {
		t.Errorf("a leak is told as %q", text)
	}
	watch.Live.Add(-1) // it is lost for good, and must not fail this test too
}

func TestAForgottenErrorFailsTheTest(t *testing.T) {
	Library(t)
	r := &recorder{TB: t}
	s := Scope(r)
	s.Reshape(s.Ones(mlx.Float32, 2), 3)
	r.end()
	if len(r.failed) != 1 || !strings.Contains(r.failed[0], "Reshape") {
		t.Errorf("a forgotten error is told as %q", r.failed)
	}
}

func TestCloseAndFails(t *testing.T) {
	s := Scope(t)
	r := &recorder{TB: t}
	a := s.Ones(mlx.Float32, 2)
	Close(r, s, a, []int{2}, []float32{1, 1}, Tolerance{})
	Fails(r, errors.New("a b"), "a", "b")
	if len(r.failed) > 0 {
		t.Errorf("equal arrays fail: %q", r.failed)
	}
	Close(r, s, a, []int{2}, []float32{1, 2}, Tolerance{})
	Fails(r, errors.New("a"), "b")
	Fails(r, nil)
	if len(r.failed) != 3 {
		t.Errorf("failures: %q", r.failed)
	}
}
