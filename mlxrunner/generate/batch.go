package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"payload/mlx"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/sample"
)

// A Batch runs requests together. A step computes the next token of every text
// that is under way, so that the weights are read once for all of them; texts
// join and leave between steps, and while one reads its prompt, a chunk a step,
// the others go on. Each text is what it would be alone.
//
// A request that guesses tokens runs alone: it has several a step by itself.
// Requests are begun in the order they came; one whose prompt begins as that of
// a text that is being read waits for it to be read, and goes on from there.
type Batch struct {
	Runner *Runner
	Thread *mlxthread.Thread // on which its model was loaded
	Size   int               // texts at once, at least one
	Draft  int               // tokens a round that the runner's draft guesses for requests that don't say; 0 is none

	mu      sync.Mutex
	waiting []*ticket
	runs    bool // a loop is on its way

	// Of the loop alone.
	texts  []*text
	begins *ticket // was taken, and is no text yet
	stuck  *ticket // waits for a text to end or to be read
}

// A ticket is a request that waits or runs.
type ticket struct {
	Request
	Hooks
	ctx    context.Context
	result Result
	err    error
	done   chan struct{}
}

func (t *ticket) end(r Result, err error) {
	t.result, t.err = r, err
	close(t.done)
}

// A text is one that is under way.
type text struct {
	*generation
	ticket *ticket
	scope  *mlx.Scope
	now    sample.Choice // computed or being computed, and not read yet
	next   sample.Choice // the one behind it
	place  int           // of next
	// logits are what a text with a grammar chooses next from; what it may
	// choose is known when now was read.
	logits *mlx.Array
	last   bool // memory ends behind now
}

// Submit runs a request to its end and gives its result, or what there is of it
// with an error. It may be called from many goroutines at once, but not on the
// batch's thread. Hooks are called on that thread: they must not wait.
func (b *Batch) Submit(ctx context.Context, q Request, hooks Hooks) (Result, error) {
	if q.Draft == 0 && q.Lookup == 0 {
		q.Draft = b.Draft
	}
	t := &ticket{Request: q, Hooks: hooks, ctx: ctx, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, t)
	start := !b.runs
	b.runs = true
	b.mu.Unlock()
	if start {
		go b.run()
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		if b.withdraw(t) {
			return Result{}, left(ctx)
		}
		<-t.done // soon: a text looks at its context at every step
	}
	return t.result, t.err
}

func left(ctx context.Context) error { return fmt.Errorf("waiting for its turn: %w", ctx.Err()) }

// withdraw takes a ticket out of those that wait, and tells whether it did.
func (b *Batch) withdraw(t *ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, t)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

// run is the loop, until nothing is left to do. What breaks it off (a thread
// that was closed, a panic) ends everything that it had.
func (b *Batch) run() {
	idle := false
	err := b.Thread.Do(context.Background(), func(_ context.Context, s *mlx.Scope) error {
		for {
			b.admit(s)
			if idle = len(b.texts) == 0 && b.rest(); idle {
				return nil
			}
			b.step(s)
		}
	})
	if idle {
		return // another loop may be running by now
	}
	b.drop()
	for _, t := range b.texts {
		t.ticket.end(t.result, err)
	}
	if b.begins != nil {
		b.begins.end(Result{}, err)
	}
	b.texts, b.begins, b.stuck = nil, nil, nil
	for !b.rest() {
		if t := b.take(); t != nil {
			t.end(Result{}, err)
		}
	}
}

// drop frees what texts hold that were broken off. A closed thread has nothing
// that could be freed.
func (b *Batch) drop() {
	_ = b.Thread.Do(context.Background(), func(context.Context, *mlx.Scope) error {
		for _, t := range b.texts {
			t.drop()
			_ = t.free() // what broke is told already
		}
		return mlx.ClearCache()
	})
}

// free gives back what a text computes with, and its scope's error.
func (t *text) free() error {
	free(t.now)
	free(t.next)
	t.logits.Free()
	return t.scope.Close()
}

// rest tells whether nothing waits. The next request then starts another loop.
func (b *Batch) rest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = len(b.waiting) > 0
	return !b.runs
}

// take takes the first that waits; nil where there is none, or where it waits
// for a text.
func (b *Batch) take() *ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || b.waiting[0] == b.stuck {
		return nil
	}
	t := b.waiting[0]
	b.waiting = b.waiting[1:]
	return t
}

// admit begins requests while there is room for them.
func (b *Batch) admit(s *mlx.Scope) {
	for len(b.texts) < b.Size {
		t := b.take()
		if t == nil {
			return
		}
		b.begins = t
		switch {
		case t.ctx.Err() != nil:
			t.end(Result{}, left(t.ctx))
		case t.Lookup+t.Draft == 0:
			if b.isRead(t.Prompt) {
				b.wait(t)
			} else {
				b.begin(s, t)
			}
		case len(b.texts) > 0:
			b.wait(t)
		default:
			t.end(b.alone(s, t))
		}
		b.begins = nil
	}
}

// alone runs a request by itself.
func (b *Batch) alone(s *mlx.Scope, t *ticket) (Result, error) {
	own := apart(s)
	defer shut(own)
	return b.Runner.Generate(t.ctx, own, t.Request, t.Hooks)
}

// apart gives a scope whose errors don't become those of s: what befalls a text
// must not end the others.
func apart(s *mlx.Scope) *mlx.Scope { return mlx.NewScope(s.Stream()) }

// isRead tells whether a text reads more of the beginning of a prompt than is
// remembered. As one text reads at a time, waiting for it takes no longer.
func (b *Batch) isRead(prompt []int) bool {
	for _, t := range b.texts {
		if !t.reads() || len(prompt) == 0 || !t.kv.Continues(len(prompt)) {
			continue
		}
		n := common(t.Prompt[:len(t.Prompt)-1], prompt[:len(prompt)-1])
		if _, _, most := b.Runner.remembered(prompt); n >= LeastPrefix && n > most {
			return true
		}
	}
	return false
}

// wait puts a request off until a text ends or was read. One that left
// meanwhile was not found among those that wait.
func (b *Batch) wait(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.ctx.Err() != nil {
		t.end(Result{}, left(t.ctx))
		return
	}
	b.stuck = t
	b.waiting = slices.Insert(b.waiting, 0, t)
}

func (b *Batch) begin(s *mlx.Scope, t *ticket) {
	own, begun := apart(s), false
	g, err := b.Runner.open(own, t.Request, t.Hooks)
	defer func() {
		if begun {
			return
		}
		if g != nil {
			g.drop()
		}
		shut(own)
	}()
	if err != nil {
		t.end(Result{}, err)
		return
	}
	if err = g.begin(own); err == nil {
		begun = true
		b.texts = append(b.texts, &text{generation: g, ticket: t, scope: own})
		return
	}
	r, err := g.close(own, err)
	if _, full := errors.AsType[*MemoryError](err); full && len(b.texts) > 0 {
		b.wait(t)
		return
	}
	t.end(r, err)
}

// step reads a chunk of the first prompt that is not read yet, and computes and
// reads a token of every other text.
func (b *Batch) step(s *mlx.Scope) {
	fed := false
	for _, t := range slices.Clone(b.texts) {
		if t.reads() && (!fed || t.ticket.ctx.Err() != nil) {
			fed = b.feed(t) || fed
		}
	}
	var ready []*text
	for _, t := range slices.Clone(b.texts) {
		if !t.reads() && t.result.Prefill == 0 {
			t.result.Prefill = time.Since(t.start)
			b.stuck = nil // it may have waited for this
		}
		if t.reads() || t.limit > 0 && t.place >= t.limit {
			continue
		}
		// Each grows before the next is asked, and leaves those their promised room.
		if full, err := t.grow(t.scope, t.kv, 1); err != nil {
			b.end(t, err)
		} else if t.last = full; !full {
			ready = append(ready, t)
		}
	}
	err := b.compute(s, ready)
	for _, t := range slices.Clone(b.texts) {
		if err != nil && slices.Contains(ready, t) {
			b.end(t, err)
		} else if ended, err := t.advance(); ended || err != nil {
			b.end(t, err)
		}
	}
}

// feed reads a chunk of a text's prompt, and tells whether it did. Where that
// fails, or the text's context has ended, the text ends.
func (b *Batch) feed(t *text) bool {
	rest := t.Prompt[:len(t.Prompt)-1]
	if err := t.feedChunk(t.ticket.ctx, t.scope, t.Runner, t.kv, rest); err != nil {
		b.end(t, err)
		return false
	}
	if t.Hooks.Prefill != nil {
		t.Hooks.Prefill(t.kv.Offset(), len(rest))
	}
	return true
}

// advance reads the token that was computed, if there is one, and goes on to the
// one behind it. A text with a grammar chooses that now.
func (t *text) advance() (ended bool, err error) {
	if t.now.Token != nil {
		ended, err = t.read(t.ticket.ctx, t.scope, t.now)
		free(t.now)
	}
	t.now, t.next = t.next, sample.Choice{}
	if !ended && err == nil && t.logits != nil {
		t.now, err = t.dispatchOf(t.scope, t.logits, t.place-1)
	}
	t.logits.Free()
	t.logits = nil
	if !ended && err == nil && t.last {
		ended, err = true, t.full()
	}
	return ended, err
}

// reads tells whether the prompt is still to be read.
func (t *text) reads() bool { return t.kv.Offset() < len(t.Prompt)-1 }

// compute starts to compute the next token of each text.
func (b *Batch) compute(s *mlx.Scope, texts []*text) error {
	if len(texts) == 0 {
		return nil
	}
	s = apart(s)
	sub := s.Sub()
	defer shut(sub)
	tokens, caches := make([]*mlx.Array, len(texts)), make([]*cache.Cache, len(texts))
	for i, t := range texts {
		caches[i], tokens[i] = t.kv, t.now.Token
		if t.place == 0 {
			tokens[i] = mlx.New(sub, []uint32{uint32(t.Prompt[len(t.Prompt)-1])})
		}
	}
	logits := b.Runner.Model.Forward(sub, sub.Reshape(sub.Concatenate(0, tokens...), len(texts), 1), cache.Join(caches...))
	logits = sub.Reshape(logits, len(texts), -1)
	var arrays []*mlx.Array
	for i, t := range texts {
		if t.place > 0 {
			t.sampler.Accept(sub, tokens[i])
		}
		own := sub.SliceAxis(logits, 0, i, i+1)
		if t.guide != nil {
			t.logits = own
			arrays = append(arrays, own)
		} else {
			t.next = t.sampler.Next(sub, own, t.place)
			arrays = append(arrays, t.next.Arrays()...)
		}
		t.place++
	}
	if err := launch(s, sub, arrays...); err != nil {
		for _, t := range texts { // launch has freed them
			t.next, t.logits = sample.Choice{}, nil
		}
		return err
	}
	return nil
}

// end takes a text out and gives its result.
func (b *Batch) end(t *text, err error) {
	b.texts = slices.DeleteFunc(b.texts, func(o *text) bool { return o == t })
	b.stuck = nil
	r, err := t.close(t.scope, err)
	if broken := t.free(); err == nil {
		err = broken
	}
	t.ticket.end(r, err)
}
