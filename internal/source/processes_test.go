package source

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/run"
	"payload/internal/testkit"
)

// TestMain makes the test binary a second process that uses a store.
func TestMain(m *testing.M) {
	if os.Getenv("PAYLOAD_TEST_STORE") != "" {
		if err := child(); err != nil {
			panic(err)
		}
		return
	}
	m.Run()
}

// child gets one tree; with PAYLOAD_TEST_HANG it stops for good where it says.
func child() error {
	ctx := context.Background()
	hang := func(where string) {
		if os.Getenv("PAYLOAD_TEST_HANG") == where {
			fmt.Fprintln(os.Stdout, "hanging")
			select {}
		}
	}
	s, err := Open(ctx, os.Getenv("PAYLOAD_TEST_STORE"))
	if err != nil {
		return err
	}
	req := patched(Request{
		File:      &config.File{Root: os.TempDir()},
		Component: config.Component{Name: "comp", Upstream: os.Getenv("PAYLOAD_TEST_UPSTREAM")},
		Ref:       "b7",
		Tell: func(format string, args ...any) {
			line := fmt.Sprintf(format, args...)
			fmt.Fprintln(os.Stderr, line)
			if strings.Contains(line, "laid out") {
				hang("laid out")
			}
		},
	})
	apply := req.Apply
	req.Apply = func(ctx context.Context, repo git.Repo, pristine string) (string, error) {
		hang("apply")
		return apply(ctx, repo, pristine)
	}
	tree, err := s.Tree(ctx, req)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, tree.Path)
	hang("holding")
	if err := tree.Check(ctx); err != nil {
		return err
	}
	return tree.Close()
}

func childCmd(store, upstream, hang string) run.Cmd {
	return run.Cmd{Args: []string{os.Args[0]}, Env: []string{
		"PAYLOAD_TEST_STORE=" + store, "PAYLOAD_TEST_UPSTREAM=" + upstream, "PAYLOAD_TEST_HANG=" + hang,
	}}
}

func TestProcessesRace(t *testing.T) {
	up := upstreamRepo(t)
	dir := filepath.Join(t.TempDir(), "store")
	t.Cleanup(func() { _ = removeAll(dir) })
	const n = 4
	type result struct {
		out string
		err error
	}
	results := make(chan result, n)
	for range n {
		go func() {
			res, err := run.Do(t.Context(), childCmd(dir, up.Dir, ""))
			results <- result{string(res.Stdout), err}
		}()
	}
	paths := map[string]int{}
	for range n {
		r := <-results
		if r.err != nil {
			t.Errorf("a process failed: %v", r.err)
		}
		paths[strings.TrimSpace(r.out)]++
	}
	if len(paths) != 1 {
		t.Fatalf("the processes got %v; want one path", paths)
	}
	for path := range paths {
		assertHard(t, path)
	}
}

// killed starts a process, waits until it hangs at the given place and kills it.
func killed(t *testing.T, store string, up testkit.Git, where string) {
	t.Helper()
	reader, writer, err := os.Pipe()
	must(t, err)
	defer reader.Close()
	cmd := childCmd(store, up.Dir, where)
	cmd.Stdout = writer
	p, err := run.Start(t.Context(), cmd)
	must(t, err)
	lines := bufio.NewScanner(reader)
	for lines.Scan() && lines.Text() != "hanging" {
	}
	child, err := os.FindProcess(p.PID())
	must(t, err)
	must(t, child.Kill())
	if _, err := p.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	must(t, writer.Close())
}

func TestKilledHalfWay(t *testing.T) {
	for _, where := range []string{"apply", "laid out", "holding"} {
		t.Run(where, func(t *testing.T) {
			up := upstreamRepo(t)
			s := openStore(t)
			killed(t, s.Dir(), up, where)
			req, _ := request(t, up.Dir)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			req = patched(req)
			tree, err := s.Tree(ctx, req)
			must(t, err)
			assertHard(t, tree.Path)
			must(t, tree.Close())
			// Not even the lock of the dead stands in the way of a repair.
			req.Repair = true
			tree, err = s.Tree(ctx, req)
			must(t, err)
			must(t, tree.Close())
		})
	}
}

// What a kill in the middle of writing leaves.
func TestLeftoversOfTheKilled(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	req, _ := request(t, up.Dir)
	commit := up.Run("rev-parse", "b7")
	key := treeKey(up.Run("rev-parse", "b7^{tree}"), req)
	for name, content := range map[string]string{
		"git/shallow.lock": "", "git/refs/payload/commit/" + commit + ".lock": "", "git/refs/payload/pristine/" + commit + ".lock": "",
		"trees/" + key + ".1.tmp/files/half": "half", "trees/" + key + ".index": "half", "trees/" + key + ".json": "{",
		"trees/0123.1.tmp/files/half": "half", "work/4567.1.tmp/download/half": "half",
	} {
		testkit.Write(t, filepath.Join(s.Dir(), filepath.FromSlash(name)), content)
	}
	must(t, os.Chmod(filepath.Join(s.Dir(), "trees/0123.1.tmp/files"), 0o555))
	assertHard(t, get(t, s, req).Path)
	for _, pattern := range []string{"*/*.tmp", "git/*.lock"} {
		left, err := filepath.Glob(filepath.Join(s.Dir(), pattern))
		if err != nil || len(left) > 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
	}

	// A repository that was never finished is begun again.
	half := filepath.Join(t.TempDir(), "half")
	testkit.Write(t, filepath.Join(half, "git", "config.lock"), "")
	fresh, err := Open(t.Context(), half)
	must(t, err)
	t.Cleanup(func() { _ = removeAll(half) })
	get(t, fresh, req)
}

func TestRepairWaitsForUsers(t *testing.T) {
	s, req, _ := lockedTree(t)
	tree, err := s.Tree(t.Context(), req)
	must(t, err)
	voice := &told{}
	req.Repair, req.Tell = true, voice.tell
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Tree(ctx, req); err == nil {
		t.Fatal("a tree in use was replaced")
	}
	voice.has(t, "waiting for another process")
	must(t, tree.Check(t.Context()))
	must(t, tree.Close())
	get(t, s, req)
}
