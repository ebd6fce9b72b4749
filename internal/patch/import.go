package patch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"payload/internal/git"
)

// Import is a change from elsewhere that is to become the last patch of a
// series.
type Import struct {
	Patch  Patch
	Base   string // the tree that it was made for; empty when not known
	Commit string // upstream's commit that it is; empty when not known

	result string // the tree that it made of Base; empty when Base is
}

// ImportConflictError is an import that doesn't apply. The report is of it
// alone.
type ImportConflictError struct{ Report Report }

func (e *ImportConflictError) Error() string {
	return (&ConflictError{Report: e.Report}).Error()
}

// ErrUpstreamed says that the tree holds an imported change already.
var ErrUpstreamed = errors.New("the source holds this change already")

var (
	mailHead    = regexp.MustCompile(`(?m)^From ([0-9a-f]{40}) `)
	cherryTaken = regexp.MustCompile(`(?m)^\(cherry picked from commit ([0-9a-f]{40})\)$`)
	aboutNobody = strings.Repeat("0", 40)
)

// ReadImport reads a patch file: a plain diff or one message as git
// format-patch writes it, whose commit it takes for upstream's. A malformed file
// is an error.
func ReadImport(file string, data []byte) (Import, error) {
	fail := func(format string, args ...any) (Import, error) {
		return Import{}, fmt.Errorf("reading %s: %s", file, fmt.Sprintf(format, args...))
	}
	heads := mailHead.FindAllSubmatch(data, -1)
	if len(heads) > 1 {
		return fail("it holds %d messages; import them one by one (git mailsplit takes them apart)", len(heads))
	}
	name := filepath.Base(file)
	p := Parse(strings.TrimSuffix(name, filepath.Ext(name))+".patch", data)
	switch {
	case p.Malformed != "":
		return fail("%s", p.Malformed)
	case len(p.Diffs) == 0:
		return fail("it changes no file")
	}
	m := Import{Patch: p}
	if len(heads) == 1 && string(heads[0][1]) != aboutNobody {
		m.Commit = string(heads[0][1])
	}
	// What it was picked from says more than the commit that it became.
	if from := cherryTaken.FindStringSubmatch(p.Message.Body); from != nil {
		m.Commit = from[1]
	}
	return m, nil
}

// ImportFile is ReadImport for a file. Where it names no author, that is who the
// user's own git says they are, now.
func ImportFile(ctx context.Context, path string) (Import, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Import{}, fmt.Errorf("reading the patch: %w", err)
	}
	m, err := ReadImport(path, data)
	if msg := &m.Patch.Message; err == nil && msg.Email == "" {
		msg.Name, msg.Email = identity(ctx, filepath.Dir(path))
		msg.Date = time.Now()
	}
	return m, err
}

// ImportOf makes the import of a commit of repo; parent is empty for a first
// commit. Both must be there with their files.
func ImportOf(ctx context.Context, repo git.Repo, commit, parent string) (Import, error) {
	m, err := importOf(ctx, repo, commit, parent)
	if err != nil {
		return m, fmt.Errorf("reading commit %s: %w", commit, err)
	}
	return m, nil
}

func importOf(ctx context.Context, repo git.Repo, commit, parent string) (Import, error) {
	base := emptyTree
	if parent != "" {
		var err error
		if base, err = repo.Text(ctx, "rev-parse", parent+"^{tree}"); err != nil {
			return Import{}, err
		}
	}
	text, err := repo.Text(ctx, "log", "-1", "--no-walk", "--encoding=UTF-8", "--date=raw", "--format=%an%x00%ae%x00%ad%x00%T%x00%B", commit)
	if err != nil {
		return Import{}, err
	}
	part := strings.SplitN(text, "\x00", 5)
	if len(part) != 5 {
		return Import{}, fmt.Errorf("git log printed %q", text)
	}
	said := Message{Name: part[0], Email: part[1], Date: rawDate(part[2])}
	said.Subject, said.Body, _ = strings.Cut(strings.TrimSpace(part[4]), "\n")
	said.Body = strings.TrimSpace(said.Body)
	// A pair of commits of its own: git may take the commit for the first one,
	// where what came before it was not fetched.
	before, after, err := pair(ctx, repo, base, part[3], said)
	if err != nil {
		return Import{}, err
	}
	list, err := format(ctx, repo, before, after)
	if err != nil {
		return Import{}, err
	}
	if len(list) != 1 {
		return Import{}, errors.New("it changes no file")
	}
	return Import{Patch: list[0].patch, Base: base, Commit: commit, result: part[3]}, nil
}

// rawDate reads git's raw form: seconds and a time zone.
func rawDate(text string) time.Time {
	seconds, zone, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return ownDate
	}
	at := time.Unix(n, 0).UTC()
	if z, err := time.Parse("-0700", zone); err == nil {
		at = at.In(z.Location())
	}
	return at
}

// pair writes two commits, the second on the first, that hold two trees.
func pair(ctx context.Context, repo git.Repo, base, result string, m Message) (before, after string, err error) {
	if before, err = commitTree(ctx, repo, base, "", Message{Subject: "before"}.signed()); err != nil {
		return "", "", err
	}
	after, err = commitTree(ctx, repo, result, before, m)
	return before, after, err
}

// emptyTree is git's id of a tree without files.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// message is what the new patch says: its own words, where it is from, and when
// it can go, as far as it doesn't say so itself.
func (m Import) message() Message {
	msg := m.Patch.Message.signed()
	var add []string
	if _, ok := msg.Trailer(UpstreamStatus); !ok {
		status := "Pending"
		if m.Commit != "" {
			status = "Backport " + m.Commit
		}
		add = append(add, UpstreamStatus+": "+status)
	}
	if _, ok := msg.Trailer(DropWhen); !ok {
		when := "never"
		if m.Commit != "" {
			when = "commit " + m.Commit
		}
		add = append(add, DropWhen+": "+when)
	}
	sep := "\n\n"
	switch {
	case len(add) == 0 || msg.Body == "":
		sep = ""
	case len(msg.Trailers) > 0:
		sep = "\n" // they end in trailers already
	}
	msg.Body += sep + strings.Join(add, "\n")
	return msg
}

// Add puts an import on top of a series that applies to the pristine tree, by
// the three-way merge from the tree that it was made for, and writes the series
// with it as its last patch. ErrUpstreamed says that the patched tree holds it
// already, an *ImportConflictError that it doesn't apply, a *ConflictError that
// the series doesn't. Then nothing is written.
func Add(ctx context.Context, repo git.Repo, pristine string, s Series, m Import) ([]Change, Report, error) {
	r, head, err := onto(ctx, repo, pristine, s)
	if err != nil {
		return nil, r, err
	}
	patched, err := repo.Text(ctx, "rev-parse", head.id+"^{tree}")
	if err != nil {
		return nil, r, fmt.Errorf("importing %s: %w", m.Patch.File, err)
	}
	report, tree, err := CheckFrom(ctx, repo, m.Base, patched, Series{Patches: []Patch{m.Patch}})
	if err != nil {
		return nil, report, err
	}
	if report.Result == ResultConflict {
		return nil, report, &ImportConflictError{Report: report}
	}
	if tree == patched {
		return nil, report, ErrUpstreamed
	}
	commit, err := commitTree(ctx, repo, tree, head.id, m.message())
	if err != nil {
		return nil, report, fmt.Errorf("importing %s: %w", m.Patch.File, err)
	}
	changes, err := s.put(ctx, repo, head, commit)
	return changes, report, err
}

// put writes one more patch, the last of a series. The others stay as they are,
// unless one without a number would come after it.
func (s Series) put(ctx context.Context, repo git.Repo, head ontoHead, commit string) ([]Change, error) {
	if slices.ContainsFunc(s.Patches, func(p Patch) bool { return p.Number < 0 }) {
		return exportCommits(ctx, repo, head.base, commit, s.Dir, s)
	}
	list, err := format(ctx, repo, head.id, commit)
	if err != nil {
		return nil, fmt.Errorf("exporting the series to %s: %w", s.Dir, err)
	}
	number, width := 1, 4
	if n := len(s.Patches); n > 0 {
		number = s.Patches[n-1].Number + 1
		width = len(leadingDigits.FindString(s.Patches[n-1].File))
	}
	name := fmt.Sprintf("%0*d-%s", width, number, list[0].slug)
	if err := writeSet(s.Dir, fileSet{place: map[string][]byte{name: list[0].patch.Data}}, nil); err != nil {
		return nil, err
	}
	return []Change{{Kind: Added, File: name}}, nil
}

// ontoHead is a series as commits of the private repository.
type ontoHead struct{ base, id string }

func onto(ctx context.Context, repo git.Repo, pristine string, s Series) (Report, ontoHead, error) {
	r, err := newReplay(ctx, repo, "", pristine, s)
	if err != nil {
		return Report{}, ontoHead{}, err
	}
	if r.report.Result == ResultConflict {
		return r.report, ontoHead{}, &ConflictError{Report: r.report}
	}
	chain, err := r.commits(ctx, "base")
	if err != nil {
		return r.report, ontoHead{}, err
	}
	return r.report, ontoHead{base: chain[0].id, id: chain[len(chain)-1].id}, nil
}

// commitTree writes one commit; parent may be empty.
func commitTree(ctx context.Context, repo git.Repo, tree, parent string, m Message) (string, error) {
	args := []string{"commit-tree", "-F", "-"}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	out, err := repo.Do(ctx, git.Call{
		Args: append(args, tree), Stdin: strings.NewReader(m.Text()),
		Env: []string{
			"GIT_AUTHOR_NAME=" + m.Name, "GIT_AUTHOR_EMAIL=" + m.Email,
			fmt.Sprintf("GIT_AUTHOR_DATE=@%d %s", m.Date.Unix(), m.Date.Format("-0700")),
		},
	})
	return strings.TrimSpace(string(out)), err
}

// Pick opens a series as a work folder, as Open does, and begins to put an
// import that doesn't apply on top of it, for a person to end. Where its commit
// is known, that is a cherry-pick that stops in the conflict; else what applies
// of the patch is there, the rest lies beside its files as .rej, and the message
// in .git/IMPORT_MSG. It returns the commands that end it.
func Pick(ctx context.Context, repo git.Repo, pristine, ref string, s Series, m Import, workdir string) (finish []string, err error) {
	if _, err := Open(ctx, repo, pristine, ref, s, workdir); err != nil {
		return nil, err
	}
	w := git.Repo{Dir: filepath.Join(workdir, ".git")}
	fail := func(err error) ([]string, error) {
		return nil, fmt.Errorf("opening the import in %s: %w", workdir, err)
	}
	inWork := "git -C " + workdir
	if m.Base == "" {
		msg := m.message()
		if err := os.WriteFile(filepath.Join(w.Dir, "IMPORT_MSG"), []byte(msg.Text()), 0o644); err != nil {
			return fail(err)
		}
		// Rejects are no part of any patch.
		if err := os.WriteFile(filepath.Join(w.Dir, "info", "exclude"), []byte("*.rej\n"), 0o644); err != nil {
			return fail(err)
		}
		// It exits 1 where something was rejected, which is why we are here.
		_, _ = w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"apply", "--reject", "--whitespace=nowarn", "-"}, Stdin: strings.NewReader(string(m.Patch.Data))})
		return []string{
			inWork + " status --ignored   # the rejected hunks are in *.rej",
			inWork + " add -A",
			fmt.Sprintf("%s commit --author '%s <%s>' --date '%s' -F .git/IMPORT_MSG", inWork, msg.Name, msg.Email, msg.Date.Format("2006-01-02T15:04:05-0700")),
		}, ctx.Err()
	}
	// Without what came before, which isn't there.
	_, commit, err := pair(ctx, repo, m.Base, m.result, m.message())
	if err != nil {
		return fail(err)
	}
	if _, err := w.Do(ctx, git.Call{Args: []string{"-c", "protocol.version=2", "fetch", "-q", "--no-tags", "--", repo.Dir, commit}}); err != nil {
		return fail(err)
	}
	_, pickErr := w.Do(ctx, git.Call{WorkTree: workdir, Args: []string{"-c", "core.hooksPath=" + os.DevNull, "cherry-pick", "--allow-empty", commit}})
	if _, err := os.Stat(filepath.Join(w.Dir, "CHERRY_PICK_HEAD")); err != nil && pickErr != nil {
		return fail(pickErr)
	}
	if pickErr == nil {
		// git's own merge did what ours would not: look, before it's exported.
		return []string{inWork + " show"}, nil
	}
	return []string{
		inWork + " status",
		inWork + " add -A",
		inWork + " cherry-pick --continue",
	}, ctx.Err()
}
