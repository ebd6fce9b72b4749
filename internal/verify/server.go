package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"payload/internal/run"
)

// limits bound everything that waits.
type limits struct {
	ready   time.Duration // from the start to the first good answer of health
	request time.Duration
	stop    time.Duration // from the request to stop to the end
	probe   time.Duration
}

var defaultLimits = limits{ready: time.Minute, request: time.Minute, stop: 10 * time.Second, probe: 30 * time.Second}

const host = "127.0.0.1"

// server is one started program.
type server struct {
	name   string // the random one it was told to give its model
	base   string // URL
	proc   *run.Process
	log    *tape
	limits limits
	exited chan struct{}
	err    error // how it ended; read after exited
	site   *site // where it crashed, when that was traced; read after exited
}

// launch is what it takes to start a program.
type launch struct {
	kind    kind
	limits  limits
	dir     string // holds the program and everything it may use
	program string // relative to dir
	model   string
	home    string // an empty folder
	threads int
	extra   []string // of its environment
	traced  bool
}

// portTries is how often a program may lose the race for a free port.
const portTries = 3

// errNotReady is a program that runs but never gets ready.
var errNotReady = errors.New("did not get ready")

// start starts the program and waits until it is alive and healthy. With any
// error but ctx's, the server is returned too, for its log; it has ended.
func start(ctx context.Context, l launch) (*server, error) {
	for try := 1; ; try++ {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		s, err := startOn(ctx, l, port)
		if err != nil {
			return nil, err
		}
		err = s.waitReady(ctx, l)
		if err == nil {
			return s, nil
		}
		_ = s.stop() // why it didn't get ready says more
		if ctx.Err() != nil {
			return nil, fmt.Errorf("starting %s: %w", l.program, context.Cause(ctx))
		}
		lost := errors.Is(err, errEnded) && l.kind.portTaken != nil && l.kind.portTaken.MatchString(s.log.String())
		if !lost || try == portTries {
			return s, err
		}
	}
}

func startOn(ctx context.Context, l launch, port int) (*server, error) {
	s := &server{
		name: "payload-" + strings.ToLower(rand.Text()[:12]),
		base: "http://" + net.JoinHostPort(host, strconv.Itoa(port)),
		log:  &tape{}, limits: l.limits, exited: make(chan struct{}),
	}
	fill := strings.NewReplacer("{model}", l.model, "{host}", host, "{port}", strconv.Itoa(port), "{name}", s.name, "{threads}", strconv.Itoa(l.threads))
	cmd := l.command(l.kind.args, l.kind.env, fill, s.log)
	cmd.Grace = l.limits.stop
	if l.traced {
		if err := s.startTraced(ctx, cmd); err != nil {
			return nil, err
		}
		return s, nil
	}
	var err error
	if s.proc, err = run.Start(ctx, cmd); err != nil {
		return nil, err
	}
	go func() {
		_, s.err = s.proc.Wait()
		close(s.exited)
	}()
	return s, nil
}

func (s *server) startTraced(ctx context.Context, cmd run.Cmd) error {
	proc, places, err := startTraced(ctx, cmd)
	if err != nil {
		return err
	}
	s.proc = proc
	go func() {
		for place := range places {
			s.site = &place
		}
		// The tracer has taken the status already; this frees the pipes.
		_, s.err = s.proc.Wait()
		close(s.exited)
	}()
	return nil
}

// command is the program with the environment of a machine that has nothing
// but the payload: no loader variables, no proxies, no home.
func (l launch) command(args, env []string, fill *strings.Replacer, out *tape) run.Cmd {
	c := run.Cmd{
		Dir: l.home, Args: []string{filepath.Join(l.dir, filepath.FromSlash(l.program))},
		Env:     append(minimalEnv(l.home), l.extra...),
		OnlyEnv: true, Expendable: true, Stdout: out, Stderr: out,
	}
	for _, a := range args {
		c.Args = append(c.Args, fill.Replace(a))
	}
	for _, e := range env {
		c.Env = append(c.Env, fill.Replace(e))
	}
	return c
}

// freePort asks the system for one. It can be lost again before the program
// takes it, so start tries more than once.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// waitReady polls health. No log line is trusted for it.
func (s *server) waitReady(ctx context.Context, l launch) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	deadline := time.NewTimer(l.limits.ready)
	defer deadline.Stop()
	last := "no answer"
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.exited:
			return errEnded
		case <-deadline.C:
			return fmt.Errorf("%w in %s: %s", errNotReady, l.limits.ready, last)
		case <-time.After(pause):
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+l.kind.health, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			last = err.Error()
			continue
		}
		_ = resp.Body.Close()
		last = "GET " + l.kind.health + " gives " + resp.Status
		if resp.StatusCode == http.StatusOK && s.alive() {
			return nil
		}
	}
}

// errEnded is a program that ended by itself.
var errEnded = errors.New("ended by itself")

func (s *server) alive() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// settle waits a moment for a program that may be dying: its connections break
// before its end can be seen.
func (s *server) settle(ctx context.Context) {
	select {
	case <-s.exited:
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
}

// errStuck is a program that had to be killed.
var errStuck = errors.New("did not stop when asked to")

// stop asks a running program to end, waits, kills. It gives errStuck, how the
// program ended when that was not clean, or nil; also nil when it had ended
// before.
func (s *server) stop() error {
	if !s.alive() {
		return nil
	}
	s.proc.Terminate(s.limits.stop)
	<-s.exited // bounded: Terminate kills
	var exit *run.ExitError
	if !errors.As(s.err, &exit) || exit.Signal == "SIGTERM" {
		return nil
	}
	if exit.Signal == "SIGKILL" {
		return errStuck
	}
	return exit
}

// firstGroup gives what re's first group matches in text.
func firstGroup(re *regexp.Regexp, text string) string {
	if m := re.FindStringSubmatch(text); m != nil {
		return strings.TrimSpace(m[len(m)-1])
	}
	return ""
}
