package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"

	"payload/internal/run"
)

// Need is a tool that something asks for, by its name in the table.
type Need struct {
	Name     string
	Min      string // raises the table's minimum
	Optional bool   // its absence is told, not an error
	For      string // what asks: a preset, a mirror
}

// Finding is what a look at one need gave.
type Finding struct {
	Name     string   `json:"name"`
	Why      string   `json:"why"`
	For      string   `json:"for"`
	OK       bool     `json:"ok"`
	Optional bool     `json:"optional,omitempty"`
	Found    string   `json:"found,omitempty"` // version, or "yes" where it tells none
	Path     string   `json:"path,omitempty"`
	Min      string   `json:"min,omitempty"`
	Problem  string   `json:"problem,omitempty"`
	Packages []string `json:"packages,omitempty"` // what the system's package manager would install
	Get      string   `json:"get,omitempty"`
}

// MissingError lists needs that aren't met; nothing was done.
type MissingError struct {
	Preset  string // what asked, for the hint; empty when no preset did
	Missing []Finding
}

func (e *MissingError) Error() string {
	var parts []string
	for _, f := range e.Missing {
		parts = append(parts, fmt.Sprintf("%s (%s, for %s): %s", f.Name, f.Why, f.For, f.Problem))
	}
	return "prerequisites are missing: " + strings.Join(parts, "; ")
}

// Look checks every need once; needs of one name are merged, the highest
// minimum wins.
func Look(ctx context.Context, needs []Need) ([]Finding, error) {
	var findings []Finding
	for _, n := range merge(needs) {
		tool, known := tools[n.Name]
		if !known {
			return nil, fmt.Errorf("looking for %s, which %s asks for: no such tool is known; known are %s", n.Name, n.For, strings.Join(Known(), ", "))
		}
		f, err := look(ctx, tool, n)
		if err != nil {
			return nil, err
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// Known lists the names that needs may use.
func Known() []string {
	var names []string
	for name := range tools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Missing are the findings that stop work.
func Missing(findings []Finding) []Finding {
	var missing []Finding
	for _, f := range findings {
		if !f.OK && !f.Optional {
			missing = append(missing, f)
		}
	}
	return missing
}

func merge(needs []Need) []Need {
	var out []Need
	for _, n := range needs {
		i := slices.IndexFunc(out, func(o Need) bool { return o.Name == n.Name })
		if i < 0 {
			out = append(out, n)
			continue
		}
		o := &out[i]
		o.Optional = o.Optional && n.Optional
		if older(o.Min, n.Min) {
			o.Min, o.For = n.Min, n.For
		}
	}
	return out
}

func look(ctx context.Context, tool Tool, n Need) (Finding, error) {
	minimum := tool.Min
	if older(minimum, n.Min) {
		minimum = n.Min
	}
	f := Finding{Name: n.Name, Why: tool.Why, For: n.For, Optional: n.Optional, Min: minimum, Packages: packages(tool), Get: tool.Get}
	var problems []string
	for _, command := range tool.Commands {
		problem, err := f.try(ctx, command, tool.Version)
		if err != nil || problem == "" {
			f.OK = err == nil
			return f, err
		}
		if problem != notOnPath {
			problems = append(problems, problem)
		}
	}
	if len(problems) == 0 {
		problems = []string{notOnPath}
	}
	f.Problem = strings.Join(problems, ", ")
	return f, nil
}

const notOnPath = "not on PATH"

// try looks at one of the commands by which a tool can be had, and says what
// is wrong with it; empty when it will do.
func (f *Finding) try(ctx context.Context, command, version []string) (problem string, err error) {
	path, err := run.LookPath(command[0])
	if err != nil {
		return notOnPath, nil
	}
	found := "yes"
	if len(version) > 0 {
		res, err := run.Do(ctx, run.Cmd{Args: slices.Concat(command, version)})
		if err != nil && ctx.Err() != nil {
			return "", err
		}
		if err != nil {
			return strings.Join(command, " ") + " does not run: " + err.Error(), nil
		}
		if v := versionText.FindString(string(res.Stdout)); v != "" {
			found = v
		}
	}
	if f.Path == "" || !older(found, f.Min) {
		f.Path, f.Found = path, found
	}
	if older(found, f.Min) {
		return fmt.Sprintf("version %s is too old, %s is needed", found, f.Min), nil
	}
	return "", nil
}

var versionText = regexp.MustCompile(`\d+(\.\d+)*`)

// older says whether version a is below b; what isn't a version is never so.
func older(a, b string) bool {
	if b == "" {
		return false
	}
	if a == "" {
		return true
	}
	va, errA := version.NewVersion(a)
	vb, errB := version.NewVersion(b)
	return errA == nil && errB == nil && va.LessThan(vb)
}

// manager is the system's package manager.
type manager struct {
	name    string
	install []string
	refresh []string
	root    bool // needs root
}

var managers = []manager{
	{name: "apt", refresh: []string{"apt-get", "update", "-q"}, install: []string{"apt-get", "install", "-y", "-q", "--no-install-recommends"}, root: true},
	{name: "brew", install: []string{"brew", "install"}},
}

// found is the package manager of this machine, if payload knows it.
func found() (manager, bool) {
	want := map[string]string{"linux": "apt", "darwin": "brew"}[runtime.GOOS]
	for _, m := range managers {
		if m.name == want {
			_, err := run.LookPath(m.install[0])
			return m, err == nil
		}
	}
	return manager{}, false
}

func packages(t Tool) []string {
	m, ok := found()
	switch {
	case ok && m.name == "apt":
		return t.Apt
	case ok && m.name == "brew":
		return t.Brew
	}
	return nil
}

// Command is one command that installs.
type Command struct {
	Args     []string
	Optional bool // it brings nothing that work needs, so it may fail
}

// FixCommands are the commands that install what findings lack, and the
// findings that no package brings. What is optional has a command of its own:
// a package that a system lacks must not keep the others out.
func FixCommands(findings []Finding) (commands []Command, left []Finding) {
	needed, optional := []string{}, []string{}
	for _, f := range findings {
		into := &needed
		if f.Optional {
			into = &optional
		}
		switch {
		case f.OK:
		case len(f.Packages) == 0:
			left = append(left, f)
		default:
			for _, p := range f.Packages {
				if !slices.Contains(needed, p) && !slices.Contains(optional, p) {
					*into = append(*into, p)
				}
			}
		}
	}
	m, ok := found()
	if !ok || len(needed)+len(optional) == 0 {
		return nil, left
	}
	if len(m.refresh) > 0 {
		commands = append(commands, Command{Args: asRoot(m, m.refresh)})
	}
	if len(needed) > 0 {
		commands = append(commands, Command{Args: asRoot(m, append(slices.Clone(m.install), needed...))})
	}
	if len(optional) > 0 {
		commands = append(commands, Command{Args: asRoot(m, append(slices.Clone(m.install), optional...)), Optional: true})
	}
	return commands, left
}

func asRoot(m manager, args []string) []string {
	if m.root && os.Geteuid() != 0 {
		return append([]string{"sudo"}, args...)
	}
	return args
}

// NotRootError is an install that needs root, which can't be had from here.
type NotRootError struct{ Commands []Command }

func (e *NotRootError) Error() string {
	return "installing prerequisites: that needs root, and sudo is not on PATH"
}

// Fix runs the commands; their output goes to w. stdin is for sudo's question.
func Fix(ctx context.Context, commands []Command, stdin io.Reader, w io.Writer) error {
	for _, c := range commands {
		_, err := run.Do(ctx, run.Cmd{
			Args: c.Args, Env: []string{"DEBIAN_FRONTEND=noninteractive"},
			Foreground: true, Grace: 10 * time.Minute, Stdin: stdin, Stdout: w, Stderr: w,
		})
		var missing *run.MissingError
		switch {
		case err == nil:
		case errors.As(err, &missing) && missing.Tool == "sudo":
			return &NotRootError{Commands: commands}
		case c.Optional && ctx.Err() == nil:
			fmt.Fprintf(w, "not installed, and not needed: %v\n", err)
		default:
			return fmt.Errorf("installing prerequisites: %w", err)
		}
	}
	return nil
}
