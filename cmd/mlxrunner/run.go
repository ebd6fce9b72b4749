package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"payload/mlx"
	"payload/mlx/mlxthread"
	"payload/mlxrunner/chat"
	"payload/mlxrunner/constrain"
	"payload/mlxrunner/generate"
)

type runOptions struct {
	engine engineOptions
	prompt string
	given  bool // a prompt was
	chat   bool
	json   bool
	schema string // the file of a JSON schema
	regex  string
	ask    generate.Request
}

func newRunCmd(a *app, run func(context.Context, *app, runOptions) error) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --model DIR [--prompt TEXT]",
		Short: "Complete a prompt, or chat",
		Long: `Complete a prompt as it is or, with --chat, answer it as the first message of
a conversation. Without --prompt, chat: a line is a message, an empty line or
the end of the input ends it. On a terminal Ctrl-C ends an answer and, where a
message is waited for, the conversation.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed("prompt")
			if err := o.engine.check("run"); err != nil {
				return err
			}
			if !cmd.Flags().Changed("seed") {
				o.ask.Sampling.Seed = rand.Uint64()
			}
			if o.json && !o.given {
				return &usageError{errors.New("--json prints one answer: give --prompt")}
			}
			if err := o.ask.Sampling.Check(); err != nil {
				return &usageError{err}
			}
			if o.ask.MaxTokens < 0 || o.ask.Lookup < 0 || o.ask.Draft <= 0 {
				return &usageError{errors.New("--max-tokens and --lookup can't be negative, nor --draft-tokens 0")}
			}
			if o.engine.draft == "" && cmd.Flags().Changed("draft-tokens") {
				return &usageError{errNoDraft}
			}
			if o.engine.draft == "" {
				o.ask.Draft = 0
			} else if o.ask.Lookup > 0 {
				return &usageError{errors.New("--draft and --lookup both guess: give one")}
			}
			var err error
			if o.ask.Grammar, err = o.grammar(); err != nil {
				return err
			}
			return run(cmd.Context(), a, o)
		},
	}
	o.engine.flags(cmd)
	f, s := cmd.Flags(), &o.ask.Sampling
	f.StringVar(&o.prompt, "prompt", "", "the `TEXT` to complete")
	f.BoolVar(&o.chat, "chat", false, "put the prompt into the model's chat template")
	f.IntVar(&o.ask.MaxTokens, "max-tokens", 512, "generate at most `N` tokens; 0 is as many as the context allows")
	f.Float64Var(&s.Temperature, "temperature", 0, "draw at the temperature `T`; 0 takes the likeliest token")
	f.IntVar(&s.TopK, "top-k", 0, "draw from the `N` likeliest; 0 is all")
	f.Float64Var(&s.TopP, "top-p", 0, "draw from the likeliest that together have probability `P`; 0 is all")
	f.Float64Var(&s.MinP, "min-p", 0, "draw from those with at least `P` times the likeliest's probability")
	f.Float64Var(&s.Repetition, "repetition-penalty", 0, "divide the logits of tokens seen by `F`; 0 and 1 don't")
	f.Float64Var(&s.Presence, "presence-penalty", 0, "take `F` off the logits of tokens generated")
	f.Float64Var(&s.Frequency, "frequency-penalty", 0, "take `F` off for each time a token was generated")
	f.Uint64Var(&s.Seed, "seed", 0, "draw the same again by the seed `N`; another one each time if not given")
	f.StringArrayVar(&o.ask.Stop, "stop", nil, "end before `TEXT`; may be given several times")
	f.IntVar(&o.ask.Lookup, "lookup", 0, "guess `N` tokens a round from what came before; the text stays the same")
	f.IntVar(&o.ask.Draft, "draft-tokens", 4, "guess `N` tokens a round by the draft model")
	f.StringVar(&o.schema, "json-schema", "", "write JSON that is valid by the schema in `FILE`")
	f.StringVar(&o.regex, "regex", "", "write what `EXPR` matches from begin to end, in Go's syntax")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// grammar is what the text has to be; nil where nothing is asked for.
func (o *runOptions) grammar() (*constrain.Grammar, error) {
	switch {
	case o.schema != "" && o.regex != "":
		return nil, &usageError{errors.New("--json-schema and --regex: a text follows one of them")}
	case o.regex != "":
		g, err := constrain.Regex(o.regex)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--regex %s: %w", o.regex, err)}
		}
		return g, nil
	case o.schema == "":
		return nil, nil
	}
	source, err := os.ReadFile(o.schema)
	if err != nil {
		return nil, &usageError{fmt.Errorf("reading the JSON schema: %w", err)}
	}
	g, err := constrain.Schema(source)
	if err != nil {
		return nil, &usageError{fmt.Errorf("compiling the JSON schema %s: %w", o.schema, err)}
	}
	return g, nil
}

// runReport is mlxrunner.run/v1.
type runReport struct {
	Schema          string  `json:"schema"`
	Text            string  `json:"text"`
	Reasoning       string  `json:"reasoning,omitempty"` // before the text, where a conversation's model does that
	Tokens          []int   `json:"tokens"`
	FinishReason    string  `json:"finish_reason"`
	PromptTokens    int     `json:"prompt_tokens"`
	GeneratedTokens int     `json:"generated_tokens"`
	PrefillTPS      float64 `json:"prefill_tps"`
	DecodeTPS       float64 `json:"decode_tps"`
	FirstTokenMS    float64 `json:"first_token_ms"`
	LoadMS          float64 `json:"load_ms"`
	Rounds          int     `json:"rounds"`
	Guessed         int     `json:"guessed"`
	Accepted        int     `json:"accepted"`
	ActiveBytes     int64   `json:"active_bytes"`
	CacheBytes      int64   `json:"cache_bytes"`
	PeakBytes       int64   `json:"peak_bytes"`
	FootprintBytes  int64   `json:"footprint_bytes"`
}

// generate answers a request on stdout as the text comes or, quietly, not there.
// Of a turn only the answer goes there; a person sees the reasoning too. What was
// told of a text that breaks off ends its line.
func (s *session) generate(ctx context.Context, a *app, q generate.Request, turn *chat.Turn, quiet bool) (answer, error) {
	out := answer{}
	tell := func(parts []chat.Part) {
		for _, p := range parts {
			if p.Kind == chat.Reasoning {
				out.reasoning += p.Text
				if !quiet {
					a.voice.aside(p.Text)
				}
				continue
			}
			if !quiet && out.content == "" && out.reasoning != "" {
				a.voice.aside("\n\n")
			}
			out.content += p.Text
			if !quiet {
				a.voice.clear()
				fmt.Fprint(a.stdout, p.Text)
			}
		}
	}
	var err error
	out.Result, err = mlxthread.Call(ctx, s.thread, func(ctx context.Context, scope *mlx.Scope) (generate.Result, error) {
		return s.runner.Generate(ctx, scope, q, generate.Hooks{
			Prefill: func(done, total int) { a.voice.progress("reading the prompt", int64(done), int64(total)) },
			Piece: func(p generate.Piece) error {
				tell(turn.Push(p.Text))
				if turn.Done() {
					return errTurnEnded
				}
				return nil
			},
		})
	})
	if errors.Is(err, errTurnEnded) {
		out.Finish, err = generate.StopEnd, nil
	}
	tell(turn.Flush())
	if !quiet && (err == nil || out.Text != "") {
		a.voice.clear()
		fmt.Fprintln(a.stdout)
	}
	return out, err
}

// errTurnEnded ends a text behind the turn, where its mark is none of the ids that do.
// The text is given up and not broken, so the next message finds it remembered.
var errTurnEnded = fmt.Errorf("the turn ended: %w", context.Canceled)

// An answer is what a model wrote, and its parts.
type answer struct {
	generate.Result
	content, reasoning string
}

func runRun(ctx context.Context, a *app, o runOptions) error {
	defer endAtOnce(ctx)()
	s, err := openSession(ctx, a, o.engine)
	if err != nil {
		return err
	}
	if o.given {
		err = complete(ctx, a, s, o)
	} else {
		err = converse(ctx, a, s, o)
	}
	return errors.Join(err, s.close())
}

// endAtOnce makes the second signal end the process, until stop is called: what
// the first one ends looks at its context between the chunks of a prompt, which
// take seconds on a large model.
func endAtOnce(ctx context.Context) (stop func()) {
	over := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		exitAt(signals, over)
	})
	return func() { unregister(); close(over) }
}

// exitAt ends the process at the next signal, unless it is over before.
func exitAt(signals <-chan os.Signal, over <-chan struct{}) {
	select {
	case <-signals:
		os.Exit(exitInterrupted) //nolint:forbidigo // what main waits for may take long to return
	case <-over:
	}
}

func complete(ctx context.Context, a *app, s *session, o runOptions) error {
	turn := new(chat.Turn)
	var err error
	if o.chat {
		var template *chat.Template
		if template, err = chat.Load(o.engine.model, s.runner.Tok); err != nil {
			return err
		}
		turn, err = o.begin(template, chat.Message{Role: "user", Content: o.prompt})
	} else {
		o.ask.Prompt, err = s.runner.Tok.Encode(o.prompt, true)
	}
	if err != nil {
		return err
	}
	r, err := s.generate(ctx, a, o.ask, turn, o.json)
	if err != nil {
		return err
	}
	if !o.json {
		tellStatistics(a, s, r.Result)
		return nil
	}
	memory, err := mlx.MemoryInUse()
	if err != nil {
		return err
	}
	return printJSON(a.stdout, report(s, r, memory))
}

func report(s *session, r answer, memory mlx.Memory) runReport {
	return runReport{
		Schema: "mlxrunner.run/v1", Text: r.content, Reasoning: r.reasoning, Tokens: r.Tokens, FinishReason: r.Finish,
		PromptTokens: r.Prompt, GeneratedTokens: len(r.Tokens),
		PrefillTPS: r.PrefillRate(), DecodeTPS: r.DecodeRate(),
		FirstTokenMS: milliseconds(r.FirstToken), LoadMS: milliseconds(s.took),
		Rounds: r.Rounds, Guessed: r.Guessed, Accepted: r.Accepted,
		ActiveBytes: memory.Active, CacheBytes: memory.Cache, PeakBytes: memory.Peak, FootprintBytes: footprint(),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func tellStatistics(a *app, s *session, r generate.Result) {
	guessed, known := "", ""
	if r.Cached > 0 {
		known = fmt.Sprintf(" (%d of them known)", r.Cached)
	}
	if r.Guessed > 0 {
		guessed = fmt.Sprintf(", %d of %d guesses right", r.Accepted, r.Guessed)
	}
	a.voice.say("%d tokens%s in %.0f ms, then %d at %.1f a second%s (%s); loading took %.0f ms",
		r.Prompt, known, milliseconds(r.FirstToken), len(r.Tokens), r.DecodeRate(), guessed, r.Finish, milliseconds(s.took))
}

// begin puts messages into the request, and gives what reads the turn that follows.
// A grammar is for the answer, so that comes without reasoning.
func (o *runOptions) begin(template *chat.Template, said ...chat.Message) (turn *chat.Turn, err error) {
	o.ask.Specials = template.Specials()
	o.ask.Prompt, turn, err = template.Begin(said, chat.Options{Direct: o.ask.Grammar != nil})
	return turn, err
}

// converse answers lines of the input, each with all that was said before.
func converse(ctx context.Context, a *app, s *session, o runOptions) error {
	template, err := chat.Load(o.engine.model, s.runner.Tok)
	if err != nil {
		return err
	}
	s.runner.Prefixes = 1 // what was said is not read again
	phase := func() (context.Context, context.CancelFunc) { return ctx, func() {} }
	if a.voice.terminal {
		phase = interruptible(ctx)
	}
	var said []chat.Message
	lines := bufio.NewReader(a.stdin)
	for {
		if a.voice.terminal {
			fmt.Fprint(a.voice.w, "> ")
		}
		waiting, stop := phase()
		line, err := readLine(waiting, lines)
		stop()
		if a.voice.terminal && errors.Is(err, context.Canceled) { // a person leaves
			fmt.Fprintln(a.voice.w)
			return nil
		}
		if err != nil || strings.TrimSpace(line) == "" {
			return err
		}
		said = append(said, chat.Message{Role: "user", Content: line})
		turn, err := o.begin(template, said...)
		if err != nil {
			return err
		}
		answering, stop := phase()
		r, err := s.generate(answering, a, o.ask, turn, false)
		stop()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.Canceled)) {
			return err
		}
		if a.voice.terminal {
			tellStatistics(a, s, r.Result)
		}
		said = append(said, chat.Message{Role: "assistant", Content: r.content})
	}
}

// interruptible lets an interrupt end one phase of a conversation: an answer, of
// which the rest is not wanted, or the waiting for a message, by which a person
// leaves. A second one in a phase ends the process.
func interruptible(ctx context.Context) func() (context.Context, context.CancelFunc) {
	signal.Reset(os.Interrupt) // which ended ctx
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	return func() (context.Context, context.CancelFunc) {
		own, cancel := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			select {
			case <-interrupts:
				cancel()
				exitAt(interrupts, over)
			case <-over:
			}
		}()
		return own, func() { cancel(); close(over) }
	}
}

// readLine gives a line without its end, "" at the end of the input. A person
// who interrupts does not have to finish the line first.
func readLine(ctx context.Context, r *bufio.Reader) (string, error) {
	type read struct {
		text string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		text, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		done <- read{strings.TrimRight(text, "\r\n"), err}
	}()
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a message: %w", ctx.Err())
	case got := <-done:
		return got.text, got.err
	}
}
