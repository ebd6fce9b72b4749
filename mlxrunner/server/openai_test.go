package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/mlxthread"
	"payload/mlx/mlxthread/mlxthreadtest"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/architectures"
)

// client is the official one. It does not try again: a test wants to see.
func (s *site) client(options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.url + "/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0), option.WithRequestTimeout(patience),
	}, options...)...)
}

// start gives a thread without the record of where each array was made, which
// would take most of the time; TestNothingLeaks has it.
func start(t *testing.T) *mlxthread.Thread {
	t.Helper()
	mlxtest.Library(t)
	thread, err := mlxthread.Start(mlx.CPU)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := thread.Close(); err != nil {
			t.Error(err)
		}
	})
	return thread
}

// real is the tiny model in memory, and the engine that runs it.
func real(t *testing.T, thread *mlxthread.Thread, dir string) (*generate.Batch, *Model) {
	t.Helper()
	loaded, err := mlxthread.Call(t.Context(), thread, func(ctx context.Context, s *mlx.Scope) (*model.Loaded, error) {
		return model.Load(ctx, s, dir, model.Options{})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loaded.Close)
	runner, err := generate.Open(dir, loaded)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runner.Forget)
	m, err := Describe(runner, dir, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	return &generate.Batch{Runner: runner, Thread: thread, Size: DefaultLimits().Concurrent}, m
}

// openReal serves the tiny model.
func openReal(t *testing.T, dir string, change func(*Options)) *site {
	t.Helper()
	return openOn(t, start(t), dir, change)
}

func openOn(t *testing.T, thread *mlxthread.Thread, dir string, change func(*Options)) *site {
	t.Helper()
	engine, m := real(t, thread, dir)
	return open(t, engine, func(o *Options) {
		o.Model, o.Memory = m, mlx.MemoryInUse
		if change != nil {
			change(o)
		}
	})
}

// answers are what llama-server gives with the same weights.
type answers struct {
	Completions []struct {
		Name, Prompt, Text, Stop string
		PromptTokens             int64 `json:"prompt_tokens"`
		Predict                  int64 `json:"n_predict"`
		Tokens                   []int64
	}
	Chats []struct {
		Name, Content    string
		Messages         []struct{ Role, Content string }
		MaxTokens        int64  `json:"max_tokens"`
		PromptTokens     int64  `json:"prompt_tokens"`
		CompletionTokens int64  `json:"completion_tokens"`
		FinishReason     string `json:"finish_reason"`
	}
}

func expected(t *testing.T) (a answers) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(tiny), "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Completions) == 0 || len(a.Chats) == 0 {
		t.Fatal("no answers")
	}
	return a
}

func prompt(text string) openai.CompletionNewParamsPromptUnion {
	return openai.CompletionNewParamsPromptUnion{OfString: openai.String(text)}
}

// The official client gets llama-server's answers, in one piece and streamed.
func TestCompletions(t *testing.T) {
	s := openReal(t, tiny, nil)
	client := s.client()
	for _, c := range expected(t).Completions {
		p := openai.CompletionNewParams{Model: "tiny", Prompt: prompt(c.Prompt), MaxTokens: openai.Int(c.Predict), Temperature: openai.Float(0)}
		got, err := client.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		finish := map[string]string{"limit": "length", "eos": "stop"}[c.Stop]
		if got.Choices[0].Text != c.Text || string(got.Choices[0].FinishReason) != finish || got.Usage.PromptTokens != c.PromptTokens || got.Usage.CompletionTokens != int64(len(c.Tokens)) {
			t.Errorf("%s: %s", c.Name, got.RawJSON())
		}
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := client.Completions.NewStreaming(t.Context(), p)
		var text, last string
		var usage openai.CompletionUsage
		for stream.Next() {
			chunk := stream.Current()
			usage = chunk.Usage
			for _, choice := range chunk.Choices {
				text, last = text+choice.Text, string(choice.FinishReason)
			}
		}
		if stream.Err() != nil || text != c.Text || last != finish || usage.CompletionTokens != int64(len(c.Tokens)) {
			t.Errorf("%s, streamed: %q (%s), %d tokens, %v", c.Name, text, last, usage.CompletionTokens, stream.Err())
		}
	}
}

// Every array of a request is freed, however the request ends.
func TestNothingLeaks(t *testing.T) {
	s := openOn(t, mlxthreadtest.Start(t), tiny, nil)
	post(t, s.url+"/v1/completions", `{"prompt":"In the","max_tokens":8,"n":2,"logprobs":2,"seed":1,"repetition_penalty":1.1,"logit_bias":{"7":1}}`)
	ctx, leave := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(`{"prompt":"In the","max_tokens":900,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = r.Body.Close()
	until(t, "the client's leave is seen", func() bool { return strings.Contains(s.log.String(), `"status":499`) })
}

// An error or a panic on MLX's thread ends one request, not the server.
func TestMLXBreaks(t *testing.T) {
	engine, m := real(t, start(t), tiny)
	var breaks func(s *mlx.Scope)
	s := open(t, fake(func(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
		if breaks == nil {
			return engine.Submit(ctx, q, hooks)
		}
		return generate.Result{}, engine.Thread.Do(ctx, func(_ context.Context, s *mlx.Scope) error {
			breaks(s)
			return nil
		})
	}), func(o *Options) { o.Model = m })
	for says, f := range map[string]func(s *mlx.Scope){
		"mlx Matmul of float32[2 3], float32[2 3]": func(s *mlx.Scope) { s.Matmul(s.Ones(mlx.Float32, 2, 3), s.Ones(mlx.Float32, 2, 3)) },
		"panicked: oh no":                          func(*mlx.Scope) { panic("oh no") },
	} {
		breaks = f
		if r := post(t, s.url+"/v1/completions", `{"prompt":"a"}`); r.StatusCode != http.StatusInternalServerError {
			t.Errorf("status %d", r.StatusCode)
		}
		until(t, "the log says why", func() bool { return strings.Contains(s.log.String(), says) })
		breaks = nil
		text, _ := io.ReadAll(post(t, s.url+"/v1/completions", `{"prompt":"The harbour of Senn wakes","max_tokens":12,"temperature":0}`).Body)
		if !strings.Contains(string(text), `"text":" before the sun. Fir"`) {
			t.Errorf("the next answer: %s", text)
		}
	}
}

func TestManyPrompts(t *testing.T) {
	s := openReal(t, tiny, nil)
	client := s.client()
	all := expected(t).Completions[:3]
	p := openai.CompletionNewParams{Model: "tiny", MaxTokens: openai.Int(20), Temperature: openai.Float(0), N: openai.Int(2), Echo: openai.Bool(true)}
	for _, c := range all {
		ids, err := s.Model.Tok.Encode(c.Prompt, true)
		if err != nil {
			t.Fatal(err)
		}
		var tokens []int64
		for _, id := range ids {
			tokens = append(tokens, int64(id))
		}
		p.Prompt.OfArrayOfTokenArrays = append(p.Prompt.OfArrayOfTokenArrays, tokens)
	}
	got, err := client.Completions.New(t.Context(), p)
	if err != nil || len(got.Choices) != 6 {
		t.Fatal(err, got.RawJSON())
	}
	for i, choice := range got.Choices {
		c := all[i/2]
		rest, echoed := strings.CutPrefix(choice.Text, c.Prompt)
		if choice.Index != int64(i) || !echoed || rest == "" || !strings.HasPrefix(c.Text, rest) {
			t.Errorf("choice %d: %q", i, choice.Text)
		}
	}
	if want := all[0].PromptTokens + all[1].PromptTokens + all[2].PromptTokens; got.Usage.PromptTokens != want || got.Usage.CompletionTokens != 120 {
		t.Errorf("usage %s, want %d and 120", got.Usage.RawJSON(), want)
	}
}

// A seed gives the same again; choices and seeds differ.
func TestSeeds(t *testing.T) {
	s := openReal(t, tiny, nil)
	client := s.client()
	ask := func(seed int64) (texts []string) {
		got, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
			Model: "tiny", Prompt: prompt("Zebras"), MaxTokens: openai.Int(24), Temperature: openai.Float(2), N: openai.Int(3), Seed: openai.Int(seed),
		}, option.WithJSONSet("ignore_eos", true))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Choices {
			texts = append(texts, c.Text)
		}
		return texts
	}
	first, again, other := ask(1), ask(1), ask(77)
	if !slices.Equal(first, again) || slices.Equal(first, other) || first[0] == first[1] || first[1] == first[2] {
		t.Errorf("%q\n%q\n%q", first, again, other)
	}
}

// What changes the choice of tokens does.
func TestSampling(t *testing.T) {
	s := openReal(t, tiny, nil)
	client := s.client()
	c := expected(t).Completions[0] // " before the sun. First the gulls, …"
	ask := func(change func(*openai.CompletionNewParams), options ...option.RequestOption) string {
		p := openai.CompletionNewParams{Model: "tiny", Prompt: prompt(c.Prompt), MaxTokens: openai.Int(30), Temperature: openai.Float(0)}
		change(&p)
		got, err := client.Completions.New(t.Context(), p, options...)
		if err != nil {
			t.Fatal(err)
		}
		return got.Choices[0].Text + "|" + string(got.Choices[0].FinishReason)
	}
	stop := func(stops ...string) func(*openai.CompletionNewParams) {
		return func(p *openai.CompletionNewParams) { p.Stop.OfStringArray = stops }
	}
	first, err := s.Model.Tok.Encode(" b", false)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	hot := func(p *openai.CompletionNewParams) { p.Temperature = openai.Float(2) }
	greedy := ask(func(*openai.CompletionNewParams) {})
	for _, x := range []struct{ name, got, want string }{
		{"stop", ask(stop("gulls", " sun")), " before the|stop"},
		{"one stop", ask(func(p *openai.CompletionNewParams) { p.Stop.OfString = openai.String(".") }), " before the sun|stop"},
		{"top_k of one", ask(hot, option.WithJSONSet("top_k", 1)), greedy},
		{"top_p of nothing", ask(func(p *openai.CompletionNewParams) { hot(p); p.TopP = openai.Float(0) }), greedy},
		{"min_p of all", ask(hot, option.WithJSONSet("min_p", 1)), greedy},
	} {
		if x.got != x.want {
			t.Errorf("%s: %q, want %q", x.name, x.got, x.want)
		}
	}
	for name, got := range map[string]string{
		"logit_bias":         ask(func(p *openai.CompletionNewParams) { p.LogitBias = map[string]int64{fmt.Sprint(first[0]): -100} }),
		"repetition_penalty": ask(func(*openai.CompletionNewParams) {}, option.WithJSONSet("repetition_penalty", 5)),
		"frequency_penalty":  ask(func(p *openai.CompletionNewParams) { p.FrequencyPenalty = openai.Float(2) }, option.WithJSONSet("presence_penalty", 2), option.WithJSONSet("max_tokens", 300)),
	} {
		if got == greedy {
			t.Errorf("%s changes nothing: %q", name, got)
		}
	}
}

func TestLogprobs(t *testing.T) {
	s := openReal(t, tiny, nil)
	client := s.client()
	c := expected(t).Completions[0]
	got, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "tiny", Prompt: prompt(c.Prompt), MaxTokens: openai.Int(20), Temperature: openai.Float(0), Logprobs: openai.Int(3),
	})
	if err != nil {
		t.Fatal(err)
	}
	choice := got.Choices[0]
	if strings.Join(choice.Logprobs.Tokens, "") != choice.Text || len(choice.Logprobs.TokenLogprobs) != 20 || len(choice.Logprobs.TopLogprobs) != 20 {
		t.Fatalf("%s", got.RawJSON())
	}
	for i, token := range choice.Logprobs.Tokens {
		top := choice.Logprobs.TopLogprobs[i]
		if at := choice.Logprobs.TextOffset[i]; len(top) != 3 || top[token] != choice.Logprobs.TokenLogprobs[i] || !strings.HasPrefix(choice.Text[at:], token) {
			t.Errorf("token %d, %q at %d: %v", i, token, at, top)
		}
	}
	// In conversations, streamed and not, with characters of several tokens.
	params := openai.ChatCompletionNewParams{
		Model: "tiny", Temperature: openai.Float(0), Logprobs: openai.Bool(true), TopLogprobs: openai.Int(2),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say something cheerful.")},
	}
	answer, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	check := func(c openai.ChatCompletion) {
		t.Helper()
		var bytes []byte
		for _, l := range c.Choices[0].Logprobs.Content {
			for _, b := range l.Bytes {
				bytes = append(bytes, byte(b))
			}
			if len(l.TopLogprobs) != 2 || l.TopLogprobs[0].Token != l.Token || l.TopLogprobs[0].Logprob != l.Logprob || l.Logprob > 0 || l.TopLogprobs[1].Logprob > l.Logprob {
				t.Errorf("%+v", l)
			}
		}
		if text := c.Choices[0].Message.Content; string(bytes) != text || !strings.Contains(text, "🙂") {
			t.Errorf("the tokens' bytes are %q, the text %q", bytes, text)
		}
	}
	check(*answer)
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var whole openai.ChatCompletionAccumulator
	for stream.Next() {
		whole.AddChunk(stream.Current())
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	check(whole.ChatCompletion)
}

func TestConversations(t *testing.T) {
	s := openReal(t, tiny, nil)
	client := s.client()
	for _, c := range expected(t).Chats {
		p := openai.ChatCompletionNewParams{Model: "tiny", Temperature: openai.Float(0), MaxCompletionTokens: openai.Int(c.MaxTokens)}
		for _, m := range c.Messages {
			switch m.Role {
			case "system":
				p.Messages = append(p.Messages, openai.DeveloperMessage(m.Content)) // which is the same
			case "user":
				p.Messages = append(p.Messages, openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart(m.Content)}))
			default:
				p.Messages = append(p.Messages, openai.AssistantMessage(m.Content))
			}
		}
		got, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got.Choices[0].Message.Content != c.Content || got.Choices[0].FinishReason != c.FinishReason || got.Usage.PromptTokens != c.PromptTokens || got.Usage.CompletionTokens != c.CompletionTokens {
			t.Errorf("%s: %s", c.Name, got.RawJSON())
		}
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := client.Chat.Completions.NewStreaming(t.Context(), p)
		var whole openai.ChatCompletionAccumulator
		for stream.Next() {
			if !whole.AddChunk(stream.Current()) {
				t.Errorf("%s: a part that does not fit: %s", c.Name, stream.Current().RawJSON())
			}
		}
		if stream.Err() != nil || whole.Choices[0].Message.Content != c.Content || whole.Choices[0].FinishReason != c.FinishReason || whole.Usage.CompletionTokens != c.CompletionTokens {
			t.Errorf("%s, streamed: %+v, %v", c.Name, whole.ChatCompletion, stream.Err())
		}
	}
}

// Errors reach the official client as its own.
func TestClientErrors(t *testing.T) {
	s := open(t, say("a"), func(o *Options) { o.Key = "s3cret" })
	for _, c := range []struct {
		key, model  string
		temperature float64
		status      int
		code, param string
	}{
		{"wrong", "tiny", 0, 401, "invalid_api_key", ""},
		{"s3cret", "parrot", 0, 404, "model_not_found", "model"},
		{"s3cret", "tiny", 7, 400, "", "temperature"},
	} {
		client := s.client(option.WithAPIKey(c.key))
		_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
			Model: c.model, Temperature: openai.Float(c.temperature), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")},
		})
		var api *openai.Error
		if !errors.As(err, &api) || api.StatusCode != c.status || api.Code != c.code || api.Param != c.param || api.Message == "" {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A conversation's next turn computes what is new, says how much it did not,
// and gets the answer that it gets without.
func TestPrefixes(t *testing.T) {
	s := openReal(t, tiny, func(o *Options) { o.Engine.(*generate.Batch).Runner.Prefixes = 4 })
	client := s.client()
	for _, c := range expected(t).Chats {
		if c.Name != "note" && c.Name != "note late" && c.Name != "west" {
			continue
		}
		p := openai.ChatCompletionNewParams{Model: "tiny", Temperature: openai.Float(0), MaxTokens: openai.Int(c.MaxTokens)}
		for _, m := range c.Messages {
			if m.Role == "user" {
				p.Messages = append(p.Messages, openai.UserMessage(m.Content))
			} else {
				p.Messages = append(p.Messages, openai.AssistantMessage(m.Content))
			}
		}
		var cached []int64
		for range 2 {
			got, err := client.Chat.Completions.New(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got.Choices[0].Message.Content != c.Content || got.Usage.PromptTokens != c.PromptTokens {
				t.Errorf("%s: %s", c.Name, got.RawJSON())
			}
			cached = append(cached, got.Usage.PromptTokensDetails.CachedTokens)
		}
		if again := c.PromptTokens - 1; cached[1] != again || cached[0] >= again {
			t.Errorf("%s: cached %v of %d tokens", c.Name, cached, c.PromptTokens)
		}
	}
	text, _ := io.ReadAll(get(t, s.url+"/metrics").Body)
	if strings.Contains(string(text), "mlxrunner_cached_prompt_tokens_total 0\n") {
		t.Error("the metrics tell of no cached tokens")
	}
}

// The choices of a prompt that nothing is known of read it together, and say
// that nothing was known.
func TestChoicesOfAColdPrompt(t *testing.T) {
	s := openReal(t, tiny, func(o *Options) { o.Engine.(*generate.Batch).Runner.Prefixes = 4 })
	client := s.client()
	p := openai.CompletionNewParams{
		Model: "tiny", MaxTokens: openai.Int(5), N: openai.Int(4), Temperature: openai.Float(1), Seed: openai.Int(3),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("The harbour of Senn wakes before the sun and the gulls")},
	}
	for _, again := range []bool{false, true} {
		got, err := client.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		known, want := got.Usage.PromptTokensDetails.CachedTokens, int64(0)
		if again {
			want = got.Usage.PromptTokens - 1
		}
		if len(got.Choices) != 4 || known != want || want < 0 {
			t.Errorf("%d choices, %d of %d tokens were known, want %d", len(got.Choices), known, got.Usage.PromptTokens, want)
		}
	}
}

func TestModels(t *testing.T) {
	s := open(t, say("a"), nil)
	client := s.client()
	list, err := client.Models.List(t.Context())
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != "tiny" {
		t.Errorf("%+v, %v", list, err)
	}
	if one, err := client.Models.Get(t.Context(), "tiny"); err != nil || one.ID != "tiny" || one.OwnedBy == "" || one.Created == 0 {
		t.Errorf("%+v, %v", one, err)
	}
}

// withTools is the tiny model's folder with a template that knows tools.
func withTools(t *testing.T, form string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} {
		path, err := filepath.Abs(filepath.Join(tiny, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	template := `{{- bos_token }}
{%- if tools %}{{- '<|im_start|>system\nTools:' }}{%- for tool in tools %}{{- '\n' + (tool | tojson) }}{%- endfor %}{{- '\nCall: ` + form + `<|im_end|>\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- '<tool_call>' + call.function.name + ' ' + (call.function.arguments.city | string) + '</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func weatherTool() openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather", Description: openai.String("of a city"),
		Parameters: openai.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Senn", "Tam"}}}, "required": []string{"city"}, "additionalProperties": false,
		},
	})
}

// A model that calls is told so to the client, whole and in parts; what the
// tools are and what was called is told to the model.
func TestToolRequests(t *testing.T) {
	var seen []string
	var s *site
	writes := []string{"Let me see.", "\n<tool", "_call>\n{\"na", "me\": \"weather\", \"argu", "ments\": {\"city\"", ": \"Senn\"}}", "\n</tool_call>", "\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Tam\"}}</tool_call>"}
	s = open(t, fake(func(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
		seen = append(seen, s.Model.Tok.Decode(q.Prompt, false))
		if !q.Specials {
			t.Error("special tokens are left out of the text")
		}
		for _, text := range writes {
			if ctx.Err() != nil {
				return generate.Result{Tokens: []int{1}}, ctx.Err()
			}
			_ = hooks.Piece(generate.Piece{Text: text})
		}
		return generate.Result{Finish: generate.StopEnd}, nil
	}), func(o *Options) {
		dir := withTools(t, "<tool_call>")
		m, err := Describe(&generate.Runner{Tok: o.Model.Tok, End: o.Model.End, Context: 1024, Vocab: 512}, dir, "tiny")
		if err != nil {
			t.Fatal(err)
		}
		o.Model = m
	})
	client := s.client()
	p := openai.ChatCompletionNewParams{
		Model: "tiny", Tools: []openai.ChatCompletionToolUnionParam{weatherTool()},
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("How is it in Senn?")},
	}
	check := func(c openai.ChatCompletion, want int) {
		t.Helper()
		m := c.Choices[0].Message
		if m.Content != "Let me see." || c.Choices[0].FinishReason != "tool_calls" || len(m.ToolCalls) != want ||
			m.ToolCalls[0].Function.Name != "weather" || m.ToolCalls[0].Function.Arguments != `{"city": "Senn"}` || m.ToolCalls[0].ID == "" || m.ToolCalls[0].Type != "function" ||
			want == 2 && m.ToolCalls[1].Function.Arguments != `{"city": "Tam"}` {
			t.Errorf("%+v", c)
		}
	}
	got, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	check(*got, 2)
	stream := client.Chat.Completions.NewStreaming(t.Context(), p)
	var whole openai.ChatCompletionAccumulator
	for stream.Next() {
		whole.AddChunk(stream.Current())
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	check(whole.ChatCompletion, 2)
	p.ParallelToolCalls = openai.Bool(false)
	if got, err = client.Chat.Completions.New(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check(*got, 1)
	if !strings.Contains(seen[0], `{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {`) {
		t.Errorf("the prompt does not tell of the tool: %s", seen[0])
	}
	// What was called and came out is told in the next turn.
	p.ParallelToolCalls = openai.Bool(true)
	p.Messages = append(p.Messages, got.Choices[0].Message.ToParam(), openai.ToolMessage("rain", got.Choices[0].Message.ToolCalls[0].ID))
	if _, err := client.Chat.Completions.New(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if last := seen[len(seen)-1]; !strings.Contains(last, "Let me see.<tool_call>weather Senn</tool_call>") || !strings.Contains(last, "tool\nrain") {
		t.Errorf("the prompt does not tell of the call: %s", last)
	}
	// None may be called: the model is not told of them.
	writes = []string{"<tool_call> is text"}
	p.ToolChoice.OfAuto = openai.String("none")
	p.Messages = p.Messages[:1]
	s.Engine = say(writes...)
	if got, err = client.Chat.Completions.New(t.Context(), p); err != nil || got.Choices[0].Message.Content != writes[0] {
		t.Errorf("%+v, %v", got, err)
	}
}

// A model that must call does, in the form of each family, though it never
// saw a tool: the grammar lets it write nothing else.
func TestForcedCalls(t *testing.T) {
	named := openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"})
	required := openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	for form, template := range map[string]string{"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]", "llama": `{"name": …, "parameters": …}`, "gpt-oss": channelTemplate} {
		dir := withTools(t, template)
		if form == "gpt-oss" {
			if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s := openReal(t, dir, nil)
		client := s.client()
		choices := []openai.ChatCompletionToolChoiceOptionUnionParam{named, required}
		if form == "gpt-oss" { // which has to be given a name
			choices = choices[:1]
		}
		for _, choice := range choices {
			p := openai.ChatCompletionNewParams{
				Model: "tiny", Tools: []openai.ChatCompletionToolUnionParam{weatherTool(), openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "time", Strict: openai.Bool(true)})},
				Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("How is it in Senn?")}, ToolChoice: choice, Temperature: openai.Float(0),
			}
			check := func(c openai.ChatCompletion) {
				t.Helper()
				calls := c.Choices[0].Message.ToolCalls
				if len(calls) != 1 || c.Choices[0].Message.Content != "" || c.Choices[0].FinishReason != "tool_calls" {
					t.Fatalf("%s: %+v", form, c)
				}
				var args map[string]string
				if err := json.Unmarshal([]byte(calls[0].Function.Arguments), &args); err != nil {
					t.Errorf("%s: arguments %s: %v", form, calls[0].Function.Arguments, err)
				}
				if known := calls[0].Function.Name == "weather" && len(args) == 1 && (args["city"] == "Senn" || args["city"] == "Tam"); !known && (calls[0].Function.Name != "time" || len(args) > 0 || choice.OfAuto.Value == "") {
					t.Errorf("%s: %+v", form, calls[0].Function)
				}
			}
			got, err := client.Chat.Completions.New(t.Context(), p)
			if err != nil {
				t.Fatal(form, err)
			}
			check(*got)
			stream := client.Chat.Completions.NewStreaming(t.Context(), p)
			var whole openai.ChatCompletionAccumulator
			for stream.Next() {
				whole.AddChunk(stream.Current())
			}
			if stream.Err() != nil {
				t.Fatal(form, stream.Err())
			}
			check(whole.ChatCompletion)
		}
	}
}

// The text is what response_format asks for, drawn wildly and through all the
// ways of asking.
func TestStructure(t *testing.T) {
	s := openReal(t, tiny, nil)
	ask := func(format string) string {
		t.Helper()
		r := post(t, s.url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hello!"}],"temperature":2,"seed":5,"max_tokens":400,"response_format":`+format+`}`)
		text, _ := io.ReadAll(r.Body)
		var a struct {
			Choices []struct {
				Message struct{ Content string }
				Finish  string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal(text, &a); err != nil || r.StatusCode != 200 || a.Choices[0].Finish != "stop" {
			t.Fatalf("%s: status %d, %s", format, r.StatusCode, text)
		}
		return a.Choices[0].Message.Content
	}
	var got struct {
		Lamp  string
		Count int
	}
	text := ask(`{"type":"json_schema","json_schema":{"name":"lamps","strict":true,"schema":{"type":"object","properties":{"lamp":{"enum":["red","green"]},"count":{"type":"integer","minimum":1,"maximum":9}},"required":["lamp","count"],"additionalProperties":false}}}`)
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Lamp != "red" && got.Lamp != "green" || got.Count < 1 || got.Count > 9 {
		t.Errorf("%q: %v", text, err)
	}
	if text := ask(`{"type":"regex","regex":"[0-9]{2}:[0-9]{2} (high|low)"}`); !regexp.MustCompile(`^\d\d:\d\d (high|low)$`).MatchString(text) {
		t.Errorf("%q", text)
	}
	if text := ask(`{"type":"text"}`); text == "" {
		t.Error("no text")
	}
	r := post(t, s.url+"/v1/completions", `{"prompt":"The","temperature":0,"max_tokens":60,"response_format":{"type":"json_object"}}`)
	var a struct{ Choices []struct{ Text string } }
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || !strings.HasPrefix(a.Choices[0].Text, "{") {
		t.Errorf("%+v, %v", a, err)
	}
	for format, says := range map[string]string{
		`{"type":"json_schema","json_schema":{"name":"x","schema":{"multipleOf":3}}}`: "response_format.json_schema.schema: multipleOf",
		`{"type":"json_schema","json_schema":{"name":"x"}}`:                           "schema: it is missing",
		`{"type":"json_schema"}`:          "json_schema: it is missing",
		`{"type":"regex","regex":"("}`:    "response_format.regex: ",
		`{"type":"regex","regex":"a\\b"}`: "is not supported",
		`{"type":"json_object","x":1}`:    "response_format.x is not a parameter",
	} {
		message, _, param, _ := failure(t, post(t, s.url+"/v1/completions", `{"prompt":"a","response_format":`+format+`}`))
		if !strings.Contains(message, says) || !strings.HasPrefix(param, "response_format") {
			t.Errorf("%s: %q, %s", format, message, param)
		}
	}
}

func TestTokenize(t *testing.T) {
	s := open(t, say("a"), nil)
	read := func(path, body string, into any) {
		t.Helper()
		r := post(t, s.url+"/v1/"+path, body)
		if err := json.NewDecoder(r.Body).Decode(into); err != nil || r.StatusCode != 200 {
			t.Fatalf("status %d, %v", r.StatusCode, err)
		}
	}
	var got struct {
		Count   int
		Context int `json:"max_model_len"`
		Tokens  []int
		Texts   []string `json:"token_strs"`
	}
	read("tokenize", `{"prompt":"Hi 🙂"}`, &got)
	var back struct{ Prompt string }
	text, _ := json.Marshal(map[string]any{"tokens": got.Tokens})
	read("detokenize", string(text), &back)
	if got.Count != 8 || got.Context != 1024 || got.Texts[1] != "H" || back.Prompt != "<|bos|>Hi 🙂" {
		t.Errorf("%+v, %+v", got, back)
	}
	read("tokenize", `{"prompt":"Hi","add_special_tokens":false}`, &got)
	if got.Count != 2 {
		t.Errorf("%+v", got)
	}
	read("tokenize", `{"messages":[{"role":"user","content":"Are you ready?"}]}`, &got)
	if got.Count != 15 {
		t.Errorf("%+v", got)
	}
}

// What /v1/show tells is what mlxrunner show does.
func TestShow(t *testing.T) {
	s := open(t, say("a"), nil)
	var c Checkpoint
	if err := json.NewDecoder(get(t, s.url+"/v1/show").Body).Decode(&c); err != nil || c.Schema != "mlxrunner.show/v1" || c.Architecture != "llama" || c.Parameters != 574336 || len(c.Tensors) != 30 {
		t.Errorf("%+v, %v", c, err)
	}
}

// What JSON has no number for.
func TestFinite(t *testing.T) {
	for in, want := range map[float64]float64{-1: -1, math.Inf(-1): -9999, -20000: -9999, 0: 0} {
		if got := finite(in); got != want {
			t.Errorf("%v gives %v", in, got)
		}
	}
	if finite(math.NaN()) != -9999 {
		t.Error("NaN")
	}
}
