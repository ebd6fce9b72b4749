package architectures_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
	"payload/mlxrunner/model"
)

// beside gives a case of Gemma 3's text as it lies beside a part for images: its
// config within another, its tensors under a prefix.
func beside(t *testing.T, s *mlx.Scope, g golden) (json.RawMessage, map[string]*mlx.Array) {
	t.Helper()
	loaded, err := s.LoadSafetensors(checkpoint(t, s, g) + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	arrays := map[string]*mlx.Array{
		"vision_tower.vision_model.embeddings.patch_embedding.weight": mlx.New(s, make([]float32, 8), 2, 2, 2),
		"multi_modal_projector.mm_soft_emb_norm.weight":               mlx.New(s, make([]float32, 4), 4),
	}
	for name, a := range loaded.Arrays {
		arrays["language_model."+name] = a
	}
	var whole map[string]any
	if err := json.Unmarshal(g.Config, &whole); err != nil {
		t.Fatal(err)
	}
	text := maps.Clone(whole)
	delete(text, "quantization")
	delete(text, "vocab_size")
	return with(t, json.RawMessage("{}"), map[string]any{
		"model_type": "gemma3", "text_config": text, "vision_config": map[string]any{"hidden_size": 4}, "vocab_size": whole["vocab_size"],
		"mm_tokens_per_image": 256, "boi_token_index": 5, "eos_token_id": []int{1, 6}, "quantization": whole["quantization"],
	}), arrays
}

// Beside a part for images the text's logits are the same.
func TestTextBesideImages(t *testing.T) {
	for _, name := range []string{"gemma3", "gemma3 scaled", "gemma3_text packed"} {
		s := mlxtest.Scope(t)
		g := find(t, name)
		config, arrays := beside(t, s, g)
		if name == "gemma3_text packed" { // a layer of its own is named with the prefix
			const layer = "model.layers.0.mlp.down_proj"
			g.Config = with(t, g.Config, map[string]any{"quantization": map[string]any{"group_size": 32, "bits": 8, layer: map[string]any{"group_size": 64, "bits": 4}}})
			config, arrays = beside(t, s, g)
			config = with(t, config, map[string]any{"quantization": map[string]any{"group_size": 32, "bits": 8, "language_model." + layer: map[string]any{"group_size": 64, "bits": 4}}})
			g.Logits = logitsOf(t, s, checkpoint(t, s, g), g)
		}
		dir := write(t, s, config, arrays)
		if text := mlxtest.Differ(logitsOf(t, s, dir, g), g.Logits, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
			t.Errorf("%s: %s", name, text)
		}
		read, err := model.ReadConfig(dir)
		if err != nil || read.Vocab != 40 || read.Positions != 4096 || !slices.Equal(read.EOS, []int{1, 6}) {
			t.Errorf("%+v, %v", read, err)
		}
	}
}

func logitsOf(t *testing.T, s *mlx.Scope, dir string, g golden) []float32 {
	t.Helper()
	m, err := model.Load(context.Background(), s, dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return forward(t, s, m, g.Tokens, 9)
}

// What is neither text nor known to be for images is named.
func TestTextBesideImagesFaults(t *testing.T) {
	s := mlxtest.Scope(t)
	g := find(t, "gemma3")
	config, arrays := beside(t, s, g)
	odd := maps.Clone(arrays)
	odd["audio_tower.weight"] = arrays["multi_modal_projector.mm_soft_emb_norm.weight"]
	lacks := maps.Clone(arrays)
	delete(lacks, "language_model.model.norm.weight")
	for _, c := range []struct {
		config json.RawMessage
		arrays map[string]*mlx.Array
		says   string
	}{
		{config, odd, "audio_tower.weight is not one of this architecture's"},
		{config, lacks, "model.norm.weight is missing"},
		{with(t, config, map[string]any{"loops": 2}), arrays, `"loops" = 2 is not read by the architecture "gemma3"`},
		{with(t, config, map[string]any{"text_config": nil}), arrays, "text_config is missing"},
		{with(t, config, map[string]any{"text_config": map[string]any{"hidden_size": 64, "loops": 2}}), arrays, `"loops" = 2 is not read`},
	} {
		if _, err := model.Load(context.Background(), s, write(t, s, c.config, c.arrays), model.Options{}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// The published configs leave out what has always been so.
func TestTextBesideImagesDefaults(t *testing.T) {
	dir := t.TempDir()
	rewrite(t, dir, []byte(`{"model_type":"gemma3","eos_token_id":[1,106],"text_config":{"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text",
		"num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},"vision_config":{},"quantization":{"group_size":64,"bits":4}}`))
	c, err := model.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		model.Common
		model.GemmaKeys
	}
	if err := c.DecodeCommon(&got, &got.Common); err != nil {
		t.Fatal(err)
	}
	if c.Vocab != 262208 || c.Positions != 131072 || got.Heads != 8 || got.Scalar != 256 || c.Quant.Default != (quant.Params{Mode: quant.Affine, Bits: 4, Group: 64}) {
		t.Errorf("%+v, %+v", c, got)
	}
}
