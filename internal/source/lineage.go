package source

import (
	"context"
	"fmt"
	"strings"
)

// Lineage is upstream's commits and tags without any folder or file, which is
// enough to tell what came before what, and a few megabytes where History is
// many.
type Lineage struct{ of partial }

// Lineage fetches the tags of the repository at location with all that leads
// to them. What came the last time isn't fetched again.
func (s *Store) Lineage(ctx context.Context, location string, tell func(format string, args ...any)) (*Lineage, error) {
	l := &Lineage{partial{location: location, filter: "tree:0"}}
	stale := func() bool { return false } // tags come at any time
	if err := l.of.fetch(ctx, s, lineageKind, nil, tell, stale, "+refs/tags/*:refs/tags/*"); err != nil {
		return nil, err
	}
	return l, nil
}

// Places numbers the commits that lead to tags, parents before children and
// else by date.
func (l *Lineage) Places(ctx context.Context) (map[string]int, error) {
	out, err := l.of.repo.Text(ctx, "rev-list", "--date-order", "--reverse", "--tags")
	if err != nil {
		return nil, fmt.Errorf("reading the order of commits: %w", err)
	}
	places := map[string]int{}
	for i, commit := range strings.Fields(out) {
		places[commit] = i
	}
	return places, nil
}

// Between lists the commits that lead to b and not to a, the newest first.
func (l *Lineage) Between(ctx context.Context, a, b string) ([]Commit, error) {
	return l.of.log(ctx, a+".."+b)
}
