package adopt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/testkit"
)

const id = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"

const goodPatch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"

// look adopts a plain folder with these files and tells in lines what was found.
func look(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		testkit.Write(t, filepath.Join(root, filepath.FromSlash(name)), text)
	}
	return told(t, root)
}

func told(t *testing.T, root string) string {
	t.Helper()
	found, err := Look(context.Background(), root)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range found.Components {
		line := fmt.Sprintf("%s = %s of %s pin %s", c.Name, c.Ref, c.Upstream, c.Pin)
		if c.NewPin {
			line += " (new)"
		}
		if c.Patches != "" {
			line += " patches " + c.Patches
		}
		lines = append(lines, fmt.Sprint(line, " from ", c.From))
	}
	for _, s := range found.Skipped {
		lines = append(lines, fmt.Sprintf("%s: %s", s.Where, s.Why))
	}
	return strings.Join(lines, "\n")
}

func TestLook(t *testing.T) {
	const declared = "FetchContent_Declare(lib GIT_REPOSITORY https://example.com/lib.cpp.git GIT_TAG b12)\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string // all of it; a line that ends in … is a beginning
	}{
		"nothing": {map[string]string{"VERSION": "1.2\n", "README.md": "x"}, ""},
		"pin file of a computed tag": {
			map[string]string{
				"LIB_CPP_VERSION": "b12\n",
				"native/CMakeLists.txt": "file(READ ../LIB_CPP_VERSION TAG)\nset(TAG unset)\nfile(READ x TAG)\n" +
					"FetchContent_Declare(lib GIT_REPOSITORY https://example.com/lib.cpp GIT_TAG ${TAG})\n",
			},
			"lib.cpp = b12 of https://example.com/lib.cpp pin LIB_CPP_VERSION from [native/CMakeLists.txt:4 LIB_CPP_VERSION:1]",
		},
		"computed tag alone": {
			map[string]string{"CMakeLists.txt": "ExternalProject_Add(lib GIT_REPOSITORY https://example.com/lib GIT_TAG ${TAG})\n"},
			"CMakeLists.txt:1: GIT_TAG holds ${TAG}, which this file does not set to one literal value",
		},
		"computed tag and a pin file of no use": {
			map[string]string{"CMakeLists.txt": "ExternalProject_Add(lib GIT_REPOSITORY https://example.com/lib GIT_TAG ${TAG})\n", "LIB_VERSION": "main\n"},
			"CMakeLists.txt:1: GIT_TAG holds ${TAG}…\nLIB_VERSION:1: \"main\" is a branch by its name…",
		},
		"two values of a variable": {
			map[string]string{"a.cmake": "if(X)\nset(TAG b1)\nelse()\nset(TAG b2)\nendif()\nExternalProject_Add(lib GIT_REPOSITORY https://example.com/lib GIT_TAG ${TAG})\n"},
			"a.cmake:6: GIT_TAG holds ${TAG}, which…",
		},
		"pin file that agrees": {
			map[string]string{"CMakeLists.txt": declared, "lib/LIB_CPP_VERSION": "b12\r\n"},
			"lib.cpp = b12 of https://example.com/lib.cpp.git pin lib/LIB_CPP_VERSION from [CMakeLists.txt:1 lib/LIB_CPP_VERSION:1]",
		},
		"two that disagree": {
			map[string]string{"CMakeLists.txt": declared, "Dockerfile": "ARG LIB_CPP_VERSION=b13\n"},
			"CMakeLists.txt:1: lib.cpp is b12 here and b13 in Dockerfile:1; which one is meant is not known\n" +
				"Dockerfile:1: lib.cpp is b13 here and b12 in CMakeLists.txt:1; which one is meant is not known",
		},
		"a pin file of several lines": {
			map[string]string{"CMakeLists.txt": declared, "LIB_CPP_VERSION": "b12\nb13\n"},
			"CMakeLists.txt:1: the pin file of lib.cpp would be LIB_CPP_VERSION, which is there and holds something else\n" +
				"LIB_CPP_VERSION:1: holds several lines, and a pin file holds one ref alone",
		},
		"two upstreams of one name": {
			map[string]string{"CMakeLists.txt": declared + strings.Replace(declared, "example.com", "example.org", 1)},
			"CMakeLists.txt:1: https://example.com/lib.cpp.git is one of several…\nCMakeLists.txt:2: https://example.org/lib.cpp.git is one of several…",
		},
		"one upstream spelled twice": {
			map[string]string{"CMakeLists.txt": declared, "x.cmake": "FetchContent_Declare(z GIT_REPOSITORY git@example.com:lib.cpp GIT_TAG b12)"},
			"lib.cpp = b12 of https://example.com/lib.cpp.git pin LIB_CPP_VERSION (new) from [CMakeLists.txt:1 x.cmake:1]",
		},
		"archives": {
			map[string]string{"deps.cmake": "FetchContent_Declare(a URL https://github.com/o/a/archive/refs/tags/v1.2.tar.gz URL_HASH SHA256=00)\n" +
				"FetchContent_Declare(b URL https://github.com/o/b/archive/v1.2.zip)\n" +
				"FetchContent_Declare(c URL https://example.com/c-1.2.tar.gz URL_HASH SHA256=00)\n" +
				"FetchContent_Declare(d URL https://gitlab.com/g/s/d/-/archive/v3/d-v3.tar.gz URL_HASH SHA256=00)\n"},
			"a = v1.2 of https://github.com/o/a pin A_VERSION (new) from [deps.cmake:1]\n" +
				"d = v3 of https://gitlab.com/g/s/d pin D_VERSION (new) from [deps.cmake:4]\n" +
				"deps.cmake:2: URL has no URL_HASH…\ndeps.cmake:3: URL https://example.com/c-1.2.tar.gz is no forge's archive…",
		},
		"short hash, branch, none": {
			map[string]string{"deps.cmake": "FetchContent_Declare(a GIT_REPOSITORY https://example.com/a GIT_TAG 0c1e570)\n" +
				"FetchContent_Declare(b GIT_REPOSITORY https://example.com/b GIT_TAG origin/main)\n" +
				"FetchContent_Declare(c GIT_REPOSITORY https://example.com/c GIT_SHALLOW TRUE)\n"},
			"deps.cmake:1: \"0c1e570\" looks like an abbreviated commit…\ndeps.cmake:2: \"origin/main\" is a branch…\ndeps.cmake:3: has no GIT_TAG…",
		},
		"a makefile": {
			map[string]string{"Makefile.sync": "# FETCH_HEAD=1\nUPSTREAM=https://github.com/o/lib.cpp.git\nFETCH_HEAD=" + strings.ToUpper(id) + "\n# see https://github.com/o/docs/issues/1\n"},
			"lib.cpp = " + id + " of https://github.com/o/lib.cpp.git pin LIB_CPP_VERSION (new) from [Makefile.sync:3]",
		},
		"a commit of nobody knows what": {
			map[string]string{"a.mk": "FETCH_HEAD=" + id + "\n", "b.mk": "FETCH_HEAD=" + id + "\nx:\n\tgit clone https://github.com/o/a && git clone https://github.com/o/b\n"},
			"a.mk:1: a commit is pinned here, but the file names no repository…\nb.mk:1: a commit is pinned here, and the file names several…",
		},
		"lines": {
			map[string]string{
				"Dockerfile":            "ARG GO_VERSION=1.26\nARG LIB_CPP_VERSION=b12 # pinned\nRUN git clone --branch ${LIB_CPP_VERSION} https://github.com/o/lib.cpp.git\n",
				".github/workflows/t.y": "x", "ci/build.yml": "env:\n  ALONE_VERSION: b77\n  LIB_CPP_VERSION: \"b12\"\n",
			},
			"lib.cpp = b12 of https://github.com/o/lib.cpp.git pin LIB_CPP_VERSION (new) from [Dockerfile:2 ci/build.yml:3]\n" +
				"ci/build.yml:2: b77 is pinned here, but no file names its upstream",
		},
		"a version beside its repository": {
			map[string]string{"Makefile": "LIB_VERSION?=" + id + "\nLIB_REPO?=https://github.com/o/lib.cpp\n"},
			"lib.cpp = " + id + " of https://github.com/o/lib.cpp pin LIB_CPP_VERSION (new) from [Makefile:1]",
		},
		"a series by path": {
			map[string]string{
				"CMakeLists.txt":               declared + "FetchContent_Declare(z GIT_REPOSITORY https://example.com/z GIT_TAG v1)",
				"patches/lib-cpp/0001-a.patch": goodPatch, "patches/lib-cpp/0002-b.patch": goodPatch, "misc/0001-c.patch": goodPatch,
			},
			"lib.cpp = b12 of https://example.com/lib.cpp.git pin LIB_CPP_VERSION (new) patches patches/lib-cpp from [CMakeLists.txt:1]\n" +
				"z = v1 of https://example.com/z pin Z_VERSION (new) from [CMakeLists.txt:2]\n" +
				"misc: no file says which component these patches are for",
		},
		"a series that is not whole": {
			map[string]string{"CMakeLists.txt": declared, "p/0001-a.patch": goodPatch, "p/0001-b.patch": goodPatch, "p/fix.patch": goodPatch, "p/0002-c.diff": goodPatch, "p/0003-d.patch": "hello\n"},
			"lib.cpp = b12 of https://example.com/lib.cpp.git pin LIB_CPP_VERSION (new) from [CMakeLists.txt:1]\n" +
				"p/0001-b.patch: has the number 1, and so has 0001-a.patch…\np/0002-c.diff: ends in .diff…\np/0003-d.patch: can't be read as a patch…\np/fix.patch: begins with no number…",
		},
		"a fault in CMake": {
			map[string]string{"CMakeLists.txt": declared + "FetchContent_Declare(z \"GIT_REPOSITORY\n"},
			"lib.cpp = b12 of https://example.com/lib.cpp.git pin LIB_CPP_VERSION (new) from [CMakeLists.txt:1]\n" +
				"CMakeLists.txt: is read up to a fault only: line 2: fetchcontent_declare: a quote is not closed",
		},
		"a nested repository": {map[string]string{"vendor/x/.git/HEAD": "ref", "vendor/x/CMakeLists.txt": declared}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Split(look(t, c.files), "\n")
			want := strings.Split(c.want, "\n")
			same := slices.EqualFunc(got, want, func(g, w string) bool {
				begin, open := strings.CutSuffix(w, "…")
				return g == w || open && strings.HasPrefix(g, begin)
			})
			if !same {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

// Submodules are taken at the commit of the index; ignored files are not read.
func TestSubmodules(t *testing.T) {
	lib := testkit.Repo(t)
	commit := lib.Commit(map[string]string{"a": "a\n", "CMakeLists.txt": "FetchContent_Declare(x GIT_REPOSITORY https://example.com/x GIT_TAG b1)\n"})
	app := testkit.Repo(t)
	app.Run("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib.Dir, "third_party/lib")
	app.Commit(map[string]string{".gitignore": "build/\n", "build/CMakeLists.txt": "FetchContent_Declare(y GIT_REPOSITORY https://example.com/y GIT_TAG b1)\n"})
	app.Run("rm", "-q", "--cached", "build/CMakeLists.txt")
	testkit.Write(t, filepath.Join(app.Dir, ".gitmodules"), "[submodule \"a\"]\n\tpath = third_party/lib\n\turl = "+lib.Dir+"\n"+
		"[submodule \"b\"]\n\tpath = gone\n\turl = https://example.com/gone\n[submodule \"c\"]\n\tpath = rel\n\turl = ../rel.git\n")
	name := filepath.Base(lib.Dir)
	want := name + " = " + commit + " of " + lib.Dir + " pin " + name + "_VERSION (new) from [.gitmodules:2]\n" +
		".gitmodules:5: the index holds no commit for the submodule \"gone\"\n" +
		".gitmodules:8: the submodule's address \"../rel.git\" is relative to wherever this repository was cloned from"
	if got := told(t, app.Dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// After an error nothing is left of a plan.
func TestWriteUndoes(t *testing.T) {
	root := t.TempDir()
	p := Plan{
		Folders: []string{"a/b"},
		Files:   []File{{"a/b/X_VERSION", []byte("b1\n")}, {"no/such/folder", nil}, {"payload.yaml", []byte("version: 1\n")}},
	}
	if written, err := p.Write(root); err == nil || written != nil {
		t.Fatalf("%v, %v", written, err)
	}
	left, err := os.ReadDir(root)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNames(t *testing.T) {
	for from, want := range map[string]string{
		"https://example.com/o/lib.cpp.git/": "lib.cpp", "git@host:lib.git": "lib", "../up": "up", "https://example.com/~a b": "a-b",
	} {
		if got := nameOf(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
	same := map[string]bool{}
	for _, u := range []string{"https://Example.com/o/Lib.git", "http://example.com/o/lib/", "ssh://git@example.com/o/lib", "git@example.com:o/lib.git"} {
		same[sameRepository(u)] = true
	}
	if len(same) != 1 {
		t.Errorf("%v", slices.Collect(maps.Keys(same)))
	}
}
