package ci

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/run"
)

// AffectedSchema is the value of the first key.
const AffectedSchema = "payload.affected/v1"

// Affected is what a change has to build. Presets and Include say the same;
// Include is the form that a job's matrix takes.
type Affected struct {
	Schema   string   `json:"schema"`
	Base     string   `json:"base"`  // the commit that the change is counted from
	Files    []string `json:"files"` // that changed
	Presets  []string `json:"presets"`
	Packages []string `json:"packages"`
	Include  []Job    `json:"include"`
	Reasons  []Reason `json:"reasons"`
}

// Job is one entry of a matrix.
type Job struct {
	Preset  string `json:"preset"`
	Project string `json:"project"`
	Runner  string `json:"runner"` // empty: the workflow's own choice
}

// Reason says why a preset or a package has to be built.
type Reason struct {
	File     string   `json:"file"`
	Presets  []string `json:"presets,omitempty"`
	Packages []string `json:"packages,omitempty"`
	By       string   `json:"by"` // the key of payload.yaml, or that it is an input
}

// NoBaseError is a base that the repository does not have, or has nothing in
// common with.
type NoBaseError struct {
	Base    string
	Shallow bool
	Why     string
}

func (e *NoBaseError) Error() string {
	if e.Shallow {
		return fmt.Sprintf("comparing with %s: %s; this clone is shallow", e.Base, e.Why)
	}
	return fmt.Sprintf("comparing with %s: %s", e.Base, e.Why)
}

// Changed lists the files that differ between the common ancestor of base and
// HEAD, and the work tree; what git would add counts. It gives the ancestor's
// commit, too. A base that can't be compared with is a *NoBaseError.
func Changed(ctx context.Context, f *config.File, base string) (files []string, ancestor string, err error) {
	ask := func(args ...string) ([]byte, error) {
		// Names as they are, and relative to payload.yaml, which need not lie at
		// the top of the work tree.
		res, err := run.Do(ctx, run.Cmd{Dir: f.Root, Args: append([]string{"git", "-c", "core.quotePath=false"}, args...)})
		return res.Stdout, err
	}
	shallow := func() bool {
		out, err := ask("rev-parse", "--is-shallow-repository")
		return err == nil && strings.TrimSpace(string(out)) == "true"
	}
	var exit *run.ExitError
	if _, err := ask("rev-parse", "--verify", "--quiet", "--end-of-options", base+"^{commit}"); err != nil {
		if errors.As(err, &exit) {
			return nil, "", &NoBaseError{Base: base, Shallow: shallow(), Why: "there is no such commit here"}
		}
		return nil, "", err
	}
	out, err := ask("merge-base", base, "HEAD")
	if err != nil {
		if errors.As(err, &exit) {
			return nil, "", &NoBaseError{Base: base, Shallow: shallow(), Why: "no common ancestor with HEAD is here"}
		}
		return nil, "", err
	}
	ancestor = strings.TrimSpace(string(out))
	// A renamed file counts under both names.
	out, err = ask("diff", "--name-only", "--no-renames", "--relative", "-z", ancestor, "--")
	if err != nil {
		return nil, "", fmt.Errorf("listing what changed since %s: %w", base, err)
	}
	files = git.SplitZ(out)
	out, err = ask("ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, "", fmt.Errorf("listing new files: %w", err)
	}
	files = append(files, git.SplitZ(out)...)
	slices.Sort(files)
	return slices.Compact(files), ancestor, nil
}

// Affects decides what changed files have to build. projects is the repository
// as it is now.
func Affects(f *config.File, projects []Project, changed []string) Affected {
	a := Affected{Schema: AffectedSchema, Files: changed, Presets: []string{}, Packages: []string{}, Include: []Job{}, Reasons: []Reason{}}
	if a.Files == nil {
		a.Files = []string{}
	}
	wanted := map[string]string{} // preset to its runner
	runners := func(name string) string {
		for _, rule := range f.Checks.Affected {
			if rule.Runner != "" && matchesAny(rule.Presets, name) {
				return rule.Runner
			}
		}
		return ""
	}
	for _, file := range changed {
		taken := false
		for i, rule := range f.Checks.Affected {
			if !config.Matches(rule.Paths, file) {
				continue
			}
			taken = true
			r := Reason{File: file, By: fmt.Sprintf("affected[%d]", i), Packages: rule.Packages}
			for _, p := range projects {
				for _, preset := range p.Presets {
					if matchesAny(rule.Presets, preset.Name) {
						r.Presets = append(r.Presets, preset.Name)
					}
				}
			}
			a.add(r, wanted, runners)
		}
		if taken {
			continue
		}
		for _, p := range projects {
			if !p.takes(file) {
				continue
			}
			r := Reason{File: file, By: "an input of " + p.Dir}
			for _, preset := range p.Presets {
				r.Presets = append(r.Presets, preset.Name)
			}
			a.add(r, wanted, runners)
		}
	}
	for _, p := range projects {
		for _, preset := range p.Presets {
			if runner, ok := wanted[preset.Name]; ok {
				a.Presets = append(a.Presets, preset.Name)
				a.Include = append(a.Include, Job{Preset: preset.Name, Project: p.Dir, Runner: runner})
			}
		}
	}
	return a
}

func (a *Affected) add(r Reason, wanted map[string]string, runner func(string) string) {
	for _, name := range r.Presets {
		wanted[name] = runner(name)
	}
	for _, name := range r.Packages {
		if !slices.Contains(a.Packages, name) {
			a.Packages = append(a.Packages, name)
		}
	}
	a.Reasons = append(a.Reasons, r)
}

// takes says whether a file is an input. One that is gone was an input if it
// lay where inputs lie: a list of what is there lacks it.
func (p Project) takes(file string) bool {
	if slices.Contains(p.Inputs(), file) {
		return true
	}
	if config.Matches(notInputs, file) {
		return false
	}
	folders := []string{p.Dir}
	for _, c := range p.Components {
		if file == c.Pin {
			return true
		}
		if c.Patches != "" {
			folders = append(folders, c.Patches)
		}
	}
	return slices.ContainsFunc(folders, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
}
