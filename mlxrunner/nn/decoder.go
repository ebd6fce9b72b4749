package nn

import (
	"slices"

	"payload/mlx"
	"payload/mlxrunner/cache"
)

// Block is a layer of a decoder: attention and MLP, a norm before each, and
// what they give added to what they were given.
type Block struct {
	BeforeAttention, BeforeMLP *RMSNorm
	Attention                  *Attention
	MLP                        *MLP
	Window                     int // tokens that a query sees; 0 is all
}

// Decoder is a table of embeddings, blocks, a norm and an output layer. It is
// a model.Model.
type Decoder struct {
	Embed  *Embedding
	Blocks []*Block
	Norm   *RMSNorm
	Head   *Linear
}

// NewCache makes an empty memory.
func (d *Decoder) NewCache() *cache.Cache { return cache.New(d.windows()...) }

func (d *Decoder) windows() []int {
	out := make([]int, len(d.Blocks))
	for i, b := range d.Blocks {
		out[i] = b.Window
	}
	return out
}

// Forward gives logits [batch, length, vocabulary] for tokens [batch, length].
func (d *Decoder) Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array {
	x := d.Embed.Forward(s, tokens)
	sees := Masks(s, c, d.windows(), tokens.Dim(1))
	for i, b := range d.Blocks {
		x = s.Add(x, b.Attention.Forward(s, b.BeforeAttention.Forward(s, x), c.Layers[i], sees[b.Window]))
		x = s.Add(x, b.MLP.Forward(s, b.BeforeMLP.Forward(s, x)))
	}
	return d.Head.Forward(s, d.Norm.Forward(s, x))
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
