package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/memory"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/architectures"
	"payload/mlxrunner/tokenizer"
)

// engineOptions say what is loaded and how it runs, for every verb that
// generates.
type engineOptions struct {
	model  string
	draft  string
	kvBits int
	budget string
}

func (o *engineOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.model, "model", "", "the checkpoint: a `DIR` with config.json, tokenizer.json and safetensors")
	f.StringVar(&o.draft, "draft", "", "a smaller checkpoint's `DIR`, whose guesses make text come faster; it stays the same")
	f.IntVar(&o.kvBits, "kv-bits", 0, "hold keys and values in `BITS`, 8 or 4; 0 holds them as they are")
	f.StringVar(&o.budget, "memory-budget", "", "the `SIZE` that weights, keys and values, and freed buffers may take together, 12GiB say; the most that this machine can give if not said")
}

func (o *engineOptions) check(verb string) error {
	if o.model == "" {
		return &usageError{fmt.Errorf("mlxrunner %s needs --model DIR", verb)}
	}
	if !slices.Contains([]int{0, 4, 8}, o.kvBits) {
		return &usageError{fmt.Errorf("--kv-bits is %d, want 4 or 8", o.kvBits)}
	}
	if o.budget != "" {
		if _, err := memory.Parse(o.budget); err != nil {
			return &usageError{fmt.Errorf("--memory-budget: %w", err)}
		}
	}
	return nil
}

var errNoDraft = errors.New("--draft-tokens is for the draft model: give --draft DIR too")

// session is a model in memory, with its draft, on its thread.
type session struct {
	thread *mlxthread.Thread
	loaded []*model.Loaded
	runner *generate.Runner
	draft  *generate.Runner // nil where none guesses
	took   time.Duration
}

// startThread loads the library and starts the thread that arrays live on.
func startThread() (*mlxthread.Thread, error) {
	if err := mlx.Load(); err != nil {
		return nil, err
	}
	device, err := mlx.DefaultDevice()
	if err != nil {
		return nil, err
	}
	return mlxthread.Start(device)
}

func openSession(ctx context.Context, a *app, o engineOptions) (*session, error) {
	start := time.Now()
	thread, err := startThread()
	if err != nil {
		return nil, err
	}
	s := &session{thread: thread}
	err = s.open(ctx, a, o)
	a.voice.clear()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.took = time.Since(start)
	return s, nil
}

func (s *session) open(ctx context.Context, a *app, o engineOptions) error {
	budget, err := o.limit(s.thread.Device())
	if err != nil {
		return err
	}
	if err := fits(s.thread.Device(), budget, o.model, o.draft); err != nil {
		return err
	}
	if s.runner, err = s.load(ctx, a, o.model, "loading"); err != nil {
		return err
	}
	runners := []*generate.Runner{s.runner}
	if o.draft != "" {
		draft, err := s.load(ctx, a, o.draft, "loading the draft")
		if err != nil {
			return err
		}
		if err := s.runner.UseDraft(draft); err != nil {
			return err
		}
		s.draft = draft
		runners = append(runners, draft)
	}
	return s.thread.Do(ctx, func(_ context.Context, scope *mlx.Scope) error {
		for _, r := range runners {
			if o.kvBits == 0 {
				break
			}
			if err := r.Pack(scope, o.kvBits); err != nil {
				return err
			}
		}
		return s.runner.Limit(budget)
	})
}

// shortDraft is the context of a draft that ends before the model's, or else 0.
// From there on text stays the same and only comes slower, so it is no error.
func (s *session) shortDraft() int {
	if s.draft == nil || s.runner.Context > 0 && s.draft.Context >= s.runner.Context {
		return 0
	}
	return s.draft.Context
}

// limit is the memory budget in bytes.
func (o *engineOptions) limit(d mlx.Device) (int64, error) {
	if o.budget != "" {
		return memory.Parse(o.budget)
	}
	n, _, err := memory.Available(d)
	return n, err
}

// fits says before anything is read when the weights of checkpoints alone are
// beyond the budget. On the processor half floats take twice what they are
// stored in (model.Options.Float).
func fits(device mlx.Device, budget int64, dirs ...string) error {
	var weights int64
	for _, dir := range dirs {
		files, err := safetensors.OpenDir(dir)
		if err != nil {
			continue // no draft, or a fault that loading tells better
		}
		config, _ := model.ReadConfig(dir) // its fault, too, loading tells
		for _, name := range files.Names() {
			if config.Dropped(name) != "" {
				continue
			}
			t, _, _ := files.Tensor(name)
			weights += t.Size
			if device.Kind == mlx.KindCPU && (t.DType == safetensors.F16 || t.DType == safetensors.BF16) {
				weights += t.Size
			}
		}
		if err := files.Close(); err != nil {
			return err
		}
	}
	if weights > budget {
		return &generate.MemoryError{Limit: budget, Weights: weights}
	}
	return nil
}

// load makes a runner of a checkpoint.
func (s *session) load(ctx context.Context, a *app, dir, doing string) (*generate.Runner, error) {
	tok := loadTokenizer(dir)
	m, err := mlxthread.Call(ctx, s.thread, func(ctx context.Context, scope *mlx.Scope) (*model.Loaded, error) {
		return model.Load(ctx, scope, dir, model.Options{
			Progress: func(done, total int64) { a.voice.progress(doing, done, total) },
		})
	})
	if err != nil {
		return nil, err
	}
	s.loaded = append(s.loaded, m)
	t := <-tok
	if t.err != nil {
		return nil, t.err
	}
	return generate.OpenWith(dir, m, t.tok)
}

type loadedTokenizer struct {
	tok *tokenizer.Tokenizer
	err error
}

// loadTokenizer loads beside the weights. What it took to read the file goes
// back to the system: it would lie there as long as the model does.
func loadTokenizer(dir string) <-chan loadedTokenizer {
	out := make(chan loadedTokenizer, 1)
	go func() {
		tok, err := tokenizer.Load(dir)
		debug.FreeOSMemory()
		out <- loadedTokenizer{tok, err}
	}()
	return out
}

func (s *session) close() error {
	var err error
	if s.runner != nil {
		err = s.thread.Do(context.Background(), func(context.Context, *mlx.Scope) error { return s.runner.Close() })
	}
	for _, m := range s.loaded {
		m.Close()
	}
	return errors.Join(err, s.thread.Close())
}
