//go:build !windows

package c_test

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"payload/mlx"
)

const (
	sigURG  = syscall.SIGURG
	sigPROF = syscall.SIGPROF
)

func sendSignal(pid, i int) {
	_ = syscall.Kill(pid, []syscall.Signal{sigURG, sigPROF, syscall.SIGTERM}[i%3])
}

// storm evaluates sums, and closures that call back into Go, until stop.
func storm(t *testing.T, stop <-chan struct{}, calls *atomic.Int64) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	stream, err := mlx.NewStream(mlx.CPU)
	if err != nil {
		t.Error(err)
		return
	}
	defer stream.Free()
	for {
		select {
		case <-stop:
			return
		default:
		}
		s := mlx.NewScope(stream)
		f := s.NewClosure(func(s *mlx.Scope, in []*mlx.Array) ([]*mlx.Array, error) {
			deep(200) // the stack grows while C waits
			return []*mlx.Array{s.Add(in[0], in[0])}, nil
		})
		y := s.Apply(f, s.Arange(mlx.Float32, 0, 1000, 1))
		if len(y) == 1 {
			if sum, err := mlx.Item[float32](s, s.Sum(y[0], false)); err == nil && sum != 999000 {
				t.Errorf("sum %v, want 999000", sum)
			}
		}
		f.Free()
		if err := s.Close(); err != nil {
			t.Error(err)
			return
		}
		calls.Add(1)
	}
}

//go:noinline
func deep(n int) int {
	var room [256]byte
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + int(room[n%256])
}
