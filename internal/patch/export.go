package patch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/git"
)

// Change is one thing that writing a series did to its folder.
type Change struct {
	Kind ChangeKind `json:"kind"`
	File string     `json:"file"`
	From string     `json:"from,omitempty"` // the name before, of a renamed file
}

// ChangeKind says what happened to a file of the series.
type ChangeKind string

// The kinds of change.
const (
	Added   ChangeKind = "added"
	Updated ChangeKind = "updated"
	Renamed ChangeKind = "renamed"
	Removed ChangeKind = "removed"
	// Ignored is a file in the work folder that is in no patch, because a
	// .gitignore of upstream names it.
	Ignored ChangeKind = "ignored"
)

func (c Change) String() string {
	switch c.Kind {
	case Renamed:
		return fmt.Sprintf("%s %s to %s", c.Kind, c.From, c.File)
	case Ignored:
		return fmt.Sprintf("%s %s: a .gitignore names it; git add -f takes it in", c.Kind, c.File)
	}
	return fmt.Sprintf("%s %s", c.Kind, c.File)
}

// formatArgs is the canonical form of a patch. What a user's configuration
// could change about it is spelled out.
func formatArgs(base, head, dir string) []string {
	return []string{
		"-c", "diff.renames=true", "-c", "diff.algorithm=myers", "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false",
		"-c", "diff.suppressBlankEmpty=false", "-c", "core.quotePath=true",
		"format-patch", "-q", "-o", dir, "--no-numbered", "--zero-commit", "--no-signature", "--full-index", "--binary",
		"--no-thread", "--no-attach", "--subject-prefix=PATCH", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3",
		base + ".." + head,
	}
}

// exported is one commit of a series and its canonical patch.
type exported struct {
	patch        Patch
	slug         string // the file's name without its number
	parent, tree string // trees before and after
}

// plan is a series to be written: the whole of it, and what that changes.
type plan struct {
	files   map[string][]byte
	names   []string // by commit
	set     fileSet
	changes []Change
}

// exportCommits writes the commits base..head of repo as the series in dir,
// where old is what the folder holds.
func exportCommits(ctx context.Context, repo git.Repo, base, head, dir string, old Series) ([]Change, error) {
	p, err := planExport(ctx, repo, base, head, old, nil)
	if err != nil {
		return nil, fmt.Errorf("exporting the series to %s: %w", dir, err)
	}
	return p.changes, writeSet(dir, p.set, nil)
}

// planExport is the series that the commits base..head of repo make, in place
// of old. A patch whose message and change are the old one's keeps its bytes,
// whatever its form; a file keeps its number as long as the order allows. from
// says which patch of old each commit continues; nil where their messages tell.
func planExport(ctx context.Context, repo git.Repo, base, head string, old Series, from []int) (plan, error) {
	list, err := format(ctx, repo, base, head)
	if err != nil {
		return plan{}, err
	}
	priors := make([]prior, len(list))
	for i, k := range from {
		priors[i].old = &old.Patches[k]
	}
	if from == nil {
		match(list, priors, old)
	}
	if err := compare(ctx, repo, list, priors); err != nil {
		return plan{}, err
	}
	p := plan{files: map[string][]byte{}, names: number(list, priors), set: fileSet{place: map[string][]byte{}}}
	before := map[string][]byte{}
	for _, o := range old.Patches {
		before[o.File] = o.Data
	}
	for i, e := range list {
		name, data := p.names[i], e.patch.Data
		if priors[i].same {
			data = priors[i].old.Data
		}
		p.files[name] = data
		was, there := before[name]
		switch {
		case there && string(was) == string(data):
			continue
		case priors[i].old == nil && !there:
			p.changes = append(p.changes, Change{Kind: Added, File: name})
		case priors[i].old != nil && priors[i].old.File != name:
			p.changes = append(p.changes, Change{Kind: Renamed, File: name, From: priors[i].old.File})
		default:
			p.changes = append(p.changes, Change{Kind: Updated, File: name})
		}
		p.set.place[name] = data
	}
	for _, o := range old.Patches {
		if _, kept := p.files[o.File]; kept {
			continue
		}
		p.set.remove = append(p.set.remove, o.File)
		if !slices.ContainsFunc(priors, func(t prior) bool { return t.old != nil && t.old.File == o.File }) {
			p.changes = append(p.changes, Change{Kind: Removed, File: o.File})
		}
	}
	return p, nil
}

// format makes the canonical patch of each commit.
func format(ctx context.Context, repo git.Repo, base, head string) ([]exported, error) {
	parent, err := repo.Text(ctx, "rev-parse", base+"^{tree}")
	if err != nil {
		return nil, err
	}
	log, err := repo.Text(ctx, "log", "--reverse", "--topo-order", "--format=%T", base+".."+head)
	if err != nil {
		return nil, err
	}
	var list []exported
	for _, tree := range strings.Fields(log) {
		list = append(list, exported{parent: parent, tree: tree})
		parent = tree
	}
	if len(list) == 0 {
		return nil, nil
	}
	tmp, err := os.MkdirTemp("", "payload-export-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a scratch folder
	if _, err := repo.Do(ctx, git.Call{Args: formatArgs(base, head, tmp)}); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(tmp)
	if err != nil {
		return nil, err
	}
	if len(files) != len(list) {
		return nil, fmt.Errorf("git made %d patches of %d commits; a commit without a change can't be a patch", len(files), len(list))
	}
	for i, f := range files {
		data, err := os.ReadFile(filepath.Join(tmp, f.Name()))
		if err != nil {
			return nil, err
		}
		list[i].patch = Parse(f.Name(), data)
		if list[i].patch.Malformed != "" {
			return nil, fmt.Errorf("the patch that git made of commit %q is %s", list[i].patch.Message.Subject, list[i].patch.Malformed)
		}
		list[i].slug = strings.TrimLeft(strings.TrimPrefix(f.Name(), leadingDigits.FindString(f.Name())), "-")
	}
	return list, nil
}

// prior is the patch of the old series that a commit continues.
type prior struct {
	old  *Patch
	same bool // it says and does the same
}

// match finds for each commit the old patch that it came from: the one with
// the same message, else with the same subject.
func match(list []exported, priors []prior, old Series) {
	used := map[string]bool{}
	find := func(i int, is func(Message) bool) {
		for k := range old.Patches {
			p := &old.Patches[k]
			if priors[i].old == nil && !used[p.File] && is(p.Message) {
				priors[i].old = p
				used[p.File] = true
			}
		}
	}
	for i, e := range list {
		find(i, e.patch.Message.same)
	}
	for i, e := range list {
		find(i, func(m Message) bool { return m.Subject == e.patch.Message.Subject })
	}
}

// compare finds out which patches say and do what their old ones did.
func compare(ctx context.Context, repo git.Repo, list []exported, priors []prior) error {
	for i, e := range list {
		p := priors[i].old
		if p == nil || p.Malformed != "" || !p.Message.same(e.patch.Message) {
			continue
		}
		if slices.EqualFunc(p.Diffs, e.patch.Diffs, sameDiff) {
			priors[i].same = true
			continue
		}
		// Written differently, it may still make the same tree at the very
		// lines that it states.
		only := *p
		report, tree, err := Check(ctx, repo, e.parent, Series{Patches: []Patch{only}})
		if err != nil {
			return err
		}
		priors[i].same = report.Result == ResultClean && tree == e.tree
	}
	return nil
}

// sameDiff says whether two diffs change the same lines in the same way. Blob
// ids and headings are left out: they change with parts of the file that the
// patch doesn't touch.
func sameDiff(a, b FileDiff) bool {
	if a.Old != b.Old || a.New != b.New || a.rawOld != "" || b.rawOld != "" || a.Rename != b.Rename || a.Copy != b.Copy || a.Binary != nil || b.Binary != nil {
		return false
	}
	if a.OldMode != b.OldMode || a.NewMode != b.NewMode {
		return false
	}
	return slices.EqualFunc(a.Hunks, b.Hunks, func(x, y Hunk) bool {
		return x.OldStart == y.OldStart && x.NewStart == y.NewStart && slices.Equal(x.Lines, y.Lines)
	})
}

// number names the files of a series. A name is kept while its number still
// rises; what is new takes the next free one.
func number(list []exported, priors []prior) []string {
	keepBare := bareTail(priors)
	names := make([]string, len(list))
	last := 0
	for i, e := range list {
		t := priors[i]
		if t.old != nil && t.old.Number < 0 && keepBare {
			names[i] = t.old.File
			continue
		}
		n, width := last+1, 4
		slug := e.slug
		if t.old != nil {
			digits := leadingDigits.FindString(t.old.File)
			if t.old.Number > last {
				n = t.old.Number
			}
			if digits != "" {
				width = len(digits)
			}
			if t.old.Message.Subject == e.patch.Message.Subject {
				slug = strings.TrimLeft(strings.TrimPrefix(t.old.File, digits), "-")
			}
		}
		names[i] = fmt.Sprintf("%0*d-%s", width, n, slug)
		if t.old != nil && t.old.Number == n && strings.HasSuffix(t.old.File, slug) {
			names[i] = t.old.File
		}
		last = n
	}
	return names
}

// bareTail says whether the patches without a number can keep their names:
// they come last, in the order of the names.
func bareTail(priors []prior) bool {
	last := ""
	for _, t := range priors {
		bare := t.old != nil && t.old.Number < 0
		if !bare && last != "" || bare && t.old.File <= last {
			return false
		}
		if bare {
			last = t.old.File
		}
	}
	return true
}

// Refresh rewrites the series in s.Dir as it applies to the tree onto, having
// been made for base (empty when not known): at the right lines, retargeted
// and merged, without what upstream holds already. Patches that need none of
// it keep their bytes. A series with a conflict is a *ConflictError and is
// left as it is.
func Refresh(ctx context.Context, repo git.Repo, base, onto string, s Series) ([]Change, Report, error) {
	r, err := newReplay(ctx, repo, base, onto, s)
	if err != nil {
		return nil, r.report, err
	}
	if r.report.Result == ResultConflict {
		return nil, r.report, &ConflictError{Report: r.report}
	}
	chain, err := r.commits(ctx, "base")
	if err != nil {
		return nil, r.report, err
	}
	changes, err := exportCommits(ctx, repo, chain[0].id, chain[len(chain)-1].id, s.Dir, s)
	return changes, r.report, err
}

// commits writes the tree as a commit and each patch that changes something as
// one on top.
func (r *replay) commits(ctx context.Context, base string) ([]written, error) {
	chain := []commit{{message: base}}
	for _, st := range r.steps {
		if len(st.changes) == 0 {
			continue
		}
		m := st.patch.Message.signed()
		chain = append(chain, commit{author: m.Name, email: m.Email, date: m.Date, message: m.Text(), changes: st.changes})
	}
	return r.objects.write(ctx, r.onto, chain)
}
