package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	Below    string // the first version that is too new; empty for none
	Optional bool   // its absence is told, not an error
	For      string // what asks: a preset, a mirror
	// Fails is what the asker found wrong by itself, for a need that is no tool:
	// another machine. Get is then the way out.
	Fails string
	Get   string
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
	Below    string   `json:"below,omitempty"`
	Tell     []string `json:"tell,omitempty"` // variables that lead CMake to it
	Kit      string   `json:"kit,omitempty"`  // what --fix can unpack
	Problem  string   `json:"problem,omitempty"`
	Packages []string `json:"packages,omitempty"` // what the system's package manager would install
	Get      string   `json:"get,omitempty"`
}

// MissingError lists needs that aren't met; nothing was done.
type MissingError struct {
	Preset  string // what asked, for the hint; empty when no preset did
	Cross   bool   // the preset can be built here for the other system
	Missing []Finding
}

func (e *MissingError) Error() string {
	var parts []string
	for _, f := range e.Missing {
		parts = append(parts, fmt.Sprintf("%s (%s, for %s): %s", f.Name, f.Why, f.For, f.Problem))
	}
	return "prerequisites are missing: " + strings.Join(parts, "; ")
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

// newer says whether version a is b or above; what isn't a version is never so.
func newer(a, b string) bool {
	va, errA := version.NewVersion(a)
	vb, errB := version.NewVersion(b)
	return b != "" && errA == nil && errB == nil && va.GreaterThanOrEqual(vb)
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

// FixCommands are the commands that install what findings lack, the kits to make
// where that is not enough, and the findings that neither brings. What is optional has a command of its own:
// a package that a system lacks must not keep the others out.
func FixCommands(findings []Finding) (commands []Command, kits []string, left []Finding) {
	needed, optional := []string{}, []string{}
	for _, f := range findings {
		into := &needed
		if f.Optional {
			into = &optional
		}
		switch {
		case f.OK:
		case len(f.Packages) == 0 && f.Kit == "":
			left = append(left, f)
		default:
			for _, p := range f.Packages {
				if !slices.Contains(needed, p) && !slices.Contains(optional, p) {
					*into = append(*into, p)
				}
			}
		}
	}
	for _, f := range findings {
		if !f.OK && f.Kit != "" && !slices.Contains(kits, f.Kit) {
			kits = append(kits, f.Kit)
		}
	}
	m, ok := found()
	if !ok || len(needed)+len(optional) == 0 {
		return nil, kits, left
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
	return commands, kits, left
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
