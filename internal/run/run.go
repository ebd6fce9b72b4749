// Package run is the only door to processes.
//
// It owns how a child process is started, echoed, interrupted and reported,
// and which environment it sees. It refuses to interpret what tools print,
// except for the few failures in classify.go that callers branch on.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Cmd describes one process. Args[0] is looked up on PATH.
type Cmd struct {
	Dir  string
	Args []string
	// Env holds named variables, added to those that Environ passes through.
	Env []string
	// OnlyEnv leaves Environ out: the child sees Env and nothing else.
	OnlyEnv bool
	// Traced makes the calling thread the child's tracer (ptrace): the child
	// stops before its first instruction. Only where internal/verify looks for
	// the place of a crash; the caller must hold its thread and drive the child.
	Traced bool
	// Foreground leaves the child in the caller's process group, so that it may
	// read the terminal, as sudo does for a password. It gets the terminal's own
	// interrupt; when ctx ends it's only waited for, and killed after Grace.
	Foreground bool
	// Expendable says that the child has nothing to put in order: when this
	// process is killed, the child is killed too (on Linux) and not asked.
	Expendable bool
	Stdin      io.Reader
	// Stdout and Stderr receive the output while the process runs. Where one
	// is nil, that stream is kept in Result instead.
	Stdout io.Writer
	Stderr io.Writer
	// Grace is how long an interrupted process may take to stop before it is
	// killed; zero means DefaultGrace.
	Grace time.Duration
}

// DefaultGrace is how long an interrupted child has before it is killed.
const DefaultGrace = 5 * time.Second

// Result is what a finished process left.
type Result struct {
	Stdout []byte
	Stderr []byte
	Took   time.Duration
	CPU    time.Duration // user and system time of it and of all its children that it waited for
	Peak   int64         // bytes: the most that it had in RAM, or one of those children; 0 where the system does not tell
}

// Do runs c to its end. When ctx ends first, the whole process group is
// interrupted, then waited for, then killed, and the error wraps ctx's cause.
// A process that fails gives an *ExitError, one that can't be found a
// *MissingError.
func Do(ctx context.Context, c Cmd) (Result, error) {
	p, err := Start(ctx, c)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// Process is a started child. Wait must be called exactly once.
type Process struct {
	cmd     *exec.Cmd
	args    []string
	dir     string
	started time.Time
	stdout  bytes.Buffer
	stderr  bytes.Buffer
	tail    tailWriter
	ctx     context.Context // only for the cause of a cancellation, until Wait returns
	echo    *echoer
	done    chan struct{}
}

// Start begins c and returns at once.
func Start(ctx context.Context, c Cmd) (*Process, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("running a process: no arguments")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("running %s: %w", c.Args[0], context.Cause(ctx))
	}
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return nil, &MissingError{Tool: c.Args[0], Err: err}
	}
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("running %s in %s: no such folder", c.Args[0], c.Dir)
		}
	}
	grace := c.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	p := &Process{args: c.Args, dir: c.Dir, ctx: ctx, echo: echoFrom(ctx), done: make(chan struct{})}
	cmd := exec.CommandContext(ctx, path, c.Args[1:]...)
	cmd.Args[0] = c.Args[0]
	cmd.Dir = c.Dir
	cmd.Env = append(Environ(), c.Env...)
	if c.OnlyEnv {
		cmd.Env = append([]string{}, c.Env...) // never nil, which would mean the caller's own
	}
	cmd.Stdin = c.Stdin
	cmd.Stdout = c.Stdout
	if c.Stdout == nil {
		cmd.Stdout = &p.stdout
	}
	// The end of stderr is always kept: an error without it tells nothing.
	cmd.Stderr = io.MultiWriter(&p.tail, &p.stderr)
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(&p.tail, c.Stderr)
	}
	if c.Stdout != nil && sameWriter(c.Stdout, c.Stderr) {
		// One writer means one pipe, which keeps the order of the lines.
		cmd.Stdout = cmd.Stderr
	}
	if !c.Foreground {
		ownGroup(cmd)
		endWithParent(cmd, c.Expendable)
	}
	if c.Traced {
		trace(cmd)
	}
	cmd.Cancel = func() error {
		ask := interruptGroup
		if c.Foreground {
			ask = func(*exec.Cmd) {} // the terminal has asked
		}
		p.stop(grace, ask)
		return nil
	}
	cmd.WaitDelay = grace + time.Second
	p.cmd = cmd
	p.started = time.Now()
	p.echo.before(c)
	begin := startLasting
	if c.Traced {
		begin = (*exec.Cmd).Start // the caller's thread is the tracer
	}
	if err := begin(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	return p, nil
}

// PID is the process id, which is also its process group unless the child is
// in the foreground.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Terminate asks the process group to end by the signal that service managers
// send (SIGTERM) and, after grace, kills it. Wait still has to be called.
func (p *Process) Terminate(grace time.Duration) { p.stop(grace, terminateGroup) }

func (p *Process) stop(grace time.Duration, ask func(*exec.Cmd)) {
	ask(p.cmd)
	go func() {
		select {
		case <-p.done:
		case <-time.After(grace):
			killGroup(p.cmd)
		}
	}()
}

// Wait waits for the process to end.
func (p *Process) Wait() (Result, error) {
	err := p.cmd.Wait()
	close(p.done)
	// Children of an interrupted tool can outlive it (a compiler below ninja).
	if p.ctx.Err() != nil {
		killGroup(p.cmd)
	}
	res := Result{Stdout: p.stdout.Bytes(), Stderr: p.stderr.Bytes(), Took: time.Since(p.started)}
	if state := p.cmd.ProcessState; state != nil {
		res.CPU, res.Peak = state.UserTime()+state.SystemTime(), peak(state)
	}
	p.echo.after(p.args, res.Took, err)
	if err == nil {
		return res, nil
	}
	if p.ctx.Err() != nil {
		return res, fmt.Errorf("running %s: %w", p.args[0], context.Cause(p.ctx))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return res, fmt.Errorf("running %s: %w", p.args[0], err)
	}
	e := &ExitError{Args: p.args, Dir: p.dir, Code: exit.ExitCode(), Signal: signalName(exit), Stderr: p.tail.String()}
	e.kind = kindOf(e.Args, e.Stderr)
	return res, e
}

// ExitError is a process that ran and failed.
type ExitError struct {
	Args   []string
	Dir    string
	Code   int    // -1 when a signal ended it
	Signal string // "SIGILL"; empty when it exited by itself
	Stderr string // the last 64 KiB at most
	kind   error
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != "" {
		how = "ended by " + e.Signal
	}
	name := e.Args[0]
	if len(e.Args) > 1 && !strings.HasPrefix(e.Args[1], "-") {
		name += " " + e.Args[1]
	}
	if line := Reason(e.Stderr, 3); line != "" {
		return fmt.Sprintf("%s: %s: %s", name, how, line)
	}
	return fmt.Sprintf("%s: %s", name, how)
}

// Unwrap gives the recognised kind (ErrNoSpace, ErrNetwork, …) or nil.
func (e *ExitError) Unwrap() error { return e.kind }

// MissingError is a tool that isn't on PATH.
type MissingError struct {
	Tool string
	Err  error
}

func (e *MissingError) Error() string { return fmt.Sprintf("%s is not on PATH", e.Tool) }
func (e *MissingError) Unwrap() error { return e.Err }

// LookPath says where a tool is, or gives a *MissingError.
func LookPath(tool string) (string, error) {
	path, err := exec.LookPath(tool)
	if err != nil {
		return "", &MissingError{Tool: tool, Err: err}
	}
	return path, nil
}

// sameWriter says whether both streams go to one place.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil { // not comparable
			same = false
		}
	}()
	return a == b
}

// Reason gives the lines of stderr that tell why, n at most: the first that
// name an error, else the last ones. Advice often follows an error, and what
// follows from an error is longer than it.
func Reason(stderr string, n int) string {
	var lines, errs []string
	for line := range strings.FieldsFuncSeq(stderr, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		lines = append(lines, line)
		if namesError(line) {
			errs = append(errs, line)
		}
	}
	if len(errs) > 0 {
		return strings.Join(errs[:min(n, len(errs))], "; ")
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

func namesError(line string) bool {
	return strings.HasPrefix(line, "fatal:") || strings.HasPrefix(line, "error:") ||
		strings.Contains(line, " error:") || strings.Contains(line, "ERROR:")
}

// tailWriter keeps the last tailSize bytes written to it.
type tailWriter struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 64 << 10

func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tailWriter) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
