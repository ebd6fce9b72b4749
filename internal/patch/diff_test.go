package patch

import (
	"strings"
	"testing"
)

const sound = `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Ada <ada@example.com>
Date: Tue, 3 Feb 2026 04:05:06 +0100
Subject: [PATCH] change

---
 a.txt | 2 +-
 b.txt | 2 +-
 2 files changed, 2 insertions(+), 2 deletions(-)

diff --git a/a.txt b/a.txt
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/a.txt
+++ b/a.txt
@@ -2,5 +2,5 @@ heading
 2
 3
-4
+four
 5
 6
diff --git a/b.txt b/b.txt
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/b.txt
+++ b/b.txt
@@ -2,5 +2,5 @@
 2
 3
-4
+four
 5
 6
`

func TestMalformed(t *testing.T) {
	t.Parallel()
	if p := Parse("1.patch", []byte(sound)); p.Malformed != "" || len(p.Diffs) != 2 {
		t.Fatalf("the sound patch: %s", p.Malformed)
	}
	second := strings.Index(sound, "diff --git a/b.txt")
	for _, c := range []struct{ name, text, want string }{
		{"cut inside a hunk", sound[:len(sound)-3], "truncated: line 32: hunk 1 ends 1 lines early"},
		{"cut inside a line", strings.TrimSuffix(sound, " 6\n") + " 6", "truncated"},
		{"cut between files", sound[:second], "truncated: its diffstat counts 2 changed files, its diffs hold 1"},
		{"cut after a header", sound[:strings.LastIndex(sound, "@@ -2")], "truncated"},
		{"cut after diff --git", sound[:second] + "diff --git a/b.txt b/b.txt\n", "truncated: line 22: nothing follows the header of b.txt"},
		{"cut inside, then the next file", strings.Replace(sound, " 6\ndiff", "diff", 1), `truncated: line 21: hunk 1 goes on for 1 lines, but here stands "diff --git`},
		{"a longer hunk than counted", strings.Replace(sound, "+four\n", "+four\n+and more\n", 1), "not a patch: line 22: hunk 1 does not"},
		{"a line behind the hunk", sound + "+more\n", `not a patch: line 33: "+more" belongs to no hunk`},
		{"all lines CRLF", crlf(sound), "line endings"},
		{"empty", "", "not a patch: the file is empty"},
		{"prose", "Dear all,\nplease apply.\n", "not a patch: no diff"},
		{"a web page", "<!DOCTYPE html>\n<html></html>\n", "not a patch"},
		{"out of the tree", strings.ReplaceAll(sound, "b.txt", "../b.txt"), `not a patch: line 22: the path "../b.txt" leaves the tree`},
		{"into .git", strings.ReplaceAll(sound, "b.txt", ".git/config"), "leaves the tree"},
		{"two patches", sound + sound, "not a patch: line 33: a second patch begins"},
		{"binary without data", sound[:second] + "diff --git a/b b/b\nindex 1111111..2222222 100644\nBinary files a/b and b/b differ\n", "truncated: line 24: a binary change without its data"},
		{"submodule", sound[:second] + "diff --git a/b b/b\nindex 1111111..2222222 160000\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n", "submodule"},
		{"hunk numbers too large", strings.Replace(sound, "@@ -2,5", "@@ -99999999999999999999,5", 1), "not a patch"},
		{"overlapping hunks", sound + "@@ -4,2 +4,2 @@\n-5\n+x\n 6\n", "overlaps"},
		{"a hunk that changes nothing", strings.Replace(sound, "-4\n+four\n", " 4\n", 1), "not a patch: line 21: hunk 1 changes nothing"},
	} {
		p := Parse("1-x.patch", []byte(c.text))
		if !strings.Contains(p.Malformed, c.want) {
			t.Errorf("%s: %q, want %q", c.name, p.Malformed, c.want)
		}
	}
}

func TestMalformedIsReportedAndBlocks(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	states := []files{{"a.txt": numbered("l", 9)}, {"a.txt": strings.Replace(numbered("l", 9), "l 5", "5", 1)}, {"a.txt": strings.Replace(numbered("l", 9), "l 5", "five", 1)}}
	texts := seriesOf(t, states...)
	texts[0] += "+x\n"
	report, _, err := Check(t.Context(), repo, treeOf(t, repo, states[0]), load(t, texts...))
	if err != nil || verdicts(report) != "malformed blocked" || report.Patches[0].Targets[0].Path != "a.txt" {
		t.Errorf("%+v: %v", report, err)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, path string }{
		{"diff --git \"a/d\\303\\251 b\\t\\\"q\\\"\" \"b/d\\303\\251 b\\t\\\"q\\\"\"\nold mode 100644\nnew mode 100755\n", "dé b\t\"q\""},
		{"diff --git a/with space b/with space\nold mode 100644\nnew mode 100755\n", "with space"},
		{"diff --git a/a b/b b/a b/b\nold mode 100644\nnew mode 100755\n", "a b/b"},
		{"diff --git a/with space b/with space\n--- a/with space\t\n+++ b/with space\t\n@@ -1 +1 @@\n-a\n+b\n", "with space"},
		{"diff --git \"a/x\\377\" b/y\nsimilarity index 100%\nrename from \"x\\377\"\nrename to y\n", "y"},
	} {
		p := Parse("1.patch", []byte(c.text))
		if p.Malformed != "" || len(p.Diffs) != 1 || p.Diffs[0].Path() != c.path {
			t.Errorf("%q: %s %+v", c.text, p.Malformed, p.Diffs)
		}
	}
}

// What the parser accepts must account for the whole text: put together again
// from its parts it holds every line that changes something.
func FuzzParse(f *testing.F) {
	f.Add(sound)
	f.Add(crlf(sound))
	f.Add("diff --git a/b b/b\nindex 1111111..2222222 100644\nGIT binary patch\ndelta 5\nMcmZQzU|?YY00000\n\nliteral 0\nHcmV?d00001\n\n")
	f.Add("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n")
	f.Add("diff --git \"a/\\377\" \"b/\\377\"\nold mode 100644\nnew mode 100755\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := Parse("0001-x.patch", []byte(text))
		if p.Malformed != "" {
			return
		}
		if len(p.Diffs) == 0 {
			t.Fatal("sound, but without a diff")
		}
		held := 0
		for _, d := range p.Diffs {
			if !safePath(d.Path()) {
				t.Fatalf("path %q", d.Path())
			}
			for _, h := range d.Hunks {
				sh := h.shape()
				if len(sh.before) != h.OldLines || len(sh.after) != h.NewLines {
					t.Fatalf("hunk %+v", h)
				}
				held += len(h.Lines)
			}
		}
		head, _, _ := parseDiffs(text)
		rest := text[len(head):]
		rest, _, _ = strings.Cut(rest, "\n-- \n")
		changes := 0
		for _, line := range strings.Split(rest, "\n") {
			if strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++ ") {
				changes++
			}
		}
		binary := strings.Contains(text, "GIT binary patch")
		if changes > held && !binary {
			t.Fatalf("%d added lines, %d lines held", changes, held)
		}
	})
}
