package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"payload/internal/testkit"
)

// lockedTree gives a store with one locked, laid out tree.
func lockedTree(t *testing.T) (*Store, Request, *Tree) {
	t.Helper()
	up, s := upstreamRepo(t), openStore(t)
	req, _ := request(t, up.Dir)
	req = patched(req)
	tree := get(t, s, req)
	req.Entry = locked(req, tree)
	req.Component.Upstream = filepath.Join(up.Dir, "gone")
	return s, req, tree
}

// writable lets a test running without superuser's rights damage the tree.
func writable(t *testing.T, tree *Tree, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.Chmod(filepath.Join(tree.Path, name), 0o755))
	}
}

func TestDamageIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		files  []string
	}{
		"byte flipped": {func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, "mixed.c")
			must(t, os.Chmod(path, 0o644))
			must(t, os.WriteFile(path, []byte("int a;\r\nint c;\n"), 0o444))
		}, []string{"mixed.c"}},
		"byte flipped, times kept": {func(t *testing.T, dir string) {
			t.Helper()
			// As old as a real tree is: git reads files again that are as young
			// as the index, and its stat data has whole seconds only.
			index := dir + ".index"
			info, err := os.Stat(index)
			must(t, err)
			must(t, os.Chtimes(index, time.Time{}, info.ModTime().Add(2*time.Second)))
			time.Sleep(1100 * time.Millisecond)
			path := filepath.Join(dir, "crlf.txt")
			info, err = os.Stat(path)
			must(t, err)
			data, err := os.ReadFile(path)
			must(t, err)
			data[0] ^= 1
			must(t, os.Chmod(path, 0o644))
			must(t, os.WriteFile(path, data, 0o644))
			must(t, os.Chmod(path, info.Mode()))
			must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		}, []string{"crlf.txt"}},
		"ignored file added": {func(t *testing.T, dir string) {
			t.Helper()
			testkit.Write(t, filepath.Join(dir, "build", "x.log"), "x")
		}, []string{"build/x.log"}},
		"file removed": {func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.Remove(filepath.Join(dir, "PATCHED")))
		}, []string{"PATCHED"}},
		"made executable": {func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.Chmod(filepath.Join(dir, "mixed.c"), 0o555))
		}, []string{"mixed.c"}},
		"link turned": {func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.Remove(filepath.Join(dir, "link")))
			must(t, os.Symlink("mixed.c", filepath.Join(dir, "link")))
		}, []string{"link"}},
		"repository added": {func(t *testing.T, dir string) {
			t.Helper()
			testkit.Write(t, filepath.Join(dir, "sub", ".git"), "gitdir: x\n")
		}, []string{"sub/.git"}},
		"folder added": {func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.Mkdir(filepath.Join(dir, "sub", "empty"), 0o755))
		}, []string{"sub/empty"}},
		"two at once": {func(t *testing.T, dir string) {
			t.Helper()
			testkit.Write(t, filepath.Join(dir, "new.c"), "x")
			must(t, os.Remove(filepath.Join(dir, "deep", "er", "still", "x")))
		}, []string{"deep/er/still/x", "new.c"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, req, _ := lockedTree(t)
			tree, err := s.Tree(t.Context(), req)
			must(t, err)
			writable(t, tree, "", "build", "sub", "deep/er/still")
			must(t, tree.Check(t.Context())) // the folders' own modes are no damage
			c.damage(t, tree.Path)

			var damaged *DamagedError
			if err := tree.Check(t.Context()); !errors.As(err, &damaged) || !slices.Equal(damaged.Files, c.files) {
				t.Errorf("after compiling: %v; want %v", err, c.files)
			}
			must(t, tree.Close())
			for range 2 { // the first look must not make the damage good
				if _, err := s.Tree(t.Context(), req); !errors.As(err, &damaged) || !slices.Equal(damaged.Files, c.files) || damaged.Path != tree.Path {
					t.Errorf("before use: %v; want %v", err, c.files)
				}
			}
			req.Repair = true
			assertHard(t, get(t, s, req).Path)
			req.Repair = false
			if again := get(t, s, req); again.Patched != tree.Patched {
				t.Errorf("after repair: %+v", again)
			}
		})
	}
}

func TestWhatIsNotDamage(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *Store, tree *Tree){
		"other times and inodes": func(t *testing.T, s *Store, tree *Tree) {
			t.Helper()
			writable(t, tree, "")
			path := filepath.Join(tree.Path, "mixed.c")
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.Remove(path))
			must(t, os.WriteFile(path, data, 0o444))
			must(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
		},
		"damaged index": func(t *testing.T, s *Store, tree *Tree) {
			t.Helper()
			data, err := os.ReadFile(tree.index)
			must(t, err)
			data[len(data)/2] ^= 0x80
			must(t, os.WriteFile(tree.index, data, 0o644))
		},
		"empty index": func(t *testing.T, s *Store, tree *Tree) {
			t.Helper()
			must(t, os.WriteFile(tree.index, nil, 0o644))
		},
		"lost index": func(t *testing.T, s *Store, tree *Tree) {
			t.Helper()
			must(t, os.Remove(tree.index))
		},
		"lost objects": func(t *testing.T, s *Store, tree *Tree) {
			t.Helper()
			must(t, removeAll(s.repo.Dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, req, tree := lockedTree(t)
			change(t, s, tree)
			s, err := Open(t.Context(), s.Dir())
			must(t, err)
			if again := get(t, s, req); again.Patched != tree.Patched {
				t.Errorf("got %+v", again)
			}
			// And the quick way works again.
			if names, err := s.repo.Changed(t.Context(), tree.Patched, tree.Path, tree.index); err != nil || len(names) > 0 {
				t.Errorf("the index was not brought up to date: %v, %v", names, err)
			}
		})
	}
}

// A damaged file must be found also where the index says nothing any more.
func TestDamageWithoutIndexOrObjects(t *testing.T) {
	s, req, tree := lockedTree(t)
	path := filepath.Join(tree.Path, "mixed.c")
	must(t, os.Chmod(path, 0o644))
	must(t, os.WriteFile(path, []byte("other\n"), 0o644))
	must(t, os.Remove(tree.index))
	must(t, removeAll(s.repo.Dir))
	s, err := Open(t.Context(), s.Dir())
	must(t, err)
	var damaged *DamagedError
	if _, err := s.Tree(t.Context(), req); !errors.As(err, &damaged) || len(damaged.Files) == 0 {
		t.Errorf("got %v", err)
	}
}

func TestLostRecordIsDamage(t *testing.T) {
	s, req, tree := lockedTree(t)
	must(t, os.Remove(tree.Path+".json"))
	var damaged *DamagedError
	if _, err := s.Tree(t.Context(), req); !errors.As(err, &damaged) {
		t.Errorf("got %v", err)
	}
	req.Repair = true
	get(t, s, req)
}
