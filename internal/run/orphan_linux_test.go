package run

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestHelperKilled is the process that TestChildEndsWithKilledParent kills.
func TestHelperKilled(t *testing.T) {
	script := os.Getenv("PAYLOAD_TEST_CHILD")
	if script == "" {
		t.Skip("only a helper")
	}
	p, err := Start(context.Background(), Cmd{Args: []string{"sh", "-c", script}, Expendable: os.Getenv("PAYLOAD_TEST_EXPENDABLE") != ""})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "child %d\n", p.PID())
	_, _ = p.Wait()
}

func TestChildEndsWithKilledParent(t *testing.T) {
	for name, tt := range map[string]struct{ script, expendable string }{
		"asked":      {script: "exec sleep 60"},
		"expendable": {script: `trap "" TERM; while :; do sleep 0.1; done`, expendable: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := exec.Command(os.Args[0], "-test.run=^TestHelperKilled$")
			parent.Env = append(os.Environ(), "PAYLOAD_TEST_CHILD="+tt.script, "PAYLOAD_TEST_EXPENDABLE="+tt.expendable)
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			pid, errNumber := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "child ")))
			if err != nil || errNumber != nil {
				t.Fatalf("%q, %v, %v", line, err, errNumber)
			}
			if !alive(pid) {
				t.Fatal("the child is gone before its parent")
			}
			time.Sleep(50 * time.Millisecond) // let the shell set its trap
			if err := parent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait() // killed, as asked for
			for range 250 {
				if !alive(pid) {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Error("the child outlived its parent")
		})
	}
}

// alive says whether the process runs; a zombie doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

// The kernel's signal comes when the starting thread ends, so threads that come
// and go must not take children with them.
func TestChildrenOutliveThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	ctx := t.Context()
	var mu sync.Mutex
	var lasting []*Process
	var wg sync.WaitGroup
	for i := range 1000 {
		if i%100 == 0 {
			wg.Wait()
			runtime.GOMAXPROCS(1 + i/100)
		}
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
			if i%50 != 0 {
				if _, err := Do(ctx, Cmd{Args: []string{"true"}}); err != nil {
					t.Error(err)
				}
				return
			}
			p, err := Start(ctx, Cmd{Args: []string{"sleep", "60"}})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			lasting = append(lasting, p)
		})
	}
	wg.Wait()
	if len(lasting) != 20 {
		t.Fatalf("%d children were started", len(lasting))
	}
	for _, p := range lasting {
		if !alive(p.PID()) {
			t.Errorf("child %d went with the thread that asked for it", p.PID())
		}
		p.Terminate(time.Second)
		_, _ = p.Wait() // interrupted, as asked for
	}
}
