// Package qwen3 is the architecture of Qwen 3, dense: Llama's, with norms over
// each head's queries and keys.
package qwen3

import "payload/mlxrunner/model"

func init() { model.Register("qwen3", build) }

type config struct {
	model.Common
	model.QwenWindow
	AttentionBias bool `json:"attention_bias"`
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	windows, err := cfg.Windows(c, cfg.Of(&cfg.Common))
	if err != nil {
		return nil, err
	}
	return cfg.Decoder(c, w, model.Extras{
		QKVBias: cfg.AttentionBias, OBias: cfg.AttentionBias, HeadNorms: true,
		Theta: 1e6, Windows: windows,
	})
}
