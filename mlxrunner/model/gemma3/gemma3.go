// Package gemma3 is the text part of Gemma 3, alone or beside one for images: Gemma 2's, with norms over each
// head's queries and keys in place of caps, and every sixth layer full, with
// positions of its own.
package gemma3

import (
	"cmp"
	"encoding/json"

	"payload/mlxrunner/model"
	"payload/mlxrunner/nn"
)

func init() {
	model.Register("gemma3_text", build)
	// With images: the text part, as mlx-lm loads it. What its config leaves out
	// are the values that the checkpoints were published without.
	model.RegisterPart("gemma3", model.Part{
		Key: "text_config",
		Defaults: map[string]string{
			"num_attention_heads": "8", "num_key_value_heads": "4", "head_dim": "256", "rms_norm_eps": "1e-6",
			"vocab_size": "262208", "query_pre_attn_scalar": "256", "max_position_embeddings": "131072",
		},
		Beside:  []string{"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index"},
		Prefix:  "language_model.",
		Dropped: []string{"vision_tower.", "multi_modal_projector."},
	}, build)
}

type config struct {
	model.Common
	model.GemmaKeys
	LocalTheta *float64 `json:"rope_local_base_freq"`
	Pattern    int      `json:"sliding_window_pattern"`
	OldPattern int      `json:"_sliding_window_pattern"` // where layer_types are there too
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	x, err := cfg.Extras(c, &cfg.Common)
	if err != nil {
		return nil, err
	}
	if cfg.Slide() == 0 {
		return nil, c.Fault("sliding_window is missing")
	}
	if cfg.Pattern = cmp.Or(cfg.Pattern, cfg.OldPattern); cfg.Pattern <= 0 {
		cfg.Pattern = 6
	}
	x.Windows, err = cfg.Windows(c, func(layer int) int {
		if (layer+1)%cfg.Pattern == 0 {
			return 0
		}
		return cfg.Slide()
	})
	if err != nil {
		return nil, err
	}
	x.HeadNorms, x.Theta = true, 1e6
	local, err := positions(c, &cfg)
	if err != nil {
		return nil, err
	}
	x.SlidingRope = &local
	return cfg.Decoder(c, w, x)
}

// positions reads those of the layers that slide. Newer files hold both kinds
// under rope_parameters, by the kind of layer; those of full layers are left
// in cfg.
func positions(c *model.Config, cfg *config) (nn.RopeParams, error) {
	var kinds struct {
		Full    json.RawMessage `json:"full_attention"`
		Sliding json.RawMessage `json:"sliding_attention"`
	}
	if len(cfg.Rope) > 0 {
		if err := json.Unmarshal(cfg.Rope, &kinds); err != nil {
			return nn.RopeParams{}, c.Fault("rope_parameters: %w", err)
		}
	}
	if kinds.Full != nil && kinds.Sliding != nil {
		cfg.Rope = kinds.Full
	}
	return c.Rope(kinds.Sliding, nil, cfg.LocalTheta, 10000)
}
