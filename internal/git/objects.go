package git

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Entry is a file, a link or a submodule of a tree.
type Entry struct {
	Mode string // 100644, 100755, 120000 or 160000
	ID   string
	Path string // from the tree's top, with forward slashes
}

// List lists a tree's entries, those of its folders too, in git's order.
func (r Repo) List(ctx context.Context, tree string) ([]Entry, error) {
	out, err := r.Do(ctx, Call{Args: []string{"ls-tree", "-r", "-z", "--full-tree", tree}})
	if err != nil {
		return nil, fmt.Errorf("listing tree %s: %w", tree, err)
	}
	var all []Entry
	for _, record := range SplitZ(out) { // "100644 blob ID\tPATH"
		meta, path, ok := strings.Cut(record, "\t")
		part := strings.Fields(meta)
		if !ok || len(part) != 3 {
			return nil, fmt.Errorf("listing tree %s: unknown line %q", tree, record)
		}
		all = append(all, Entry{Mode: part[0], ID: part[2], Path: path})
	}
	return all, nil
}

// Object is what the repository holds under an id.
type Object struct {
	ID   string // in full; empty when it holds none, or several that begin so
	Kind string // blob, tree, commit or tag
	Text string
}

// Objects reads objects in one process, in the order of ids, which may be
// abbreviated.
func (r Repo) Objects(ctx context.Context, ids []string) ([]Object, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := r.Do(ctx, Call{Args: []string{"cat-file", "--batch"}, Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n")})
	if err != nil {
		return nil, fmt.Errorf("reading %d objects of the private repository: %w", len(ids), err)
	}
	all := make([]Object, len(ids))
	for i, id := range ids {
		line, rest, ok := bytes.Cut(out, []byte("\n"))
		if !ok {
			return nil, fmt.Errorf("reading objects of the private repository: answer cut off at %s", id)
		}
		out = rest
		part := strings.Fields(string(line))
		if len(part) == 2 && (part[1] == "missing" || part[1] == "ambiguous") {
			continue
		}
		if len(part) != 3 {
			return nil, fmt.Errorf("reading objects of the private repository: unknown answer %q", line)
		}
		size, err := strconv.Atoi(part[2])
		if err != nil || size+1 > len(out) {
			return nil, fmt.Errorf("reading objects of the private repository: answer cut off at %s", id)
		}
		all[i] = Object{ID: part[0], Kind: part[1], Text: string(out[:size])}
		out = out[size+1:]
	}
	return all, nil
}
