package server

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"payload/mlxrunner/chat"
)

// A toolForm is how a family of models writes calls of tools.
type toolForm struct {
	marks []string // any of them, in a chat template, tells the form
	not   []string // none of them: these tell a form that is not known
	open  string   // what begins calls; "" where a text that begins with a brace is one
	close string   // what ends each call, where something does
	list  bool     // calls are members of a JSON array
	args  string   // the key of the arguments
	lead  string   // what a call that is forced begins with

	channels bool // calls are messages of their own, which chat.Turn reads; nothing else counts then
}

// toolForms are the forms known, the most particular first.
var toolForms = []toolForm{
	{ // Mistral: [TOOL_CALLS][{"name": …, "arguments": {…}}], or from v11 on [TOOL_CALLS]name[ARGS]{…}
		marks: []string{"[TOOL_CALLS]"}, open: "[TOOL_CALLS]", list: true, args: "arguments", lead: "[TOOL_CALLS]",
	},
	{ // Hermes, Qwen: <tool_call>{"name": …, "arguments": {…}}</tool_call>
		marks: []string{"<tool_call>"}, not: []string{"<function=", "<arg_key>"},
		open: "<tool_call>", close: "</tool_call>", args: "arguments", lead: "<tool_call>\n",
	},
	{ // Llama 3: {"name": …, "parameters": {…}}, several apart by semicolons
		marks: []string{`"parameters"`, `\"parameters\"`}, not: []string{"<|channel|>", "<tool_call>"}, args: "parameters",
	},
}

// formOf tells the form of calls from a chat template.
func formOf(mentions func(string) bool) (toolForm, bool) {
	some := func(texts []string) bool {
		for _, text := range texts {
			if mentions(text) {
				return true
			}
		}
		return false
	}
	for _, form := range toolForms {
		if some(form.marks) && !some(form.not) {
			return form, true
		}
	}
	return toolForm{}, false
}

const pythonTag = "<|python_tag|>" // which Llama 3 may write before a call

// A call is one call of a tool, or a part that a stream adds to it.
type call struct {
	Index    int        `json:"index"`
	ID       string     `json:"id,omitempty"`
	Type     string     `json:"type,omitempty"`
	Function calledWith `json:"function"`
}

type calledWith struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// A callParser finds calls in what a model writes, as it comes. What it takes
// for text stays text; what only looked like a call becomes text again.
type callParser struct {
	form  toolForm
	tools []string // their names
	held  string   // not told yet
	mode  parserMode
	calls int    // that were begun
	args  string // of the call that is open: what was told of them
	open  bool   // a call was begun and not ended
	ended bool   // one ended, and no text came since
	mark  string // what led here, should it be text after all
}

type parserMode int

const (
	atStart parserMode = iota // nothing but white space came
	inText
	inCall
	afterCall
)

// push takes more of the text.
func (p *callParser) push(text string) (content string, parts []call) {
	p.held += text
	for {
		before, mode := len(p.held), p.mode
		more, part := p.step()
		content += more
		parts = append(parts, part...)
		if len(p.held) == before && p.mode == mode {
			return content, parts
		}
	}
}

// flush ends the text.
func (p *callParser) flush() string {
	text := p.held
	if p.mode == inCall {
		text = p.mark + text
	}
	if p.open || p.mode != inCall && p.calls > 0 && strings.TrimSpace(text) == "" {
		text = "" // what there is of the call was told
	}
	p.held = ""
	return text
}

// step goes on by one thing, if there is enough to tell which.
func (p *callParser) step() (string, []call) {
	switch p.mode {
	case atStart:
		return p.start(), nil
	case inText:
		return p.text(), nil
	case inCall:
		return p.call()
	default:
		return p.after(), nil
	}
}

func (p *callParser) start() string {
	if p.form.open != "" {
		p.mode = inText
		return ""
	}
	rest := strings.TrimLeft(p.held, " \n")
	if strings.HasPrefix(pythonTag, rest) && rest != pythonTag {
		return "" // it may become one
	}
	body := strings.TrimLeft(strings.TrimPrefix(rest, pythonTag), " \n")
	switch {
	case strings.HasPrefix(body, "{"):
		p.mark, p.held, p.mode = p.held[:len(p.held)-len(body)], body, inCall
	case body != "":
		p.mode = inText
	}
	return ""
}

// text gives what surely is text, up to what begins a call.
func (p *callParser) text() (out string) {
	if p.form.open == "" {
		out, p.held = p.held, ""
		return out
	}
	if p.ended {
		// Line ends after a call are not part of the text, as below those before.
		p.held = strings.TrimLeft(p.held, "\n")
		p.ended = p.held == ""
	}
	if at := strings.Index(p.held, p.form.open); at >= 0 {
		out, p.held = p.held[:at], p.held[at+len(p.form.open):]
		p.mode, p.mark = inCall, p.form.open
		return strings.TrimRight(out, "\n")
	}
	keep := chat.Unsure(p.held, p.form.open)
	// Line ends before a call are not part of the text.
	keep += len(p.held[:len(p.held)-keep]) - len(strings.TrimRight(p.held[:len(p.held)-keep], "\n"))
	out, p.held = p.held[:len(p.held)-keep], p.held[len(p.held)-keep:]
	return out
}

// call reads on in a call.
func (p *callParser) call() (string, []call) {
	body := strings.TrimLeft(p.held, " \n")
	if p.form.list {
		body = strings.TrimLeft(strings.TrimPrefix(body, "["), " \n")
	}
	if body == "" {
		return "", nil
	}
	c := scanCall(body, p.form)
	if c.broken || c.named && p.form.open == "" && !slices.Contains(p.tools, c.name) {
		text := p.mark + p.held
		p.held, p.args, p.open, p.mode = "", "", false, inText
		return text, nil
	}
	var parts []call
	if c.named && !p.open {
		p.open = true
		parts = append(parts, call{Index: p.calls, ID: callID(), Type: "function", Function: calledWith{Name: c.name}})
		p.calls++
	}
	if p.open && len(c.args) > len(p.args) {
		parts = append(parts, call{Index: p.calls - 1, Function: calledWith{Arguments: c.args[len(p.args):]}})
		p.args = c.args
	}
	if c.whole {
		p.mode, p.open, p.args = afterCall, false, ""
		p.held = body[c.end:]
	}
	return "", parts
}

// after sees whether another call follows.
func (p *callParser) after() (out string) {
	rest := strings.TrimLeft(p.held, " \n")
	switch {
	case p.form.close != "" && strings.HasPrefix(rest, p.form.close):
		p.held, p.mode, p.ended = rest[len(p.form.close):], inText, true
	case p.form.close != "" && strings.HasPrefix(p.form.close, rest):
		return "" // not all of it is there
	case p.form.list && strings.HasPrefix(rest, ","):
		p.mark, p.held, p.mode = ",", rest[1:], inCall
	case p.form.list && strings.HasPrefix(rest, "]"):
		p.held = rest[1:]
	case p.form.list && strings.HasPrefix(rest, p.form.open):
		p.mark, p.held, p.mode = p.form.open, rest[len(p.form.open):], inCall
	case p.form.list && strings.HasPrefix(p.form.open, rest):
		return ""
	case p.form.open == "" && strings.HasPrefix(rest, ";"):
		p.held = rest[1:]
	case p.form.open == "" && strings.HasPrefix(rest, "{"):
		p.mark, p.held, p.mode = "", rest, inCall
	case rest != "":
		p.mode = inText
	}
	return ""
}

// A scanned call is what there is of one.
type scanned struct {
	name   string
	args   string // JSON; the beginning of it, until whole
	named  bool   // the name is sure
	whole  bool
	broken bool // it is no call
	end    int  // where it ends, when it is whole
}

// scanCall reads a call that may not have come to its end.
func scanCall(text string, form toolForm) (c scanned) {
	if form.list && text[0] != '{' {
		return scanNamed(text)
	}
	if text[0] != '{' {
		c.broken = true
		return c
	}
	d := json.NewDecoder(strings.NewReader(text))
	_, _ = d.Token() // the brace
	for d.More() {
		key, err := d.Token()
		if err == nil {
			switch key {
			case "name":
				err = d.Decode(&c.name)
				c.named = err == nil && c.name != ""
			case form.args:
				c.args, err = arguments(text, d)
			default:
				var other json.RawMessage
				err = d.Decode(&other)
			}
		}
		if err != nil {
			c.broken = !unfinishedJSON(err)
			return c
		}
	}
	if _, err := d.Token(); err != nil {
		c.broken = !unfinishedJSON(err)
		return c
	}
	c.whole, c.broken, c.end = c.named, !c.named, int(d.InputOffset())
	if c.whole && c.args == "" {
		c.args = "{}"
	}
	return c
}

// scanNamed reads name[ARGS]{…}.
func scanNamed(text string) (c scanned) {
	at := strings.Index(text, "{")
	if at < 0 {
		c.broken = len(text) > 200 // no name is that long
		return c
	}
	name, _, _ := strings.Cut(text[:at], "[")
	if c.name = strings.TrimSpace(name); c.name == "" || strings.ContainsAny(c.name, " \n\"") {
		c.broken = true
		return c
	}
	c.named = true
	d := json.NewDecoder(strings.NewReader(text[at:]))
	var whole json.RawMessage
	err := d.Decode(&whole)
	c.args, c.whole, c.broken = text[at:], err == nil, err != nil && !unfinishedJSON(err)
	if c.whole {
		c.args, c.end = string(whole), at+int(d.InputOffset())
	}
	return c
}

// arguments reads a value of a call. An object is told as far as it came; one
// that a model wrote as a text is taken out of it.
func arguments(text string, d *json.Decoder) (string, error) {
	from := strings.TrimLeft(text[d.InputOffset():], ": \t\r\n")
	var value json.RawMessage
	err := d.Decode(&value)
	if err != nil {
		if unfinishedJSON(err) && strings.HasPrefix(from, "{") {
			return from, err
		}
		return "", err
	}
	var quoted string
	if json.Unmarshal(value, &quoted) == nil {
		return quoted, nil
	}
	return string(value), nil
}

func unfinishedJSON(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// callID makes an id of nine letters and digits, which is what Mistral's
// templates want and any other takes.
func callID() string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	id := make([]byte, 9)
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))] //nolint:gosec // names, not secrets
	}
	return string(id)
}
