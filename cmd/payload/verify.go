package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"payload/internal/build"
)

type verifyOptions struct {
	path  string
	noRun bool
}

func newVerifyCmd(a *app, do func(context.Context, *app, verifyOptions) error) *cobra.Command {
	var opts verifyOptions
	cmd := &cobra.Command{
		Use:   "verify PATH",
		Short: "Prove that a staged payload is whole and works",
		Long: `Check every file of a payload against its payload.json, the libraries against
the loader's rules, and then run it: real requests to every variant that this
machine can run. Exit 5 when anything is wrong.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.path = pos[0]
			return do(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().BoolVar(&opts.noRun, "no-run", false, "leave out the requests; check the files alone")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

func runVerify(ctx context.Context, a *app, opts verifyOptions) error {
	dir := payloadFolder(opts.path)
	res, _, err := build.Verify(ctx, dir, opts.noRun, a.voice)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(res); err != nil {
			return err
		}
	} else {
		for _, f := range res.Findings {
			fmt.Fprintln(a.stdout, build.Line(f))
		}
	}
	if res.Failed() {
		a.voice.Say("%s is not what it should be: %d findings", dir, len(res.Findings))
		return &reported{code: exitVerification}
	}
	a.voice.Say("%s: %s", dir, res.Proven())
	return nil
}

// payloadFolder lets people name the staged tree or the payload inside it.
func payloadFolder(path string) string {
	inside := filepath.Join(path, "lib", "payload")
	if info, err := os.Stat(inside); err == nil && info.IsDir() {
		return inside
	}
	return path
}
