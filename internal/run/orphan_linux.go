package run

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// endWithParent has the kernel end the child when this process is killed: a
// build must not go on in a folder whose lock went with its holder. SIGTERM lets
// a build tool stop its compilers.
func endWithParent(cmd *exec.Cmd, expendable bool) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if expendable {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}

// The kernel sends that signal when the thread ends that started the child, not
// the process, and Go ends threads as it likes. So one thread starts all of
// them, and it's held for as long as the process lives.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// startLasting starts cmd from the thread that never ends.
func startLasting(cmd *exec.Cmd) error {
	done := make(chan error)
	starter() <- func() { done <- cmd.Start() }
	return <-done
}
