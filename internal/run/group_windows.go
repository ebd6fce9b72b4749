package run

import (
	"os"
	"os/exec"
)

// Windows has no process groups of the POSIX kind; the child alone is stopped.
func ownGroup(*exec.Cmd) {}

// Windows has no ptrace; the child runs as always.
func trace(*exec.Cmd) {}

func interruptGroup(cmd *exec.Cmd) { killGroup(cmd) }
func terminateGroup(cmd *exec.Cmd) { killGroup(cmd) }

func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill() // gone already: nothing to do
	}
}

func signalName(*exec.ExitError) string { return "" }

func peak(*os.ProcessState) int64 { return 0 }
