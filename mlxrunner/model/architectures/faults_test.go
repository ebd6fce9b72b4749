package architectures_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlxrunner/model"
)

func find(t *testing.T, name string) golden {
	t.Helper()
	for _, g := range read(t).Cases {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("no case %q", name)
	return golden{}
}

// with gives a config with keys set, or taken out where nil.
func with(t *testing.T, config json.RawMessage, keys map[string]any) json.RawMessage {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(config, &all); err != nil {
		t.Fatal(err)
	}
	for key, value := range keys {
		if all[key] = value; value == nil {
			delete(all, key)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func without(g golden, name string) golden {
	g.Tensors = maps.Clone(g.Tensors)
	delete(g.Tensors, name)
	return g
}

// What a checkpoint lacks, or has too much of, is named.
func TestTensorFaults(t *testing.T) {
	plain := find(t, "llama")
	extra, wrong := without(plain, ""), without(plain, "")
	extra.Tensors["model.layers.2.mlp.up_proj.weight"] = []int{4, 4}
	wrong.Tensors["model.layers.1.mlp.up_proj.weight"] = []int{64, 96}
	biased := without(plain, "")
	biased.Tensors["model.layers.0.self_attn.q_proj.bias"] = []int{64}
	packed := find(t, "affine 4")
	for _, c := range []struct {
		name string
		g    golden
		says []string
	}{
		{"missing", without(plain, "model.layers.1.mlp.up_proj.weight"), []string{"model.layers.1.mlp.up_proj.weight is missing"}},
		{"extra", extra, []string{"model.layers.2.mlp.up_proj.weight is not one of"}},
		{"bias that the config denies", biased, []string{"model.layers.0.self_attn.q_proj.bias is not one of"}},
		{"wrong shape", wrong, []string{"model.layers.1.mlp.up_proj.weight has the shape [64 96], want [96 64]"}},
		{"untied without a head", without(plain, "lm_head.weight"), []string{"lm_head.weight is missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mlxtest.Scope(t)
			_, err := model.Load(context.Background(), s, checkpoint(t, s, c.g), model.Options{})
			var tensor *model.TensorError
			if !errors.As(err, &tensor) {
				t.Errorf("%v is no TensorError", err)
			}
			mlxtest.Fails(t, err, c.says...)
		})
	}
	t.Run("packed, and the config does not say", func(t *testing.T) {
		s := mlxtest.Scope(t)
		dir := checkpoint(t, s, packed)
		rewrite(t, dir, with(t, packed.Config, map[string]any{"quantization": nil}))
		_, err := model.Load(context.Background(), s, dir, model.Options{})
		mlxtest.Fails(t, err, "scales is there, but config.json says nothing")
	})
	t.Run("packed otherwise than the config says", func(t *testing.T) {
		s := mlxtest.Scope(t)
		dir := checkpoint(t, s, packed)
		rewrite(t, dir, with(t, packed.Config, map[string]any{"quantization": map[string]any{"group_size": 32, "bits": 8}}))
		_, err := model.Load(context.Background(), s, dir, model.Options{})
		mlxtest.Fails(t, err, "model.embed_tokens.weight", "affine:8:32")
	})
}

// A key that may change the result and is not understood stops loading.
func TestConfigFaults(t *testing.T) {
	s := mlxtest.Scope(t)
	plain := find(t, "llama")
	dir := checkpoint(t, s, plain)
	for _, c := range []struct {
		keys map[string]any
		says string
	}{
		{map[string]any{"logit_scale": 0.5}, `the key "logit_scale" = 0.5 is not read by the architecture "llama"`},
		{map[string]any{"rope_traditional": true}, `"rope_traditional" = true is not read`},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "spiral"}}, `the rope type "spiral" is not known`},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 2, "twist": 3}}, `the key "twist"`},
		{map[string]any{"rope_scaling": map[string]any{"type": "llama3", "factor": 2}}, "lacks low_freq_factor, high_freq_factor"},
		{map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2}, "rope_parameters": map[string]any{"rope_type": "default"}}, "both rope_parameters and rope_scaling"},
		{map[string]any{"hidden_act": "relu"}, `the activation "relu" is not known`},
		{map[string]any{"sliding_window": 8}, "layer_types does not say"},
		{map[string]any{"layer_types": []string{"full_attention"}}, "names 1 layers of 2"},
		{map[string]any{"layer_types": []string{"full_attention", "chunked_attention"}}, `"chunked_attention", which is not known`},
		{map[string]any{"num_hidden_layers": nil}, "num_hidden_layers is 0, or missing"},
		{map[string]any{"num_key_value_heads": 3}, "is no multiple"},
		{map[string]any{"model_type": "parrot"}, `the architecture "parrot" is not known; known are gemma2, gemma3, gemma3_text, gpt_oss, llama, mistral`},
		{map[string]any{"quantization": map[string]any{"group_size": 32, "bits": 7}}, "config.json"},
	} {
		rewrite(t, dir, with(t, plain.Config, c.keys))
		_, err := model.Load(context.Background(), s, dir, model.Options{})
		mlxtest.Fails(t, err, c.says)
	}
	// What says nothing of the result, or nothing at all, is no fault.
	rewrite(t, dir, with(t, plain.Config, map[string]any{
		"torch_dtype": "float16", "new_thing": false, "other": []int{}, "transformers_version": "5.0", "layer_types": []string{"full_attention", "full_attention"}, "sliding_window": 8,
		"rope_theta": nil, "rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 10000.0},
	}))
	m, err := model.Load(context.Background(), s, dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if text := mlxtest.Differ(forward(t, s, m, plain.Tokens, 24), plain.Logits, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
		t.Error(text)
	}
}

// The output is tied where the config says so, and where it says nothing and
// there is no head of its own.
func TestTied(t *testing.T) {
	untied, tied := find(t, "llama"), find(t, "llama tied")
	for _, c := range []struct {
		name string
		g    golden // its tensors
		keys map[string]any
		want []float32
	}{
		{"unsaid, with a head", untied, map[string]any{"tie_word_embeddings": nil}, untied.Logits},
		{"unsaid, without", tied, map[string]any{"tie_word_embeddings": nil}, tied.Logits},
		{"tied, with a head that is not read", untied, map[string]any{"tie_word_embeddings": true}, tied.Logits},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mlxtest.Scope(t)
			c.g.Config = with(t, c.g.Config, c.keys)
			m, err := model.Load(context.Background(), s, checkpoint(t, s, c.g), model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if text := mlxtest.Differ(forward(t, s, m, c.g.Tokens, 24), c.want, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
				t.Error(text)
			}
		})
	}
}

// A buffer of frequencies that some converters left in is passed over; weights
// may be converted, and loading is told and stopped.
func TestLoading(t *testing.T) {
	s := mlxtest.Scope(t)
	g := without(find(t, "llama"), "")
	g.Tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = []int{8}
	dir := checkpoint(t, s, g)
	before, err := mlx.MemoryInUse()
	if err != nil {
		t.Fatal(err)
	}
	var done, total int64
	half := mlx.BFloat16
	m, err := model.Load(context.Background(), s, dir, model.Options{Float: &half, Progress: func(d, n int64) { done, total = d, n }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if done != total || total != m.Bytes || m.Bytes == 0 {
		t.Errorf("told %d of %d, loaded %d", done, total, m.Bytes)
	}
	// What was converted is not kept beside what it became.
	if memory, err := mlx.MemoryInUse(); err != nil || memory.Active-before.Active > m.Bytes*5/4 {
		t.Errorf("%d bytes for %d of weights, %v", memory.Active-before.Active, m.Bytes, err)
	}
	got := forward(t, s, m, g.Tokens, 24)
	worst := 0.0
	for i := range got {
		worst = max(worst, math.Abs(float64(got[i]-g.Logits[i])))
	}
	if worst == 0 || worst > 0.3 {
		t.Errorf("in bfloat16 the logits are off by %v at most", worst)
	}
	// What was under way then is read to its end before the files are closed.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 {
		if _, err := model.Load(ctx, s, dir, model.Options{Float: &half}); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
	}
	if err := s.Stream().Synchronize(); err != nil {
		t.Fatal(err)
	}
	if err := s.Eval(s.Ones(mlx.Float32, 1)); err != nil {
		t.Errorf("the scope after it: %v", err)
	}
}

// A wrong call is an error, and the model goes on.
func TestAFaultIsAnError(t *testing.T) {
	s := mlxtest.Scope(t)
	g := find(t, "qwen3")
	m, err := model.Load(context.Background(), s, checkpoint(t, s, g), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	kv := m.NewCache()
	bad := mlx.NewScope(s.Stream())
	m.Forward(bad, mlx.New(bad, []float32{1, 2}, 1, 2), kv) // tokens that are no whole numbers
	if err := bad.Close(); err == nil {
		t.Error("no error")
	}
	kv.Free()
	if text := mlxtest.Differ(forward(t, s, m, g.Tokens, 24), g.Logits, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
		t.Error(text)
	}
}

func TestArchitectures(t *testing.T) {
	if got, want := model.Architectures(), []string{"gemma2", "gemma3", "gemma3_text", "gpt_oss", "llama", "mistral", "phi3", "qwen2", "qwen3", "qwen3_moe", "seed_oss"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// docs/adding-a-model.md shows a real architecture; it must be the real one.
func TestTheGuideShowsWhatIsThere(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/adding-a-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"../seedoss/seedoss.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(guide), "```go\n"+string(code)+"```") {
			t.Errorf("the guide does not show %s as it is", file)
		}
	}
}
