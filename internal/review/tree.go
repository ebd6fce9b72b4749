package review

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/review/scan"
)

// which is an index for things that both sides have.
const (
	before = 0
	after  = 1
)

// trees are both sides as lists of files, and the contents that were asked for.
type trees struct {
	files   [2]map[string]string // path -> blob
	paths   [2][]string          // sorted
	changes []change
	renamed map[string]string // old path -> new path
	texts   map[string]string // blob -> content
	parsed  map[string]*scan.File
}

// change is a file that differs.
type change struct {
	status   byte // A, D, M, R, T
	old, new string
	score    int // of a rename, in percent
}

func readTrees(ctx context.Context, in Input) (*trees, error) {
	t := &trees{renamed: map[string]string{}, texts: map[string]string{}, parsed: map[string]*scan.File{}}
	for side, id := range []string{in.Old.Tree, in.New.Tree} {
		entries, err := in.Repo.List(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("listing %s %s: %w", in.Component.Name, []Side{in.Old, in.New}[side].Ref, err)
		}
		t.files[side] = map[string]string{}
		for _, e := range entries {
			t.files[side][e.Path] = e.ID
			t.paths[side] = append(t.paths[side], e.Path)
		}
	}
	out, err := in.Repo.Do(ctx, git.Call{Args: []string{"diff-tree", "-r", "-z", "-M50%", "--name-status", in.Old.Tree, in.New.Tree}})
	if err != nil {
		return nil, fmt.Errorf("comparing %s %s and %s: %w", in.Component.Name, in.Old.Ref, in.New.Ref, err)
	}
	words := git.SplitZ(out)
	for i := 0; i+1 < len(words); i += 2 {
		c := change{status: words[i][0], old: words[i+1], new: words[i+1]}
		if c.status == 'R' && i+2 < len(words) {
			c.score, _ = strconv.Atoi(words[i][1:]) // git writes R and digits
			c.new = words[i+2]
			t.renamed[c.old] = c.new
			i++
		}
		t.changes = append(t.changes, c)
	}
	return t, nil
}

// matcher tells whether a path is among globs; the last one that matches
// decides, and !GLOB takes out.
func matches(globs []string, path string) bool {
	in := false
	for _, glob := range globs {
		pattern, out := strings.CutPrefix(glob, "!")
		if in != out {
			continue
		}
		if ok, _ := doublestar.Match(pattern, path); ok { // the pattern was checked when payload.yaml was read
			in = !out
		}
	}
	return in
}

// plan is a rule with the files that it looks at.
type plan struct {
	rule  config.Rule
	paths [2][]string
	// moved are the old paths whose file lies elsewhere now, outside the rule's
	// globs; it was followed.
	moved map[string]string
	lost  []string // globs that match nothing any more
	dead  []string // globs that match at neither side
	extra [2][]string
}

// plan matches a rule's globs. A literal path that was renamed is followed.
func (t *trees) plan(rule config.Rule, ignore []string) *plan {
	p := &plan{rule: rule, moved: map[string]string{}}
	for side := range p.paths {
		for _, path := range t.paths[side] {
			if matches(rule.In, path) && !matches(ignore, path) {
				p.paths[side] = append(p.paths[side], path)
			}
			if rule.Defaults != nil && matches(rule.Defaults.In, path) {
				p.extra[side] = append(p.extra[side], path)
			}
		}
	}
	for _, glob := range rule.In {
		if strings.HasPrefix(glob, "!") {
			continue
		}
		was := filter(t.paths[before], glob)
		switch is := filter(t.paths[after], glob); {
		case len(is) == 0 && len(was) == 0:
			p.dead = append(p.dead, glob)
		case len(is) == 0:
			p.lost = append(p.lost, glob)
			for _, path := range was {
				if to, ok := t.renamed[path]; ok && !slices.Contains(p.paths[after], to) {
					p.moved[path] = to
					p.paths[after] = append(p.paths[after], to)
				}
			}
		}
	}
	return p
}

func filter(paths []string, glob string) []string {
	var found []string
	for _, path := range paths {
		if ok, _ := doublestar.Match(glob, path); ok {
			found = append(found, path)
		}
	}
	return found
}

// needed lists the files of a side that the rule has to read. A file that is
// the same on both sides holds the same things, so it is read only where
// things are looked for that may lie in any file.
func (p *plan) needed(t *trees, side int) []string {
	if p.rule.Find == "files" {
		return nil
	}
	if p.rule.Find == "logs" || p.rule.Find == "cmake" || p.rule.Find == "routes" {
		return p.paths[side]
	}
	// Defaults that stand in another file change without the flags' own.
	all := slices.ContainsFunc(p.extra[side], func(path string) bool { return !t.same(path) })
	var found []string
	for _, path := range p.paths[side] {
		if all || !t.same(path) {
			found = append(found, path)
		}
	}
	return found
}

// same says whether a path has the same content on both sides.
func (t *trees) same(path string) bool {
	was, ok := t.files[before][path]
	return ok && was == t.files[after][path]
}

// maxBlob is the size of a file that is still read, in bytes. What is larger
// is no source that a person wrote.
const maxBlob = 8 << 20

// load reads every blob that the plans need, in one process.
func (t *trees) load(ctx context.Context, repo git.Repo, plans []*plan) error {
	var ids []string
	asked := map[string]bool{}
	for _, p := range plans {
		for side := range p.paths {
			for _, path := range slices.Concat(p.needed(t, side), p.extra[side]) {
				if id := t.files[side][path]; !asked[id] {
					asked[id] = true
					ids = append(ids, id)
				}
			}
		}
	}
	objects, err := repo.Objects(ctx, ids)
	if err != nil {
		return fmt.Errorf("reading upstream's files: %w", err)
	}
	for _, object := range objects { // a submodule's commit is missing
		if len(object.Text) <= maxBlob && object.Kind == "blob" {
			t.texts[object.ID] = object.Text
		}
	}
	return nil
}

// text is a file's content; empty when it was not loaded.
func (t *trees) text(side int, path string) string { return t.texts[t.files[side][path]] }

// parse reads a file as tokens, once.
func (t *trees) parse(side int, path string) *scan.File {
	id := t.files[side][path]
	key := id + path[strings.LastIndexByte(path, '.')+1:]
	if f, ok := t.parsed[key]; ok {
		return f
	}
	f := scan.Parse(path, t.texts[id])
	t.parsed[key] = f
	return f
}
