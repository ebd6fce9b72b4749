package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/spf13/cobra"

	"payload/internal/config"
	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/verify"
	"payload/internal/voice"
)

type verifyOptions struct {
	reportFlags
	path    string
	noRun   bool
	over    string
	against string
	growth  int
	floors  [3]string // glibc, GLIBCXX, macOS
	budgets []string
	accept  []string
}

func newVerifyCmd(a *app, do func(context.Context, *app, verifyOptions) error) *cobra.Command {
	var opts verifyOptions
	cmd := &cobra.Command{
		Use:   "verify PATH",
		Short: "Prove that a staged payload or a finished archive is whole and works",
		Long: `Check every file of a payload against its payload.json, the libraries against
the loader's rules, and then run it: real requests to every variant that this
machine can run. PATH is a staged folder, or an archive (.tar.zst, .tgz, .zip, or
one of its parts), which is unpacked into a temporary folder. Exit 5 when anything
is wrong. docs/verify.md explains each finding.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, pos []string) error {
			opts.path = pos[0]
			if err := opts.check(cmd, a); err != nil {
				return err
			}
			if err := opts.checkFloors(cmd); err != nil {
				return err
			}
			return do(cmd.Context(), a, opts)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&opts.noRun, "no-run", false, "leave out the requests; check the files alone")
	f.StringVar(&opts.over, "over", "", "judge the archive of a group as it is unpacked over `BASE`: a folder or an archive")
	f.StringVar(&opts.against, "against", "", "compare with the last release, `OLD`: a folder or an archive")
	f.IntVar(&opts.growth, "growth", verify.DefaultGrowth, "with --against: by how many `PERCENT` a file may grow")
	f.StringVar(&opts.floors[0], "glibc", "", "the oldest glibc `VERSION` that every file has to load with")
	f.StringVar(&opts.floors[1], "glibcxx", "", "the oldest GLIBCXX `VERSION` of libstdc++ that every file has to load with")
	f.StringVar(&opts.floors[2], "macos", "", "the oldest macOS `VERSION` that every file has to load on, but those of a folder for a newer one, where another folder serves it")
	f.StringArrayVar(&opts.budgets, "budget", nil, "the most that the payload may take unpacked, `[PATH=]SIZE`: 300MB, or mlx_metal_v3=200MiB for a folder or file; may be repeated")
	f.StringArrayVar(&opts.accept, "accept", nil, "a `FINDING` that is meant, by its id or its key: it is printed as a note; may be repeated")
	opts.add(cmd, a)
	return cmd
}

func (o *verifyOptions) checkFloors(cmd *cobra.Command) error {
	if o.over != "" && o.against != "" {
		return &usageError{err: errors.New("--over and --against: a group is compared with its own last release, without the base"), command: cmd.CommandPath()}
	}
	for i, name := range []string{"glibc", "glibcxx", "macos"} {
		if v := o.floors[i]; v != "" {
			if _, err := version.NewVersion(v); err != nil {
				return &usageError{err: fmt.Errorf("--%s %s: it is no version such as 2.28", name, v), command: cmd.CommandPath()}
			}
		}
	}
	if o.growth < 0 {
		return &usageError{err: fmt.Errorf("--growth %d: a file that shrinks is never reported", o.growth), command: cmd.CommandPath()}
	}
	_, err := parseBudgets(o.budgets)
	if err != nil {
		return &usageError{err: fmt.Errorf("--budget %w", err), command: cmd.CommandPath()}
	}
	return nil
}

func runVerify(ctx context.Context, a *app, opts verifyOptions) error {
	budgets, err := parseBudgets(opts.budgets)
	if err != nil {
		return err
	}
	o := verify.Options{
		NoRun: opts.noRun, Tell: a.voice.Say, Growth: opts.growth, Budgets: budgets,
		Glibc: opts.floors[0], Glibcxx: opts.floors[1], MacOS: opts.floors[2],
	}
	if opts.against != "" {
		if o.Against, err = readRelease(ctx, opts.against); err != nil {
			return err
		}
	}
	opened, err := verify.Open(ctx, opts.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	if opts.over != "" {
		o.Over = true
		if err := layOver(ctx, opened, opts.over); err != nil {
			return err
		}
	}
	res := verify.Result{Schema: verify.Schema, Dir: opened.Name, Findings: opened.Findings}
	name := opened.Name
	if opened.Dir != "" {
		o.Dir = opened.Dir
		if res, err = verify.Described(ctx, o); err != nil {
			return err
		}
		res.Findings = slices.Concat(opened.Findings, res.Findings)
		if opened.Archive == nil && opts.over == "" {
			name = opened.Dir
		}
	}
	res.Dir, res.Archive, res.Over = name, opened.Archive, opts.over
	accept(res.Findings, opts.accept)
	if err := opts.write(a, report.Report{
		Schema: verify.Schema, Title: "payload verify", Summary: name, Findings: res.Findings,
		Rules: verify.Rules(), Fallback: manifest.Name, Body: res,
	}); err != nil {
		return err
	}
	if res.Failed() {
		a.voice.Say("%s is not what it should be: %s", name, report.Counted(res.Findings))
		if opts.over == "" && slices.ContainsFunc(res.Findings, func(f report.Finding) bool { return f.ID == "program.missing" }) {
			a.voice.Say("a group that lies over another one is run over it: --over BASE")
		}
		return &reported{code: exitVerification}
	}
	if p := res.Archive; p != nil {
		name = fmt.Sprintf("%s (%s, %s unpacked)", name, voice.Size(p.Bytes), voice.Size(res.Static.Bytes))
	}
	if res.Over != "" {
		name += " over " + res.Over
	}
	a.voice.Say("%s: %s", name, res.Proven())
	return nil
}

// layOver lays what was opened over a base, which is needed no longer then.
func layOver(ctx context.Context, opened *verify.Opened, base string) error {
	below, err := verify.Open(ctx, base)
	if err != nil {
		return err
	}
	defer below.Close()
	return opened.Over(ctx, below)
}

// damagedReleaseError is a last release that can't be compared with.
type damagedReleaseError struct {
	path string
	why  string
}

func (e *damagedReleaseError) Error() string {
	return fmt.Sprintf("comparing with %s: %s", e.path, e.why)
}

func readRelease(ctx context.Context, path string) (*verify.Release, error) {
	opened, err := verify.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	if opened.Dir == "" {
		return nil, &damagedReleaseError{path: path, why: opened.Findings[0].Title}
	}
	old, err := verify.ReadRelease(ctx, path, opened.Dir)
	if errors.As(err, new(*manifest.MissingError)) {
		return nil, &damagedReleaseError{path: path, why: "it holds no " + manifest.Name}
	}
	return old, err
}

// accept makes notes of the findings that a person has said are meant.
func accept(findings []report.Finding, accepted []string) {
	for i := range findings {
		f := &findings[i]
		if slices.Contains(accepted, f.ID) || slices.Contains(accepted, f.Key) {
			f.Severity = report.Note
		}
	}
}

func parseBudgets(flags []string) ([]verify.Budget, error) {
	var budgets []verify.Budget
	for _, flag := range flags {
		path, text := "", flag
		if i := strings.LastIndex(flag, "="); i >= 0 {
			path, text = flag[:i], flag[i+1:]
		}
		size, err := config.ParseSize(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		budgets = append(budgets, verify.Budget{Path: path, Bytes: size})
	}
	return budgets, nil
}
