package run

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

type echoKey struct{}

type echoer struct {
	mu sync.Mutex
	w  io.Writer
}

// WithEcho makes every process started under ctx print itself on w as a line
// that can be pasted into a shell, and its time when it ends.
func WithEcho(ctx context.Context, w io.Writer) context.Context {
	return context.WithValue(ctx, echoKey{}, &echoer{w: w})
}

func echoFrom(ctx context.Context) *echoer {
	e, _ := ctx.Value(echoKey{}).(*echoer)
	return e
}

func (e *echoer) before(c Cmd) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(e.w, "+ %s\n", c)
}

func (e *echoer) after(args []string, took time.Duration, err error) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	outcome := "ok"
	if err != nil {
		outcome = err.Error()
	}
	fmt.Fprintf(e.w, "# %s: %s after %.3fs\n", args[0], outcome, took.Seconds())
}

// String is the command as one line of shell: folder, named variables, words.
func (c Cmd) String() string {
	var words []string
	if c.OnlyEnv {
		words = append(words, "env", "-i")
	}
	for _, kv := range c.Env {
		name, value, _ := strings.Cut(kv, "=")
		words = append(words, name+"="+Quote(value))
	}
	for _, a := range c.Args {
		words = append(words, Quote(a))
	}
	line := strings.Join(words, " ")
	if c.Dir != "" {
		return "(cd " + Quote(c.Dir) + " && " + line + ")"
	}
	return line
}

// Quote makes s one word of a POSIX shell.
func Quote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%^"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
