package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"payload/mlxrunner/generate"
)

// An answer is what a request asks for, and how it is told.
type answer struct {
	id, object, chunk string // chunk is the object of a stream's parts
	prompts           [][]int
	n                 int // choices a prompt
	request           generate.Request
	stream            bool
	withUsage         bool // a stream ends with it
	none              bool // nothing is generated
	teller            func(index int) teller
}

// A teller turns what the model writes in one choice into the form of the API.
// It is used by one goroutine.
type teller interface {
	// piece takes what was written and gives a stream's choices for it.
	piece(p generate.Piece) []any
	// end gives a stream's last choices.
	end(finish string) []any
	// whole gives the choice of an answer in one piece, after end.
	whole() any
	// enough tells whether nothing more is wanted.
	enough() bool
	// reasoned is how many tokens were of reasoning.
	reasoned() int
}

// usage counts tokens.
type usage struct {
	Prompt     int               `json:"prompt_tokens"`
	Completion int               `json:"completion_tokens"`
	Total      int               `json:"total_tokens"`
	Details    promptDetails     `json:"prompt_tokens_details"`
	Wrote      completionDetails `json:"completion_tokens_details"`
}

type completionDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

// envelope is what surrounds choices.
type envelope struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

// An event is something that happened to a choice.
type event struct {
	index  int
	piece  generate.Piece
	ended  bool
	result generate.Result
	err    error
}

// A mailbox keeps events until they are taken. Putting never blocks: the model
// waits for no client.
type mailbox struct {
	mu     sync.Mutex
	events []event
	some   chan struct{} // has a token while there are events
}

func newMailbox() *mailbox { return &mailbox{some: make(chan struct{}, 1)} }

func (m *mailbox) put(e event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.some <- struct{}{}:
	default:
	}
}

// take waits for events and gives all there are.
func (m *mailbox) take() []event {
	<-m.some
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.events
	m.events = nil
	return out
}

// respond generates an answer and sends it.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, a *answer) error {
	entry := entryOf(r.Context())
	waiting := time.Now()
	leave, err := s.gate.enter(r.Context())
	entry.queued = time.Since(waiting)
	s.metrics.queue.Update(entry.queued.Seconds())
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &response{server: s, answer: a, w: w, cancel: cancel, entry: entry, created: time.Now()}
	for i := range len(a.prompts) * a.n {
		out.tellers = append(out.tellers, a.teller(i))
	}
	out.choices = make([]any, len(out.tellers))
	if a.none {
		err = out.nothing()
	} else {
		err = out.run(ctx)
	}
	s.metrics.count(out.usage)
	entry.usage, entry.finish = out.usage, out.finish
	if err != nil {
		return out.fail(r.Context(), err)
	}
	return out.close()
}

// A response is an answer on its way.
type response struct {
	*answer
	server  *Server
	w       http.ResponseWriter
	cancel  context.CancelFunc
	entry   *entry
	created time.Time
	tellers []teller
	choices []any // whole ones
	usage   usage
	cached  map[int]int // tokens of a prompt
	finish  string
	begun   bool // a stream's headers were sent
}

// run generates all choices and tells what comes. It returns when the engine
// has let go of each of them.
func (o *response) run(ctx context.Context) error {
	box := newMailbox()
	stops := make([]context.CancelFunc, len(o.tellers))
	var group conc.WaitGroup
	defer group.Wait()
	for i := range o.tellers {
		mine, stop := context.WithCancel(ctx)
		defer stop()
		stops[i] = stop
		group.Go(func() { o.generate(mine, box, i) })
	}
	var first error
	for left := len(o.tellers); left > 0; {
		for _, e := range box.take() {
			if e.ended {
				left--
			}
			if err := o.tell(e, stops[e.index]); err != nil && first == nil {
				first = err
				o.cancel()
			}
		}
		if o.begun && first == nil {
			if first = o.flush(); first != nil {
				o.cancel()
			}
		}
	}
	return first
}

// generate runs one choice. It always ends with an event that says so.
func (o *response) generate(ctx context.Context, box *mailbox, index int) {
	last := event{index: index, ended: true, err: errPanicked}
	defer func() { box.put(last) }()
	q := o.request
	q.Prompt = o.prompts[index/o.n]
	q.Sampling.Seed += uint64(index % o.n) //nolint:gosec // any bits are a seed
	last.result, last.err = o.server.Engine.Submit(ctx, q, generate.Hooks{Piece: func(p generate.Piece) error {
		box.put(event{index: index, piece: p})
		return nil
	}})
}

// tell takes an event into the answer; streams send it.
func (o *response) tell(e event, stop context.CancelFunc) error {
	t := o.tellers[e.index]
	if !e.ended {
		if o.entry.first == 0 {
			o.entry.first = time.Since(o.entry.start)
			o.server.metrics.first.Update(o.entry.first.Seconds())
		}
		if t.enough() {
			return nil
		}
		parts := t.piece(e.piece)
		if t.enough() {
			stop()
		}
		return o.send(parts)
	}
	o.add(e)
	if e.err != nil && !t.enough() {
		return e.err
	}
	o.finish = cmp.Or(e.result.Finish, generate.StopEnd) // none where enough was said
	parts := t.end(o.finish)
	o.choices[e.index] = t.whole()
	return o.send(parts)
}

// add counts a choice's tokens; those of a prompt count once. What one choice
// computed of it the others take over: known before is what none computed.
func (o *response) add(e event) {
	prompt := e.index / o.n
	if o.cached == nil {
		o.cached = map[int]int{}
	}
	known, told := o.cached[prompt]
	if !told {
		o.usage.Prompt += len(o.prompts[prompt])
	}
	if !told || e.result.Cached < known {
		o.usage.Details.Cached += e.result.Cached - known
		o.cached[prompt] = e.result.Cached
	}
	o.usage.Completion += len(e.result.Tokens)
	o.usage.Wrote.Reasoning += o.tellers[e.index].reasoned()
	o.usage.Total = o.usage.Prompt + o.usage.Completion
}

// nothing answers a request that wants its prompt back and no more.
func (o *response) nothing() error {
	o.finish = generate.StopLength
	for i, t := range o.tellers {
		o.add(event{index: i})
		if err := o.send(append(t.piece(generate.Piece{}), t.end(o.finish)...)); err != nil {
			return err
		}
		o.choices[i] = t.whole()
	}
	return nil
}

// send streams parts of the answer, each in an event.
func (o *response) send(parts []any) error {
	if !o.stream {
		return nil
	}
	for _, part := range parts {
		if err := o.event(o.around([]any{part}, nil)); err != nil {
			return err
		}
	}
	return nil
}

func (o *response) around(choices []any, u *usage) any {
	e := envelope{o.id, o.object, o.created.Unix(), o.server.Model.Name, choices, u}
	if !o.stream {
		return e
	}
	e.Object = o.chunk
	if !o.withUsage {
		return e
	}
	// With usage asked for, it is null in all parts but the last.
	return struct {
		envelope
		Usage *usage `json:"usage"`
	}{e, u}
}

// event writes one of a stream.
func (o *response) event(v any) error {
	if !o.begun {
		o.begun = true
		h := o.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // a proxy must not wait for more
		o.w.WriteHeader(http.StatusOK)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a part of a stream: %w", err)
	}
	return o.write(fmt.Sprintf("data: %s\n\n", text))
}

// hasten gives up a client that takes nothing of what follows for too long.
func (o *response) hasten() {
	deadline := time.Now().Add(o.server.WriteTimeout)
	_ = http.NewResponseController(o.w).SetWriteDeadline(deadline) // what has none has no slow clients
}

func (o *response) write(text string) error {
	o.hasten()
	_, err := o.w.Write([]byte(text))
	return o.written(err)
}

func (o *response) flush() error { return o.written(http.NewResponseController(o.w).Flush()) }

func (o *response) written(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// close ends an answer that came to its end.
func (o *response) close() error {
	if !o.stream {
		o.hasten()
		writeJSON(o.w, http.StatusOK, o.around(o.choices, &o.usage))
		return nil
	}
	if o.withUsage {
		if err := o.event(o.around([]any{}, &o.usage)); err != nil {
			return err
		}
	}
	if err := o.write("data: [DONE]\n\n"); err != nil {
		return err
	}
	return o.flush()
}

// fail answers with an error. A stream that has begun has it as its last
// event, and no [DONE].
func (o *response) fail(ctx context.Context, err error) error {
	api := explain(ctx, err)
	if !o.begun || errors.Is(err, errSlow) || errors.Is(err, errGone) {
		return api
	}
	_ = o.event(api)
	_ = o.flush()
	return &sentError{api}
}

// A sentError is one that the client knows of already.
type sentError struct{ api *apiError }

func (e *sentError) Error() string { return e.api.Error() }
func (e *sentError) Unwrap() error { return e.api }
