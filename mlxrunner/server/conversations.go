package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"payload/mlxrunner/chat"
	"payload/mlxrunner/generate"
)

// conversations answers POST /v1/chat/completions.
func (s *Server) conversations(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r, s.BodyLimit)
	if err != nil {
		return err
	}
	a, err := s.readConversation(f)
	if err != nil {
		return err
	}
	return s.respond(w, r, a)
}

func (s *Server) readConversation(f *fields) (*answer, error) {
	m := s.Model
	a := &answer{id: newID("chatcmpl-"), object: "chat.completion", chunk: "chat.completion.chunk"}
	f.model(m)
	f.common(m, a)
	a.request.MaxTokens = f.conversationTokens(s.MaxTokens)
	logs := f.flag("logprobs", false)
	top := f.integer("top_logprobs", 0, maxTop, 0)
	if top > 0 && !logs {
		f.refuse("top_logprobs", "logprobs is not true")
	}
	a.request.Sampling.Logprobs = asked(logs, top)
	// What these ask for beside their neutral value is not to be had.
	f.only("store", "false")
	f.only("service_tier", `"auto"`, `"default"`)
	f.only("modalities", `["text"]`)
	messages := f.messages()
	tools := f.tools(m)
	if structured := f.structure(a); structured && tools.offered() {
		f.refuse("response_format", "with tools it is not supported")
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	prompt, err := m.converse(messages, tools)
	if err != nil {
		return nil, err
	}
	if err := tools.constrain(a); err != nil {
		return nil, err
	}
	a.prompts = [][]int{prompt}
	a.request.Specials = tools.offered() // a call may begin with one
	a.teller = func(index int) teller {
		t := &conversation{model: m, index: index, logs: logs, tools: tools, log: []tokenLog{}}
		if tools.offered() {
			t.parser = tools.parser()
		}
		return t
	}
	return a, m.fits(a.prompts)
}

// conversationTokens takes the limit by either of its names.
func (f *fields) conversationTokens(most int) int {
	old, fresh := "max_tokens", "max_completion_tokens"
	if f.values[old] == nil || string(f.values[old]) == "null" {
		f.raw(old)
		return f.maxTokens(fresh, 1, 0, most)
	}
	if f.raw(fresh) != nil {
		f.refuse(fresh, "%s is there too", old)
	}
	return f.maxTokens(old, 1, 0, most)
}

// A message is one turn, as templates read it.
type message struct {
	Role      string        `json:"role"`
	Content   string        `json:"content"`
	Name      string        `json:"name,omitempty"`
	Reasoning string        `json:"reasoning_content,omitempty"`
	Calls     []messageCall `json:"tool_calls,omitempty"`
	CallID    string        `json:"tool_call_id,omitempty"`
}

type messageCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // templates read an object
	} `json:"function"`
}

func (f *fields) messages() []message {
	var out []message
	list := f.objects("messages")
	for _, inner := range list {
		out = append(out, inner.message())
		f.fail(inner.done())
	}
	if len(list) == 0 {
		f.refuse("messages", "there are none")
	}
	return out
}

func (f *fields) message() message {
	said := f.values["content"]
	m := message{Role: f.text("role"), Content: f.content("content"), Name: f.text("name")}
	switch m.Role {
	case "developer":
		m.Role = "system" // which is how templates know it
	case "system", "user":
	case "assistant":
		m.Reasoning = f.text("reasoning_content")
		m.Calls = f.messageCalls()
		f.only("refusal", `""`)
	case "tool":
		m.CallID = f.text("tool_call_id")
	default:
		f.refuse("role", "it is %.40q, want system, developer, user, assistant or tool", m.Role)
	}
	if m.Role != "assistant" && (said == nil || string(said) == "null") { // who calls tools may say nothing
		f.refuse("content", "it is missing")
	}
	return m
}

// content takes a text, or the texts of a list of parts.
func (f *fields) content(name string) string {
	text, ok := as[string](f.values[name])
	if ok || f.values[name] == nil {
		delete(f.values, name)
		return text
	}
	for _, part := range f.objects(name) {
		part.only("type", `"text"`)
		text += part.text("text")
		f.fail(part.done())
	}
	return text
}

func (f *fields) messageCalls() []messageCall {
	var out []messageCall
	for _, inner := range f.objects("tool_calls") {
		c := messageCall{ID: inner.text("id"), Type: "function"}
		inner.only("type", `"function"`)
		if function := inner.object("function"); function != nil {
			c.Function.Name = function.text("name")
			c.Function.Arguments = objectOf(function.text("arguments"))
			f.fail(function.done())
		} else {
			inner.refuse("function", "it is missing")
		}
		f.fail(inner.done())
		out = append(out, c)
	}
	return out
}

// objectOf gives the object that a text of JSON holds, or else the text. No
// text is no arguments.
func objectOf(text string) json.RawMessage {
	switch trimmed := strings.TrimSpace(text); {
	case trimmed == "":
		return json.RawMessage("{}")
	case trimmed[0] == '{' && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a text always can be
	return quoted
}

// converse gives the prompt of a conversation.
func (m *Model) converse(messages []message, tools *toolbox) ([]int, error) {
	if m.Template == nil {
		return nil, unsupported("messages", "%v: complete a text instead, at /v1/completions", chat.ErrNoTemplate)
	}
	encoded, err := json.Marshal(messages)
	if err != nil {
		return nil, err
	}
	text, err := m.Template.Render(encoded, chat.Options{Tools: tools.declarations()})
	if err != nil {
		return nil, badRequest("messages", "%v", err)
	}
	if tools.offered() {
		without, err := m.Template.Render(encoded, chat.Options{})
		if err == nil && without == text {
			return nil, unsupported("tools", "the checkpoint's chat template does not tell the model of tools")
		}
		text += tools.lead()
	}
	return m.Template.Encode(text)
}

// A conversation tells a choice of /v1/chat/completions.
type conversation struct {
	model  *Model
	index  int
	logs   bool
	tools  *toolbox
	parser *callParser // nil where no tools were offered
	begun  bool
	told   turn
	log    []tokenLog
	finish string
}

// A turn is what the model says, whole or, in a stream, what is added to it.
type turn struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content,omitempty"`
	Calls   []call `json:"tool_calls,omitempty"`
}

// A wholeTurn says what it has nothing of.
type wholeTurn struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
	Calls   []call  `json:"tool_calls,omitempty"`
}

type tokenLogs struct {
	Content []tokenLog `json:"content"`
	Refusal []tokenLog `json:"refusal"`
}

type chunkChoice struct {
	Index    int        `json:"index"`
	Delta    turn       `json:"delta"`
	Logprobs *tokenLogs `json:"logprobs"`
	Finish   *string    `json:"finish_reason"`
}

type wholeChoice struct {
	Index    int        `json:"index"`
	Message  wholeTurn  `json:"message"`
	Logprobs *tokenLogs `json:"logprobs"`
	Finish   string     `json:"finish_reason"`
}

func (c *conversation) piece(p generate.Piece) []any {
	text, calls := p.Text, []call(nil)
	if c.parser != nil {
		text, calls = c.parser.push(p.Text)
	}
	var logs *tokenLogs
	if c.logs {
		more := c.model.logsOf(p.Tokens)
		c.log = append(c.log, more...)
		logs = &tokenLogs{Content: more}
	}
	if text == "" && len(calls) == 0 && (logs == nil || len(logs.Content) == 0) {
		return nil
	}
	return c.add(turn{Content: text, Calls: calls}, logs)
}

// add takes more into the turn, and gives the stream's choices for it. The
// first one says whose turn it is.
func (c *conversation) add(more turn, logs *tokenLogs) []any {
	var out []any
	if !c.begun {
		c.begun = true
		out = append(out, chunkChoice{Index: c.index, Delta: turn{Role: "assistant"}})
	}
	c.told.Content += more.Content
	for _, part := range more.Calls {
		if part.ID != "" {
			c.told.Calls = append(c.told.Calls, part)
		} else {
			c.told.Calls[part.Index].Function.Arguments += part.Function.Arguments
		}
	}
	return append(out, chunkChoice{Index: c.index, Delta: more, Logprobs: logs})
}

func (c *conversation) end(finish string) []any {
	var out []any
	if c.parser != nil {
		if rest := c.parser.flush(); rest != "" {
			out = c.add(turn{Content: rest}, nil)
		}
	}
	c.finish = finish
	if len(c.told.Calls) > 0 && finish != generate.StopLength {
		c.finish = "tool_calls"
	}
	if !c.begun { // nothing was said
		out = append(out, chunkChoice{Index: c.index, Delta: turn{Role: "assistant"}})
	}
	return append(out, chunkChoice{Index: c.index, Finish: &c.finish})
}

func (c *conversation) whole() any {
	choice := wholeChoice{Index: c.index, Finish: c.finish, Message: wholeTurn{Role: "assistant", Calls: slices.Clone(c.told.Calls)}}
	if c.told.Content != "" || len(c.told.Calls) == 0 {
		choice.Message.Content = &c.told.Content
	}
	if c.logs {
		choice.Logprobs = &tokenLogs{Content: c.log}
	}
	return choice
}

// enough tells whether the one call that may be made is complete.
func (c *conversation) enough() bool {
	return c.parser != nil && c.tools.single && c.parser.calls > 0 && !c.parser.open
}
