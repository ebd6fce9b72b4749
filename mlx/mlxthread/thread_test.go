package mlxthread_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/mlxthread"
	"payload/mlx/mlxthread/mlxthreadtest"
)

func TestCall(t *testing.T) {
	th := mlxthreadtest.Start(t)
	sum, err := mlxthread.Call(t.Context(), th, func(_ context.Context, s *mlx.Scope) (float32, error) {
		return mlx.Item[float32](s, s.Sum(s.Arange(mlx.Float32, 0, 100, 1), false))
	})
	if err != nil || sum != 4950 {
		t.Errorf("sum %v, %v", sum, err)
	}
}

// Eight goroutines share one thread; arrays that live on it are theirs in turn.
func TestEightGoroutines(t *testing.T) {
	th := mlxthreadtest.Start(t)
	var total *mlx.Array
	mlxthreadtest.Do(t, th, func(s *mlx.Scope) error {
		total = s.Keep(s.Zeros(mlx.Float32))
		return nil
	})
	const goroutines, rounds = 8, 50
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range rounds {
				err := th.Do(t.Context(), func(_ context.Context, s *mlx.Scope) error {
					next := s.Add(total, s.Scalar(float64(g), mlx.Float32))
					if err := s.Eval(next); err != nil {
						return err
					}
					total.Free()
					total = s.Keep(next)
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	mlxthreadtest.Do(t, th, func(s *mlx.Scope) error {
		v, err := mlx.Item[float32](s, s.Adopt(total))
		if want := float32(rounds * goroutines * (goroutines - 1) / 2); v != want {
			t.Errorf("total %v, want %v", v, want)
		}
		return err
	})
}

// Several threads compute at once, each with its own stream.
func TestSeveralThreads(t *testing.T) {
	mlxtest.Library(t)
	mlxtest.NoLeaks(t)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			th, err := mlxthread.Start(mlx.CPU)
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				v, err := mlxthread.Call(t.Context(), th, func(_ context.Context, s *mlx.Scope) (float32, error) {
					a := s.Full(mlx.Float32, float64(n), 32, 32)
					return mlx.Item[float32](s, s.Max(s.Matmul(a, a), false))
				})
				if err != nil || v != float32(32*n*n) {
					t.Errorf("thread %d: %v, %v", n, v, err)
				}
			}
			if err := th.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// MLX itself refuses to evaluate elsewhere; the thread's scope says it first.
func TestAScopeStaysOnItsThread(t *testing.T) {
	th := mlxthreadtest.Start(t)
	var s *mlx.Scope
	var a *mlx.Array
	mlxthreadtest.Do(t, th, func(inner *mlx.Scope) error {
		s, a = inner, inner.Ones(mlx.Float32, 2)
		elsewhere := make(chan error)
		go func() {
			b := mlx.NewScope(inner.Stream())
			b.Exp(a)
			elsewhere <- b.Close()
		}()
		if err := <-elsewhere; !errors.Is(err, mlx.ErrThread) {
			t.Errorf("on another goroutine: %v, want ErrThread", err)
		}
		return inner.Eval(a)
	})
	s.Exp(a)
	if !errors.Is(s.Err(), mlx.ErrClosed) {
		t.Errorf("after the function: %v, want ErrClosed", s.Err())
	}
}

func TestErrorsAndPanics(t *testing.T) {
	th := mlxthreadtest.Start(t)
	mine := errors.New("mine")
	if err := th.Do(t.Context(), func(context.Context, *mlx.Scope) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("error %v", err)
	}
	err := th.Do(t.Context(), func(_ context.Context, s *mlx.Scope) error {
		a := s.Ones(mlx.Float32, 2, 3)
		s.Matmul(a, a)
		return nil // the scope's error is not lost
	})
	mlxtest.Fails(t, err, "mlx Matmul of float32[2 3], float32[2 3]")
	err = th.Do(t.Context(), func(_ context.Context, s *mlx.Scope) error {
		s.Ones(mlx.Float32, 2)
		panic("oh no")
	})
	var p *mlxthread.PanicError
	if !errors.As(err, &p) || p.Value != "oh no" || !strings.Contains(p.Stack, "thread_test.go") {
		t.Errorf("error %v", err)
	}
	mlxthreadtest.Do(t, th, func(s *mlx.Scope) error { return s.Eval(s.Ones(mlx.Float32, 2)) })
}

func TestWaitingForItselfIsAnError(t *testing.T) {
	th := mlxthreadtest.Start(t)
	nothing := func(context.Context, *mlx.Scope) error { return nil }
	mlxthreadtest.Do(t, th, func(*mlx.Scope) error {
		if err := th.Do(context.Background(), nothing); !errors.Is(err, mlxthread.ErrInside) {
			t.Errorf("Do: %v", err)
		}
		if _, err := th.Submit(context.Background(), nothing); !errors.Is(err, mlxthread.ErrInside) {
			t.Errorf("Submit: %v", err)
		}
		if err := th.Close(); !errors.Is(err, mlxthread.ErrInside) {
			t.Errorf("Close: %v", err)
		}
		return nil
	})
	if th.Inside() {
		t.Error("the test runs inside")
	}
}

// busy keeps the thread until the function that it gives is called.
func busy(t *testing.T, th *mlxthread.Thread) (release func()) {
	t.Helper()
	running, stop := make(chan struct{}), make(chan struct{})
	if _, err := th.Submit(t.Context(), func(context.Context, *mlx.Scope) error {
		close(running)
		<-stop
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	<-running
	return sync.OnceFunc(func() { close(stop) })
}

func TestCancel(t *testing.T) {
	th := mlxthreadtest.Start(t)
	release := busy(t, th)
	defer release()
	why := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	var ran atomic.Bool
	count := func(context.Context, *mlx.Scope) error { ran.Store(true); return nil }
	job, err := th.Submit(ctx, count)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- th.Do(ctx, count) }()
	time.Sleep(20 * time.Millisecond)
	cancel(why)
	if err := <-done; !errors.Is(err, why) { // though the thread is still busy
		t.Errorf("Do: %v", err)
	}
	release()
	if err := job.Wait(t.Context()); !errors.Is(err, why) {
		t.Errorf("Wait: %v", err)
	}
	if ran.Load() {
		t.Error("a cancelled function ran")
	}
	// One that runs is waited for, and is told.
	ctx, cancel = context.WithCancelCause(t.Context())
	err = th.Do(ctx, func(ctx context.Context, _ *mlx.Scope) error {
		cancel(why)
		<-ctx.Done()
		ran.Store(true)
		return context.Cause(ctx)
	})
	if !errors.Is(err, why) || !ran.Load() {
		t.Errorf("a running function: %v, %v", err, ran.Load())
	}
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	release = busy(t, th)
	defer release()
	if job, err = th.Submit(t.Context(), count); err != nil {
		t.Fatal(err)
	}
	if err := job.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait with a deadline: %v", err)
	}
}

func TestAFullQueueEndsWithTheContext(t *testing.T) {
	th := mlxthreadtest.Start(t)
	release := busy(t, th)
	defer release()
	nothing := func(context.Context, *mlx.Scope) error { return nil }
	for range mlxthread.Queue {
		if _, err := th.Submit(t.Context(), nothing); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := th.Submit(ctx, nothing); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestOrder(t *testing.T) {
	th := mlxthreadtest.Start(t)
	var got []int
	var last *mlxthread.Job
	for i := range 40 {
		job, err := th.Submit(t.Context(), func(context.Context, *mlx.Scope) error { got = append(got, i); return nil })
		if err != nil {
			t.Fatal(err)
		}
		last = job
	}
	if err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if i != v {
			t.Fatalf("order %v", got)
		}
	}
}

func TestClose(t *testing.T) {
	mlxtest.Library(t)
	th, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		t.Fatal(err)
	}
	release := busy(t, th)
	nothing := func(context.Context, *mlx.Scope) error { return nil }
	waiting, err := th.Submit(t.Context(), nothing)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- th.Close() }()
	time.Sleep(20 * time.Millisecond)
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := waiting.Wait(t.Context()); err != nil && !errors.Is(err, mlxthread.ErrClosed) {
		t.Errorf("a function in the queue: %v", err)
	}
	if err := th.Do(t.Context(), nothing); !errors.Is(err, mlxthread.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := th.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// A function that ends the goroutine ends the thread, and nobody hangs.
func TestGoexit(t *testing.T) {
	mlxtest.Library(t)
	th, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		t.Fatal(err)
	}
	err = th.Do(t.Context(), func(context.Context, *mlx.Scope) error {
		runtime.Goexit()
		return nil
	})
	if !errors.Is(err, mlxthread.ErrExited) {
		t.Errorf("error %v", err)
	}
	err = th.Do(t.Context(), func(context.Context, *mlx.Scope) error { return nil })
	if !errors.Is(err, mlxthread.ErrExited) {
		t.Errorf("after it: %v", err)
	}
	if err := th.Close(); err != nil {
		t.Error(err)
	}
}
