// Package qwen2 is the architecture of Qwen 2 and 2.5: Llama's, with biases on
// queries, keys and values.
package qwen2

import "payload/mlxrunner/model"

func init() { model.Register("qwen2", build) }

type config struct {
	model.Common
	model.QwenWindow
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
	return cfg.Decoder(c, w, model.Extras{QKVBias: true, Theta: 1e6, Windows: windows})
}
