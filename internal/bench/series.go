package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/git"
	"payload/internal/run"
)

// The series of the comparison: how many patches, and what is asked of checking
// them against the tree that they were made on.
const (
	seriesLength = 40
	seriesLimit  = 2 * time.Second
	seriesRatio  = 0.5 // of git am -3
)

// series compares a warm `payload patch check` of many patches with `git am -3`
// of the same patches on the same tree, taking turns. The patches are made from
// the tree itself, the same every time. Missing the target is an error.
func (b bench) series(ctx context.Context, runs int) error {
	dir, err := os.MkdirTemp("", "bench-series-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	repo, work := filepath.Join(dir, "repo"), filepath.Join(dir, "work")
	if err := b.seriesRepo(ctx, repo); err != nil {
		return err
	}
	patches := filepath.Join(repo, "series")
	if err := b.makeSeries(ctx, work, patches); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(patches, "*.patch"))
	if err != nil {
		return err
	}
	if len(files) != seriesLength {
		return fmt.Errorf("making %d patches: %d were made", seriesLength, len(files))
	}
	var ours, peers []time.Duration
	for range runs {
		o, err := b.do(ctx, b.exe, "-C", repo, "patch", "check", "llama.cpp", "--source-kinds", "store")
		if err != nil {
			return err
		}
		if !strings.Contains(string(o.Stdout), ": clean\n") {
			return fmt.Errorf("checking the series: %s", o.Stdout)
		}
		p, err := userGit(ctx, work, append([]string{"am", "-q", "-3"}, files...)...)
		if err != nil {
			return err
		}
		if _, err := userGit(ctx, work, "reset", "-q", "--hard", "base"); err != nil {
			return err
		}
		ours, peers = append(ours, o.Took), append(peers, p.Took)
	}
	o, p := median(ours), median(peers)
	fmt.Printf("payload patch check, %d patches on the real tree, warm, median of %d: %d ms; git am -3 of the same: %d ms; ratio %.2f\n", //nolint:forbidigo // a command's output
		seriesLength, runs, o.Milliseconds(), p.Milliseconds(), o.Seconds()/p.Seconds())
	if o > seriesLimit || o.Seconds() > seriesRatio*p.Seconds() {
		return fmt.Errorf("checking %d patches: %s, and at most %s and %.2f of git am -3 are wanted", seriesLength, o, seriesLimit, seriesRatio)
	}
	return nil
}

// seriesRepo makes a repository that pins what this one does, with another series.
func (b bench) seriesRepo(ctx context.Context, repo string) error {
	if err := os.MkdirAll(filepath.Join(repo, "series"), 0o755); err != nil {
		return err
	}
	pins, err := filepath.Glob("*_VERSION")
	if err != nil {
		return err
	}
	for _, name := range append(pins, "payload.yaml", "payload.lock") {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		own := strings.Replace(string(text), "patches: llama/compat\n", "patches: series\n", 1)
		if name == "payload.yaml" && own == string(text) {
			return errors.New("reading payload.yaml: llama.cpp's series is not in llama/compat")
		}
		if err := os.WriteFile(filepath.Join(repo, name), []byte(own), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// userGit is git in a person's own checkout, with an identity of no one.
func userGit(ctx context.Context, dir string, args ...string) (run.Result, error) {
	env := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@localhost", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
		"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@localhost",
	}
	return run.Do(ctx, run.Cmd{Dir: dir, Args: append([]string{"git"}, args...), Env: env})
}

// makeSeries makes work a checkout of the pristine tree, tagged base, and
// writes the patches of its changed copies.
func (b bench) makeSeries(ctx context.Context, work, patches string) error {
	res, err := b.do(ctx, b.exe, "source", "llama.cpp", "--pristine")
	if err != nil {
		return err
	}
	if _, err := b.do(ctx, "cp", "-a", strings.TrimSpace(string(res.Stdout)), work); err != nil {
		return err
	}
	if _, err := b.do(ctx, "chmod", "-R", "u+w", work); err != nil {
		return err
	}
	if _, err := userGit(ctx, work, "init", "-q", "--template="); err != nil {
		return err
	}
	info := filepath.Join(work, ".git", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(info, "attributes"), []byte(git.Attributes), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"config", "gc.auto", "0"}, {"add", "-A", "-f"}, {"commit", "-q", "-m", "base"}, {"tag", "base"}} {
		if _, err := userGit(ctx, work, args...); err != nil {
			return err
		}
	}
	if err := changes(ctx, work); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"format-patch", "-q", "-o", patches, "-N", "--zero-commit", "--no-signature", "--full-index", "--binary", "base"},
		{"reset", "-q", "--hard", "base"},
	} {
		if _, err := userGit(ctx, work, args...); err != nil {
			return err
		}
	}
	return nil
}

// changes commits one change after the other: a patch touches one to three
// files at one to three places each, and every fourth the largest file, which
// is what people patch. A hash of names and numbers chooses.
func changes(ctx context.Context, work string) error {
	var targets []string
	largest, size := "", int64(0)
	err := filepath.WalkDir(work, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() || !slices.Contains([]string{".c", ".cpp", ".h", ".cu", ".m", ".py"}, filepath.Ext(path)) {
			return nil
		}
		info, err := entry.Info()
		if err == nil && info.Size() > 200 {
			targets = append(targets, path)
			if filepath.Ext(path) == ".cpp" && strings.Contains(path, "/src/") && info.Size() > size {
				largest, size = path, info.Size()
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := range seriesLength {
		for j := range 1 + choose(3, "files", i) {
			path := targets[choose(len(targets), "file", i, j)]
			if i%4 == 0 && j == 0 {
				path = largest
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			lines := strings.SplitAfter(string(text), "\n")
			for k := range 1 + choose(3, "places", i, j) {
				at := choose(len(lines), "line", i, j, k)
				lines[at] = fmt.Sprintf("// change %d of file %d, place %d\n", i, j, k) + lines[at]
			}
			if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
				return err
			}
		}
		if _, err := userGit(ctx, work, "commit", "-q", "-a", "-m", fmt.Sprintf("change %d", i)); err != nil {
			return err
		}
	}
	return nil
}

// choose is a number below n, always the same for the same words.
func choose(n int, words ...any) int {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, words...) // a hash takes everything
	return int(h.Sum64() % uint64(n))
}
