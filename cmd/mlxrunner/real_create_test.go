package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"payload/mlx/mlxtest"
	"payload/mlxrunner/chat"
	"payload/mlxrunner/generate"
)

// SMOLLM2_GGUF names a real model (scripts/create/smollm2). What mlxrunner
// creates of it gives the ids of transformers' tokenizer and mlx-lm's tokens
// (scripts/create/tokens.py).
func TestRealSmolLM2(t *testing.T) {
	file := os.Getenv("SMOLLM2_GGUF")
	if file == "" {
		t.Skip("NOT RUN: SMOLLM2_GGUF names no file: SMOLLM2_GGUF=$(scripts/create/smollm2)")
	}
	mlxtest.Library(t)
	var recorded []struct {
		Prompt      string
		IDs, Tokens []int
	}
	text, err := os.ReadFile("../../create/testdata/smollm2.json")
	if err == nil {
		err = json.Unmarshal(text, &recorded)
	}
	if err != nil || len(recorded) != 20 {
		t.Fatalf("%d prompts are recorded, %v", len(recorded), err)
	}
	dir := filepath.Join(t.TempDir(), "smollm2")
	began := time.Now()
	if code, out, errors := mlxrunner("", "create", file, dir, "--dtype", "float32"); code != exitDone {
		t.Fatalf("%d, %s, %s", code, out, errors)
	}
	t.Logf("created in %v", time.Since(began))
	ctx := context.Background()
	a := &app{stdout: io.Discard, voice: newVoice(io.Discard)}
	s, err := openSession(ctx, a, engineOptions{model: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	began = time.Now()
	total := 0
	for _, c := range recorded {
		ids, err := s.runner.Tok.Encode(c.Prompt, true)
		if err != nil || !slices.Equal(ids, c.IDs) {
			t.Errorf("%q is %v, want %v, %v", c.Prompt, ids, c.IDs, err)
			continue
		}
		r, err := s.generate(ctx, a, generate.Request{Prompt: ids, MaxTokens: 64}, new(chat.Turn), true)
		if err != nil || !slices.Equal(r.Tokens, c.Tokens) {
			t.Errorf("after %q come %v\nwant %v, %v", c.Prompt, r.Tokens, c.Tokens, err)
		}
		total += len(r.Tokens)
	}
	t.Logf("%d prompts, %d tokens in %v", len(recorded), total, time.Since(began))
}
