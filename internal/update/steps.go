package update

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/search"
	"payload/internal/source"
	"payload/internal/workspace"
)

// run goes through the steps that are left.
func (j *job) run(ctx context.Context) error {
	written := j.journal != nil
	steps := []struct {
		name string
		do   func(context.Context) error
		when func() bool
	}{
		{"sources", j.sources, func() bool { return !written }},
		{"rebase", j.rebase, func() bool { return !written }},
		{"prove", j.prove, func() bool { return !written }},
		{"write", j.write, func() bool { return !j.dry && !j.state.Written && j.result.Status != Unchanged }},
		{"build", j.builds, func() bool { return !j.dry && j.state.Preset != "" && !j.state.Built && j.result.Status != Unchanged }},
		{"commit", j.commits, func() bool { return !j.dry && j.state.Commit && j.result.Status != Unchanged }},
	}
	for _, s := range steps {
		if !s.when() {
			continue
		}
		j.at("before " + s.name)
		err := j.v.Step(s.name, func() error { return s.do(ctx) })
		if err != nil && j.journal != nil {
			j.v.Say("the update is written and stays open: payload update --continue goes on, payload update --abort takes it back")
		}
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("cancelled while updating %s, in step %s: %w", j.state.name(), s.name, context.Cause(ctx))
		}
		if err != nil && j.journal != nil {
			return &WrittenError{Update: j.state.name(), Err: err}
		}
		if err != nil {
			return err
		}
	}
	if j.dry {
		return nil
	}
	j.at("before close")
	return j.clear(j.state, j.at)
}

// sources gets the trees before and after, of everything that moves.
func (j *job) sources(ctx context.Context) error {
	for i := 0; i < len(j.comps); i++ {
		c := j.comps[i]
		err := j.w.Unmoved(ctx, c.now)
		if err != nil {
			return err
		}
		if c.old, err = j.w.Pristine(ctx, c.now); err != nil {
			return err
		}
		if c.new, err = j.w.Pristine(ctx, c.to); err != nil {
			return err
		}
		c.moved.Commit, c.moved.Source, c.moved.Pristine = c.new.Commit, c.new.From, c.new.Tree
		if c.moved.Commit == "" && c.to.Entry != nil {
			c.moved.Commit = c.to.Entry.Commit
		}
		j.v.Say("%s %s to %s, from %s%s", c.moved.Component, c.now.Ref, c.to.Ref, c.new.From, c.base.words(c.now.Ref))
		if err := j.couplings(ctx, c); err != nil {
			return err
		}
	}
	if j.dry {
		return nil
	}
	return j.save(j.state) // with what moves along
}

// words tells what the base branch pins, where that is another ref.
func (b *Base) words(now string) string {
	if b == nil || b.Ref == "" || b.Ref == now {
		return ""
	}
	return fmt.Sprintf("; %s pins %s", b.Name, b.Ref)
}

// couplings compares what c's new tree and other components want of each
// other, and lets others move along where that is asked for.
func (j *job) couplings(ctx context.Context, c *component) error {
	refs := map[string]string{}
	for _, m := range j.state.Moves {
		refs[m.Component] = m.To
	}
	list, err := j.w.Coupled(ctx, c.moved.Component, refs)
	if err != nil {
		return err
	}
	for _, a := range list {
		if err := j.along(ctx, c, &a, refs); err != nil {
			return err
		}
		known := slices.IndexFunc(j.result.Coupled, func(k workspace.Agreement) bool {
			return k.Component == a.Component && k.Other == a.Other && k.Path == a.Path
		})
		if known >= 0 { // said again, of a component that moves along
			j.result.Coupled[known] = a
			continue
		}
		j.result.Coupled = append(j.result.Coupled, a)
	}
	return nil
}

// along lets the other side of a coupling move, where that is asked for, the
// two disagree and a ref is found at which they don't.
func (j *job) along(ctx context.Context, c *component, a *workspace.Agreement, refs map[string]string) error {
	own := a.Component == c.moved.Component
	name, ref := a.Other, a.Wants
	if !own {
		name, ref = a.Component, ""
	}
	if !j.state.Coupled || a.Agrees || refs[name] != "" || own && ref == "" {
		return nil
	}
	var err error
	if own {
		err = pin.CheckRef(ref)
	} else {
		ref, err = search.Wanting(ctx, j.w, name, a.Other, c.to.Ref, search.Options{History: true, Tell: j.v.Say})
	}
	if err != nil {
		return fmt.Errorf("%s:%d of %s %s: %w", a.Path, a.Line, a.Component, a.Ref, err)
	}
	if ref == "" {
		return nil
	}
	if err := j.take(ctx, name, ref); err != nil {
		return err
	}
	refs[name] = ref
	if a.Agrees = true; own {
		a.Has = ref
	} else {
		a.Ref, a.Wants = ref, c.to.Ref
	}
	return nil
}

// rebase carries every series to its new tree. The first patch that needs a
// person is opened for that.
func (j *job) rebase(ctx context.Context) error {
	repo := j.w.Store().Repo()
	for _, c := range j.comps {
		decisions, err := j.decisions(ctx, c)
		if err != nil {
			return err
		}
		if c.rebased, err = patch.Rebase(ctx, repo, c.old.Tree, c.new.Tree, c.now.Series, decisions); err != nil {
			return fmt.Errorf("carrying the patches of %s to %s: %w", c.moved.Component, c.to.Ref, err)
		}
		c.moved.Patched = c.rebased.Tree
		j.judge(c)
	}
	for _, c := range j.comps {
		if err := j.credit(ctx, c); err != nil {
			return err
		}
		j.result.Updates = append(j.result.Updates, c.moved)
	}
	for _, c := range j.comps {
		if failed, ok := c.rebased.Failed(); ok {
			return j.stop(ctx, c, failed)
		}
	}
	j.state.Stopped = nil
	return nil
}

// decisions are what was settled about c's patches, and those of their own
// conditions that hold.
func (j *job) decisions(ctx context.Context, c *component) (map[string]patch.Decision, error) {
	c.drop = map[string]string{}
	list := map[string]patch.Decision{}
	for _, p := range c.now.Series.Patches {
		when, _ := p.Message.Trailer(patch.DropWhen)
		holds, why, err := j.w.Droppable(ctx, c.to.Settled(c.new), when)
		if err != nil {
			return nil, err
		}
		c.moved.Patches = append(c.moved.Patches, Patch{File: p.File, DropWhen: holds, DropWhy: why})
		d, settled := j.state.Decided[c.moved.Component][p.File]
		switch {
		case settled:
			list[p.File] = patch.Decision{Skip: d.Resolved == nil, Resolved: d.Resolved}
		case holds == workspace.Yes:
			c.drop[p.File] = fmt.Sprintf("its %s holds: %s", patch.DropWhen, why)
			list[p.File] = patch.Decision{Skip: true}
		}
	}
	return list, nil
}

// judge fills in what becomes of each patch.
func (j *job) judge(c *component) {
	held := false
	failed, stops := c.rebased.Failed()
	for i, o := range c.rebased.Report.Patches {
		p := &c.moved.Patches[i]
		p.Verdict, p.Targets, p.Detail = o.Verdict, o.Targets, o.Detail
		held = held || stops && failed.File == o.File
		if !stops {
			p.Now = c.rebased.Carried[i].To
		}
		d, settled := j.state.Decided[c.moved.Component][o.File]
		switch {
		case settled && d.Resolved != nil:
			p.Action, p.Verdict, p.Detail = Resolved, d.Verdict, d.Detail
		case settled:
			p.Action, p.Verdict, p.Detail, p.Reason = Skipped, d.Verdict, d.Detail, d.Reason
		case held:
			p.Action = Waiting
		case c.drop[o.File] != "":
			p.Action, p.Reason = Dropped, c.drop[o.File]
		case o.Verdict == patch.Upstreamed:
			p.Action = Dropped
		case stops && o.Verdict == patch.Clean, !stops && c.rebased.Carried[i].Same:
			p.Action = Kept
		case stops && o.Verdict == patch.Offset, !stops && !c.rebased.Carried[i].Content:
			p.Action = Refreshed
		default:
			p.Action = Rewritten
		}
	}
}

// stop hands a conflict to a person.
func (j *job) stop(ctx context.Context, c *component, failed patch.Outcome) error {
	conflict := Conflict{
		Component: c.moved.Component, To: c.to.Ref, File: failed.File, Verdict: failed.Verdict, Detail: failed.Detail,
		Unmerged: []string{}, Sides: []Side{},
	}
	j.result.Status = Stopped
	if !j.dry {
		opened, err := c.rebased.OpenConflict(ctx, j.w.Store().Repo(), j.work(c.moved.Component))
		if err != nil {
			return err
		}
		j.at("conflict opened")
		conflict.Folder = folder + "/" + c.moved.Component
		conflict.Unmerged, conflict.Manual, conflict.Settled = opened.Unmerged, opened.Manual, opened.Settled
		for _, s := range opened.Sides {
			conflict.Sides = append(conflict.Sides, Side{Side: s, Commits: []source.Commit{}})
		}
		if err := j.blame(ctx, c, &conflict); err != nil {
			return err
		}
		j.state.Stopped = &stopped{Component: c.moved.Component, File: failed.File, Verdict: failed.Verdict, Detail: failed.Detail}
		if err := j.save(j.state); err != nil {
			return err
		}
		j.at("conflict recorded")
		j.v.Say("the repository is as it was; the conflict lies in %s", conflict.Folder)
	}
	j.result.Conflict = &conflict
	return &ConflictError{Conflict: conflict}
}

// prove finds out what the exported series makes of every source, lays its tree
// out, and requires it to be the tree that the rebase made. What changes in the
// repository is known then.
func (j *job) prove(ctx context.Context) error {
	j.files = map[string]*content{}
	for i, c := range j.comps {
		carried := patch.NewSeries(c.now.Series.Dir, c.rebased.Files)
		entry := c.now.Entry
		if c.now.Ref != c.to.Ref || !slices.Equal(carried.Digests(), c.now.Series.Digests()) || entry == nil || !slices.Equal(entry.Patches, carried.Digests()) {
			c.to.Series = carried
			locked, err := j.w.RelockAs(ctx, c.to)
			if err != nil {
				return err
			}
			entry = &locked
		}
		c.to.Series, c.to.Entry = carried, entry
		tree, err := j.w.Tree(ctx, c.to, false)
		if err != nil {
			return err
		}
		if err := tree.Close(); err != nil {
			return err
		}
		if row, ok := entry.Source(c.new.From); tree.Patched != c.rebased.Tree && ok && row.Pristine == tree.Pristine {
			return fmt.Errorf("proving the patches of %s on %s: the exported series makes tree %s, the rebase made %s", c.moved.Component, c.to.Ref, tree.Patched, c.rebased.Tree)
		}
		j.result.Updates[i].Commit, j.result.Updates[i].Patched = entry.Commit, tree.Patched
		if err := j.collect(c); err != nil {
			return err
		}
		j.at("proved " + c.moved.Component)
	}
	j.w.SortLock()
	lock, err := j.w.Lock.Encode()
	if err != nil {
		return err
	}
	if err := j.change(pin.LockName, lock); err != nil {
		return err
	}
	j.group()
	switch {
	case len(j.files) == 0:
		j.result.Status = Unchanged
	case j.dry:
		j.result.Status = Planned
	default:
		j.result.Status = Done
	}
	return nil
}

// change notes a file's new content, where it is another than the file has.
func (j *job) change(path string, data []byte) error {
	path = j.content(path)
	full := filepath.Join(j.root, filepath.FromSlash(path))
	mode := os.FileMode(0o644)
	old, err := os.ReadFile(full)
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(full); err == nil {
			mode = info.Mode().Perm()
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("updating %s: %w", path, err)
	case string(old) == string(data):
		return nil
	}
	j.files[path] = &content{data: data, mode: mode}
	return nil
}

// collect notes what c's move changes, but for the lock.
func (j *job) collect(c *component) error {
	comp := c.now.Component
	text, err := os.ReadFile(j.w.File.Abs(comp.Pin))
	if err != nil {
		return fmt.Errorf("reading the pin of %s: %w", comp.Name, err)
	}
	if err := j.change(comp.Pin, pin.Rewrite(text, c.to.Ref)); err != nil {
		return err
	}
	edits, err := pin.CopyEdits(j.w.File, comp, c.to.Ref)
	if err != nil {
		return err
	}
	for _, e := range edits {
		data := e.New
		if earlier := j.files[j.content(e.Path)]; earlier != nil { // copies of two pins in one file
			data = pin.RewriteCopies(j.w.File, earlier.data, comp, e.Path, c.to.Ref)
		}
		if err := j.change(e.Path, data); err != nil {
			return err
		}
	}
	for _, p := range c.now.Series.Patches {
		if c.rebased.Files[p.File] == nil {
			j.files[j.name(patchPath(c.now, p.File))] = nil
		}
	}
	for name, data := range c.rebased.Files {
		if err := j.change(patchPath(c.now, name), data); err != nil {
			return err
		}
	}
	return nil
}

// group sorts the files into the two commits.
func (j *job) group() {
	inContent := map[string]bool{}
	for _, c := range j.comps {
		for _, p := range c.rebased.Carried {
			if p.Content {
				for _, path := range []string{patchPath(c.now, p.File), patchPath(c.now, p.To)} {
					inContent[j.content(path)], inContent[j.name(path)] = true, true
				}
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(j.files)) {
		if inContent[path] {
			j.result.Files.Content = append(j.result.Files.Content, path)
		} else {
			j.result.Files.Mechanical = append(j.result.Files.Mechanical, path)
		}
	}
	j.result.messages()
}

// write is the moment at which the repository changes.
func (j *job) write(context.Context) error {
	if j.journal == nil {
		kept := j.result
		j.state.Result = &kept
		if err := j.save(j.state); err != nil {
			return err
		}
		decided, err := j.prepare(j.files, j.state.Inputs, j.at)
		if err != nil {
			return err
		}
		j.journal = &decided
		j.at("decided on the journal")
	}
	if err := j.forward(*j.journal, j.at); err != nil {
		return err
	}
	j.state.Written = true
	if err := j.save(j.state); err != nil {
		return err
	}
	j.v.Say("%d files", len(j.journal.Files))
	return nil
}

func (j *job) builds(ctx context.Context) error {
	built, err := j.build(ctx, j.state.Preset)
	if err != nil {
		return err
	}
	j.result.Build = &built
	kept := j.result
	j.state.Result, j.state.Built = &kept, true
	return j.save(j.state)
}

// WrittenError is an update that was written and doesn't come to its end: it
// doesn't build, or not verify, or can't be committed. It stays open.
type WrittenError struct {
	Update string
	Err    error
}

func (e *WrittenError) Error() string { return fmt.Sprintf("updating %s: %v", e.Update, e.Err) }
func (e *WrittenError) Unwrap() error { return e.Err }

func (j *job) commits(ctx context.Context) error {
	repo := checkout{j.root}
	files := j.result.Files
	if j.state.Before == nil {
		var err error
		if j.state.Before, err = repo.remember(ctx, slices.Concat(files.Mechanical, files.Content)); err != nil {
			return err
		}
		if err := j.save(j.state); err != nil {
			return err
		}
		j.at("remembered HEAD")
	}
	for _, half := range []struct {
		paths   []string
		message string
	}{{files.Mechanical, j.result.Messages.Mechanical}, {files.Content, j.result.Messages.Content}} {
		if len(half.paths) == 0 {
			continue
		}
		id, err := repo.commit(ctx, half.paths, half.message)
		if err != nil {
			return err
		}
		if id != "" {
			title, _, _ := strings.Cut(half.message, "\n")
			j.v.Say("%.12s %s", id, title)
		}
		j.at("committed")
	}
	var err error
	j.result.Commits, err = repo.since(ctx, j.state.Before.Head) // some may be from before a kill
	return err
}
