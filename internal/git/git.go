// Package git speaks to the git command for work on private repositories:
// trees, indexes, fetches. It owns the isolation from the user's own git (no
// system or user configuration, no hooks, no attributes) and knows nothing of
// components, patches or pins.
package git

import (
	"context"
	"crypto/sha1" //nolint:gosec // the checksum git's index format ends with
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sourcegraph/conc/pool"

	"payload/internal/atomicfile"
	"payload/internal/run"
)

// Repo is a bare repository of ours. Everything in it may be deleted and made
// again; nothing of the user's lies in it.
type Repo struct {
	Dir string // the git folder itself
}

// Attributes makes git keep every byte: no line-ending conversion, keyword or
// filter that a tree's own .gitattributes asks for, and the diff drivers whose
// function headings the patch engine compares.
const Attributes = `* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst
*.c diff=cpp
*.cc diff=cpp
*.cpp diff=cpp
*.cu diff=cpp
*.cuh diff=cpp
*.h diff=cpp
*.hpp diff=cpp
*.metal diff=cpp
*.m diff=objc
*.mm diff=objc
*.py diff=python
`

// isolated is the environment in which no configuration of the user or the
// system is read, and identity and dates are fixed, so that the same input
// gives the same ids everywhere.
var isolated = []string{
	"GIT_CONFIG_GLOBAL=" + os.DevNull,
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_AUTHOR_NAME=payload", "GIT_AUTHOR_EMAIL=payload@localhost", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
	"GIT_COMMITTER_NAME=payload", "GIT_COMMITTER_EMAIL=payload@localhost", "GIT_COMMITTER_DATE=2000-01-01T00:00:00Z",
}

// config is the whole configuration of a private repository. unpackLimit keeps
// what is fetched in one pack, which is there at once or not at all: unpacked, a
// tree is there before its files, and a kill between them leaves it so.
const config = `[core]
	repositoryformatversion = 0
	bare = true
	autocrlf = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	protectNTFS = false
	commitGraph = false
[gc]
	auto = 0
[maintenance]
	auto = false
[fetch]
	recurseSubmodules = false
	unpackLimit = 1
[advice]
	detachedHead = false
`

// Open makes dir a private bare repository if it isn't one yet. What decides
// how git reads and writes files is compared every time: without it a damaged
// attribute would change line ends, and hide that it did.
func Open(ctx context.Context, dir string) (Repo, error) {
	r := Repo{Dir: dir}
	if r.Settled() {
		return r, nil
	}
	fail := func(err error) (Repo, error) { return r, fmt.Errorf("making the private repository %s: %w", dir, err) }
	attributes := r.attributes()
	if _, err := os.Stat(attributes); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fail(err)
		}
		if _, err := run.Do(ctx, run.Cmd{Args: []string{"git", "init", "-q", "--bare", "--template=", dir}, Env: isolated}); err != nil {
			return fail(err)
		}
	}
	if err := atomicfile.Write(filepath.Join(dir, "config"), []byte(config), 0o644); err != nil {
		return fail(err)
	}
	// Written last: its presence says that the repository is complete.
	if err := os.MkdirAll(filepath.Dir(attributes), 0o755); err != nil {
		return fail(err)
	}
	if err := atomicfile.Write(attributes, []byte(Attributes), 0o644); err != nil {
		return fail(err)
	}
	return r, nil
}

func (r Repo) attributes() string { return filepath.Join(r.Dir, "info", "attributes") }

// Settled says whether the configuration and the attributes are there and ours.
func (r Repo) Settled() bool {
	is := func(path, want string) bool {
		got, err := os.ReadFile(path)
		return err == nil && string(got) == want
	}
	return is(r.attributes(), Attributes) && is(filepath.Join(r.Dir, "config"), config)
}

// Call is one git command in a repository.
type Call struct {
	Args     []string
	Index    string // GIT_INDEX_FILE; empty for none
	WorkTree string // --work-tree; empty for none
	Env      []string
	Stdin    io.Reader
	Stderr   io.Writer // for progress of long fetches
}

// Do runs one git command and returns its stdout.
func (r Repo) Do(ctx context.Context, c Call) ([]byte, error) {
	args := []string{"git", "--git-dir=" + r.Dir}
	dir := r.Dir
	if c.WorkTree != "" {
		args = append(args, "--work-tree="+c.WorkTree, "-c", "core.bare=false")
		dir = c.WorkTree
	}
	env := append([]string{}, isolated...)
	if c.Index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.Index)
	}
	res, err := run.Do(ctx, run.Cmd{Dir: dir, Args: append(args, c.Args...), Env: append(env, c.Env...), Stdin: c.Stdin, Stderr: c.Stderr})
	return res.Stdout, err
}

// Text runs one git command without index or work tree and returns its stdout
// without the last line feed.
func (r Repo) Text(ctx context.Context, args ...string) (string, error) {
	out, err := r.Do(ctx, Call{Args: args})
	return strings.TrimSuffix(string(out), "\n"), err
}

// Has says whether the object exists in the repository.
func (r Repo) Has(ctx context.Context, object string) (bool, error) {
	_, err := r.Text(ctx, "cat-file", "-e", object)
	var exit *run.ExitError
	if errors.As(err, &exit) && exit.Signal == "" {
		return false, nil
	}
	return err == nil, err
}

// Whole says whether the object is there with everything that it leads to. A
// tree alone may be what an interrupted git left.
func (r Repo) Whole(ctx context.Context, object string) (bool, error) {
	_, err := r.Text(ctx, "rev-list", "--objects", "--quiet", object)
	var exit *run.ExitError
	if errors.As(err, &exit) && exit.Signal == "" {
		return false, nil
	}
	return err == nil, err
}

// WriteDir stores the content of folder dir, ignored files included and a
// stray .git left out, and returns its tree id. index is where the index is
// kept: what is there already is brought up to date by stat data, so remove it
// first where every byte has to be read again.
func (r Repo) WriteDir(ctx context.Context, dir, index string) (string, error) {
	list, err := Walk(dir)
	if err != nil {
		return "", fmt.Errorf("hashing %s: %w", dir, err)
	}
	if len(list.Special) > 0 {
		return "", fmt.Errorf("hashing %s: %s is neither a file, a folder nor a link", dir, list.Special[0])
	}
	old, err := r.indexed(ctx, dir, index)
	if err != nil {
		if err := os.Remove(index); err != nil {
			return "", fmt.Errorf("hashing %s: removing its damaged index: %w", dir, err)
		}
	}
	// Not "git add": that records a repository nested in dir as one commit id
	// and passes over what an ignore file names.
	names := strings.Join(append(old, list.Files...), "\x00")
	update := Call{Index: index, WorkTree: dir, Args: []string{"update-index", "--add", "--remove", "--replace", "-z", "--stdin"}, Stdin: strings.NewReader(names)}
	if _, err := r.Do(ctx, update); err != nil {
		return "", fmt.Errorf("hashing %s: %w", dir, err)
	}
	return r.WriteTree(ctx, index)
}

// indexed lists the names an index holds; none when there is no index.
func (r Repo) indexed(ctx context.Context, dir, index string) ([]string, error) {
	if _, err := os.Stat(index); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err := checkIndex(index); err != nil {
		return nil, err
	}
	out, err := r.Do(ctx, Call{Index: index, WorkTree: dir, Args: []string{"ls-files", "-z"}})
	if err != nil {
		return nil, fmt.Errorf("reading the index of %s: %w", dir, err)
	}
	return SplitZ(out), nil
}

// WriteTree stores the tree that an index holds and returns its id.
func (r Repo) WriteTree(ctx context.Context, index string) (string, error) {
	out, err := r.Do(ctx, Call{Index: index, Args: []string{"write-tree"}})
	if err != nil {
		return "", fmt.Errorf("writing a tree: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ReadTree fills an index with a tree.
func (r Repo) ReadTree(ctx context.Context, tree, index string) error {
	if _, err := r.Do(ctx, Call{Index: index, Args: []string{"read-tree", tree}}); err != nil {
		return fmt.Errorf("reading tree %s: %w", tree, err)
	}
	return nil
}

// Checkout writes a tree into the empty folder dir; index is left describing it.
func (r Repo) Checkout(ctx context.Context, tree, dir, index string) error {
	if err := r.ReadTree(ctx, tree, index); err != nil {
		return err
	}
	if _, err := r.Do(ctx, Call{Index: index, WorkTree: dir, Args: []string{"checkout-index", "-a", "-q", "-u"}}); err != nil {
		return fmt.Errorf("writing tree %s to %s: %w", tree, dir, err)
	}
	return nil
}

// Changed lists the files of dir that differ from tree: changed, missing, or
// extra ones (ignored files, a .git and empty folders too). index must describe
// tree; a stat that did not change is trusted, ctime included, so a name listed
// here may still have its old content. A damaged index is an error.
func (r Repo) Changed(ctx context.Context, tree, dir, index string) ([]string, error) {
	// git trusts whatever it can parse of an index.
	if err := checkIndex(index); err != nil {
		return nil, fmt.Errorf("checking %s: %w", dir, err)
	}
	var differing, indexed []string
	var list Listing
	work := pool.New().WithContext(ctx)
	work.Go(func(ctx context.Context) error {
		// Tree against index against files in one pass.
		out, err := r.Do(ctx, Call{Index: index, WorkTree: dir, Args: []string{"diff-index", "--name-only", "-z", tree, "--"}})
		differing = SplitZ(out)
		return err
	})
	work.Go(func(ctx context.Context) (err error) {
		indexed, err = r.indexed(ctx, dir, index)
		return err
	})
	work.Go(func(context.Context) (err error) {
		list, err = Walk(dir)
		return err
	})
	if err := work.Wait(); err != nil {
		return nil, fmt.Errorf("checking %s: %w", dir, err)
	}
	known := make(map[string]bool, len(indexed))
	for _, name := range indexed {
		known[name] = true
	}
	names := slices.Concat(differing, list.Strays, list.Empty, list.Special)
	for _, name := range list.Files {
		if !known[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// checkIndex compares the checksum at the end of an index with its content.
func checkIndex(index string) error {
	data, err := os.ReadFile(index)
	if err != nil {
		return fmt.Errorf("reading an index: %w", err)
	}
	at := len(data) - sha1.Size
	if at < 0 || sha1.Sum(data[:at]) != [sha1.Size]byte(data[at:]) {
		return fmt.Errorf("reading an index: %s is damaged", index)
	}
	return nil
}

// SplitZ splits the output of a -z command.
func SplitZ(out []byte) []string {
	text := strings.TrimSuffix(string(out), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}
