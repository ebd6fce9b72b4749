package main

import (
	"bufio"
	"context"
	"encoding/json"
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
