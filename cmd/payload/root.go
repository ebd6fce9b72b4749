package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"payload/internal/config"
	"payload/internal/run"
	"payload/internal/source"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// app is what every verb is handed: the streams and the global flags.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	voice  *voice.Voice
	dir    string // -C
	echo   bool   // -x
	json   bool   // --json
}

// Main runs the command line and returns the process's exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	out := &checked{w: stdout}
	a := &app{stdin: stdin, stdout: out, voice: voice.New(stderr)}
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "error: payload itself broke: %v\n%s", p, debug.Stack())
			code = exitFailed
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	root := newRootCmd(a)
	// Known before the flags are parsed, since parsing them may fail.
	own := args
	if i := slices.Index(args, "--"); i >= 0 {
		own = args[:i] // what follows is another program's
	}
	a.json = slices.Contains(own, "--json")
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("writing to stdout: %w", out.err)
	}
	if err == nil {
		return exitDone
	}
	return a.report(ctx, stderr, err)
}

// stopSignals are those that end a command in order. A terminal that goes away
// (SIGHUP) does too, since it doesn't reach children in groups of their own;
// what the caller had ignored, as nohup does, stays ignored.
func stopSignals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
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

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "payload",
		Short:         "Pin, patch, build, check and release native payloads",
		Args:          args(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if a.echo {
				cmd.SetContext(run.WithEcho(cmd.Context(), a.voice))
			}
			// Flags that exclude each other are a command line that can't be understood, too.
			if err := cmd.ValidateFlagGroups(); err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			return nil
		},
	}
	root.PersistentFlags().StringVarP(&a.dir, "directory", "C", ".", "work in `DIR` instead of here")
	root.PersistentFlags().BoolVarP(&a.echo, "echo", "x", false, "print each process that is started, ready to paste, and its time")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err: err, command: cmd.CommandPath()}
	})
	root.AddCommand(
		newAffectedCmd(a, runAffected),
		newBisectCmd(a, runBisect),
		newBuildCmd(a, runBuild),
		newCacheCmd(a, runCache),
		newCacheKeyCmd(a, runCacheKey),
		newDoctorCmd(a, runDoctor),
		newDriftCmd(a, runDrift),
		newInitCmd(a, runInit),
		newLockCmd(a, runLock),
		newPackageCmd(a, runPackage),
		newPatchCmd(a),
		newReviewCmd(a, runReview),
		newSourceCmd(a, runSource),
		newStatusCmd(a, runStatus),
		newUpdateCmd(a, runUpdate),
		newVerifyCmd(a, runVerify),
		newVersionCmd(a, runVersion),
	)
	return root
}

// usageError is a command line that can't be understood; it exits 2.
type usageError struct {
	err     error
	command string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// missingFlag is a command line that lacks a flag the verb can't do without.
func missingFlag(cmd *cobra.Command, name string) error {
	return &usageError{err: fmt.Errorf("%s needs --%s", cmd.CommandPath(), name), command: cmd.CommandPath()}
}

// args turns cobra's check of the positional arguments into a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err: err, command: cmd.CommandPath()}
		}
		return nil
	}
}

// sourceFlags are the flags of every verb that may fetch sources.
type sourceFlags struct {
	overrides      []string
	kinds          string
	allowUnpatched bool
	repair         bool // of `payload source` alone
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.overrides, "source", nil, "use a folder as a component's source, `COMPONENT=DIR` (also PAYLOAD_SOURCE_<COMPONENT>)")
	cmd.Flags().BoolVar(&f.allowUnpatched, "allow-unpatched", false, "use an overriding folder as it is, without the patches; payload.json says so")
	f.addKinds(cmd)
}

func (f *sourceFlags) addKinds(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kinds, "source-kinds", os.Getenv("PAYLOAD_SOURCE_KINDS"), "which sources to try, in this order: a `LIST` of store, git, mirror")
}

// open loads the repository that -C names.
func (a *app) open(ctx context.Context, f sourceFlags) (*workspace.Workspace, error) {
	opts := workspace.Options{Dir: a.dir, AllowUnpatched: f.allowUnpatched, Repair: f.repair, Overrides: map[string]string{}, Tell: a.voice.Say}
	for _, o := range f.overrides {
		name, dir, ok := strings.Cut(o, "=")
		if !ok || name == "" || dir == "" {
			return nil, &usageError{err: fmt.Errorf("--source %s: the form is COMPONENT=DIR", o), command: "payload source"}
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("reading --source %s: %w", o, err)
		}
		opts.Overrides[name] = abs
	}
	kinds, err := source.ParseKinds(f.kinds)
	if err != nil {
		return nil, &usageError{err: err, command: "payload source"}
	}
	opts.Kinds = kinds
	if ignored := run.Ignored(); len(ignored) > 0 {
		a.voice.Say("note: ignoring %s from the environment", strings.Join(ignored, ", "))
	}
	return workspace.Open(ctx, opts)
}

// config reads payload.yaml alone, for verbs that need no sources.
func (a *app) config() (*config.File, error) {
	root, err := config.Find(a.dir)
	if err != nil {
		return nil, err
	}
	return config.Load(root)
}

// printJSON writes one JSON object to stdout.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// report tells an error: in words on stderr, as JSON on stdout where --json
// asked for it.
func (a *app) report(ctx context.Context, stderr io.Writer, err error) int {
	f := failureOf(ctx, err)
	if a.json && !f.told {
		e := struct {
			Schema string `json:"schema"`
			Error  string `json:"error"`
			Hint   string `json:"hint,omitempty"`
			Code   int    `json:"code"`
		}{"payload.error/v1", err.Error(), f.hint, f.code}
		if jsonErr := a.printJSON(e); jsonErr != nil {
			fmt.Fprintf(stderr, "error: %v\n", jsonErr)
		}
	}
	if f.quiet {
		return f.code
	}
	fmt.Fprintf(stderr, "error: %v\n", err)
	if f.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", f.hint)
	}
	return f.code
}
