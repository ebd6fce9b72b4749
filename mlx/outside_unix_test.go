//go:build !windows

package mlx_test

import (
	"syscall"
	"testing"
	"unsafe"
)

// outside gives data in memory that is not of Go's heap, as a mapped file is.
func outside(t *testing.T, data []float32) []byte {
	t.Helper()
	size := len(data) * 4
	room, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(room) })
	copy(room, unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), size))
	return room[:size]
}
