package server

import (
	"encoding/json"
	"strings"
	"testing"
)

// Texts as the families write them. Each is read whole, and a byte at a time.
func TestToolCalls(t *testing.T) {
	type want struct{ name, args string }
	mistral, hermes, llama := toolForms[0], toolForms[1], toolForms[2]
	for _, c := range []struct {
		name    string
		form    toolForm
		text    string
		content string
		calls   []want
	}{
		{"hermes", hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Senn\"}}\n</tool_call>", "", []want{{"weather", `{"city": "Senn"}`}}},
		{"hermes, text before", hermes, "Let me see.\n<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>", "Let me see.", []want{{"weather", `{}`}}},
		{"hermes, two", hermes, "<tool_call>\n{\"name\":\"a\",\"arguments\":{\"x\":[1,{\"y\":\"}\"}]}}\n</tool_call>\n<tool_call>\n{\"name\":\"b\",\"arguments\":{}}\n</tool_call>\n", "", []want{{"a", `{"x":[1,{"y":"}"}]}`}, {"b", `{}`}}},
		{"hermes, text after", hermes, "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\nDone.", "Done.", []want{{"a", `{}`}}},
		{"hermes, arguments first", hermes, `<tool_call>{"arguments":{"a":1},"name":"a"}</tool_call>`, "", []want{{"a", `{"a":1}`}}},
		{"hermes, arguments as a text", hermes, `<tool_call>{"name":"a","arguments":"{\"a\":1}"}</tool_call>`, "", []want{{"a", `{"a":1}`}}},
		{"hermes, no arguments", hermes, `<tool_call>{"name":"a"}</tool_call>`, "", []want{{"a", `{}`}}},
		{"hermes, no end", hermes, `<tool_call>{"name":"a","arguments":{}}`, "", []want{{"a", `{}`}}},
		{"hermes, cut", hermes, `<tool_call>{"name":"a","arguments":{"city":"Se`, "", []want{{"a", `{"city":"Se`}}},
		{"hermes, cut in the name", hermes, `<tool_call>{"name":"wea`, `<tool_call>{"name":"wea`, nil},
		{"hermes, no JSON", hermes, "<tool_call>weather of Senn</tool_call>", "<tool_call>weather of Senn</tool_call>", nil},
		{"hermes, no call", hermes, `<tool_call>{"city":"Senn"}</tool_call>`, `<tool_call>{"city":"Senn"}</tool_call>`, nil},
		{"hermes, plain text", hermes, "a < b and <tool, 2 > 1\n", "a < b and <tool, 2 > 1\n", nil},
		{"hermes, escapes", hermes, `<tool_call>{"name":"a","arguments":{"s":"\"</tool_call>\\ \u00e9 🙂"}}</tool_call>`, "", []want{{"a", `{"s":"\"</tool_call>\\ \u00e9 🙂"}`}}},
		{"mistral", mistral, `[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Senn"}, "id": "abcdefghi"}]`, "", []want{{"weather", `{"city": "Senn"}`}}},
		{"mistral, two", mistral, `[TOOL_CALLS][{"name":"a","arguments":{}}, {"name":"b","arguments":{"x":1}}]`, "", []want{{"a", `{}`}, {"b", `{"x":1}`}}},
		{"mistral, one alone", mistral, `[TOOL_CALLS]{"name":"a","arguments":{}}`, "", []want{{"a", `{}`}}},
		{"mistral, v11", mistral, `[TOOL_CALLS]weather[ARGS]{"city": "Senn"}[TOOL_CALLS]time[CALL_ID]abcdefghi[ARGS]{}`, "", []want{{"weather", `{"city": "Senn"}`}, {"time", `{}`}}},
		{"mistral, plain text", mistral, "[1, 2] and [TOOL", "[1, 2] and [TOOL", nil},
		{"llama", llama, `{"name": "weather", "parameters": {"city": "Senn"}}`, "", []want{{"weather", `{"city": "Senn"}`}}},
		{"llama, tagged", llama, "<|python_tag|>{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {}}", "", []want{{"weather", `{}`}}},
		{"llama, two", llama, `{"name":"weather","parameters":{}}; {"name":"time","parameters":{"a":1}}`, "", []want{{"weather", `{}`}, {"time", `{"a":1}`}}},
		{"llama, another's name", llama, `{"name": "Bob", "age": 3}`, `{"name": "Bob", "age": 3}`, nil},
		{"llama, plain text", llama, " The weather {is} fine.", " The weather {is} fine.", nil},
		{"llama, only spaces", llama, "  ", "  ", nil},
		{"llama, tag alone", llama, "<|python", "<|python", nil},
	} {
		for _, size := range []int{len(c.text), 1, 3} {
			p := &callParser{form: c.form, tools: []string{"weather", "time"}}
			var content string
			var got []call
			take := func(text string, parts []call) {
				content += text
				for _, part := range parts {
					if part.ID != "" {
						got = append(got, part)
						continue
					}
					got[part.Index].Function.Arguments += part.Function.Arguments
				}
			}
			for text := c.text; text != ""; {
				n := min(size, len(text))
				take(p.push(text[:n]))
				text = text[n:]
			}
			take(p.flush(), nil)
			if content != c.content || len(got) != len(c.calls) {
				t.Errorf("%s, %d bytes at once: content %q, want %q; calls %+v", c.name, size, content, c.content, got)
				continue
			}
			for i, w := range c.calls {
				if g := got[i]; g.Function.Name != w.name || g.Function.Arguments != w.args || g.Index != i || len(g.ID) != 9 || g.Type != "function" {
					t.Errorf("%s, %d bytes at once: call %d is %+v, want %+v", c.name, size, i, g, w)
				}
			}
		}
	}
}

// Arguments are told while they come.
func TestToolCallsStream(t *testing.T) {
	p := &callParser{form: toolForms[1]}
	p.push(`<tool_call>{"name":"a","arguments":{"city":`)
	if _, parts := p.push(`"Senn and the`); len(parts) != 1 || parts[0].Function.Arguments != `"Senn and the` {
		t.Errorf("parts %+v", parts)
	}
}

func FuzzToolCalls(f *testing.F) {
	for _, seed := range []string{`<tool_call>{"name":"a","arguments":{"b":[1]}}</tool_call>x`, `[TOOL_CALLS]a[ARGS]{}`, `[TOOL_CALLS][{"name":"a"},`, `{"name":"weather","parameters":{}};`} {
		f.Add(seed, 2)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 || size > 8 {
			return
		}
		for _, form := range toolForms {
			p := &callParser{form: form, tools: []string{"weather"}}
			for at := 0; at < len(text); at += size {
				_, parts := p.push(text[at:min(at+size, len(text))])
				for _, part := range parts {
					if part.Index >= p.calls {
						t.Fatalf("part %+v of %d calls", part, p.calls)
					}
				}
			}
			p.flush()
		}
	})
}

// The schema of a forced call names the tool before its arguments.
func TestForcedCallSchema(t *testing.T) {
	box := &toolbox{choice: "required", form: toolForms[1], all: []tool{
		{Function: toolFunction{Name: "weather", Parameters: json.RawMessage(`{"type":"object"}`)}},
		{Function: toolFunction{Name: "time"}},
	}}
	got := string(box.schema())
	if !strings.HasPrefix(got, `{"anyOf":[{"type":"object","properties":{"name":{"const":"weather"},"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false},{`) {
		t.Errorf("%s", got)
	}
	box.choice, box.named, box.form = "time", true, toolForms[0]
	got = string(box.schema())
	if strings.Contains(got, "weather") || !strings.Contains(got, `"maxItems":1`) {
		t.Errorf("%s", got)
	}
}
