package update

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
	"payload/internal/workspace"
)

// killedAt runs an update in this process until a boundary, and leaves
// everything as a kill there leaves it.
func killedAt(t *testing.T, w *workspace.Workspace, build Builder, boundary string, opts Options) {
	t.Helper()
	j := newJob(w, silent(), build)
	j.at = func(at string) {
		if at == boundary {
			panic(boundary)
		}
	}
	defer func() {
		if recover() != boundary {
			t.Fatalf("the update never came to %q", boundary)
		}
	}()
	_ = j.start(t.Context(), opts)
}

// That others move along survives a kill before it's known which.
func TestCoupledIsRemembered(t *testing.T) {
	root, open := pair(t)
	killedAt(t, open(), built, "before sources", Options{Component: "binding", Ref: "v0.2", WithCoupled: true})
	if _, err := Continue(t.Context(), open(), silent(), built, Finish{}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(root, "versions")); string(text) != "engine=v2.0\nbinding=v0.2\n" {
		t.Errorf("%s", text)
	}
}

// Who wants what is moved moves along, too.
func TestCoupledMovesAlongTheOtherWay(t *testing.T) {
	root, open := pair(t)
	r, err := Start(t.Context(), open(), silent(), built, Options{Component: "engine", Ref: "v2.0", WithCoupled: true})
	if err != nil || len(r.Updates) != 2 || len(r.Coupled) != 1 || !r.Coupled[0].Agrees {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = Start(t.Context(), open(), silent(), built, Options{Component: "engine", Ref: "v1.0", WithCoupled: true})
	if err != nil || len(r.Updates) != 2 || r.Updates[1].To != "v0.1" {
		t.Fatalf("backwards: %+v, %v", r, err)
	}
	if text, _ := os.ReadFile(filepath.Join(root, "versions")); string(text) != "engine=v1.0\nbinding=v0.1\n" {
		t.Errorf("%s", text)
	}
}

// An abort that is refused has done nothing: neither commits nor files went.
func TestAbortIsWholeOrNothing(t *testing.T) {
	f := newFixture(t, "offset", "upstreamed")
	before := f.snapshot(t)
	killedAt(t, f.open(t), built, "before close", Options{Component: "toy", Ref: "b101", Commit: true})
	head := f.git(t, "rev-parse", "HEAD")
	written, err := os.ReadFile(filepath.Join(f.root, "TOY_VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, filepath.Join(f.root, "TOY_VERSION"), "b999\n")
	var changed *ChangedError
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); !errors.As(err, &changed) {
		t.Fatalf("%v", err)
	}
	if kept, err := os.ReadFile(filepath.Join(f.root, changed.Kept[0])); err != nil || string(kept) != "b100\n" {
		t.Errorf("kept is %q, %v", kept, err)
	}
	if now := f.git(t, "rev-parse", "HEAD"); now != head {
		t.Errorf("HEAD was moved to %s", f.git(t, "log", "-1", "--format=%s"))
	}
	testkit.Write(t, filepath.Join(f.root, "TOY_VERSION"), string(written))
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); err != nil {
		t.Fatal(err)
	}
	same(t, "aborted", f.snapshot(t), before)
}

// The result names every commit of the update, those from before a kill too.
func TestCommitsBeforeAKillAreTold(t *testing.T) {
	f := newFixture(t, "offset", "upstreamed")
	killedAt(t, f.open(t), built, "before close", Options{Component: "toy", Ref: "b101", Commit: true})
	r, err := f.goOn(t)
	if err != nil || len(r.Commits) != 2 {
		t.Fatalf("commits %v, %v", r.Commits, err)
	}
}

// Nothing is left out once everything is written.
func TestSkipAfterWriting(t *testing.T) {
	f := newFixture(t, "offset")
	fails := func(context.Context, string) (Built, error) { return Built{}, errors.New("no") }
	var broken *WrittenError
	if _, err := Start(t.Context(), f.open(t), silent(), fails, Options{Component: "toy", Ref: "b101", Preset: "p"}); !errors.As(err, &broken) {
		t.Fatalf("%v", err)
	}
	if _, err := Skip(t.Context(), f.open(t), silent(), built, "why", Finish{}); !errors.Is(err, ErrNoConflict) {
		t.Fatalf("%v", err)
	}
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); err != nil {
		t.Fatal(err)
	}
}

// A patch that is a link stays one where an update that dropped it is taken back.
func TestLinkedPatchIsTakenBack(t *testing.T) {
	f := newFixture(t, "offset", "upstreamed")
	name := filepath.Join(f.root, "patches", "0002-upstreamed.patch")
	if err := os.Rename(name, filepath.Join(f.root, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../elsewhere", name); err != nil {
		t.Skip(err)
	}
	fails := func(context.Context, string) (Built, error) { return Built{}, errors.New("no") }
	_, err := Start(t.Context(), f.open(t), silent(), fails, Options{Component: "toy", Ref: "b101", Preset: "p"})
	var broken *WrittenError
	if !errors.As(err, &broken) {
		t.Fatalf("%v", err)
	}
	if _, err := os.Lstat(name); err == nil {
		t.Fatal("the patch was not dropped")
	}
	if _, err := Abort(t.Context(), f.open(t), silent(), ""); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(name); err != nil || to != "../elsewhere" {
		t.Errorf("%q, %v", to, err)
	}
}

// A series may lie behind a linked folder, also one that git tracks there.
func TestLinkedPatchFolder(t *testing.T) {
	f := newFixture(t, "offset", "upstreamed")
	f.git(t, "mv", "patches", "real")
	if err := os.Symlink("real", filepath.Join(f.root, "patches")); err != nil {
		t.Skip(err)
	}
	f.git(t, "add", "patches")
	f.git(t, "commit", "-q", "-m", "link")
	r, err := f.start(t, Options{Ref: "b101", Commit: true})
	if err != nil || len(r.Commits) != 2 {
		t.Fatalf("%+v, %v", r.Commits, err)
	}
	if status := f.git(t, "status", "--porcelain", "--untracked-files=no"); status != "" {
		t.Errorf("not committed: %s", status)
	}
}

// Pin files and copies keep what is around the ref: line ends, spaces, marks
// and modes; one file may hold several copies, be named twice or be a link.
func TestOddPinsAndCopies(t *testing.T) {
	for name, c := range map[string]struct {
		pin, wantPin string
		copies       string
		file, want   string
		link         bool
	}{
		"spaces and CRLF": {pin: "b100 \r\n", wantPin: "b101 \r\n", file: "A=b100\r\n", want: "A=b101\r\n", copies: `[{path: c/f, pattern: '^A=(b\d+)'}]`},
		"no last newline": {pin: "b100", wantPin: "b101", file: "A=b100", want: "A=b101", copies: `[{path: c/f, pattern: '^A=(\S+)$'}]`},
		"a mark":          {pin: "\ufeffb100\n", wantPin: "\ufeffb101\n", file: "b100 b100\n", want: "b101 b101\n", copies: `[{path: c/f, pattern: '(b\d+)'}]`},
		"twice":           {pin: "b100\n", wantPin: "b101\n", file: "A=b100\nB=b100\n", want: "A=b101\nB=b101\n", copies: `[{path: c/f, pattern: '^A=(\S+)$'}, {path: c/f, pattern: '^B=(\S+)$'}]`},
		"two names":       {pin: "b100\n", wantPin: "b101\n", file: "A=b100\nB=b100\n", want: "A=b101\nB=b101\n", copies: `[{path: c/f, pattern: '^A=(\S+)$'}, {path: ./c/f, pattern: '^B=(\S+)$'}]`},
		"a link beside":   {pin: "b100\n", wantPin: "b101\n", file: "A=b100\nB=b100\n", want: "A=b101\nB=b101\n", copies: `[{path: c/f, pattern: '^A=(\S+)$'}, {path: c/l, pattern: '^B=(\S+)$'}]`, link: true},
		"a disagreeing":   {pin: "b100\n", wantPin: "b101\n", file: "A=b099\n", want: "A=b101\n", copies: `[{path: c/f, pattern: '^A=(\S+)$'}]`},
	} {
		t.Run(name, func(t *testing.T) {
			up, root := testkit.Repo(t), t.TempDir()
			up.Commit(map[string]string{"a": "1\n"}, "b100")
			up.Commit(map[string]string{"a": "2\n"}, "b101")
			testkit.Write(t, filepath.Join(root, "payload.yaml"), "version: 1\ncomponents:\n  toy:\n    pin: PIN\n    upstream: "+up.Dir+"\n    copies: "+c.copies+"\n")
			testkit.Write(t, filepath.Join(root, "PIN"), c.pin)
			testkit.Write(t, filepath.Join(root, "c/f"), c.file)
			if err := os.Chmod(filepath.Join(root, "c/f"), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.link {
				if err := os.Symlink("f", filepath.Join(root, "c/l")); err != nil {
					t.Skip(err)
				}
			}
			w, err := workspace.Open(t.Context(), workspace.Options{Dir: root})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Start(t.Context(), w, silent(), built, Options{Component: "toy", Ref: "b101"}); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{"PIN": c.wantPin, "c/f": c.want} {
				if text, _ := os.ReadFile(filepath.Join(root, path)); string(text) != want {
					t.Errorf("%s is %q, want %q", path, text, want)
				}
			}
			info, err := os.Lstat(filepath.Join(root, "c/f"))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			if _, err := os.Stat(filepath.Join(root, "build")); err == nil {
				t.Error("build/ is left over")
			}
		})
	}
}

// A pin that holds several lines or nothing stops before anything begins.
func TestPinThatIsNone(t *testing.T) {
	root, open := pair(t)
	testkit.Write(t, filepath.Join(root, "ENGINE"), "v1.0\nv2.0\n")
	_, err := Start(t.Context(), open(), silent(), built, Options{Component: "engine", Ref: "v2.0"})
	if err == nil || !strings.Contains(err.Error(), "several lines") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "build")); err == nil {
		t.Error("build/ is left over")
	}
}

// What lies outside of the repository is carried along and can't be committed;
// nothing is left out of a commit in silence.
func TestPatchFolderOutside(t *testing.T) {
	f := newFixture(t, "offset")
	if err := os.Rename(filepath.Join(f.root, "patches"), filepath.Join(f.upstream.Dir, "..", "patches")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../patches", filepath.Join(f.root, "patches")); err != nil {
		t.Skip(err)
	}
	var not *NotCommittableError
	if _, err := f.start(t, Options{Ref: "b101", Commit: true}); !errors.As(err, &not) || !strings.Contains(not.Why, "behind a link") {
		t.Fatalf("%v", err)
	}
	no := false
	r, err := Continue(t.Context(), f.open(t), silent(), built, Finish{Commit: &no})
	if err != nil || r.Status != Done || len(r.Commits) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
