//go:build unix

package run

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts the child in a process group of its own, so that an interrupt
// reaches its children too and reaches them once.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func trace(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
}

func interruptGroup(cmd *exec.Cmd) { signalGroup(cmd, syscall.SIGINT) }
func terminateGroup(cmd *exec.Cmd) { signalGroup(cmd, syscall.SIGTERM) }
func killGroup(cmd *exec.Cmd)      { signalGroup(cmd, syscall.SIGKILL) }

func signalGroup(cmd *exec.Cmd, sig syscall.Signal) {
	// A child that is gone already needs nothing.
	switch {
	case cmd.Process == nil:
	case cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid:
		_ = syscall.Kill(-cmd.Process.Pid, sig)
	default: // its group is ours
		_ = cmd.Process.Signal(sig)
	}
}

func signalName(exit *exec.ExitError) string {
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return ""
	}
	return unix.SignalName(status.Signal())
}

// peak reads ru_maxrss, which macOS gives in bytes and others in KiB.
func peak(state *os.ProcessState) int64 {
	used, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	most := int64(used.Maxrss) //nolint:unconvert // 32 bits wide on some systems
	if runtime.GOOS != "darwin" {
		most <<= 10
	}
	return most
}
