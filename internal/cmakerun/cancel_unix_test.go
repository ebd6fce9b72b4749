//go:build unix

package cmakerun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C must leave nothing running, not what the build tool started either.
func TestCancelledCompileLeavesNoProcess(t *testing.T) {
	t.Parallel()
	b := fixture(t, "plain")
	configure(t, b)
	b.Targets = []string{"sleepy"}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by a test")
	go func() {
		waitFor(t, filepath.Join(b.BinaryDir, "pid"))
		cancel(stop)
	}()
	started := time.Now()
	_, err := Compile(ctx, b, nil)
	if !errors.Is(err, stop) {
		t.Fatalf("error %v", err)
	}
	if took := time.Since(started); took > 8*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	pid := must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(filepath.Join(b.BinaryDir, "pid")))))))
	for range 1000 { // a busy machine takes its time to bury it
		if syscall.Kill(pid, 0) != nil || isZombie(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d, started by the compile, still runs", pid)
}

// isZombie is true for a process that ended and that nobody has collected: in
// a container without an init, orphans stay so.
func isZombie(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(text), ") Z ")
}
