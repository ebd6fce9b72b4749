package git

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/internal/run"
)

// RemoteRef is one name that another repository answers with.
type RemoteRef struct {
	Name string // "refs/tags/v1", or "refs/tags/v1^{}" for what an annotated tag names
	ID   string
}

// LsRemote asks the repository at location, a URL or an absolute path, for the
// refs with exactly these full names. Those that it lacks are left out.
func LsRemote(ctx context.Context, location string, names ...string) ([]RemoteRef, error) {
	refs, err := lsRemote(ctx, location, names...)
	// git matches the end of a name: refs/heads/refs/tags/v1 is found too.
	return slices.DeleteFunc(refs, func(r RemoteRef) bool { return !slices.Contains(names, r.Name) }), err
}

// Tag is a tag of another repository.
type Tag struct {
	Name   string // without refs/tags/
	Commit string // an annotated tag is followed to what it names
}

// RemoteTags lists the tags of the repository at location, by name.
func RemoteTags(ctx context.Context, location string) ([]Tag, error) {
	refs, err := lsRemote(ctx, location, "refs/tags/*")
	var tags []Tag
	for _, r := range refs {
		name, ok := strings.CutPrefix(r.Name, "refs/tags/")
		name, peeled := strings.CutSuffix(name, "^{}")
		switch {
		case peeled && len(tags) > 0 && tags[len(tags)-1].Name == name: // comes right after the tag itself
			tags[len(tags)-1].Commit = r.ID
		case ok && !peeled:
			tags = append(tags, Tag{Name: name, Commit: r.ID})
		}
	}
	return tags, err
}

func lsRemote(ctx context.Context, location string, patterns ...string) ([]RemoteRef, error) {
	// Outside every repository, so that none of the user's settings apply.
	nowhere := os.TempDir()
	env := append([]string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(nowhere)}, isolated...)
	words := append([]string{"git", "ls-remote", "-q", "--", location}, patterns...)
	res, err := run.Do(ctx, run.Cmd{Dir: nowhere, Args: words, Env: env, Grace: 500 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	var refs []RemoteRef
	for line := range strings.Lines(string(res.Stdout)) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			refs = append(refs, RemoteRef{Name: name, ID: id})
		}
	}
	return refs, nil
}
