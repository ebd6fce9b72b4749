package chat

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A Kind says for whom a part of a turn is.
type Kind int

// The kinds of parts.
const (
	Content   Kind = iota // the answer
	Reasoning             // what the model thinks before it
	Call                  // the arguments of a call, a JSON text
)

// A Part is what a turn goes on with.
type Part struct {
	Kind Kind
	Text string
	Name string // of the tool, on the first part of a call
}

// A Turn reads what a model writes, as it comes, and tells its parts apart:
// the channels of gpt-oss (OpenAI's harmony format, whose calls it reads too), or a
// block of thoughts, such as <think>, before the answer. Where the template knows of neither, all is
// content, as for the zero Turn. What comes in other pieces gives the same parts.
// It is used by one goroutine.
type Turn struct {
	step  func() []Part // goes on by one thing, if there is enough to tell which
	marks thought
	held  string // not told yet
	ready []Part // to be told with what comes next

	kind  Kind    // of the part that is open
	name  string  // of the tool, until it was told
	tools bool    // calls are of tools that were offered
	body  bool    // a message, or a block, is open
	part  bool    // something was told of it
	told  [3]bool // whether anything was, of each kind
	done  bool
}

// A thought is how a family of models marks what it thinks.
type thought struct{ open, close string }

var thoughts = []thought{
	{"<think>", "</think>"},           // Qwen 3, SmolLM 3, DeepSeek's distillations
	{"<seed:think>", "</seed:think>"}, // Seed-OSS
	{"[THINK]", "[/THINK]"},           // Mistral
}

// switches are the settings by which templates leave reasoning out.
var switches = map[string]json.RawMessage{
	"enable_thinking": json.RawMessage("false"),
	"thinking_budget": json.RawMessage("0"),
}

const (
	markStart   = "<|start|>"
	markChannel = "<|channel|>"
	markMessage = "<|message|>"
	markEnd     = "<|end|>"
	markCall    = "<|call|>"
	markReturn  = "<|return|>"
	// what ends the header of an assistant's turn in a prompt
	startAssistant = markStart + "assistant"
)

// Channels tells whether turns are written in gpt-oss's channels.
func (t *Template) Channels() bool { return t.Mentions(markChannel) && t.Mentions(markMessage) }

// thought gives the marks of thoughts, which may be none.
func (t *Template) thought() (thought, bool) {
	at := slices.IndexFunc(thoughts, func(m thought) bool { return t.Mentions(m.close) })
	if at < 0 || t.Channels() {
		return thought{}, false
	}
	return thoughts[at], true
}

// Thoughtless gives the settings by which the template leaves reasoning out; none
// where it can't.
func (t *Template) Thoughtless() map[string]json.RawMessage {
	out := maps.Clone(switches)
	maps.DeleteFunc(out, func(name string, _ json.RawMessage) bool { return !t.Mentions(name) })
	return out
}

// Specials tells whether a Turn has to be given the spelling of special tokens:
// the marks are some.
func (t *Template) Specials() bool {
	if t.Channels() {
		return true
	}
	marks, _ := t.thought()
	id, ok := t.tok.ID(marks.open)
	return ok && t.tok.Special(id)
}

// answer is what to write behind a rendered conversation for the turn to go on with
// its answer, without reasoning; "" where it does so anyhow.
func (t *Template) answer(prompt string) string {
	if t.Channels() {
		return markChannel + "final" + markMessage
	}
	if marks, thinks := t.thought(); thinks && endsWith(prompt, marks.open) {
		return "\n" + marks.close + "\n\n"
	}
	return ""
}

// Calling is what a message that calls a tool begins with, in channels.
func Calling(tool string) string {
	return markChannel + "commentary to=functions." + tool + " <|constrain|>json" + markMessage
}

func endsWith(text, mark string) bool { return strings.HasSuffix(strings.TrimRight(text, " \n"), mark) }

// Turn reads the turn that follows a rendered conversation. With tools, those were
// offered, and calls are told as such.
func (t *Template) Turn(prompt string, tools bool) *Turn {
	r := &Turn{tools: tools}
	marks, thinks := t.thought()
	r.marks = marks
	switch {
	case t.Channels():
		r.step = r.channels
		if at := strings.LastIndex(prompt, startAssistant); at >= 0 {
			r.ready = r.Push(prompt[at+len(startAssistant):])
		}
	case thinks && endsWith(prompt, marks.open):
		r.think()
	case thinks && !endsWith(prompt, marks.close):
		r.step = r.beforeThought
	}
	return r
}

// Push takes more of the text.
func (r *Turn) Push(text string) []Part {
	if r.step == nil {
		r.step = r.plain
	}
	out := r.ready
	r.ready, r.held = nil, r.held+text
	for {
		before, body, done := len(r.held), r.body, r.done
		out = append(out, r.step()...)
		if len(r.held) == before && r.body == body && r.done == done {
			return out
		}
	}
}

// Flush ends the text.
func (r *Turn) Flush() []Part {
	out, text := r.ready, r.held
	r.ready, r.held = nil, ""
	if r.kind == Reasoning {
		text = strings.TrimRight(text, "\n")
	}
	if r.body {
		out = append(out, r.tell(text)...)
		out = append(out, r.leave()...)
	}
	return out
}

// Reasoning tells whether the model is at it.
func (r *Turn) Reasoning() bool { return r.body && r.kind == Reasoning }

// Done tells whether the turn came to its end; what follows is no part of it.
func (r *Turn) Done() bool { return r.done }

func (r *Turn) plain() []Part {
	r.enter(Content, "")
	return r.tell(r.take(len(r.held)))
}

// take takes n bytes off what is held.
func (r *Turn) take(n int) (text string) {
	text, r.held = r.held[:n], r.held[n:]
	return text
}

func (r *Turn) enter(kind Kind, name string) {
	if !r.body {
		r.kind, r.name, r.body, r.part = kind, name, true, false
	}
}

// tell tells of the open part. A second one of a kind begins apart from the first.
func (r *Turn) tell(text string) []Part {
	if text == "" && r.name == "" {
		return nil
	}
	if text != "" {
		if !r.part && r.told[r.kind] && r.kind != Call {
			text = "\n\n" + text
		}
		r.part, r.told[r.kind] = true, true
	}
	p := Part{r.kind, text, r.name}
	r.name = ""
	return []Part{p}
}

// leave ends the open part. A call without arguments has none.
func (r *Turn) leave() (out []Part) {
	if r.body && r.kind == Call && !r.part {
		out = r.tell("{}")
	}
	r.body = false
	return out
}

// beforeThought waits for the block of thoughts, or for what is none.
func (r *Turn) beforeThought() []Part {
	text := strings.TrimLeft(r.held, " \n")
	r.body = true // what is held counts, should nothing follow
	switch {
	case strings.HasPrefix(text, r.marks.open):
		r.held = text[len(r.marks.open):]
		r.think()
	case !strings.HasPrefix(r.marks.open, text):
		r.body, r.step = false, r.plain
		return r.plain()
	}
	return nil
}

func (r *Turn) think() {
	r.body = false
	r.enter(Reasoning, "")
	r.step = r.thinking
}

// thinking gives what surely is thought. Line ends beside the marks are no part of it.
func (r *Turn) thinking() []Part {
	if !r.part {
		r.held = strings.TrimLeft(r.held, "\n")
	}
	if at := strings.Index(r.held, r.marks.close); at >= 0 {
		out := r.tell(strings.TrimRight(r.take(at), "\n"))
		r.held = r.held[len(r.marks.close):]
		r.body, r.step = false, r.afterThought
		return out
	}
	sure := len(r.held) - Unsure(r.held, r.marks.close)
	return r.tell(r.take(len(strings.TrimRight(r.held[:sure], "\n"))))
}

func (r *Turn) afterThought() []Part {
	if r.held = strings.TrimLeft(r.held, "\n"); r.held != "" {
		r.step = r.plain
		return r.plain()
	}
	return nil
}

// channels reads messages, each a header and a body:
//
//	<|channel|>analysis<|message|>…<|end|>
//	<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
//	<|start|>assistant<|channel|>final<|message|>…<|return|>
func (r *Turn) channels() []Part {
	switch {
	case r.done:
		r.held = ""
	case r.body:
		return r.message()
	default:
		r.header()
	}
	return nil
}

func (r *Turn) header() {
	at, mark := firstOf(r.held, markMessage, markEnd, markCall, markReturn)
	switch {
	case !mayBeHeader(r.held):
		r.enter(Content, "")
	case mark == markMessage:
		r.open(r.take(at))
		r.held = strings.TrimPrefix(r.held, markMessage)
	case mark == markEnd:
		r.held = r.held[at+len(mark):]
	case mark != "":
		r.done = true
	}
}

// mayBeHeader tells whether text begins a header, or what stands before one. The
// role is missing where the prompt names it.
func mayBeHeader(text string) bool {
	text = strings.TrimLeft(text, " \n")
	return slices.ContainsFunc([]string{"to=", markStart, markChannel, markMessage, markEnd, markCall, markReturn}, func(begin string) bool {
		return strings.HasPrefix(text, begin) || strings.HasPrefix(begin, text)
	})
}

// open begins the message that a header announces.
func (r *Turn) open(header string) {
	header, begun := strings.CutPrefix(strings.TrimSpace(header), markStart)
	before, after, _ := strings.Cut(strings.ReplaceAll(header, "<|constrain|>", " "), markChannel)
	role, channel := "assistant", firstWord(after)
	if begun {
		role = firstWord(before)
	}
	recipient := ""
	for _, word := range strings.Fields(before + " " + after) {
		if to, ok := strings.CutPrefix(word, "to="); ok {
			recipient = to
		}
	}
	name, isTool := strings.CutPrefix(recipient, "functions.")
	switch {
	case role != "assistant": // the model writes somebody else's turn
		r.done = true
	case isTool && r.tools && name != "":
		r.enter(Call, name)
	case recipient != "" || channel == "analysis":
		r.enter(Reasoning, "")
	default:
		r.enter(Content, "")
	}
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(strings.TrimLeft(text, " \n"), " ")
	return word
}

// message gives what surely is of a body, up to what ends it.
func (r *Turn) message() []Part {
	marks := []string{markStart, markChannel, markEnd, markCall, markReturn}
	at, mark := firstOf(r.held, marks...)
	if mark == "" {
		return r.tell(r.take(len(r.held) - Unsure(r.held, marks...)))
	}
	out := append(r.tell(r.take(at)), r.leave()...)
	if mark == markCall || mark == markReturn {
		r.done = true
	}
	return out
}

// firstOf finds the first of some marks.
func firstOf(text string, marks ...string) (at int, mark string) {
	at = -1
	for _, m := range marks {
		if i := strings.Index(text, m); i >= 0 && (at < 0 || i < at) {
			at, mark = i, m
		}
	}
	return at, mark
}

// Unsure is the length of the longest end of text that begins one of some marks.
func Unsure(text string, marks ...string) (longest int) {
	for _, m := range marks {
		for n := min(len(m)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, m[:n]) {
				longest = n
			}
		}
	}
	return longest
}
