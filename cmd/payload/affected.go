package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"payload/internal/ci"
)

type affectedOptions struct {
	base   string
	github bool
}

func newAffectedCmd(a *app, do func(context.Context, *app, affectedOptions) error) *cobra.Command {
	var opts affectedOptions
	cmd := &cobra.Command{
		Use:   "affected --base REF",
		Short: "Decide what a change has to build, as a CI matrix",
		Long: `List the presets and packages that the changes since REF's common ancestor with
HEAD have to build, the work tree included. payload.yaml's "affected" says which;
a file that it does not name builds every preset that is made from it.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.base == "" {
				return missingFlag(cmd, "base")
			}
			return do(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().StringVar(&opts.base, "base", "", "the `REF` that the change goes on top of: origin/main")
	cmd.Flags().BoolVar(&opts.github, "github", false, "write the outputs matrix, presets, packages and any for GitHub, to $GITHUB_OUTPUT or else to stdout")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON; so it does without --github")
	return cmd
}

func runAffected(ctx context.Context, a *app, opts affectedOptions) error {
	f, err := a.config()
	if err != nil {
		return err
	}
	changed, ancestor, err := ci.Changed(ctx, f, opts.base)
	if err != nil {
		return err
	}
	files, err := ci.Files(ctx, f)
	if err != nil {
		return err
	}
	projects, err := ci.Projects(f, files)
	if err != nil {
		return err
	}
	result := ci.Affects(f, projects, changed)
	result.Base = ancestor
	what := strings.Join(append(result.Presets, result.Packages...), ", ")
	if what == "" {
		what = "nothing"
	}
	a.voice.Say("%d files changed since %.12s; to build: %s", len(changed), ancestor, what)
	if opts.github {
		return githubOutputs(a, result)
	}
	return a.printJSON(result)
}

// githubOutputs writes what a workflow reads as needs.JOB.outputs.matrix. A matrix
// without entries is an error to GitHub, so "any" says whether there is one.
func githubOutputs(a *app, result ci.Affected) error {
	matrix, err := json.Marshal(struct {
		Include []ci.Job `json:"include"`
	}{result.Include})
	if err != nil {
		return fmt.Errorf("writing the matrix: %w", err)
	}
	text := fmt.Sprintf("matrix=%s\nany=%t\npresets=%s\npackages=%s\n", matrix, len(result.Include) > 0,
		strings.Join(result.Presets, ","), strings.Join(result.Packages, ","))
	file := os.Getenv("GITHUB_OUTPUT")
	if file == "" {
		_, err := fmt.Fprint(a.stdout, text)
		return err
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing the matrix: %w", err)
	}
	if _, err := out.WriteString(text); err != nil {
		_ = out.Close() // the first error is the one to tell
		return fmt.Errorf("writing the matrix: %w", err)
	}
	return out.Close()
}
