package git

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/testkit"
)

// folder makes a tree with everything that git likes to change or leave out.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Write(t, dir+"/.gitattributes", "*.txt text eol=crlf\n*.id ident\nsecret export-ignore\n")
	testkit.Write(t, dir+"/.gitignore", "*.log\n")
	testkit.Write(t, dir+"/a.txt", "one\r\ntwo\n")
	testkit.Write(t, dir+"/b.id", "$Id$\n")
	testkit.Write(t, dir+"/secret", "s\n")
	testkit.Write(t, dir+"/kept.log", "ignored by name\n")
	testkit.Write(t, dir+"/sub/.git", "gitdir: ../elsewhere\n")
	testkit.Write(t, dir+"/sub/run", "#!/bin/sh\n")
	if err := os.Chmod(dir+"/sub/run", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.txt", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T) Repo {
	t.Helper()
	r, err := Open(t.Context(), filepath.Join(t.TempDir(), "git"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What goes in comes out, byte for byte, and has the id that says so.
func TestTreesKeepEveryByte(t *testing.T) {
	ctx, r, dir := t.Context(), open(t), folder(t)
	tree, err := r.WriteDir(ctx, dir, filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	listed, err := r.Text(ctx, "ls-tree", "-r", tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kept.log", "100755 blob", "120000 blob", "secret"} {
		if !strings.Contains(listed, want) {
			t.Errorf("the tree lacks %q:\n%s", want, listed)
		}
	}
	if strings.Contains(listed, ".git\n") || strings.HasSuffix(listed, ".git") {
		t.Errorf("a stray .git is in the tree:\n%s", listed)
	}
	out, index := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "index")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Checkout(ctx, tree, out, index); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.txt", "b.id", "secret", "kept.log", "sub/run"} {
		want, _ := os.ReadFile(filepath.Join(dir, name))
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, want %q; %v", name, got, want, err)
		}
	}
	again, err := r.WriteDir(ctx, out, filepath.Join(t.TempDir(), "index"))
	if err != nil || again != tree {
		t.Errorf("hashed again: %s, want %s; %v", again, tree, err)
	}
}

func TestChangedNamesWhatDiffers(t *testing.T) {
	ctx, r := t.Context(), open(t)
	tree, err := r.WriteDir(ctx, folder(t), filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		do   func(dir string) error
		want []string
	}{
		"nothing":       {func(string) error { return nil }, nil},
		"changed":       {func(d string) error { return os.WriteFile(d+"/secret", []byte("t\n"), 0o644) }, []string{"secret"}},
		"mode":          {func(d string) error { return os.Chmod(d+"/sub/run", 0o644) }, []string{"sub/run"}},
		"missing":       {func(d string) error { return os.Remove(d + "/a.txt") }, []string{"a.txt"}},
		"ignored extra": {func(d string) error { return os.WriteFile(d+"/x.log", nil, 0o644) }, []string{"x.log"}},
		"a .git":        {func(d string) error { return os.Mkdir(d+"/.git", 0o755) }, []string{".git"}},
		"empty folder":  {func(d string) error { return os.Mkdir(d+"/empty", 0o755) }, []string{"empty"}},
		"other link":    {func(d string) error { return relink(d+"/link", "secret") }, []string{"link"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, index := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "index")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := r.Checkout(ctx, tree, dir, index); err != nil {
				t.Fatal(err)
			}
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
			got, err := r.Changed(ctx, tree, dir, index)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q; %v", got, c.want, err)
			}
		})
	}
}

func relink(path, target string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// The user's own settings must not reach what is computed.
func TestUserConfigurationIsNotRead(t *testing.T) {
	home := t.TempDir()
	testkit.Write(t, home+"/.gitconfig", "[core]\n\tautocrlf = true\n\thooksPath = /nowhere\n[init]\n\tdefaultObjectFormat = sha256\n")
	dir := folder(t)
	plain, err := open(t).WriteDir(t.Context(), dir, filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", home)
	again, err := open(t).WriteDir(t.Context(), dir, filepath.Join(t.TempDir(), "index"))
	if err != nil || again != plain {
		t.Errorf("%s, want %s; %v", again, plain, err)
	}
}

func TestRemoteTags(t *testing.T) {
	up := testkit.Repo(t)
	commit := up.Commit(map[string]string{"a": "1\n"}, "b1", "b2")
	up.Run("tag", "-a", "-m", "annotated", "b3")
	tags, err := RemoteTags(t.Context(), up.Dir)
	if err != nil || !slices.Equal(tags, []Tag{{"b1", commit}, {"b2", commit}, {"b3", commit}}) {
		t.Errorf("%q, %v", tags, err)
	}
	refs, err := LsRemote(t.Context(), up.Dir, "refs/tags/b3", "refs/tags/b3^{}")
	if err != nil || len(refs) != 2 || refs[1].ID != commit {
		t.Errorf("%+v, %v", refs, err)
	}
}
