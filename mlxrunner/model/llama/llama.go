// Package llama is the architecture of Llama and Mistral.
package llama

import "payload/mlxrunner/model"

func init() {
	model.Register("llama", build)
	model.Register("mistral", build)
}

type config struct {
	model.Common
	AttentionBias bool `json:"attention_bias"`
	MLPBias       bool `json:"mlp_bias"`
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	// Mistral slides in every layer when it has a window, Llama only in those
	// that layer_types names.
	window := 0
	if c.ModelType == "mistral" {
		window = cfg.Slide()
	} else if cfg.Slide() > 0 && len(cfg.LayerTypes) == 0 {
		return nil, c.Fault("sliding_window is %d, but layer_types does not say which layers slide", cfg.Slide())
	}
	windows, err := cfg.Windows(c, func(int) int { return window })
	if err != nil {
		return nil, err
	}
	return cfg.Decoder(c, w, model.Extras{
		QKVBias: cfg.AttentionBias, OBias: cfg.AttentionBias, MLPBias: cfg.MLPBias,
		Theta: 10000, Windows: windows,
	})
}
