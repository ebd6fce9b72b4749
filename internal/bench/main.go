// Command bench measures payload against the tools that it stands in for, on
// the same work and in one run, and prints ratios. scripts/bench calls it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/run"
)

func main() {
	runs := flag.Int("runs", 3, "interleaved cold builds of each kind")
	preset := flag.String("preset", "cpu_ci", "the preset whose build folder is used; it must have been built")
	python := flag.String("mlx-python", "", "a Python that has MLX and mlx-lm: only then are the bindings of MLX and mlxrunner measured, with bin/mlxbench and bin/mlxrunner")
	target := flag.String("target", "ggml-cpu-x64", "what the cold builds compile")
	only := flag.String("only", "", "one row alone: mlx, runner, source, series, noop, package or cold")
	flag.Parse()
	b := bench{exe: "bin/payload", preset: *preset, target: *target, python: *python}
	err := b.all(context.Background(), *runs, *only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1) //nolint:forbidigo // this is a main of its own
	}
}

type bench struct {
	exe, preset, target, python string
}

func (b bench) all(ctx context.Context, runs int, only string) error {
	for _, row := range []struct {
		name string
		do   func() error
	}{
		{"mlx", func() error { return b.mlx(ctx) }},
		{"runner", func() error { return b.runner(ctx) }},
		{"source", func() error { return b.source(ctx) }},
		{"series", func() error { return b.series(ctx, 5) }},
		{"noop", func() error { return b.noop(ctx) }},
		{"package", func() error { return b.release(ctx, runs) }},
		{"cold", func() error { return b.cold(ctx, runs) }},
	} {
		if only != "" && only != row.name {
			continue
		}
		if err := row.do(); err != nil {
			return fmt.Errorf("measuring %s: %w", row.name, err)
		}
	}
	return nil
}

func (b bench) do(ctx context.Context, args ...string) (run.Result, error) {
	return run.Do(ctx, run.Cmd{Args: args})
}

// source compares a warm `payload source` with git's own look at the same tree.
func (b bench) source(ctx context.Context) error {
	res, err := b.do(ctx, b.exe, "source", "llama.cpp")
	if err != nil {
		return err
	}
	tree := strings.TrimSpace(string(res.Stdout))
	repo, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(repo) }() // a temporary folder
	git := []string{"git", "--git-dir=" + repo, "--work-tree=" + tree}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A", "-f"}} {
		if _, err := b.do(ctx, append(slices.Clone(git), args...)...); err != nil {
			return err
		}
	}
	var ours, peers []time.Duration
	for range 15 {
		o, err := b.do(ctx, b.exe, "source", "llama.cpp")
		if err != nil {
			return err
		}
		p, err := b.do(ctx, append(slices.Clone(git), "status", "--porcelain", "--ignored")...)
		if err != nil {
			return err
		}
		ours, peers = append(ours, o.Took), append(peers, p.Took)
	}
	o, p := median(ours), median(peers)
	fmt.Printf("payload source, warm: %d ms; git status --ignored on the same tree: %d ms; ratio %.2f\n", //nolint:forbidigo // a command's output
		o.Milliseconds(), p.Milliseconds(), o.Seconds()/p.Seconds())
	return nil
}

// noop compares a build that has nothing to do with ninja's own no-op.
func (b bench) noop(ctx context.Context) error {
	var ours, peers []time.Duration
	for range 7 {
		res, err := b.do(ctx, b.exe, "build", "--preset", b.preset, "--json")
		if err != nil {
			return err
		}
		took := res.Took
		for _, s := range steps(res.Stdout) {
			if s.Name == "verify" {
				took -= time.Duration(s.Seconds * float64(time.Second))
			}
		}
		p, err := b.do(ctx, "ninja", "-C", filepath.Join("build", "llama-server-"+b.preset), "llama-server")
		if err != nil {
			return err
		}
		ours, peers = append(ours, took), append(peers, p.Took)
	}
	o, p := median(ours), median(peers)
	fmt.Printf("payload build with nothing to do, verification apart: %d ms; ninja alone: %d ms; %d ms above\n", //nolint:forbidigo // a command's output
		o.Milliseconds(), p.Milliseconds(), (o - p).Milliseconds())
	return nil
}

type step struct {
	Name    string
	Seconds float64
}

func steps(stdout []byte) []step {
	var report struct{ Builds []struct{ Steps []step } }
	if json.Unmarshal(stdout, &report) != nil || len(report.Builds) == 0 {
		return nil
	}
	return report.Builds[0].Steps
}

// cold compares the processor time of a build from nothing with cmake and
// ninja run by hand on the same tree with the same options, taking turns.
func (b bench) cold(ctx context.Context, runs int) error {
	res, err := b.do(ctx, b.exe, "source", "llama.cpp")
	if err != nil {
		return err
	}
	tree := strings.TrimSpace(string(res.Stdout))
	folder := filepath.Join("build", "llama-server-"+b.preset)
	aside := folder + ".aside"
	if err := os.Rename(folder, aside); err != nil {
		return err
	}
	defer func() {
		_ = os.RemoveAll(folder) // best effort: the folder of the last run
		_ = os.Rename(aside, folder)
	}()
	var ours, peers []time.Duration
	for range runs {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
		o, err := b.do(ctx, b.exe, "build", "--preset", b.preset, "--launcher", "none", "--jobs", "2", "--target", b.target)
		if err != nil {
			return err
		}
		hand, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return err
		}
		var peer time.Duration
		for _, args := range [][]string{
			{"cmake", "-S", "llama/server", "-B", hand, "--preset", b.preset, "-DLLAMA_CPP_SOURCE_DIR=" + tree},
			{"ninja", "-C", hand, "-j", "2", b.target},
		} {
			p, err := b.do(ctx, args...)
			if err != nil {
				return err
			}
			peer += p.CPU
		}
		if err := os.RemoveAll(hand); err != nil {
			return err
		}
		ours, peers = append(ours, o.CPU), append(peers, peer)
	}
	o, p := median(ours), median(peers)
	fmt.Printf("cold build of %s, processor time, median of %d: payload %.1f s; cmake and ninja by hand %.1f s; ratio %.3f\n", //nolint:forbidigo // a command's output
		b.target, runs, o.Seconds(), p.Seconds(), o.Seconds()/p.Seconds())
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
