package patch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/git"
	"payload/internal/run"
	"payload/internal/voice"
)

// Decision is what a person, or the patch's own condition, has settled about
// one patch of a series that is rebased.
type Decision struct {
	Skip     bool   // it is left out
	Resolved []byte // the patch file that takes its place; made on the new tree
}

// Rebased is a series on another tree than it was made for.
type Rebased struct {
	// Report judges each patch, those that are left out included. Result is
	// conflict where one that is not left out fails.
	Report Report
	Tree   string // the patched tree; empty on conflict
	// Files is the new series, name to content; nil on conflict. Carried has an
	// entry for each patch of the old one; nil on conflict.
	Files   map[string][]byte
	Carried []Carried
	Changes []Change

	r    *replay
	base string
}

// Carried is what became of one patch.
type Carried struct {
	File string // its name in the old series
	To   string // its name in the new one; empty when it is in it no more
	Same bool   // its bytes are kept
	// Content says that it reads differently, not only at other lines, or is
	// gone: what a reviewer has to look at.
	Content bool
}

// Rebase carries the series from the tree base, for which it was made, to the
// tree onto. Each patch becomes a commit on onto by the engine's own three-way
// merge, so no blob that a patch names has to exist. decided holds what was
// settled about patches, by file. Nothing is written but git objects.
func Rebase(ctx context.Context, repo git.Repo, base, onto string, s Series, decided map[string]Decision) (*Rebased, error) {
	r, err := newDecided(ctx, repo, base, onto, s, decided)
	if err != nil {
		return nil, err
	}
	b := &Rebased{Report: r.report, r: r, base: base}
	if r.report.Result == ResultConflict {
		return b, nil
	}
	chain, err := r.commits(ctx, "base")
	if err != nil {
		return nil, err
	}
	b.Tree = chain[len(chain)-1].tree
	from := []int{} // not nil, which would leave it to the messages
	for _, st := range r.steps {
		if len(st.changes) > 0 {
			from = append(from, st.place)
		}
	}
	p, err := planExport(ctx, repo, chain[0].id, chain[len(chain)-1].id, s, from)
	if err != nil {
		return nil, fmt.Errorf("exporting the series: %w", err)
	}
	b.Files, b.Changes = p.files, p.changes
	for i, old := range s.Patches {
		c := Carried{File: old.File, Content: true}
		if k := slices.Index(from, i); k >= 0 {
			c.To = p.names[k]
			now := Parse(c.To, p.files[c.To])
			c.Same = c.To == old.File && now.SHA256 == old.SHA256
			c.Content = !c.Same && !sameText(old, now)
		}
		b.Carried = append(b.Carried, c)
	}
	return b, nil
}

// sameText says whether two patches say the same and change the same lines,
// wherever those stand.
func sameText(a, b Patch) bool {
	return a.Message.same(b.Message) && slices.EqualFunc(a.Diffs, b.Diffs, func(x, y FileDiff) bool {
		for _, d := range []*FileDiff{&x, &y} {
			d.Hunks = slices.Clone(d.Hunks)
			for i := range d.Hunks {
				d.Hunks[i].OldStart, d.Hunks[i].NewStart = 0, 0
			}
			if d.OldMode == d.NewMode { // stated or not, it does not change
				d.OldMode, d.NewMode = "", ""
			}
		}
		return sameDiff(x, y)
	})
}

// decide puts the decisions into the series.
func (r *replay) decide(decided map[string]Decision) {
	r.skip = map[string]bool{}
	r.series.Patches = slices.Clone(r.series.Patches)
	for i, p := range r.series.Patches {
		d, ok := decided[p.File]
		switch {
		case !ok:
		case d.Skip:
			r.skip[p.File] = true
		default:
			r.series.Patches[i] = Parse(p.File, d.Resolved)
			r.origins[i] = make([]*madeFor, len(r.series.Patches[i].Diffs))
		}
	}
}

// Failed is the first patch that holds the series up; false when none does.
func (b *Rebased) Failed() (Outcome, bool) {
	i := b.failed()
	if i < 0 {
		return Outcome{}, false
	}
	return b.Report.Patches[i], true
}

func (b *Rebased) failed() int {
	return slices.IndexFunc(b.Report.Patches, func(o Outcome) bool { return o.Verdict.failed() && !b.r.skip[o.File] })
}

// pick is what a work folder for a conflict keeps in its own .git.
type pick struct {
	File    string   `json:"file"`
	Head    string   `json:"head"`           // the commit before the patch
	Commit  string   `json:"pick,omitempty"` // the patch as a commit on the old tree
	Merged  []string `json:"merged"`         // files with both sides in them
	Name    string   `json:"name"`           // of the author
	Email   string   `json:"email"`
	Date    string   `json:"date"` // as git reads it
	Message string   `json:"message"`
}

const pickName = "pick.json"

// Side is one place where upstream and a patch want different lines.
type Side struct {
	Path  string `json:"path"`
	Line  int    `json:"line"`  // in the work folder's file, from 1
	Start int    `json:"start"` // where upstream's lines begin in the new tree's file, from 1
	// Upstream's lines are those of the new tree with the patches before.
	Upstream []string `json:"upstream"`
	Base     []string `json:"base"` // what both started from
	Patch    []string `json:"patch"`
}

// Stop is a conflict, opened to be resolved.
type Stop struct {
	Dir      string   // the work folder
	Sides    []Side   // from the files with conflict markers
	Unmerged []string // every path that git could not settle
	Manual   bool     // git had nothing to merge: the change has to be made by hand
	Settled  bool     // git merges it without a conflict, and the engine doesn't trust that
}

// OpenConflict makes workdir a work folder in which the first patch that fails
// is being picked onto those before it, as `git cherry-pick` leaves it: the
// index has the three stages, the files have both sides. A folder that was
// opened for the very same conflict is kept as it is, with what was done in
// it; any other is replaced.
func (b *Rebased) OpenConflict(ctx context.Context, repo git.Repo, workdir string) (Stop, error) {
	at := b.failed()
	if at < 0 {
		return Stop{}, errors.New("opening a conflict: there is none")
	}
	fail := func(err error) (Stop, error) {
		return Stop{}, fmt.Errorf("opening %s in %s: %w", b.Report.Patches[at].File, workdir, err)
	}
	head, base, commit, err := b.sides(ctx, repo, at)
	if err != nil {
		return fail(err)
	}
	if open, err := readPick(workdir); err == nil && open.File == b.Report.Patches[at].File && open.Head == head && open.Commit == commit {
		return b.look(ctx, workdir, open)
	}
	tmp := workdir + ".new"
	for _, dir := range []string{tmp, workdir} {
		if err := os.RemoveAll(dir); err != nil {
			return fail(err)
		}
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fail(err)
	}
	w := git.Repo{Dir: filepath.Join(tmp, ".git")}
	if err := fillWork(ctx, repo, w, tmp, base, head, commit); err != nil {
		return fail(err)
	}
	m := b.r.series.Patches[at].Message.signed()
	p := pick{File: b.Report.Patches[at].File, Head: head, Commit: commit, Merged: []string{}, Name: m.Name, Email: m.Email, Date: m.Date.Format(time.RFC3339), Message: m.Text()}
	if commit != "" {
		if err := cherryPick(ctx, w, tmp, commit); err != nil {
			return fail(err)
		}
		if p.Merged, err = unmerged(ctx, w, tmp); err != nil {
			return fail(err)
		}
	}
	// What `git commit` and `git status` go by.
	if err := os.WriteFile(filepath.Join(w.Dir, "MERGE_MSG"), []byte(p.Message), 0o644); err != nil {
		return fail(err)
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fail(err)
	}
	if err := writeSynced(filepath.Join(w.Dir, pickName), append(data, '\n')); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, workdir); err != nil {
		return fail(err)
	}
	return b.look(ctx, workdir, p)
}

// sides writes the two lines of commits that meet in a conflict: the new tree
// with the patches before, up to head, and the old tree up to the patch itself,
// which is empty where the patch doesn't apply there either.
func (b *Rebased) sides(ctx context.Context, repo git.Repo, at int) (head, base, commit string, err error) {
	before := func(steps []step, last int) []step {
		return slices.DeleteFunc(slices.Clone(steps), func(st step) bool { return st.place > last })
	}
	onto := *b.r
	onto.steps = before(b.r.steps, at-1)
	chain, err := onto.commits(ctx, "pristine")
	if err != nil {
		return "", "", "", err
	}
	head, base = chain[len(chain)-1].id, chain[0].id
	old := *b.r
	old.onto, old.steps = b.base, before(b.r.before, at)
	if n := len(old.steps); n == 0 || old.steps[n-1].place != at || len(old.steps[n-1].changes) == 0 {
		return head, base, "", nil
	}
	if chain, err = old.commits(ctx, "pristine, before"); err != nil {
		return "", "", "", err
	}
	return head, base, chain[len(chain)-1].id, nil
}

// cherryPick merges a commit into the work folder without committing it, and
// leaves what ordinary git needs to go on from there.
func cherryPick(ctx context.Context, w git.Repo, dir, commit string) error {
	if _, err := w.Do(ctx, git.Call{Args: []string{"config", "merge.conflictStyle", "diff3"}}); err != nil {
		return err
	}
	_, err := w.Do(ctx, git.Call{WorkTree: dir, Args: []string{"-c", "advice.mergeConflict=false", "cherry-pick", "--no-commit", commit}})
	var exit *run.ExitError
	if conflicts := errors.As(err, &exit) && exit.Code == 1; err != nil && !conflicts {
		return err
	}
	_, err = w.Do(ctx, git.Call{Args: []string{"update-ref", "CHERRY_PICK_HEAD", commit}})
	return err
}

func unmerged(ctx context.Context, w git.Repo, dir string) ([]string, error) {
	out, err := w.Do(ctx, git.Call{WorkTree: dir, Args: []string{"diff", "--name-only", "--diff-filter=U", "-z"}})
	if err != nil {
		return nil, err
	}
	names := append([]string{}, git.SplitZ(out)...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

func readPick(workdir string) (pick, error) {
	var p pick
	data, err := os.ReadFile(filepath.Join(workdir, ".git", pickName))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(data, &p)
}

// look reads the sides from the files of a work folder.
func (b *Rebased) look(ctx context.Context, workdir string, p pick) (Stop, error) {
	stop := Stop{Dir: workdir, Unmerged: p.Merged, Manual: p.Commit == "", Settled: p.Commit != "" && len(p.Merged) == 0}
	for _, path := range p.Merged {
		data, err := os.ReadFile(filepath.Join(workdir, filepath.FromSlash(path)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return stop, fmt.Errorf("reading the conflict in %s: %w", workdir, err)
		}
		sides, ours := conflicts(path, string(data))
		var pristine []string
		if e, ok := b.r.files.base[path]; ok {
			if err := b.r.objects.fetch(ctx, []string{e.id}); err != nil {
				return stop, err
			}
			pristine = splitLines(b.r.objects.content[e.id])
		}
		to := mapLines(ours, pristine)
		for _, s := range sides {
			// The place by the nearest line above that upstream's file has.
			at := s.Start - 1
			lead := 0
			for at > 0 && (at >= len(to) || to[at] < 0) {
				at--
				lead++
			}
			if at < len(to) && to[at] >= 0 {
				s.Start = to[at] + lead + 1
			}
			stop.Sides = append(stop.Sides, s)
		}
	}
	return stop, nil
}

// conflicts finds the places between conflict markers, and gives the file's
// lines as upstream's side has them. Start counts in those.
func conflicts(path, text string) (sides []Side, ours []string) {
	var s *Side
	part := &ours
	for i, line := range splitLines(text) {
		switch {
		case s == nil && strings.HasPrefix(line, "<<<<<<< "):
			s = &Side{Path: path, Line: i + 1, Start: len(ours) + 1, Upstream: []string{}, Base: []string{}, Patch: []string{}}
			part = &s.Upstream
		case s != nil && strings.HasPrefix(line, "||||||| "):
			part = &s.Base
		case s != nil && strings.TrimRight(line, "\r\n") == "=======":
			part = &s.Patch
		case s != nil && strings.HasPrefix(line, ">>>>>>> "):
			ours = append(ours, s.Upstream...)
			for _, list := range []*[]string{&s.Upstream, &s.Base, &s.Patch} {
				for k := range *list {
					(*list)[k] = strings.TrimRight((*list)[k], "\r\n")
				}
			}
			sides = append(sides, *s)
			s, part = nil, &ours
		default:
			*part = append(*part, line)
		}
	}
	return sides, ours
}

// UnresolvedError is a conflict that is not resolved yet.
type UnresolvedError struct {
	Dir   string
	File  string   // the patch
	Why   string   // what is left to do
	Paths []string // files of the work folder that it is about
}

func (e *UnresolvedError) Error() string {
	what := e.Why
	if len(e.Paths) > 0 {
		what += ": " + voice.List(e.Paths, 3)
	}
	return fmt.Sprintf("resolving %s in %s: %s", e.File, e.Dir, what)
}

// Resolution takes the patch that was made of a conflict in workdir: what was
// committed there, or what is in its files, committed with the patch's own
// message and author. file is the patch that it stands for. A folder in which
// no conflict was opened gives an empty file; one in which something is left
// to do an *UnresolvedError.
func Resolution(ctx context.Context, workdir string) (file string, resolved []byte, err error) {
	p, err := readPick(workdir)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("reading the conflict in %s: %w", workdir, err)
	}
	w := git.Repo{Dir: filepath.Join(workdir, ".git")}
	left := func(why string, paths ...string) (string, []byte, error) {
		return p.File, nil, &UnresolvedError{Dir: workdir, File: p.File, Why: why, Paths: paths}
	}
	fail := func(err error) (string, []byte, error) {
		return p.File, nil, fmt.Errorf("taking %s from %s: %w", p.File, workdir, err)
	}
	why, paths, err := p.unsettled(ctx, w, workdir)
	if err != nil {
		return fail(err)
	}
	if why != "" {
		return left(why, paths...)
	}
	head, err := w.Text(ctx, "rev-parse", "HEAD")
	if err != nil {
		return fail(err)
	}
	changed, _, err := dirty(ctx, w, workdir)
	if err != nil {
		return fail(err)
	}
	switch {
	case head == p.Head && len(changed) == 0:
		return left("nothing is changed there")
	case head != p.Head && len(changed) > 0:
		return left("changed after the commit, and not committed", changed...)
	case head == p.Head:
		if err := p.commit(ctx, w, workdir); err != nil {
			return fail(err)
		}
		if head, err = w.Text(ctx, "rev-parse", "HEAD"); err != nil {
			return fail(err)
		}
	}
	if parent, err := w.Text(ctx, "rev-parse", "-q", "--verify", "HEAD^"); err != nil || parent != p.Head {
		return left("one commit on top of " + p.Head[:12] + " is wanted, which is the patch")
	}
	list, err := format(ctx, w, p.Head, head)
	if err != nil {
		return fail(err)
	}
	if len(list) != 1 {
		return left("its commit changes nothing")
	}
	return p.File, list[0].patch.Data, nil
}

// unsettled says which files of the work folder still hold both sides, and how
// that shows.
func (p pick) unsettled(ctx context.Context, w git.Repo, workdir string) (why string, paths []string, err error) {
	open, err := unmerged(ctx, w, workdir)
	if err != nil {
		return "", nil, err
	}
	if len(open) > 0 {
		return "not marked as resolved", open, nil
	}
	for _, path := range p.Merged {
		data, err := os.ReadFile(filepath.Join(workdir, filepath.FromSlash(path)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", nil, err
		}
		if sides, _ := conflicts(path, string(data)); len(sides) > 0 {
			paths = append(paths, path)
		}
	}
	if len(paths) > 0 {
		why = "conflict markers are left"
	}
	return why, paths, nil
}

// commit makes a commit of everything that is changed, as the patch's author.
func (p pick) commit(ctx context.Context, w git.Repo, workdir string) error {
	if _, err := w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"add", "-A"}}); err != nil {
		return err
	}
	env := []string{"GIT_AUTHOR_NAME=" + p.Name, "GIT_AUTHOR_EMAIL=" + p.Email, "GIT_AUTHOR_DATE=" + p.Date}
	_, err := w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"-c", "core.hooksPath=" + os.DevNull, "commit", "-q", "--cleanup=verbatim", "-F", "-"}, Env: env, Stdin: strings.NewReader(p.Message)})
	return err
}
