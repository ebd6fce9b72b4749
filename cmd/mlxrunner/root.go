package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

// app is what every verb is handed.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	voice  *voice
}

// Main runs the command line and returns the process's exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "error: mlxrunner itself broke: %v\n%s", p, debug.Stack())
			code = exitFailed
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := &checked{w: stdout}
	a := &app{stdin: stdin, stdout: out, voice: newVoice(stderr)}
	root := newRootCmd(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("writing to stdout: %w", out.err)
	}
	a.voice.clear()
	if err == nil {
		return exitDone
	}
	f := failureOf(ctx, err, ran.CommandPath())
	fmt.Fprintf(stderr, "error: %v\n", err)
	if f.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", f.hint)
	}
	if slices.Contains(args, "--json") {
		_ = printJSON(stdout, struct {
			Schema string `json:"schema"`
			Error  string `json:"error"`
			Hint   string `json:"hint,omitempty"`
			Code   int    `json:"code"`
		}{"mlxrunner.error/v1", err.Error(), f.hint, f.code})
	}
	return f.code
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "mlxrunner",
		Short:         "Run language models on MLX",
		Args:          args(suggest),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newRunCmd(a, runRun), newServeCmd(a, runServe), newShowCmd(a, runShow), newCreateCmd(a, runCreate))
	return root
}

// suggest names the verb that one which is not there may have been meant for.
func suggest(root *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	meant := root.SuggestionsFor(words[0])
	if len(meant) == 0 {
		return fmt.Errorf("there is no verb %q", words[0])
	}
	return fmt.Errorf("there is no verb %q; %s is one", words[0], meant[0])
}

// usageError is a command line that can't be understood; it exits 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// args turns cobra's check of the positional arguments into a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// checked remembers that a write failed: data that did not arrive is no success.
type checked struct {
	w   io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
