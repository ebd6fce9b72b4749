//go:build mlxbench

// Command bench measures what calls of the bindings cost, against cgo on the
// same library in the same process, and what the library gives through them.
// scripts/bench builds it with `-tags mlxbench` and cgo, which nothing else
// here needs, and holds it against MLX's Python package.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"payload/mlx"
	"payload/mlx/internal/c"
	"payload/mlx/mlxthread"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1) //nolint:forbidigo // this is a main of its own
	}
}

type result struct {
	Calls      map[string]cost    // by kind of call
	Throughput map[string]float64 // by work: operations a second
}

// cost is processor time of a call, in nanoseconds, the least of all rounds.
type cost struct{ Binding, Cgo float64 }

func run() error {
	if err := mlx.Load(); err != nil {
		return err
	}
	calls, err := calls()
	if err != nil {
		return err
	}
	work, err := throughput()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result{calls, work})
}

// calls takes turns between the bindings and cgo, on one thread.
func calls() (map[string]cost, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := mlx.Library()
	if err != nil {
		return nil, err
	}
	a, err := c.ArrayNewInt(3)
	if err != nil {
		return nil, err
	}
	p, err := openPeer(path, uintptr(a))
	if err != nil {
		return nil, err
	}
	var out c.Array
	out2, err := c.ArrayNewInt(3)
	if err != nil {
		return nil, err
	}
	kinds := map[string][2]func(){
		"value":      {func() { c.ArrayNdim(a) }, p.ndim},
		"out":        {func() { _ = c.ArraySet(&out, a) }, p.set},
		"registered": {func() { _ = c.ArraySetFloat32(&out2, 1) }, p.setFloat32},
	}
	costs := map[string]cost{}
	for name, pair := range kinds {
		var times [2][]float64
		for range 15 {
			for i, f := range pair {
				times[i] = append(times[i], each(f))
			}
		}
		costs[name] = cost{slices.Min(times[0]), slices.Min(times[1])}
	}
	return costs, nil
}

// each gives the nanoseconds of processor time that a call takes: a machine
// with other work makes the clock useless.
func each(f func()) float64 {
	const n = 100_000
	before := used(syscall.RUSAGE_SELF)
	for range n {
		f()
	}
	return float64(used(syscall.RUSAGE_SELF)-before) / n
}

func used(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0 // can't fail with a known argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// throughput does what scripts/mlxbench/peer.py does.
func throughput() (map[string]float64, error) {
	th, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	err = th.Do(context.Background(), func(_ context.Context, s *mlx.Scope) error {
		big := s.Uniform(mlx.Float32, 0, 1, s.Key(1), 1<<20)
		square := s.Uniform(mlx.Float32, 0, 1, s.Key(2), 512, 512)
		row := s.Uniform(mlx.Float32, 0, 1, s.Key(3), 1, 512)
		if err := s.Eval(big, square, row); err != nil {
			return err
		}
		for name, f := range map[string]func(s *mlx.Scope) *mlx.Array{
			"elements of 4 MiB":      func(s *mlx.Scope) *mlx.Array { return s.Add(s.Multiply(big, big), big) },
			"matmul 512x512":         func(s *mlx.Scope) *mlx.Array { return s.Matmul(square, square) },
			"50 small ops, one eval": func(s *mlx.Scope) *mlx.Array { return small(s, row) },
		} {
			rate, err := rate(s, f)
			if err != nil {
				return err
			}
			out[name] = rate
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, th.Close()
}

func small(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	y := x
	for range 25 {
		y = s.Add(s.Multiply(y, x), x)
	}
	return y
}

// rate gives evaluations a second of processor time. Each makes its arrays
// anew and frees them.
func rate(s *mlx.Scope, f func(s *mlx.Scope) *mlx.Array) (float64, error) {
	const least = 300 * time.Millisecond
	one := func() error {
		sub := s.Sub()
		if err := sub.EvalOnly(f(sub)); err != nil {
			return err
		}
		return sub.Close()
	}
	for range 3 { // warm
		if err := one(); err != nil {
			return 0, err
		}
	}
	before, n := used(syscall.RUSAGE_SELF), 0
	for used(syscall.RUSAGE_SELF)-before < least {
		if err := one(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / (used(syscall.RUSAGE_SELF) - before).Seconds(), nil
}
