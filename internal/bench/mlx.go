package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// What bin/mlxbench (mlx/internal/bench) and scripts/mlxbench/peer.py print.
type mlxResult struct {
	Calls      map[string]struct{ Binding, Cgo float64 } // nanoseconds of processor time
	Throughput map[string]float64                        // evaluations a second of it
}

// mlx compares a call of the MLX bindings with cgo's of the same function in
// the same process, and work through them with MLX's Python package, taking
// turns. The best of each counts: other work on the machine only slows.
func (b bench) mlx(ctx context.Context) error {
	if b.python == "" {
		return nil
	}
	calls := map[string][2]float64{}
	var ours, peers []mlxResult
	for range 5 {
		o, err := b.mlxRun(ctx, "bin/mlxbench")
		if err != nil {
			return err
		}
		p, err := b.mlxRun(ctx, b.python, "scripts/mlxbench/peer.py")
		if err != nil {
			return err
		}
		ours, peers = append(ours, o), append(peers, p)
		for name, c := range o.Calls {
			best, ok := calls[name]
			if !ok {
				best = [2]float64{c.Binding, c.Cgo}
			}
			calls[name] = [2]float64{min(best[0], c.Binding), min(best[1], c.Cgo)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		c := calls[name]
		fmt.Printf("MLX call, %s: %.0f ns; cgo %.0f ns; %.0f ns above\n", name, c[0], c[1], c[0]-c[1]) //nolint:forbidigo // a command's output
	}
	for _, name := range slices.Sorted(maps.Keys(ours[0].Throughput)) {
		o, p := fastest(ours, name), fastest(peers, name)
		fmt.Printf("MLX, %s: %.1f a second; its Python package %.1f; ratio %.2f\n", name, o, p, o/p) //nolint:forbidigo // a command's output
	}
	return nil
}

func (b bench) mlxRun(ctx context.Context, args ...string) (mlxResult, error) {
	var out mlxResult
	res, err := b.do(ctx, args...)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(res.Stdout, &out); err != nil {
		return out, fmt.Errorf("reading what %s measured: %w", args[0], err)
	}
	return out, nil
}

func fastest(all []mlxResult, name string) float64 {
	best := 0.0
	for _, r := range all {
		best = max(best, r.Throughput[name])
	}
	return best
}
