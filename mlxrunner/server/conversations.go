package server

import (
	"encoding/json"
	"maps"
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
	f.only("verbosity", `"medium"`)
	messages := f.messages()
	tools := f.tools(m)
	settings := f.settings(m)
	if structured := f.structure(a); structured && tools.offered() {
		f.refuse("response_format", "with tools it is not supported")
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := tools.constrain(a); err != nil {
		return nil, err
	}
	// A grammar is for the answer, or the call, so that follows without reasoning.
	prompt, before, err := m.converse(messages, tools, settings, a.request.Grammar != nil)
	if err != nil {
		return nil, err
	}
	a.prompts = [][]int{prompt}
	// A call may begin with one.
	a.request.Specials = tools.offered() || m.Template.Specials()
	a.teller = func(index int) teller {
		return &conversation{
			model: m, index: index, logs: logs, tools: tools, log: []tokenLog{},
			turn: m.Template.Turn(before, tools.offered()), parser: tools.parser(),
		}
	}
	return a, m.fits(a.prompts)
}

// settings takes what the template is asked for beside the messages. What it
// does not read is refused.
func (f *fields) settings(m *Model) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	reads := func(name string) bool { return m.Template == nil || m.Template.Mentions(name) } // without one all is refused later
	if given := f.object("chat_template_kwargs"); given != nil {
		for _, name := range slices.Sorted(maps.Keys(given.values)) {
			if !reads(name) || slices.Contains(chat.Reserved, name) {
				f.fail(unsupported(given.prefix+name, "%s: the checkpoint's chat template has no such setting", given.prefix+name))
			}
			if value := given.raw(name); value != nil {
				out[name] = value
			}
		}
	}
	effort := f.text("reasoning_effort")
	value, _ := json.Marshal(effort) // a text always can be
	switch known := slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, effort); {
	case effort == "":
	case !known:
		f.refuse("reasoning_effort", "it is %.40q, want none, minimal, low, medium, high or xhigh", effort)
	case effort == "none" && m.Template != nil && len(m.Template.Thoughtless()) > 0:
		maps.Copy(out, m.Template.Thoughtless())
	case !reads("reasoning_effort"), m.Template != nil && m.Template.Channels() && !slices.Contains([]string{"low", "medium", "high"}, effort):
		f.fail(unsupported("reasoning_effort", "reasoning_effort: the checkpoint's chat template has no %q", effort))
	default:
		out["reasoning_effort"] = value
	}
	return out
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
	Thinking  string        `json:"thinking,omitempty"` // which is gpt-oss's name for it
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
		f.only("annotations", `[]`)
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

// converse gives the prompt of a conversation, and the text that the model's turn
// follows. Where it is to be direct, nothing comes before what is asked for.
func (m *Model) converse(messages []message, tools *toolbox, settings map[string]json.RawMessage, direct bool) (ids []int, before string, err error) {
	if m.Template == nil {
		return nil, "", unsupported("messages", "%v: complete a text instead, at /v1/completions", chat.ErrNoTemplate)
	}
	if m.Template.Channels() {
		messages = apart(messages)
	}
	encoded, err := json.Marshal(messages)
	if err != nil {
		return nil, "", err
	}
	lead := tools.lead()
	ownMessage := lead != "" && tools.form.channels // whose header the turn reads
	o := chat.Options{Tools: tools.declarations(), Settings: settings, Direct: direct && !ownMessage}
	text, err := m.Template.Render(encoded, o)
	if err != nil {
		return nil, "", badRequest("messages", "%v", err)
	}
	if tools.offered() {
		o.Tools = nil
		without, err := m.Template.Render(encoded, o)
		if err == nil && without == text {
			return nil, "", unsupported("tools", "the checkpoint's chat template does not tell the model of tools")
		}
	}
	if ownMessage {
		text, lead = text+lead, ""
	}
	ids, err = m.Template.Encode(text + lead)
	return ids, text, err
}

// apart gives messages as gpt-oss's template reads them: one call a message,
// with its result behind it, and all that was said before it as one thought.
func apart(messages []message) (out []message) {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		m.Thinking, m.Reasoning = m.Reasoning, ""
		if len(m.Calls) == 0 {
			out = append(out, m)
			continue
		}
		if m.Thinking != "" && m.Content != "" {
			m.Thinking, m.Content = m.Thinking+"\n\n"+m.Content, ""
		}
		from := i + 1
		for i+1 < len(messages) && messages[i+1].Role == "tool" {
			i++
		}
		results := slices.Clone(messages[from : i+1])
		for _, c := range m.Calls {
			m.Calls = []messageCall{c}
			out = append(out, m)
			m.Content, m.Thinking = "", ""
			if at := slices.IndexFunc(results, func(r message) bool { return r.CallID == c.ID }); at >= 0 {
				out = append(out, results[at])
				results = slices.Delete(results, at, at+1)
			}
		}
		out = append(out, results...) // of no call: as they stand
	}
	return out
}

// A conversation tells a choice of /v1/chat/completions.
type conversation struct {
	model  *Model
	index  int
	logs   bool
	tools  *toolbox
	turn   *chat.Turn
	parser *callParser // of the content; nil where no calls are to be found there
	begun  bool
	told   turn
	log    []tokenLog
	calls  int  // that channels held
	mused  int  // tokens of reasoning
	over   bool // what follows the only one is no part of the turn
	finish string
}

// A turn is what the model says, whole or, in a stream, what is added to it.
type turn struct {
	Role      string `json:"role,omitempty"`
	Content   string `json:"content,omitempty"`
	Reasoning string `json:"reasoning_content,omitempty"`
	Calls     []call `json:"tool_calls,omitempty"`
}

// A wholeTurn says what it has nothing of.
type wholeTurn struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Reasoning string  `json:"reasoning_content,omitempty"`
	Refusal   *string `json:"refusal"`
	Calls     []call  `json:"tool_calls,omitempty"`
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
	more := c.read(c.turn.Push(p.Text))
	if c.turn.Reasoning() {
		c.mused += len(p.Tokens)
	}
	var logs *tokenLogs
	if c.logs {
		fresh := c.model.logsOf(p.Tokens)
		c.log = append(c.log, fresh...)
		logs = &tokenLogs{Content: fresh}
	}
	if more.empty() && (logs == nil || len(logs.Content) == 0) {
		return nil
	}
	return c.add(more, logs)
}

func (t turn) empty() bool { return t.Content == "" && t.Reasoning == "" && len(t.Calls) == 0 }

// read makes of the parts of a turn what the API has.
func (c *conversation) read(parts []chat.Part) (out turn) {
	for _, p := range parts {
		if c.over = c.over || c.tools.single && c.calls > 0 && (p.Kind != chat.Call || p.Name != ""); c.over {
			break
		}
		switch {
		case p.Kind == chat.Reasoning:
			out.Reasoning += p.Text
		case p.Kind == chat.Call:
			out.Calls = append(out.Calls, c.calling(p)...)
		case c.parser != nil:
			text, calls := c.parser.push(p.Text)
			out.Content += text
			out.Calls = append(out.Calls, calls...)
		default:
			out.Content += p.Text
		}
	}
	return out
}

// calling makes parts of a stream of a part of a call that a channel held.
func (c *conversation) calling(p chat.Part) (out []call) {
	if p.Name != "" {
		out = append(out, call{Index: c.calls, ID: callID(), Type: "function", Function: calledWith{Name: p.Name}})
		c.calls++
	}
	if p.Text != "" {
		out = append(out, call{Index: c.calls - 1, Function: calledWith{Arguments: p.Text}})
	}
	return out
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
	c.told.Reasoning += more.Reasoning
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
	rest := c.read(c.turn.Flush())
	if c.parser != nil {
		rest.Content += c.parser.flush()
	}
	if !rest.empty() {
		out = c.add(rest, nil)
	}
	if c.finish = finish; c.enough() {
		c.finish = generate.StopEnd
	}
	if len(c.told.Calls) > 0 && c.finish != generate.StopLength {
		c.finish = "tool_calls"
	}
	if !c.begun { // nothing was said
		out = append(out, chunkChoice{Index: c.index, Delta: turn{Role: "assistant"}})
	}
	return append(out, chunkChoice{Index: c.index, Finish: &c.finish})
}

func (c *conversation) whole() any {
	choice := wholeChoice{Index: c.index, Finish: c.finish, Message: wholeTurn{Role: "assistant", Reasoning: c.told.Reasoning, Calls: slices.Clone(c.told.Calls)}}
	if c.told.Content != "" || len(c.told.Calls) == 0 {
		choice.Message.Content = &c.told.Content
	}
	if c.logs {
		choice.Logprobs = &tokenLogs{Content: c.log}
	}
	return choice
}

func (c *conversation) reasoned() int { return c.mused }

// enough tells whether the turn, or the one call that may be made, is complete.
func (c *conversation) enough() bool {
	return c.over || c.turn.Done() || c.parser != nil && c.tools.single && c.parser.calls > 0 && !c.parser.open
}
