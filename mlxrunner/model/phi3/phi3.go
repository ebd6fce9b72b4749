// Package phi3 is the architecture of Phi 3, 3.5 and 4: Llama's, with fused
// matrices, positions for a part of a head's features, and LongRoPE.
package phi3

import (
	"encoding/json"
	"strconv"

	"payload/mlxrunner/model"
)

func init() { model.Register("phi3", build) }

type config struct {
	model.Common
	AttentionBias bool     `json:"attention_bias"`
	Partial       *float64 `json:"partial_rotary_factor"`
	Original      int      `json:"original_max_position_embeddings"`
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	if cfg.AttentionBias {
		return nil, c.Fault("attention_bias is true, which no Phi 3 has")
	}
	rotated := cfg.HeadDim
	if cfg.Partial != nil {
		rotated = int(float64(cfg.HeadDim) * *cfg.Partial)
	}
	windows, err := cfg.Windows(c, func(int) int { return cfg.Slide() })
	if err != nil {
		return nil, err
	}
	if cfg.RopeScaling, err = withOriginal(cfg.RopeScaling, cfg.Original); err != nil {
		return nil, c.Fault("rope_scaling: %w", err)
	}
	return cfg.Decoder(c, w, model.Extras{Fused: true, Rotated: rotated, Theta: 10000, Windows: windows})
}

// withOriginal puts the length that the model was trained for beside the
// factors for longer texts, where other architectures have it.
func withOriginal(scaling json.RawMessage, original int) (json.RawMessage, error) {
	var keys map[string]json.RawMessage
	if len(scaling) == 0 || original == 0 {
		return scaling, nil
	}
	if err := json.Unmarshal(scaling, &keys); err != nil || keys == nil {
		return scaling, err
	}
	const name = "original_max_position_embeddings"
	if _, there := keys[name]; !there {
		keys[name] = json.RawMessage(strconv.Itoa(original))
	}
	return json.Marshal(keys)
}
