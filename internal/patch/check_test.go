package patch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func function(name string, body ...string) string {
	return "void " + name + "(void) {\n    " + strings.Join(body, "\n    ") + "\n}\n\n"
}

var twinBody = []string{"int x = 0;", "one(x);", "two(x);", "three(x);", "x = x + 1;", "call(x);", "x = x + 2;", "done(x);"}

func twin(name string) string { return function(name, twinBody...) }

func fixed(name string) string {
	return strings.Replace(twin(name), "call(x);", "call(x + 40);", 1)
}

// verdictCases are checked with the patch made by git from before to after,
// against now: with its blob ids and the base's tree known, with the ids
// alone, and with the text alone.
var verdictCases = []struct {
	name             string
	before, after    files
	now              files
	mapped, text     string // verdicts with and without the base known
	mention          string // in the detail of the mapped check
	want             files  // the tree, of the mapped check, where it isn't conflict
	mentionText      string
	wantSameWithText bool
}{
	{
		name:   "clean",
		before: files{"a.c": twin("f") + twin("g")}, after: files{"a.c": fixed("f") + twin("g")}, now: files{"a.c": twin("f") + twin("g"), "other": "x"},
		mapped: "clean", text: "clean", want: files{"a.c": fixed("f") + twin("g"), "other": "x"}, wantSameWithText: true,
	},
	{
		name:   "offset",
		before: files{"a.c": twin("f")}, after: files{"a.c": fixed("f")}, now: files{"a.c": function("new", "one();", "two();") + twin("f")},
		mapped: "offset", text: "offset", mention: `found at line 9, in "void f(void) {"`,
		want: files{"a.c": function("new", "one();", "two();") + fixed("f")}, wantSameWithText: true,
	},
	{
		name:   "twin: both shifted, the heading tells",
		before: files{"a.c": twin("f") + twin("g")}, after: files{"a.c": fixed("f") + twin("g")}, now: files{"a.c": twin("e") + twin("f") + twin("g")},
		mapped: "offset", text: "offset", want: files{"a.c": twin("e") + fixed("f") + twin("g")}, wantSameWithText: true,
	},
	{
		name:   "twin: the right function was rewritten, its twin was not",
		before: files{"a.c": twin("f") + twin("g")}, after: files{"a.c": fixed("f") + twin("g")},
		now:    files{"a.c": function("f", "rewritten();") + function("h", "x();", "y();") + twin("g")},
		mapped: "conflict", text: "conflict", mention: `in "void g(void) {"`, mentionText: `in "void g(void) {"`,
	},
	{
		name:   "twin: the right function is gone",
		before: files{"a.c": twin("f") + twin("g")}, after: files{"a.c": fixed("f") + twin("g")}, now: files{"a.c": twin("g")},
		mapped: "conflict", text: "conflict",
	},
	{
		name:   "twin: gone, and the other lies on its very lines",
		before: files{"a.c": twin("f") + twin("g")}, after: files{"a.c": fixed("f") + twin("g")}, now: files{"a.c": twin("g") + function("h", "z();")},
		mapped: "conflict", text: "conflict",
	},
	{
		name:   "a renamed function is the same one",
		before: files{"a.c": twin("f") + function("z", "end();")}, after: files{"a.c": fixed("f") + function("z", "end();")},
		now:    files{"a.c": twin("renamed") + function("z", "end();")},
		mapped: "clean", text: "conflict", want: files{"a.c": fixed("renamed") + function("z", "end();")},
	},
	{
		name:   "a renamed function whose name is in the context",
		before: files{"a.c": function("f", "a();", "b();")}, after: files{"a.c": function("f", "a();", "c();")},
		now:    files{"a.c": function("renamed", "a();", "b();")},
		mapped: "merged", text: "conflict", want: files{"a.c": function("renamed", "a();", "c();")},
	},
	{
		name:   "a function that got another's name",
		before: files{"a.c": twin("f") + twin("g") + function("z", "end();")}, after: files{"a.c": fixed("f") + twin("g") + function("z", "end();")},
		now:    files{"a.c": twin("g") + function("z", "end();")},
		mapped: "conflict", text: "conflict",
	},
	{
		name:   "ambiguous: a second copy of a block without headings",
		before: files{"a.txt": "x\n" + numbered("l", 9) + "y\n"}, after: files{"a.txt": "x\n" + strings.Replace(numbered("l", 9), "l 5", "L 5", 1) + "y\n"},
		now:    files{"a.txt": "new\nx\n" + numbered("l", 9) + "y\nx\n" + numbered("l", 9) + "y\n"},
		mapped: "conflict", text: "conflict", mention: "ambiguous", mentionText: "ambiguous: it fits at line 4, line 15",
	},
	{
		name:   "upstreamed",
		before: files{"a.c": twin("f")}, after: files{"a.c": fixed("f")}, now: files{"a.c": function("new", "one();") + fixed("f")},
		mapped: "upstreamed", text: "upstreamed", mention: "its result stands at line 8", want: files{"a.c": function("new", "one();") + fixed("f")}, wantSameWithText: true,
	},
	{
		name:   "upstreamed in one of two blocks without headings",
		before: files{"a.txt": numbered("l", 9) + "--\n" + numbered("l", 9)}, after: files{"a.txt": strings.Replace(numbered("l", 9), "l 5", "L 5", 1) + "--\n" + numbered("l", 9)},
		now:    files{"a.txt": "new\n" + strings.Replace(numbered("l", 9), "l 5", "L 5", 1) + "--\n" + numbered("l", 9)},
		mapped: "upstreamed", text: "conflict", mentionText: "ambiguous", want: files{"a.txt": "new\n" + strings.Replace(numbered("l", 9), "l 5", "L 5", 1) + "--\n" + numbered("l", 9)},
	},
	{
		name:   "upstreamed at the end of a file",
		before: files{"a.txt": numbered("l", 9)}, after: files{"a.txt": numbered("l", 9) + "end\n"}, now: files{"a.txt": "0\n" + numbered("l", 9) + "end\n"},
		mapped: "upstreamed", text: "upstreamed", want: files{"a.txt": "0\n" + numbered("l", 9) + "end\n"}, wantSameWithText: true,
	},
	{
		name:   "both add at the end of a file",
		before: files{"a.txt": numbered("l", 9)}, after: files{"a.txt": numbered("l", 9) + "end\n"}, now: files{"a.txt": numbered("l", 9) + "other end\n"},
		mapped: "conflict", text: "conflict",
	},
	{
		name:   "partial: one of two hunks",
		before: files{"a.c": twin("f") + numbered("//", 20) + twin("g")}, after: files{"a.c": fixed("f") + numbered("//", 20) + fixed("g")},
		now:    files{"a.c": fixed("f") + numbered("//", 20) + twin("g")},
		mapped: "partial", text: "partial", want: files{"a.c": fixed("f") + numbered("//", 20) + fixed("g")}, wantSameWithText: true,
	},
	{
		name:   "partial: one of two changes of a hunk",
		before: files{"a.txt": numbered("l", 12)}, after: files{"a.txt": strings.NewReplacer("l 5\n", "L 5\n", "l 7\n", "L 7\n").Replace(numbered("l", 12))},
		now:    files{"a.txt": "0\n" + strings.Replace(numbered("l", 12), "l 5\n", "L 5\n", 1)},
		mapped: "partial", text: "partial", want: files{"a.txt": "0\n" + strings.NewReplacer("l 5\n", "L 5\n", "l 7\n", "L 7\n").Replace(numbered("l", 12))}, wantSameWithText: true,
	},
	{
		name:   "partial: one of two files",
		before: files{"a.txt": numbered("a", 9), "b.txt": numbered("b", 9)},
		after:  files{"a.txt": strings.Replace(numbered("a", 9), "a 5", "A 5", 1), "b.txt": strings.Replace(numbered("b", 9), "b 5", "B 5", 1)},
		now:    files{"a.txt": numbered("a", 9), "b.txt": strings.Replace(numbered("b", 9), "b 5", "B 5", 1)},
		mapped: "partial", text: "partial", want: files{"a.txt": strings.Replace(numbered("a", 9), "a 5", "A 5", 1), "b.txt": strings.Replace(numbered("b", 9), "b 5", "B 5", 1)}, wantSameWithText: true,
	},
	{
		name:   "merged: a context line changed",
		before: files{"a.txt": numbered("l", 20)}, after: files{"a.txt": strings.Replace(numbered("l", 20), "l 10\n", "L 10\n", 1)},
		now:    files{"a.txt": strings.Replace(numbered("l", 20), "l 8\n", "eight\n", 1)},
		mapped: "merged", text: "conflict", mention: "lines around it changed", mentionText: `line 8 should be "l 8" but is "eight"`,
		want: files{"a.txt": strings.NewReplacer("l 8\n", "eight\n", "l 10\n", "L 10\n").Replace(numbered("l", 20))},
	},
	{
		name:   "conflict: both changed a line",
		before: files{"a.txt": numbered("l", 20)}, after: files{"a.txt": strings.Replace(numbered("l", 20), "l 10\n", "ours\n", 1)},
		now:    files{"a.txt": strings.Replace(numbered("l", 20), "l 10\n", "theirs\n", 1)},
		mapped: "conflict", text: "conflict", mention: `the file now has "theirs", the patch wants "ours"`, mentionText: `line 10 should be "l 10" but is "theirs"`,
	},
	{
		name:   "moved, with a small edit",
		before: files{"old/a.c": function("z", "end();") + twin("f") + numbered("//", 9)}, after: files{"old/a.c": function("z", "end();") + fixed("f") + numbered("//", 9)},
		now:    files{"new/b.c": function("y", "more();") + function("z", "end();") + twin("f") + numbered("//", 9)},
		mapped: "moved", text: "conflict", mention: "renamed it to new/b.c", want: files{"new/b.c": function("y", "more();") + function("z", "end();") + fixed("f") + numbered("//", 9)},
	},
	{
		name:   "moved, and both changed it",
		before: files{"old/a.txt": numbered("l", 20)}, after: files{"old/a.txt": strings.Replace(numbered("l", 20), "l 10\n", "ours\n", 1)},
		now:    files{"new/b.txt": strings.Replace(numbered("l", 20), "l 10\n", "theirs\n", 1)},
		mapped: "conflict", text: "conflict", mention: "renamed it to new/b.txt",
	},
	{
		name:   "gone",
		before: files{"a.txt": numbered("l", 9), "b": "b\n"}, after: files{"a.txt": strings.Replace(numbered("l", 9), "l 5", "L 5", 1), "b": "b\n"}, now: files{"b": "b\n"},
		mapped: "conflict", text: "conflict", mention: "the file a.txt is gone",
	},
	{
		name:   "new file",
		before: files{"a": "a\n"}, after: files{"a": "a\n", "d/b c.txt": "one\ntwo"}, now: files{"a": "other\n"},
		mapped: "clean", text: "clean", want: files{"a": "other\n", "d/b c.txt": "one\ntwo"}, wantSameWithText: true,
	},
	{
		name:   "new file is there with the same content",
		before: files{"a": "a\n"}, after: files{"a": "a\n", "b": "one\n"}, now: files{"a": "a\n", "b": "one\n"},
		mapped: "upstreamed", text: "upstreamed", want: files{"a": "a\n", "b": "one\n"}, wantSameWithText: true,
	},
	{
		name:   "collision",
		before: files{"a": "a\n"}, after: files{"a": "a\n", "b": "one\n"}, now: files{"a": "a\n", "b": "two\n"},
		mapped: "collision", text: "collision", mention: "with other content",
	},
	{
		name:   "collision with a folder",
		before: files{"a": "a\n"}, after: files{"a": "a\n", "b": "one\n"}, now: files{"a": "a\n", "b/c": "two\n"},
		mapped: "collision", text: "collision", mention: "folder",
	},
	{
		name:   "collision by case",
		before: files{"a": "a\n"}, after: files{"a": "a\n", "readme": "one\n"}, now: files{"a": "a\n", "README": "two\n"},
		mapped: "collision", text: "collision", mention: "README",
	},
	{
		name:   "new empty file",
		before: files{"a": "a\n"}, after: files{"a": "a\n", "empty": ""}, now: files{"a": "a\n"},
		mapped: "clean", text: "clean", want: files{"a": "a\n", "empty": ""}, wantSameWithText: true,
	},
	{
		name:   "deleted file",
		before: files{"a": "a\n", "b": "b\n"}, after: files{"a": "a\n"}, now: files{"a": "a\n", "b": "b\n", "c": "c\n"},
		mapped: "clean", text: "clean", want: files{"a": "a\n", "c": "c\n"}, wantSameWithText: true,
	},
	{
		name:   "deleted file is gone already",
		before: files{"a": "a\n", "b": "b\n"}, after: files{"a": "a\n"}, now: files{"a": "a\n"},
		mapped: "upstreamed", text: "upstreamed", want: files{"a": "a\n"}, wantSameWithText: true,
	},
	{
		name:   "deleted file has changed",
		before: files{"a": "a\n", "b": "b\n"}, after: files{"a": "a\n"}, now: files{"a": "a\n", "b": "b\nmore\n"},
		mapped: "conflict", text: "conflict", mention: "other content",
	},
	{
		name:   "deleted file was renamed",
		before: files{"a": "a\n", "b": numbered("b", 9)}, after: files{"a": "a\n"}, now: files{"a": "a\n", "c": numbered("b", 9)},
		mapped: "conflict", text: "upstreamed", mention: "renamed it to c instead",
	},
	{
		name:   "rename with an edit",
		before: files{"a.txt": numbered("l", 20)}, after: files{"b.txt": strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1)}, now: files{"a.txt": "0\n" + numbered("l", 20)},
		mapped: "offset", text: "offset", want: files{"b.txt": "0\n" + strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1)}, wantSameWithText: true,
	},
	{
		name:   "rename onto a file",
		before: files{"a.txt": numbered("l", 20)}, after: files{"b.txt": numbered("l", 20)}, now: files{"a.txt": numbered("l", 20), "b.txt": "b\n"},
		mapped: "collision", text: "collision",
	},
	{
		name:   "rename done upstream, edit not",
		before: files{"a.txt": numbered("l", 20)}, after: files{"b.txt": strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1)}, now: files{"b.txt": numbered("l", 20)},
		mapped: "partial", text: "partial", want: files{"b.txt": strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1)}, wantSameWithText: true,
	},
	{
		name:   "two files swapped",
		before: files{"a": numbered("a", 9), "b": numbered("b", 9)}, after: files{"a": numbered("b", 9), "b": numbered("a", 9)}, now: files{"a": numbered("a", 9), "b": numbered("b", 9)},
		mapped: "clean", text: "clean", want: files{"a": numbered("b", 9), "b": numbered("a", 9)}, wantSameWithText: true,
	},
	{
		name:   "mode only",
		before: files{"a.sh": "a\n"}, after: files{"a.sh": "exec:a\n"}, now: files{"a.sh": "changed\n"},
		mapped: "clean", text: "clean", want: files{"a.sh": "exec:changed\n"}, wantSameWithText: true,
	},
	{
		name:   "mode only, done upstream",
		before: files{"a.sh": "a\n"}, after: files{"a.sh": "exec:a\n"}, now: files{"a.sh": "exec:a\n"},
		mapped: "upstreamed", text: "upstreamed", want: files{"a.sh": "exec:a\n"}, wantSameWithText: true,
	},
	{
		name:   "symlink changed",
		before: files{"l": "link:one"}, after: files{"l": "link:two"}, now: files{"l": "link:one", "a": "a"},
		mapped: "clean", text: "clean", want: files{"l": "link:two", "a": "a"}, wantSameWithText: true,
	},
	{
		name:   "symlink changed, but it is a file",
		before: files{"l": "link:one"}, after: files{"l": "link:two"}, now: files{"l": "one"},
		mapped: "conflict", text: "clean", // the text alone has no mode
	},
	{
		name:   "file becomes a symlink",
		before: files{"l": "one\n", "t": "t"}, after: files{"l": "link:t", "t": "t"}, now: files{"l": "one\n", "t": "t"},
		mapped: "clean", text: "clean", want: files{"l": "link:t", "t": "t"}, wantSameWithText: true,
	},
	{
		name:   "CRLF file",
		before: files{"a.txt": crlf(numbered("l", 20))}, after: files{"a.txt": crlf(strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1))}, now: files{"a.txt": crlf("0\n" + numbered("l", 20))},
		mapped: "offset", text: "offset", want: files{"a.txt": crlf("0\n" + strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1))}, wantSameWithText: true,
	},
	{
		name:   "CRLF here, LF there",
		before: files{"a.txt": crlf(numbered("l", 20))}, after: files{"a.txt": crlf(strings.Replace(numbered("l", 20), "l 10\n", "L\n", 1))}, now: files{"a.txt": numbered("l", 20)},
		mapped: "conflict", text: "conflict", mention: "line endings", mentionText: "line endings",
	},
	{
		name:   "missing last line feed",
		before: files{"a.txt": numbered("l", 9) + "end"}, after: files{"a.txt": numbered("l", 9) + "END"}, now: files{"a.txt": "0\n" + numbered("l", 9) + "end"},
		mapped: "offset", text: "offset", want: files{"a.txt": "0\n" + numbered("l", 9) + "END"}, wantSameWithText: true,
	},
	{
		name:   "last line feed is there now",
		before: files{"a.txt": numbered("l", 9) + "end"}, after: files{"a.txt": numbered("l", 9) + "END"}, now: files{"a.txt": numbered("l", 9) + "end\n"},
		mapped: "conflict", text: "conflict", mentionText: "line endings",
	},
	{
		name:   "bytes that are not UTF-8, in content and name",
		before: files{"a\xff.txt": "\xe9t\xe9\n" + numbered("l", 9)}, after: files{"a\xff.txt": "\xe9t\xe8\n" + numbered("l", 9)}, now: files{"a\xff.txt": "\xe9t\xe9\n" + numbered("l", 9) + "\xfe\n"},
		mapped: "clean", text: "clean", want: files{"a\xff.txt": "\xe9t\xe8\n" + numbered("l", 9) + "\xfe\n"}, wantSameWithText: true,
	},
	{
		name:   "the same function is now elsewhere in the file",
		before: files{"a.c": twin("f") + function("g", "one();", "two();", "three();")}, after: files{"a.c": fixed("f") + function("g", "one();", "two();", "three();")},
		now:    files{"a.c": function("g", "one();", "two();", "three();") + function("h", "four();", "five();", "six();", "seven();") + twin("f")},
		mapped: "offset", text: "offset", want: files{"a.c": function("g", "one();", "two();", "three();") + function("h", "four();", "five();", "six();", "seven();") + fixed("f")}, wantSameWithText: true,
	},
}

var abbreviate = regexp.MustCompile(`(?m)^index ([0-9a-f]{10})[0-9a-f]*\.\.([0-9a-f]{10})[0-9a-f]*`)

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range verdictCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			now := treeOf(t, repo, c.now)
			patch := seriesOf(t, c.before, c.after)[0]
			var want string
			if c.want != nil {
				want = treeOf(t, repo, c.want)
			}
			check := func(way, base, text, verdict, mention, want string) {
				t.Helper()
				report, tree, err := CheckFrom(t.Context(), repo, base, now, load(t, text))
				if err != nil {
					t.Fatal(err)
				}
				if got := verdicts(report); got != verdict {
					t.Errorf("%s: verdict %s, want %s: %s", way, got, verdict, report.Patches[0].Detail)
				}
				if !strings.Contains(report.Patches[0].Detail, mention) {
					t.Errorf("%s: the detail should mention %q: %s", way, mention, report.Patches[0].Detail)
				}
				if tree != want && want != "any" {
					t.Errorf("%s: tree %q, want %q (%s)", way, tree, want, report.Patches[0].Detail)
				}
				if verdict == "clean" != (report.Result == ResultClean) || report.Patches[0].Verdict.failed() != (report.Result == ResultConflict) {
					t.Errorf("%s: %s gives result %s", way, verdict, report.Result)
				}
			}
			base := treeOf(t, repo, c.before)
			check("base and ids", base, patch, c.mapped, c.mention, want)
			check("base alone", base, blank(patch), c.mapped, c.mention, want)
			verdict, mention, wantIDs := c.mapped, c.mention, want
			if c.name == "moved, with a small edit" {
				verdict, mention, wantIDs = "conflict", "is gone", "" // only the trees show where it went
			} else if strings.HasPrefix(c.name, "moved, and") {
				mention = "is gone"
			}
			check("ids alone, abbreviated", "", abbreviate.ReplaceAllString(patch, "index $1..$2"), verdict, mention, wantIDs)
			wantText := "any"
			if c.wantSameWithText {
				wantText = want
			}
			check("text alone", "", blank(patch), c.text, c.mentionText, wantText)
		})
	}
}

func TestSeriesIsCumulative(t *testing.T) {
	t.Parallel()
	a := func(five string) files {
		return files{"a.txt": strings.Replace(numbered("l", 20), "l 5\n", five+"\n", 1)}
	}
	states := []files{a("l 5"), a("A"), a("B"), a("B").with(files{"new": "n\n"})}
	repo := newRepo(t)
	base := treeOf(t, repo, states[0])
	texts := seriesOf(t, states...)
	want := treeOf(t, repo, states[3])
	for _, way := range []string{"ids", "no ids"} {
		list := texts
		if way == "no ids" {
			list = []string{blank(texts[0]), blank(texts[1]), blank(texts[2])}
		}
		report, tree, err := Check(t.Context(), repo, base, load(t, list...))
		if err != nil || verdicts(report) != "clean clean clean" || tree != want {
			t.Errorf("%s: two patches of the same line: %s, tree %s, want %s: %v", way, verdicts(report), tree, want, err)
		}
		// Without the first the second has nothing to stand on, the third does.
		report, tree, err = Check(t.Context(), repo, base, load(t, list[1:]...))
		if err != nil || verdicts(report) != "conflict clean" || tree != "" {
			t.Errorf("%s: without the first: %s, tree %q: %v", way, verdicts(report), tree, err)
		}
	}
	// The first fails, so the second is blocked, and the third is still judged.
	now := treeOf(t, repo, a("theirs"))
	report, _, err := CheckFrom(t.Context(), repo, base, now, load(t, texts...))
	if err != nil || verdicts(report) != "conflict blocked clean" {
		t.Errorf("with the first failing: %s: %v", verdicts(report), err)
	}
	if !strings.Contains(report.Patches[1].Detail, "depends on 0001-p.patch") {
		t.Errorf("blocked without saying by what: %s", report.Patches[1].Detail)
	}
}

func TestBlockedByAMissingFile(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	texts := seriesOf(t, files{"a": "a\n"}, files{"a": "a\n", "n": "1\n2\n"}, files{"a": "a\n", "n": "1\nzwei\n"})
	now := treeOf(t, repo, files{"a": "a\n", "n": "other\n"})
	report, _, err := Check(t.Context(), repo, now, load(t, texts...))
	if err != nil || verdicts(report) != "collision blocked" {
		t.Errorf("%s: %v", verdicts(report), err)
	}
}

func TestJSONIsTheContract(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	before := files{"old/a.txt": numbered("l", 20)}
	texts := seriesOf(t, before, files{"old/a.txt": strings.Replace(numbered("l", 20), "l 10\n", "x\n", 1)})
	report, _, err := CheckFrom(t.Context(), repo, treeOf(t, repo, before), treeOf(t, repo, files{"new/a.txt": numbered("l", 20)}), load(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	report.Component, report.Ref = "thing", "v1"
	report.Patches[0].Detail = "…"
	got, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"payload.patch-check/v1","component":"thing","ref":"v1","result":"refresh","patches":[{"file":"0001-p.patch","verdict":"moved","targets":[{"path":"old/a.txt","verdict":"moved","renamed_to":"new/a.txt"}],"detail":"…"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	empty, tree, err := Check(t.Context(), repo, treeOf(t, repo, before), Series{})
	if err != nil || empty.Result != ResultClean || tree != treeOf(t, repo, before) {
		t.Errorf("an empty series: %+v, tree %s: %v", empty, tree, err)
	}
	if got, _ := json.Marshal(empty); !strings.Contains(string(got), `"patches":[]`) {
		t.Errorf("an empty series: %s", got)
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	noise := func(seed int) string {
		var b strings.Builder
		for i := range 5000 {
			seed = seed*1103515245 + 12345
			b.WriteByte(byte(seed >> 16 * (1 + i%2)))
		}
		return "\x00" + b.String()
	}
	one, two := noise(1), noise(1)[:2000]+"\x00changed\x00"+noise(1)[2100:]
	add := seriesOf(t, files{"t": "t\n"}, files{"t": "t\n", "b": one}, files{"t": "t\n", "b": two}, files{"t": "t\n"})
	if !strings.Contains(add[1], "\ndelta ") {
		t.Fatal("the fixture should hold a delta")
	}
	base := treeOf(t, repo, files{"t": "t\n"})
	for n, want := range map[int]files{1: {"t": "t\n", "b": one}, 2: {"t": "t\n", "b": two}, 3: {"t": "t\n"}} {
		report, tree, err := Check(t.Context(), repo, base, load(t, add[:n]...))
		if err != nil || report.Result != ResultClean || tree != treeOf(t, repo, want) {
			t.Errorf("%d patches: %s, tree %s: %v", n, verdicts(report), tree, err)
		}
	}
	for _, c := range []struct {
		now, patch, want string
	}{{one, add[0], "upstreamed"}, {two, add[1], "upstreamed"}, {"\x00other", add[1], "conflict"}, {"\x00other", add[0], "collision"}, {"\x00other", add[2], "conflict"}} {
		report, _, err := Check(t.Context(), repo, treeOf(t, repo, files{"b": c.now}), load(t, c.patch))
		if err != nil || verdicts(report) != c.want {
			t.Errorf("want %s, got %s: %v", c.want, verdicts(report), err)
		}
	}
}

// The store's git folder may lie in a user's repository, and so may the
// process: git apply does nothing there, and says that it did.
func TestInsideAnotherRepository(t *testing.T) {
	dir := checkout(t, files{"sub/keep": "k\n"})
	t.Chdir(filepath.Join(dir, "sub"))
	repo := newRepo(t)
	texts := seriesOf(t, files{"a": "a\n"}, files{"a": "b\n"})
	tree, report, err := Apply(t.Context(), repo, treeOf(t, repo, files{"a": "a\n"}), load(t, texts...))
	if err != nil || report.Result != ResultClean || show(t, repo, tree, "a") != "b\n" {
		t.Errorf("tree %s: %v", tree, err)
	}
}

func TestApplyGivesConflictError(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	texts := seriesOf(t, files{"a": "a\n"}, files{"a": "b\n"})
	_, _, err := Apply(t.Context(), repo, treeOf(t, repo, files{"a": "c\n"}), load(t, texts...))
	var conflict *ConflictError
	if !errors.As(err, &conflict) || !strings.Contains(err.Error(), "0001-p.patch") || !strings.Contains(err.Error(), `should be "a" but is "c"`) {
		t.Errorf("got %v", err)
	}
}

func TestPlainDiffs(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	base := treeOf(t, repo, files{"src/a.txt": numbered("l", 9)})
	body := "@@ -2,7 +2,7 @@\n l 2\n l 3\n l 4\n-l 5\n+five\n l 6\n l 7\n l 8\n"
	want := treeOf(t, repo, files{"src/a.txt": strings.Replace(numbered("l", 9), "l 5", "five", 1)})
	for _, head := range []string{
		"--- a/src/a.txt\n+++ b/src/a.txt\n",
		"--- tree.orig/src/a.txt\t2026-01-01 10:00:00.000 +0000\n+++ tree/src/a.txt\t2026-01-02 10:00:00.000 +0000\n",
		"--- src/a.txt\n+++ src/a.txt\n",
		"Fix five.\n\ndiff -ru x/src/a.txt y/src/a.txt\n--- x/src/a.txt\n+++ y/src/a.txt\n",
		"diff --git src/a.txt src/a.txt\nindex 1111111..2222222 100644\n--- src/a.txt\n+++ src/a.txt\n",
	} {
		report, tree, err := Check(t.Context(), repo, base, load(t, head+body))
		if err != nil || verdicts(report) != "clean" || tree != want {
			t.Errorf("%q: %s %s: %v", head, verdicts(report), report.Patches[0].Detail, err)
		}
	}
	// diff -N names a missing file by its time.
	report, tree, err := Check(t.Context(), repo, base, load(t, "--- x/src/n\t1970-01-01 00:00:00.000 +0000\n+++ y/src/n\t2026-01-01 00:00:00.000 +0000\n@@ -0,0 +1 @@\n+n\n"))
	if err != nil || verdicts(report) != "clean" || show(t, repo, tree, "src/n") != "n\n" {
		t.Errorf("new file: %s %s: %v", verdicts(report), report.Patches[0].Detail, err)
	}
}

func TestLoadOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diff := "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
	for _, name := range []string{"10-ten.patch", "9-nine.patch", "0009-other.patch", "fix.patch", "readme.md", "2-two.patch"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(diff), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range s.Patches {
		if names = append(names, p.File); (p.Malformed != "") != (p.File == "9-nine.patch") {
			t.Errorf("%s: malformed %q", p.File, p.Malformed)
		}
	}
	if got := strings.Join(names, " "); got != "2-two.patch 0009-other.patch 9-nine.patch 10-ten.patch fix.patch" {
		t.Errorf("order %s", got)
	}
	if d := s.Digests(); len(d) != 5 || d[0].File != "2-two.patch" || len(d[0].SHA256) != 64 {
		t.Errorf("digests %v", d)
	}
	if s, err := Load(filepath.Join(dir, "none")); err != nil || len(s.Patches) != 0 {
		t.Errorf("a missing folder: %v, %v", s, err)
	}
}
