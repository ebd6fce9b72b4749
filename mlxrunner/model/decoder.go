package model

import (
	"encoding/json"
	"fmt"
	"math"

	"payload/mlxrunner/nn"
)

// Common are the keys that decoders of the usual build share. An architecture
// embeds it in the struct that it decodes.
type Common struct {
	Hidden       int             `json:"hidden_size"`
	Layers       int             `json:"num_hidden_layers"`
	Intermediate int             `json:"intermediate_size"`
	Heads        int             `json:"num_attention_heads"`
	KVHeads      int             `json:"num_key_value_heads"`
	HeadDim      int             `json:"head_dim"`
	Eps          *float64        `json:"rms_norm_eps"`
	Act          string          `json:"hidden_act"`
	Theta        *float64        `json:"rope_theta"`
	RopeScaling  json.RawMessage `json:"rope_scaling"`
	Rope         json.RawMessage `json:"rope_parameters"`
	Tied         *bool           `json:"tie_word_embeddings"`
	LayerTypes   []string        `json:"layer_types"`
	Window       *int            `json:"sliding_window"`
}

// DecodeCommon is Decode for a struct that embeds Common, which it checks and
// completes by what follows from other keys.
func (c *Config) DecodeCommon(into any, m *Common) error {
	if err := c.Decode(into); err != nil {
		return err
	}
	return m.complete(c)
}

func (m *Common) complete(c *Config) error {
	if m.KVHeads == 0 {
		m.KVHeads = m.Heads
	}
	if m.HeadDim == 0 && m.Heads > 0 {
		m.HeadDim = m.Hidden / m.Heads
	}
	if m.Act == "" {
		m.Act = "silu"
	}
	if m.Eps == nil {
		return c.Fault("rms_norm_eps is missing")
	}
	if err := c.need(map[string]int{
		"hidden_size": m.Hidden, "num_hidden_layers": m.Layers, "intermediate_size": m.Intermediate,
		"num_attention_heads": m.Heads, "num_key_value_heads": m.KVHeads, "head_dim": m.HeadDim, "vocab_size": c.Vocab,
	}); err != nil {
		return err
	}
	if m.Heads%m.KVHeads != 0 {
		return c.Fault("num_attention_heads %d is no multiple of num_key_value_heads %d", m.Heads, m.KVHeads)
	}
	return nil
}

// Windows says how many tokens each layer sees, by layer_types; without those
// every layer sees what otherwise says, 0 for all.
func (m *Common) Windows(c *Config, otherwise func(layer int) int) ([]int, error) {
	out := make([]int, m.Layers)
	if len(m.LayerTypes) == 0 {
		for i := range out {
			out[i] = otherwise(i)
		}
		return out, nil
	}
	if len(m.LayerTypes) != m.Layers {
		return nil, c.Fault("layer_types names %d layers of %d", len(m.LayerTypes), m.Layers)
	}
	for i, kind := range m.LayerTypes {
		switch kind {
		case "full_attention":
		case "sliding_attention":
			if out[i] = m.Slide(); out[i] == 0 {
				return nil, c.Fault("layer %d slides, but sliding_window is missing", i)
			}
		default:
			return nil, c.Fault("layer_types has %q, which is not known", kind)
		}
	}
	return out, nil
}

// Slide is the window, 0 where there is none.
func (m *Common) Slide() int {
	if m.Window == nil {
		return 0
	}
	return max(0, *m.Window)
}

// Extras are in what the usual decoders differ.
type Extras struct {
	QKVBias, OBias, MLPBias bool
	HeadNorms               bool // q_norm and k_norm, over a head's features
	Fused                   bool // qkv_proj and gate_up_proj, without biases
	Rotated                 int  // features of a head that turn; 0 is all
	Sinks                   bool // of attention, one a head
	Theta                   float64
	Windows                 []int

	// MLP takes a layer's own feed-forward part; nil, or a nil of it, is the
	// usual one.
	MLP func(layer int, act nn.Activation) nn.FeedForward

	Gemma       bool           // norms multiply by 1+w, and stand behind attention and MLP too; embeddings are scaled
	Scale       float64        // of attention; 0 is 1/sqrt(head_dim)
	SoftCap     float64        // of attention; 0 is none
	FinalCap    float64        // of logits; 0 is none
	SlidingRope *nn.RopeParams // of the layers that slide; nil is that of the others
}

// Decoder takes the weights of a decoder of the usual build, by the usual
// names.
func (m *Common) Decoder(c *Config, w *Weights, x Extras) (*nn.Decoder, error) {
	act, err := nn.ActivationOf(m.Act)
	if err != nil {
		return nil, c.Fault("%w", err)
	}
	params, err := c.Rope(m.Rope, m.RopeScaling, m.Theta, x.Theta)
	if err != nil {
		return nil, err
	}
	if x.Rotated == 0 {
		x.Rotated = m.HeadDim
	}
	rope, err := nn.NewRope(w.Scope, x.Rotated, params, w.Keep)
	if err != nil {
		return nil, c.Fault("%w", err)
	}
	sliding := rope
	if x.SlidingRope != nil {
		if sliding, err = nn.NewRope(w.Scope, x.Rotated, *x.SlidingRope, w.Keep); err != nil {
			return nil, c.Fault("%w", err)
		}
	}
	norm := w.RMSNorm
	d := &nn.Decoder{Embed: w.Embedding("model.embed_tokens", c.Vocab, m.Hidden), SoftCap: x.FinalCap}
	if x.Gemma {
		norm = w.RMSNormPlusOne
		d.EmbedScale = math.Sqrt(float64(m.Hidden))
	}
	for i := range m.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		turn := rope
		if x.Windows[i] > 0 {
			turn = sliding
		}
		b := &nn.Block{
			BeforeAttention: norm(at+"input_layernorm", m.Hidden, *m.Eps),
			Attention:       m.attention(w, at+"self_attn.", turn, norm, x),
			MLP:             m.mlp(w, i, act, x),
			Window:          x.Windows[i],
		}
		behind := norm(at+"post_attention_layernorm", m.Hidden, *m.Eps)
		if x.Gemma {
			b.AfterAttention = behind
			b.BeforeMLP = norm(at+"pre_feedforward_layernorm", m.Hidden, *m.Eps)
			b.AfterMLP = norm(at+"post_feedforward_layernorm", m.Hidden, *m.Eps)
		} else {
			b.BeforeMLP = behind // of attention, before the MLP
		}
		d.Blocks = append(d.Blocks, b)
	}
	d.Norm = norm("model.norm", m.Hidden, *m.Eps)
	d.Head = w.Head(m.Tied, d.Embed, m.Hidden, c.Vocab)
	return d, w.Err()
}

func (m *Common) mlp(w *Weights, layer int, act nn.Activation, x Extras) nn.FeedForward {
	if x.MLP != nil {
		if own := x.MLP(layer, act); own != nil {
			return own
		}
	}
	at := fmt.Sprintf("model.layers.%d.mlp.", layer)
	mlp := &nn.MLP{Down: w.Linear(at+"down_proj", m.Intermediate, m.Hidden, x.MLPBias), Act: act}
	if x.Fused {
		parts := w.Fused(at+"gate_up_proj", m.Hidden, m.Intermediate, m.Intermediate)
		mlp.Gate, mlp.Up = parts[0], parts[1]
		return mlp
	}
	mlp.Gate = w.Linear(at+"gate_proj", m.Hidden, m.Intermediate, x.MLPBias)
	mlp.Up = w.Linear(at+"up_proj", m.Hidden, m.Intermediate, x.MLPBias)
	return mlp
}

func (m *Common) attention(w *Weights, at string, rope *nn.Rope, norm func(string, int, float64) *nn.RMSNorm, x Extras) *nn.Attention {
	a := &nn.Attention{
		Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		Scale: float32(1 / math.Sqrt(float64(m.HeadDim))),
		O:     w.Linear(at+"o_proj", m.Heads*m.HeadDim, m.Hidden, x.OBias),
		Rope:  rope, SoftCap: x.SoftCap,
	}
	queries, keys := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	if x.Fused {
		parts := w.Fused(at+"qkv_proj", m.Hidden, queries, keys, keys)
		a.Q, a.K, a.V = parts[0], parts[1], parts[2]
	} else {
		a.Q = w.Linear(at+"q_proj", m.Hidden, queries, x.QKVBias)
		a.K = w.Linear(at+"k_proj", m.Hidden, keys, x.QKVBias)
		a.V = w.Linear(at+"v_proj", m.Hidden, keys, x.QKVBias)
	}
	if x.Scale != 0 {
		a.Scale = float32(x.Scale)
	}
	if x.Sinks {
		a.Sinks = w.Float(at+"sinks", m.Heads)
	}
	if x.HeadNorms {
		a.QNorm = norm(at+"q_norm", m.HeadDim, *m.Eps)
		a.KNorm = norm(at+"k_norm", m.HeadDim, *m.Eps)
	}
	return a
}

// QwenWindow are the keys by which Qwen's models slide: the layers from
// max_window_layers on, and none unless use_sliding_window.
type QwenWindow struct {
	Use  bool `json:"use_sliding_window"`
	From int  `json:"max_window_layers"`
}

// Of gives each layer's window.
func (q QwenWindow) Of(m *Common) func(layer int) int {
	return func(layer int) int {
		if !q.Use || layer < q.From {
			return 0
		}
		return m.Slide()
	}
}

// GemmaKeys are those that Gemma's models share besides.
type GemmaKeys struct {
	Activation   string   `json:"hidden_activation"`
	Scalar       float64  `json:"query_pre_attn_scalar"`
	AttentionCap *float64 `json:"attn_logit_softcapping"`
	FinalCap     *float64 `json:"final_logit_softcapping"`
	Bias         bool     `json:"attention_bias"`
}

// Extras gives what they say; the output is tied to the embeddings.
func (g *GemmaKeys) Extras(c *Config, m *Common) (Extras, error) {
	if g.Scalar <= 0 {
		return Extras{}, c.Fault("query_pre_attn_scalar is %v, or missing", g.Scalar)
	}
	// The older name held another function than the models were made with.
	if m.Act = g.Activation; m.Act == "" {
		m.Act = "gelu_pytorch_tanh"
	}
	if m.Tied == nil {
		tied := true
		m.Tied = &tied
	}
	x := Extras{Gemma: true, Theta: 10000, Scale: 1 / math.Sqrt(g.Scalar), QKVBias: g.Bias, OBias: g.Bias}
	if g.AttentionCap != nil {
		x.SoftCap = *g.AttentionCap
	}
	if g.FinalCap != nil {
		x.FinalCap = *g.FinalCap
	}
	return x, nil
}
