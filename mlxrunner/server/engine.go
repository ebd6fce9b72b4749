package server

import (
	"context"

	"payload/mlxrunner/generate"
)

// An Engine generates; generate.Batch is one. It is safe for concurrent calls,
// and gives the result so far with an error, ctx's own where that ended. Hooks
// may be called on any goroutine, one at a time, and never after Submit
// returns; they don't block.
type Engine interface {
	Submit(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error)
}
