package source

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/manifest"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/testkit"
)

// hard is a tree with all that git and archives like to change.
var hard = map[string]string{
	".gitattributes":  "* text=auto eol=lf\n*.txt export-ignore ident\n",
	".gitignore":      "*.log\nbuild/\n",
	"crlf.txt":        "one\r\ntwo\r\n$Id$\n",
	"mixed.c":         "int a;\r\nint b;\n",
	"build/kept.log":  "named by the ignore file\n",
	"sub/.gitignore":  "*\n",
	"sub/also.kept":   "x\n",
	"with space.h":    "#define ÄÖ\n",
	"deep/er/still/x": "x\n",
}

// upstreamRepo is a repository with hard, an executable and a link, at b7.
func upstreamRepo(t *testing.T) testkit.Git {
	t.Helper()
	up := testkit.Repo(t)
	up.Run("config", "core.autocrlf", "false")
	// The repository's own attributes would change what is committed.
	testkit.Write(t, filepath.Join(up.Dir, ".git", "info", "attributes"), "* -text -ident\n")
	fill(t, up.Dir)
	up.Commit(nil, "b7")
	return up
}

func fill(t *testing.T, dir string) {
	t.Helper()
	for name, content := range hard {
		testkit.Write(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	testkit.Write(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	must(t, os.Symlink("sub/also.kept", filepath.Join(dir, "link")))
}

// assertHard compares a tree on disk with hard, byte for byte.
func assertHard(t *testing.T, dir string) {
	t.Helper()
	for name, want := range hard {
		got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || info.Mode().Perm()&0o111 != 0o111 {
		t.Errorf("run.sh: %v, %v; want an executable", info, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "link")); err != nil || target != "sub/also.kept" {
		t.Errorf("link leads to %q, %v", target, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf(".git came along: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// told collects the voice.
type told struct{ lines []string }

func (v *told) tell(format string, args ...any) {
	v.lines = append(v.lines, fmt.Sprintf(format, args...))
}

func (v *told) has(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(strings.Join(v.lines, "\n"), text) {
		t.Errorf("%q was not told; told was:\n%s", text, strings.Join(v.lines, "\n"))
	}
}

func openStore(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { _ = removeAll(filepath.Join(dir, "store")) })
	s, err := Open(t.Context(), filepath.Join(dir, "store"))
	must(t, err)
	return s
}

func request(t *testing.T, location string, mirrors ...config.Mirror) (Request, *told) {
	t.Helper()
	voice := &told{}
	return Request{
		File:      &config.File{Root: t.TempDir()},
		Component: config.Component{Name: "comp", Upstream: location, Mirrors: mirrors},
		Ref:       "b7",
		Tell:      voice.tell,
	}, voice
}

// patched adds a series of one made-up patch, which adds the file PATCHED.
func patched(req Request) Request {
	req.Patches = []pin.Patch{{File: "0001.patch", SHA256: strings.Repeat("a", 64)}}
	req.Apply = func(ctx context.Context, repo git.Repo, pristine string) (string, error) {
		dir, err := os.MkdirTemp("", "apply-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		index := filepath.Join(dir, "index")
		if err := repo.ReadTree(ctx, pristine, index); err != nil {
			return "", err
		}
		blob, err := repo.Do(ctx, git.Call{Args: []string{"hash-object", "-w", "--stdin"}, Stdin: strings.NewReader("patched\n")})
		if err != nil {
			return "", err
		}
		add := "100644," + strings.TrimSpace(string(blob)) + ",PATCHED"
		if _, err := repo.Do(ctx, git.Call{Index: index, Args: []string{"update-index", "--add", "--cacheinfo", add}}); err != nil {
			return "", err
		}
		return repo.WriteTree(ctx, index)
	}
	return req
}

// get is Tree that must succeed; the tree is let go of at once.
func get(t *testing.T, s *Store, req Request) *Tree {
	t.Helper()
	tree, err := s.Tree(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	must(t, tree.Close())
	return tree
}

// locked is the entry that a tree just got would be locked with.
func locked(req Request, tree *Tree) *pin.Entry {
	return &pin.Entry{
		Component: "comp", Ref: req.Ref, Commit: tree.Commit, Build: tree.Build, Patches: req.Patches,
		Sources: []pin.Source{{From: tree.From, Pristine: tree.Pristine, Patched: tree.Patched}},
	}
}

// archive writes a tar.gz with hard below top/vendor/x, a stray .git and files
// beside it.
func archive(t *testing.T) (path, sum string) {
	t.Helper()
	dir := t.TempDir()
	fill(t, dir)
	testkit.Write(t, filepath.Join(dir, ".git"), "gitdir: ../../elsewhere\n")
	testkit.Write(t, filepath.Join(dir, "sub", ".git", "HEAD"), "ref: x\n")
	var entries []tar.Header
	bodies := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := "top/vendor/x/" + filepath.ToSlash(path[len(dir)+1:])
		switch {
		case entry.IsDir():
			entries = append(entries, tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755})
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			entries = append(entries, tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target})
			return err
		default:
			info, err := entry.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			entries = append(entries, tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm())})
			bodies[name] = string(data)
			return err
		}
		return nil
	}))
	entries = append(entries, tar.Header{Name: "top/other/Case", Typeflag: tar.TypeReg}, tar.Header{Name: "top/other/case", Typeflag: tar.TypeReg})
	path = filepath.Join(t.TempDir(), "comp-7.tar.gz")
	return path, writeTar(t, path, entries, bodies)
}

func writeTar(t *testing.T, path string, entries []tar.Header, bodies map[string]string) string {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	h := sha256.New()
	zip := gzip.NewWriter(f)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		e.Size = int64(len(bodies[e.Name]))
		must(t, w.WriteHeader(&e))
		_, err := w.Write([]byte(bodies[e.Name]))
		must(t, err)
	}
	must(t, w.Close())
	must(t, zip.Close())
	must(t, f.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

func TestGitColdThenWarmWithoutUpstream(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	commit := up.Run("rev-parse", "b7")
	req, voice := request(t, "file://"+filepath.ToSlash(up.Dir))
	req = patched(req)

	cold := get(t, s, req)
	assertHard(t, cold.Path)
	if data, err := os.ReadFile(filepath.Join(cold.Path, "PATCHED")); err != nil || string(data) != "patched\n" {
		t.Errorf("PATCHED holds %q, %v", data, err)
	}
	if cold.Commit != commit || cold.Build != 7 || cold.From != "git" || cold.Stored || cold.Pristine == cold.Patched {
		t.Errorf("cold: %+v", cold)
	}
	if cold.Pristine != up.Run("rev-parse", "b7^{tree}") {
		t.Errorf("pristine is %s, not upstream's tree", cold.Pristine)
	}
	voice.has(t, "comp b7: asking file:")
	voice.has(t, "comp b7: fetching commit "+commit)
	voice.has(t, "comp b7: using from git")
	if info, err := os.Stat(filepath.Join(cold.Path, "mixed.c")); err != nil || info.Mode().Perm()&0o222 != 0 {
		t.Errorf("mixed.c: %v, %v; want it read-only", info, err)
	}

	req.Entry = locked(req, cold)
	req.Component.Upstream = filepath.Join(up.Dir, "gone")
	req.Apply = func(context.Context, git.Repo, string) (string, error) {
		t.Error("the series was applied again")
		return "", errors.New("applied")
	}
	warm := get(t, s, req)
	if warm.Path != cold.Path || warm.Patched != cold.Patched || !warm.Stored || warm.From != "git" || warm.Commit != commit || warm.Build != 7 {
		t.Errorf("warm: %+v, cold: %+v", warm, cold)
	}
	voice.has(t, "comp b7: using from the store (read from git)")

	req.Apply = nil
	pristine := get(t, s, req)
	if pristine.Patched != cold.Pristine || pristine.Path == cold.Path {
		t.Errorf("pristine: %+v", pristine)
	}
}

func TestAnnotatedTag(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	up.Run("tag", "-a", "-m", "x", "v1.0.0", "b7")
	req, _ := request(t, up.Dir)
	req.Ref = "v1.0.0"
	if tree := get(t, s, req); tree.Commit != up.Run("rev-parse", "b7") || tree.Build != 0 {
		t.Errorf("got %+v; want b7's commit", tree)
	}
}

func TestFullCommitIsFetchedByItself(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	commit := up.Run("rev-parse", "b7")
	up.Commit(map[string]string{"later": "x"})
	req, _ := request(t, up.Dir)
	req.Ref = commit
	tree := get(t, s, req)
	assertHard(t, tree.Path)
	if tree.Commit != commit {
		t.Errorf("got commit %s, want %s", tree.Commit, commit)
	}
}

func TestMovedTag(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	req, voice := request(t, up.Dir)
	first := get(t, s, req)
	now := up.Commit(map[string]string{"mixed.c": "moved\n"})
	up.Run("tag", "-f", "b7")

	// Without a lock upstream is asked first, so the new content comes.
	second := get(t, s, req)
	if second.Commit != now || second.Pristine == first.Pristine {
		t.Errorf("unlocked: got %+v, want commit %s", second, now)
	}
	// With one, the store's is what was locked.
	req.Entry = locked(req, first)
	if again := get(t, s, req); again.Commit != first.Commit || again.Path != first.Path {
		t.Errorf("locked: got %+v", again)
	}
	// Between answers of git, it has moved.
	req.Kinds = []Kind{FromGit, FromMirror}
	_, err := s.Tree(t.Context(), req)
	var moved *pin.MovedTagError
	if !errors.As(err, &moved) || moved.Locked != first.Commit || moved.Now != now {
		t.Errorf("got %v; want a moved tag", err)
	}
	// What a mirror claimed isn't an answer of git.
	req.Entry.Sources[0].From = "pypi:x==1"
	_, err = s.Tree(t.Context(), req)
	var none *NoSourceError
	if errors.As(err, &moved) || !errors.As(err, &none) || !strings.Contains(err.Error(), "came from a mirror") {
		t.Errorf("got %v; want git passed over", err)
	}
	voice.has(t, "git passed over: upstream's commit is "+now)
}

func TestUnlockedUsesLastAnswerWhenUpstreamIsAway(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	req, voice := request(t, up.Dir)
	first := get(t, s, req)
	must(t, os.Rename(up.Dir, up.Dir+".away"))
	t.Cleanup(func() { _ = os.RemoveAll(up.Dir + ".away") })
	second := get(t, s, req)
	if second.Commit != first.Commit || !second.Stored {
		t.Errorf("got %+v", second)
	}
	voice.has(t, "git passed over: asking "+up.Dir)
	voice.has(t, "upstream's last answer was commit "+first.Commit)
}

func TestSilentUpstreamGivesWayToAMirror(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	t.Setenv("PAYLOAD_GIT_TIMEOUT", "300ms")
	path, sum := archive(t)
	mirror := config.Mirror{Ref: "b7", Archive: path, Path: "vendor/x", SHA256: sum, Commit: strings.Repeat("c", 40)}
	req, voice := request(t, "http://"+silent.Addr().String()+"/comp.git", mirror)
	s := openStore(t)
	started := time.Now()
	tree := get(t, s, req)
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if tree.From != mirror.ID() || tree.Commit != mirror.Commit || tree.Build != 7 {
		t.Errorf("got %+v", tree)
	}
	voice.has(t, "no answer within 300ms")
	assertHard(t, tree.Path)
	// A full commit is fetched without being asked for first.
	req.Ref, req.Kinds = strings.Repeat("d", 40), []Kind{FromGit}
	_, err = s.Tree(t.Context(), req)
	var away *pin.UnreachableError
	if !errors.As(err, &away) {
		t.Errorf("a commit from a silent upstream: %v", err)
	}
}

func TestArchiveGivesTheSameTreeAsGit(t *testing.T) {
	up := upstreamRepo(t)
	path, sum := archive(t)
	mirror := config.Mirror{Ref: "b7", Archive: path, Path: "vendor/x", SHA256: sum}
	req, voice := request(t, filepath.Join(up.Dir, "gone"), mirror)
	s := openStore(t)
	tree := get(t, s, req)
	assertHard(t, tree.Path)
	if want := up.Run("rev-parse", "b7^{tree}"); tree.Pristine != want {
		t.Errorf("tree is %s, git's is %s", tree.Pristine, want)
	}
	voice.has(t, "git passed over")
	snapshot, err := s.Repo().Text(t.Context(), "log", "-1", "--format=%T %ad", "--date=iso-strict", "refs/payload/snapshot/b7")
	if err != nil || snapshot != tree.Pristine+" 2000-01-01T00:00:00Z" && snapshot != tree.Pristine+" 2000-01-01T00:00:00+00:00" {
		t.Errorf("snapshot is %q, %v", snapshot, err)
	}
	// What a digest names doesn't have to be read twice.
	must(t, os.Remove(path))
	if again := get(t, s, req); !again.Stored || again.From != mirror.ID() {
		t.Errorf("again: %+v", again)
	}
	left, err := filepath.Glob(filepath.Join(s.work(), "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestArchiveFolder(t *testing.T) {
	root := t.TempDir()
	fill(t, filepath.Join(root, "third_party", "comp"))
	testkit.Write(t, filepath.Join(root, "third_party", "comp", ".git"), "gitdir: nowhere\n")
	req, _ := request(t, filepath.Join(root, "gone"), config.Mirror{Ref: "b7", Archive: "third_party", Path: "comp"})
	req.File.Root = root
	s := openStore(t)
	first := get(t, s, req)
	assertHard(t, first.Path)
	testkit.Write(t, filepath.Join(root, "third_party", "comp", "mixed.c"), "changed\n")
	if second := get(t, s, req); second.Pristine == first.Pristine {
		t.Error("a changed folder gave the old tree")
	}
	req.Entry = locked(req, first)
	req.Kinds = []Kind{FromMirror}
	_, err := s.Tree(t.Context(), req)
	var mismatch *MismatchError
	if !errors.As(err, &mismatch) || mismatch.Want != first.Pristine || mismatch.What != "pristine" {
		t.Errorf("a folder that isn't as locked: %v", err)
	}
}

func TestWrongDigestOfAnArchive(t *testing.T) {
	path, sum := archive(t)
	want := strings.Repeat("0", 64)
	req, _ := request(t, t.TempDir(), config.Mirror{Ref: "b7", Archive: path, Path: "vendor/x", SHA256: want})
	_, err := openStore(t).Tree(t.Context(), req)
	var wrong *DigestError
	if !errors.As(err, &wrong) || wrong.Want != want || wrong.Got != sum || !strings.Contains(err.Error(), sum) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestPatchedTreeOfTheLockIsCompared(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	req, _ := request(t, up.Dir)
	req = patched(req)
	tree := get(t, s, req)
	req.Entry = locked(req, tree)
	req.Entry.Sources[0].Patched = tree.Pristine
	for _, store := range []*Store{s, openStore(t)} { // laid out already, and not
		_, err := store.Tree(t.Context(), req)
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) || mismatch.What != "patched" || mismatch.Got != tree.Patched {
			t.Errorf("got %v", err)
		}
	}
}

func TestNoSourceListsEveryReason(t *testing.T) {
	up := upstreamRepo(t)
	req, _ := request(t, up.Dir, config.Mirror{Ref: "b8", Archive: "nowhere.tar", SHA256: strings.Repeat("0", 64)})
	req.Ref = "b8"
	_, err := openStore(t).Tree(t.Context(), req)
	var none *NoSourceError
	if !errors.As(err, &none) {
		t.Fatalf("got %v", err)
	}
	var from []string
	for _, skipped := range none.Tried {
		from = append(from, skipped.From)
	}
	if !slices.Equal(from, []string{"store", "git", "archive:nowhere.tar"}) {
		t.Errorf("tried %v", from)
	}
	var noRef *pin.NoRefError
	if !errors.As(err, &noRef) {
		t.Errorf("%v does not say that upstream lacks the ref", err)
	}
}

func TestCancelled(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	req, _ := request(t, up.Dir)
	req = patched(req)
	ctx, cancel := context.WithCancel(t.Context())
	apply := req.Apply
	req.Apply = func(ctx context.Context, repo git.Repo, pristine string) (string, error) {
		cancel()
		return apply(ctx, repo, pristine)
	}
	if _, err := s.Tree(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	req.Apply = apply
	get(t, s, req)
}

func TestNamesThatDifferByCaseAreRefused(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	up.Commit(map[string]string{"Deep/other": "x\n"}, "b8")
	req, _ := request(t, up.Dir)
	req.Ref = "b8"
	_, err := s.Tree(t.Context(), req)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "Deep and deep differ by case alone") {
		t.Errorf("got %v", err)
	}
}

func TestLinkThatLeadsOutsideIsRefused(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	must(t, os.Symlink("../../etc/passwd", filepath.Join(up.Dir, "deep", "out")))
	up.Commit(nil, "b8")
	req, _ := request(t, up.Dir)
	req.Ref = "b8"
	_, err := s.Tree(t.Context(), req)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "deep/out leads outside") {
		t.Errorf("got %v", err)
	}
}

func TestSubmodulesAreLeftOut(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	up.Run("update-index", "--add", "--cacheinfo", "160000,"+up.Run("rev-parse", "b7")+",third/party")
	up.Run("commit", "-q", "-m", "module")
	up.Run("tag", "b8")
	req, voice := request(t, up.Dir)
	req.Ref = "b8"
	tree := get(t, s, req)
	if tree.Pristine != up.Run("rev-parse", "b7^{tree}") {
		t.Errorf("got tree %s", tree.Pristine)
	}
	voice.has(t, "left out, since they are other repositories: third/party")
}

func TestParseKinds(t *testing.T) {
	if kinds, err := ParseKinds(" mirror, store"); err != nil || !slices.Equal(kinds, []Kind{FromMirror, FromStore}) {
		t.Errorf("got %v, %v", kinds, err)
	}
	if kinds, err := ParseKinds(""); err != nil || !slices.Equal(kinds, DefaultKinds) {
		t.Errorf("got %v, %v", kinds, err)
	}
	for _, text := range []string{"stores", "git,git", "git,"} {
		if kinds, err := ParseKinds(text); err == nil {
			t.Errorf("%q gave %v", text, kinds)
		}
	}
}

func TestKindsRestrict(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	path, sum := archive(t)
	mirror := config.Mirror{Ref: "b7", Archive: path, Path: "vendor/x", SHA256: sum}
	req, _ := request(t, up.Dir, mirror)
	req.Kinds = []Kind{FromStore}
	if _, err := s.Tree(t.Context(), req); err == nil {
		t.Error("an empty store gave a tree")
	}
	req.Kinds = []Kind{FromMirror, FromGit}
	if tree := get(t, s, req); tree.From != mirror.ID() {
		t.Errorf("got %s first", tree.From)
	}
	req.Kinds = []Kind{FromGit}
	if tree := get(t, s, req); tree.From != "git" || tree.Stored {
		t.Errorf("got %+v", tree)
	}
}

func TestBranchStaysWhereTheLockHasIt(t *testing.T) {
	up := upstreamRepo(t)
	req, voice := request(t, up.Dir)
	req.Ref = "main"
	first := get(t, openStore(t), req)
	voice.has(t, "main is a branch of upstream, so it moves")
	up.Commit(map[string]string{"mixed.c": "later\n"})
	req.Entry = locked(req, first)
	if tree := get(t, openStore(t), req); tree.Commit != first.Commit || tree.Pristine != first.Pristine {
		t.Errorf("got %+v; want commit %s", tree, first.Commit)
	}
}

// A mirror that says another commit than upstream is passed over, in words.
func TestMirrorThatContradictsUpstream(t *testing.T) {
	up := upstreamRepo(t)
	path, sum := archive(t)
	wrong := strings.Repeat("1", 40)
	req, voice := request(t, up.Dir, config.Mirror{Ref: "b7", Commit: wrong, Archive: path, Path: "vendor/x", SHA256: sum})
	req.Kinds = []Kind{FromStore, FromMirror, FromGit}
	tree := get(t, openStore(t), req)
	if tree.From != "git" {
		t.Errorf("taken from %s", tree.From)
	}
	voice.has(t, "it says commit "+wrong+", upstream says "+up.Run("rev-parse", "b7"))

	req.Entry = &pin.Entry{Component: "comp", Ref: "b7", Commit: up.Run("rev-parse", "b7"), Sources: []pin.Source{{From: "archive:" + path, Pristine: tree.Pristine}}}
	req.Kinds = []Kind{FromMirror}
	_, err := openStore(t).Tree(t.Context(), req)
	if err == nil || !strings.Contains(err.Error(), "it says commit "+wrong+", payload.lock holds") {
		t.Errorf("against the lock: %v", err)
	}
}

// What can't be compared or read is said plainly.
func TestArchiveThatWontDo(t *testing.T) {
	path, sum := archive(t)
	zip := filepath.Join(t.TempDir(), "x.zip")
	testkit.Write(t, zip, "PK\x03\x04 and so on")
	broken, err := manifest.Digest(zip)
	must(t, err)
	xz := filepath.Join(t.TempDir(), "x.tar.xz")
	testkit.Write(t, xz, "\xfd7zXZ\x00 and so on")
	text, err := manifest.Digest(xz)
	must(t, err)
	for want, m := range map[string]config.Mirror{
		"a file needs its sha256":           {Archive: path},
		"a folder has no sha256 to compare": {Archive: t.TempDir(), SHA256: sum},
		"the file is neither a zip, a tar":  {Archive: xz, SHA256: text},
		"not a valid zip file":              {Archive: zip, SHA256: broken},
		"no such file":                      {Archive: filepath.Join(t.TempDir(), "none"), SHA256: sum},
	} {
		m.Ref = "b7"
		req, _ := request(t, t.TempDir(), m)
		req.Kinds = []Kind{FromMirror}
		if _, err := openStore(t).Tree(t.Context(), req); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// What git laid out is read back before it is put in its place.
func TestCheckoutThatWentWrong(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	real, err := run.LookPath("git")
	must(t, err)
	testkit.Fake(t, "git", real+` "$@" || exit
case " $* " in *" checkout-index "*) printf 'int x;\r\n' >mixed.c ;; esac
`)
	req, _ := request(t, up.Dir)
	_, err = s.Tree(t.Context(), req)
	var damaged *DamagedError
	if !errors.As(err, &damaged) || !slices.Equal(damaged.Files, []string{"mixed.c"}) {
		t.Errorf("got %v", err)
	}
	for _, pattern := range []string{"*.tmp", "*.json", "*.index"} {
		if left, err := filepath.Glob(filepath.Join(s.trees(), pattern)); err != nil || len(left) > 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
	}
}
