package c_test

import (
	"testing"

	"payload/mlx/internal/c"
	"payload/mlx/mlxtest"
)

// What a call costs, by the way it takes. scripts/bench holds it against cgo.

func BenchmarkFastPath(b *testing.B) {
	mlxtest.Library(b)
	a, err := c.ArrayNewInt(3)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.ArrayNdim(a)
	}
}

func BenchmarkFastPathOut(b *testing.B) {
	mlxtest.Library(b)
	a, err := c.ArrayNewInt(3)
	if err != nil {
		b.Fatal(err)
	}
	var out c.Array
	b.ReportAllocs()
	for b.Loop() {
		_ = c.ArraySet(&out, a)
	}
}

func BenchmarkRegistered(b *testing.B) {
	mlxtest.Library(b)
	a, err := c.ArrayNewInt(3)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = c.ArraySetFloat32(&a, 1)
	}
}
