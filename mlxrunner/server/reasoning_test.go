package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/mlxrunner/chat"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/tokenizer"
)

// channelTemplate reads and writes what gpt-oss's own does, without its words.
const channelTemplate = `<|start|>system<|message|>Reasoning: {{ reasoning_effort | default("medium") }}<|end|>
{%- if tools %}<|start|>developer<|message|>{% for t in tools %}{{ "// " + t.function.description + t.function.name }} {% endfor %}<|end|>{% endif %}
{%- for m in messages %}
{%- if m.role == "assistant" and m.tool_calls %}
{%- if m.content and m.thinking %}{{ raise_exception("content and thinking") }}{% endif %}
{%- if m.content or m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.content or m.thinking }}<|end|>{% endif -%}
<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>
{%- elif m.role == "assistant" -%}
<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- else -%}
<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>
{%- endif %}
{%- endfor %}<|start|>assistant`

const thinkTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if tools %}{{ tools | tojson }} in <tool_call></tool_call>{% endif %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}`

// modelOf is a model of a trained tokenizer with added tokens, and of a template.
func modelOf(t *testing.T, fixture, template string, special map[string]bool, end ...string) *Model {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "tokenizer", "testdata", fixture))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Tokenizer map[string]any }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	added := slices.DeleteFunc(file.Tokenizer["added_tokens"].([]any), func(a any) bool { // of the fixture's own tests
		_, again := special[a.(map[string]any)["content"].(string)]
		return again || a.(map[string]any)["special"] == false
	})
	names := make([]string, 0, len(special))
	for name := range special {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		added = append(added, map[string]any{"id": 610 + i, "content": name, "special": special[name], "normalized": false})
	}
	file.Tokenizer["added_tokens"] = added
	dir := t.TempDir()
	text, err = json.Marshal(file.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{tokenizer.FileName: string(text), chat.TemplateName: template} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := &Model{Name: "tiny", Dir: dir, Context: 2048, Vocab: 700, Loaded: time.Now()}
	if m.Tok, err = tokenizer.Load(dir); err != nil {
		t.Fatal(err)
	}
	if m.Template, err = chat.Load(dir, m.Tok); err != nil {
		t.Fatal(err)
	}
	for _, token := range end {
		id, ok := m.Tok.ID(token)
		if !ok {
			t.Fatalf("no token %s", token)
		}
		m.End = append(m.End, id)
	}
	return m
}

func channelModel(t *testing.T, end ...string) *Model {
	t.Helper()
	return modelOf(t, "o200k.json", channelTemplate, map[string]bool{
		"<|start|>": true, "<|end|>": true, "<|message|>": true, "<|channel|>": true, "<|constrain|>": true, "<|return|>": true, "<|call|>": true,
	}, end...)
}

func thinkModel(t *testing.T, special bool) *Model {
	t.Helper()
	return modelOf(t, "qwen.json", thinkTemplate, map[string]bool{
		"<|im_start|>": true, "<|im_end|>": true, "<think>": special, "</think>": special, "<tool_call>": false, "</tool_call>": false,
	}, "<|im_end|>")
}

// tokens gives an engine that writes the tokens of a text, a piece each, and
// tells what it was asked.
func tokens(t *testing.T, m *Model, text string, asked *generate.Request) fake {
	t.Helper()
	ids, err := m.Tok.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
		*asked = q
		var r generate.Result
		stream := m.Tok.Stream(!q.Specials)
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			r.Tokens = append(r.Tokens, id)
			piece := generate.Piece{Tokens: []generate.Token{{ID: id}}}
			if !m.ends(id) {
				piece.Text = stream.Push(id)
			}
			if err := hooks.Piece(piece); err != nil {
				return r, err
			}
			if m.ends(id) {
				r.Finish = generate.StopEnd
				return r, nil
			}
		}
		r.Finish = generate.StopLength
		return r, hooks.Piece(generate.Piece{Text: stream.Flush()})
	}
}

// spoken is an assistant's turn as a client reads it.
type spoken struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Calls     []call `json:"tool_calls"`
}

// converse asks for an answer, whole and streamed, which have to be alike.
func converse(t *testing.T, s *site, body string) (spoken, string) {
	t.Helper()
	var whole struct {
		Choices []struct {
			Message spoken
			Finish  string `json:"finish_reason"`
		}
		Usage usage
	}
	text, err := io.ReadAll(post(t, s.url+"/v1/chat/completions", body).Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &whole); err != nil || len(whole.Choices) != 1 {
		t.Fatalf("%s, %v", text, err)
	}
	var streamed spoken
	var finish string
	lines := bufio.NewScanner(post(t, s.url+"/v1/chat/completions", `{"stream":true,`+body[1:]).Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta  spoken
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 {
			t.Fatalf("%s, %v", data, err)
		}
		c := chunk.Choices[0]
		streamed.Content += c.Delta.Content
		streamed.Reasoning += c.Delta.Reasoning
		for _, part := range c.Delta.Calls {
			if part.ID != "" {
				streamed.Calls = append(streamed.Calls, part)
			} else {
				streamed.Calls[part.Index].Function.Arguments += part.Function.Arguments
			}
		}
		if c.Finish != "" {
			finish = c.Finish
		}
	}
	got := whole.Choices[0]
	for _, calls := range [][]call{got.Message.Calls, streamed.Calls} {
		for i := range calls {
			if calls[i].ID == "" || calls[i].Type != "function" || calls[i].Index != i {
				t.Errorf("call %d: %+v", i, calls[i])
			}
			calls[i].ID = ""
		}
	}
	if got.Message.Content != streamed.Content || got.Message.Reasoning != streamed.Reasoning || !slices.Equal(got.Message.Calls, streamed.Calls) || got.Finish != finish {
		t.Errorf("whole %+v %s, streamed %+v %s", got.Message, got.Finish, streamed, finish)
	}
	if n := whole.Usage.Wrote.Reasoning; (n > 0) != (got.Message.Reasoning != "") || n > whole.Usage.Completion {
		t.Errorf("%+v of %+v", whole.Usage, got.Message)
	}
	return got.Message, got.Finish
}

const (
	asking   = `{"messages":[{"role":"user","content":"Hi"}]}`
	offering = `{"messages":[{"role":"user","content":"Hi"}],"tools":[
		{"type":"function","function":{"name":"sea_level","parameters":{"type":"object","properties":{"at":{"type":"string"}},"required":["at"],"additionalProperties":false}}},
		{"type":"function","function":{"name":"time"}}]}`
)

// Channels and thoughts, as the tokens of a tokenizer write them, come apart;
// their marks are special tokens in some checkpoints and none in others.
func TestReasoning(t *testing.T) {
	ends := channelModel(t, "<|return|>", "<|call|>")
	bare := channelModel(t, "<|return|>") // as files name it that know of one end alone
	plain, special := thinkModel(t, false), thinkModel(t, true)
	sea := calledWith{"sea_level", `{"at":"Senn"}`}
	const calling = `<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.sea_level <|constrain|>json<|message|>{"at":"Senn"}<|call|>`
	for _, c := range []struct {
		name   string
		model  *Model
		body   string
		text   string
		want   spoken
		finish string
	}{
		{"final", ends, asking, "<|channel|>final<|message|>Yes. 🙂<|return|>", spoken{Content: "Yes. 🙂"}, "stop"},
		{"analysis", ends, asking, "<|channel|>analysis<|message|>Hm? 🙂\n<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>", spoken{"Yes.", "Hm? 🙂\n", nil}, "stop"},
		{"cut", ends, asking, "<|channel|>analysis<|message|>Hm", spoken{"", "Hm", nil}, "length"},
		{"call", ends, offering, calling, spoken{"", "I look.", []call{{Type: "function", Function: sea}}}, "tool_calls"},
		{"call that is no end", bare, offering, calling + "<|start|>assistant<|channel|>final<|message|>I guess.<|return|>", spoken{"", "I look.", []call{{Type: "function", Function: sea}}}, "tool_calls"},
		{"one call alone", bare, `{"parallel_tool_calls":false,` + offering[1:], strings.ReplaceAll(calling, "<|call|>", "<|end|>") + "<|start|>assistant" + calling, spoken{"", "I look.", []call{{Type: "function", Function: sea}}}, "tool_calls"},
		{"thought", plain, asking, "<think>\nHm? 🙂\n</think>\n\nYes.<|im_end|>", spoken{"Yes.", "Hm? 🙂", nil}, "stop"},
		{"thought in special tokens", special, asking, "<think>\nHm.\n</think>\n\nYes.<|im_end|>", spoken{"Yes.", "Hm.", nil}, "stop"},
		{"thought and call", plain, offering, "<think>\nI look.\n</think>\n\n<tool_call>\n{\"name\":\"sea_level\",\"arguments\":{\"at\":\"Senn\"}}\n</tool_call><|im_end|>", spoken{"", "I look.", []call{{Type: "function", Function: sea}}}, "tool_calls"},
		{"a call within a thought", plain, offering, "<think>\n<tool_call>{}\n</think>\n\nNo.<|im_end|>", spoken{"No.", "<tool_call>{}", nil}, "stop"},
		{"no thought", plain, asking, "Yes.<|im_end|>", spoken{Content: "Yes."}, "stop"},
	} {
		var asked generate.Request
		s := open(t, tokens(t, c.model, c.text, &asked), func(o *Options) { o.Model = c.model })
		got, finish := converse(t, s, c.body)
		until(t, "the log", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == 2 })
		if strings.Contains(s.log.String(), `"finish":""`) {
			t.Errorf("%s: no finish in %s", c.name, s.log)
		}
		if got.Content != c.want.Content || got.Reasoning != c.want.Reasoning || !slices.Equal(got.Calls, c.want.Calls) || finish != c.finish {
			t.Errorf("%s: %+v %s, want %+v %s", c.name, got, finish, c.want, c.finish)
		}
	}
}

// promptOf is the text of what an engine is asked to go on with.
func promptOf(t *testing.T, m *Model, body string) (string, generate.Request) {
	t.Helper()
	var asked generate.Request
	s := open(t, tokens(t, m, "", &asked), func(o *Options) { o.Model = m })
	if r := post(t, s.url+"/v1/chat/completions", body); r.StatusCode != 200 {
		text, _ := io.ReadAll(r.Body)
		t.Fatalf("%s: %s", body, text)
	}
	return m.Tok.Decode(asked.Prompt, false), asked
}

// What was said before is rendered as the template has it: with a thought where a
// call followed it, and one call a message, its result behind it.
func TestReasoningOfThePast(t *testing.T) {
	const past = `{"messages":[{"role":"user","content":"Hi"},
		{"role":"assistant","content":"I look.","reasoning_content":"Hm.","tool_calls":[
			{"id":"a","type":"function","function":{"name":"time","arguments":"{\"x\": 1}"}},
			{"id":"b","type":"function","function":{"name":"sea_level","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"b","content":"low"},{"role":"tool","tool_call_id":"a","content":"noon"},
		{"role":"assistant","content":"Low.","reasoning_content":"So."},{"role":"user","content":"Oh"}],` + `"reasoning_effort":"high"}`
	got, asked := promptOf(t, channelModel(t, "<|return|>"), past)
	want := `<|start|>system<|message|>Reasoning: high<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.

I look.<|end|><|start|>assistant to=functions.time<|channel|>commentary json<|message|>{"x": 1}<|call|><|start|>tool<|message|>noon<|end|>` +
		`<|start|>assistant to=functions.sea_level<|channel|>commentary json<|message|>{}<|call|><|start|>tool<|message|>low<|end|>` +
		`<|start|>assistant<|channel|>final<|message|>Low.<|end|><|start|>user<|message|>Oh<|end|><|start|>assistant`
	if got != want || !asked.Specials {
		t.Errorf("%q, want %q", got, want)
	}
	got, _ = promptOf(t, thinkModel(t, false), `{"messages":[{"role":"assistant","content":"Low.","reasoning_content":"So."}]}`)
	if want := "<|im_start|>assistant\n<think>\nSo.\n</think>\n\nLow.<|im_end|>\n<|im_start|>assistant\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A grammar is for the answer, so the prompt goes on up to where that begins; a
// call that has to be made begins there too.
func TestGrammarBehindReasoning(t *testing.T) {
	channels, thinks := channelModel(t, "<|return|>"), thinkModel(t, false)
	opened := modelOf(t, "qwen.json", "{# </think> #}<|im_start|>assistant\n{{ \"<think>\\n\" }}", map[string]bool{"<|im_start|>": true, "<|im_end|>": true}, "<|im_end|>")
	budget := modelOf(t, "qwen.json", `{# </seed:think> #}<|im_start|>assistant{% if thinking_budget == 0 %}<seed:think></seed:think>{% endif %}`, map[string]bool{"<|im_start|>": true, "<|im_end|>": true}, "<|im_end|>")
	structured := `{"response_format":{"type":"json_object"},` + asking[1:]
	forced := `{"tool_choice":{"type":"function","function":{"name":"sea_level"}},` + offering[1:]
	one := `{"tool_choice":"required","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"time"}}]}`
	for _, c := range []struct {
		model      *Model
		body, ends string
	}{
		{channels, structured, "<|start|>assistant<|channel|>final<|message|>"},
		{channels, forced, "<|start|>assistant<|channel|>commentary to=functions.sea_level <|constrain|>json<|message|>"},
		{channels, one, "<|start|>assistant<|channel|>commentary to=functions.time <|constrain|>json<|message|>"},
		{thinks, structured, "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
		{thinks, forced, "<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>\n"},
		{opened, structured, "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
		{budget, structured, "<|im_start|>assistant<seed:think></seed:think>"},
		{budget, `{"reasoning_effort":"none",` + asking[1:], "<|im_start|>assistant<seed:think></seed:think>"},
		{channels, asking, "<|start|>assistant"},
		{thinks, asking, "<|im_start|>assistant\n"},
		{thinks, `{"reasoning_effort":"none",` + asking[1:], "</think>\n\n"},
		{thinks, `{"chat_template_kwargs":{"enable_thinking":false},` + asking[1:], "</think>\n\n"},
	} {
		got, asked := promptOf(t, c.model, c.body)
		if !strings.HasSuffix(got, c.ends) || (asked.Grammar != nil) != (c.body == structured || c.body == forced || c.body == one) {
			t.Errorf("%s: %q, want the end %q; grammar %v", c.body, got, c.ends, asked.Grammar != nil)
		}
	}
	// What follows those beginnings is the answer, or the call.
	for _, c := range []struct {
		model *Model
		body  string
		text  string
		want  spoken
	}{
		{channels, structured, "{}<|return|>", spoken{Content: "{}"}},
		{thinks, structured, "{}<|im_end|>", spoken{Content: "{}"}},
		{opened, structured, "{}<|im_end|>", spoken{Content: "{}"}},
		{channels, forced, `{"at":"Senn"}<|return|>`, spoken{Calls: []call{{Type: "function", Function: calledWith{"sea_level", `{"at":"Senn"}`}}}}},
		{thinks, forced, `{"name":"sea_level","arguments":{"at":"Senn"}}<|im_end|>`, spoken{Calls: []call{{Type: "function", Function: calledWith{"sea_level", `{"at":"Senn"}`}}}}},
	} {
		var asked generate.Request
		s := open(t, tokens(t, c.model, c.text, &asked), func(o *Options) { o.Model = c.model })
		if got, _ := converse(t, s, c.body); got.Content != c.want.Content || got.Reasoning != "" || !slices.Equal(got.Calls, c.want.Calls) {
			t.Errorf("%s: %+v, want %+v", c.body, got, c.want)
		}
	}
}

// A template that refuses messages is the client's to know of, but not where it lies.
func TestTemplateRefuses(t *testing.T) {
	m := modelOf(t, "qwen.json", `{{ raise_exception("roles must alternate") }}`, nil)
	s := open(t, say("a"), func(o *Options) { o.Model = m })
	r := post(t, s.url+"/v1/chat/completions", asking)
	if message, _, param, _ := failure(t, r); r.StatusCode != 400 || param != "messages" || !strings.Contains(message, "roles must alternate") || strings.Contains(message, m.Dir) {
		t.Errorf("%d %s (%s)", r.StatusCode, message, param)
	}
}

// What the template can't do is refused by name.
func TestReasoningRefusals(t *testing.T) {
	channels, thinks := channelModel(t, "<|return|>"), thinkModel(t, false)
	for _, c := range []struct {
		model       *Model
		more, param string
	}{
		{channels, `"reasoning_effort":"none"`, "reasoning_effort"},
		{channels, `"reasoning_effort":"hard"`, "reasoning_effort"},
		{thinks, `"reasoning_effort":"low"`, "reasoning_effort"},
		{channels, `"chat_template_kwargs":{"enable_thinking":false}`, "chat_template_kwargs.enable_thinking"},
		{thinks, `"chat_template_kwargs":{"messages":[]}`, "chat_template_kwargs.messages"},
		{thinks, `"chat_template_kwargs":1`, "chat_template_kwargs"},
	} {
		s := open(t, say("a"), func(o *Options) { o.Model = c.model })
		r := post(t, s.url+"/v1/chat/completions", `{`+c.more+`,`+asking[1:])
		if message, _, param, _ := failure(t, r); r.StatusCode != 400 || param != c.param {
			t.Errorf("%s: %d %s (%s)", c.more, r.StatusCode, message, param)
		}
	}
	s := open(t, say("a"), func(o *Options) { o.Model = channels })
	r := post(t, s.url+"/v1/chat/completions", `{"tool_choice":"required",`+offering[1:])
	if message, _, param, _ := failure(t, r); r.StatusCode != 400 || param != "tool_choice" || !strings.Contains(message, "named") {
		t.Errorf("%d %s (%s)", r.StatusCode, message, param)
	}
}

// A model that never saw a channel keeps to the form asked for, in its answer.
func TestFormOfAnswers(t *testing.T) {
	for name, template := range map[string]string{"channels": channelTemplate, "thoughts": thinkTemplate} {
		dir := withTools(t, "")
		if err := os.WriteFile(filepath.Join(dir, chat.TemplateName), []byte(template), 0o644); err != nil {
			t.Fatal(err)
		}
		s := openReal(t, dir, nil)
		got, finish := converse(t, s, `{"temperature":0,"response_format":{"type":"regex","regex":"(yes|no)!"},`+asking[1:])
		if got.Content != "yes!" && got.Content != "no!" || got.Reasoning != "" || finish != "stop" {
			t.Errorf("%s: %+v %s", name, got, finish)
		}
	}
}
