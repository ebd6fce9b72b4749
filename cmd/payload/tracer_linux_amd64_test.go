package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracerCommands are programs that the test binary is, too.
var tracerCommands = map[string]func(){"stop-at-steps": stopAtSteps, "trace": traceMain}

// A trace runs a command with all its children and counts the steps by which
// any of them changes a file or starts a program, in the order in which they
// come. One of the steps can be made to fail, or to be the last.
//
// It needs nothing of the program: a seccomp filter stops a process at each
// call of stepCalls, and ptrace looks at the call, changes it, or kills.

// fault is what happens at a step.
type fault struct {
	At     int           // the step, from 1; 0 breaks nothing
	Kill   victims       // who is killed there
	Half   bool          // a write is let through by half before the kill
	Errno  syscall.Errno // what the call fails with in place of a kill
	Onward bool          // the later calls that need room fail, too
}

type victims int

const (
	nobody   victims = iota
	everyone         // as when a container ends
	oneAlone         // the process at the step; parents and children live on
)

// traced is how a command ended.
type traced struct {
	steps  []string // the call of each
	hit    string   // the broken one: "git: renameat"
	code   int      // exit code; -1 where a signal ended it
	stdout string
	stderr string
}

// stepCalls are the system calls that make a step. Those of needsRoom fail on
// a full disk.
var stepCalls = map[uint64]struct {
	name      string
	needsRoom bool
}{
	unix.SYS_WRITE: {"write", true}, unix.SYS_PWRITE64: {"pwrite", true}, unix.SYS_WRITEV: {"writev", true},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", true}, unix.SYS_SENDFILE: {"sendfile", true},
	unix.SYS_OPEN: {"open", true}, unix.SYS_OPENAT: {"openat", true},
	unix.SYS_MKDIR: {"mkdir", true}, unix.SYS_MKDIRAT: {"mkdirat", true},
	unix.SYS_LINK: {"link", true}, unix.SYS_LINKAT: {"linkat", true},
	unix.SYS_SYMLINK: {"symlink", true}, unix.SYS_SYMLINKAT: {"symlinkat", true},
	unix.SYS_RENAME: {"rename", true}, unix.SYS_RENAMEAT: {"renameat", true}, unix.SYS_RENAMEAT2: {"renameat2", true},
	unix.SYS_UNLINK: {"unlink", false}, unix.SYS_UNLINKAT: {"unlinkat", false}, unix.SYS_RMDIR: {"rmdir", false},
	unix.SYS_CHMOD: {"chmod", false}, unix.SYS_FCHMOD: {"fchmod", false}, unix.SYS_FCHMODAT: {"fchmodat", false},
	unix.SYS_UTIMENSAT: {"utimensat", false}, unix.SYS_FTRUNCATE: {"ftruncate", false},
	unix.SYS_FSYNC: {"fsync", true}, unix.SYS_FDATASYNC: {"fdatasync", true},
	unix.SYS_EXECVE: {"execve", false},
}

// stopAtSteps is a program of its own: it has the kernel stop at stepCalls from
// here on, and becomes the program that its arguments name.
func stopAtSteps() {
	runtime.LockOSThread()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the call's number
	for number := range stepCalls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(number), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	path, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err == nil {
		err = unix.Exec(path, os.Args[1:], os.Environ())
	}
	panic(err)
}

// order is what the tracing program is told, and finding what it tells.
type order struct {
	Within string
	Fault  fault
}

type finding struct {
	Steps []string
	Hit   string
	Code  int
}

// trace runs argv in dir with env and breaks it as f says. Steps outside of
// within, a folder, don't count.
func trace(dir, within string, env, argv []string, f fault) (traced, error) {
	told, err := json.Marshal(order{within, f})
	if err != nil {
		return traced{}, err
	}
	heard, err := os.CreateTemp("", "traced-")
	if err != nil {
		return traced{}, err
	}
	defer os.Remove(heard.Name())
	defer heard.Close()
	self, err := exec.LookPath("trace")
	if err != nil {
		return traced{}, err
	}
	// A process of its own: a tracer waits for all children of its thread, and a
	// thread of this process may have others' children.
	cmd := exec.Command(self, append([]string{string(told)}, argv...)...)
	var stdout, stderr strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, env, &stdout, &stderr, []*os.File{heard}
	if err := cmd.Run(); err != nil {
		return traced{}, fmt.Errorf("tracing %v: %w: %s", argv, err, stderr.String())
	}
	var found finding
	text, err := os.ReadFile(heard.Name())
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	return traced{steps: found.Steps, hit: found.Hit, code: found.Code, stdout: stdout.String(), stderr: stderr.String()}, err
}

// traceMain is the tracing program: trace ORDER COMMAND [ARG...], which writes
// what it found to descriptor 3.
func traceMain() {
	runtime.LockOSThread() // the tracer is a thread
	heard := os.NewFile(3, "finding")
	unix.CloseOnExec(3)
	var o order
	err := json.Unmarshal([]byte(os.Args[1]), &o)
	self, pathErr := exec.LookPath("stop-at-steps")
	cmd := exec.Command(self, os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err = errors.Join(err, pathErr); err == nil {
		err = cmd.Start()
	}
	t := tracer{fault: o.Fault, within: o.Within, known: map[int]bool{}}
	if err == nil {
		t.root = cmd.Process.Pid
		err = t.follow()
	}
	if err == nil {
		err = json.NewEncoder(heard).Encode(finding{t.steps, t.hit, t.code})
	}
	if err != nil {
		panic(err)
	}
}

type tracer struct {
	fault   fault
	within  string
	root    int
	known   map[int]bool // threads
	program bool         // the program itself has started
	steps   []string
	hit     string
	dying   bool // everyone is to be killed
	code    int
}

const traceAll = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC |
	unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL

// follow keeps all processes running until the last has ended.
func (t *tracer) follow() error {
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return err
		}
		if !status.Stopped() {
			if tid == t.root {
				t.code = status.ExitStatus() // -1 for a signal
			}
			delete(t.known, tid)
			continue
		}
		if err := t.stopped(tid, status); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
}

func (t *tracer) stopped(tid int, status unix.WaitStatus) error {
	first := !t.known[tid]
	t.known[tid] = true
	if t.dying {
		return unix.Kill(tid, unix.SIGKILL)
	}
	signal := status.StopSignal()
	switch {
	case first && tid == t.root:
		if err := unix.PtraceSetOptions(tid, traceAll); err != nil {
			return err
		}
		return unix.PtraceCont(tid, 0)
	case first && signal == unix.SIGSTOP: // a new thread or process
		return unix.PtraceCont(tid, 0)
	case signal == unix.SIGTRAP|0x80: // the write that was let through by half has come back
		return t.end(tid)
	case signal == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		return t.step(tid)
	case signal == unix.SIGTRAP && status.TrapCause() > 0:
		return unix.PtraceCont(tid, 0)
	}
	return unix.PtraceCont(tid, int(signal))
}

// step looks at a call that is about to be made.
func (t *tracer) step(tid int) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	call := stepCalls[regs.Orig_rax]
	if !t.counts(tid, call.name, regs) {
		return unix.PtraceCont(tid, 0)
	}
	t.steps = append(t.steps, call.name)
	f := t.fault
	again := f.Onward && t.hit != "" && call.needsRoom
	if len(t.steps) != f.At && !again {
		return unix.PtraceCont(tid, 0)
	}
	if t.hit == "" {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid)) // gone: nameless
		t.hit = strings.TrimSpace(string(comm)) + ": " + call.name
	}
	switch {
	case f.Errno != 0:
		regs.Orig_rax = ^uint64(0) // no call
		regs.Rax = uint64(-int64(f.Errno))
		if err := unix.PtraceSetRegs(tid, &regs); err != nil {
			return err
		}
		return unix.PtraceCont(tid, 0)
	case f.Half && call.name == "write" && regs.Rdx > 1:
		regs.Rdx /= 2
		if err := unix.PtraceSetRegs(tid, &regs); err != nil {
			return err
		}
		return unix.PtraceSyscall(tid, 0)
	}
	return t.end(tid)
}

// counts says whether a call changes something within the folder.
func (t *tracer) counts(tid int, name string, regs unix.PtraceRegs) bool {
	if name == "execve" {
		was := t.program
		t.program = true
		return was // the first is the traced program itself
	}
	if !t.program {
		return false
	}
	arg := func(i int) uint64 {
		return []uint64{regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8}[i]
	}
	switch name {
	case "write", "pwrite", "writev", "ftruncate", "fsync", "fdatasync", "fchmod", "sendfile":
		return t.inside(t.opened(tid, arg(0)))
	case "copy_file_range":
		return t.inside(t.opened(tid, arg(2)))
	case "open":
		return arg(1)&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0 && t.inside(t.path(tid, unix.AT_FDCWD, arg(0)))
	case "openat":
		return arg(2)&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0 && t.inside(t.path(tid, int32(arg(0)), arg(1)))
	case "mkdir", "rmdir", "unlink", "chmod", "rename":
		return t.inside(t.path(tid, unix.AT_FDCWD, arg(0)))
	case "link", "symlink":
		return t.inside(t.path(tid, unix.AT_FDCWD, arg(1)))
	case "symlinkat":
		return t.inside(t.path(tid, int32(arg(1)), arg(2)))
	}
	return t.inside(t.path(tid, int32(arg(0)), arg(1)))
}

func (t *tracer) inside(path string) bool {
	return path == t.within || strings.HasPrefix(path, t.within+"/")
}

// opened is the file behind a descriptor.
func (t *tracer) opened(tid int, fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd))) // none: nothing that counts
	return path
}

// path is the absolute path that a call names.
func (t *tracer) path(tid int, at int32, pointer uint64) string {
	if pointer == 0 { // utimensat of a descriptor
		return t.opened(tid, uint64(at))
	}
	buf := make([]byte, 4096)
	n, _ := unix.ProcessVMReadv(tid, []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}, []unix.RemoteIovec{{Base: uintptr(pointer), Len: len(buf)}}, 0)
	if n <= 0 { // the text ends near a page that isn't there
		n, _ = unix.PtracePeekData(tid, uintptr(pointer), buf[:256])
	}
	text, _, _ := bytes.Cut(buf[:max(n, 0)], []byte{0})
	name := string(text)
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	base := "cwd"
	if at != unix.AT_FDCWD {
		base = "fd/" + strconv.Itoa(int(at))
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/%s", tid, base))
	return filepath.Join(dir, name)
}

// end kills whom the fault says, at a step of thread tid.
func (t *tracer) end(tid int) error {
	if t.fault.Kill == oneAlone {
		return unix.Kill(tid, unix.SIGKILL)
	}
	t.dying = true
	for other := range t.known {
		_ = unix.Kill(other, unix.SIGKILL) // gone already
	}
	return nil
}

// needsRoom says whether a call fails on a full disk.
func needsRoom(name string) bool {
	for _, call := range stepCalls {
		if call.name == name {
			return call.needsRoom
		}
	}
	return false
}
