package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"payload/internal/search"
	"payload/internal/voice"
)

type bisectOptions struct {
	kinds     sourceFlags
	component string
	old, new  string // empty to go on with the one that is open
	command   []string
	marks     map[string]search.Mark
	abort     bool
}

func newBisectCmd(a *app, do func(context.Context, *app, bisectOptions) error) *cobra.Command {
	opts := bisectOptions{marks: map[string]search.Mark{}}
	var good, bad, skip []string
	var goOn bool
	cmd := &cobra.Command{
		Use:   "bisect COMPONENT OLD..NEW -- COMMAND...",
		Short: "Find the first upstream ref at which a command fails",
		Long: `Run a command on the patched source of upstream refs between OLD and NEW, halving
the range, until the first at which it fails is found. The patches are carried to
each ref by a three-way merge; where they don't apply, the ref is skipped. Nothing of
the repository changes but build/bisect/COMPONENT, where logs and state are kept.

The command is run in the current folder. It finds the ref in PAYLOAD_BISECT_REF and
the patched tree in PAYLOAD_SOURCE_<NAME>; payload itself, below it, works at that ref.
Its exit code says what the ref is, as for git bisect run: 0 good, 125 skip, 128 and
above stop, anything else bad.

The same command line again, or --continue, goes on with what was interrupted.`,
		Example: `  payload bisect llama.cpp b10454..b11312 -- payload build --preset cpu
  payload bisect llama.cpp b10454..b11312 --good b10454 --bad b11312 -- ./bench-above 0.95`,
		Args: func(cmd *cobra.Command, pos []string) error {
			if err := opts.read(cmd, pos, goOn); err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for mark, refs := range map[search.Mark][]string{search.Good: good, search.Bad: bad, search.Skip: skip} {
				for _, ref := range refs {
					if other := opts.marks[ref]; other != "" {
						return &usageError{err: fmt.Errorf("%s can't be both %s and %s", ref, other, mark), command: cmd.CommandPath()}
					}
					opts.marks[ref] = mark
				}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&good, "good", nil, "the command is known to succeed at these `REFS`")
	f.StringSliceVar(&bad, "bad", nil, "the command is known to fail at these `REFS`")
	f.StringSliceVar(&skip, "skip", nil, "leave these `REFS` out")
	f.BoolVar(&goOn, "continue", false, "go on with the bisection that is open")
	f.BoolVar(&opts.abort, "abort", false, "forget the bisection that is open")
	f.BoolVar(&a.json, "json", false, "print JSON")
	opts.kinds.addKinds(cmd)
	return cmd
}

// read takes the words of the command line apart.
func (o *bisectOptions) read(cmd *cobra.Command, pos []string, goOn bool) error {
	dash := cmd.ArgsLenAtDash()
	if dash >= 0 {
		pos, o.command = pos[:dash], pos[dash:]
	}
	if goOn || o.abort {
		if len(pos) != 1 || len(o.command) > 0 || goOn && o.abort {
			return errors.New("--continue and --abort go with a component alone")
		}
		o.component = pos[0]
		return nil
	}
	if len(pos) != 2 || len(o.command) == 0 {
		return errors.New("the form is: payload bisect COMPONENT OLD..NEW -- COMMAND")
	}
	var ok bool
	o.component = pos[0]
	if o.old, o.new, ok = strings.Cut(pos[1], ".."); !ok || o.old == "" || o.new == "" {
		return fmt.Errorf("%q is no range of refs: the form is OLD..NEW", pos[1])
	}
	return nil
}

func runBisect(ctx context.Context, a *app, opts bisectOptions) error {
	w, err := a.open(ctx, opts.kinds)
	if err != nil {
		return err
	}
	if opts.abort {
		return search.AbortBisection(ctx, w, opts.component)
	}
	dir, err := filepath.Abs(a.dir)
	if err != nil {
		return fmt.Errorf("finding the current folder: %w", err)
	}
	var env []string
	if opts.kinds.kinds != "" {
		env = append(env, "PAYLOAD_SOURCE_KINDS="+opts.kinds.kinds)
	}
	b, err := search.Bisect(ctx, w, opts.component, search.BisectOptions{
		Old: opts.old, New: opts.new, Command: opts.command, Dir: dir, Marks: opts.marks, Env: env, Note: a.voice.Say,
		Tell: func(p search.BisectProbe) { a.voice.Say("%s", probeInWords(opts.component, p)) },
	})
	if ctx.Err() != nil {
		a.voice.Say("what was learnt is kept: payload bisect %s --continue", opts.component)
	}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(b)
	} else {
		err = printBisection(a.stdout, b)
	}
	if err != nil {
		return err
	}
	if b.Outcome != search.FoundFirst && b.Outcome != search.FoundAmong {
		return &reported{code: exitFailed}
	}
	return nil
}

func probeInWords(component string, p search.BisectProbe) string {
	text := fmt.Sprintf("%s %s: %s", component, p.Ref, p.Mark)
	if p.Exit > 0 {
		text += fmt.Sprintf(", exit %d", p.Exit)
	}
	text += " in " + voice.Duration(time.Duration(p.Seconds*float64(time.Second)))
	if p.Why != "" {
		text += ": " + p.Why
	}
	return text
}

// printBisection prints what was found, and what each ref said, in the order
// in which they were asked.
func printBisection(w io.Writer, b search.Bisection) error {
	fmt.Fprintf(w, "%s: %s\n", b.Component, foundInWords(b))
	if c := b.Commits; c != nil && c.From != "" && c.To != "" {
		fmt.Fprintf(w, "commits %.12s..%.12s", c.From, c.To)
		if len(c.List) > 0 {
			fmt.Fprintf(w, ", %s:", count(len(c.List), "commit"))
		}
		fmt.Fprintln(w)
		const most = 20
		for _, h := range c.List[:min(most, len(c.List))] {
			fmt.Fprintf(w, "  %.12s %s\n", h.ID, h.Subject)
		}
		if over := len(c.List) - most; over > 0 {
			fmt.Fprintf(w, "  … and %d more\n", over)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REF\tMARK\tEXIT\tSECONDS\tWHY")
	for _, p := range b.Asked {
		exit, took := "-", "-"
		if p.Exit >= 0 {
			exit, took = fmt.Sprint(p.Exit), fmt.Sprintf("%.1f", p.Seconds)
		}
		why := p.Why
		if p.Told {
			why = "as given"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.Ref, p.Mark, exit, took, why)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

func foundInWords(b search.Bisection) string {
	switch b.Outcome {
	case search.BadAtOld:
		return fmt.Sprintf("the command fails at %s already; begin earlier", b.Old)
	case search.GoodAtNew:
		return fmt.Sprintf("the command does not fail at %s; there is nothing to find", b.New)
	case search.FoundAmong:
		return fmt.Sprintf("%s is bad and %s good; the first bad ref is that or one of %s, which were skipped: %s",
			b.FirstBad, b.LastGood, count(len(b.Skipped), "ref"), strings.Join(b.Skipped, " "))
	}
	return fmt.Sprintf("%s is the first bad ref, %s the last good one, of %s after %s", b.FirstBad, b.LastGood, count(len(b.Refs), "ref"), b.Old)
}
