package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"payload/mlx"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/server"
)

type serveOptions struct {
	engine   engineOptions
	name     string
	host     string
	port     int
	keyFile  string
	context  int
	prefixes int
	guesses  int // tokens a round that the draft guesses
	server.Limits
}

func newServeCmd(a *app, run func(context.Context, *app, serveOptions) error) *cobra.Command {
	o := serveOptions{Limits: server.DefaultLimits()}
	cmd := &cobra.Command{
		Use:   "serve --model DIR",
		Short: "Answer requests in the form of OpenAI's API",
		Long: `Answer requests over HTTP in the form of OpenAI's API: /v1/completions,
/v1/chat/completions, /v1/models, /v1/tokenize, /v1/detokenize, /v1/show, /health
and /metrics. The address is told on stderr, and each request as a line of JSON.

SIGTERM and Ctrl-C let running requests come to their end; a second one does not.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.engine.check("serve"); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return &usageError{err}
			}
			if o.engine.draft == "" && cmd.Flags().Changed("draft-tokens") {
				return &usageError{errNoDraft}
			}
			return run(cmd.Context(), a, o)
		},
	}
	o.engine.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "the `NAME` by which requests ask for the model; that of its folder if not given")
	f.StringVar(&o.host, "host", "127.0.0.1", "the `ADDRESS` to listen at; one that others can reach needs --api-key-file")
	f.IntVar(&o.port, "port", 8080, "the `PORT` to listen at; 0 takes a free one")
	f.StringVar(&o.keyFile, "api-key-file", "", "ask every request for the key that `FILE` holds")
	f.IntVar(&o.Concurrent, "concurrent", o.Concurrent, "work on at most `N` requests at once")
	f.IntVar(&o.Queue, "queue", o.Queue, "let at most `N` more wait; others get status 429")
	f.IntVar(&o.context, "context", 0, "let prompt and text have at most `N` tokens together; 0 is what the model can")
	f.IntVar(&o.MaxTokens, "max-tokens", 0, "generate at most `N` tokens for a choice; 0 is as many as the context allows")
	f.Int64Var(&o.BodyLimit, "body-limit", o.BodyLimit, "read at most `BYTES` of a request")
	f.IntVar(&o.prefixes, "prefixes", 8, "remember `N` requests, so that those that begin alike compute only what is new; 0 is none")
	f.IntVar(&o.guesses, "draft-tokens", 4, "guess `N` tokens a round by the draft model")
	f.DurationVar(&o.StopTimeout, "stop-timeout", o.StopTimeout, "when stopping, let requests run on for at most `TIME`")
	return cmd
}

func (o serveOptions) check() error {
	switch {
	case o.port < 0 || o.port > 65535:
		return fmt.Errorf("--port is %d, want 0 to 65535", o.port)
	case o.Concurrent < 1 || o.BodyLimit < 1:
		return errors.New("--concurrent and --body-limit have to be at least 1")
	case o.Queue < 0 || o.context < 0 || o.MaxTokens < 0 || o.prefixes < 0 || o.StopTimeout < 0:
		return errors.New("--queue, --context, --max-tokens, --prefixes and --stop-timeout can't be negative")
	case o.guesses < 1:
		return errors.New("--draft-tokens has to be at least 1")
	case o.keyFile == "" && !onlyHere(o.host):
		return fmt.Errorf("at --host %q everybody who reaches this machine could ask: give --api-key-file FILE too", o.host)
	}
	return nil
}

// onlyHere tells whether only this machine reaches an address.
func onlyHere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func runServe(ctx context.Context, a *app, o serveOptions) error {
	key, err := readKey(o.keyFile)
	if err != nil {
		return err
	}
	// Before the model is loaded: that a port is taken should not take minutes to be told.
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(o.host, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listening at %s, port %d: %w", o.host, o.port, err)
	}
	s, err := openSession(ctx, a, o.engine)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return errors.Join(serve(ctx, a, o, s, l, key), s.close())
}

func serve(ctx context.Context, a *app, o serveOptions, s *session, l net.Listener, key string) error {
	if o.context > 0 && (s.runner.Context == 0 || o.context < s.runner.Context) {
		s.runner.Context = o.context
	}
	s.runner.Prefixes = o.prefixes
	batch := &generate.Batch{Runner: s.runner, Thread: s.thread, Size: o.Concurrent}
	if o.engine.draft != "" {
		batch.Draft = o.guesses
	}
	m, err := server.Describe(s.runner, o.engine.model, o.name)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	log := slog.New(slog.NewJSONHandler(a.voice.w, nil))
	h := server.New(server.Options{
		Limits: o.Limits, Model: m, Key: key, Log: log, Memory: mlx.MemoryInUse,
		Engine: batch,
	})
	if m.Template == nil {
		a.voice.say("the checkpoint has no chat template: /v1/chat/completions will refuse requests")
	}
	if n := s.shortDraft(); n > 0 {
		a.voice.say("the draft model's context is %d tokens: beyond that it does not guess, and text comes as without it", n)
	}
	a.voice.say("serving %s at http://%s", m.Name, l.Addr())
	return h.Serve(ctx, l, again(ctx))
}

// again gives a channel for the second signal: the first one ends ctx.
func again(ctx context.Context) <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	context.AfterFunc(ctx, func() { signal.Notify(signals, os.Interrupt, syscall.SIGTERM) })
	return signals
}

// A keyError says that the file of the API key can't be read.
type keyError struct{ err error }

func (e *keyError) Error() string { return fmt.Sprintf("reading the API key: %v", e.err) }
func (e *keyError) Unwrap() error { return e.err }

// readKey gives what a file holds but for white space around it.
func readKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &keyError{err}
	}
	key := bytes.TrimSpace(text)
	if len(key) == 0 || bytes.ContainsAny(key, "\r\n") {
		return "", &usageError{fmt.Errorf("reading the API key: %s holds no single line", path)}
	}
	return string(key), nil
}
