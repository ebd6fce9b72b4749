package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"payload/internal/verify/tinymodel"
)

// client talks to one running program.
type client struct {
	base     string
	name     string // what the program was told to call its model
	http     *http.Client
	expected tinymodel.Expectations
	requests atomic.Int64

	promptTPS, decodeTPS float64 // of the longest of each; set by checks, one at a time
	promptN, decodeN     int
}

func newClient(base, name string, expected tinymodel.Expectations, limit time.Duration) *client {
	return &client{
		base: base, name: name, expected: expected,
		// No proxy, and no connection kept open: a server that stops would wait
		// for it.
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit},
	}
}

// maxBody bounds an answer, in bytes.
const maxBody = 16 << 20

// statusError is an answer other than 200.
type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("status %d: %s", e.code, clip(strings.TrimSpace(e.body), 300))
}

func (c *client) open(ctx context.Context, path string, body any) (*http.Response, error) {
	method, payload := http.MethodGet, io.Reader(nil)
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		method, payload = http.MethodPost, bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.requests.Add(1)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // the status is the error
		return nil, &statusError{code: resp.StatusCode, body: string(text)}
	}
	return resp, nil
}

// ask sends body (nil means GET) and decodes the answer into out.
func (c *client) ask(ctx context.Context, path string, body, out any) error {
	resp, err := c.open(ctx, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(out); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return nil
}

// Ways in which a stream is wrong.
var (
	errStreamCut   = errors.New("the stream ends without its end mark")
	errStreamExtra = errors.New("the stream goes on after its end mark")
)

// frameError is an error that the program sent inside a stream.
type frameError struct{ text string }

func (e *frameError) Error() string { return "the stream holds an error: " + clip(e.text, 300) }

// stream sends body and calls each for every JSON object of the streamed
// answer, until each says that one was the end. With marked, the end is the
// text [DONE] instead, and each can't end the stream.
func (c *client) stream(ctx context.Context, path string, body any, marked bool, each func(data []byte) (bool, error)) error {
	resp, err := c.open(ctx, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if t := resp.Header.Get("Content-Type"); !strings.HasPrefix(t, "text/event-stream") {
		return fmt.Errorf("the answer is %q, not text/event-stream", t)
	}
	ended := false
	err = readEvents(io.LimitReader(resp.Body, maxBody), func(e event) error {
		if e.name == "error" || len(e.stray) > 0 {
			return &frameError{text: strings.Join(append(e.stray, e.data), " ")}
		}
		if e.data == "" {
			return nil
		}
		if e.data == "[DONE]" {
			if ended && marked {
				return errStreamExtra
			}
			ended = true
			return nil
		}
		var frame struct {
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal([]byte(e.data), &frame); err != nil {
			return fmt.Errorf("decoding the event %q: %w", clip(e.data, 100), err)
		}
		if len(frame.Error) > 0 && string(frame.Error) != "null" {
			return &frameError{text: string(frame.Error)}
		}
		if ended {
			return errStreamExtra
		}
		end, err := each([]byte(e.data))
		ended = ended || end && !marked
		return err
	})
	if err == nil && !ended || errors.Is(err, io.ErrUnexpectedEOF) {
		return errStreamCut
	}
	return err
}

// clip shortens text to n bytes, at most.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
