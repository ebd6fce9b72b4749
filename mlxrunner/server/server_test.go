package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"payload/mlx"
	"payload/mlxrunner/chat"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/tokenizer"
)

var tiny = filepath.Join("..", "..", "internal", "verify", "tinymodel", "safetensors")

// patience is the longest that a test waits for anything.
const patience = 20 * time.Second

// tinyModel is the tiny model without its weights.
func tinyModel(t *testing.T) *Model {
	t.Helper()
	tok, err := tokenizer.Load(tiny)
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.Load(tiny, tok)
	if err != nil {
		t.Fatal(err)
	}
	return &Model{Name: "tiny", Dir: tiny, Tok: tok, Template: template, End: []int{2}, Context: 1024, Vocab: 512, Loaded: time.Now()}
}

// A fake is an engine made of a function.
type fake func(context.Context, generate.Request, generate.Hooks) (generate.Result, error)

func (f fake) Submit(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
	return f(ctx, q, hooks)
}

// say gives an engine that writes words, each as a piece of one token.
func say(words ...string) fake {
	return func(_ context.Context, _ generate.Request, hooks generate.Hooks) (generate.Result, error) {
		r := generate.Result{Finish: generate.StopEnd}
		for i, word := range words {
			r.Text, r.Tokens = r.Text+word, append(r.Tokens, 5+i)
			if err := hooks.Piece(generate.Piece{Text: word, Tokens: []generate.Token{{ID: 5 + i}}}); err != nil {
				return r, err
			}
		}
		return r, nil
	}
}

// talk writes until its context ends, and tells of that.
func talk(began, ended chan<- struct{}) fake {
	return func(ctx context.Context, _ generate.Request, hooks generate.Hooks) (generate.Result, error) {
		defer func() { ended <- struct{}{} }()
		began <- struct{}{}
		for ctx.Err() == nil {
			if err := hooks.Piece(generate.Piece{Text: "la ", Tokens: []generate.Token{{ID: 7}}}); err != nil {
				return generate.Result{}, err
			}
			time.Sleep(time.Millisecond)
		}
		return generate.Result{Tokens: []int{7}}, fmt.Errorf("generating: %w", ctx.Err())
	}
}

// A site is a server that runs.
type site struct {
	*Server
	url  string
	log  *syncBuffer
	stop context.CancelFunc // as SIGTERM does
	done chan error         // what Serve gives
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// open runs a server, with what change makes of its options.
func open(t *testing.T, engine Engine, change func(*Options)) *site {
	t.Helper()
	s := &site{log: &syncBuffer{}, done: make(chan error, 1)}
	o := Options{Limits: DefaultLimits(), Model: tinyModel(t), Engine: engine, Log: slog.New(slog.NewJSONHandler(s.log, nil))}
	if change != nil {
		change(&o)
	}
	s.Server = New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- s.Serve(ctx, l, nil) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-s.done:
			if err != nil {
				t.Errorf("serving: %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not stop")
		}
	})
	return s
}

// wait gives what comes over a channel.
func wait[T any](t *testing.T, c <-chan T, what string) (out T) {
	t.Helper()
	select {
	case out = <-c:
	case <-time.After(patience):
		t.Fatalf("waited too long: %s", what)
	}
	return out
}

// until waits for something to become true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long: %s", what)
		}
	}
}

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	return r
}

// failure reads an answer that has to be an error in OpenAI's form.
func failure(t *testing.T, r *http.Response) (message, kind, param, code string) {
	t.Helper()
	var body struct {
		Error *struct{ Message, Type, Param, Code *string }
	}
	text, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(text, &body); err != nil || body.Error == nil || body.Error.Message == nil || body.Error.Type == nil {
		t.Fatalf("status %d: not an error of the API: %s (%v)", r.StatusCode, text, err)
	}
	or := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	return *body.Error.Message, *body.Error.Type, or(body.Error.Param), or(body.Error.Code)
}

// What can't be done is refused by name.
func TestRefusals(t *testing.T) {
	s := open(t, say("a"), func(o *Options) { o.BodyLimit, o.MaxTokens = 20_000, 100 })
	const hello = `"messages":[{"role":"user","content":"Hello!"}]`
	long := strings.Repeat("sea ", 2000)
	for _, c := range []struct {
		path, body  string
		status      int
		param, says string
	}{
		{"completions", `{`, 400, "", "not a JSON object"},
		{"completions", `[1]`, 400, "", "is not a JSON object: it is a list"},
		{"completions", `null`, 400, "", "not a JSON object"},
		{"completions", `{"prompt":"a"} x`, 400, "", "not a JSON object"},
		{"completions", `{}`, 400, "prompt", "missing"},
		{"completions", `{"prompt":"a","model":"parrot"}`, 404, "model", `"parrot" is not served`},
		{"completions", `{"prompt":[]}`, 400, "prompt", "0 prompts"},
		{"completions", `{"prompt":[1,512]}`, 400, "prompt[0]", "tokens 0 to 511"},
		{"completions", `{"prompt":[[1],[]]}`, 400, "prompt[1]", "no tokens"},
		{"completions", `{"prompt":{"a":1}}`, 400, "prompt", "want a text"},
		{"completions", `{"prompt":["a","b"],"n":40}`, 400, "prompt", "1 to 64"},
		{"completions", `{"prompt":"` + long + `"}`, 400, "", "context is 1024"},
		{"completions", `{"prompt":"` + strings.Repeat(long, 3) + `"}`, 413, "", "more than 20000 bytes"},
		{"completions", `{"prompt":"a","max_tokens":0}`, 400, "max_tokens", "want 1 to 100"},
		{"completions", `{"prompt":"a","max_tokens":101}`, 400, "max_tokens", "want 1 to 100"},
		{"completions", `{"prompt":"a","max_tokens":1.5}`, 400, "max_tokens", "want a whole number"},
		{"completions", `{"prompt":"a","echo":true,"logprobs":1}`, 400, "logprobs", "with echo"},
		{"completions", `{"prompt":"a","suffix":"b"}`, 400, "suffix", "not supported"},
		{"completions", `{"prompt":"a","best_of":3}`, 400, "best_of", "not supported"},
		{"completions", `{"prompt":"a","logprobs":99}`, 400, "logprobs", "want 0 to 20"},
		{"completions", `{"prompt":"a","temperature":"hot"}`, 400, "temperature", "it is a text, want a number"},
		{"completions", `{"prompt":"a","temperature":-1}`, 400, "temperature", "want 0 to 2"},
		{"completions", `{"prompt":"a","repetition_penalty":0}`, 400, "repetition_penalty", "it is 0"},
		{"completions", `{"prompt":"a","logit_bias":{"x":1}}`, 400, "logit_bias", `"x" is no token id`},
		{"completions", `{"prompt":"a","logit_bias":{"7":"1"}}`, 400, "logit_bias", "token 7 has a text, want a number"},
		{"completions", `{"prompt":"a","logit_bias":{"7":null}}`, 400, "logit_bias", "token 7 has null, want a number"},
		{"completions", `{"prompt":"a","logit_bias":{"7":101}}`, 400, "logit_bias", "want -100 to 100"},
		{"completions", `{"prompt":"a","stop":[""]}`, 400, "stop", "none of them empty"},
		{"completions", `{"prompt":"a","stop":7}`, 400, "stop", "a list of texts"},
		{"completions", `{"prompt":"a","n":0}`, 400, "n", "want 1 to 64"},
		{"completions", `{"prompt":"a","stream_options":{}}`, 400, "stream_options", "stream is not true"},
		{"completions", `{"prompt":"a","stream":true,"stream_options":{"speed":1}}`, 400, "stream_options.speed", "not a parameter"},
		{"completions", `{"prompt":"a","messages":[]}`, 400, "messages", "not a parameter"},
		{"chat/completions", `{"messages":[{"role":"user"}]}`, 400, "messages[0].content", "it is missing"},
		{"chat/completions", `{"messages":[{"role":"user","content":null}]}`, 400, "messages[0].content", "it is missing"},
		{"chat/completions", `{}`, 400, "messages", "there are none"},
		{"chat/completions", `{"messages":[{"content":"a"}]}`, 400, "messages[0].role", `it is ""`},
		{"chat/completions", `{"messages":["a"]}`, 400, "messages", "want a list of objects"},
		{"chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, 400, "messages[0].content[0].type", "only \"text\""},
		{"chat/completions", `{` + hello + `,"functions":[]}`, 400, "functions", "not a parameter"},
		{"chat/completions", `{` + hello + `,"top_logprobs":3}`, 400, "top_logprobs", "logprobs is not true"},
		{"chat/completions", `{` + hello + `,"store":true}`, 400, "store", "not supported"},
		{"chat/completions", `{` + hello + `,"max_tokens":3,"max_completion_tokens":4}`, 400, "max_completion_tokens", "is there too"},
		{"chat/completions", `{` + hello + `,"response_format":{"type":"verse"}}`, 400, "response_format.type", "json_schema"},
		{"chat/completions", `{` + hello + `,"tool_choice":"required"}`, 400, "tool_choice", "no tools"},
		{"chat/completions", `{` + hello + `,"tools":[{"type":"function","function":{"name":"a b"}}]}`, 400, "tools[0].function.name", "letters, digits"},
		{"chat/completions", `{` + hello + `,"tools":[{"type":"function","function":{"name":"a"}}]}`, 400, "tools", "not known"},
		{"detokenize", `{"tokens":[1,900]}`, 400, "tokens", "tokens 0 to 511"},
		{"tokenize", `{}`, 400, "prompt", "want a text, or messages"},
	} {
		r := post(t, s.url+"/v1/"+c.path, c.body)
		message, kind, param, _ := failure(t, r)
		if r.StatusCode != c.status || kind != invalidRequest || param != c.param || !strings.Contains(message, c.says) {
			t.Errorf("%s %.80s\n  status %d, param %q: %s\n  want %d, %q, %q", c.path, c.body, r.StatusCode, param, message, c.status, c.param, c.says)
		}
	}
}

// What asks for nothing, or for what is done in any case, is no reason to refuse.
func TestHarmlessParameters(t *testing.T) {
	s := open(t, say("a"), nil)
	for _, c := range []struct{ more, param string }{
		{`"prediction":null,"audio":null,"functions":null`, ""},
		{`"metadata":{"trace":"7"}`, ""},
		{`"metadata":"7"`, "metadata"},
		{`"verbosity":"medium"`, ""},
		{`"verbosity":"low"`, "verbosity"},
		{`"messages":[{"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,"function_call":null}]`, ""},
		{`"messages":[{"role":"assistant","content":"a","annotations":[{}]}]`, "messages[0].annotations"},
	} {
		body := `{"messages":[{"role":"user","content":"Hello!"}],` + c.more + `}`
		if r := post(t, s.url+"/v1/chat/completions", body); c.param == "" {
			if r.StatusCode != 200 {
				t.Errorf("%s: %d", c.more, r.StatusCode)
			}
		} else if _, _, param, _ := failure(t, r); r.StatusCode != 400 || param != c.param {
			t.Errorf("%s: %d, %q", c.more, r.StatusCode, param)
		}
	}
}

func get(t *testing.T, url string, headers ...string) *http.Response {
	t.Helper()
	return ask(t, http.MethodGet, url, "", headers...)
}

// ask sends a request with headers, given as names and values.
func ask(t *testing.T, method, url, body string, headers ...string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	return r
}

func TestWhoMayAsk(t *testing.T) {
	open1 := open(t, say("a"), nil)
	locked := open(t, say("a"), func(o *Options) { o.Key = "s3cret" })
	const prompt = `{"prompt":"a"}`
	for _, c := range []struct {
		name, method, url, body string
		headers                 []string
		status                  int
	}{
		{"no key needed", "POST", open1.url + "/v1/completions", prompt, nil, 200},
		{"no key", "POST", locked.url + "/v1/completions", prompt, nil, 401},
		{"wrong key", "POST", locked.url + "/v1/completions", prompt, []string{"Authorization", "Bearer s3cre"}, 401},
		{"not a bearer", "GET", locked.url + "/v1/models", "", []string{"Authorization", "s3cret"}, 401},
		{"right key", "POST", locked.url + "/v1/completions", prompt, []string{"Authorization", "Bearer s3cret"}, 200},
		{"metrics", "GET", locked.url + "/metrics", "", nil, 401},
		{"health", "GET", locked.url + "/health", "", nil, 200},
		{"nothing there", "GET", open1.url + "/v1/nothing", "", nil, 404},
		{"another model", "GET", open1.url + "/v1/models/parrot", "", nil, 404},
		{"this model", "GET", open1.url + "/v1/models/tiny", "", nil, 200},
		{"wrong method", "GET", open1.url + "/v1/completions", "", nil, 405},
		{"wrong method", "DELETE", open1.url + "/health", "", nil, 405},
		{"a page of another origin", "POST", open1.url + "/v1/completions", prompt, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a name that is not ours", "POST", open1.url + "/v1/completions", prompt, []string{"Host", "evil.example"}, 403},
		{"any name with the key", "GET", locked.url + "/v1/models", "", []string{"Host", "box.example", "Authorization", "Bearer s3cret"}, 200},
	} {
		r := ask(t, c.method, c.url, c.body, c.headers...)
		if r.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", c.name, r.StatusCode, c.status)
		}
		if r.StatusCode >= 400 {
			failure(t, r)
		}
		if want := map[bool]string{true: "Bearer"}[c.status == 401]; r.Header.Get("WWW-Authenticate") != want {
			t.Errorf("%s: WWW-Authenticate %q, want %q", c.name, r.Header.Get("WWW-Authenticate"), want)
		}
		if c.status == 405 && r.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", c.name)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	s := open(t, say("a"), nil)
	for given, kept := range map[string]bool{"mine-7": true, "": false, "two words": false, strings.Repeat("x", 200): false} {
		id := get(t, s.url+"/v1/models", "X-Request-Id", given).Header.Get("X-Request-Id")
		if kept != (id == given) || id == "" {
			t.Errorf("given %q, got %q", given, id)
		}
		until(t, "the log", func() bool { return strings.Contains(s.log.String(), `"id":"`+id+`"`) })
	}
}

// A client that leaves ends its generation, whether its turn came or not.
func TestDisconnect(t *testing.T) {
	for _, stream := range []bool{true, false} {
		began, ended := make(chan struct{}, 9), make(chan struct{}, 9)
		s := open(t, talk(began, ended), func(o *Options) { o.Concurrent = 1 })
		ctx, leave := context.WithCancel(t.Context())
		send := func(ctx context.Context) {
			q, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":"a","stream":%v}`, stream)))
			if r, err := http.DefaultClient.Do(q); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
		}
		go send(ctx)
		wait(t, began, "the first request runs")
		waits, stopWaiting := context.WithCancel(t.Context())
		go send(waits)
		until(t, "the second request waits", func() bool { _, n := s.gate.counts(); return n == 1 })
		stopWaiting()
		until(t, "the second request is gone", func() bool { _, n := s.gate.counts(); return n == 0 })
		leave()
		wait(t, ended, "the first request ends")
		until(t, "both are logged", func() bool { return strings.Count(s.log.String(), `"status":499`) == 2 })
		if len(began) > 0 {
			t.Error("the engine was given the request that left while it waited")
		}
	}
}

// The log says what happened to whom, and nothing of what was said.
func TestNothingSaidIsLogged(t *testing.T) {
	s := open(t, say("a SECRET answer"), nil)
	for _, body := range []string{
		`{"prompt":"SECRET"}`, `{"prompt":{"SECRET":1}}`, `{"prompt":["SECRET",1]}`, `{"prompt":"a","stop":{"a":"SECRET"}}`, `{"prompt":"a","suffix":"SECRET"}`, `{"prompt":"SECRET`,
	} {
		post(t, s.url+"/v1/completions", body)
	}
	for _, body := range []string{
		`{"messages":"SECRET"}`, `{"messages":["SECRET"]}`, `{"messages":[{"role":"user","content":["SECRET"]}]}`, `{"messages":[{"role":"user","content":"SECRET"}],"stream":true}`,
	} {
		post(t, s.url+"/v1/chat/completions", body)
	}
	until(t, "all are logged", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == 10 })
	if strings.Contains(s.log.String(), "SECRET") {
		t.Errorf("%s", s.log)
	}
}

func TestQueueFull(t *testing.T) {
	began, ended := make(chan struct{}, 9), make(chan struct{}, 9)
	s := open(t, talk(began, ended), func(o *Options) { o.Concurrent, o.Queue, o.StopTimeout = 1, 1, 0 })
	for range 2 {
		go func() {
			if r, err := http.Post(s.url+"/v1/completions", "", strings.NewReader(`{"prompt":"a"}`)); err == nil {
				_ = r.Body.Close()
			}
		}()
	}
	wait(t, began, "one request runs")
	until(t, "one waits", func() bool { _, n := s.gate.counts(); return n == 1 })
	r := post(t, s.url+"/v1/completions", `{"prompt":"a"}`)
	message, kind, _, code := failure(t, r)
	if r.StatusCode != 429 || kind != "rate_limit_error" || code != "queue_full" || r.Header.Get("Retry-After") == "" || !strings.Contains(message, "1 requests are waiting") {
		t.Errorf("status %d, %s, %s: %s; Retry-After %q", r.StatusCode, kind, code, message, r.Header.Get("Retry-After"))
	}
	if r := get(t, s.url+"/health"); r.StatusCode != 200 {
		t.Errorf("health %d while the queue is full", r.StatusCode)
	}
}

// First come, first served.
func TestGateIsFair(t *testing.T) {
	g := newGate(1, 50)
	leave, err := g.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 50)
	for i := range 20 {
		go func() {
			leave, err := g.enter(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			leave()
		}()
		until(t, "it waits", func() bool { _, n := g.counts(); return n == i+1 })
	}
	leave()
	for i := range 20 {
		if got := wait(t, order, "a turn"); got != i {
			t.Fatalf("%d came at %d", got, i)
		}
	}
}

func TestSlowBody(t *testing.T) {
	s := open(t, say("a"), func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"prompt\"")
	_ = c.SetReadDeadline(time.Now().Add(patience))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if message, _, _, _ := failure(t, r); r.StatusCode != http.StatusRequestTimeout || !strings.Contains(message, "in time") {
		t.Errorf("status %d: %s", r.StatusCode, message)
	}
}

// A body's deadline must not end the request that came with it.
func TestLongAnswer(t *testing.T) {
	s := open(t, fake(func(ctx context.Context, _ generate.Request, hooks generate.Hooks) (generate.Result, error) {
		select {
		case <-ctx.Done():
			return generate.Result{}, ctx.Err()
		case <-time.After(300 * time.Millisecond):
			return say("late")(ctx, generate.Request{}, hooks)
		}
	}), func(o *Options) { o.BodyTimeout, o.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond })
	for range 2 { // over one connection
		r := post(t, s.url+"/v1/completions", `{"prompt":"a"}`)
		if text, _ := io.ReadAll(r.Body); r.StatusCode != 200 || !strings.Contains(string(text), "late") {
			t.Errorf("status %d: %s", r.StatusCode, text)
		}
	}
}

// A client that reads nothing keeps nobody waiting, and is given up.
func TestSlowReader(t *testing.T) {
	finished := make(chan error, 1)
	chatter := fake(func(ctx context.Context, _ generate.Request, hooks generate.Hooks) (generate.Result, error) {
		for range 100 {
			if err := hooks.Piece(generate.Piece{Text: strings.Repeat("x", 1<<18)}); err != nil {
				return generate.Result{}, err
			}
		}
		finished <- ctx.Err()
		return generate.Result{Finish: generate.StopEnd}, nil
	})
	s := open(t, chatter, func(o *Options) { o.WriteTimeout = 100 * time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const body = `{"prompt":"a","stream":true}`
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_ = wait(t, finished, "the engine comes to its end though nobody reads")
	until(t, "the client is given up", func() bool { return strings.Contains(s.log.String(), errSlow.Error()) })
	until(t, "its place is free", func() bool { n, _ := s.gate.counts(); return n == 0 })
}

// Whatever breaks in one request, the next is answered.
func TestBrokenEngine(t *testing.T) {
	for name, engine := range map[string]fake{
		"error": func(context.Context, generate.Request, generate.Hooks) (generate.Result, error) {
			return generate.Result{}, errors.New("mlx Matmul of float32[2 3]")
		},
		"panic": func(context.Context, generate.Request, generate.Hooks) (generate.Result, error) { panic("mlx broke") },
	} {
		breaks := true
		s := open(t, fake(func(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
			if breaks {
				return engine(ctx, q, hooks)
			}
			return say("well")(ctx, q, hooks)
		}), nil)
		for _, stream := range []string{"false", "true"} {
			r := post(t, s.url+"/v1/completions", `{"prompt":"a","stream":`+stream+`}`)
			message, kind, _, _ := failure(t, r)
			if r.StatusCode != 500 || kind != serverFault || strings.Contains(message, "mlx") {
				t.Errorf("%s: status %d, %s", name, r.StatusCode, message)
			}
			id := r.Header.Get("X-Request-Id")
			until(t, "the log says why", func() bool {
				for line := range strings.Lines(s.log.String()) {
					if strings.Contains(line, id) && strings.Contains(line, "mlx") && strings.Contains(line, `"level":"ERROR"`) {
						return true
					}
				}
				return false
			})
		}
		breaks = false
		if r := post(t, s.url+"/v1/completions", `{"prompt":"a"}`); r.StatusCode != 200 {
			t.Errorf("%s: the next request: status %d", name, r.StatusCode)
		}
	}
}

// What memory has no room for is the request's fault.
func TestMemoryBudget(t *testing.T) {
	s := open(t, fake(func(context.Context, generate.Request, generate.Hooks) (generate.Result, error) {
		return generate.Result{}, &generate.MemoryError{Tokens: 900, Need: 1 << 30, Free: 1 << 20, Limit: 1 << 29}
	}), nil)
	r := post(t, s.url+"/v1/completions", `{"prompt":"a"}`)
	if message, _, _, code := failure(t, r); r.StatusCode != 400 || code != "memory_budget_exceeded" || !strings.Contains(message, "900 tokens") {
		t.Errorf("status %d, %s: %s", r.StatusCode, code, message)
	}
}

// An error after a stream began is its last event, and there is no [DONE].
func TestErrorInAStream(t *testing.T) {
	s := open(t, fake(func(_ context.Context, _ generate.Request, hooks generate.Hooks) (generate.Result, error) {
		_ = hooks.Piece(generate.Piece{Text: "half"})
		time.Sleep(50 * time.Millisecond)
		return generate.Result{}, errors.New("mlx broke")
	}), nil)
	text, _ := io.ReadAll(post(t, s.url+"/v1/completions", `{"prompt":"a","stream":true}`).Body)
	if !strings.Contains(string(text), "half") || !strings.Contains(string(text), `data: {"error":{"message":`) || strings.Contains(string(text), "[DONE]") {
		t.Errorf("%s", text)
	}
	until(t, "the log", func() bool { return strings.Contains(s.log.String(), `"status":500`) })
}

// A server that stops lets a stream come to its end, and cancels it when that
// takes too long. New requests are refused.
func TestShutdown(t *testing.T) {
	release := make(chan struct{})
	began := make(chan struct{}, 9)
	slow := fake(func(ctx context.Context, q generate.Request, hooks generate.Hooks) (generate.Result, error) {
		_ = hooks.Piece(generate.Piece{Text: "begun "})
		began <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			return generate.Result{}, ctx.Err()
		}
		return say("done")(ctx, q, hooks)
	})
	for _, patient := range []bool{true, false} {
		s := open(t, slow, func(o *Options) {
			if !patient {
				o.StopTimeout = 100 * time.Millisecond
			}
		})
		r := post(t, s.url+"/v1/completions", `{"prompt":"a","stream":true}`)
		wait(t, began, "the stream runs")
		s.stop()
		until(t, "it stops", s.stopping.Load)
		if err := s.admit(routes[5], httpRequest(t, s.url+"/v1/completions")); err == nil || explain(t.Context(), err).status != 503 || !strings.Contains(err.Error(), "takes no requests") {
			t.Errorf("a new request: %v", err)
		}
		if patient {
			time.Sleep(20 * time.Millisecond)
			release <- struct{}{}
		}
		text, _ := io.ReadAll(r.Body)
		whole := strings.Contains(string(text), "done") && strings.Contains(string(text), "[DONE]")
		if whole != patient || !patient && !strings.Contains(string(text), `"message":"the server is stopping and ended this request","type":"server_error","param":null,"code":"unavailable"`) {
			t.Errorf("patient %v: %s", patient, text)
		}
	}
}

func httpRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Host = "localhost"
	return q
}

func TestMetrics(t *testing.T) {
	s := open(t, say("a", "b", "c"), func(o *Options) {
		o.Memory = func() (mlx.Memory, error) { return mlx.Memory{Active: 3480604, Peak: 4696292}, nil }
	})
	post(t, s.url+"/v1/completions", `{"prompt":[5,6,7,8]}`)
	post(t, s.url+"/v1/completions", `{"prompt":7}`)
	post(t, s.url+"/v1/nothing", `{}`)
	text, _ := io.ReadAll(get(t, s.url+"/metrics").Body)
	for _, line := range []string{
		`# TYPE mlxrunner_requests_total counter`,
		`mlxrunner_requests_total{path="/v1/completions",status="200"} 1`,
		`mlxrunner_requests_total{path="/v1/completions",status="400"} 1`,
		`mlxrunner_requests_total{path="other",status="404"} 1`,
		`mlxrunner_prompt_tokens_total 4`,
		`mlxrunner_generated_tokens_total 3`,
		`mlxrunner_requests_running 0`,
		`mlxrunner_requests_waiting 0`,
		`mlxrunner_first_token_seconds_count 1`,
		`# TYPE mlxrunner_queue_seconds histogram`,
		`mlxrunner_queue_seconds_bucket{le="+Inf"} 1`,
		`mlxrunner_request_seconds_count{path="/v1/completions"} 2`,
		`mlxrunner_panics_total 0`,
		`mlxrunner_memory_bytes{kind="active"} 3480604`,
		`mlxrunner_memory_bytes{kind="pool"} 0`,
		`mlxrunner_memory_bytes{kind="peak"} 4696292`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	// Readers of the format refuse a name that is introduced twice.
	told := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "# TYPE") && told[line] {
			t.Errorf("%q again", line)
		}
		told[line] = true
	}
}

// An error that says the same as its cause says it once.
func TestErrorsSayItOnce(t *testing.T) {
	gone := explain(t.Context(), fmt.Errorf("%w: %w", errGone, io.ErrClosedPipe))
	if got := gone.Error(); got != "the client left: io: read/write on closed pipe" {
		t.Error(got)
	}
}

// Nothing is left of requests, however they end.
func TestGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	began, ended := make(chan struct{}, 99), make(chan struct{}, 99)
	t.Run("requests", func(t *testing.T) {
		s := open(t, talk(began, ended), nil)
		for range 5 {
			ctx, leave := context.WithCancel(t.Context())
			q, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(`{"prompt":"a","n":3,"stream":true}`))
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				wait(t, began, "a choice")
			}
			leave()
			_ = r.Body.Close()
			for range 3 {
				wait(t, ended, "a choice's end")
			}
		}
	})
	http.DefaultClient.CloseIdleConnections()
	until(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}
