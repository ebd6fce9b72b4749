package server

import (
	"net/http"
	"unicode/utf8"

	"payload/mlxrunner/generate"
)

// completions answers POST /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r, s.BodyLimit)
	if err != nil {
		return err
	}
	a, err := s.readCompletion(f)
	if err != nil {
		return err
	}
	return s.respond(w, r, a)
}

// defaultTokens is how many tokens a completion gets where it says nothing, as
// in OpenAI's API.
const defaultTokens = 16

func (s *Server) readCompletion(f *fields) (*answer, error) {
	m := s.Model
	a := &answer{id: newID("cmpl-"), object: "text_completion", chunk: "text_completion"}
	f.model(m)
	f.common(m, a)
	echo := f.flag("echo", false)
	low := 1
	if echo {
		low = 0
	}
	a.request.MaxTokens = f.maxTokens("max_tokens", low, defaultTokens, s.MaxTokens)
	a.none = echo && a.request.MaxTokens == 0
	logprobs := f.integer("logprobs", 0, maxTop, -1)
	if logprobs >= 0 && echo {
		f.refuse("logprobs", "with echo it would tell of the prompt too, which is not supported")
	}
	a.request.Sampling.Logprobs = asked(logprobs >= 0, logprobs)
	if best := f.integer("best_of", 1, maxChoices, a.n); best != a.n {
		f.refuse("best_of", "another number than n is not supported")
	}
	if f.text("suffix") != "" {
		f.refuse("suffix", "it is not supported")
	}
	f.structure(a)
	prompts := f.prompts(m, a.n)
	if err := f.done(); err != nil {
		return nil, err
	}
	a.prompts = prompts
	a.teller = func(index int) teller {
		t := &completion{model: m, index: index, logs: logprobs >= 0}
		if echo {
			t.echo = m.Tok.Decode(prompts[index/a.n], true)
		}
		t.at = utf8.RuneCountInString(t.echo)
		return t
	}
	return a, m.fits(prompts)
}

// asked is the sampler's number of likeliest tokens: -1 for the token's own
// probability alone.
func asked(logprobs bool, top int) int {
	switch {
	case !logprobs:
		return 0
	case top == 0:
		return -1
	}
	return top
}

// prompts takes a text, a list of texts, token ids, or a list of lists of them.
func (f *fields) prompts(m *Model, n int) (out [][]int) {
	value := f.raw("prompt")
	var texts []string
	if value == nil {
		f.refuse("prompt", "it is missing")
	} else if text, ok := as[string](value); ok {
		texts = []string{text}
	} else if list, ok := as[[]string](value); ok {
		texts = list
	} else if ids, ok := as[[]int](value); ok {
		out = [][]int{ids}
	} else if out, ok = as[[][]int](value); !ok {
		f.refuse("prompt", "it is %s, want a text, token ids, or a list of either", kindOf(value))
	}
	for _, text := range texts {
		ids, err := m.Tok.Encode(text, true)
		f.fail(err)
		out = append(out, ids)
	}
	if count := len(out); value != nil && (count == 0 || count*n > maxChoices) {
		f.refuse("prompt", "%d prompts with n %d: want 1 to %d choices together", count, n, maxChoices)
	}
	for i, ids := range out {
		f.prompt(m, place("prompt", i), ids)
	}
	return out
}

// prompt checks the tokens of one.
func (f *fields) prompt(m *Model, name string, ids []int) {
	if len(ids) == 0 {
		f.refuse(name, "it has no tokens")
	}
	for _, id := range ids {
		if id < 0 || id >= m.Vocab {
			f.refuse(name, "it has token %d: the model has tokens 0 to %d", id, m.Vocab-1)
			return
		}
	}
}

// fits refuses prompts that leave no room, before anyone waits.
func (m *Model) fits(prompts [][]int) error {
	for _, ids := range prompts {
		if m.Context > 0 && len(ids) >= m.Context {
			return &generate.ContextError{Prompt: len(ids), Context: m.Context}
		}
	}
	return nil
}

// A completion tells a choice of /v1/completions.
type completion struct {
	model  *Model
	index  int
	echo   string // the prompt, until it was told
	logs   bool
	at     int // characters told
	text   string
	log    textLog
	finish string
}

type completionChoice struct {
	Index    int      `json:"index"`
	Text     string   `json:"text"`
	Logprobs *textLog `json:"logprobs"`
	Finish   *string  `json:"finish_reason"`
}

func (c *completion) piece(p generate.Piece) []any {
	choice := completionChoice{Index: c.index, Text: c.echo + p.Text}
	c.echo = ""
	if c.logs {
		var log textLog
		log, c.at = c.model.textLogOf(p.Tokens, c.at)
		choice.Logprobs = &log
		c.log.add(log)
	}
	c.text += choice.Text
	if choice.Text == "" && (choice.Logprobs == nil || len(choice.Logprobs.Tokens) == 0) {
		return nil
	}
	return []any{choice}
}

func (c *completion) end(finish string) []any {
	c.finish = finish
	return []any{completionChoice{Index: c.index, Text: "", Finish: &c.finish}}
}

func (c *completion) whole() any {
	choice := completionChoice{Index: c.index, Text: c.text, Finish: &c.finish}
	if c.logs {
		choice.Logprobs = &c.log
	}
	return choice
}

func (c *completion) enough() bool { return false }

func (c *completion) reasoned() int { return 0 }
