package nn

import (
	"slices"

	"payload/mlx"
	"payload/mlxrunner/cache"
)

// FeedForward is what a block does to each token on its own.
type FeedForward interface {
	Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array
}

// Block is a layer of a decoder: attention and MLP, a norm before each and,
// for Gemma, one behind, and what they give added to what they were given.
type Block struct {
	BeforeAttention, BeforeMLP *RMSNorm
	AfterAttention, AfterMLP   *RMSNorm // nil for none
	Attention                  *Attention
	MLP                        FeedForward
	Window                     int // tokens that a query sees; 0 is all
}

func (b *Block) forward(s *mlx.Scope, x *mlx.Array, kv *cache.KV, see mlx.Attention) *mlx.Array {
	y := b.Attention.Forward(s, b.BeforeAttention.Forward(s, x), kv, see)
	if b.AfterAttention != nil {
		y = b.AfterAttention.Forward(s, y)
	}
	x = s.Add(x, y)
	y = b.MLP.Forward(s, b.BeforeMLP.Forward(s, x))
	if b.AfterMLP != nil {
		y = b.AfterMLP.Forward(s, y)
	}
	return s.Add(x, y)
}

// Decoder is a table of embeddings, blocks, a norm and an output layer. It is
// a model.Model.
type Decoder struct {
	Embed  *Embedding
	Blocks []*Block
	Norm   *RMSNorm
	Head   *Linear

	EmbedScale float64 // what embeddings are multiplied by; 0 is 1
	SoftCap    float64 // of logits; 0 is none
}

// NewCache makes an empty memory.
func (d *Decoder) NewCache() *cache.Cache {
	c := cache.New(d.windows()...)
	for _, b := range d.Blocks {
		if rope := b.Attention.Rope; rope != nil && rope.long != nil {
			c.Turn = rope.original
		}
	}
	return c
}

func (d *Decoder) windows() []int {
	out := make([]int, len(d.Blocks))
	for i, b := range d.Blocks {
		out[i] = b.Window
	}
	return out
}

// Forward gives logits [batch, length, vocabulary] for tokens [batch, length].
func (d *Decoder) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	if d.single(tokens) {
		return d.step(s, tokens, c)
	}
	x := d.scale(s, d.Embed.Forward(s, tokens))
	sees := Masks(s, c, d.windows(), tokens.Dim(1))
	for i, b := range d.Blocks {
		x = b.forward(s, x, c.Layers[i], sees[b.Window])
	}
	return d.logits(s, x)
}

func (d *Decoder) scale(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if d.EmbedScale == 0 {
		return x
	}
	return s.Multiply(x, s.Like(x, d.EmbedScale))
}

func (d *Decoder) logits(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return softCap(s, d.Head.Forward(s, d.Norm.Forward(s, x)), d.SoftCap)
}

// Masks gives what length new tokens see, by window: layers of one window share
// a mask.
func Masks(s *mlx.Scope, c *cache.Cache, windows []int, length int) map[int]mlx.Attention {
	out := map[int]mlx.Attention{}
	for _, window := range slices.Compact(slices.Sorted(slices.Values(windows))) {
		out[window] = c.Layers[slices.Index(windows, window)].Mask(s, length)
	}
	return out
}
