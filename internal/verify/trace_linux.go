//go:build linux && (amd64 || arm64)

package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"payload/internal/run"
)

// startTraced starts c with this package as its tracer. The channel gives where
// it was when a fatal signal came, and is closed when it has ended. Only then
// may the process be waited for: a wait takes the stops of a traced child, too,
// and the child would never go on.
//
// ptrace knows threads, not processes: one locked thread starts the child,
// hears every stop of its threads and lets them go on.
func startTraced(ctx context.Context, c run.Cmd) (*run.Process, <-chan site, error) {
	c.Traced = true
	type started struct {
		proc *run.Process
		err  error
	}
	begun := make(chan started)
	places := make(chan site, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its work
		defer close(places)
		proc, err := run.Start(ctx, c)
		begun <- started{proc, err}
		if err == nil {
			follow(proc.PID(), places)
		}
	}()
	b := <-begun
	return b.proc, places, b.err
}

const traceOptions = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// follow keeps the traced child running until it ends. It waits for the
// child's process group alone, so no other child's end is taken from whoever
// waits for it.
func follow(pid int, places chan<- site) {
	known := map[int]bool{}
	found := false
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-pid, &status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // ECHILD: all of them have ended
			return
		}
		if !status.Stopped() {
			continue // a thread ended
		}
		signal := status.StopSignal()
		deliver := signal
		switch {
		case !known[tid]:
			// The child's stop at exec, or a new thread's first.
			known[tid] = true
			if tid == pid {
				_ = unix.PtraceSetOptions(tid, traceOptions) // without them new threads run untraced
			}
			if signal == unix.SIGTRAP || signal == unix.SIGSTOP {
				deliver = 0
			}
		case signal == unix.SIGTRAP && status.TrapCause() > 0:
			deliver = 0 // tells of a new thread
		}
		if deliver != 0 && !found && fatal(pid, tid, signal) {
			if place, err := placeOf(pid, tid, signal); err == nil {
				places <- place
				found = true
			}
		}
		_ = unix.PtraceCont(tid, int(deliver)) // gone already: the next wait tells
	}
}

// fatal says whether the signal will end the process: a program can catch
// SIGILL to find out what the CPU knows.
func fatal(pid, tid int, signal syscall.Signal) bool {
	switch signal {
	case unix.SIGILL, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGTRAP, unix.SIGSYS:
	default:
		return false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		return true
	}
	for line := range bytes.Lines(data) {
		if mask, ok := strings.CutPrefix(string(line), "SigCgt:"); ok {
			caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err != nil || caught&(1<<(uint(signal)-1)) == 0
		}
	}
	return true
}

func placeOf(pid, tid int, signal syscall.Signal) (site, error) {
	pc, err := programCounter(tid)
	if err != nil {
		return site{}, err
	}
	place := site{signal: unix.SignalName(signal), bytes: make([]byte, 8)}
	n, _ := unix.PtracePeekText(tid, uintptr(pc), place.bytes) // unreadable code is a fact too
	place.bytes = place.bytes[:max(n, 0)]
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return site{}, err
	}
	for line := range bytes.Lines(maps) {
		var from, to, offset uint64
		fields := strings.SplitN(strings.TrimRight(string(line), "\n"), " ", 6)
		if len(fields) < 6 {
			continue
		}
		if _, err := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &from, &to, &offset); err != nil || pc < from || pc >= to {
			continue
		}
		if file := strings.TrimLeft(fields[5], " "); strings.HasPrefix(file, "/") {
			place.module, place.offset = file, pc-from+offset
			place.function = function(file, place.offset)
		}
	}
	return place, nil
}
