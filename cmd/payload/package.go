package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/notary"
	"payload/internal/pack"
	"payload/internal/voice"
)

type packageOptions struct {
	sourceFlags
	pack.Options
	mac     macFlags
	maxPart string
	allowed map[string]*bool
}

func newPackageCmd(a *app, do func(context.Context, *app, packageOptions) error) *cobra.Command {
	opts := packageOptions{allowed: map[string]*bool{}}
	cmd := &cobra.Command{
		Use:   "package linux|darwin|windows",
		Short: "Make a release: archives, checksums, inventory, provenance",
		Long: `Make archives of staged payloads, one a group of payload.yaml, with checksums,
a CycloneDX inventory and provenance. The same trees give the same bytes.

A tree that is not what payload.lock says, was not verified or differs from its
payload.json is refused; --allow-… passes over that, and the archive's
payload.json says so.`,
		Args: args(func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return fmt.Errorf("name one system to package for: %s", strings.Join(config.Systems, ", "))
			case !slices.Contains(config.Systems, args[0]):
				return fmt.Errorf("%q is none of %s", args[0], strings.Join(config.Systems, ", "))
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.System = args[0]
			size, err := parseSize(opts.maxPart)
			if err != nil {
				return &usageError{err: fmt.Errorf("--max-part: %w", err), command: cmd.CommandPath()}
			}
			opts.MaxPart = size
			for what, set := range opts.allowed {
				if *set {
					opts.Allow = append(opts.Allow, what)
				}
			}
			slices.Sort(opts.Allow)
			if err := opts.mac.check(cmd, opts.System); err != nil {
				return err
			}
			for _, floor := range []struct{ flag, v, system, example string }{
				{"glibc", opts.Glibc, "linux", "2.28"}, {"macos", opts.MacOS, "darwin", "14.0"},
			} {
				switch {
				case floor.v == "":
				case floor.system != opts.System:
					return &usageError{err: fmt.Errorf("--%s is for %s", floor.flag, floor.system), command: cmd.CommandPath()}
				case !isVersion.MatchString(floor.v):
					return &usageError{err: fmt.Errorf("--%s %s: it is no version such as %s", floor.flag, floor.v, floor.example), command: cmd.CommandPath()}
				}
			}
			if opts.mac.notarize && opts.MaxPart > 0 {
				return &usageError{err: errors.New("--notarize and --max-part: the notary takes whole archives"), command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.From, "from", "dist", "the `FOLDER` of staged trees, one a preset")
	f.StringVar(&opts.Out, "out", "dist/release", "the `FOLDER` that the release goes to")
	f.StringSliceVar(&opts.Groups, "group", nil, "these `GROUPS` alone, as base,vulkan; one that is not staged is an error then")
	f.StringVar(&opts.Glibc, "glibc", "", "linux: refuse files that need a newer glibc than `VERSION`")
	f.StringVar(&opts.MacOS, "macos", "", "darwin: refuse files that need a newer macOS than `VERSION`, but those of a folder for a newer one, where another folder serves it")
	f.StringVar(&opts.maxPart, "max-part", "", "split archives into files of at most `SIZE`: 1900M, 2G")
	f.StringVar(&opts.SignKey, "sign-key", "", "sign checksums and provenance with the minisign key in `FILE` ("+pack.PasswordVar+" holds its password)")
	f.StringVar(&opts.Builder, "builder", "", "`URI` of who packages, for the provenance (default "+pack.LocalBuilder+")")
	opts.mac.add(cmd)
	for _, what := range pack.Allowances {
		opts.allowed[what] = f.Bool("allow-"+what, false, allowance[what])
	}
	f.BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// allowance says what each --allow-… passes over.
var allowance = map[string]string{
	pack.AllowUnlocked:   "package trees of other pins, patches or sources than payload.lock's",
	pack.AllowUnverified: "package trees that were not verified, or not run",
	pack.AllowChanged:    "package trees whose files differ from their payload.json",
	pack.AllowFloor:      "package files that need a newer system than --glibc or --macos",
	pack.AllowBudget:     "package files that are larger than payload.yaml's budget",
	pack.AllowCompressor: "pack with another version of zstd than payload.yaml's: other bytes come out",
}

var (
	isVersion = regexp.MustCompile(`^\d+(\.\d+)*$`)
	isSize    = regexp.MustCompile(`^(\d+)([kKMG]?)(?:i?B)?$`)
)

// parseSize reads a number of bytes, with k, M or G for a power of 1024; empty is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	m := isSize.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is no size such as 1900M or 2G", text)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]uint{"": 0, "k": 10, "K": 10, "M": 20, "G": 30}[m[2]]
	if err != nil || n<<shift>>shift != n {
		return 0, fmt.Errorf("%q is too large", text)
	}
	if n<<shift < 1<<20 {
		return 0, fmt.Errorf("%q is less than 1M, which would make thousands of parts", text)
	}
	return n << shift, nil
}

// packageReport is what --json prints.
type packageReport struct {
	pack.Result
	Notary []notary.Outcome `json:"notary,omitempty"`
}

func runPackage(ctx context.Context, a *app, opts packageOptions) error {
	w, err := a.open(ctx, opts.sourceFlags)
	if err != nil {
		return err
	}
	findings, err := doctor.Look(ctx, pack.Needs(opts.System))
	if err != nil {
		return err
	}
	if missing := doctor.Missing(findings); len(missing) > 0 {
		return &doctor.MissingError{Missing: missing}
	}
	for _, path := range []*string{&opts.From, &opts.Out} {
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(w.File.Root, *path)
		}
	}
	opts.Version = toolVersion()
	if opts.mac.resume {
		return opts.mac.resumeNotary(ctx, a, opts.Out)
	}
	if opts.System == "darwin" {
		if err := opts.mac.steps(a, w.File, &opts.Options); err != nil {
			return err
		}
	}
	res, err := pack.Run(ctx, w, a.voice, opts.Options)
	if err != nil {
		return err
	}
	report := packageReport{Result: res}
	if opts.mac.notarize {
		report.Notary, err = opts.mac.submit(ctx, a, submitted(res))
		if err != nil && !errors.As(err, new(*reported)) {
			return err
		}
	}
	if a.json {
		return errors.Join(a.printJSON(report), err)
	}
	for _, p := range res.Packages {
		for _, f := range p.Files {
			if len(f.Parts) == 0 {
				fmt.Fprintf(a.stdout, "%s  %s\n", f.SHA256, f.Name)
			}
		}
	}
	a.voice.Say("%s in %s, in %s", packages(len(res.Packages)), res.Out, voice.Duration(time.Duration(res.Seconds*float64(time.Second))))
	return err
}

func packages(n int) string {
	if n == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", n)
}
