package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"payload/internal/run"
	"payload/mlx"
)

// A subject is a checkpoint that bin/mlxrunner and mlx-lm both run.
type subject struct {
	name   string
	dir    string
	short  string // a prompt for the time to the first token
	long   string // one for the rates
	tokens int    // that follow the long one
	rounds int
	decode float64 // how many times mlx-lm's rate is wanted; 0 is only told
}

// What is wanted besides, of every subject with a target for decode.
const (
	wantPrefill = 1.0
	wantStart   = 0.2
	wantMemory  = 0.8
)

// A measure is what one side did in one round.
type measure struct {
	start   time.Duration // from the process's start to its first token
	peak    int64         // bytes, the most that was in RAM
	charged int64         // bytes, the most that its control group took; 0 where there can be none
	private int64         // bytes at the end that are no file's pages
	cpu     time.Duration // of prompt and text, without what starting takes
	decode  float64       // tokens a second
	prefill float64
	tokens  []int
}

// What both programs print.
type runReport struct {
	Tokens     []int   `json:"tokens"`
	Prompt     int     `json:"prompt_tokens"`
	FirstToken float64 `json:"first_token_ms"`
	Footprint  int64   `json:"footprint_bytes"`
	DecodeTPS  float64 `json:"decode_tps"`
}

// runner compares bin/mlxrunner with mlx-lm on the same library, weights and
// machine, taking turns, and counts the median. The text must be the same.
func (b bench) runner(ctx context.Context) error {
	if b.python == "" {
		return nil
	}
	const story = "Once upon a time there was a small village by the sea, and in the village lived an old man who " +
		"mended nets. Every morning he walked down to the harbour, looked at the sky, and told the fishermen what the " +
		"weather would be. One day"
	const tiny = "In the"
	folder := func(name string) string { return "build/bench-models/" + name }
	subjects := []subject{
		{"tiny model", "internal/verify/tinymodel/safetensors", tiny, tiny, 112, 5, 3},
		{"tiny model, float32", folder("tiny-float32"), tiny, tiny, 112, 5, 0},
		{"SmolLM2-135M, float32", folder("smollm2-float32"), "The capital of France is", story, 32, 3, 1},
		{"SmolLM2-135M, 4 bits", folder("smollm2-4bit"), "The capital of France is", story, 32, 3, 0},
	}
	var missed []error
	for _, s := range subjects {
		if _, err := os.Stat(s.dir); err != nil {
			return fmt.Errorf("looking for a checkpoint (scripts/bench makes it): %w", err)
		}
		m, err := b.subject(ctx, s)
		if err != nil {
			return fmt.Errorf("running %s: %w", s.name, err)
		}
		missed = append(missed, m)
	}
	return errors.Join(missed...)
}

// subject prints a subject's rows, and gives an error of what was missed.
func (b bench) subject(ctx context.Context, s subject) (missed, err error) {
	library, err := libmlx()
	if err != nil {
		return nil, err
	}
	var ours, peers []measure
	for range s.rounds {
		o, err := measureRun(ctx, s, nil, func(prompt string, tokens int, asJSON bool) []string {
			args := []string{"bin/mlxrunner", "run", "--model", s.dir, "--prompt", prompt, "--max-tokens", strconv.Itoa(tokens)}
			if asJSON {
				args = append(args, "--json")
			}
			return args
		})
		if err != nil {
			return nil, err
		}
		p, err := measureRun(ctx, s, []string{"LD_PRELOAD=" + library}, func(prompt string, tokens int, asJSON bool) []string {
			args := []string{b.python, "scripts/mlxbench/lm.py", s.dir, prompt, strconv.Itoa(tokens)}
			if asJSON {
				args = append(args, "--json")
			}
			return args
		})
		if err != nil {
			return nil, err
		}
		if !slices.Equal(o.tokens, p.tokens) {
			return nil, fmt.Errorf("the tokens differ: %v, and mlx-lm's %v", o.tokens, p.tokens)
		}
		ours, peers = append(ours, o), append(peers, p)
	}
	row := func(what, unit string, of func(measure) float64, want float64, least bool) {
		o, p := middle(ours, of), middle(peers, of)
		ratio, verdict := o/p, ""
		if want > 0 && s.decode > 0 {
			verdict = fmt.Sprintf("; at most %.2f is wanted", want)
			if least {
				verdict = fmt.Sprintf("; at least %.2f is wanted", want)
			}
			if least && ratio < want || !least && ratio > want {
				verdict += ": missed"
				missed = errors.Join(missed, fmt.Errorf("%s, %s: %.2f of mlx-lm's%s", s.name, what, ratio, verdict))
			}
		}
		fmt.Printf("%s, %s: %.4g %s; mlx-lm %.4g; ratio %.2f%s\n", s.name, what, o, unit, p, ratio, verdict) //nolint:forbidigo // a command's output
	}
	row("decode", "tokens a second", func(m measure) float64 { return m.decode }, s.decode, true)
	row("prefill", "tokens a second", func(m measure) float64 { return m.prefill }, wantPrefill, true)
	row("process start to first token", "ms", func(m measure) float64 { return m.start.Seconds() * 1000 }, wantStart, false)
	row("peak memory", "MiB", func(m measure) float64 { return float64(m.peak) / (1 << 20) }, wantMemory, false)
	if ours[0].charged > 0 {
		row("peak memory with the pages of files that it read", "MiB", func(m measure) float64 { return float64(m.charged) / (1 << 20) }, 0, false)
	}
	row("memory at the end that no file gives back", "MiB", func(m measure) float64 { return float64(m.private) / (1 << 20) }, 0, false)
	row("processor time of prompt and text", "ms", func(m measure) float64 { return m.cpu.Seconds() * 1000 }, 0, false)
	return missed, nil
}

// libmlx finds the library that mlxrunner loads. Python's own is passed over for
// it: it may be linked to another BLAS.
func libmlx() (string, error) {
	folder := os.Getenv(mlx.PathVariable)
	for _, pattern := range []string{"libmlx.so", "mlx_*/libmlx.so"} {
		if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) == 1 {
			return filepath.Abs(found[0])
		}
	}
	return "", fmt.Errorf("finding libmlx.so: none in %s, which %s names", folder, mlx.PathVariable)
}

// measureRun runs one side twice: to the first token of a short prompt, and
// through a long one and its text.
func measureRun(ctx context.Context, s subject, env []string, args func(prompt string, tokens int, asJSON bool) []string) (measure, error) {
	var m measure
	first := &firstWrite{began: time.Now()}
	short, err := run.Do(ctx, run.Cmd{Args: args(s.short, 1, false), Env: env, Stdout: first})
	if err != nil {
		return m, err
	}
	if first.after == 0 {
		return m, fmt.Errorf("running %s: it printed nothing", args(s.short, 1, false)[0])
	}
	command := args(s.long, s.tokens, true)
	counted, err := newGroup()
	if err == nil {
		defer counted.remove()
		command = counted.inside(command)
		err = forget(ctx, s.dir)
	}
	if err != nil && !errors.Is(err, errNoGroup) {
		return m, err
	}
	long, err := run.Do(ctx, run.Cmd{Args: command, Env: env})
	if err != nil {
		return m, err
	}
	if counted != (group{}) {
		if m.charged, err = counted.most(); err != nil {
			return m, fmt.Errorf("asking a control group what it took: %w", err)
		}
	}
	var r runReport
	if err := json.Unmarshal(long.Stdout, &r); err != nil {
		return m, fmt.Errorf("reading what it measured: %w", err)
	}
	if len(r.Tokens) != s.tokens {
		return m, fmt.Errorf("%d tokens came, not %d", len(r.Tokens), s.tokens)
	}
	return measure{
		start: first.after, peak: long.Peak, charged: m.charged, private: r.Footprint, cpu: long.CPU - short.CPU,
		decode: r.DecodeTPS, prefill: float64(r.Prompt) / r.FirstToken * 1000, tokens: r.Tokens,
	}, nil
}

// firstWrite notes when something came.
type firstWrite struct {
	began time.Time
	after time.Duration
	text  bytes.Buffer
}

func (w *firstWrite) Write(b []byte) (int, error) {
	if w.after == 0 {
		w.after = time.Since(w.began)
	}
	return w.text.Write(b)
}

func middle(all []measure, of func(measure) float64) float64 {
	values := make([]float64, len(all))
	for i, m := range all {
		values[i] = of(m)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
