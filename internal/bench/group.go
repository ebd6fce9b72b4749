package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"payload/internal/run"
)

// A group is a control group of Linux for one program, which counts all memory
// that the system holds for it: the pages of files that it read, too.
type group struct {
	dir  string
	peak string // the file that has the most it took, in bytes
}

// errNoGroup says that no group can be made: not Linux, not root, or not the
// controller of memory.
var errNoGroup = errors.New("no control group for memory can be made here")

// newGroup makes a group below this process's own.
func newGroup() (group, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return group{}, errNoGroup
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, peak := "/sys/fs/cgroup", "memory.peak" // of version 2
		switch parts[1] {
		case "":
		case "memory":
			root, peak = root+"/memory", "memory.max_usage_in_bytes"
		default:
			continue
		}
		dir, err := os.MkdirTemp(filepath.Join(root, parts[2]), "bench-")
		if err != nil {
			continue
		}
		g := group{dir, filepath.Join(dir, peak)}
		if _, err := os.Stat(g.peak); err == nil {
			return g, nil
		}
		g.remove()
	}
	return group{}, errNoGroup
}

// remove takes an empty group down. What it was charged for goes to the one above.
func (g group) remove() { _ = os.Remove(g.dir) } // a group that stays costs nothing

// inside gives the command that runs args in the group.
func (g group) inside(args []string) []string {
	return append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}, args...)
}

// most gives how many bytes the group took at once.
func (g group) most() (int64, error) {
	text, err := os.ReadFile(g.peak)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// forget has the system drop the pages of a folder's files, so that who reads
// them next is charged for them.
func forget(ctx context.Context, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		args := []string{"dd", "if=" + filepath.Join(dir, f.Name()), "iflag=nocache", "count=0", "status=none"}
		if _, err := run.Do(ctx, run.Cmd{Args: args}); err != nil {
			return fmt.Errorf("dropping a file's pages: %w", err)
		}
	}
	return nil
}
