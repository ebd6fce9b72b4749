package patch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/git"
)

// What isn't lines of a file that stays where it is: names, modes, links and
// bytes, changed by the patch, by upstream or by both. A series that is carried
// makes the same tree when it's applied again; a conflict can be resolved.
func TestRebaseOfMoreThanLines(t *testing.T) {
	edit := func(text, from, to string) string { return strings.Replace(text, from, to, 1) }
	a := numbered("a", 20)
	crlf := strings.ReplaceAll(a, "\n", "\r\n")
	bin := strings.Repeat("\x00\x01binary\xff", 40)
	for name, c := range map[string]struct {
		from, patched, onto files
		verdict             Verdict
		tree                files // the patched one
		resolve             files // what a person makes of the conflict
	}{
		"renamed, made executable and edited, lines above": {
			from: files{"a": a, "bin": bin}, patched: files{"c": "exec:" + edit(a, "a 10\n", "A 10\n"), "bin": bin + "more"},
			onto: files{"a": "0\n" + a, "bin": bin}, verdict: Offset,
			tree: files{"c": "exec:0\n" + edit(a, "a 10\n", "A 10\n"), "bin": bin + "more"},
		},
		"renamed by both": {
			from: files{"a": a}, patched: files{"c": edit(a, "a 10\n", "A 10\n")}, onto: files{"d": a}, verdict: Conflict,
			resolve: files{"c": edit(a, "a 10\n", "A 10\n")}, tree: files{"c": edit(a, "a 10\n", "A 10\n")},
		},
		"renamed upstream, mode and lines of the patch": {
			from: files{"a": a}, patched: files{"a": "exec:" + edit(a, "a 10\n", "A 10\n")}, onto: files{"d/a": a}, verdict: Moved,
			tree: files{"d/a": "exec:" + edit(a, "a 10\n", "A 10\n")},
		},
		"executable upstream, too": {
			from: files{"a": a}, patched: files{"a": "exec:" + edit(a, "a 10\n", "A 10\n")}, onto: files{"a": "exec:" + a}, verdict: Partial,
			tree: files{"a": "exec:" + edit(a, "a 10\n", "A 10\n")},
		},
		"a binary that upstream changed": {
			from: files{"bin": bin}, patched: files{"bin": bin + "more"}, onto: files{"bin": bin + "other"}, verdict: Conflict,
			resolve: files{"bin": bin + "both"}, tree: files{"bin": bin + "both"},
		},
		"a binary that upstream renamed": {
			from: files{"bin": bin, "x": "x\n"}, patched: files{"bin": bin + "more", "x": "x\n"}, onto: files{"data": bin, "x": "x\n"}, verdict: Moved,
			tree: files{"data": bin + "more", "x": "x\n"},
		},
		"a link that upstream turned": {
			from: files{"l": "link:x", "x": "x\n"}, patched: files{"l": "link:y", "x": "x\n"}, onto: files{"l": "link:z", "x": "x\n"}, verdict: Conflict,
			resolve: files{"l": "link:y"}, tree: files{"l": "link:y", "x": "x\n"},
		},
		"line ends that upstream changed": {
			from: files{"a": crlf}, patched: files{"a": edit(crlf, "a 10\r\n", "A 10\r\n")}, onto: files{"a": a}, verdict: Conflict,
			resolve: files{"a": edit(a, "a 10\n", "A 10\n")}, tree: files{"a": edit(a, "a 10\n", "A 10\n")},
		},
		"resolved in other files, too": {
			from: files{"a": a, "b": a}, patched: files{"a": edit(a, "a 10\n", "A 10\n"), "b": a}, onto: files{"a": edit(a, "a 10\n", "theirs\n"), "b": a + "more\n"}, verdict: Conflict,
			resolve: files{"a": edit(a, "a 10\n", "A 10\n"), "b": edit(a, "a 10\n", "A 10\n") + "more\n", "n": "new\n"},
			tree:    files{"a": edit(a, "a 10\n", "A 10\n"), "b": edit(a, "a 10\n", "A 10\n") + "more\n", "n": "new\n"},
		},
		"deleted upstream": {
			from: files{"a": a, "b": "b\n"}, patched: files{"a": edit(a, "a 10\n", "A 10\n"), "b": "b\n"}, onto: files{"b": "b\n"}, verdict: Conflict,
			resolve: files{"a": "kept\n"}, tree: files{"a": "kept\n", "b": "b\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := newRepo(t)
			base, onto := treeOf(t, repo, c.from), treeOf(t, repo, c.onto)
			s := load(t, seriesOf(t, c.from, c.patched)...)
			r, err := Rebase(t.Context(), repo, base, onto, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Report.Patches[0]; got.Verdict != c.verdict {
				t.Errorf("%s: %s", got.Verdict, got.Detail)
			}
			if _, stops := r.Failed(); stops {
				r = resolved(t, repo, r, c.resolve, func(d map[string]Decision) (*Rebased, error) {
					return Rebase(t.Context(), repo, base, onto, s, d)
				})
			}
			if want := treeOf(t, repo, c.tree); r.Tree != want {
				t.Errorf("tree %s, want %s", r.Tree, want)
			}
			again, tree, err := Check(t.Context(), repo, onto, NewSeries("", r.Files))
			if err != nil || tree != r.Tree || verdicts(again) != "clean" {
				t.Errorf("applied again: %s, tree %s, %v", verdicts(again), tree, err)
			}
		})
	}
}

// resolved opens a conflict, does what a person would and goes on.
func resolved(t *testing.T, repo git.Repo, r *Rebased, with files, rebase func(map[string]Decision) (*Rebased, error)) *Rebased {
	t.Helper()
	work := filepath.Join(t.TempDir(), "work")
	stop, err := r.OpenConflict(t.Context(), repo, work)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stop.Unmerged {
		if err := os.RemoveAll(filepath.Join(work, path)); err != nil {
			t.Fatal(err)
		}
	}
	with.write(t, work)
	userGit(t, work, "", "add", "-A")
	file, text, err := Resolution(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	r, err = rebase(map[string]Decision{file: {Resolved: text}})
	if err != nil {
		t.Fatal(err)
	}
	if o, stops := r.Failed(); stops {
		t.Fatalf("%+v", o)
	}
	return r
}
