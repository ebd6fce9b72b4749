package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/patch"
	"payload/internal/workspace"
)

type patchExplainOptions struct {
	sourceFlags
	component string
	file      string
	ref       string
}

func newPatchExplainCmd(a *app, do func(context.Context, *app, patchExplainOptions) error) *cobra.Command {
	var opts patchExplainOptions
	cmd := &cobra.Command{
		Use:   "explain COMPONENT FILE",
		Short: "Tell why a patch is carried, and whether it still has to be",
		Long: `Tell why a patch, named by its file or its number, is carried: its message, where it stands upstream, how it
applies, and whether the condition in its Drop-When trailer holds at the pinned
ref, or at --ref.`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component, opts.file = pos[0], pos[1]
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	cmd.Flags().StringVar(&opts.ref, "ref", "", "ask about this `REF` in place of the pin")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

type patchExplanation struct {
	Schema    string          `json:"schema"`
	Component string          `json:"component"`
	Ref       string          `json:"ref"`
	File      string          `json:"file"`
	Subject   string          `json:"subject"`
	Body      string          `json:"body"`
	Author    string          `json:"author,omitempty"`
	Status    string          `json:"upstream_status,omitempty"`
	DropWhen  string          `json:"drop_when,omitempty"`
	Drop      workspace.Truth `json:"drop"` // whether the condition holds: yes, no or unknown
	Why       string          `json:"drop_why"`
	Verdict   patch.Verdict   `json:"verdict"`
	Detail    string          `json:"detail,omitempty"`
	Faults    []string        `json:"faults"` // of the header
}

func runPatchExplain(ctx context.Context, a *app, opts patchExplainOptions) error {
	w, p, err := a.openSeries(ctx, opts.sourceFlags, opts.component)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(p.Series.Patches, func(f patch.Patch) bool {
		return f.File == opts.file || strings.HasPrefix(f.File, opts.file+"-") // by its number
	})
	if i < 0 {
		return &noSuchPatchError{component: opts.component, file: opts.file}
	}
	ref := opts.ref
	if ref == "" {
		ref = p.Ref
	}
	report, err := w.CheckSeries(ctx, p, ref)
	if err != nil {
		return err
	}
	m := p.Series.Patches[i].Message
	e := patchExplanation{
		Schema: "payload.patch-explain/v1", Component: opts.component, Ref: ref, File: p.Series.Patches[i].File,
		Subject: m.Subject, Body: strings.TrimSpace(m.Body), Verdict: report.Patches[i].Verdict, Detail: report.Patches[i].Detail,
		Faults: append([]string{}, p.Series.Patches[i].MetadataFaults()...),
	}
	if m.Email != "" {
		e.Author = fmt.Sprintf("%s <%s>", m.Name, m.Email)
	}
	e.Status, _ = m.Trailer(patch.UpstreamStatus)
	e.DropWhen, _ = m.Trailer(patch.DropWhen)
	if e.Drop, e.Why, err = w.Droppable(ctx, w.At(p, ref), e.DropWhen); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(e)
	}
	printExplanation(a.stdout, e)
	return nil
}

func printExplanation(w io.Writer, e patchExplanation) {
	fmt.Fprintf(w, "%s on %s %s: %s\n", e.File, e.Component, e.Ref, e.Verdict)
	for line := range strings.Lines(e.Detail) {
		fmt.Fprintf(w, "    %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(w, "\n%s\n", e.Subject)
	if e.Body != "" {
		fmt.Fprintf(w, "\n%s\n", e.Body)
	}
	fmt.Fprintf(w, "\nstill needed: %s\n", map[workspace.Truth]string{workspace.Yes: "no: ", workspace.No: "yes: ", workspace.Unknown: "can't be told: "}[e.Drop]+e.Why)
	for _, f := range e.Faults {
		fmt.Fprintf(w, "header: %s\n", f)
	}
}

// noSuchPatchError is a file that the series doesn't have.
type noSuchPatchError struct{ component, file string }

func (e *noSuchPatchError) Error() string {
	return fmt.Sprintf("the series of %s has no %s", e.component, e.file)
}
