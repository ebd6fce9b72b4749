package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"payload/internal/folder"
	"payload/internal/run"
	"payload/internal/source"
)

// Look checks every need once; needs of one name are merged, the highest
// minimum wins, unless they want versions below different ones.
func Look(ctx context.Context, needs []Need) ([]Finding, error) {
	var findings []Finding
	for _, n := range merge(needs) {
		if n.Fails != "" {
			findings = append(findings, Finding{Name: n.Name, Why: "building", For: n.For, Problem: n.Fails, Get: n.Get})
			continue
		}
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

func merge(needs []Need) []Need {
	var out []Need
	for _, n := range needs {
		i := slices.IndexFunc(out, func(o Need) bool { return o.Name == n.Name && o.Below == n.Below && o.Fails == n.Fails })
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

// place is one thing that may be the tool.
type place struct {
	path string
	args []string // to run it; none for a file
	root string
}

func look(ctx context.Context, tool Tool, n Need) (Finding, error) {
	minimum := tool.Min
	if older(minimum, n.Min) {
		minimum = n.Min
	}
	f := Finding{
		Name: n.Name, Why: tool.Why, For: n.For, Optional: n.Optional, Min: minimum, Below: n.Below,
		Packages: packages(tool), Get: tool.Get,
	}
	f.Kit = usableKit(tool.Kit, f)
	places, absent, err := tool.places()
	if err != nil {
		return f, err
	}
	var problems []string
	for _, p := range places {
		problem, err := f.try(ctx, tool, p)
		if err != nil || problem == "" {
			f.OK = err == nil
			return f, err
		}
		if !slices.Contains(problems, problem) {
			problems = append(problems, problem)
		}
	}
	if len(problems) == 0 {
		problems = []string{absent + f.wanted(", ", " is needed")}
	}
	f.Problem = strings.Join(problems, ", ")
	return f, nil
}

// wanted is the version that will do, in words; empty when any will.
func (f *Finding) wanted(before, after string) string {
	switch {
	case f.Min != "" && f.Below != "":
		return before + f.Min + " or newer, below " + f.Below + "," + after
	case f.Min != "":
		return before + f.Min + after
	case f.Below != "":
		return before + "a version below " + f.Below + after
	}
	return ""
}

const notOnPath = "not on PATH"

// places lists where the tool is, in the order in which it is looked for, and
// the words for a list that is empty.
func (t Tool) places() (found []place, absent string, err error) {
	for _, name := range t.Own {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		if info, err := os.Stat(value); err == nil && !info.IsDir() {
			return []place{{path: value, args: []string{value}, root: rootOf(value)}}, "", nil
		}
		found, err := t.below(value)
		return found, fmt.Sprintf("%s=%s holds no %s", name, value, t.what()), err
	}
	absent = notOnPath
	for _, command := range t.Commands {
		if path, err := run.LookPath(command[0]); err == nil {
			found = append(found, place{path: path, args: command, root: rootOf(path)})
		}
	}
	for _, pattern := range t.Roots {
		roots, err := expandRoot(pattern)
		if err != nil {
			return nil, "", err
		}
		for _, root := range roots {
			more, err := t.below(root)
			if err != nil {
				return nil, "", err
			}
			found = append(found, more...)
		}
	}
	if len(t.Commands) == 0 {
		absent = "not found"
	}
	return found, absent, nil
}

func (t Tool) what() string {
	if len(t.Files) > 0 {
		return t.Files[0]
	}
	return filepath.Join("bin", t.Commands[0][0])
}

// rootOf is the folder that holds bin, and beside it include and lib.
func rootOf(program string) string { return filepath.Dir(filepath.Dir(program)) }

// below looks in one root.
func (t Tool) below(root string) (found []place, err error) {
	for _, command := range t.Commands {
		path := filepath.Join(root, "bin", command[0]+programSuffix())
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			found = append(found, place{path: path, args: append([]string{path}, command[1:]...), root: root})
		}
	}
	for _, file := range t.Files {
		matches, err := folder.Glob(root, file)
		if err != nil {
			return nil, fmt.Errorf("looking in %s: %w", root, err)
		}
		for _, path := range matches {
			found = append(found, place{path: path, root: root})
		}
	}
	return found, nil
}

func programSuffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// expandRoot gives the folders that a root of the table stands for, the last by
// name first: that is the newest.
func expandRoot(pattern string) ([]string, error) {
	if name, ok := strings.CutPrefix(pattern, "$"); ok {
		if dir := os.Getenv(name); dir != "" {
			return []string{dir}, nil
		}
		return nil, nil
	}
	if rest, ok := strings.CutPrefix(pattern, "{tools}"); ok {
		dir, err := KitsDir()
		if err != nil {
			return nil, err
		}
		roots, err := folder.Glob(dir, strings.TrimPrefix(rest, "/"))
		slices.Reverse(roots)
		return roots, err
	}
	roots, err := filepath.Glob(pattern)
	slices.Reverse(roots)
	return roots, err
}

// KitsDir is where --fix unpacks tools that the system has no package for.
func KitsDir() (string, error) {
	dir, err := source.DefaultDir()
	if err != nil {
		return "", err
	}
	dir, err = filepath.Abs(dir)
	return filepath.Join(dir, "tools"), err
}

// try looks at one place and says what is wrong with it; empty when it will do.
func (f *Finding) try(ctx context.Context, tool Tool, p place) (problem string, err error) {
	found, problem, err := versionAt(ctx, tool, p)
	if err != nil || problem != "" {
		return problem, err
	}
	good := !older(found, f.Min) && !newer(found, f.Below)
	if f.Path == "" || good {
		f.Path, f.Found = p.path, found
	}
	switch {
	case older(found, f.Min):
		return fmt.Sprintf("version %s is too old,%s", found, f.wanted(" ", " is needed")), nil
	case newer(found, f.Below):
		return fmt.Sprintf("version %s is too new,%s", found, f.wanted(" ", " is needed")), nil
	}
	if !slices.Contains(system, p.root) {
		fill := strings.NewReplacer("{root}", p.root, "{path}", p.path)
		for _, t := range tool.Tell {
			f.Tell = append(f.Tell, fill.Replace(t))
		}
	}
	return "", nil
}

var firstNumber = regexp.MustCompile(`\d+(\.\d+)*`)

// versionAt is the version of what lies at a place, or "yes" where it tells
// none.
func versionAt(ctx context.Context, tool Tool, p place) (version, problem string, err error) {
	text := ""
	switch {
	case len(p.args) == 0 && len(tool.Says) > 0:
		data, err := os.ReadFile(p.path)
		if err != nil {
			return "", err.Error(), nil //nolint:nilerr // it is what is wrong with the place
		}
		text = string(data)
	case len(p.args) > 0 && len(tool.Version) > 0:
		res, err := run.Do(ctx, run.Cmd{Args: slices.Concat(p.args, tool.Version)})
		if err != nil && ctx.Err() != nil {
			return "", "", err
		}
		if err != nil {
			return "", strings.Join(p.args, " ") + " does not run: " + err.Error(), nil
		}
		text = string(res.Stdout)
	}
	if len(tool.Says) == 0 {
		version = firstNumber.FindString(text)
	}
	var parts []string
	for _, re := range tool.Says {
		if m := re.FindStringSubmatch(text); m != nil {
			parts = append(parts, m[1:]...)
		}
	}
	if version += strings.Join(parts, "."); version == "" {
		version = "yes"
	}
	return version, "", nil
}
