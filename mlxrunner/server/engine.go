package server

import (
	"context"

	"payload/mlx"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/generate"
)

// An Engine generates. It is safe for concurrent calls, and gives the result
// so far with an error, ctx's own where that ended. Hooks may be called on any
// goroutine, one at a time, and never after Submit returns; they don't block.
type Engine interface {
	Submit(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error)
}

// Solo is the engine that runs one request at a time, first come first served.
// A request whose context ends before its turn never runs.
type Solo struct {
	Thread *mlxthread.Thread // on which the model was loaded
	Runner *generate.Runner
	Draft  int // tokens a round that the runner's draft guesses; 0 is none
}

// Submit runs a request in its turn.
func (e *Solo) Submit(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
	q.Draft = e.Draft
	return mlxthread.Call(ctx, e.Thread, func(ctx context.Context, s *mlx.Scope) (generate.Result, error) {
		return e.Runner.Generate(ctx, s, q, hooks)
	})
}
