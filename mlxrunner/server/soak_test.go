package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"payload/mlx"
	"payload/mlx/mlxthread/mlxthreadtest"
	"payload/mlxrunner/generate"
)

// A few mixed requests at once; with PAYLOAD_TEST_ALL=1 many.
func TestSoak(t *testing.T) {
	requests := 60
	if os.Getenv("PAYLOAD_TEST_ALL") == "1" {
		requests = 500
	}
	const concurrency, rounds = 8, 5
	var engine *generate.Batch
	s := openReal(t, tiny, func(o *Options) {
		engine = o.Engine.(*generate.Batch)
		engine.Runner.Prefixes = 4
	})
	old, err := mlx.SetCacheLimit(4 << 30) // or a leak would stay within the pool's limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = mlx.SetCacheLimit(old) })
	k := &soak{site: s, engine: engine, expected: expected(t)}
	// Alone, so that the answers at the same time have something to equal; and
	// everything that is made once is there.
	for i := range len(kinds) {
		k.request(t, i)
	}
	first := k.idle(t)
	start := time.Now()
	for round := range rounds {
		numbers := make(chan int)
		var group sync.WaitGroup
		for range concurrency {
			group.Go(func() {
				for i := range numbers {
					k.request(t, i)
				}
			})
		}
		for i := range requests / rounds {
			numbers <- round*requests/rounds + i
		}
		close(numbers)
		group.Wait()
		now := k.idle(t)
		t.Logf("after %d requests: %v; %v", (round+1)*requests/rounds, now, time.Since(start).Round(time.Millisecond))
		if now.Active != first.Active || now.Cache > 1<<20 || now.kept > 8<<20 || now.goroutines > first.goroutines+2 { // a connection may be on its way out
			t.Errorf("after %d requests %v, at first %v", (round+1)*requests/rounds, now, first)
		}
	}
	if r := get(t, s.url+"/health"); r.StatusCode != http.StatusOK {
		t.Errorf("health: status %d", r.StatusCode)
	}
	text, _ := io.ReadAll(get(t, s.url+"/metrics").Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "mlxrunner_requests_total") || strings.HasPrefix(line, "mlxrunner_memory") || strings.HasPrefix(line, "mlxrunner_panics") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if log := s.log.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"status":500`) || !strings.Contains(string(text), "mlxrunner_panics_total 0\n") {
		t.Error("a request failed in the server")
	}
	t.Logf("%d requests: %d answers compared, %d clients that left, %d refused", requests, k.right.Load(), k.left.Load(), k.refused.Load())
}

// A soak is a server under load.
type soak struct {
	*site
	engine   *generate.Batch
	expected answers
	drawn    sync.Map // the first answer to each request that draws
	right    atomic.Int64
	left     atomic.Int64
	refused  atomic.Int64
}

// A state is what has to be flat.
type state struct {
	mlx.Memory
	kept       int64 // bytes remembered of requests
	goroutines int
}

func (s state) String() string {
	return fmt.Sprintf("active %d and %d kept, pool %d, peak %d bytes, %d goroutines", s.Active, s.kept, s.Cache, s.Peak, s.goroutines)
}

// idle waits until nothing runs, and tells what is left beside what is kept on
// purpose.
func (k *soak) idle(t *testing.T) (now state) {
	t.Helper()
	until(t, "the server is idle", func() bool { running, waiting := k.gate.counts(); return running+waiting == 0 })
	before, err := mlx.MemoryInUse()
	if err != nil {
		t.Fatal(err)
	}
	mlxthreadtest.Do(t, k.engine.Thread, func(*mlx.Scope) error {
		k.engine.Runner.Forget()
		return mlx.ClearCache()
	})
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		n := runtime.NumGoroutine()
		if now.goroutines == n || time.Now().After(end) { // they don't change any more
			break
		}
		now.goroutines = n
	}
	if now.Memory, err = mlx.MemoryInUse(); err != nil {
		t.Fatal(err)
	}
	now.Cache, now.kept = before.Cache, before.Active-now.Active
	return now
}

// kinds are the requests of the mixture.
var kinds = []func(*soak, *testing.T, int){
	(*soak).completion, (*soak).conversation, (*soak).completion, (*soak).leaves, (*soak).oversized,
	(*soak).drawing, (*soak).conversation, (*soak).malformed, (*soak).leaves, (*soak).tooLong,
}

func (k *soak) request(t *testing.T, i int) {
	t.Helper()
	kinds[i%len(kinds)](k, t, i/len(kinds))
}

// send gives the status and the body, or what came of it until ctx ended.
func (k *soak) send(ctx context.Context, t *testing.T, path string, body any, see func(line string)) (int, string) {
	t.Helper()
	text, raw := body.(string)
	if !raw {
		encoded, _ := json.Marshal(body)
		text = string(encoded)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+path, strings.NewReader(text))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return 0, ""
	}
	defer r.Body.Close()
	var whole strings.Builder
	lines := bufio.NewReader(r.Body)
	for {
		line, err := lines.ReadString('\n')
		whole.WriteString(line)
		if err != nil {
			return r.StatusCode, whole.String()
		}
		if see != nil {
			see(line)
		}
	}
}

// said gives the text of an answer, streamed or not.
func said(stream bool, body string) (text string) {
	parts := []string{body}
	if stream {
		parts = strings.Split(body, "data: ")
	}
	for _, part := range parts {
		var a struct {
			Choices []struct {
				Text           string
				Message, Delta struct{ Content string }
			}
		}
		if json.Unmarshal([]byte(strings.TrimSpace(part)), &a) == nil {
			for _, c := range a.Choices {
				text += c.Text + c.Message.Content + c.Delta.Content
			}
		}
	}
	return text
}

func (k *soak) compare(t *testing.T, what string, stream bool, status int, body, want string) {
	t.Helper()
	if got := said(stream, body); status != http.StatusOK || got != want || stream && !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%s: status %d, %q, want %q", what, status, got, want)
	}
	k.right.Add(1)
}

func (k *soak) completion(t *testing.T, i int) {
	t.Helper()
	c := k.expected.Completions[i%3]
	stream := i%2 == 0
	status, body := k.send(t.Context(), t, "/v1/completions", map[string]any{"prompt": c.Prompt, "max_tokens": c.Predict, "temperature": 0, "stream": stream}, nil)
	k.compare(t, "completing "+c.Name, stream, status, body, c.Text)
}

func (k *soak) conversation(t *testing.T, i int) {
	t.Helper()
	c := k.expected.Chats[i%len(k.expected.Chats)]
	messages := []map[string]string{}
	for _, m := range c.Messages {
		messages = append(messages, map[string]string{"role": m.Role, "content": m.Content})
	}
	stream := i%2 == 1
	status, body := k.send(t.Context(), t, "/v1/chat/completions", map[string]any{"messages": messages, "max_tokens": c.MaxTokens, "temperature": 0, "stream": stream}, nil)
	k.compare(t, "conversing "+c.Name, stream, status, body, c.Content)
}

// drawing asks for what depends on the seed alone, and has to be what the
// first such request got.
func (k *soak) drawing(t *testing.T, i int) {
	t.Helper()
	seed := i % 4
	status, body := k.send(t.Context(), t, "/v1/completions", map[string]any{
		"prompt": "Zebras", "max_tokens": 20, "temperature": 1.5, "top_p": 0.95, "n": 2, "seed": seed, "ignore_eos": true, "logprobs": 2, "frequency_penalty": 0.5,
	}, nil)
	first, _ := k.drawn.LoadOrStore(seed, said(false, body))
	k.compare(t, fmt.Sprintf("drawing with seed %d", seed), false, status, body, first.(string))
}

// leaves reads a little of a long answer, or nothing at all.
func (k *soak) leaves(t *testing.T, i int) {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), time.Duration(20+i%5*30)*time.Millisecond)
	if i%2 == 0 {
		ctx, leave = context.WithCancel(t.Context())
	}
	defer leave()
	lines := 0
	k.send(ctx, t, "/v1/completions", map[string]any{"prompt": "The harbour", "max_tokens": 900, "ignore_eos": true, "stream": i%2 == 0}, func(string) {
		if lines++; lines > 10+i%7 {
			leave()
		}
	})
	k.left.Add(1)
}

func (k *soak) refuse(t *testing.T, what, body string, want int) {
	t.Helper()
	status, answer := k.send(t.Context(), t, "/v1/completions", body, nil)
	if status != want || !strings.HasPrefix(answer, `{"error":{"message":`) {
		t.Errorf("%s: status %d, want %d: %s", what, status, want, answer)
	}
	k.refused.Add(1)
}

func (k *soak) oversized(t *testing.T, _ int) {
	t.Helper()
	k.refuse(t, "a body that is too large", `{"prompt":"`+strings.Repeat("sea ", 2_200_000)+`"}`, http.StatusRequestEntityTooLarge)
}

func (k *soak) malformed(t *testing.T, i int) {
	t.Helper()
	k.refuse(t, "a body that is no JSON", []string{`{"prompt":"a"`, `{"prompt":"a",}`, `prompt`, ``, `{"prompt":"a","temperature":"x"}`}[i%5], http.StatusBadRequest)
}

func (k *soak) tooLong(t *testing.T, _ int) {
	t.Helper()
	k.refuse(t, "a prompt that is too long", `{"prompt":"`+strings.Repeat("sea ", 3000)+`"}`, http.StatusBadRequest)
}
