package patch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"payload/internal/git"
	"payload/internal/run"
	"payload/internal/voice"
)

// A work folder is an ordinary git repository for editing a series: the
// pristine tree is the commit with the tag base, and each patch a commit on
// top. Its own .git keeps what was opened, in work.json, so that neither a
// change made there nor one made to the series meanwhile is lost.
const (
	baseTag    = "base"
	workBranch = "series"
	stateName  = "work.json"
)

// workState is work.json.
type workState struct {
	Head   string            `json:"head"`            // the last commit that the series holds
	Title  string            `json:"title,omitempty"` // of the patch to be made of what is not committed
	Series map[string]string `json:"series"`          // file -> SHA-256
}

// NoWorkFolderError is an export without anything opened.
type NoWorkFolderError struct{ Dir string }

func (e *NoWorkFolderError) Error() string {
	return fmt.Sprintf("exporting from %s: no series is open there", e.Dir)
}

// WorkError is a work folder in a state in which it can be neither replaced
// nor exported, with what would be lost or is in the way.
type WorkError struct {
	Dir string
	Why string
}

func (e *WorkError) Error() string { return fmt.Sprintf("work folder %s: %s", e.Dir, e.Why) }

// UntitledError is an export of changes that are neither committed nor have a
// title to be committed under.
type UntitledError struct {
	Dir   string
	Files []string
}

func (e *UntitledError) Error() string {
	return fmt.Sprintf("exporting from %s: %d files are changed but not committed, and have no title: %s", e.Dir, len(e.Files), voice.List(e.Files, 3))
}

// StaleError is a series that was changed since its work folder was opened.
type StaleError struct{ Dir, File string }

func (e *StaleError) Error() string {
	return fmt.Sprintf("exporting to %s: %s was changed after the work folder was opened", e.Dir, e.File)
}

// ErrNothing says that a new patch was asked for and nothing was changed.
var ErrNothing = errors.New("nothing to export: no file was changed")

// Open makes workdir a work folder for the series on a pristine tree; ref names
// the tree in its first commit. A patch that upstream holds wholly becomes no
// commit; its file is returned. A series with a conflict is a *ConflictError,
// a folder with unexported work in it a *WorkError.
func Open(ctx context.Context, repo git.Repo, pristine, ref string, s Series, workdir string) (dropped []string, err error) {
	return open(ctx, repo, pristine, ref, s, workdir, "")
}

// New is Open for one more patch: what is changed in the folder without being
// committed becomes a patch with that title when the series is exported.
func New(ctx context.Context, repo git.Repo, pristine, ref string, s Series, workdir, title string) error {
	if strings.TrimSpace(title) == "" || strings.ContainsAny(title, "\n\r\x00") {
		return fmt.Errorf("opening a new patch: the title must be one line, not %q", title)
	}
	_, err := open(ctx, repo, pristine, ref, s, workdir, strings.TrimSpace(title))
	return err
}

func open(ctx context.Context, repo git.Repo, pristine, ref string, s Series, workdir, title string) (dropped []string, err error) {
	if err := replaceable(ctx, workdir); err != nil {
		return nil, err
	}
	r, err := newReplay(ctx, repo, "", pristine, s)
	if err != nil {
		return nil, err
	}
	if r.report.Result == ResultConflict {
		return nil, &ConflictError{Report: r.report}
	}
	for _, st := range r.steps {
		if len(st.changes) == 0 {
			dropped = append(dropped, st.patch.File)
		}
	}
	chain, err := r.commits(ctx, strings.TrimSpace("pristine "+ref)+"\n")
	if err != nil {
		return nil, err
	}
	fail := func(err error) ([]string, error) {
		return nil, fmt.Errorf("opening the series in %s: %w", workdir, err)
	}
	// Built beside its place, so that a kill leaves no half folder.
	tmp := workdir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fail(err)
	}
	w := git.Repo{Dir: filepath.Join(tmp, ".git")}
	head := chain[len(chain)-1].id
	if err := fillWork(ctx, repo, w, tmp, chain[0].id, head, ""); err != nil {
		return fail(err)
	}
	state := workState{Head: head, Title: title, Series: digests(s)}
	if err := state.write(tmp); err != nil {
		return fail(err)
	}
	if err := os.RemoveAll(workdir); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, workdir); err != nil {
		return fail(err)
	}
	return dropped, nil
}

// fillWork makes the repository w in dir hold the commits up to head, checked
// out, and those up to also; an empty one is none.
func fillWork(ctx context.Context, from, w git.Repo, dir, base, head, also string) error {
	if err := os.MkdirAll(filepath.Join(w.Dir, "info"), 0o755); err != nil {
		return err
	}
	if _, err := w.Do(ctx, git.Call{Args: []string{"init", "-q", "--template=", "-b", workBranch}}); err != nil {
		return err
	}
	// Every byte as it is, whatever upstream's own attributes ask for.
	if err := os.WriteFile(filepath.Join(w.Dir, "info", "attributes"), []byte(git.Attributes), 0o644); err != nil {
		return err
	}
	// Copied, not borrowed: the private repository may be thrown away. Without
	// a search for deltas it is quick.
	pack := filepath.Join(w.Dir, "objects", "pack", "pack")
	if err := os.MkdirAll(filepath.Dir(pack), 0o755); err != nil {
		return err
	}
	if _, err := from.Do(ctx, git.Call{Args: []string{"-c", "pack.compression=1", "pack-objects", "-q", "--revs", "--window=0", pack}, Stdin: strings.NewReader(strings.TrimSpace(head+"\n"+also) + "\n")}); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"config", "core.autocrlf", "false"},
		{"config", "core.bare", "false"},
		{"update-ref", "refs/heads/" + workBranch, head},
		{"tag", baseTag, base},
	} {
		if _, err := w.Do(ctx, git.Call{Args: args}); err != nil {
			return err
		}
	}
	_, err := w.Do(ctx, git.Call{WorkTree: dir, Args: []string{"reset", "-q", "--hard", head}})
	return err
}

func digests(s Series) map[string]string {
	m := map[string]string{}
	for _, p := range s.Patches {
		m[p.File] = p.SHA256
	}
	return m
}

func (s workState) write(workdir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(workdir, ".git", stateName)
	if err := writeSynced(path+".tmp", append(data, '\n')); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// readState is nil for a folder that is no work folder.
func readState(workdir string) (*workState, error) {
	data, err := os.ReadFile(filepath.Join(workdir, ".git", stateName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading work folder %s: %w", workdir, err)
	}
	var s workState
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("reading work folder %s: %w", workdir, err)
	}
	return &s, nil
}

// replaceable says why a folder must not be thrown away.
func replaceable(ctx context.Context, workdir string) error {
	entries, err := os.ReadDir(workdir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking into work folder %s: %w", workdir, err)
	}
	state, err := readState(workdir)
	if err != nil {
		return err
	}
	if state == nil {
		return &WorkError{Dir: workdir, Why: "it is there and was not made for patches"}
	}
	w := git.Repo{Dir: filepath.Join(workdir, ".git")}
	changed, ignored, err := dirty(ctx, w, workdir)
	if err != nil {
		return err
	}
	if len(ignored) > 0 {
		return &WorkError{Dir: workdir, Why: fmt.Sprintf("%d files in it are in no patch, because a .gitignore names them, such as %s", len(ignored), ignored[0])}
	}
	if len(changed) > 0 {
		return &WorkError{Dir: workdir, Why: fmt.Sprintf("%d changed files in it were not exported, such as %s", len(changed), changed[0])}
	}
	refs, err := w.Text(ctx, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return fmt.Errorf("looking into work folder %s: %w", workdir, err)
	}
	for _, line := range strings.Split(refs, "\n") {
		id, name, _ := strings.Cut(line, " ")
		if id != state.Head && name != "refs/tags/"+baseTag {
			return &WorkError{Dir: workdir, Why: fmt.Sprintf("%s has commits that were not exported", name)}
		}
	}
	if head, err := w.Text(ctx, "rev-parse", "HEAD"); err != nil || head != state.Head {
		return &WorkError{Dir: workdir, Why: "it has commits that were not exported"}
	}
	return nil
}

// dirty lists what is changed and not committed, and what is ignored.
func dirty(ctx context.Context, w git.Repo, workdir string) (changed, ignored []string, err error) {
	out, err := w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"status", "--porcelain", "-z", "--untracked-files=all", "--ignored=matching", "--no-renames"}})
	if err != nil {
		return nil, nil, fmt.Errorf("looking into work folder %s: %w", workdir, err)
	}
	for _, line := range strings.Split(string(out), "\x00") {
		switch {
		case len(line) < 4:
		case strings.HasPrefix(line, "!! "):
			ignored = append(ignored, line[3:])
		default:
			changed = append(changed, line[3:])
		}
	}
	return changed, ignored, nil
}

// Export writes the commits of a work folder as the series in dir, after
// committing what New was asked to make a patch of. The files are written as a
// set: a kill leaves the old series or the new one. It returns what changed;
// an untouched series changes nothing.
func Export(ctx context.Context, workdir, dir string) ([]Change, error) {
	state, err := readState(workdir)
	if err != nil {
		return nil, err
	}
	if state == nil {
		return nil, &NoWorkFolderError{Dir: workdir}
	}
	s, err := Load(dir)
	if err != nil {
		return nil, err
	}
	// Whatever is in the folder and not in the commits would be deleted.
	now := digests(s)
	for _, p := range s.Patches {
		if state.Series[p.File] != p.SHA256 {
			return nil, &StaleError{Dir: dir, File: p.File}
		}
	}
	for file := range state.Series {
		if now[file] == "" {
			return nil, &StaleError{Dir: dir, File: file}
		}
	}
	w := git.Repo{Dir: filepath.Join(workdir, ".git")}
	for _, name := range []string{"rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"} {
		if _, err := os.Stat(filepath.Join(w.Dir, name)); err == nil {
			return nil, &WorkError{Dir: workdir, Why: "a rebase, merge or cherry-pick is not finished there"}
		}
	}
	changed, ignored, err := dirty(ctx, w, workdir)
	if err != nil {
		return nil, err
	}
	switch {
	case len(changed) > 0 && state.Title == "":
		return nil, &UntitledError{Dir: workdir, Files: changed}
	case len(changed) > 0:
		if err := commitTitled(ctx, w, workdir, state.Title); err != nil {
			return nil, fmt.Errorf("committing %q in %s: %w", state.Title, workdir, err)
		}
	}
	head, err := w.Text(ctx, "rev-parse", "HEAD")
	if err != nil {
		return nil, fmt.Errorf("exporting from %s: %w", workdir, err)
	}
	if state.Title != "" && head == state.Head {
		return nil, fmt.Errorf("exporting %q from %s: %w", state.Title, workdir, ErrNothing)
	}
	if err := linear(ctx, w, workdir); err != nil {
		return nil, err
	}
	changes, err := exportCommits(ctx, w, baseTag, head, dir, s)
	if err != nil {
		return nil, err
	}
	for _, name := range ignored {
		changes = append(changes, Change{Kind: Ignored, File: name})
	}
	if s, err = Load(dir); err != nil {
		return nil, err
	}
	return changes, workState{Head: head, Series: digests(s)}.write(workdir)
}

// linear refuses histories that are no series.
func linear(ctx context.Context, w git.Repo, workdir string) error {
	base, err := w.Text(ctx, "rev-parse", "-q", "--verify", baseTag+"^{commit}")
	if err != nil {
		return &WorkError{Dir: workdir, Why: "its tag " + baseTag + " is gone"}
	}
	if common, err := w.Text(ctx, "merge-base", base, "HEAD"); err != nil || common != base {
		return &WorkError{Dir: workdir, Why: "its commits don't stand on the commit with the tag " + baseTag}
	}
	merges, err := w.Text(ctx, "rev-list", "--merges", "--count", base+"..HEAD")
	if err != nil {
		return fmt.Errorf("exporting from %s: %w", workdir, err)
	}
	if merges != "0" {
		return &WorkError{Dir: workdir, Why: "it has a merge commit, and a series is a straight line"}
	}
	return nil
}

// commitTitled commits everything, as the person whose git this is.
func commitTitled(ctx context.Context, w git.Repo, workdir, title string) error {
	if _, err := w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"add", "-A"}}); err != nil {
		return err
	}
	name, email := identity(ctx, workdir)
	now := time.Now()
	date := fmt.Sprintf("@%d %s", now.Unix(), now.Format("-0700"))
	var env []string
	for _, who := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
		env = append(env, who+"NAME="+name, who+"EMAIL="+email, who+"DATE="+date)
	}
	message := title + "\n\n" + UpstreamStatus + ": Pending\n" + DropWhen + ": never\n"
	_, err := w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"-c", "core.hooksPath=" + os.DevNull, "commit", "-q", "--cleanup=verbatim", "-F", "-"}, Env: env, Stdin: strings.NewReader(message)})
	return err
}

// identity is who the user's own git says they are, or else the tool.
func identity(ctx context.Context, workdir string) (name, email string) {
	for _, key := range []string{"user.name", "user.email"} {
		res, err := run.Do(ctx, run.Cmd{Dir: workdir, Args: []string{"git", "config", "--get", key}})
		value := strings.TrimSpace(string(res.Stdout))
		if err != nil || value == "" {
			return ownName, ownEmail
		}
		if key == "user.name" {
			name = value
		} else {
			email = value
		}
	}
	return name, email
}
