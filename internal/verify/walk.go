package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"payload/internal/run"
)

// step is one thing that a program that uses the payload's libraries does, and
// what must come out of it.
type step struct {
	name  string
	judge func(stepResult, *sessions) error
}

// stepResult is one line of what such a program prints. Numbers that only one
// step has stand in Sizes.
type stepResult struct {
	Begins string           `json:"begins"` // a step that begins; nothing else is set then
	Step   string           `json:"step"`
	Failed *string          `json:"failed"` // the library's error, where it gave one
	Text   string           `json:"text"`
	Status int              `json:"status"`
	Values []float64        `json:"values"`
	Sizes  map[string]int64 `json:"sizes"` // bytes
}

// lastStep is begun when all others are done. The program then waits for the
// end of its input, so that it can be looked at while it runs.
const lastStep = "end"

// filesDir is where the program may write.
func (s *sessions) filesDir() string { return filepath.Join(s.temp, "files") }

// walk starts the program, waits until it is through its steps, and judges what
// came out.
func (s *sessions) walk(ctx context.Context, whole string) error {
	l, err := s.launch(whole)
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.filesDir(), 0o755); err != nil {
		return fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	// A file, which the process has to itself: nobody waits for it to be read.
	input, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	defer func() { _ = hold.Close() }() // ends the program's input, if it still runs
	out := &tape{}
	began := time.Now()
	cmd := l.command([]string{s.filesDir()}, s.kind.env, strings.NewReplacer(), out)
	cmd.Stdin = input
	proc, err := run.Start(ctx, cmd)
	_ = input.Close() // the process has its own
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.fault("runtime.start", s.options.Program, s.options.Program+" can't be started", err.Error(), s.options.Program)
		return nil
	}
	exited := make(chan error, 1)
	go func() {
		_, err := proc.Wait()
		exited <- err
	}()
	ended, stuck := s.waitSteps(ctx, out, exited)
	var outside []problem
	if ended == nil && !stuck {
		_, outside = s.outside(proc.PID(), s.backend())
		_ = hold.Close() // a pipe's end has no error to tell
		ended, stuck = s.waitEnd(ctx, exited)
	}
	if stuck {
		proc.Terminate(s.limits.stop)
		ended = &ending{<-exited} // bounded: Terminate kills
	}
	if ctx.Err() != nil {
		return fmt.Errorf("running %s: %w", s.options.Program, context.Cause(ctx))
	}
	results, doing := readSteps(out)
	for _, p := range outside {
		s.fault(p.id, p.what, p.title, p.detail, s.options.Program)
	}
	switch {
	case stuck:
		s.fault("runtime.stuck", doing, fmt.Sprintf("%s does not get through %s", s.options.Program, doing), "stopped after "+time.Since(began).Round(time.Second).String(), s.options.Program)
	case ended.err != nil:
		s.brokeOff(ended.err, doing, out)
	}
	s.judge(results, doing)
	if s.res.Runtime.Requests > 0 && !s.res.Failed() {
		s.options.Tell("%s went through %d steps in %.1f s", s.options.Program, s.res.Runtime.Requests, time.Since(began).Seconds())
	}
	return nil
}

// ending is how a program ended; err is nil for a good end.
type ending struct{ err error }

// waitSteps waits until the program begins its last step. It gives how it ended
// when that comes first, or that it takes too long.
func (s *sessions) waitSteps(ctx context.Context, out *tape, exited <-chan error) (ended *ending, stuck bool) {
	deadline := time.NewTimer(s.limits.request)
	defer deadline.Stop()
	for {
		select {
		case err := <-exited:
			return &ending{err}, false
		case <-ctx.Done():
			return nil, true
		case <-deadline.C:
			return nil, true
		case <-time.After(5 * time.Millisecond):
		}
		if _, doing := readSteps(out); doing == lastStep {
			return nil, false
		}
	}
}

func (s *sessions) waitEnd(ctx context.Context, exited <-chan error) (ended *ending, stuck bool) {
	select {
	case err := <-exited:
		return &ending{err}, false
	case <-ctx.Done():
	case <-time.After(s.limits.stop):
	}
	return nil, true
}

// brokeOff reports a program that didn't end well.
func (s *sessions) brokeOff(err error, doing string, out *tape) {
	during := "starting"
	if doing != "" {
		during = "the step " + doing
	}
	id, title, what := "runtime.exit", s.options.Program+" ended while "+during, doing
	if exit, ok := errors.AsType[*run.ExitError](err); ok {
		switch {
		case exit.Signal != "":
			id, title = "runtime.crash", fmt.Sprintf("%s dies of %s in %s", s.options.Program, exit.Signal, during)
			what = join(exit.Signal, doing)
		default:
			title = fmt.Sprintf("%s ended with status %d in %s", s.options.Program, exit.Code, during)
		}
	}
	s.fault(id, what, title, "last lines:\n"+strings.ReplaceAll(out.last(logLines, nil), s.temp+"/", ""), s.options.Program)
}

// readSteps gives the results so far, by step, and the step that was begun last.
// Lines that are none of the program's own are passed over: libraries print too.
func readSteps(out *tape) (results map[string]stepResult, doing string) {
	results = map[string]stepResult{}
	for _, line := range out.lines() {
		var r stepResult
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if r.Begins != "" {
			doing = r.Begins
		}
		if r.Step != "" {
			results[r.Step] = r
		}
	}
	return results, doing
}

// judge holds every step's result against what it must be. Of a program that
// broke off, the steps that it didn't come to are not reported once more.
func (s *sessions) judge(results map[string]stepResult, doing string) {
	for _, step := range s.kind.steps {
		r, there := results[step.name]
		switch {
		case !there && doing == lastStep:
			s.fault("step.missing", step.name, fmt.Sprintf("%s left out the step %s", s.options.Program, step.name), "", s.options.Program)
		case !there:
		case r.Failed != nil:
			s.fault("step.failed", step.name, fmt.Sprintf("%s: the step %s gives an error", s.options.Program, step.name), *r.Failed, s.options.Program)
		default:
			if err := step.judge(r, s); err != nil {
				s.fault("step.wrong", step.name, fmt.Sprintf("%s: the step %s does not give what it must", s.options.Program, step.name), err.Error(), s.options.Program)
				continue
			}
			s.res.Runtime.Requests++
		}
	}
}
