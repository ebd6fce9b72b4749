package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"payload/internal/patch"
	"payload/internal/source"
)

// most is how many commits are named for one place.
const most = 5

// history is upstream's, between the two refs of a move. The error says why
// there is none; asking helps a person, so nothing ends because of it.
func (j *job) history(ctx context.Context, c *component) (h source.History, from, to string, err error) {
	from, to = c.old.Commit, c.moved.Commit
	if c.new.From != string(source.FromGit) {
		return h, from, to, fmt.Errorf("%w: the tree is from %s", source.ErrNoHistory, c.new.From)
	}
	h, err = j.w.History(ctx, c.to, from, to)
	return h, from, to, err
}

// credit names the commits by which upstream came to hold patches.
func (j *job) credit(ctx context.Context, c *component) error {
	for i := range c.moved.Patches {
		p := &c.moved.Patches[i]
		if p.Verdict != patch.Upstreamed && p.Verdict != patch.Partial {
			continue
		}
		h, from, to, err := j.history(ctx, c)
		if err != nil {
			return ctx.Err()
		}
		for k, d := range c.now.Series.Patches[i].Diffs {
			v := p.Targets[k].Verdict
			if v != patch.Upstreamed && v != patch.Partial {
				continue
			}
			path := d.Path()
			if to := p.Targets[k].RenamedTo; to != "" {
				path = to
			}
			for _, line := range telling(d) {
				found, ok, err := h.Bringing(ctx, from, to, path, line)
				if ctx.Err() != nil {
					return err
				}
				if err == nil && ok && len(p.Upstream) < most && !slices.Contains(p.Upstream, found) {
					p.Upstream = append(p.Upstream, found)
				}
			}
		}
	}
	return nil
}

// telling gives the line of each hunk that says most about it: the longest one
// that is added, else that is taken away.
func telling(d patch.FileDiff) []string {
	var lines []string
	for _, h := range d.Hunks {
		best := ""
		for _, op := range []byte{'+', '-'} {
			for _, l := range h.Lines {
				if text := strings.TrimSpace(l.Text); best == "" && l.Op == op && len(text) > 3 || l.Op == op && len(text) > len(best) {
					best = text
				}
			}
			if best != "" {
				break
			}
		}
		if best != "" && !slices.Contains(lines, best) {
			lines = append(lines, best)
		}
	}
	return lines[:min(len(lines), most)]
}

// blame names the commits that changed the lines of a conflict.
func (j *job) blame(ctx context.Context, c *component, conflict *Conflict) error {
	h, from, to, err := j.history(ctx, c)
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil && !errors.Is(err, source.ErrNoHistory):
		return err
	case err != nil:
		conflict.History = err.Error()
		return nil
	}
	seen := map[string]bool{}
	for i := range conflict.Sides {
		s := &conflict.Sides[i]
		seen[s.Path] = true
		first, last := s.Start, s.Start+len(s.Upstream)-1
		if len(s.Upstream) == 0 { // lines that are gone lay between two that are not
			first, last = s.Start-1, s.Start
		}
		found, err := h.Touching(ctx, from, to, s.Path, max(first, 1), max(last, 1))
		if err != nil || len(found) == 0 {
			found, err = h.Of(ctx, from, to, s.Path)
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			conflict.History = err.Error()
			continue
		}
		s.Commits = append(s.Commits, found[:min(most, len(found))]...)
	}
	paths := conflict.Unmerged
	if conflict.Manual {
		for _, p := range c.moved.Patches {
			if p.File == conflict.File {
				for _, t := range p.Targets {
					paths = append(paths, t.Path)
				}
			}
		}
	}
	for _, path := range paths {
		if seen[path] {
			continue
		}
		seen[path] = true
		found, err := h.Of(ctx, from, to, path)
		if ctx.Err() != nil {
			return err
		}
		if err == nil && len(found) > 0 {
			side := patch.Side{Path: path, Upstream: []string{}, Base: []string{}, Patch: []string{}}
			conflict.Sides = append(conflict.Sides, Side{Side: side, Commits: found[:min(most, len(found))]})
		}
	}
	return nil
}
