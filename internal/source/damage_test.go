package source

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/internal/git"
	"payload/internal/run"
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

// Without the store's own attributes a tree's would change line ends on the way
// out, and change them back when the files are hashed to check them.
func TestAttributesAndConfigurationAreOurs(t *testing.T) {
	for _, name := range []string{"info/attributes", "config"} {
		for _, text := range []string{"", "* text=auto eol=crlf\n"} {
			s, req, tree := lockedTree(t)
			must(t, os.WriteFile(filepath.Join(s.repo.Dir, filepath.FromSlash(name)), []byte(text), 0o644))
			must(t, removeAll(s.trees()))
			s, err := Open(t.Context(), s.Dir())
			must(t, err)
			again := get(t, s, req)
			assertHard(t, again.Path)
			if again.Patched != tree.Patched || !s.repo.Settled() {
				t.Errorf("%s of %q: got %+v", name, text, again)
			}
		}
	}
}

// Trees are checked by means of the repository, so it has to be made good first.
func TestPruneOfADamagedRepository(t *testing.T) {
	for _, name := range []string{"HEAD", "objects"} {
		t.Run(name, func(t *testing.T) {
			s, req, tree := lockedTree(t)
			path := filepath.Join(s.repo.Dir, name)
			must(t, removeAll(path))
			must(t, os.WriteFile(path, nil, 0o644))
			must(t, os.Remove(tree.index)) // so that looking needs the repository
			if _, err := s.Tree(t.Context(), req); !errors.Is(err, run.ErrDamaged) {
				t.Errorf("before: %v", err)
			}
			p, err := s.Prune(t.Context(), PruneOptions{TreesOf: listed, Damaged: true})
			if err != nil || len(p.Files) != 1 || len(p.Trees) != 0 {
				t.Errorf("prune: %+v, %v", p, err)
			}
			if again := get(t, s, req); again.Patched != tree.Patched {
				t.Errorf("after: %+v", again)
			}
		})
	}
}

// A tree is no proof of its files: what an interrupted git left, or a disk lost,
// is read from its source again.
func TestTreeWithoutItsFilesIsReadAgain(t *testing.T) {
	s, req, tree := lockedTree(t)
	upstream := filepath.Dir(req.Component.Upstream)
	must(t, removeAll(s.trees()))
	must(t, os.Mkdir(s.trees(), 0o755))
	packs, err := filepath.Glob(filepath.Join(s.repo.Dir, "objects", "pack", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("what was fetched is in the packs %v, %v; want one", packs, err)
	}
	keepTrees(t, s, packs[0], tree.Pristine)
	if has, err := s.repo.Has(t.Context(), tree.Pristine); err != nil || !has {
		t.Fatalf("the fixture lost its tree: %v, %v", has, err)
	}
	_, err = s.Tree(t.Context(), req)
	var none *NoSourceError
	if !errors.As(err, &none) {
		t.Errorf("without upstream: %v", err)
	}
	req.Component.Upstream = upstream
	assertHard(t, get(t, s, req).Path)
}

// keepTrees takes a pack away and puts the trees that it held back, alone.
func keepTrees(t *testing.T, s *Store, pack, tree string) {
	t.Helper()
	out, err := s.repo.Text(t.Context(), "ls-tree", "-r", "-d", "--object-only", tree)
	must(t, err)
	ids := append(strings.Fields(out), tree)
	content := map[string][]byte{}
	for _, id := range ids {
		data, err := s.repo.Do(t.Context(), git.Call{Args: []string{"cat-file", "tree", id}})
		must(t, err)
		content[id] = data
	}
	for _, part := range []string{pack, strings.TrimSuffix(pack, ".pack") + ".idx"} {
		must(t, os.Chmod(part, 0o644))
		must(t, os.Remove(part))
	}
	for _, data := range content {
		_, err := s.repo.Do(t.Context(), git.Call{Args: []string{"hash-object", "-t", "tree", "-w", "--stdin", "--literally"}, Stdin: bytes.NewReader(data)})
		must(t, err)
	}
}

// The repositories of upstream's commits are checked too, and what was left out
// of them when fetching is no damage.
func TestDamagedCommits(t *testing.T) {
	for _, kind := range []string{historyKind, lineageKind} {
		for name, damage := range map[string]func(t *testing.T, dir, pack string){
			"byte flipped": func(t *testing.T, _, pack string) {
				t.Helper()
				data, err := os.ReadFile(pack)
				must(t, err)
				data[len(data)/2] ^= 0x40
				must(t, os.Chmod(pack, 0o644))
				must(t, os.WriteFile(pack, data, 0o644))
			},
			"cut": func(t *testing.T, _, pack string) {
				t.Helper()
				must(t, os.Chmod(pack, 0o644))
				must(t, os.Truncate(pack, 40))
			},
			"index of the pack gone": func(t *testing.T, _, pack string) {
				t.Helper()
				must(t, os.Remove(strings.TrimSuffix(pack, ".pack")+".idx"))
			},
			"pack gone": func(t *testing.T, _, pack string) {
				t.Helper()
				must(t, os.Remove(pack))
			},
			"head": func(t *testing.T, dir, _ string) {
				t.Helper()
				must(t, os.WriteFile(filepath.Join(dir, "HEAD"), nil, 0o644))
			},
			"loose object": func(t *testing.T, dir, _ string) {
				t.Helper()
				path := filepath.Join(dir, "objects", "12", strings.Repeat("34", 19))
				testkit.Write(t, path, "x")
			},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				s, req, ends := partialUpstream(t)
				use := func() error {
					if kind == historyKind {
						h, err := s.History(t.Context(), req, ends[0], ends[1])
						if err == nil {
							_, err = h.Of(t.Context(), ends[0], ends[1], "f")
						}
						return err
					}
					l, err := s.Lineage(t.Context(), req.File.Location(req.Component), t.Logf)
					if err == nil {
						_, err = l.Places(t.Context())
					}
					return err
				}
				verify := func(want int) []*DamagedError {
					t.Helper()
					_, damaged, err := s.Verify(t.Context())
					if err != nil || len(damaged) != want {
						t.Fatalf("found %v, %v; want %d", damaged, err, want)
					}
					return damaged
				}
				must(t, use())
				verify(0)
				dir := filepath.Join(s.dir, kind, digest(req.File.Location(req.Component)))
				packs, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
				if err != nil || len(packs) == 0 {
					t.Fatalf("packs: %v, %v", packs, err)
				}
				damage(t, dir, packs[0])
				if found := verify(1)[0]; found.Path != dir || found.Component != "" || len(found.Files) == 0 {
					t.Errorf("found %+v", found)
				}
				p, err := s.Prune(t.Context(), PruneOptions{TreesOf: listed, Damaged: true})
				if err != nil || len(p.Files) != 1 || p.Files[0].Path != dir {
					t.Errorf("prune: %+v, %v", p, err)
				}
				verify(0)
				must(t, use())
				verify(0)
				if name == "byte flipped" {
					packs, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
					must(t, err)
					damage(t, dir, packs[0])
					if err := use(); !errors.Is(err, run.ErrDamaged) {
						t.Errorf("a use of it: %v", err)
					}
				}
			})
		}
	}
}
