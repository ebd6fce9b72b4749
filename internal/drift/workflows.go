package drift

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/goccy/go-yaml/ast"

	"payload/internal/report"
)

// workflow is one file below .github that GitHub reads.
type workflow struct {
	file string
	root ast.Node
}

// workflows reads the workflows and the local actions. One that is no YAML is a
// finding: GitHub would say so only where it is run.
func (r *repo) workflows() ([]workflow, []report.Finding, error) {
	var list []workflow
	var found []report.Finding
	for _, file := range r.files {
		if !doublestar.MatchUnvalidated(".github/{workflows/*,actions/**/action,action}.{yml,yaml}", file) && !slices.Contains([]string{"action.yml", "action.yaml"}, file) {
			continue
		}
		text, err := r.text(file)
		if err != nil {
			return nil, nil, err
		}
		root, err := parse(text)
		if err != nil {
			found = append(found, finding("workflows.unreadable", file, report.Error, place(file, 1), file+" is no YAML", err.Error(), ""))
			continue
		}
		list = append(list, workflow{file, root})
	}
	return list, found, nil
}

// pathFilter is GitHub's own pattern language for paths: * stops at a slash, **
// doesn't, ? and + repeat what stands before, and the whole path has to match.
// https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#filter-pattern-cheat-sheet
func pathFilter(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^(?:")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.HasPrefix(pattern[i:], "**/") && (i == 0 || pattern[i-1] == '/'):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(pattern[i:], "**"):
			b.WriteString(".*")
			i++
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?' || c == '+' || c == '[' || c == ']' || c == '-' && strings.Contains(pattern[:i], "["):
			b.WriteByte(c)
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString(")$")
	return regexp.Compile(b.String())
}

// filterSet is an ordered list of path filters, of which the last that matches
// decides.
type filterSet []struct {
	out bool
	re  *regexp.Regexp
}

func (s filterSet) takes(file string) bool {
	in := false
	for _, f := range s {
		if f.re.MatchString(file) {
			in = !f.out
		}
	}
	return in
}

func checkFilters(_ context.Context, r *repo) ([]report.Finding, error) {
	list, _, err := r.workflows()
	if err != nil {
		return nil, err
	}
	var found []report.Finding
	for _, w := range list {
		for _, event := range pairs(at(w.root, "on")) {
			for _, key := range []string{"paths", "paths-ignore"} {
				list := entry(event.Value, key)
				if list == nil {
					continue
				}
				set, dead := r.filters(w.file, texts(list.Value))
				found = append(found, dead...)
				at := place(w.file, line(list.Key))
				for _, p := range r.projects {
					what := keyOf(event) + " " + p.Dir
					if key == "paths" {
						if left := missing(p, set.takes); len(left) > 0 {
							found = append(found, finding("filters.incomplete", what, report.Error, at,
								fmt.Sprintf("%s starts for some inputs of %s, and not for %s", keyOf(event), p.Dir, listed(left)), "A change to those is merged without this job.", "take them in"))
						}
						continue
					}
					ignored := slices.DeleteFunc(p.Inputs(), func(file string) bool { return !set.takes(file) })
					if len(ignored) > 0 {
						found = append(found, finding("filters.ignored", what, report.Error, at,
							fmt.Sprintf("%s ignores inputs of %s: %s", keyOf(event), p.Dir, listed(ignored)), "A change to those alone is merged without this job.", "ignore less"))
					}
				}
			}
		}
	}
	return found, nil
}

// filters reads a list of path filters and finds those that match no file.
func (r *repo) filters(file string, patterns []word) (filterSet, []report.Finding) {
	var set filterSet
	var found []report.Finding
	for _, p := range patterns {
		pattern, out := strings.CutPrefix(p.text, "!")
		re, err := pathFilter(pattern)
		if err != nil {
			found = append(found, finding("filters.malformed", p.text, report.Error, place(file, p.line), fmt.Sprintf("path filter %q can't be read", p.text), err.Error(), ""))
			continue
		}
		set = append(set, struct {
			out bool
			re  *regexp.Regexp
		}{out, re})
		if slices.ContainsFunc(r.files, re.MatchString) {
			continue
		}
		detail, fix := "No file of the repository has such a path; was a folder renamed or deleted?", "take it out, or name what it became"
		meant := strings.TrimPrefix(pattern, "./")
		if strings.HasSuffix(meant, "/") {
			meant += "**"
		}
		switch re, err := pathFilter(meant); {
		case err != nil:
		case meant != pattern && slices.ContainsFunc(r.files, re.MatchString):
			detail, fix = "GitHub compares whole paths, which have no ./ before them and no / behind them.", "write "+meant
		case r.has(meant):
			detail, fix = meant+" is a folder; a filter takes files.", "write "+meant+"/**"
		}
		found = append(found, finding("filters.dead", p.text, report.Error, place(file, p.line), fmt.Sprintf("path filter %q matches no file", p.text), detail, fix))
	}
	return set, found
}

// steps visits every step of a workflow or a composite action, with those of its job.
func steps(root ast.Node, visit func(step ast.Node, job []ast.Node)) {
	jobs := [][]ast.Node{items(at(root, "runs", "steps"))}
	for _, job := range pairs(at(root, "jobs")) {
		jobs = append(jobs, items(at(job.Value, "steps")))
	}
	for _, job := range jobs {
		for _, step := range job {
			visit(step, job)
		}
	}
}

func joined(n ast.Node) string {
	var parts []string
	for _, w := range scalar(n) {
		parts = append(parts, w.text)
	}
	return strings.Join(parts, "\n")
}

var (
	hashFiles  = regexp.MustCompile(`hashFiles\(([^)]*)\)`)
	quotedWord = regexp.MustCompile(`'((?:[^']|'')*)'`)
	stepOutput = regexp.MustCompile(`steps\.([A-Za-z0-9_-]+)\.outputs`)
	namedKey   = regexp.MustCompile(`(?i)\b(matrix|needs|inputs|env)\.[A-Za-z0-9_.-]*cache[_-]?key`)
)

// hashed are the patterns that a text hands to hashFiles.
func hashed(text string) []string {
	var list []string
	for _, call := range hashFiles.FindAllStringSubmatch(text, -1) {
		for _, m := range quotedWord.FindAllStringSubmatch(call[1], -1) {
			list = append(list, strings.ReplaceAll(m[1], "''", "'"))
		}
	}
	return list
}

// hashes says whether patterns of hashFiles take a file. A pattern for a folder
// takes what is in it.
func hashes(patterns []string, file string) bool {
	in := false
	for _, pattern := range patterns {
		rest, out := strings.CutPrefix(pattern, "!")
		if covers(path.Clean(rest), file) {
			in = !out
		}
	}
	return in
}

func checkCacheKeys(_ context.Context, r *repo) ([]report.Finding, error) {
	list, _, err := r.workflows()
	if err != nil {
		return nil, err
	}
	var found []report.Finding
	for _, w := range list {
		every(w.root, func(text word) {
			for _, pattern := range hashed(text.text) {
				rest := strings.TrimPrefix(pattern, "!")
				if !slices.ContainsFunc(r.files, func(file string) bool { return hashes([]string{rest}, file) }) {
					found = append(found, finding("cache-keys.dead", pattern, report.Error, place(w.file, text.line),
						fmt.Sprintf("hashFiles(%q) matches no file", pattern), "It adds nothing to the key, so the key stays the same when the files change.", "take it out, or name what it became"))
				}
			}
		})
		steps(w.root, func(step ast.Node, job []ast.Node) {
			if uses := joined(at(step, "uses")); strings.HasPrefix(uses, "actions/cache@") || strings.HasPrefix(uses, "actions/cache/restore@") {
				found = append(found, r.cacheStep(w, step, job)...)
			}
		})
	}
	return found, nil
}

// cacheStep looks at one step that restores a cache.
func (r *repo) cacheStep(w workflow, step ast.Node, job []ast.Node) []report.Finding {
	var kept []string
	for _, p := range texts(at(step, "with", "path")) {
		if r.isBuild(p.text) {
			kept = append(kept, p.text)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	var found []report.Finding
	key, keyNode := joined(at(step, "with", "key")), at(step, "with", "key")
	if n := at(step, "with", "restore-keys"); n != nil {
		found = append(found, finding("cache-keys.restore", strings.Join(kept, " "), report.Error, place(w.file, texts(n)[0].line),
			fmt.Sprintf("%s comes back from a build of other inputs", listed(kept)),
			"restore-keys takes any cache whose key begins so: an old CMakeCache.txt keeps the defaults that upstream has changed since, and old objects look up to date.",
			"delete restore-keys; keep the compiler cache (ccache) that way instead"))
	}
	for _, m := range stepOutput.FindAllStringSubmatch(key, -1) {
		for _, other := range job {
			if joined(at(other, "id")) == m[1] && strings.Contains(joined(at(other, "run")), "cache-key") {
				return found
			}
		}
	}
	if namedKey.MatchString(key) {
		return found
	}
	patterns := hashed(key)
	for _, p := range r.projects {
		left := slices.DeleteFunc(p.Inputs(), func(file string) bool { return hashes(patterns, file) })
		if len(left) > 0 {
			found = append(found, finding("cache-keys.incomplete", p.Dir, report.Error, place(w.file, line(keyNode)),
				fmt.Sprintf("the key of %s leaves out inputs of %s: %s", listed(kept), p.Dir, listed(left)),
				"A build made without them is restored as if it had them.", "use what payload cache-key PRESET prints"))
		}
	}
	return found
}

// isBuild says whether a path of a cache holds what a build made: it lies in the
// checkout and is no file of the repository. Caches of compilers go by content.
func (r *repo) isBuild(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "!"), "${{ github.workspace }}/")
	switch {
	case path.IsAbs(name), strings.HasPrefix(name, "~"), strings.HasPrefix(name, "$"), strings.Contains(name, "ccache"), len(name) > 1 && name[1] == ':':
		return false
	}
	name = path.Clean(name)
	return !strings.HasPrefix(name, "..") && !slices.ContainsFunc(r.files, func(file string) bool { return covers(name, file) })
}

// named finds paths of the repository in a command.
var named = regexp.MustCompile(`(?:^|[\s"'=])((?:\./)?[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)(?:$|[\s"';])`)

func checkWorkflows(_ context.Context, r *repo) ([]report.Finding, error) {
	list, found, err := r.workflows()
	if err != nil {
		return nil, err
	}
	for _, w := range list {
		found = append(found, r.presetsNamed(w)...)
		look := func(name string, line int) {
			clean := path.Clean(name)
			top, _, _ := strings.Cut(clean, "/")
			if r.has(top) && !r.has(clean) {
				found = append(found, finding("workflows.missing", name, report.Error, place(w.file, line), name+" is not there", "", ""))
			}
		}
		steps(w.root, func(step ast.Node, _ []ast.Node) {
			for _, uses := range scalar(at(step, "uses")) {
				if rest, local := strings.CutPrefix(uses.text, "./"); local && !r.has(path.Join(rest, "action.yml")) && !r.has(path.Join(rest, "action.yaml")) && !r.has(rest+"/Dockerfile") {
					found = append(found, finding("workflows.missing", uses.text, report.Error, place(w.file, uses.line), uses.text+" is no action", "", ""))
				}
			}
			for _, key := range []string{"run", "working-directory"} {
				for _, command := range scalar(at(step, key)) {
					for _, m := range named.FindAllStringSubmatch(command.text, -1) {
						look(m[1], command.line)
					}
				}
			}
			for _, file := range scalar(at(step, "with", "file")) {
				look(file.text, file.line)
			}
		})
		for _, job := range pairs(at(w.root, "jobs")) {
			for _, uses := range scalar(at(job.Value, "uses")) {
				if rest, local := strings.CutPrefix(uses.text, "./"); local && !r.has(rest) {
					found = append(found, finding("workflows.missing", uses.text, report.Error, place(w.file, uses.line), uses.text+" is not there", "", ""))
				}
			}
		}
	}
	return found, nil
}

// presetFlag finds the presets that a command names in full.
var presetFlag = regexp.MustCompile(`--preset[= ]["']?([A-Za-z0-9_.,+-]+)`)

// presetsNamed looks at the presets that commands and matrices name.
func (r *repo) presetsNamed(w workflow) []report.Finding {
	known := map[string]bool{}
	for _, p := range r.projects {
		for _, preset := range p.Presets {
			known[preset.Name] = true
		}
	}
	var found []report.Finding
	look := func(name string, line int) {
		if name != "" && !known[name] && !strings.Contains(name, "$") {
			found = append(found, finding("workflows.preset", name, report.Error, place(w.file, line), "there is no preset "+name, "", ""))
		}
	}
	steps(w.root, func(step ast.Node, _ []ast.Node) {
		for _, command := range scalar(at(step, "run")) {
			for _, m := range presetFlag.FindAllStringSubmatch(command.text, -1) {
				for _, name := range strings.Split(m[1], ",") {
					look(name, command.line)
				}
			}
		}
	})
	for _, job := range pairs(at(w.root, "jobs")) {
		matrix := at(job.Value, "strategy", "matrix")
		for _, name := range texts(at(matrix, "preset")) {
			look(name.text, name.line)
		}
		for _, entry := range items(at(matrix, "include")) {
			for _, name := range scalar(at(entry, "preset")) {
				look(name.text, name.line)
			}
		}
	}
	return found
}
