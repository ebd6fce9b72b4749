package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"payload/mlx"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/architectures"
)

// engineOptions say what is loaded and how it runs, for every verb that
// generates.
type engineOptions struct {
	model string
	draft string
}

func (o *engineOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.model, "model", "", "the checkpoint: a `DIR` with config.json, tokenizer.json and safetensors")
	f.StringVar(&o.draft, "draft", "", "a smaller checkpoint's `DIR`, whose guesses make text come faster; it stays the same")
}

func (o *engineOptions) check(verb string) error {
	if o.model == "" {
		return &usageError{fmt.Errorf("mlxrunner %s needs --model DIR", verb)}
	}
	return nil
}

// session is a model in memory, with its draft, on its thread.
type session struct {
	thread *mlxthread.Thread
	loaded []*model.Loaded
	runner *generate.Runner
	took   time.Duration
}

func openSession(ctx context.Context, a *app, o engineOptions) (*session, error) {
	start := time.Now()
	if err := mlx.Load(); err != nil {
		return nil, err
	}
	device, err := mlx.DefaultDevice()
	if err != nil {
		return nil, err
	}
	thread, err := mlxthread.Start(device)
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
	var err error
	if s.runner, err = s.load(ctx, a, o.model, "loading"); err != nil {
		return err
	}
	if o.draft == "" {
		return nil
	}
	draft, err := s.load(ctx, a, o.draft, "loading the draft")
	if err != nil {
		return err
	}
	return s.runner.UseDraft(draft)
}

// load makes a runner of a checkpoint.
func (s *session) load(ctx context.Context, a *app, dir, doing string) (*generate.Runner, error) {
	m, err := mlxthread.Call(ctx, s.thread, func(ctx context.Context, scope *mlx.Scope) (*model.Loaded, error) {
		return model.Load(ctx, scope, dir, model.Options{
			Progress: func(done, total int64) { a.voice.progress(doing, done, total) },
		})
	})
	if err != nil {
		return nil, err
	}
	s.loaded = append(s.loaded, m)
	return generate.Open(dir, m)
}

func (s *session) close() error {
	for _, m := range s.loaded {
		m.Close()
	}
	return s.thread.Close()
}
