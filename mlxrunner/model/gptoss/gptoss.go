// Package gptoss is the architecture of gpt-oss: sinks in attention, every other
// layer slides, and a mixture of experts with biases and a clamped gate.
package gptoss

import (
	"fmt"

	"payload/mlxrunner/model"
	"payload/mlxrunner/nn"
)

func init() { model.Register("gpt_oss", build) }

type config struct {
	model.Common
	AttentionBias *bool    `json:"attention_bias"`
	Experts       int      `json:"num_local_experts"`
	Take          int      `json:"num_experts_per_tok"`
	Same          int      `json:"experts_per_token"` // the older name
	Limit         *float64 `json:"swiglu_limit"`
	Context       int      `json:"initial_context_length"`
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	var cfg config
	if err := c.DecodeCommon(&cfg, &cfg.Common); err != nil {
		return nil, err
	}
	if cfg.Take == 0 {
		cfg.Take = cfg.Same
	}
	switch {
	case cfg.Take <= 0 || cfg.Take > cfg.Experts:
		return nil, c.Fault("num_experts_per_tok %d of num_local_experts %d: not a mixture", cfg.Take, cfg.Experts)
	case cfg.Limit != nil && *cfg.Limit != 7:
		return nil, c.Fault("swiglu_limit is %v; only 7 is known", *cfg.Limit)
	case cfg.AttentionBias != nil && !*cfg.AttentionBias:
		return nil, c.Fault("attention_bias is false, which no gpt-oss has")
	}
	windows, err := cfg.Windows(c, func(layer int) int {
		if layer%2 != 0 {
			return 0
		}
		return cfg.Slide()
	})
	if err != nil {
		return nil, err
	}
	return cfg.Decoder(c, w, model.Extras{
		QKVBias: true, OBias: true, Sinks: true, Theta: 150000, Windows: windows,
		MLP: func(layer int, _ nn.Activation) nn.FeedForward {
			return experts(w, &cfg, fmt.Sprintf("model.layers.%d.mlp.", layer))
		},
	})
}

// experts takes a layer's mixture. The probabilities of those taken add up to
// 1, which is the softmax over them alone that gpt-oss computes.
func experts(w *model.Weights, cfg *config, at string) nn.FeedForward {
	bank := func(name string, in, out int) nn.Bank {
		b := w.Bank(at+"experts.", "", name, cfg.Experts, in, out)
		return b.WithBias(w.Float(at+"experts."+name+".bias", cfg.Experts, out))
	}
	e := &nn.Experts{
		Router: w.Linear(at+"router", cfg.Hidden, cfg.Experts, true),
		Count:  cfg.Experts, Take: cfg.Take, Normalise: true,
		Gated: nn.GatedClamped,
	}
	if w.Has(at + "experts.gate_up_proj_blocks") {
		published(w, cfg, at+"experts.", e)
		return e
	}
	e.Gate = bank("gate_proj", cfg.Hidden, cfg.Intermediate)
	e.Up = bank("up_proj", cfg.Hidden, cfg.Intermediate)
	e.Down = bank("down_proj", cfg.Intermediate, cfg.Hidden)
	return e
}

// published takes matrices as gpt-oss is published: mxfp4 blocks, rows of gate
// and up in turn.
func published(w *model.Weights, cfg *config, at string, e *nn.Experts) {
	part := func(name string, in, out, first, stride int) nn.Bank {
		b := w.Blocks(at+name, cfg.Experts, in, out, first, stride)
		return b.WithBias(w.Interleaved(at+name+"_bias", cfg.Experts, out, first, stride))
	}
	e.Gate = part("gate_up_proj", cfg.Hidden, cfg.Intermediate, 0, 2)
	e.Up = part("gate_up_proj", cfg.Hidden, cfg.Intermediate, 1, 2)
	e.Down = part("down_proj", cfg.Intermediate, cfg.Hidden, 0, 1)
}
