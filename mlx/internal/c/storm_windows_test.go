package c_test

import (
	"sync/atomic"
	"syscall"
	"testing"
)

// Windows has no signals to send.
const (
	sigURG  = syscall.Signal(0x17)
	sigPROF = syscall.Signal(0x1b)
)

func sendSignal(int, int) {}

func storm(t *testing.T, _ <-chan struct{}, _ *atomic.Int64) {
	t.Skip("NOT RUN: Windows has no such signals")
}
