package review

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/report"
	"payload/internal/source"
	"payload/internal/testkit"
)

var update = flag.Bool("update", false, "write what the cases give into their want sections")

// fixture is upstream at two refs and a repository of ours.
type fixture struct {
	up       testkit.Git
	old, new string // commits
	file     *config.File
}

// build makes one from files named old/…, new/…, ours/… and the text of
// payload.yaml below watch.
func build(t *testing.T, files map[string]string) fixture {
	t.Helper()
	f := fixture{up: testkit.Repo(t)}
	at := map[string]map[string]string{"old": {}, "new": {}}
	root := t.TempDir()
	for name, text := range files {
		side, path, _ := strings.Cut(name, "/")
		switch side {
		case "old", "new":
			at[side][path] = text
		case "ours":
			testkit.Write(t, filepath.Join(root, filepath.FromSlash(path)), text)
		}
	}
	at["old"]["README"], at["new"]["README"] = "1\n", "2\n"
	f.old = f.up.Commit(at["old"], "b1")
	for path := range at["old"] {
		if _, kept := at["new"][path]; !kept {
			at["new"][path] = ""
		}
	}
	f.new = f.up.Commit(at["new"], "b2")
	text := "version: 1\ncomponents:\n  toy:\n    pin: V\n    upstream: /nowhere\n    watch:\n      rules:\n" + files["rules"]
	testkit.Write(t, filepath.Join(root, config.FileName), text)
	file, err := config.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	f.file = file
	return f
}

func (f fixture) input() Input {
	side := func(ref, commit string) Side {
		return Side{Ref: ref, Commit: commit, Tree: f.up.Run("rev-parse", commit+"^{tree}")}
	}
	repo := git.Repo{Dir: filepath.Join(f.up.Dir, ".git")}
	history := source.HistoryIn(repo)
	return Input{
		Repo: repo, History: &history, File: f.file, Component: f.file.Components[0],
		Old: side("b1", f.old), New: side("b2", f.new),
	}
}

// lines are findings in one line each, with what of ours depends on them.
func lines(found []report.Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s %s %s: %s", f.Severity, f.Category, f.ID, f.Title)
		for _, p := range f.Affects {
			fmt.Fprintf(&b, " <- %s:%d", p.Path, p.Line)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestCases runs the files of testdata/case: each holds the classes of one
// area, every change once, beside decoys that must stay silent: comments, tests,
// another order, another layout.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/case/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d cases, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for _, f := range archive.Files {
				files[f.Name] = string(f.Data)
			}
			f := build(t, files)
			res, err := Run(t.Context(), f.input())
			if err != nil {
				t.Fatal(err)
			}
			got := lines(res.Findings)
			if *update {
				i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
				archive.Files[i].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != files["want"] {
				t.Errorf("got\n%s\nwant\n%s", got, files["want"])
			}
			for _, one := range res.Findings {
				checkFinding(t, f, one)
			}
		})
	}
}

var idForm = regexp.MustCompile(`^[a-z][a-z0-9-]*\.[a-z0-9-]+$`)

// checkFinding holds what is true of every finding: its id's form, that its
// places are there, that its command shows a change.
func checkFinding(t *testing.T, f fixture, one report.Finding) {
	t.Helper()
	if !idForm.MatchString(one.ID) || !strings.HasPrefix(one.Key, one.ID+":") || !slices.Contains(config.Categories, one.Category) {
		t.Errorf("%+v", one)
	}
	for _, p := range one.Where {
		text := f.up.Run("show", p.Ref+":"+p.Path)
		if p.Line > 1+strings.Count(text, "\n") {
			t.Errorf("%s: %s has no line %d", one.Title, p.Path, p.Line)
		}
	}
	if len(one.Where) > 0 && !strings.HasPrefix(one.ID, "watch.") {
		words := strings.Fields(one.Command)
		if len(words) < 6 || words[0] != "git" {
			t.Fatalf("%s: command %q", one.Title, one.Command)
		}
		if f.up.Run(words[1:]...) == "" {
			t.Errorf("%s: %q shows nothing", one.Title, one.Command)
		}
		if one.Commit != f.new {
			t.Errorf("%s: commit %q, want %s", one.Title, one.Commit, f.new)
		}
	}
}

// The same two trees give nothing, whatever is watched.
func TestNothingChanged(t *testing.T) {
	f := build(t, map[string]string{
		"rules":              "        - {id: options, category: build, find: cmake, in: [\"**/CMakeLists.txt\"]}\n",
		"old/CMakeLists.txt": "option(A \"a\" ON)\n", "new/CMakeLists.txt": "option(A \"a\" ON)\n",
	})
	in := f.input()
	in.New = in.Old
	res, err := Run(t.Context(), in)
	if err != nil || len(res.Findings) != 0 || res.Files != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// Keys stay when lines move and when a name is told by another ref.
func TestKeysAreStable(t *testing.T) {
	files := map[string]string{
		"rules":       "        - {id: server.flag, category: server, find: flags, in: [arg.cpp], of: [arg]}\n",
		"old/arg.cpp": "void f() { add(arg({\"--a\"}, \"a\")); add(arg({\"--b\"}, \"b\")); }\n",
		"new/arg.cpp": "void f() { add(arg({\"--b\"}, \"b\")); }\n",
	}
	first, err := Run(t.Context(), build(t, files).input())
	if err != nil {
		t.Fatal(err)
	}
	files["old/arg.cpp"] = "\n\n\n" + files["old/arg.cpp"]
	second, err := Run(t.Context(), build(t, files).input())
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Findings) != 1 || len(second.Findings) != 1 || first.Findings[0].Key != second.Findings[0].Key || first.Findings[0].Key != "server.flag-removed:--a" {
		t.Errorf("%+v\n%+v", first.Findings, second.Findings)
	}
}

// What a patch shows of upstream's text is no dependence of ours.
func TestPatchesNameWhatTheyAdd(t *testing.T) {
	patch := "From 1\nSubject: use old_name\n\n---\n toy.c | 2 +-\n\ndiff --git a/toy.c b/toy.c\n--- a/toy.c\n+++ b/toy.c\n@@ -1,3 +1,3 @@ heading_name\n context_name();\n-removed_name();\n+added_name();\n"
	got := added(patch)
	for name, want := range map[string]bool{"old_name": true, "added_name": true, "context_name": false, "removed_name": false, "heading_name": false} {
		if strings.Contains(got, name) != want {
			t.Errorf("%s: %v, want %v, in\n%s", name, !want, want, got)
		}
	}
	if strings.Count(got, "\n") != strings.Count(patch, "\n") {
		t.Error("lines are numbered anew")
	}
}
