package mlx_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
)

// resident gives the bytes of the process that are in memory, 0 where the
// system does not tell.
func resident() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// A million operations leave nothing behind: not in MLX's allocator, not in
// the process. The cache is given room first, for its limit of 32 MiB would
// hide what leaks into it.
func TestAMillionOperationsAreFlat(t *testing.T) {
	const operations, step = 1_000_000 / slow, 100
	s := mlxtest.Scope(t)
	old, err := mlx.SetCacheLimit(8 << 30)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = mlx.SetCacheLimit(old) }()
	one := s.Full(mlx.Float32, 1, 256)
	var warm mlx.Memory
	var warmResident int64
	for done := 0; done < operations; done += step {
		if done == operations/5 {
			runtime.GC()
			warm, warmResident = memory(t), resident()
		}
		if err := hundred(s, one); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	end, endResident := memory(t), resident()
	t.Logf("after %d and %d operations: active %d and %d, cache %d and %d, resident %d and %d bytes", operations/5, operations,
		warm.Active, end.Active, warm.Cache, end.Cache, warmResident, endResident)
	if end.Active != warm.Active {
		t.Errorf("arrays grew from %d to %d bytes", warm.Active, end.Active)
	}
	if end.Cache > warm.Cache+1<<20 {
		t.Errorf("the cache grew from %d to %d bytes", warm.Cache, end.Cache)
	}
	if slow == 1 && endResident > warmResident+16<<20 { // the race detector's own memory grows
		t.Errorf("the process grew from %d to %d bytes", warmResident, endResident)
	}
}

// hundred makes a hundred operations and evaluates what they come to.
func hundred(parent *mlx.Scope, one *mlx.Array) error {
	s := parent.Sub()
	x := one
	for range 24 {
		x = s.Add(x, one)
		x = s.Multiply(x, one)
		x = s.Reshape(x, 16, 16)
		x = s.Reshape(x, 256)
	}
	x = s.Sum(s.Sqrt(s.Square(s.Softmax(x, false, -1))), false)
	if err := s.Eval(x); err != nil {
		return err
	}
	return s.Close()
}
