package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"payload/internal/run"
	"payload/internal/verify/tinymodel"
)

// question is one start of a program that computes an answer and ends. judge is
// given what it printed, on standard output and beside it, and how it ended.
type question struct {
	name  string
	args  []string
	judge func(answer) error
}

type answer struct {
	stdout, stderr string
	err            error // not nil where it ended badly
}

// runnerQuestions are what a runner of language models must get right: texts and
// tokens, alone and with guesses, in the model's chat template; and an error
// where there is no model.
func runnerQuestions(expected tinymodel.Expectations) []question {
	var all []question
	for _, c := range expected.Completions {
		args := []string{"run", "--json", "--model", "{model}", "--prompt", c.Prompt, "--max-tokens", strconv.Itoa(c.NPredict)}
		all = append(all,
			question{c.Name, args, generates(expected.Model, c)},
			question{c.Name + ", guessing", append(slices.Clone(args), "--lookup", "4"), generates(expected.Model, c)})
	}
	for _, c := range expected.Chats {
		if len(c.Messages) != 1 || c.Messages[0].Role != "user" {
			continue
		}
		all = append(all, question{c.Name, []string{
			"run", "--json", "--model", "{model}", "--chat", "--prompt", c.Messages[0].Content, "--max-tokens", strconv.Itoa(c.MaxTokens),
		}, func(a answer) error {
			r, err := readRun(a)
			if err == nil {
				err = differs("the reply", r.Text, c.Content)
			}
			return err
		}})
	}
	return append(all, question{"no model", []string{"run", "--json", "--model", "{model}-that-is-not-there", "--prompt", "x"}, func(a answer) error {
		if a.err == nil || !strings.Contains(a.stderr, "error: ") {
			return fmt.Errorf("a model that is not there is no error: it prints %q and %q", clip(a.stdout, 300), a.stderr)
		}
		return nil
	}})
}

// runReport is what of a run's report is judged; sizes in bytes.
type runReport struct {
	Schema    string `json:"schema"`
	Text      string `json:"text"`
	Tokens    []int  `json:"tokens"`
	Finish    string `json:"finish_reason"`
	Prompt    int    `json:"prompt_tokens"`
	Generated int    `json:"generated_tokens"`
	Active    int64  `json:"active_bytes"`
	Cache     int64  `json:"cache_bytes"`
	Peak      int64  `json:"peak_bytes"`
	Footprint int64  `json:"footprint_bytes"`
}

func readRun(a answer) (runReport, error) {
	var r runReport
	if a.err != nil {
		return r, a.err
	}
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		return r, fmt.Errorf("it prints no JSON object: %w: %s", err, clip(strings.TrimSpace(a.stdout), 300))
	}
	if !strings.HasSuffix(r.Schema, ".run/v1") {
		return r, fmt.Errorf("its schema is %q", r.Schema)
	}
	return r, nil
}

func differs(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q, not %q", what, clip(got, 300), clip(want, 300))
	}
	return nil
}

// weightBytes is the least that a parameter takes, half precision.
const weightBytes = 2

// most is what a run of a model of a megabyte may take of memory. A runner that
// leaks, or holds a copy for each token, takes more.
const most = 1 << 30

// generates wants exactly the text and tokens of c, and memory numbers that can
// be true: the weights are in it, and the peak is not below what is there.
func generates(m tinymodel.Model, c tinymodel.Completion) func(answer) error {
	return func(a answer) error {
		r, err := readRun(a)
		if err != nil {
			return err
		}
		if err := differs("the text", r.Text, c.Text); err != nil {
			return err
		}
		want := c.Tokens
		finish := "length"
		if c.Stop == tinymodel.StopEOS {
			finish = "stop"
		}
		weights := int64(weightBytes * m.Parameters)
		switch {
		case !slices.Equal(r.Tokens, want):
			return fmt.Errorf("the tokens are %v, not %v", r.Tokens, want)
		case r.Finish != finish || r.Prompt != c.PromptTokens || r.Generated != len(want):
			return fmt.Errorf("it ends by %s after %d + %d tokens, not by %s after %d + %d", r.Finish, r.Prompt, r.Generated, finish, c.PromptTokens, len(want))
		case r.Active < weights || r.Peak < r.Active || r.Footprint < r.Active || r.Cache < 0 || r.Peak > most || r.Footprint > most:
			return fmt.Errorf("its memory can't be: active %d, cache %d, peak %d, footprint %d bytes, and the weights take %d", r.Active, r.Cache, r.Peak, r.Footprint, weights)
		}
		return nil
	}
}

// question starts the program once for each question.
func (s *sessions) question(ctx context.Context, whole string) error {
	model := filepath.Join(s.temp, "model")
	if err := tinymodel.WriteCheckpoint(model); err != nil {
		return fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	began := time.Now()
	var bad []problem
	for _, q := range s.kind.questions(s.expected) {
		a, err := s.answer(ctx, whole, q, model)
		if err != nil {
			return err
		}
		if exit, ok := errors.AsType[*run.ExitError](a.err); ok && exit.Signal != "" {
			bad = append(bad, problem{id: "runtime.crash", what: join(exit.Signal, q.name), title: fmt.Sprintf("%s dies of %s in %s", s.options.Program, exit.Signal, q.name), detail: a.stderr})
			continue
		}
		if err := q.judge(a); err != nil {
			detail := err.Error()
			if a.stderr != "" {
				detail += "\n" + a.stderr
			}
			bad = append(bad, problem{id: "answer.wrong", what: q.name, title: s.options.Program + " does not give what it must: " + q.name, detail: detail})
			continue
		}
		s.res.Runtime.Requests++
	}
	for _, p := range fewer(bad) {
		s.fault(p.id, p.what, p.title, p.detail, s.options.Program)
	}
	if len(bad) == 0 {
		s.options.Tell("%s answered %d times in %.1f s", s.options.Program, s.res.Runtime.Requests, time.Since(began).Seconds())
	}
	return nil
}

func (s *sessions) answer(ctx context.Context, dir string, q question, model string) (answer, error) {
	l, err := s.launch(dir)
	if err != nil {
		return answer{}, err
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.request)
	defer cancel()
	beside, out := &tape{}, &bytes.Buffer{}
	cmd := l.command(q.args, s.kind.env, strings.NewReplacer("{model}", model), beside)
	cmd.Stdout = out
	_, err = run.Do(limited, cmd)
	if ctx.Err() != nil {
		return answer{}, fmt.Errorf("running %s: %w", s.options.Program, context.Cause(ctx))
	}
	stderr := strings.ReplaceAll(beside.last(logLines, nil), s.temp+"/", "")
	return answer{stdout: out.String(), stderr: stderr, err: err}, nil
}
