package pin

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"payload/internal/config"
	"payload/internal/git"
)

// Tags asks upstream for its tags, annotated ones followed to their commits, in
// no order. An upstream that doesn't answer is an *UnreachableError.
func Tags(ctx context.Context, location string, timeout time.Duration) ([]git.Tag, error) {
	asking, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	tags, err := git.RemoteTags(asking, location)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("asking %s for its tags: %w", location, context.Cause(ctx))
	}
	if err != nil {
		return nil, &UnreachableError{Location: location, Err: err}
	}
	return tags, nil
}

// Moved gives a *MovedTagError where upstream's tags hold e's ref with another
// commit than git gave for it when the lock was written.
func (e Entry) Moved(tags []git.Tag) error {
	if _, asked := e.Source("git"); !asked || e.Commit == "" {
		return nil // only answers of git are compared with each other
	}
	for _, t := range tags {
		if t.Name == e.Ref && t.Commit != e.Commit {
			return &MovedTagError{Component: e.Component, Ref: e.Ref, Locked: e.Commit, Now: t.Commit}
		}
	}
	return nil
}

// InFamily says whether ref is a version of c: one of its tags globs takes it,
// or, without globs, it is of the pinned ref's family. There a version with a
// suffix (v1.0-rc1) is taken only where the pinned one has one too.
func InFamily(c config.Component, pinned, ref string) bool {
	if len(c.Tags) > 0 {
		return matchesAny(c.Tags, ref)
	}
	return family(ref) == family(pinned) && Numbered(c, ref) && (!prerelease(ref) || prerelease(pinned))
}

// Numbered says whether a ref can have others of its family: it has a number
// that isn't a commit's, or globs say which tags are versions.
func Numbered(c config.Component, ref string) bool {
	return len(c.Tags) > 0 || !config.IsObjectID(ref) && digits.MatchString(ref)
}

func prerelease(ref string) bool { return versionRef.MatchString(ref) && strings.Contains(ref, "-") }

// PassedOver says why latest and best never take a ref of c's family; empty
// where they may.
func PassedOver(c config.Component, ref string) string {
	switch {
	case matchesAny(c.Ignore, ref):
		return "ignored"
	case c.Throttle > 1 && lastNumber(ref)%c.Throttle != 0:
		return fmt.Sprintf("throttled to every %d", c.Throttle)
	}
	return ""
}

func matchesAny(globs []string, ref string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, ref)
		return ok && err == nil // config has checked the globs
	})
}

// Facts are what tells the order of refs of different families. Each part may
// be empty.
type Facts struct {
	Commits map[string]string // ref -> full commit
	Places  map[string]int    // commit -> place in upstream's history, parents first
	Builds  map[string]int    // ref -> build number, where its name doesn't say
}

// How says what two refs were ordered by.
type How string

// The ways, from the best.
const (
	ByName   How = "name"
	ByCommit How = "commit"
	ByBuild  How = "build number"
)

// Compare orders two refs: those of one family by name, others by commit, or
// else by build number. ok is false where nothing tells.
func (f Facts) Compare(a, b string) (order int, how How, ok bool) {
	if order, ok := Compare(a, b); ok {
		return order, ByName, true
	}
	return f.standing(a).compare(f.standing(b))
}

// standing is what is known of a ref beyond its name.
type standing struct {
	commit string
	place  int // -1 where not known
	build  int // 0 where not known
}

func (s standing) compare(o standing) (order int, how How, ok bool) {
	switch {
	case s.commit != "" && s.commit == o.commit:
		return 0, ByCommit, true
	case s.place >= 0 && o.place >= 0:
		return s.place - o.place, ByCommit, true
	case s.build > 0 && o.build > 0:
		return s.build - o.build, ByBuild, true
	}
	return 0, "", false
}

func (f Facts) standing(ref string) standing {
	s := standing{commit: f.Commits[ref], place: -1, build: f.build(ref)}
	if config.IsObjectID(ref) {
		s.commit = ref
	}
	if place, ok := f.Places[s.commit]; ok {
		s.place = place
	}
	if s.build > 0 || s.commit == "" {
		return s
	}
	// Another name of the same commit may have a number.
	for other, commit := range f.Commits {
		if commit == s.commit {
			s.build = max(s.build, f.build(other))
		}
	}
	return s
}

// build is a ref's build number, by its name or by what is recorded.
func (f Facts) build(ref string) int { return cmp.Or(BuildNumber(ref), f.Builds[ref]) }

// Sort puts refs in order, oldest first. The order of each family holds; those
// of other families than the first ref's are put among that one's by commit or
// build number. What has no place among them is returned apart.
func (f Facts) Sort(refs []string) (ordered, unordered []string) {
	families := map[string][]string{}
	var kinds []string
	names := map[string]name{}
	for _, ref := range refs {
		if _, seen := names[ref]; seen {
			continue
		}
		names[ref] = nameOf(ref)
		kind := names[ref].family
		if families[kind] == nil {
			kinds = append(kinds, kind)
		}
		families[kind] = append(families[kind], ref)
	}
	merged := merger{}
	for _, kind := range kinds {
		list := families[kind]
		slices.SortStableFunc(list, func(a, b string) int {
			order, _ := names[a].compare(names[b])
			return order
		})
		unordered = append(unordered, merged.add(f, list)...)
	}
	return merged.refs, unordered
}

// merger is families put into one order.
type merger struct {
	refs      []string
	standings []standing
}

// add puts the refs of one family among the others, and gives back those that
// have no order with any.
func (m *merger) add(f Facts, list []string) (apart []string) {
	if len(m.refs) == 0 {
		m.refs = list
		for _, ref := range list {
			m.standings = append(m.standings, f.standing(ref))
		}
		return nil
	}
	from := 0 // a family's own order holds, whatever its commits say
	for _, ref := range list {
		s, at, known := f.standing(ref), from, false
		for i, other := range m.standings {
			order, _, ok := other.compare(s)
			known = known || ok
			if ok && i >= from && order > 0 {
				break
			}
			if ok && i >= from {
				at = i + 1
			}
		}
		if !known {
			apart = append(apart, ref)
			continue
		}
		m.refs, m.standings = slices.Insert(m.refs, at, ref), slices.Insert(m.standings, at, s)
		from = at + 1
	}
	return apart
}
