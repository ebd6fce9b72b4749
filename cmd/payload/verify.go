package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"payload/internal/build"
	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/verify"
)

type verifyOptions struct {
	reportFlags
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
			if err := opts.check(cmd, a); err != nil {
				return err
			}
			return do(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().BoolVar(&opts.noRun, "no-run", false, "leave out the requests; check the files alone")
	opts.add(cmd, a)
	return cmd
}

func runVerify(ctx context.Context, a *app, opts verifyOptions) error {
	dir := payloadFolder(opts.path)
	res, _, err := build.Verify(ctx, dir, opts.noRun, a.voice)
	if err != nil {
		return err
	}
	if err := opts.write(a, report.Report{
		Schema: verify.Schema, Title: "payload verify", Summary: dir, Findings: res.Findings,
		Fallback: manifest.Name, Body: res,
	}); err != nil {
		return err
	}
	if res.Failed() {
		a.voice.Say("%s is not what it should be: %s", dir, report.Counted(res.Findings))
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
