// Package gemma2 is the architecture of Gemma 2: norms around attention and MLP,
// capped products and logits, and every other layer slides, the first one too.
package gemma2

import "payload/mlxrunner/model"

func init() { model.Register("gemma2", build) }

type config struct {
	model.Common
	model.GemmaKeys
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	extras, err := cfg.Extras(c, &cfg.Common)
	if err != nil {
		return nil, err
	}
	if cfg.AttentionCap == nil || cfg.FinalCap == nil {
		return nil, c.Fault("attn_logit_softcapping or final_logit_softcapping is missing")
	}
	extras.Windows, err = cfg.Windows(c, func(layer int) int {
		if layer%2 != 0 {
			return 0
		}
		return cfg.Slide()
	})
	if err != nil {
		return nil, err
	}
	return cfg.Decoder(c, w, extras)
}
