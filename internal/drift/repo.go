package drift

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/ci"
	"payload/internal/config"
	"payload/internal/patch"
	"payload/internal/report"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// repo is the repository as the checks see it. What several need is worked out
// once.
type repo struct {
	w        *workspace.Workspace
	file     *config.File
	opts     Options
	files    []string // that git knows or would add, sorted
	projects []ci.Project
	trees    map[string]func(context.Context) (trees, error)      // by component
	words    map[string]func(context.Context) (vocabulary, error) // by project
}

// trees are a component's sources, as git objects of the store.
type trees struct {
	pinned   workspace.Pinned
	pristine string       // empty where the lock has no row for the pin
	from     string       // the source that pristine was read from
	patched  string       // empty where the series does not apply
	judged   patch.Report // of the series
}

func newRepo(w *workspace.Workspace, opts Options, files []string, projects []ci.Project) *repo {
	r := &repo{w: w, file: w.File, opts: opts, files: files, projects: projects}
	r.trees, r.words = map[string]func(context.Context) (trees, error){}, map[string]func(context.Context) (vocabulary, error){}
	for _, c := range w.File.Components {
		r.trees[c.Name] = once(func(ctx context.Context) (trees, error) { return r.read(ctx, c.Name) })
	}
	for _, p := range projects {
		r.words[p.Dir] = once(func(ctx context.Context) (vocabulary, error) { return r.vocabularyOf(ctx, p) })
	}
	return r
}

// once is f, which is called the first time only.
func once[T any](f func(context.Context) (T, error)) func(context.Context) (T, error) {
	var once sync.Once
	var value T
	var err error
	return func(ctx context.Context) (T, error) {
		once.Do(func() { value, err = f(ctx) })
		return value, err
	}
}

// read finds a component's sources and applies the series to them. Without a row
// of the lock nothing says which sources are meant: that is the lock check's to
// tell, and there are no trees.
func (r *repo) read(ctx context.Context, name string) (trees, error) {
	p, err := r.w.Asked(name)
	if err != nil {
		return trees{}, err
	}
	t := trees{pinned: p}
	if p.Entry == nil {
		return t, nil
	}
	pristine, err := r.w.Pristine(ctx, p)
	if err != nil {
		return t, err
	}
	t.pristine, t.from = pristine.Tree, pristine.From
	t.judged, t.patched, err = patch.Check(ctx, r.w.Store().Repo(), pristine.Tree, p.Series)
	return t, err
}

// best is the tree that is built, or what there is of it.
func (t trees) best() string {
	if t.patched != "" {
		return t.patched
	}
	return t.pristine
}

// blobs reads the files of a tree whose names wanted takes. Links are left out.
func (r *repo) blobs(ctx context.Context, tree string, wanted func(name string) bool) (map[string]string, error) {
	store := r.w.Store().Repo()
	entries, err := store.List(ctx, tree)
	if err != nil {
		return nil, err
	}
	var names, ids []string
	for _, e := range entries {
		if strings.HasPrefix(e.Mode, "100") && wanted(e.Path) {
			names, ids = append(names, e.Path), append(ids, e.ID)
		}
	}
	objects, err := store.Objects(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("reading tree %s: %w", tree, err)
	}
	texts := map[string]string{}
	for i, object := range objects {
		if object.ID == "" {
			return nil, fmt.Errorf("reading %s of tree %s: the store does not hold it", names[i], tree)
		}
		texts[names[i]] = object.Text
	}
	return texts, nil
}

// text reads a file of the repository.
func (r *repo) text(name string) (string, error) {
	data, err := os.ReadFile(r.file.Abs(name))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	return string(data), nil
}

// has says whether a path is a file of the repository, or a folder with some.
func (r *repo) has(name string) bool {
	name = path.Clean(name)
	if _, found := slices.BinarySearch(r.files, name); found || name == "." {
		return true
	}
	// Files of the folder sort behind "name/", which is not where "name" would.
	i, _ := slices.BinarySearch(r.files, name+"/")
	return i < len(r.files) && strings.HasPrefix(r.files[i], name+"/")
}

// covers says whether a glob takes a file or a folder that it lies in.
func covers(glob, file string) bool {
	if glob == "." {
		return true
	}
	for name := file; name != "."; name = path.Dir(name) {
		if doublestar.MatchUnvalidated(glob, name) {
			return true
		}
	}
	return false
}

// missing lists the inputs of a project that a filter, a key or a stage leaves
// out, where it takes some of its own: one that takes none is about something else.
func missing(p ci.Project, takes func(file string) bool) []string {
	if !slices.ContainsFunc(p.Own, takes) {
		return nil
	}
	return slices.DeleteFunc(p.Inputs(), takes)
}

// listed is a list for a sentence, cut where it gets long.
func listed(names []string) string { return voice.List(names, 8) }

// lineOf is the line of the first place in a text that has all words, 0 for none.
func lineOf(text string, words ...string) int {
	for i, line := range strings.Split(text, "\n") {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return i + 1
		}
	}
	return 0
}

// place is a line of the repository.
func place(file string, line int) report.Place { return report.Place{Path: file, Line: line} }
