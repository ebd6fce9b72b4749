package patch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/git"
	"payload/internal/run"
	"payload/internal/voice"
)

// Check judges the series against a tree of repo, cumulatively and to its end,
// and gives the id of the patched tree; it is empty when the result is
// conflict. A patch that fails is left out for those after it.
//
// Where the repository holds the blob that a patch was made for, places are
// found by what became of that file's lines; otherwise by the text alone. Use
// CheckFrom where the tree that the series belongs to is known.
func Check(ctx context.Context, repo git.Repo, pristine string, s Series) (Report, string, error) {
	return CheckFrom(ctx, repo, "", pristine, s)
}

// CheckFrom judges a series that was made for the tree base against the tree
// onto, both in repo.
func CheckFrom(ctx context.Context, repo git.Repo, base, onto string, s Series) (Report, string, error) {
	r, err := newReplay(ctx, repo, base, onto, s)
	if err != nil || r.report.Result == ResultConflict {
		return r.report, "", err
	}
	tree, err := r.tree(ctx)
	return r.report, tree, err
}

// Apply is Check for callers that need the tree: a series that doesn't apply
// is a *ConflictError.
func Apply(ctx context.Context, repo git.Repo, pristine string, s Series) (string, Report, error) {
	return ApplyFrom(ctx, repo, "", pristine, s)
}

// ApplyFrom is CheckFrom for callers that need the tree, as Apply is.
func ApplyFrom(ctx context.Context, repo git.Repo, base, onto string, s Series) (string, Report, error) {
	report, tree, err := CheckFrom(ctx, repo, base, onto, s)
	if err == nil && report.Result == ResultConflict {
		err = &ConflictError{Report: report}
	}
	return tree, report, err
}

// replay is a series on its way onto a tree.
type replay struct {
	objects *objects
	base    string // empty when not known
	onto    string
	series  Series
	files   *overlay
	origins [][]*madeFor // by patch and diff; nil where not known
	renamed map[string]string
	before  []step // the series on base, as far as it holds there; nil without base
	steps   []step
	skip    map[string]bool // files of patches that are judged and left out
	report  Report
}

// step is one patch that holds.
type step struct {
	place   int // in the series
	patch   Patch
	verdict Verdict
	changes map[string]*entry
}

// madeFor is the file that a diff fits exactly: its lines, where each hunk
// begins, and what it becomes.
type madeFor struct {
	mode    string  // empty where not known
	content *string // where the diff applied at precisely the lines it states
	lines   []string
	at      []int
	result  string
}

func newReplay(ctx context.Context, repo git.Repo, base, onto string, s Series) (*replay, error) {
	return newDecided(ctx, repo, base, onto, s, nil)
}

// newDecided is newReplay with what was decided about some of the patches: on
// base the series is as it stands, on onto the decisions take the patches'
// places.
func newDecided(ctx context.Context, repo git.Repo, base, onto string, s Series, decided map[string]Decision) (*replay, error) {
	r := &replay{objects: newObjects(repo, onto), onto: onto, series: s}
	if base != onto {
		r.base = base
	}
	r.report = Report{Schema: Schema, Result: ResultClean, Patches: []Outcome{}}
	files, err := r.objects.tree(ctx, onto)
	if err != nil {
		return r, err
	}
	var old *overlay
	trees := []map[string]entry{files}
	if r.base != "" {
		list, err := r.objects.tree(ctx, r.base)
		if err != nil {
			return r, err
		}
		trees = append(trees, list)
		old = newOverlay(list)
	}
	if err := r.objects.fetch(ctx, s.blobs(trees)); err != nil {
		return r, err
	}
	r.origins = r.named()
	if old != nil {
		r.files = old
		made, err := r.all(ctx, "")
		if err != nil {
			return r, err
		}
		r.before = r.steps
		for i := range made {
			for j, m := range made[i] {
				if m != nil {
					r.origins[i][j] = m
				}
			}
		}
	}
	r.decide(decided)
	r.files = newOverlay(files)
	_, err = r.all(ctx, r.base)
	r.report.Result = resultOf(r.report.Patches, r.skip)
	return r, err
}

// blobs lists what the series may need to read: its targets in each tree, and
// the blobs that it names itself.
func (s Series) blobs(trees []map[string]entry) []string {
	var ids []string
	for _, p := range s.Patches {
		for _, d := range p.Diffs {
			ids = append(ids, d.OldID)
			for _, path := range []string{d.Old, d.New, d.rawOld, d.rawNew} {
				for _, t := range trees {
					if e, ok := t[path]; ok && e.mode != submodule {
						ids = append(ids, e.id)
					}
				}
			}
		}
	}
	return ids
}

// named finds the origins that patches name by blob ids. The result of one is
// the origin of the next, so none of them but the first need be stored.
func (r *replay) named() [][]*madeFor {
	origins := make([][]*madeFor, len(r.series.Patches))
	for i, p := range r.series.Patches {
		origins[i] = make([]*madeFor, len(p.Diffs))
		for j, d := range p.Diffs {
			switch {
			case d.Old == "" && len(d.Hunks) == 1:
				r.objects.add(strings.Join(d.Hunks[0].shape().after, ""))
			case d.Old == "" && d.Binary != nil:
				if content, err := d.Binary.apply(""); err == nil {
					r.objects.add(content)
				}
			case d.OldID != "":
				old, ok := r.objects.resolve(d.OldID)
				if !ok {
					continue
				}
				if d.Binary != nil {
					if content, err := d.Binary.apply(old); err == nil {
						r.objects.add(content)
					}
					continue
				}
				if m := d.exact(old); m != nil {
					origins[i][j] = m
					r.objects.add(m.result)
				}
			}
		}
	}
	return origins
}

// exact applies a diff at precisely the lines it states, or gives nil.
func (d FileDiff) exact(content string) *madeFor {
	m := &madeFor{content: &content, lines: splitLines(content)}
	var edits []edit
	for _, h := range d.Hunks {
		sh, at := h.shape(), h.start()
		if at+len(sh.before) > len(m.lines) || !slices.Equal(m.lines[at:at+len(sh.before)], sh.before) {
			return nil
		}
		m.at = append(m.at, at)
		edits = append(edits, sh.edits(at, 0)...)
	}
	var ok bool
	m.result, ok = applyEdits(m.lines, edits)
	if !ok {
		return nil
	}
	return m
}

// all replays the series onto r.files, fills steps and report, and gives what
// each diff was applied to. base is the tree to look for renames from.
func (r *replay) all(ctx context.Context, base string) ([][]*madeFor, error) {
	r.steps, r.report.Patches, r.renamed = nil, []Outcome{}, nil
	made := make([][]*madeFor, len(r.series.Patches))
	var lost []Patch // failed ones, for those that depend on them
	for i, p := range r.series.Patches {
		made[i] = make([]*madeFor, len(p.Diffs))
		if p.Malformed != "" {
			out := Outcome{File: p.File, Verdict: Malformed, Targets: []Target{}, Detail: p.Malformed}
			for _, d := range p.Diffs {
				out.Targets = append(out.Targets, Target{Path: d.Path(), Verdict: Malformed})
			}
			r.report.Patches = append(r.report.Patches, out)
			lost = append(lost, p)
			continue
		}
		out, changes, err := r.one(ctx, base, i, p, made[i], lost)
		if err != nil {
			return nil, fmt.Errorf("checking %s: %w", p.File, err)
		}
		r.report.Patches = append(r.report.Patches, out)
		if out.Verdict.failed() || r.skip[p.File] {
			lost = append(lost, p)
			continue
		}
		r.files.change(changes)
		r.steps = append(r.steps, step{place: i, patch: p, verdict: out.Verdict, changes: changes})
	}
	return made, nil
}

// one judges one patch; its changes all hold, or none is made.
func (r *replay) one(ctx context.Context, base string, i int, p Patch, made []*madeFor, lost []Patch) (Outcome, map[string]*entry, error) {
	out := Outcome{File: p.File, Targets: []Target{}}
	diffs, err := r.files.settle(p.Diffs)
	if err != nil {
		out.Verdict, out.Detail = Conflict, err.Error()
		return out, nil, nil
	}
	leaving := map[string]bool{} // paths that this patch frees
	for _, d := range diffs {
		if d.Old != "" && (d.New == "" || d.Rename) {
			leaving[d.Old] = true
		}
	}
	seen := map[string]bool{}
	changes := map[string]*entry{}
	var verdicts []Verdict
	var details []string
	for j, d := range diffs {
		j2 := judging{replay: r, base: base, leaving: leaving, from: r.origins[i][j]}
		var f fileFit
		if key := d.Old + "\x00" + d.New; seen[key] {
			f = d.fail(Conflict, "the patch changes this file twice")
		} else if seen[key] = true; err == nil {
			f, err = j2.file(ctx, d)
		}
		if err != nil {
			return out, nil, err
		}
		if f.target.Verdict == Conflict {
			if on := dependsOn(d, f.hunks, lost); on != "" {
				f.target.Verdict = Blocked
				f.details = append([]string{"depends on " + on + ", which is not applied"}, f.details...)
			}
		}
		made[j] = f.made
		out.Targets = append(out.Targets, f.target)
		verdicts = append(verdicts, f.target.Verdict)
		for _, text := range f.details {
			details = append(details, d.Path()+": "+text)
		}
		for path, e := range f.changes {
			if _, set := changes[path]; e != nil || !set {
				changes[path] = e
			}
		}
	}
	out.Verdict, out.Detail = combine(verdicts), strings.Join(details, "\n")
	return out, changes, nil
}

// dependsOn names an earlier, failed patch without which d can't apply.
func dependsOn(d FileDiff, hunks []Hunk, lost []Patch) string {
	for _, p := range lost {
		for _, e := range p.Diffs {
			shared := d.Old != "" && (d.Old == e.New || d.Old == e.Old)
			if !shared {
				continue
			}
			// The failed patch would have made, moved or removed the file.
			if e.Old != e.New || len(hunks) == 0 {
				return p.File
			}
			for _, h := range hunks {
				if h.builtOn(e) {
					return p.File
				}
			}
		}
	}
	return ""
}

// builtOn says whether a hunk stands on lines that another diff made or
// changed: their lines overlap, or it expects a line that the other adds.
func (h Hunk) builtOn(d FileDiff) bool {
	added := map[string]bool{}
	for _, o := range d.Hunks {
		if h.OldStart < o.NewStart+max(o.NewLines, 1) && o.NewStart < h.OldStart+max(h.OldLines, 1) {
			return true
		}
		for _, l := range o.Lines {
			if text := strings.TrimSpace(l.Text); l.Op == '+' && len(text) > 3 {
				added[text] = true
			}
		}
	}
	for _, l := range h.Lines {
		if l.Op != '+' && added[strings.TrimSpace(l.Text)] {
			return true
		}
	}
	return false
}

// fileFit is what became of one diff.
type fileFit struct {
	target  Target
	details []string
	changes map[string]*entry
	hunks   []Hunk // that failed; none when the file as a whole did
	made    *madeFor
}

func (d FileDiff) fail(v Verdict, format string, args ...any) fileFit {
	return fileFit{target: Target{Path: d.Path(), Verdict: v}, details: []string{fmt.Sprintf(format, args...)}}
}

// judging is the judgement of one diff.
type judging struct {
	*replay
	base    string
	leaving map[string]bool
	from    *madeFor
}

func (j judging) file(ctx context.Context, d FileDiff) (fileFit, error) {
	switch {
	case d.Old == "":
		return j.add(d), nil
	case d.New == "":
		return j.remove(ctx, d)
	}
	cur, exists := j.files.get(d.Old)
	to := d.New
	var extra []Verdict
	var renamed string
	if !exists {
		_, there := j.files.get(d.New)
		switch {
		case d.Rename && there && !j.leaving[d.New]:
			// Upstream has renamed it too.
			extra = append(extra, Upstreamed)
			d.Old, d.Rename = d.New, false
			cur, _ = j.files.get(d.New)
		case d.Rename, d.Copy:
			return j.gone(ctx, d)
		default:
			f, err := j.gone(ctx, d)
			if err != nil || f.target.RenamedTo == "" {
				return f, err
			}
			renamed = f.target.RenamedTo
			to = renamed
			cur, _ = j.files.get(renamed)
		}
	} else if d.Rename || d.Copy {
		if why := j.occupied(d.New); why != "" {
			return d.fail(Collision, "%s", why), nil
		}
		extra = append(extra, Clean)
	}
	if cur.mode == submodule {
		return d.fail(Conflict, "it is a submodule"), nil
	}
	if err := j.objects.fetch(ctx, []string{cur.id}); err != nil {
		return fileFit{}, err
	}
	content, ok := j.objects.content[cur.id]
	if !ok {
		return fileFit{}, fmt.Errorf("reading %s: object %s is missing: %w", to, cur.id, run.ErrDamaged)
	}

	if d.OldMode == "" && j.from != nil {
		d.OldMode, d.NewMode = j.from.mode, j.from.mode
	}
	mode, modeVerdict, why := d.mode(cur.mode)
	if why != "" {
		return d.fail(Conflict, "%s", why), nil
	}
	if modeVerdict != "" {
		extra = append(extra, modeVerdict)
	}
	f, result, err := j.content(ctx, d, to, cur, content)
	if err != nil {
		return f, err
	}
	f.target.Path = d.Path()
	parts := extra
	if f.target.Verdict != "" {
		parts = append(parts, f.target.Verdict)
	}
	f.target.Verdict = combine(parts)
	if f.target.Verdict == Partial && modeVerdict == Upstreamed {
		f.details = append(f.details, "its mode is "+mode+" already")
	}
	if renamed != "" {
		f.target.RenamedTo = renamed
		f.details = append([]string{"upstream renamed it to " + renamed}, f.details...)
		if !f.target.Verdict.failed() && f.target.Verdict != Upstreamed {
			f.target.Verdict = Moved
		}
	}
	if f.target.Verdict.failed() {
		return f, nil
	}
	f.changes = map[string]*entry{}
	if d.Rename {
		f.changes[d.Old] = nil
	}
	if e := (entry{mode: mode, id: j.objects.add(result)}); e != cur || d.Rename || d.Copy {
		f.changes[to] = &e
	}
	return f, nil
}

// mode judges the change of mode: the mode to have, a verdict when the diff
// changes it, or why it can't.
func (d FileDiff) mode(cur string) (mode string, v Verdict, conflict string) {
	if d.OldMode != "" && (d.OldMode == symlink) != (cur == symlink) {
		return "", "", fmt.Sprintf("its mode is %s, the patch was made for %s", cur, d.OldMode)
	}
	switch {
	case d.OldMode == d.NewMode || d.NewMode == "":
		return cur, "", ""
	case cur == d.NewMode:
		return cur, Upstreamed, ""
	case cur == d.OldMode:
		return d.NewMode, Clean, ""
	}
	return "", "", fmt.Sprintf("its mode is %s, the patch changes %s to %s", cur, d.OldMode, d.NewMode)
}

// idMatches compares a blob id with one from a patch, perhaps abbreviated.
func idMatches(id, stated string) bool { return len(stated) >= 7 && strings.HasPrefix(id, stated) }

// content judges hunks or binary data against one file. The verdict is empty
// for a diff without content.
func (j judging) content(ctx context.Context, d FileDiff, path string, cur entry, content string) (fileFit, string, error) {
	f := fileFit{}
	switch {
	case d.Binary != nil:
		return j.binary(d, cur, content)
	case len(d.Hunks) == 0:
		return f, content, nil
	case idMatches(cur.id, d.OldID):
		// The very file that the patch was made for: nothing to search.
		m := j.from
		if m == nil || m.content == nil || *m.content != content {
			m = d.exact(content)
		}
		if m != nil {
			f.target.Verdict, f.made = Clean, m
			return f, m.result, nil
		}
	case idMatches(cur.id, d.NewID):
		f.target.Verdict = Upstreamed
		f.details = []string{"the file is what the patch makes of it"}
		return f, content, nil
	}
	s := site{path: path, lines: splitLines(content), lang: languageFor(path), git: d.isGit, total: len(d.Hunks)}
	if j.from != nil {
		s.origin = &origin{lines: j.from.lines, at: j.from.at, to: mapLines(j.from.lines, s.lines)}
	}
	var edits []edit
	var verdicts []Verdict
	at := make([]int, 0, len(d.Hunks))
	merged := false
	for n, h := range d.Hunks {
		hf := s.judge(n, h)
		verdicts = append(verdicts, hf.verdict)
		edits = append(edits, hf.edits...)
		merged = merged || s.origin != nil && (hf.verdict == Merged || hf.verdict == Partial)
		if hf.at >= 0 {
			at = append(at, hf.at)
		}
		if hf.detail != "" {
			f.details = append(f.details, hf.detail)
		}
		if hf.verdict.failed() {
			f.hunks = append(f.hunks, h)
		}
	}
	f.target.Verdict = combine(verdicts)
	if f.target.Verdict.failed() {
		return f, "", nil
	}
	result, ok := applyEdits(s.lines, edits)
	if !ok {
		f.target.Verdict = Conflict
		f.hunks = d.Hunks
		f.details = append(f.details, "two of its hunks fit only over each other")
		return f, "", nil
	}
	if merged {
		// Taken only when git's own three-way merge comes to the same text.
		theirs, clean, err := j.objects.merge(ctx, content, strings.Join(j.from.lines, ""), j.from.result)
		if err != nil {
			return f, "", err
		}
		if !clean || theirs != result {
			f.target.Verdict, f.hunks = Conflict, d.Hunks
			f.details = append(f.details, "the three-way merge is not unambiguous")
			return f, "", nil
		}
	}
	if len(at) == len(d.Hunks) {
		f.made = &madeFor{mode: cur.mode, lines: s.lines, at: at, result: result}
	}
	return f, result, nil
}

func (j judging) binary(d FileDiff, cur entry, content string) (fileFit, string, error) {
	switch {
	case idMatches(cur.id, d.OldID):
		result, err := d.Binary.apply(content)
		if err != nil {
			return d.fail(Conflict, "%v", err), "", nil
		}
		if id := j.objects.add(result); d.NewID != "" && !strings.HasPrefix(id, d.NewID) {
			return d.fail(Conflict, "its data make %s, not the %s that it names", id, d.NewID), "", nil
		}
		return fileFit{target: Target{Verdict: Clean}}, result, nil
	case idMatches(cur.id, d.NewID):
		return fileFit{target: Target{Verdict: Upstreamed}, details: []string{"the file is what the patch makes of it"}}, content, nil
	}
	return d.fail(Conflict, "a binary file that is neither what the patch was made for nor what it makes"), "", nil
}

// merge is git's three-way merge of one file.
func (o *objects) merge(ctx context.Context, ours, base, theirs string) (result string, clean bool, err error) {
	dir, err := os.MkdirTemp("", "payload-merge-")
	if err != nil {
		return "", false, fmt.Errorf("merging: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a scratch folder
	args := []string{"merge-file", "-p", "-q"}
	for i, text := range []string{ours, base, theirs} {
		name := filepath.Join(dir, []string{"ours", "base", "theirs"}[i])
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", false, fmt.Errorf("merging: %w", err)
		}
		args = append(args, name)
	}
	out, err := o.repo.Do(ctx, git.Call{Args: args})
	var exit *run.ExitError
	if errors.As(err, &exit) && exit.Signal == "" && exit.Code < 128 { // the number of conflicts
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("merging: %w", err)
	}
	return string(out), true, nil
}

// add judges a file that the patch adds.
func (j judging) add(d FileDiff) fileFit {
	var content string
	switch {
	case d.Binary != nil:
		var err error
		if content, err = d.Binary.apply(""); err != nil {
			return d.fail(Conflict, "%v", err)
		}
	case len(d.Hunks) > 0:
		content = strings.Join(d.Hunks[0].shape().after, "")
	}
	e := entry{mode: d.NewMode, id: j.objects.add(content)}
	if e.mode == "" {
		e.mode = "100644"
	}
	if d.Binary != nil && d.NewID != "" && !strings.HasPrefix(e.id, d.NewID) {
		return d.fail(Conflict, "its data make %s, not the %s that it names", e.id, d.NewID)
	}
	if cur, ok := j.files.get(d.New); ok && !j.leaving[d.New] {
		switch {
		case cur == e:
			f := d.fail(Upstreamed, "the file is there already, with this content")
			return f
		case cur.id == e.id:
			return d.fail(Collision, "the file is there already, with mode %s instead of %s", cur.mode, e.mode)
		}
		return d.fail(Collision, "the file is there already, with other content")
	}
	if why := j.occupied(d.New); why != "" {
		return d.fail(Collision, "%s", why)
	}
	return fileFit{target: Target{Path: d.New, Verdict: Clean}, changes: map[string]*entry{d.New: &e}}
}

// occupied says why no file can come to be at path.
func (j judging) occupied(path string) string {
	if _, ok := j.files.get(path); ok && !j.leaving[path] {
		return "the file is there already"
	}
	for i := range len(path) {
		if path[i] == '/' {
			if _, ok := j.files.get(path[:i]); ok && !j.leaving[path[:i]] {
				return path[:i] + " is a file, not a folder"
			}
		}
	}
	fold := strings.ToLower(path)
	for other := range j.files.all() {
		if j.leaving[other] || other == path {
			continue
		}
		if strings.HasPrefix(other, path+"/") {
			return "a folder of this name is there"
		}
		if strings.ToLower(other) == fold {
			return "it differs only by case from " + other
		}
	}
	return ""
}

// remove judges a file that the patch deletes.
func (j judging) remove(ctx context.Context, d FileDiff) (fileFit, error) {
	cur, ok := j.files.get(d.Old)
	if !ok {
		f, err := j.gone(ctx, d)
		if err != nil {
			return f, err
		}
		if to := f.target.RenamedTo; to != "" {
			f.details = []string{"upstream renamed it to " + to + " instead of deleting it"}
			f.target.Verdict = Conflict
			return f, nil
		}
		return d.fail(Upstreamed, "the file is gone already"), nil
	}
	if err := j.objects.fetch(ctx, []string{cur.id}); err != nil {
		return fileFit{}, err
	}
	content := j.objects.content[cur.id]
	same := idMatches(cur.id, d.OldID)
	if !same && len(d.Hunks) > 0 {
		same = strings.Join(d.Hunks[0].shape().before, "") == content
	}
	if !same && len(d.Hunks) == 0 && d.Binary == nil {
		same = content == "" && (d.OldID == "" || emptyBlob(d.OldID))
	}
	if d.OldMode != "" && (d.OldMode == symlink) != (cur.mode == symlink) {
		same = false
	}
	if !same {
		f := d.fail(Conflict, "the file it deletes has other content")
		f.hunks = d.Hunks
		return f, nil
	}
	return fileFit{target: Target{Path: d.Old, Verdict: Clean}, changes: map[string]*entry{d.Old: nil}}, nil
}

// gone judges a target that isn't there: with evidence of a rename, where it
// went is in RenamedTo. Evidence is git's rename detection from the base, or
// the very blob that the patch was made for under one other name.
func (j judging) gone(ctx context.Context, d FileDiff) (fileFit, error) {
	f := d.fail(Conflict, "the file %s is gone", d.Old)
	if j.base != "" {
		if j.renamed == nil {
			list, err := j.objects.renames(ctx, j.base, j.onto)
			if err != nil {
				return f, err
			}
			j.replay.renamed = list
		}
		if to, ok := j.renamed[d.Old]; ok {
			if _, there := j.files.get(to); there {
				f.target.RenamedTo = to
			}
			return f, nil
		}
	}
	var same, namesake []string
	for other, e := range j.files.all() {
		if idMatches(e.id, d.OldID) && !emptyBlob(d.OldID) {
			same = append(same, other)
		}
		if filepath.Base(other) == filepath.Base(d.Old) {
			namesake = append(namesake, other)
		}
	}
	slices.Sort(namesake)
	switch {
	case len(same) == 1:
		f.target.RenamedTo = same[0]
	case len(namesake) > 0:
		f.details[0] += "; of the same name: " + voice.List(namesake, 3)
	}
	return f, nil
}

// tree stores what the series makes and gives its id.
func (r *replay) tree(ctx context.Context) (string, error) {
	all := map[string]*entry{}
	for path, e := range r.files.over {
		if was, ok := r.files.base[path]; e == nil && !ok || e != nil && ok && *e == was {
			continue // made and undone
		}
		all[path] = e
	}
	if len(all) == 0 {
		return r.onto, nil
	}
	done, err := r.objects.write(ctx, r.onto, []commit{{message: "series", changes: all}})
	if err != nil {
		return "", err
	}
	return done[0].tree, nil
}

// overlay is a tree with changes on top.
type overlay struct {
	base map[string]entry
	over map[string]*entry
}

func newOverlay(base map[string]entry) *overlay {
	return &overlay{base: base, over: map[string]*entry{}}
}

func (o *overlay) get(path string) (entry, bool) {
	if e, ok := o.over[path]; ok {
		if e == nil {
			return entry{}, false
		}
		return *e, true
	}
	e, ok := o.base[path]
	return e, ok
}

func (o *overlay) change(changes map[string]*entry) { maps.Copy(o.over, changes) }

// all yields every file.
func (o *overlay) all() func(func(string, entry) bool) {
	return func(yield func(string, entry) bool) {
		for path, e := range o.base {
			if _, changed := o.over[path]; !changed && !yield(path, e) {
				return
			}
		}
		for path, e := range o.over {
			if e != nil && !yield(path, *e) {
				return
			}
		}
	}
}

// settle decides, for diffs without a/ and b/, whether their first folder
// belongs to the path: the reading under which the files exist is right.
func (o *overlay) settle(diffs []FileDiff) ([]FileDiff, error) {
	stripped, raw, open := 0, 0, 0
	for _, d := range diffs {
		if d.rawOld == "" && d.rawNew == "" {
			continue
		}
		open++
		_, s := o.get(d.Old)
		_, r := o.get(d.rawOld)
		switch {
		case d.Old == "" || d.Old == d.rawOld:
		case s && r:
			return nil, fmt.Errorf("both %s and %s exist, and the patch has no a/ and b/ that would tell them apart", d.Old, d.rawOld)
		case s:
			stripped++
		case r:
			raw++
		}
	}
	if open == 0 {
		return diffs, nil
	}
	if stripped > 0 && raw > 0 {
		return nil, errors.New("some of its paths exist with their first folder, some without")
	}
	if stripped == 0 && raw == 0 {
		// Only new or missing files: the first folder tells.
		for _, d := range diffs {
			first, _, nested := strings.Cut(d.rawNew+d.rawOld, "/")
			for path := range o.all() {
				if nested && strings.HasPrefix(path, first+"/") {
					raw++
				}
			}
		}
	}
	if raw == 0 {
		return diffs, nil
	}
	settled := slices.Clone(diffs)
	for i, d := range settled {
		if d.rawOld != "" || d.rawNew != "" {
			settled[i].Old, settled[i].New = d.rawOld, d.rawNew
		}
	}
	return settled, nil
}
