package workspace

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"payload/internal/git"
)

// ChangedLines counts the lines that upstream took out and put in between p's
// ref and another, renamed files by what changed in them, in paths (git's path
// patterns; none: everywhere). A binary file counts nothing.
func (w *Workspace) ChangedLines(ctx context.Context, p Pinned, ref string, paths []string) (int, error) {
	from, err := w.Pristine(ctx, p)
	if err != nil {
		return 0, err
	}
	to, err := w.Pristine(ctx, w.At(p, ref))
	if err != nil {
		return 0, err
	}
	args := append([]string{"diff-tree", "-r", "--numstat", "-z", "--find-renames", from.Tree, to.Tree, "--"}, paths...)
	out, err := w.store.Repo().Do(ctx, git.Call{Args: args})
	if err != nil {
		return 0, fmt.Errorf("counting the lines between %s and %s: %w", p.Ref, ref, err)
	}
	total := 0
	for _, record := range git.SplitZ(out) {
		added, rest, ok := strings.Cut(record, "\t")
		removed, _, both := strings.Cut(rest, "\t")
		if !ok || !both { // the names of a renamed file stand apart
			continue
		}
		for _, text := range []string{added, removed} {
			if n, err := strconv.Atoi(text); err == nil { // "-" of a binary file
				total += n
			}
		}
	}
	return total, nil
}
