//go:build unix

package create

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also a program that creates a checkpoint and kills itself
// at some piece of it: CREATE_AT is the piece, 0 for none.
func TestMain(m *testing.M) {
	src, dst := os.Getenv("CREATE_SRC"), os.Getenv("CREATE_DST")
	if src == "" {
		m.Run() // its code is the process's
		return
	}
	at, _ := strconv.Atoi(os.Getenv("CREATE_AT"))
	_, err := Run(context.Background(), src, dst, Options{Force: true, Progress: func(int64, int64) {
		if at--; at == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // tests have a main of their own
	}
}

// child runs that program, with files of at most so many blocks of 512 bytes
// where that is not 0: the nearest to a full disk that needs no rights.
func child(t *testing.T, src, dst string, at, blocks int) (string, error) {
	t.Helper()
	limit := "unlimited"
	if blocks > 0 {
		limit = strconv.Itoa(blocks)
	}
	cmd := exec.Command("sh", "-c", `ulimit -f "$1" && exec "$2"`, "sh", limit, os.Args[0])
	cmd.Env = append(os.Environ(), "CREATE_SRC="+src, "CREATE_DST="+dst, "CREATE_AT="+strconv.Itoa(at))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// However a run ends, what was there is whole, and the next run leaves nothing
// else.
func TestFaults(t *testing.T) {
	src := filepath.Join(tiny, "tiny.gguf")
	for name, c := range map[string]struct {
		at, blocks int
		says       string
	}{
		"killed at the first piece": {at: 1},
		"killed later":              {at: 17},
		"no room for the weights":   {blocks: 200, says: "writing tensor "},
		"no room for the header":    {blocks: 1, says: "model.safetensors"},
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replacing %v", name, before), func(t *testing.T) {
				dir := t.TempDir()
				dst := filepath.Join(dir, "made")
				if before {
					if _, err := Run(context.Background(), src, dst, Options{}); err != nil {
						t.Fatal(err)
					}
				}
				said, err := child(t, src, dst, c.at, c.blocks)
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Exited() != (c.blocks > 0) || !strings.Contains(said, c.says) || c.blocks > 0 && !strings.Contains(said, syscall.EFBIG.Error()) {
					t.Fatalf("%v: %s", err, said)
				}
				if _, err := os.Stat(dst); (err == nil) != before {
					t.Errorf("is it there: %v", err)
				}
				if before && configOf(t, dst) == nil {
					t.Error("what was there is gone")
				}
				if said, err := child(t, src, dst, 0, 0); err != nil {
					t.Fatalf("%v: %s", err, said)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
					t.Errorf("%v, %v", entries, err)
				}
			})
		}
	}
}
