//go:build !windows

package model

import (
	"os"
	"sync/atomic"
	"unsafe"

	"payload/fs/safetensors"

	"golang.org/x/sys/unix"
)

// A mapping is a file in memory, as long as anything uses it.
type mapping struct {
	bytes []byte
	users atomic.Int64
}

// mapFile maps a file to the end of its last tensor for its first user; nil where
// the system can't. It is the file whose header was read, whatever lies at its
// path by now. What is written to it stays in this process.
func mapFile(f *safetensors.File) *mapping {
	var end int64
	for _, t := range f.Tensors {
		end = max(end, t.Offset+t.Size)
	}
	// Without a reserve: a file may be larger than memory.
	bytes, err := unix.Mmap(int(f.Descriptor()), 0, int(end), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	m := &mapping{bytes: bytes}
	m.users.Store(1)
	return m
}

// take gives bytes to one more user.
func (m *mapping) take(offset, size int64) []byte {
	m.users.Add(1)
	return m.bytes[offset:][:size:size]
}

// release is called by each user once.
func (m *mapping) release() {
	if m != nil && m.users.Add(-1) == 0 {
		_ = unix.Munmap(m.bytes) // it is one
	}
}

// willNeed has a piece read ahead. It need not lie at pages.
func willNeed(b []byte) {
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (os.Getpagesize() - 1)
	if skip < len(b) {
		_ = unix.Madvise(b[skip:], unix.MADV_WILLNEED) // without, it is only slower
	}
}
