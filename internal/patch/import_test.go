package patch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/git"
	"payload/internal/testkit"
)

const (
	mailed = `From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001
From: A Person <a@example.com>
Date: Sat, 3 Feb 2001 04:05:06 +0000
Subject: [PATCH] say more

Because.
%s---
--- a/f
+++ b/f
@@ -1,3 +1,3 @@
 one
-two
+two and more
 three
`
	zeroHead = "From 0000000000000000000000000000000000000000 "
)

func TestReadImport(t *testing.T) {
	plain := mailed[strings.Index(mailed, "--- a/f"):]
	ones, twos := strings.Repeat("1", 40), strings.Repeat("2", 40)
	for name, c := range map[string]struct {
		text, commit, body string
	}{
		"a commit":       {strings.Replace(mailed, "%s", "", 1), ones, "Because.\n\nUpstream-Status: Backport " + ones + "\nDrop-When: commit " + ones},
		"picked":         {strings.Replace(mailed, "%s", "\n(cherry picked from commit "+twos+")\n", 1), twos, "Because.\n\n(cherry picked from commit " + twos + ")\n\nUpstream-Status: Backport " + twos + "\nDrop-When: commit " + twos},
		"signed":         {strings.Replace(mailed, "%s", "\nSigned-off-by: A <a@example.com>\n", 1), ones, "Because.\n\nSigned-off-by: A <a@example.com>\nUpstream-Status: Backport " + ones + "\nDrop-When: commit " + ones},
		"says it itself": {strings.Replace(mailed, "%s", "\nUpstream-Status: Pending\nDrop-When: never\n", 1), ones, "Because.\n\nUpstream-Status: Pending\nDrop-When: never"},
		"nobody's":       {strings.Replace(strings.Replace(mailed, "%s", "", 1), "From "+ones+" ", zeroHead, 1), "", "Because.\n\nUpstream-Status: Pending\nDrop-When: never"},
		"plain":          {plain, "", "Upstream-Status: Pending\nDrop-When: never"},
	} {
		m, err := ReadImport("dir/some-change.diff", []byte(c.text))
		if err != nil || m.Commit != c.commit || m.message().Body != c.body {
			t.Errorf("%s: commit %q, body %q; %v", name, m.Commit, m.message().Body, err)
		}
		if want := "say more"; name != "plain" && m.message().Subject != want {
			t.Errorf("%s: subject %q", name, m.message().Subject)
		}
	}
	if m, _ := ReadImport("dir/some-change.diff", []byte(plain)); m.message().Subject != "some change" {
		t.Errorf("subject %q", m.message().Subject)
	}
	for why, text := range map[string]string{
		"not a patch": "words\n",
		"2 messages":  strings.Replace(mailed, "%s", "", 1) + strings.Replace(mailed, "%s", "", 1),
		"truncated":   plain[:strings.Index(plain, " three")],
	} {
		if _, err := ReadImport("x", []byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

// A commit whose parent git no longer sees as one is still read as a change.
func TestImportOfACommitThatLooksLikeTheFirst(t *testing.T) {
	up := testkit.Repo(t)
	first := up.Commit(map[string]string{"f": "one\ntwo\nthree\n", "g": "g\n"})
	second := up.Commit(map[string]string{"f": "one\ntwo and more\nthree\n"})
	root := up.Commit(map[string]string{"f": "one\ntwo and more\n3\n"})
	repo := git.Repo{Dir: filepath.Join(up.Dir, ".git")}
	testkit.Write(t, filepath.Join(repo.Dir, "shallow"), second+"\n")
	m, err := ImportOf(t.Context(), repo, second, first)
	if err != nil || len(m.Patch.Diffs) != 1 || m.Patch.Diffs[0].Path() != "f" || m.Commit != second {
		t.Fatalf("%+v, %v", m, err)
	}
	if m.Patch.Message.Name != "A U Thor" || m.Patch.Message.Date.Unix() != 981173106 {
		t.Errorf("author %q, date %v", m.Patch.Message.Name, m.Patch.Message.Date)
	}
	if m, err = ImportOf(t.Context(), repo, first, ""); err != nil || len(m.Patch.Diffs) != 2 {
		t.Errorf("a first commit: %d files, %v", len(m.Patch.Diffs), err)
	}
	// Onto a tree where the line stands elsewhere, below a patch of ours.
	tree := up.Run("rev-parse", first+"^{tree}")
	dir := filepath.Join(t.TempDir(), "patches")
	testkit.Write(t, filepath.Join(dir, "07-g.patch"), "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-g\n+G\n")
	s, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = ImportOf(t.Context(), repo, second, first); err != nil {
		t.Fatal(err)
	}
	changes, report, err := Add(t.Context(), repo, tree, s, m)
	if err != nil || report.Result != ResultClean || len(changes) != 1 || changes[0].File != "08-change.patch" {
		t.Fatalf("%v, %+v, %v", changes, report, err)
	}
	if s, err = Load(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err = Add(t.Context(), repo, tree, s, m); !errors.Is(err, ErrUpstreamed) {
		t.Errorf("again: %v", err)
	}
	if m, err = ImportOf(t.Context(), repo, root, second); err != nil {
		t.Fatal(err)
	}
	m.Base = "" // as a file that names no tree
	m.Patch = Parse("x.patch", []byte(strings.ReplaceAll(string(m.Patch.Data), "-three", "-nothing")))
	var conflict *ImportConflictError
	if _, _, err = Add(t.Context(), repo, tree, s, m); !errors.As(err, &conflict) {
		t.Errorf("a conflict: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%d files in the series, %v", len(files), err)
	}
}
