package create

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gofrs/flock"

	"payload/fs/safetensors"
	"payload/mlxrunner/model"
)

// nothing fails a test when something is left of a run that failed.
func nothingIn(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

// What can't be imported is named, and nothing is left.
func TestRefusedGGUF(t *testing.T) {
	llama := originals(t)["llama"]
	for name, c := range map[string]struct {
		change func(w *written)
		says   string
	}{
		"architecture": {func(w *written) { w.meta["general.architecture"] = "mamba" }, `the architecture "mamba" can't be imported from GGUF; known are gemma2, gemma3, llama, qwen2, qwen3, qwen3moe`},
		"key":          {func(w *written) { w.meta["llama.attention.clamp_kqv"] = 8.0 }, "llama.attention.clamp_kqv = 8, which is not read and may change the result"},
		"missing key":  {func(w *written) { delete(w.meta, "llama.block_count") }, "llama.block_count = <nil>, want one number"},
		"mixture":      {func(w *written) { w.meta["llama.expert_count"] = 8 }, "a mixture of 8 experts"},
		"rope":         {func(w *written) { w.meta["llama.rope.scaling.type"] = "spiral" }, `scaled as "spiral"`},
		"dimensions":   {func(w *written) { w.meta["llama.rope.dimension_count"] = 8 }, "heads have 16 features"},
		"layers":       {func(w *written) { w.meta["llama.block_count"] = 1 << 30 }, "1073741824 layers"},
		"tensor":       {func(w *written) { w.add("blk.0.attn_mystery.weight", []int{2}, []float32{1, 2}) }, "the tensor blk.0.attn_mystery.weight is not one that llama is imported with"},
		"adapter":      {func(w *written) { w.meta["general.type"] = "adapter" }, `the type "adapter", not a model`},
		"pre":          {func(w *written) { w.meta["tokenizer.ggml.pre"] = "klingon" }, `"klingon" (tokenizer.ggml.pre), is not known; known are command-r`},
		"no tokens":    {func(w *written) { delete(w.meta, "tokenizer.ggml.tokens") }, "the tokenizer: the file holds none"},
		"tokenizer":    {func(w *written) { w.meta["tokenizer.ggml.model"] = "bert" }, `the kind "bert" is not known`},
		"types":        {func(w *written) { w.meta["tokenizer.ggml.token_type"] = []int{1} }, "40 tokens have 1 types"},
		"rows": {func(w *written) {
			w.meta["tokenizer.ggml.tokens"] = append(w.meta["tokenizer.ggml.tokens"].([]string), "zz")
			w.meta["tokenizer.ggml.token_type"] = append(w.meta["tokenizer.ggml.token_type"].([]int), 1)
		}, "41 tokens, token_embd.weight rows for 40"},
		"bos":      {func(w *written) { w.meta["tokenizer.ggml.bos_token_id"] = 40 }, "bos_token_id is 40 of 40 tokens"},
		"eos":      {func(w *written) { delete(w.meta, "tokenizer.ggml.eos_token_id") }, "no token is named that ends a text"},
		"merges":   {func(w *written) { w.meta["tokenizer.ggml.merges"] = []string{"ab"} }, "merge 1"},
		"infinity": {func(w *written) { w.tensors[3][5] = float32(math.Inf(1)) }, "holds +Inf in row"},
	} {
		t.Run(name, func(t *testing.T) {
			w := llama.asGGUF("llama")
			c.change(w)
			dir := t.TempDir()
			_, err := Run(context.Background(), w.save(t), filepath.Join(dir, "made"), Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nwant %s", err, c.says)
			}
			nothingIn(t, dir)
		})
	}
}

// A type that can't be read is named with those that can.
func TestRefusedType(t *testing.T) {
	path := originals(t)["llama"].asGGUF("llama").save(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The type of the first tensor, [64 64] of F32 before its offset.
	name := "blk.0.attn_k.weight"
	at := strings.Index(string(text), name) + len(name) + 4 + 16
	text[at] = 26 // I32, of the same size
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	var refused *SourceError
	_, err = Run(context.Background(), path, filepath.Join(t.TempDir(), "made"), Options{})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "blk.0.attn_k.weight is I32, which can't be read; F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, BF16 can") {
		t.Errorf("%v", err)
	}
}

func TestRefusedFolder(t *testing.T) {
	good := filepath.Join(tiny, "safetensors")
	for name, c := range map[string]struct {
		change func(dir string) error
		says   string
	}{
		"adapter": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o644)
		}, "it holds an adapter (LoRA)"},
		"architecture": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, model.ConfigName), []byte(`{"model_type":"parrot"}`), 0o644)
		}, `the architecture "parrot" is not known; known are gemma2`},
		"quantised": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, model.ConfigName), []byte(`{"model_type":"llama","quantization":{"bits":4,"group_size":64}}`), 0o644)
		}, "its weights are quantised already, as affine:4:64"},
		"tokenizer": {func(dir string) error { return os.Remove(filepath.Join(dir, "tokenizer.json")) }, "it has no tokenizer.json"},
		"weights":   {func(dir string) error { return os.Remove(filepath.Join(dir, "model.safetensors")) }, "no model*.safetensors"},
		"config":    {func(dir string) error { return os.Remove(filepath.Join(dir, model.ConfigName)) }, "config.json"},
		"banks": {func(dir string) error {
			w, err := safetensors.Create(filepath.Join(dir, "model-2.safetensors"), []safetensors.Tensor{part("model.layers.0.mlp.experts.gate_up_proj", safetensors.F32, 1, 1, 1)}, nil)
			if err == nil {
				_, err = w.To("model.layers.0.mlp.experts.gate_up_proj").Write(make([]byte, 4))
			}
			return errors.Join(err, w.Close())
		}, "the tensor model.layers.0.mlp.experts.gate_up_proj[1 1 1] holds several matrices"},
		"template": {func(dir string) error {
			return os.Symlink("gone", filepath.Join(dir, "chat_template.jinja"))
		}, "a file of it is a link to nothing: stat "},
		"truncated": {func(dir string) error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 100_000) }, "it is truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			src := filepath.Join(t.TempDir(), "src")
			if err := os.CopyFS(src, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			if err := c.change(src); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			_, err := Run(context.Background(), src, filepath.Join(dir, "made"), Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nwant %s", err, c.says)
			}
			nothingIn(t, dir)
		})
	}
}

// Half floats end at 65504.
func TestFloat16Overflow(t *testing.T) {
	w := originals(t)["llama"].asGGUF("llama")
	w.tensors[0][7] = 70000
	_, err := Run(context.Background(), w.save(t), filepath.Join(t.TempDir(), "made"), Options{DType: safetensors.F16})
	if err == nil || !strings.Contains(err.Error(), "70000 is more than float16 holds") {
		t.Errorf("%v", err)
	}
}

// An interrupted run leaves what was there.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "made")
	ctx, stop := context.WithCancel(context.Background())
	_, err := Run(ctx, filepath.Join(tiny, "tiny.gguf"), dst, Options{Progress: func(done, total int64) {
		if done*2 > total {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped at the tensor") {
		t.Errorf("%v", err)
	}
	nothingIn(t, dir)
}

// What is there is kept but with force, and force takes a checkpoint alone.
func TestForce(t *testing.T) {
	src := filepath.Join(tiny, "tiny.gguf")
	dir := t.TempDir()
	dst := filepath.Join(dir, "made")
	ctx := context.Background()
	if _, err := Run(ctx, src, dst, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(ctx, src, dst, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if _, err := Run(ctx, src, dst, Options{Force: true, DType: safetensors.F32}); err != nil {
		t.Error(err)
	}
	if c := configOf(t, dst); c["torch_dtype"] != "float32" {
		t.Errorf("it was not replaced: %v", c)
	}
	if _, err := Run(ctx, filepath.Join(dir, "none"), dst, Options{Force: true}); err == nil || configOf(t, dst) == nil {
		t.Errorf("%v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	other := filepath.Join(dir, "photos")
	if err := os.MkdirAll(filepath.Join(other, "2026"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(ctx, src, other, Options{Force: true}); err == nil || !strings.Contains(err.Error(), "no checkpoint that could be replaced") {
		t.Errorf("%v", err)
	}
}

// What a killed run left is cleared; one that is still writing is not disturbed.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "made")
	left := filepath.Join(dir, ".made.creating")
	if err := os.MkdirAll(filepath.Join(left, "model.safetensors"), 0o755); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(left + ".lock")
	if held, err := lock.TryLock(); !held || err != nil {
		t.Fatal(held, err)
	}
	src := filepath.Join(tiny, "tiny.gguf")
	if _, err := Run(context.Background(), src, dst, Options{}); err == nil || !strings.Contains(err.Error(), "another create is writing it") {
		t.Errorf("%v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), src, dst, Options{}); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A run that is killed between the two renames of --force has moved the old
// checkpoint away: the next one puts it back first, whatever comes of that.
func TestKilledWhileReplacing(t *testing.T) {
	ctx, src := context.Background(), filepath.Join(tiny, "tiny.gguf")
	for _, force := range []bool{false, true} {
		dir := t.TempDir()
		dst := filepath.Join(dir, "made")
		if _, err := Run(ctx, src, dst, Options{}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dst, filepath.Join(dir, ".made.creating.old")); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(ctx, filepath.Join(dir, "none"), dst, Options{Force: force}); err == nil || errors.Is(err, ErrExists) == force {
			t.Errorf("force %v: %v", force, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || configOf(t, dst) == nil {
			t.Errorf("force %v: %v, %v", force, entries, err)
		}
		// And one that was killed after them has left the old one lying there.
		if err := os.Mkdir(filepath.Join(dir, ".made.creating.old"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(ctx, src, dst, Options{Force: true}); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("force %v: %v, %v", force, entries, err)
		}
	}
}

// A source is not deleted to make room for what is made of it.
func TestSourceInItsPlace(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dst, os.DirFS(filepath.Join(tiny, "safetensors"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(tiny, "tiny.gguf"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dst, "tiny.gguf"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{dst, filepath.Join(dst, "tiny.gguf")} {
		var refused *SourceError
		if _, err := Run(context.Background(), src, dst, Options{Force: true}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "which would be replaced") {
			t.Errorf("%v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dst, "tiny.gguf")); err != nil {
		t.Error(err)
	}
}

// A SentencePiece vocabulary takes its merges from scores, bytes where nothing
// else is.
func TestSentencePiece(t *testing.T) {
	w := originals(t)["llama"].asGGUF("llama")
	tokens := []string{"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "abab"}
	kinds := []int{2, 3, 3, 1, 1, 1, 1, 1, 1, 1}
	scores := []float64{0, 0, 0, -9, -8, -7, -1, -2, -3, -4}
	for i := len(tokens); i < 40; i++ {
		tokens, kinds, scores = append(tokens, "<0x"+string("4567"[i/16%4])+string("0123456789ABCDEF"[i%16])+">"), append(kinds, 6), append(scores, 0)
	}
	for key, value := range map[string]any{"model": "llama", "tokens": tokens, "token_type": kinds, "scores": scores, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0} {
		w.meta["tokenizer.ggml."+key] = value
	}
	delete(w.meta, "tokenizer.ggml.pre")
	delete(w.meta, "tokenizer.ggml.merges")
	tok := tokenizerOf(t, w.save(t))
	for text, want := range map[string][]int{
		"ab":      {1, 8},
		"abab":    {1, 8, 6}, // ▁ a b a b: ab and ab first, then ▁ab; abab is worth less
		"ab</s>b": {1, 8, 2, 3, 5},
	} {
		if got, err := tok.Encode(text, true); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v, %v", text, got, want, err)
		}
	}
	if got := tok.Decode([]int{1, 8, 6}, true); got != "abab" {
		t.Errorf("%q", got)
	}
}
