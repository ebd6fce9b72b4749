// Package cache holds what attention remembers of the tokens before: keys and
// values, a layer each.
//
// Buffers grow in steps of 256 tokens, so that most steps write in place. A
// layer with a window forgets what no query can see any more. A cache can be
// taken back by as many tokens as it still holds; what it can't take back it
// refuses. It belongs to the thread that its arrays belong to.
package cache

import (
	"fmt"

	"payload/mlx"
)

// Step is by how many tokens a buffer grows.
const Step = 256

// A RollbackError says that a layer no longer holds what it would have to show
// again.
type RollbackError struct {
	Tokens int // to be taken back
	Offset int // tokens seen
	Window int // of the layer
}

func (e *RollbackError) Error() string {
	return fmt.Sprintf("taking %d of %d tokens back: the layer sees %d tokens and has dropped those before", e.Tokens, e.Offset, e.Window)
}

// Cache is the memory of one sequence, or of a batch of equally long ones.
type Cache struct{ Layers []*KV }

// New makes a cache of layers that see everything (0) or a window of tokens.
func New(windows ...int) *Cache {
	c := &Cache{}
	for _, w := range windows {
		c.Layers = append(c.Layers, &KV{window: w})
	}
	return c
}

// Offset is the number of tokens seen.
func (c *Cache) Offset() int {
	if len(c.Layers) == 0 {
		return 0
	}
	return c.Layers[0].offset
}

// Expect says how many tokens are known to come, all told. Positions of a model
// that has others for long texts are then the same however a prompt is cut.
func (c *Cache) Expect(tokens int) {
	for _, l := range c.Layers {
		l.expected = tokens
	}
}

// CanTrim tells whether n tokens can be taken back, with *RollbackError where
// they can't.
func (c *Cache) CanTrim(n int) error {
	for _, l := range c.Layers {
		if err := l.canTrim(n); err != nil {
			return err
		}
	}
	return nil
}

// Trim takes the last n tokens back, in every layer or in none.
func (c *Cache) Trim(n int) error {
	if err := c.CanTrim(n); err != nil {
		return err
	}
	for _, l := range c.Layers {
		l.end -= n
		l.offset -= n
	}
	return nil
}

// Arrays lists the buffers, for evaluating.
func (c *Cache) Arrays() []*mlx.Array {
	var out []*mlx.Array
	for _, l := range c.Layers {
		if l.keys != nil {
			out = append(out, l.keys, l.values)
		}
	}
	return out
}

// Bytes is the size of the buffers.
func (c *Cache) Bytes() int64 {
	var n int64
	for _, a := range c.Arrays() {
		n += int64(a.Bytes())
	}
	return n
}

// Free gives the buffers up. The cache is empty after, and can be used again.
func (c *Cache) Free() {
	for _, l := range c.Layers {
		l.keys.Free()
		l.values.Free()
		*l = KV{window: l.window}
	}
}

// KV is one layer's memory. Tokens lie in the buffers in their order.
type KV struct {
	keys, values *mlx.Array // [batch, heads, capacity, features]
	window       int        // tokens that a query sees, its own included; 0 is all
	end          int        // tokens in the buffers
	offset       int        // tokens seen, the position of the next
	expected     int        // tokens that are known to come, all told
}

// Offset is the number of tokens seen: the position of the next one.
func (c *KV) Offset() int { return c.offset }

// Length is how long the text is with n more tokens, as far as is known.
func (c *KV) Length(n int) int { return max(c.expected, c.offset+n) }

// Window is how many tokens a query sees, its own included; 0 is all.
func (c *KV) Window() int { return c.window }

// Mask says what each of length new queries sees of the keys that Update will
// give: nothing is hidden from a single one.
func (c *KV) Mask(s *mlx.Scope, length int) mlx.Attention {
	switch {
	case length == 1:
		return mlx.Attention{}
	case c.window == 0 || c.offset+length <= c.window:
		return mlx.Attention{Causal: true}
	}
	keys := min(c.offset, c.window-1) + length
	query := s.ExpandDims(s.Arange(mlx.Int32, float64(keys-length), float64(keys), 1), 1)
	key := s.ExpandDims(s.Arange(mlx.Int32, 0, float64(keys), 1), 0)
	past := s.LessEqual(key, query)
	near := s.Less(query, s.Add(key, s.Scalar(float64(c.window), mlx.Int32)))
	return mlx.Attention{Mask: s.LogicalAnd(past, near)}
}

// Update adds the keys and values [batch, heads, length, features] of new
// tokens and gives those that they may see, their own last. After an error of
// the scope it gives nil and the cache must be freed.
func (c *KV) Update(s *mlx.Scope, k, v *mlx.Array) (keys, values *mlx.Array) {
	if s.Err() != nil {
		return nil, nil
	}
	length := k.Dim(2)
	if c.keys == nil || c.end+length > c.keys.Dim(2) {
		c.grow(s, k, v)
	}
	c.keys = c.write(s, c.keys, k)
	c.values = c.write(s, c.values, v)
	c.end += length
	c.offset += length
	from := 0
	if c.window > 0 {
		from = max(0, c.end-length-(c.window-1))
	}
	return s.SliceAxis(c.keys, 2, from, c.end), s.SliceAxis(c.values, 2, from, c.end)
}

// grow makes room for k behind what can still be seen. Where a window drops
// tokens there is a step to spare, or every token would copy the window.
func (c *KV) grow(s *mlx.Scope, k, v *mlx.Array) {
	from := 0
	if c.window > 0 {
		from = max(0, c.end-(c.window-1))
	}
	held := c.end - from
	capacity := (held + k.Dim(2) + Step - 1) / Step * Step
	if from > 0 {
		capacity += Step
	}
	c.keys = move(s, c.keys, k, from, c.end, capacity)
	c.values = move(s, c.values, v, from, c.end, capacity)
	c.end = held
}

// move gives a buffer of capacity tokens that begins with old's from from to
// before end, and frees old.
func move(s *mlx.Scope, old, like *mlx.Array, from, end, capacity int) *mlx.Array {
	shape := like.Shape()
	if s.Err() != nil || len(shape) != 4 {
		return old
	}
	shape[2] = capacity - (end - from)
	fresh := s.Zeros(like.Dtype(), shape...)
	if end > from {
		fresh = s.Concatenate(2, s.SliceAxis(old, 2, from, end), fresh)
	}
	return replace(s, old, fresh)
}

// write puts new tokens behind the last. MLX writes in place, because nothing
// else refers to the old buffer any more once the graph is computed.
func (c *KV) write(s *mlx.Scope, buffer, update *mlx.Array) *mlx.Array {
	shape := update.Shape()
	if s.Err() != nil || len(shape) != 4 {
		return buffer
	}
	start := []int{0, 0, c.end, 0}
	stop := []int{shape[0], shape[1], c.end + shape[2], shape[3]}
	return replace(s, buffer, s.SliceUpdate(buffer, update, start, stop, nil))
}

func replace(s *mlx.Scope, old, fresh *mlx.Array) *mlx.Array {
	if fresh == nil { // the scope has the error
		return old
	}
	old.Free()
	return s.Keep(fresh)
}

func (c *KV) canTrim(n int) error {
	left := c.offset - n
	if n < 0 || left < 0 {
		return fmt.Errorf("taking %d of %d tokens back", n, c.offset)
	}
	if c.window > 0 && c.end-n < min(left, c.window-1) {
		return &RollbackError{n, c.offset, c.window}
	}
	return nil
}
