// Package qwen3moe is the architecture of Qwen 3 with a mixture of experts.
package qwen3moe

import (
	"fmt"
	"slices"

	"payload/mlxrunner/model"
	"payload/mlxrunner/nn"
)

func init() { model.Register("qwen3_moe", build) }

type config struct {
	model.Common
	model.QwenWindow
	AttentionBias bool  `json:"attention_bias"`
	Experts       int   `json:"num_experts"`
	Take          int   `json:"num_experts_per_tok"`
	Width         int   `json:"moe_intermediate_size"`
	Step          int   `json:"decoder_sparse_step"`
	Plain         []int `json:"mlp_only_layers"`
	Normalise     bool  `json:"norm_topk_prob"`
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	if cfg.Step == 0 {
		cfg.Step = 1
	}
	if cfg.Take <= 0 || cfg.Take > cfg.Experts || cfg.Width <= 0 || cfg.Step < 0 {
		return nil, c.Fault("num_experts_per_tok %d of num_experts %d, moe_intermediate_size %d, decoder_sparse_step %d: not a mixture",
			cfg.Take, cfg.Experts, cfg.Width, cfg.Step)
	}
	windows, err := cfg.Windows(c, cfg.Of(&cfg.Common))
	if err != nil {
		return nil, err
	}
	return cfg.Decoder(c, w, model.Extras{
		QKVBias: cfg.AttentionBias, OBias: cfg.AttentionBias, HeadNorms: true,
		Theta: 1e6, Windows: windows,
		MLP: func(layer int, act nn.Activation) nn.FeedForward {
			if slices.Contains(cfg.Plain, layer) || (layer+1)%cfg.Step != 0 {
				return nil
			}
			at := fmt.Sprintf("model.layers.%d.mlp.", layer)
			return &nn.Experts{
				Router: w.Linear(at+"gate", cfg.Hidden, cfg.Experts, false),
				Count:  cfg.Experts, Take: cfg.Take, Normalise: cfg.Normalise,
				Gate:  w.Bank(at+"switch_mlp.", at+"experts.", "gate_proj", cfg.Experts, cfg.Hidden, cfg.Width),
				Up:    w.Bank(at+"switch_mlp.", at+"experts.", "up_proj", cfg.Experts, cfg.Hidden, cfg.Width),
				Down:  w.Bank(at+"switch_mlp.", at+"experts.", "down_proj", cfg.Experts, cfg.Width, cfg.Hidden),
				Gated: nn.GatedBy(act),
			}
		},
	})
}
