// Package generate turns a prompt into text: prefill in chunks, the loop that
// decodes, what ends it, and the memory it leaves behind.
//
// It runs on the thread that the model was loaded on. It knows nothing of
// requests over a network, and of conversations only their rendered text.
package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"payload/mlx"
	"payload/mlx/quant"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/constrain"
	"payload/mlxrunner/model"
	"payload/mlxrunner/sample"
	"payload/mlxrunner/tokenizer"
)

const (
	// Chunk is how many tokens of a prompt are computed at once.
	Chunk = 512
	// ReleaseEvery is after how many generated tokens freed buffers go back to
	// the system: as often as the cache of keys and values grows, because each
	// growth leaves buffers behind that nothing fits again.
	ReleaseEvery = cache.Step
)

// What ended a text.
const (
	StopEnd    = "stop"   // an end-of-sequence id or a stop string
	StopLength = "length" // the number of tokens, or the model's context
)

// A Runner generates with one model.
type Runner struct {
	Model   model.Model
	Tok     *tokenizer.Tokenizer
	End     []int // ids that end a text
	Context int   // tokens that prompt and text may have together; 0 has no limit
	Vocab   int

	KV       quant.Params // how keys and values are held, by Pack; none is as they are computed
	Prefixes int          // so many requests are remembered for those that begin alike; 0 is none

	draft    *Runner // guesses for requests that ask for it
	budget   budget
	chunks   costs         // of a prompt's chunks, where there is a budget
	blank    *cache.Cache  // an empty memory that knows what a token takes
	under    []*generation // texts that were begun and have not ended
	prefixes []*prefix     // what was used the longest ago first
	// due tells whether a round that went from before to after generated tokens
	// releases freed buffers. Tests show that another rule lets them pile up.
	due func(before, after int) bool

	lexicon func() (lexicon, error) // made when a grammar is first asked for
}

// Open makes a runner of a loaded model and the files beside it.
func Open(dir string, m *model.Loaded) (*Runner, error) {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	return OpenWith(dir, m, tok)
}

// OpenWith is Open for a tokenizer that was loaded meanwhile.
func OpenWith(dir string, m *model.Loaded, tok *tokenizer.Tokenizer) (*Runner, error) {
	end, err := EndIDs(dir, m.Config, tok)
	if err != nil {
		return nil, err
	}
	r := &Runner{Model: m, Tok: tok, End: end, Context: m.Config.Positions, Vocab: m.Config.Vocab, due: crosses}
	r.lexicon = sync.OnceValues(func() (lexicon, error) { return newLexicon(tok, end) })
	return r, nil
}

// crosses tells whether a multiple of ReleaseEvery lies in (before, after]. A
// round of several tokens may step over it.
func crosses(before, after int) bool { return before/ReleaseEvery != after/ReleaseEvery }

// A Request is what is to be generated.
type Request struct {
	Prompt    []int
	MaxTokens int // 0: as many as the context allows
	Sampling  sample.Settings
	Stop      []string // texts that end it, and are not part of it
	IgnoreEnd bool     // end-of-sequence ids are tokens as any other
	Specials  bool     // special tokens are part of the text, but for those that end it
	Lookup    int      // so many tokens a round are guessed from what came before; 0 guesses none
	Draft     int      // so many tokens a round are guessed by the draft model; 0 guesses none
	Chunk     int      // tokens of a prompt computed at once; 0 is Chunk

	// Grammar is what the text has to be; nil lets it be anything. A text ends
	// where nothing may follow, and may be cut off by MaxTokens or Stop.
	Grammar *constrain.Grammar
}

// A Token is one that was generated.
type Token struct {
	ID      int
	Logprob float64          // where logprobs are asked for
	Top     []sample.Logprob // the likeliest at its place
}

// A Piece is what is sure of the text with the tokens of a round. Either may be
// empty.
type Piece struct {
	Text   string
	Tokens []Token
}

// A Result says how it went.
type Result struct {
	Text       string
	Tokens     []int
	Finish     string // StopEnd or StopLength
	StopText   string // the stop string that was reached
	Prompt     int    // tokens
	Cached     int    // of them taken over from an earlier request
	Rounds     int    // of decoding
	Guessed    int    // tokens that were guessed
	Accepted   int    // and were right
	Prefill    time.Duration
	FirstToken time.Duration // from the start, prefill included
	Decode     time.Duration // after the first token
}

// PrefillRate is prompt tokens a second, 0 where there is nothing to tell. The
// last one is not counted: decoding begins with it. Nor are those taken over.
func (r Result) PrefillRate() float64 { return rate(r.Prompt-1-r.Cached, r.Prefill) }

// DecodeRate is generated tokens a second after the first.
func (r Result) DecodeRate() float64 { return rate(len(r.Tokens)-1, r.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// A ContextError says that a prompt leaves no room.
type ContextError struct{ Prompt, Context int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("a prompt of %d tokens: the model's context is %d, and text needs room too", e.Prompt, e.Context)
}

// Hooks are told how it goes; each may be nil. An error ends the generation.
type Hooks struct {
	Prefill func(done, total int)
	Piece   func(Piece) error
}

// Generate runs a request, on the thread of s. When ctx ends it gives the
// result so far and ctx's error.
func (r *Runner) Generate(ctx context.Context, s *mlx.Scope, q Request, hooks Hooks) (Result, error) {
	g, err := r.open(s, q, hooks)
	if err != nil {
		return Result{}, err
	}
	defer g.drop()
	if err = g.begin(s); err == nil {
		err = g.run(ctx, s)
	}
	return g.close(s, err)
}

// open makes a generation of a request. Close it.
func (r *Runner) open(s *mlx.Scope, q Request, hooks Hooks) (*generation, error) {
	if err := r.check(q); err != nil {
		return nil, err
	}
	g := &generation{Runner: r, Request: q, Hooks: hooks, text: slices.Clone(q.Prompt), start: time.Now()}
	g.result.Prompt = len(q.Prompt)
	g.stopper.stops = q.Stop
	g.stream = r.Tok.Stream(!q.Specials)
	g.limit = q.MaxTokens
	if room := r.Context - len(q.Prompt); r.Context > 0 && (g.limit == 0 || room < g.limit) {
		g.limit = room
	}
	var err error
	if g.guide, err = g.newGuide(); err != nil {
		return nil, err
	}
	if g.sampler, err = sample.New(s, q.Sampling, r.Vocab, q.Prompt); err != nil {
		g.sampler.Free()
		return nil, err
	}
	return g, nil
}

// close ends a generation, which err has ended before its end if there is one.
func (g *generation) close(s *mlx.Scope, err error) (Result, error) {
	if len(g.result.Tokens) > 0 {
		g.result.Decode = time.Since(g.start) - g.result.FirstToken
	}
	return g.result, errors.Join(err, g.leave(s, err))
}

// begin takes over what is remembered of the prompt, and sees that the rest has
// room.
func (g *generation) begin(s *mlx.Scope) (err error) {
	if g.budget.limit > 0 {
		if err = g.measure(s); err != nil {
			return err
		}
	}
	if g.memories, err = g.recall(s, g.Prompt, g.Draft > 0); err != nil {
		return err
	}
	if err = g.admitted(s); errors.Is(err, errNoCopy) {
		g.memories.free()
		g.Forget()
		err = g.admitted(s)
	}
	if err == nil {
		g.under = append(g.under, g)
	}
	return err
}

// admitted sees that the text has room with what is remembered of it.
func (g *generation) admitted(s *mlx.Scope) (err error) {
	g.result.Cached = g.kv.Offset()
	g.kv.Expect(len(g.Prompt))
	g.kv.Hold(g.guesses())
	if g.source, err = g.sourceOf(); err != nil {
		return err
	}
	if err = g.admit(s); err == nil && g.kv.Shares() {
		_, err = g.grow(s, g.kv, 1)
	}
	return err
}

// leave remembers what may be remembered and gives everything else back. A
// round that was under way when the text ended is waited for, or its buffers
// would come into the pool afterwards.
func (g *generation) leave(s *mlx.Scope, err error) error {
	if g.kv != nil {
		_, full := errors.AsType[*MemoryError](err)
		if known := err == nil || full || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); known && s.Err() == nil {
			g.keep(g.text, g.memories)
			g.memories = memories{}
		}
	}
	g.drop()
	return errors.Join(s.Stream().Synchronize(), mlx.ClearCache())
}

// drop frees what a generation holds. It may be called twice: where a panic
// tears it off, nothing else is.
func (g *generation) drop() {
	g.Runner.under = slices.DeleteFunc(g.under, func(o *generation) bool { return o == g })
	g.memories.free()
	g.sampler.Free()
}

func (r *Runner) check(q Request) error {
	switch {
	case len(q.Prompt) == 0:
		return errors.New("the prompt has no tokens")
	case r.Context > 0 && len(q.Prompt) >= r.Context:
		return &ContextError{len(q.Prompt), r.Context}
	case q.MaxTokens < 0 || q.Lookup < 0 || q.Draft < 0 || q.Chunk < 0:
		return fmt.Errorf("a negative number: max tokens %d, lookup %d, draft %d, chunk %d", q.MaxTokens, q.Lookup, q.Draft, q.Chunk)
	case q.Lookup > 0 && q.Draft > 0:
		return errors.New("tokens are guessed by lookup or by a draft model, not by both")
	case q.Draft > 0 && r.draft == nil:
		return errors.New("there is no draft model to guess tokens")
	case slices.Contains(q.Stop, ""):
		return errors.New("an empty stop string")
	}
	for _, id := range q.Prompt {
		if id < 0 || id >= r.Vocab {
			return fmt.Errorf("the prompt has token %d: the model has %d tokens", id, r.Vocab)
		}
	}
	return nil
}

// A generation is one request under way.
type generation struct {
	*Runner
	Request
	Hooks
	memories
	text     []int  // prompt and all that was generated
	source   source // of guesses; nil guesses none
	sampler  *sample.Sampler
	stream   *tokenizer.Stream
	stopper  stopper
	guide    *guide
	limit    int // tokens; 0 has none
	promised int // tokens that there is room for
	start    time.Time
	result   Result
}

func (g *generation) run(ctx context.Context, s *mlx.Scope) error {
	if err := g.prefill(ctx, s); err != nil {
		return err
	}
	switch {
	case g.source != nil:
		return g.speculate(ctx, s)
	case g.guide != nil:
		return g.follow(ctx, s)
	}
	return g.decode(ctx, s)
}

// guesses is how many tokens a round are guessed.
func (g *generation) guesses() int { return g.Lookup + g.Draft }

func (g *generation) sourceOf() (source, error) {
	if g.Lookup > 0 {
		return lookup{}, nil
	}
	if g.Draft == 0 {
		return nil, nil
	}
	by := g.Runner.draft
	if kv := g.memories.draft; kv == nil || !kv.Continues(len(g.Prompt)) {
		fresh, err := by.empty()
		if err != nil {
			return nil, err
		}
		if kv != nil {
			kv.Free()
		}
		g.memories.draft = fresh
	}
	d := &drafter{Runner: by, guide: g.guide, kv: g.memories.draft, sampler: g.sampler, prompt: len(g.Prompt), vocab: g.Vocab}
	d.kv.Expect(len(g.Prompt))
	d.kv.Hold(g.Draft)
	return d, nil
}

// prefill computes all of the prompt but its last token, which the first round
// begins with.
func (g *generation) prefill(ctx context.Context, s *mlx.Scope) error {
	rest := g.Prompt[:len(g.Prompt)-1]
	if err := g.feed(ctx, s, g.Runner, g.kv, rest, g.Hooks.Prefill); err != nil {
		return err
	}
	if d, ok := g.source.(*drafter); ok && (d.Context == 0 || len(g.Prompt) < d.Context) {
		if err := g.feed(ctx, s, d.Runner, d.kv, rest, nil); err != nil {
			return err
		}
	}
	g.result.Prefill = time.Since(g.start)
	return nil
}

// feed brings a model's memory to the end of tokens, in chunks. Only the cache is
// evaluated, so no logits are computed.
func (g *generation) feed(ctx context.Context, s *mlx.Scope, r *Runner, kv *cache.Cache, tokens []int, told func(done, total int)) error {
	for kv.Offset() < len(tokens) {
		if err := g.feedChunk(ctx, s, r, kv, tokens); err != nil {
			return err
		}
		if told != nil {
			told(kv.Offset(), len(tokens))
		}
	}
	return nil
}

func (g *generation) feedChunk(ctx context.Context, s *mlx.Scope, r *Runner, kv *cache.Cache, tokens []int) error {
	done := kv.Offset()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reading the prompt, %d of %d tokens done: %w", done, len(tokens), err)
	}
	n := min(cmp.Or(g.Chunk, Chunk), len(tokens)-done)
	if _, err := g.grow(s, kv, n); err != nil {
		return err
	}
	n, err := g.fit(s, r, done, n)
	if err != nil {
		return err
	}
	return g.compute(s, r, done+n, n, func() error {
		sub := s.Sub()
		defer shut(sub)
		r.Model.Forward(sub, row(sub, tokens[done:done+n]), kv)
		if err := sub.Close(); err != nil {
			return err
		}
		return s.Eval(kv.Arrays()...)
	})
}

// decode makes one token a round. The next round is under way before the
// token of this one is read.
func (g *generation) decode(ctx context.Context, s *mlx.Scope) error {
	var now, next sample.Choice
	defer func() { free(now); free(next) }()
	first := s.Keep(row(s, g.Prompt[len(g.Prompt)-1:]))
	defer first.Free()
	now, err := g.dispatch(s, first, 0)
	for n := 1; err == nil; n++ {
		var ended, full bool
		if g.limit == 0 || n < g.limit {
			if full, err = g.grow(s, g.kv, 1); err == nil && !full {
				next, err = g.dispatch(s, now.Token, n)
			}
		}
		if err == nil {
			ended, err = g.read(ctx, s, now)
		}
		free(now)
		now, next = next, sample.Choice{}
		if err == nil && !ended && full {
			ended, err = true, g.full()
		}
		if ended {
			break
		}
	}
	return err
}

// dispatch starts to compute the token that follows token at a place.
func (g *generation) dispatch(s *mlx.Scope, token *mlx.Array, place int) (sample.Choice, error) {
	sub := s.Sub()
	defer shut(sub)
	logits := g.Model.Forward(sub, sub.Reshape(token, 1, 1), g.kv)
	if place > 0 {
		g.sampler.Accept(sub, token)
	}
	c := g.sampler.Next(sub, sub.Reshape(logits, 1, -1), place)
	return c, launch(s, sub, c.Arrays()...)
}

// launch starts to compute arrays of sub and keeps them, or frees them where
// that fails.
func launch(s, sub *mlx.Scope, arrays ...*mlx.Array) error {
	for _, a := range arrays {
		sub.Keep(a)
	}
	// Closed first, so that MLX can reuse what lies between while it computes.
	err := sub.Close()
	if err == nil {
		err = s.AsyncEval(arrays...)
	}
	if err != nil {
		for _, a := range arrays {
			a.Free()
		}
	}
	return err
}

// shut closes a scope that a panic would leave open; else it is closed by then,
// or its error is given by what is read of it.
func shut(s *mlx.Scope) { _ = s.Close() }

func free(c sample.Choice) {
	for _, a := range c.Arrays() {
		a.Free()
	}
}

func (g *generation) read(ctx context.Context, s *mlx.Scope, c sample.Choice) (ended bool, err error) {
	id, own, top, err := c.Read(s)
	if err != nil {
		return true, err
	}
	g.text = append(g.text, id)
	ended, err = g.deliver([]Token{{ID: id, Logprob: own, Top: top}})
	if err == nil && !ended && ctx.Err() != nil {
		err = g.cancelled(ctx)
	}
	return ended, err
}

func (g *generation) cancelled(ctx context.Context) error {
	return fmt.Errorf("generating, after %d tokens: %w", len(g.result.Tokens), ctx.Err())
}

// deliver ends a round: it takes its tokens into the text up to what ends it,
// and gives freed buffers back where that is due.
func (g *generation) deliver(round []Token) (ended bool, err error) {
	before := len(g.result.Tokens)
	if before == 0 {
		g.result.FirstToken = time.Since(g.start)
	}
	g.result.Rounds++
	var text string
	took := 0
	for _, t := range round {
		took++
		if err := g.guide.read(t.ID); err != nil {
			return true, err
		}
		g.result.Tokens = append(g.result.Tokens, t.ID)
		var more string
		if more, ended = g.take(t.ID); ended {
			text += more
			break
		}
		text += more
	}
	if err := g.emit(text, round[:took]); err != nil {
		return true, err
	}
	if g.due(before, len(g.result.Tokens)) {
		err = mlx.ClearCache()
	}
	return ended, err
}

// take gives the text that is sure with one more token, and whether it ended.
func (g *generation) take(id int) (text string, ended bool) {
	if !g.IgnoreEnd && slices.Contains(g.End, id) {
		g.result.Finish = StopEnd
		return g.rest(""), true
	}
	text, stop := g.stopper.push(g.stream.Push(id))
	if stop != "" {
		g.result.Finish, g.result.StopText = StopEnd, stop
		return text, true
	}
	if g.guide.complete() {
		g.result.Finish = StopEnd
		return g.rest(text), true
	}
	if g.limit > 0 && len(g.result.Tokens) >= g.limit {
		g.result.Finish = StopLength
		return g.rest(text), true
	}
	return text, false
}

// full ends the text where memory does.
func (g *generation) full() error {
	g.result.Finish = StopLength
	return g.emit(g.rest(""), nil)
}

// rest adds to text what the stream and the stopper hold back at the end. What
// the stream gives can still complete a stop.
func (g *generation) rest(text string) string {
	more, stop := g.stopper.push(g.stream.Flush())
	if stop != "" {
		g.result.Finish, g.result.StopText = StopEnd, stop
	}
	return text + more + g.stopper.flush()
}

func (g *generation) emit(text string, tokens []Token) error {
	g.result.Text += text
	if g.Piece == nil || text == "" && len(tokens) == 0 {
		return nil
	}
	return g.Piece(Piece{text, tokens})
}

func row(s *mlx.Scope, ids []int) *mlx.Array {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = uint32(id)
	}
	return mlx.New(s, out, 1, len(ids))
}
