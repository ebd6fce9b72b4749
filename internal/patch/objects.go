package patch

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"payload/internal/git"
)

// entry is a file of a tree.
type entry struct{ mode, id string }

// objects reads from a repository and remembers. What patches make is added
// to it and only written when the whole series holds.
type objects struct {
	repo    git.Repo
	wide    bool              // the repository's ids are SHA-256
	content map[string]string // blob id -> content
	missing map[string]bool
}

func newObjects(repo git.Repo, tree string) *objects {
	return &objects{repo: repo, wide: len(tree) == 64, content: map[string]string{}, missing: map[string]bool{}}
}

// add remembers content that need not be in the repository and gives its id.
func (o *objects) add(content string) string {
	id := blobID(content)
	if o.wide {
		id = blobID256(content)
	}
	o.content[id] = content
	return id
}

// tree lists the files of a tree.
func (o *objects) tree(ctx context.Context, tree string) (map[string]entry, error) {
	entries, err := o.repo.List(ctx, tree)
	if err != nil {
		return nil, err
	}
	files := map[string]entry{}
	for _, e := range entries {
		files[e.Path] = entry{mode: e.Mode, id: e.ID}
	}
	return files, nil
}

// fetch reads blobs in one process; ids may be abbreviated. What the
// repository lacks is remembered as missing.
func (o *objects) fetch(ctx context.Context, ids []string) error {
	var ask []string
	seen := map[string]bool{}
	for _, id := range ids {
		if _, have := o.content[id]; id != "" && !have && !o.missing[id] && !seen[id] && strings.Trim(id, "0") != "" {
			seen[id] = true
			ask = append(ask, id)
		}
	}
	found, err := o.repo.Objects(ctx, ask)
	if err != nil {
		return err
	}
	for i, object := range found {
		if object.Kind == "blob" {
			o.content[object.ID] = object.Text
		} else {
			o.missing[ask[i]] = true
		}
	}
	return nil
}

// resolve finds the content of an id that may be abbreviated.
func (o *objects) resolve(id string) (string, bool) {
	if content, ok := o.content[id]; ok || len(id) < 7 {
		return content, ok
	}
	var found string
	n := 0
	for full, content := range o.content {
		if strings.HasPrefix(full, id) {
			found = content
			n++
		}
	}
	return found, n == 1
}

// renames lists the files that were renamed, perhaps edited, between trees.
func (o *objects) renames(ctx context.Context, from, to string) (map[string]string, error) {
	out, err := o.repo.Do(ctx, git.Call{Args: []string{"diff-tree", "-r", "-z", "--find-renames", "-l0", "--diff-filter=R", "--name-status", from, to}})
	if err != nil {
		return nil, fmt.Errorf("looking for renamed files: %w", err)
	}
	part := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	list := map[string]string{}
	for i := 0; i+2 < len(part); i += 3 {
		list[part[i+1]] = part[i+2]
	}
	return list, nil
}

// commit is one commit to write.
type commit struct {
	author, email string
	date          time.Time
	message       string
	changes       map[string]*entry // nil takes the file away
}

// written is what import gave back for each commit.
type written struct{ id, tree string }

const (
	ownName  = "payload"
	ownEmail = "payload@localhost"
)

// ownDate is the date of everything that has none of its own, so that the same
// series gives the same ids everywhere.
var ownDate = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// write stores a chain of commits, the first of them holding tree with its own
// changes, in one process. Nothing refers to them afterwards.
func (o *objects) write(ctx context.Context, tree string, chain []commit) ([]written, error) {
	ref := fmt.Sprintf("refs/payload/writing/%d-%d", time.Now().UnixNano(), len(chain))
	var in bytes.Buffer
	for i, c := range chain {
		fmt.Fprintf(&in, "commit %s\nmark :%d\n", ref, i+1)
		if c.email == "" && c.author == "" {
			c.author, c.email = ownName, ownEmail
		}
		if c.date.IsZero() {
			c.date = ownDate
		}
		clean := strings.NewReplacer("<", "", ">", "", "\n", " ", "\x00", "")
		fmt.Fprintf(&in, "author %s <%s> %d %s\n", clean.Replace(c.author), clean.Replace(c.email), c.date.Unix(), c.date.Format("-0700"))
		fmt.Fprintf(&in, "committer %s <%s> %d +0000\n", ownName, ownEmail, ownDate.Unix())
		fmt.Fprintf(&in, "data %d\n%s\n", len(c.message), c.message)
		if i == 0 {
			fmt.Fprintf(&in, "M 040000 %s \"\"\n", tree)
		}
		// Deletions first: a file may take the place of a folder.
		names := slices.Sorted(maps.Keys(c.changes))
		for _, name := range names {
			if c.changes[name] == nil {
				fmt.Fprintf(&in, "D %s\n", quote(name))
			}
		}
		for _, name := range names {
			e := c.changes[name]
			if e == nil {
				continue
			}
			content, ok := o.content[e.id]
			if !ok { // in the repository already
				fmt.Fprintf(&in, "M %s %s %s\n", e.mode, e.id, quote(name))
				continue
			}
			fmt.Fprintf(&in, "M %s inline %s\ndata %d\n", e.mode, quote(name), len(content))
			in.WriteString(content)
			in.WriteString("\n")
		}
		in.WriteString("\n")
	}
	for i := range chain {
		fmt.Fprintf(&in, "get-mark :%d\nls :%d \"\"\n", i+1, i+1)
	}
	fmt.Fprintf(&in, "reset %s\nfrom %s\n\ndone\n", ref, strings.Repeat("0", len(tree)))
	// Quick rather than small: what is written here is read back at once.
	out, err := o.repo.Do(ctx, git.Call{Args: []string{"-c", "core.compression=1", "fast-import", "--quiet", "--done", "--date-format=raw", "--depth=0"}, Stdin: &in})
	if err != nil {
		return nil, fmt.Errorf("writing the patched tree: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2*len(chain) {
		return nil, fmt.Errorf("writing the patched tree: git answered %d lines for %d commits", len(lines), len(chain))
	}
	result := make([]written, len(chain))
	for i := range chain {
		part := strings.Fields(lines[2*i+1])
		if len(part) < 3 || part[1] != "tree" {
			return nil, fmt.Errorf("writing the patched tree: unknown answer %q", lines[2*i+1])
		}
		result[i] = written{id: strings.TrimSpace(lines[2*i]), tree: part[2]}
	}
	return result, nil
}
