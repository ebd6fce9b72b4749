package drift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"payload/internal/atomicfile"
	"payload/internal/config"
	"payload/internal/report"
	"payload/internal/run"
)

// self is the program name that stands for this tool in payload.yaml.
const self = "payload"

var treeOf = regexp.MustCompile(`^\{tree:(.+)\}$`)

// ask runs a generator in the repository's root. An argument {tree:NAME} is the
// folder of that component's patched tree.
func (r *repo) ask(ctx context.Context, args []string) (run.Result, error) {
	args = slices.Clone(args)
	if args[0] == self && r.opts.Exe != "" {
		args[0] = r.opts.Exe
	}
	for i, arg := range args {
		m := treeOf.FindStringSubmatch(arg)
		if m == nil {
			continue
		}
		pinned, err := r.w.Asked(m[1])
		if err != nil {
			return run.Result{}, err
		}
		tree, err := r.w.Quiet().Tree(ctx, pinned, false)
		if err != nil {
			return run.Result{}, err
		}
		defer func() { _ = tree.Close() }() // a lock of the store, which ends with the process at the latest
		args[i] = tree.Path
	}
	return run.Do(ctx, run.Cmd{Dir: r.file.Root, Args: args, Expendable: true})
}

// pasteable is a generator's command line for a shell.
func pasteable(args []string) string {
	shown := make([]string, len(args))
	for i, arg := range args {
		shown[i] = run.Quote(arg)
		if m := treeOf.FindStringSubmatch(arg); m != nil {
			shown[i] = `"$(payload source ` + m[1] + `)"`
		}
	}
	return strings.Join(shown, " ")
}

func checkGenerated(ctx context.Context, r *repo) ([]report.Finding, error) {
	var found []report.Finding
	for _, g := range r.file.Checks.Generated {
		if !r.has(g.Path) {
			found = append(found, finding("generated.missing", g.Path, report.Error, place(config.FileName, g.Line), g.Path+" is not there", "", "payload drift --fix"))
			continue
		}
		if len(g.Check) > 0 {
			res, err := r.ask(ctx, g.Check)
			var exit *run.ExitError
			if errors.As(err, &exit) && exit.Signal == "" {
				f := finding("generated.differs", g.Path, report.Error, place(g.Path, 0),
					g.Path+" is not what its generator makes now", strings.TrimSpace(string(res.Stdout)+string(res.Stderr)), strings.Join(g.Write, " "))
				f.Command = pasteable(g.Check)
				found = append(found, f)
			} else if err != nil {
				return nil, fmt.Errorf("asking the generator of %s: %w", g.Path, err)
			}
			continue
		}
		want, fault, err := r.wanted(ctx, g)
		if err != nil {
			return nil, err
		}
		if fault != "" {
			found = append(found, finding("generated.source", g.Path, report.Error, place(config.FileName, g.Line), "nothing to make "+g.Path+" from", fault, "correct \"generated\" in "+config.FileName))
			continue
		}
		is, err := r.text(g.Path)
		if err != nil {
			return nil, err
		}
		if want != is {
			line, detail := difference(is, want)
			f := finding("generated.differs", g.Path, report.Error, place(g.Path, line), g.Path+" is not what its source makes now", detail, "payload drift --fix")
			f.Command = pasteable(g.Command)
			found = append(found, f)
		}
	}
	return found, nil
}

// wanted is what a file has to hold; fault says why nothing can be told.
func (r *repo) wanted(ctx context.Context, g config.Generated) (text, fault string, err error) {
	if len(g.Command) > 0 {
		res, err := r.ask(ctx, g.Command)
		if err != nil {
			return "", "", fmt.Errorf("making %s: %w", g.Path, err)
		}
		return string(res.Stdout), "", nil
	}
	t, err := r.trees[g.Component](ctx)
	if err != nil || t.pristine == "" {
		return "", g.Component + " is not locked", err
	}
	texts, err := r.blobs(ctx, t.best(), func(name string) bool { return name == g.From })
	if err != nil {
		return "", "", err
	}
	text, ok := texts[g.From]
	if !ok {
		return "", fmt.Sprintf("%s %s has no file %s", g.Component, t.pinned.Ref, g.From), nil
	}
	return text, "", nil
}

// difference is the first line in which two texts differ, and what stands there.
func difference(is, want string) (int, string) {
	a, b := strings.SplitAfter(is, "\n"), strings.SplitAfter(want, "\n")
	for i := 0; ; i++ {
		switch {
		case i >= len(a) || i >= len(b), a[i] != b[i]:
			show := func(lines []string) string {
				if i >= len(lines) || lines[i] == "" {
					return "ends here"
				}
				return fmt.Sprintf("%q", lines[i])
			}
			return i + 1, fmt.Sprintf("it says   %s\nit should %s", show(a), show(b))
		}
	}
}

func fixGenerated(ctx context.Context, r *repo) ([]string, error) {
	var did []string
	for _, g := range r.file.Checks.Generated {
		if len(g.Check) > 0 {
			if len(g.Write) == 0 {
				continue
			}
			if _, err := r.ask(ctx, g.Check); err == nil {
				continue
			}
			if _, err := r.ask(ctx, g.Write); err != nil {
				return did, fmt.Errorf("making %s: %w", g.Path, err)
			}
			did = append(did, "made "+g.Path)
			continue
		}
		want, fault, err := r.wanted(ctx, g)
		if err != nil {
			return did, err
		}
		is, err := os.ReadFile(r.file.Abs(g.Path))
		if fault != "" || err == nil && string(is) == want {
			continue
		}
		mode := os.FileMode(0o644)
		if info, err := os.Stat(r.file.Abs(g.Path)); err == nil {
			mode = info.Mode().Perm()
		}
		if err := atomicfile.Write(r.file.Abs(g.Path), []byte(want), mode); err != nil {
			return did, err
		}
		did = append(did, "made "+g.Path)
	}
	return did, nil
}
