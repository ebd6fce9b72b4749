package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"payload/mlx/mlxtest"
)

// The address is the first line on stderr, lines of JSON follow, and the end
// of the context, as SIGTERM brings it, ends the server without an error.
func TestServe(t *testing.T) {
	mlxtest.Library(t)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stderr, w := io.Pipe()
	root := newRootCmd(&app{stdin: strings.NewReader(""), stdout: io.Discard, voice: newVoice(w)})
	root.SetArgs([]string{"serve", "--model", tiny, "--port", "0", "--name", "small", "--api-key-file", key, "--context", "100"})
	done := make(chan error, 1)
	go func() {
		done <- root.ExecuteContext(ctx)
		_ = w.Close()
	}()
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		t.Fatal(lines.Err(), <-done)
	}
	url, ok := strings.CutPrefix(lines.Text(), "serving small at ")
	if !ok || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("the first line is %q", lines.Text())
	}
	logged := make(chan string, 9)
	go func() {
		for lines.Scan() {
			logged <- lines.Text()
		}
		close(logged)
	}()
	for body, want := range map[string]string{
		`{"model":"small","messages":[{"role":"user","content":"Hello!"}],"temperature":0}`: "Hello. The ferry is on time today.",
		`{"messages":[{"role":"user","content":"` + strings.Repeat("sea ", 60) + `"}]}`:     "context is 100",
	} {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer s3cret")
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if !strings.Contains(string(text), want) {
			t.Errorf("%d, %s", r.StatusCode, text)
		}
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not stop")
	}
	var messages []string
	for line := range logged {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" {
			t.Errorf("%q: %v", line, err)
		}
		messages = append(messages, entry.Msg)
	}
	if got := strings.Join(messages, " "); got != "request request stopping stopped" {
		t.Errorf("logged %s", got)
	}
}

// A draft whose context ends before the model's is told of once, and guesses up to
// there: the text is the same.
func TestServeDraftOfAShorterContext(t *testing.T) {
	mlxtest.Library(t)
	draft := changed(t, "config.json", `"max_position_embeddings": 1024`, `"max_position_embeddings": 24`)
	const told = "the draft model's context is 24 tokens"
	var texts []string
	for _, c := range []struct {
		args []string
		told bool
	}{{nil, false}, {[]string{"--draft", draft}, true}, {[]string{"--draft", draft, "--context", "24"}, false}, {[]string{"--draft", tiny}, false}} {
		ctx, stop := context.WithCancel(t.Context())
		stderr, w := io.Pipe()
		root := newRootCmd(&app{stdin: strings.NewReader(""), stdout: io.Discard, voice: newVoice(w)})
		root.SetArgs(append([]string{"serve", "--model", tiny, "--port", "0"}, c.args...))
		done := make(chan error, 1)
		go func() {
			done <- root.ExecuteContext(ctx)
			_ = w.Close()
		}()
		lines, before, url := bufio.NewScanner(stderr), "", ""
		for found := false; !found && lines.Scan(); {
			if _, url, found = strings.Cut(lines.Text(), "serving safetensors at "); !found {
				before += lines.Text()
			}
		}
		go func() { _, _ = io.Copy(io.Discard, stderr) }()
		if strings.HasPrefix(before, told) != c.told || !c.told && before != "" {
			t.Errorf("%v: told %q", c.args, before)
		}
		r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"The harbour","temperature":0,"max_tokens":40,"ignore_eos":true}`))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Choices []struct{ Text string } }
		if err := errors.Join(json.NewDecoder(r.Body).Decode(&answer), r.Body.Close()); err != nil || len(answer.Choices) != 1 {
			t.Fatal(err, answer)
		}
		texts = append(texts, answer.Choices[0].Text)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if len(texts[0]) < 40 || texts[1] != texts[0] || texts[3] != texts[0] || !strings.HasPrefix(texts[0], texts[2]) {
		t.Errorf("%q", texts)
	}
}

// A draft of another vocabulary is refused before anything is served.
func TestServeDraftOfAnotherVocabulary(t *testing.T) {
	mlxtest.Library(t)
	draft := changed(t, "tokenizer.json", `<|im_start|>`, `<|im_begin|>`)
	code, _, err := mlxrunner("", "serve", "--model", tiny, "--port", "0", "--draft", draft)
	if code != exitFailed || !strings.Contains(err, `is "<|im_start|>" here and "<|im_begin|>" in the draft`) || !strings.Contains(err, "hint: take a draft of the same family") {
		t.Errorf("%d, %s", code, err)
	}
}

// changed is the tiny model with a text of one of its files replaced.
func changed(t *testing.T, name, old, now string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(tiny, name))
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(tiny))
	}
	if err == nil && !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %s", name, old)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(text), old, now)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
