package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"payload/internal/config"
	"payload/internal/patch"
	"payload/internal/source"
	"payload/internal/workspace"
)

type patchImportOptions struct {
	sourceFlags
	component string
	what      string // a commit, the address of one, or a file
}

func newPatchImportCmd(a *app, do func(context.Context, *app, patchImportOptions) error) *cobra.Command {
	var opts patchImportOptions
	cmd := &cobra.Command{
		Use:   "import COMPONENT COMMIT|FILE",
		Short: "Take a commit of upstream, or a patch file, into the series",
		Long: `Make a patch of a commit of upstream (all 40 digits, or a web address that ends in
/commit/ and them), or of a file: what git format-patch writes, or a plain diff. It is
carried to the pinned ref by a three-way merge and becomes the last patch of the
series, with the commit in its Upstream-Status and Drop-When.

What the source holds already is told and left alone. Where the change doesn't apply
(exit 4), the series is opened in build/patch/COMPONENT with the merge begun there.`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.component, opts.what = pos[0], pos[1]
			return do(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

var (
	commitAddress = regexp.MustCompile(`^https?://.*/commit/([0-9a-f]{40})(\.patch|\.diff)?$`)
	shortCommit   = regexp.MustCompile(`^[0-9a-f]{7,39}$`)
)

func runPatchImport(ctx context.Context, a *app, opts patchImportOptions) error {
	w, p, err := a.openSeries(ctx, opts.sourceFlags, opts.component)
	if err != nil {
		return err
	}
	pristine, err := w.Pristine(ctx, p)
	if err != nil {
		return err
	}
	m, err := a.readImport(ctx, w, p, opts.what)
	if err != nil {
		return err
	}
	changes, report, err := patch.Add(ctx, w.Store().Repo(), pristine.Tree, p.Series, m)
	if errors.Is(err, patch.ErrUpstreamed) {
		a.voice.Say("upstreamed: %s %s with its patches holds this already; nothing was written", opts.component, p.Ref)
		if a.json {
			return a.printChanges(nil, opts.component)
		}
		return nil
	}
	if conflict, ok := errors.AsType[*patch.ImportConflictError](err); ok {
		return a.pick(ctx, w, p, pristine.Tree, m, conflict)
	}
	if err != nil {
		return w.Named(err, p)
	}
	if v := report.Patches[0]; v.Verdict != patch.Clean {
		a.voice.Say("it did not lie as it does upstream: %s", v.Verdict)
		for _, line := range splitDetail(v.Detail) {
			a.voice.Say("  %s", line)
		}
	}
	return a.printChanges(changes, opts.component)
}

// readImport finds what is to be imported.
func (a *app) readImport(ctx context.Context, w *workspace.Workspace, p workspace.Pinned, what string) (patch.Import, error) {
	if m := commitAddress.FindStringSubmatch(what); m != nil {
		what = m[1]
	}
	if !config.IsObjectID(what) {
		_, err := os.Stat(what)
		if err != nil && shortCommit.MatchString(what) {
			return patch.Import{}, &usageError{err: fmt.Errorf("%s is an abbreviated commit, which can't be fetched; give all 40 digits", what), command: "payload patch import"}
		}
		if errors.Is(err, os.ErrNotExist) {
			return patch.Import{}, &noImportError{what: what}
		}
		return patch.ImportFile(ctx, what)
	}
	if !w.Asks(source.FromGit) {
		return patch.Import{}, &noCommitError{commit: what, err: fmt.Errorf("fetching commit %s: the kinds of source leave git out", what)}
	}
	parent, err := w.Store().Change(ctx, w.File.Location(p.Component), what, a.voice.Say)
	if err != nil {
		return patch.Import{}, &noCommitError{commit: what, err: err}
	}
	return patch.ImportOf(ctx, w.Store().Repo(), what, parent)
}

// noImportError is something to import that is nothing of what can be.
type noImportError struct{ what string }

func (e *noImportError) Error() string {
	return fmt.Sprintf("importing %s: no file is there, and it is no commit of 40 digits or the address of one", e.what)
}

// noCommitError is a commit that could not be had from upstream.
type noCommitError struct {
	commit string
	err    error
}

func (e *noCommitError) Error() string { return e.err.Error() }
func (e *noCommitError) Unwrap() error { return e.err }

// pick opens the work folder for an import that needs a person.
func (a *app) pick(ctx context.Context, w *workspace.Workspace, p workspace.Pinned, pristine string, m patch.Import, conflict *patch.ImportConflictError) error {
	name := p.Component.Name
	conflict.Report.Component, conflict.Report.Ref = name, p.Ref
	dir := workFolder(w, name)
	finish, err := patch.Pick(ctx, w.Store().Repo(), pristine, p.Ref, p.Series, m, dir)
	if err != nil {
		a.voice.Say("%v", conflict)
		return w.Named(err, p)
	}
	fmt.Fprintln(a.stdout, dir)
	a.voice.Say("error: %v", conflict)
	a.voice.Say("the series is open in %s, with the merge begun; end it there:", dir)
	for _, command := range append(finish, "payload patch export "+name) {
		a.voice.Say("  %s", command)
	}
	return &reported{code: exitConflict}
}
