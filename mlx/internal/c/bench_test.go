//go:build !windows

package c_test

import (
	"syscall"
	"testing"

	"payload/mlx/internal/c"
	"payload/mlx/mlxtest"
)

// What a call costs, by the way it takes: cpu-ns/op is processor time, which
// other work on the machine does not change. scripts/bench holds it against cgo.

func BenchmarkFastPath(b *testing.B) {
	a := three(b)
	perCall(b, func() { c.ArrayNdim(a) })
}

func BenchmarkFastPathOut(b *testing.B) {
	a := three(b)
	var out c.Array
	perCall(b, func() { _ = c.ArraySet(&out, a) })
}

func BenchmarkRegistered(b *testing.B) {
	a := three(b)
	perCall(b, func() { _ = c.ArraySetFloat32(&a, 1) })
}

func three(b *testing.B) c.Array {
	b.Helper()
	mlxtest.Library(b)
	a, err := c.ArrayNewInt(3)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func perCall(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	before := processor(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op")
}

func processor(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
