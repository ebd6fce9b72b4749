//go:build unix

package run

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDoKeepsStreamsApart(t *testing.T) {
	res, err := Do(t.Context(), Cmd{Args: []string{"sh", "-c", "echo data; echo voice >&2"}})
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Stdout) != "data\n" || string(res.Stderr) != "voice\n" {
		t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
	}
	if res.CPU <= 0 {
		t.Error("no processor time was counted")
	}
}

func TestDoKeepsOrderInOneWriter(t *testing.T) {
	var both bytes.Buffer
	_, err := Do(t.Context(), Cmd{Args: []string{"sh", "-c", "echo 1; echo 2 >&2; echo 3"}, Stdout: &both, Stderr: &both})
	if err != nil || both.String() != "1\n2\n3\n" {
		t.Errorf("%q, %v", both.String(), err)
	}
}

func TestExitError(t *testing.T) {
	_, err := Do(t.Context(), Cmd{Args: []string{"sh", "-c", "echo first >&2; echo last >&2; exit 7"}})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 7 || exit.Signal != "" {
		t.Fatalf("%#v", err)
	}
	if want := "sh: exit status 7: first; last"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	_, err = Do(t.Context(), Cmd{Args: []string{"sh", "-c", "kill -ILL $$"}})
	if !errors.As(err, &exit) || exit.Signal != "SIGILL" || exit.Code != -1 {
		t.Errorf("%#v", err)
	}
}

// What went wrong stands before advice and before what followed from it.
func TestReason(t *testing.T) {
	for name, tt := range map[string]struct{ stderr, want string }{
		"git":      {"ERROR: Repository not found.\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.\n", "ERROR: Repository not found.; fatal: Could not read from remote repository."},
		"progress": {"Receiving objects:  10%\rReceiving objects:  20%\rfatal: early EOF\nbye\n", "fatal: early EOF"},
		"compiler": {"In file included from a.c:1:\nb.h:2:1: error: unknown type\n  2 | x\n    | ^\n", "b.h:2:1: error: unknown type"},
		"many":     {"error: 1\nerror: 2\nerror: 3\nerror: 4\n", "error: 1; error: 2; error: 3"},
		"none":     {"one\n\ntwo\nthree\nfour\n\n", "two; three; four"},
		"silent":   {"", ""},
	} {
		if got := Reason(tt.stderr, 3); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A child in a group of its own is stopped when it reads the terminal.
func TestForeground(t *testing.T) {
	for _, foreground := range []bool{false, true} {
		res, err := Do(t.Context(), Cmd{Args: []string{"sh", "-c", `cat; ps -o pgid= -p $$`}, Stdin: strings.NewReader("typed "), Foreground: foreground})
		group := strconv.Itoa(syscall.Getpgrp())
		if words := strings.Fields(string(res.Stdout)); err != nil || len(words) != 2 || words[0] != "typed" || (words[1] == group) != foreground {
			t.Errorf("foreground %v: %q, %v; this group is %s", foreground, res.Stdout, err, group)
		}
	}
}

// The terminal interrupts a child in the foreground; a second signal from here
// could make it give up what it is putting in order.
func TestForegroundIsLeftToTheTerminal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	marker := t.TempDir() + "/ended"
	p, err := Start(ctx, Cmd{Args: []string{"sh", "-c", "trap 'exit 9' INT TERM; sleep 0.3; echo done >" + marker}, Foreground: true, Grace: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("it did not come to its end: %v", err)
	}
	// One that ignores it is killed, alone: this test is in the same group.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if p, err = Start(ctx, Cmd{Args: []string{"sleep", "60"}, Foreground: true, Grace: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) || time.Since(begun) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
}

func TestMissingTool(t *testing.T) {
	_, err := Do(t.Context(), Cmd{Args: []string{"no-such-tool"}})
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Tool != "no-such-tool" {
		t.Errorf("%v", err)
	}
	if _, err := Do(t.Context(), Cmd{Args: []string{"true"}, Dir: "/no/such/folder"}); err == nil || !strings.Contains(err.Error(), "/no/such/folder: no such folder") {
		t.Errorf("%v", err)
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]error{
		"CMake Error: cannot write \"/a/b\": No space\n  left on device.":                        ErrNoSpace,
		"fatal: sha1 file '/a/.git/index.lock' write error. Out of diskspace":                    ErrNoSpace,
		"cc1plus: out of memory allocating 640136 bytes after a total of 2789376 bytes":          ErrNoMemory,
		"nvcc error : 'cicc' died due to signal 9 (Kill signal)":                                 ErrNoMemory,
		"collect2: fatal error: ld terminated with signal 9 [Killed]":                            ErrNoMemory,
		"write: No space left on device":                                                         ErrNoSpace,
		"c++: fatal error: Killed signal terminated program cc1plus":                             ErrNoMemory,
		"fatal: couldn't find remote ref v9":                                                     ErrNoRef,
		"WARNING: Retrying: NewConnectionError: no\nERROR: No matching distribution found for x": ErrNetwork,
		"ERROR: No matching distribution found for x":                                            ErrNoPackage,
		"Could not resolve host: example.com":                                                    ErrNetwork,
		"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES":                                          ErrWrongHash,
	} {
		_, err := Do(t.Context(), Cmd{Args: []string{"sh", "-c", "cat >&2; exit 1"}, Stdin: strings.NewReader(text)})
		if !errors.Is(err, want) {
			t.Errorf("%q is %v, want %v", text, err, want)
		}
	}
}

// What git says of its own repository, and what only sounds like it.
func TestDamagedRepository(t *testing.T) {
	for _, c := range []struct {
		args, stderr string
		damaged      bool
	}{
		{"git fsck", "fatal: not a git repository: '/x'", true},
		{"git fsck", "fatal: loose object 8d5 (stored in x) is corrupt", true},
		{"git fsck", "error: packfile ./objects/pack/p.pack is truncated", true},
		{"git ls-tree x", "error: Could not read 04f6c222f4290ce3f361ab9f60edb94e098ee287", true},
		{"git fsck", "fatal: Out of memory, malloc failed", false},
		{"git fsck", "fatal: detected dubious ownership in repository", false},
		{"git am x", "error: corrupt patch at line 12", false},
		{"git fetch x", "fatal: pack has bad object at offset 12: inflate returned -3", false},
		{"pip download x", "ERROR: the archive is corrupt", false},
	} {
		if got := errors.Is(kindOf(strings.Fields(c.args), c.stderr), ErrDamaged); got != c.damaged {
			t.Errorf("%s: %q: damaged %v", c.args, c.stderr, got)
		}
	}
}

// A tool's children must not outlive its interruption.
func TestCancelStopsGrandchildren(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	marker := t.TempDir() + "/pid"
	stop := errors.New("stop")
	go func() {
		for range 100 {
			if data, err := os.ReadFile(marker); err == nil && len(data) > 0 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		cancel(stop)
	}()
	begun := time.Now()
	_, err := Do(ctx, Cmd{Args: []string{"sh", "-c", "sleep 60 & echo $! >" + marker + "; wait"}, Grace: time.Second})
	if !errors.Is(err, stop) {
		t.Fatalf("%v", err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	data, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(data))
	for range 100 {
		state, err := Do(t.Context(), Cmd{Args: []string{"ps", "-o", "stat=", "-p", pid}})
		if err != nil || strings.HasPrefix(strings.TrimSpace(string(state.Stdout)), "Z") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %s is still there", pid)
}

func TestEnviron(t *testing.T) {
	t.Setenv("GIT_DIR", "/elsewhere")
	t.Setenv("CMAKE_GENERATOR", "Odd")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("CFLAGS", "-O1")
	t.Setenv("SOMETHING_ELSE", "x")
	env := strings.Join(Environ(), "\n") + "\n"
	for _, gone := range []string{"GIT_DIR=", "CMAKE_GENERATOR=", "de_DE", "SOMETHING_ELSE"} {
		if strings.Contains(env, gone) {
			t.Errorf("%s is passed on", gone)
		}
	}
	for _, there := range []string{"CFLAGS=-O1\n", "LC_ALL=C\n", "PATH="} {
		if !strings.Contains(env, there) {
			t.Errorf("%s is not passed on", there)
		}
	}
	ignored := strings.Join(Ignored(), " ")
	if !strings.Contains(ignored, "CMAKE_GENERATOR GIT_DIR") || strings.Contains(ignored, "SOMETHING") {
		t.Errorf("ignored: %s", ignored)
	}
}

// What -x prints must do the same when it is pasted into a shell.
func TestEchoCanBePasted(t *testing.T) {
	var echo bytes.Buffer
	ctx := WithEcho(t.Context(), &echo)
	dir := t.TempDir()
	c := Cmd{Dir: dir, Args: []string{"sh", "-c", `printf '%s|' "$0" "$1" "$A"; pwd`, "it's", "a b$"}, Env: []string{"A=x y"}}
	first, err := Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	line, rest, _ := strings.Cut(strings.TrimPrefix(echo.String(), "+ "), "\n# ")
	again, err := Do(t.Context(), Cmd{Args: []string{"sh", "-c", line}})
	if err != nil || string(again.Stdout) != string(first.Stdout) {
		t.Errorf("pasted: %q, %v; was %q; line %s", again.Stdout, err, first.Stdout, line)
	}
	if !strings.HasPrefix(rest, "sh: ok after 0.") {
		t.Errorf("the time is told as %q", rest)
	}
}
