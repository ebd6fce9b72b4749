// Package cache holds what attention remembers of the tokens before: keys and
// values, a layer each.
//
// Buffers grow in steps of 256 tokens, so that most steps write in place. A
// layer with a window forgets what no query can see any more. A cache can be
// taken back by as many tokens as it still holds; what it can't take back it
// refuses. It belongs to the thread that its arrays belong to.
//
// A caller of a model needs New or Model.NewCache, Offset, Trim and Free; Hold
// where it will take tokens back, Fork where a text goes on in two ways, Pack to
// hold less exactly in less memory. A model's attention needs Mask, then Update,
// or UpdatePacked where Packing says so.
package cache

import (
	"errors"
	"fmt"

	"payload/mlx"
	"payload/mlx/quant"
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
type Cache struct {
	Layers []*KV
	// Turn is the length up to which positions mean one thing and past which
	// they mean another (LongRoPE); 0 where there is none.
	Turn int
}

// New makes a cache of layers that see everything (0) or a window of tokens.
func New(windows ...int) *Cache {
	c := &Cache{}
	for _, w := range windows {
		c.Layers = append(c.Layers, &KV{window: w})
	}
	return c
}

// Join gives a view of several caches, a row of a batch each: what a batch adds
// to it, one token a row, each row adds to its own. They may be of different
// lengths, and go on alone or joined to others afterwards; the view holds
// nothing itself. All are of one model.
func Join(rows ...*Cache) *Cache {
	if len(rows) == 1 {
		return rows[0]
	}
	out := &Cache{}
	for i, l := range rows[0].Layers {
		joined := &KV{window: l.window}
		for _, r := range rows {
			joined.rows = append(joined.rows, r.Layers[i])
		}
		out.Layers = append(out.Layers, joined)
	}
	return out
}

// Pack makes an empty cache hold keys and values in groups of few bits, which
// takes a fraction of the memory and is less exact. Only affine groups are
// known. The features of a head must be a whole number of groups.
func (c *Cache) Pack(how quant.Params) error {
	if how.Mode != quant.Affine {
		return fmt.Errorf("packing keys and values as %v: only affine groups are known", how)
	}
	if err := how.Check(); err != nil {
		return fmt.Errorf("packing keys and values: %w", err)
	}
	if c.Offset() != 0 {
		return errors.New("packing keys and values: the cache is not empty")
	}
	for _, l := range c.Layers {
		l.packing = how
	}
	return nil
}

// Hold says that any of the last n tokens may be taken back: layers with a
// window keep so many more from now on.
func (c *Cache) Hold(n int) {
	for _, l := range c.Layers {
		l.slack = n
	}
}

// Fork gives a cache of the first tokens of c, which goes on on its own; c stays
// as it is. Buffers are shared until the fork is written to. Where c can't be
// taken back so far it gives *RollbackError.
func (c *Cache) Fork(s *mlx.Scope, tokens int) (*Cache, error) {
	back := c.Offset() - tokens
	if err := c.CanTrim(back); err != nil {
		return nil, err
	}
	out := &Cache{Turn: c.Turn}
	for _, l := range c.Layers {
		f := *l
		f.end, f.offset, f.shared = l.end-back, tokens, true
		capacity := steps(f.end)
		f.keys, f.values = l.keys.slice(s, 0, capacity).keep(s), l.values.slice(s, 0, capacity).keep(s)
		out.Layers = append(out.Layers, &f)
	}
	if err := s.Err(); err != nil {
		out.Free()
		return nil, err
	}
	return out, nil
}

// Continues tells whether a text of so many tokens, known from its beginning,
// would have its tokens at the positions that c has them at.
func (c *Cache) Continues(tokens int) bool {
	return c.Turn == 0 || c.Offset() == 0 || c.Layers[0].expected > c.Turn == (tokens > c.Turn)
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
		out = l.values.list(l.keys.list(out))
	}
	return out
}

// Bytes is the size of the buffers, without those that a fork shares.
func (c *Cache) Bytes() int64 {
	var n int64
	for _, l := range c.Layers {
		n += l.own()
	}
	return n
}

// Shares tells whether c is a fork whose buffers are another's still.
func (c *Cache) Shares() bool { return len(c.Layers) > 0 && c.Layers[0].shared }

// Needs is the size of the buffers with so many tokens, of which up to chunk
// come at once, and that of the largest layer, which is there twice while it
// grows. It is known once the cache has seen a token, computed or not, and still
// after Free.
func (c *Cache) Needs(tokens, chunk int) (all, largest int64) {
	for _, l := range c.Layers {
		capacity := steps(tokens)
		if l.window > 0 {
			capacity = min(capacity, steps(l.window-1+l.slack+chunk)+Step)
		}
		n := l.width() * int64(capacity)
		all, largest = all+n, max(largest, n)
	}
	return all, largest
}

// Growth is by how many bytes the buffers grow for n more tokens, and how many
// there are beside them at the most while Grow makes them do so.
func (c *Cache) Growth(n int) (more, beside int64) {
	for _, l := range c.Layers {
		if !l.full(n) {
			continue
		}
		from, capacity := l.room(n)
		more += max(0, l.width()*int64(capacity)-l.own())
		blank := capacity - (l.end - from) // which is made, and then copied behind what is held
		for _, width := range []int64{l.form[0].width(), l.form[1].width()} {
			was := l.own() * width / max(1, l.width())
			beside = max(beside, was+width*int64(blank))
		}
	}
	return more, beside
}

// Grow makes room for n more tokens, so that adding them moves nothing. What is
// there twice meanwhile are the keys or the values of one layer: left to Update,
// it would be those of as many layers as are dispatched ahead of what is
// computed. A cache that never saw a token is left to Update, unless it is
// another's Fresh.
func (c *Cache) Grow(s *mlx.Scope, n int) error {
	for _, l := range c.Layers {
		if !l.full(n) {
			continue
		}
		from, capacity := l.room(n)
		for i, b := range []*buffers{&l.keys, &l.values} {
			sub := s.Sub()
			b.move(sub, l.form[i], from, l.end, capacity)
			if err := sub.Close(); err != nil { // before, or what was is there until then
				return err
			}
			if err := s.Eval(b.list(nil)...); err != nil {
				return err
			}
			// Of the pool the next one might get a buffer of nearly twice its size.
			if err := mlx.ClearCache(); err != nil {
				return err
			}
		}
		l.end, l.shared = l.end-from, false
	}
	return nil
}

// Fresh gives an empty cache of the same kind, which knows what a token takes.
func (c *Cache) Fresh() *Cache {
	out := &Cache{Turn: c.Turn}
	for _, l := range c.Layers {
		out.Layers = append(out.Layers, l.fresh())
	}
	return out
}

// Free gives the buffers up. The cache is empty after, and can be used again.
func (c *Cache) Free() {
	for _, l := range c.Layers {
		l.keys.free()
		l.values.free()
		slack := l.slack
		*l = *l.fresh()
		l.slack = slack
	}
}

// KV is one layer's memory. Tokens lie in the buffers in their order.
type KV struct {
	keys, values buffers
	packing      quant.Params // none: they are plain
	window       int          // tokens that a query sees, its own included; 0 is all
	slack        int          // tokens held beyond what the next query sees
	end          int          // tokens in the buffers
	offset       int          // tokens seen, the position of the next
	expected     int          // tokens that are known to come, all told
	form         [2]form      // of keys and values, once a token was seen
	shared       bool         // the buffers are those of what this was forked from
	rows         []*KV        // of a view by Join; nothing else is set then but window
}

// Rows are the layers of the caches that were joined, a row of the batch each;
// nil for a cache of its own. Attention then asks each of them, row by row.
func (c *KV) Rows() []*KV { return c.rows }

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
	case c.rows != nil:
		s.Fail(fmt.Errorf("%d tokens a row: joined caches take one", length))
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

// Packing says how keys and values are packed, if they are: then UpdatePacked
// takes the place of Update.
func (c *KV) Packing() (how quant.Params, packed bool) { return c.packing, c.packing.Bits != 0 }

// Update adds the keys and values [batch, heads, length, features] of new
// tokens and gives those that they may see, their own last. After an error of
// the scope it gives nil and the cache must be freed.
func (c *KV) Update(s *mlx.Scope, k, v *mlx.Array) (keys, values *mlx.Array) {
	if c.rows != nil {
		s.Fail(errors.New("the architecture's attention does not know joined caches"))
	}
	if _, packed := c.Packing(); packed {
		s.Fail(errors.New("the architecture's attention does not know packed keys and values"))
	}
	seenKeys, seenValues := c.add(s, buffers{k}, buffers{v})
	return seenKeys[0], seenValues[0]
}

// UpdatePacked is Update for a cache that packs.
func (c *KV) UpdatePacked(s *mlx.Scope, k, v *mlx.Array) (keys, values mlx.Quantized) {
	for _, a := range []*mlx.Array{k, v} {
		if n := a.Dim(-1); s.Err() == nil && !c.packing.Fits(n) {
			s.Fail(fmt.Errorf("packing keys and values as %v: a head has %d features, which is no whole number of groups", c.packing, n))
		}
	}
	pack := func(a *mlx.Array) buffers {
		q := s.Quantize(a, c.packing)
		return buffers{q.Weights, q.Scales, q.Biases}
	}
	seenKeys, seenValues := c.add(s, pack(k), pack(v))
	return seenKeys.quantized(), seenValues.quantized()
}

func (c *KV) add(s *mlx.Scope, k, v buffers) (keys, values buffers) {
	if s.Err() != nil {
		return buffers{}, buffers{}
	}
	length := k.capacity()
	if c.keys[0] == nil {
		c.form = [2]form{k.form(), v.form()}
	}
	if c.keys[0] == nil || c.end+length > c.keys.capacity() {
		from, capacity := c.room(length)
		c.keys.move(s, c.form[0], from, c.end, capacity)
		c.values.move(s, c.form[1], from, c.end, capacity)
		c.end -= from
	}
	c.shared = false // MLX copies what it can't write to in place
	c.keys.write(s, k, c.end)
	c.values.write(s, v, c.end)
	c.end += length
	c.offset += length
	from := 0
	if c.window > 0 {
		from = max(0, c.end-length-(c.window-1))
	}
	return c.keys.slice(s, from, c.end), c.values.slice(s, from, c.end)
}

// full tells whether buffers of a known form have to be others for n more tokens.
func (c *KV) full(n int) bool {
	return c.width() > 0 && (c.shared || c.keys[0] == nil || c.end+n > c.keys.capacity())
}

// room is what the buffers become for n more tokens: they hold those from from
// on, which can still be seen, and have capacity for so many. Where a window
// drops tokens there is a step to spare, or every token would copy the window.
func (c *KV) room(n int) (from, capacity int) {
	if c.window > 0 {
		from = max(0, c.end-(c.window-1)-c.slack)
	}
	capacity = steps(c.end - from + n)
	if from > 0 {
		capacity += Step
	}
	return from, capacity
}

func (c *KV) fresh() *KV { return &KV{window: c.window, packing: c.packing, form: c.form} }

func (c *KV) width() int64 { return c.form[0].width() + c.form[1].width() }

// own is the size of the buffers that are not shared.
func (c *KV) own() int64 {
	if c.shared {
		return 0
	}
	return c.bytes()
}

func (c *KV) bytes() int64 { return c.keys.bytes() + c.values.bytes() }

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

// steps is n rounded up to whole steps.
func steps(n int) int { return (n + Step - 1) / Step * Step }
