// Package llama is the architecture of Llama and Mistral.
package llama

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"payload/mlx"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/model"
	"payload/mlxrunner/nn"
)

func init() {
	model.Register("llama", build)
	model.Register("mistral", build)
}

type config struct {
	Hidden        int             `json:"hidden_size"`
	Layers        int             `json:"num_hidden_layers"`
	Intermediate  int             `json:"intermediate_size"`
	Heads         int             `json:"num_attention_heads"`
	KVHeads       int             `json:"num_key_value_heads"`
	HeadDim       int             `json:"head_dim"`
	Eps           *float64        `json:"rms_norm_eps"`
	Act           string          `json:"hidden_act"`
	Theta         *float64        `json:"rope_theta"`
	RopeScaling   json.RawMessage `json:"rope_scaling"`
	Rope          json.RawMessage `json:"rope_parameters"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	Tied          *bool           `json:"tie_word_embeddings"`
	LayerTypes    []string        `json:"layer_types"`
	Window        *int            `json:"sliding_window"`
}

// llama holds what the layers share.
type llama struct {
	embed   *nn.Embedding
	blocks  []*block
	norm    *nn.RMSNorm
	head    *nn.Linear
	windows []int // of each layer; 0 sees everything
}

type block struct {
	before, behind *nn.RMSNorm // of attention
	attention      *nn.Attention
	mlp            *nn.MLP
}

func build(c *model.Config, w *model.Weights) (model.Model, error) {
	cfg, rope, act, err := read(c)
	if err != nil {
		return nil, err
	}
	windows, err := windows(c, cfg)
	if err != nil {
		return nil, err
	}
	turn, err := nn.NewRope(w.Scope, cfg.HeadDim, rope, w.Keep)
	if err != nil {
		return nil, c.Fault("%w", err)
	}
	m := &llama{embed: w.Embedding("model.embed_tokens", c.Vocab, cfg.Hidden), windows: windows}
	for i := range cfg.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		m.blocks = append(m.blocks, &block{
			before: w.RMSNorm(at+"input_layernorm", cfg.Hidden, *cfg.Eps),
			behind: w.RMSNorm(at+"post_attention_layernorm", cfg.Hidden, *cfg.Eps),
			attention: &nn.Attention{
				Heads: cfg.Heads, KVHeads: cfg.KVHeads, HeadDim: cfg.HeadDim,
				Scale: float32(1 / math.Sqrt(float64(cfg.HeadDim))),
				Q:     w.Linear(at+"self_attn.q_proj", cfg.Hidden, cfg.Heads*cfg.HeadDim, cfg.AttentionBias),
				K:     w.Linear(at+"self_attn.k_proj", cfg.Hidden, cfg.KVHeads*cfg.HeadDim, cfg.AttentionBias),
				V:     w.Linear(at+"self_attn.v_proj", cfg.Hidden, cfg.KVHeads*cfg.HeadDim, cfg.AttentionBias),
				O:     w.Linear(at+"self_attn.o_proj", cfg.Heads*cfg.HeadDim, cfg.Hidden, cfg.AttentionBias),
				Rope:  turn,
			},
			mlp: &nn.MLP{
				Gate: w.Linear(at+"mlp.gate_proj", cfg.Hidden, cfg.Intermediate, cfg.MLPBias),
				Up:   w.Linear(at+"mlp.up_proj", cfg.Hidden, cfg.Intermediate, cfg.MLPBias),
				Down: w.Linear(at+"mlp.down_proj", cfg.Intermediate, cfg.Hidden, cfg.MLPBias),
				Act:  act,
			},
		})
	}
	m.norm = w.RMSNorm("model.norm", cfg.Hidden, *cfg.Eps)
	m.head = w.Head(cfg.Tied, m.embed, cfg.Hidden, c.Vocab)
	return m, w.Err()
}

func read(c *model.Config) (cfg config, rope nn.RopeParams, act nn.Activation, err error) {
	if err = c.Decode(&cfg); err != nil {
		return
	}
	if cfg.KVHeads == 0 {
		cfg.KVHeads = cfg.Heads
	}
	if cfg.HeadDim == 0 && cfg.Heads > 0 {
		cfg.HeadDim = cfg.Hidden / cfg.Heads
	}
	if cfg.Act == "" {
		cfg.Act = "silu"
	}
	if cfg.Eps == nil {
		err = c.Fault("rms_norm_eps is missing")
		return
	}
	if err = c.Need(map[string]int{
		"hidden_size": cfg.Hidden, "num_hidden_layers": cfg.Layers, "intermediate_size": cfg.Intermediate,
		"num_attention_heads": cfg.Heads, "head_dim": cfg.HeadDim, "vocab_size": c.Vocab,
	}); err != nil {
		return
	}
	if cfg.Heads%cfg.KVHeads != 0 {
		err = c.Fault("num_attention_heads %d is no multiple of num_key_value_heads %d", cfg.Heads, cfg.KVHeads)
		return
	}
	if act, err = nn.ActivationOf(cfg.Act); err != nil {
		err = c.Fault("%w", err)
		return
	}
	if rope, err = c.Rope(cfg.Rope, cfg.RopeScaling, cfg.Theta, 10000); err != nil {
		return
	}
	return
}

// windows says how many tokens each layer sees. Mistral slides in every layer
// when it has a window; Llama only in those that layer_types names.
func windows(c *model.Config, cfg config) ([]int, error) {
	out := make([]int, cfg.Layers)
	window := 0
	if cfg.Window != nil {
		window = *cfg.Window
	}
	switch {
	case len(cfg.LayerTypes) == 0 && c.ModelType == "mistral":
		for i := range out {
			out[i] = window
		}
		return out, nil
	case len(cfg.LayerTypes) == 0 && window > 0:
		return nil, c.Fault("sliding_window is %d, but layer_types does not say which layers slide", window)
	case len(cfg.LayerTypes) == 0:
		return out, nil
	case len(cfg.LayerTypes) != cfg.Layers:
		return nil, c.Fault("layer_types names %d layers of %d", len(cfg.LayerTypes), cfg.Layers)
	}
	for i, kind := range cfg.LayerTypes {
		switch kind {
		case "full_attention":
		case "sliding_attention":
			if window <= 0 {
				return nil, c.Fault("layer %d slides, but sliding_window is missing", i)
			}
			out[i] = window
		default:
			return nil, c.Fault("layer_types has %q, which is not known", kind)
		}
	}
	return out, nil
}

func (m *llama) NewCache() *cache.Cache { return cache.New(m.windows...) }

func (m *llama) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	x := m.embed.Forward(s, tokens)
	sees := map[int]mlx.Attention{} // by window: the layers share them
	for _, window := range slices.Compact(slices.Sorted(slices.Values(m.windows))) {
		sees[window] = c.Layers[slices.Index(m.windows, window)].Mask(s, tokens.Dim(1))
	}
	for i, b := range m.blocks {
		x = s.Add(x, b.attention.Forward(s, b.before.Forward(s, x), c.Layers[i], sees[m.windows[i]]))
		x = s.Add(x, b.mlp.Forward(s, b.behind.Forward(s, x)))
	}
	return m.head.Forward(s, m.norm.Forward(s, x))
}
