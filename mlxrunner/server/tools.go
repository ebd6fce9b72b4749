package server

import (
	"encoding/json"
	"regexp"
	"strings"

	"payload/mlxrunner/chat"
)

// A toolbox is the tools that a conversation may use, and how.
type toolbox struct {
	all    []tool
	form   toolForm
	choice string // "auto", "required", "none", or the name of one
	named  bool   // choice is a name
	single bool   // one call at most
}

// A tool is one that may be called, as templates read it.
type tool struct {
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
	strict   bool
}

type toolFunction struct {
	Name        string          `json:"name"`
	Description *string         `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// tools takes what tools there are, and which of them are to be called.
func (f *fields) tools(m *Model) *toolbox {
	t := &toolbox{choice: "auto"}
	for _, inner := range f.objects("tools") {
		t.all = append(t.all, inner.tool())
		f.fail(inner.done())
	}
	f.toolChoice(t)
	t.single = !f.flag("parallel_tool_calls", true)
	if t.named && t.find(t.choice) == nil {
		f.refuse("tool_choice", "there is no tool %.80q", t.choice)
	}
	if len(t.all) == 0 && t.choice == "required" {
		f.refuse("tool_choice", "no tools are there to call")
	}
	if !t.offered() || m.Template == nil {
		return t
	}
	known := m.Template.Channels()
	if t.form.channels = known; !known {
		t.form, known = formOf(m.Template.Mentions)
	}
	if !known {
		f.fail(unsupported("tools", "how this checkpoint writes tool calls is not known: its chat template has none of the forms of gpt-oss, Hermes and Qwen, Llama 3, and Mistral"))
	}
	if t.form.channels && t.choice == "required" && !t.named {
		// A header names the tool before any text that a grammar could hold.
		if len(t.all) > 1 {
			f.fail(unsupported("tool_choice", "tool_choice: of several tools one has to be named, as gpt-oss's calls are written"))
		}
		t.choice, t.named = t.all[0].Function.Name, true
	}
	for i, one := range t.all {
		if t.form.channels && one.Function.Description == nil {
			t.all[i].Function.Description = new(string) // their template joins texts with it
		}
		if one.strict && !t.forced() {
			f.fail(unsupported(place("tools", i)+".function.strict", "strict arguments need a tool_choice of required, or of the tool"))
		}
	}
	return t
}

func (f *fields) tool() tool {
	t := tool{Type: "function"}
	f.only("type", `"function"`)
	function := f.object("function")
	if function == nil {
		f.refuse("function", "it is missing")
		return t
	}
	t.Function = toolFunction{function.text("name"), take(function, "description", "a text", (*string)(nil)), function.raw("parameters")}
	t.strict = function.flag("strict", false)
	if !toolName.MatchString(t.Function.Name) {
		function.refuse("name", "it is %.80q, want 1 to 64 letters, digits, _ and -", t.Function.Name)
	}
	if p := t.Function.Parameters; p != nil && !strings.HasPrefix(string(p), "{") {
		function.refuse("parameters", "it is %s, want a JSON schema", kindOf(p))
	}
	f.fail(function.done())
	return t
}

func (f *fields) toolChoice(t *toolbox) {
	value := f.values["tool_choice"]
	if value == nil || string(value) == "null" || strings.HasPrefix(string(value), `"`) {
		f.only("tool_choice", `"none"`, `"auto"`, `"required"`)
		if value != nil {
			_ = json.Unmarshal(value, &t.choice) // null leaves auto
		}
		return
	}
	choice := f.object("tool_choice")
	if choice == nil {
		return
	}
	choice.only("type", `"function"`)
	if function := choice.object("function"); function != nil {
		t.choice, t.named = function.text("name"), true
		f.fail(function.done())
	} else {
		choice.refuse("function", "it is missing")
	}
	f.fail(choice.done())
}

func (t *toolbox) find(name string) *tool {
	for i := range t.all {
		if t.all[i].Function.Name == name {
			return &t.all[i]
		}
	}
	return nil
}

// offered tells whether the model may call any.
func (t *toolbox) offered() bool { return len(t.all) > 0 && (t.named || t.choice != "none") }

// forced tells whether the model must call one.
func (t *toolbox) forced() bool { return len(t.all) > 0 && (t.named || t.choice == "required") }

// declarations are what the template is given; nil for none.
func (t *toolbox) declarations() json.RawMessage {
	if !t.offered() {
		return nil
	}
	text, _ := json.Marshal(t.all) // of texts and valid JSON
	return text
}

// lead is what the model's turn begins with, where it must call.
func (t *toolbox) lead() string {
	if !t.forced() {
		return ""
	}
	if t.form.channels {
		return chat.Calling(t.choice)
	}
	return t.form.lead
}

// parser finds calls in an answer's content; nil where none are there.
func (t *toolbox) parser() *callParser {
	if !t.offered() || t.form.channels {
		return nil
	}
	p := &callParser{form: t.form}
	for _, one := range t.all {
		p.tools = append(p.tools, one.Function.Name)
	}
	if t.forced() {
		p.push(t.form.lead)
	}
	return p
}

// constrain lets the model write nothing but a call, where it must.
func (t *toolbox) constrain(a *answer) error {
	if !t.forced() {
		return nil
	}
	return a.follow("tools", t.schema())
}

// schema describes the text of one call of the tools that may be called.
func (t *toolbox) schema() json.RawMessage {
	type object map[string]any
	var calls []any
	for _, one := range t.all {
		if t.named && one.Function.Name != t.choice {
			continue
		}
		parameters := one.Function.Parameters
		if parameters == nil {
			parameters = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
		}
		if t.form.channels {
			return parameters // the call's header is there already
		}
		// Written out, since the name has to come first.
		name, _ := json.Marshal(one.Function.Name)
		key, _ := json.Marshal(t.form.args)
		calls = append(calls, json.RawMessage(`{"type":"object","properties":{"name":{"const":`+string(name)+`},`+string(key)+`:`+string(parameters)+
			`},"required":["name",`+string(key)+`],"additionalProperties":false}`))
	}
	var schema any = object{"anyOf": calls}
	if len(calls) == 1 {
		schema = calls[0]
	}
	if t.form.list {
		schema = object{"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
	}
	text, _ := json.Marshal(schema) // of texts and valid JSON
	return text
}
