// Package seedoss is the architecture of Seed-OSS: Llama's, with biases for
// queries, keys and values alone.
package seedoss

import "payload/mlxrunner/model"

func init() { model.Register("seed_oss", build) }

type config struct {
	model.Common
	AttentionBias    bool `json:"attention_bias"`
	AttentionOutBias bool `json:"attention_out_bias"`
	MLPBias          bool `json:"mlp_bias"`
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	windows, err := cfg.Windows(c, func(int) int { return 0 })
	if err != nil {
		return nil, err
	}
	return cfg.Decoder(c, w, model.Extras{
		QKVBias: cfg.AttentionBias, OBias: cfg.AttentionOutBias, MLPBias: cfg.MLPBias,
		Theta: 10000, Windows: windows,
	})
}
