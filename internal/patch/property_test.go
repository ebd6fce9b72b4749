package patch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// source makes a C file of functions whose bodies repeat much text.
func source(r *rand.Rand, name string, functions int) string {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include \"" + name + ".h\"\n\n")
	for i := range functions {
		fmt.Fprintf(&b, "static int %s_%d(int x) {\n", name, i)
		for k := range 6 + r.IntN(12) {
			switch r.IntN(4) {
			case 0:
				b.WriteString("    x = x + 1;\n")
			case 1:
				b.WriteString("\n")
			case 2:
				fmt.Fprintf(&b, "    if (x > %d) {\n        x = call(x);\n    }\n", r.IntN(3))
			case 3:
				fmt.Fprintf(&b, "    x = %s_step_%d(x, %d);\n", name, k, r.IntN(1000))
			}
		}
		b.WriteString("    return x;\n}\n\n")
	}
	return b.String()
}

// scribble changes some places of a file.
func scribble(r *rand.Rand, text, tag string, edits int) string {
	lines := splitLines(text)
	for range edits {
		if len(lines) < 4 {
			break
		}
		at := r.IntN(len(lines))
		switch r.IntN(4) {
		case 0:
			lines[at] = fmt.Sprintf("    changed(%q, %d);\n", tag, r.IntN(1e6))
		case 1:
			lines = append(lines[:at:at], append([]string{fmt.Sprintf("    added(%q, %d);\n", tag, r.IntN(1e6))}, lines[at:]...)...)
		case 2:
			lines = append(lines[:at:at], lines[min(len(lines), at+1+r.IntN(3)):]...)
		case 3: // a copy of a line elsewhere: the hard case for every matcher
			lines = append(lines[:at:at], append([]string{lines[r.IntN(len(lines))]}, lines[at:]...)...)
		}
	}
	if r.IntN(12) == 0 {
		return strings.TrimSuffix(strings.Join(lines, ""), "\n")
	}
	return strings.Join(lines, "")
}

func rounds(t *testing.T, n int) int {
	t.Helper()
	if more, err := strconv.Atoi(os.Getenv("PAYLOAD_TEST_ROUNDS")); err == nil {
		return more
	}
	return n
}

// A series that applies cleanly makes the tree that git am makes of it.
func TestCleanSeriesEqualsGitAm(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range rounds(t, 3) {
		r := rand.New(rand.NewPCG(1, uint64(seed)))
		state := files{"a.c": source(r, "a", 8), "dir/b.c": source(r, "b", 5), "keep": "k\n"}
		states := []files{state}
		for i := range 5 {
			next := state.with(files{"a.c": scribble(r, state["a.c"], fmt.Sprint(i), 3)})
			switch r.IntN(5) {
			case 0:
				next = next.with(files{fmt.Sprintf("new%d.c", i): source(r, "n", 1)})
			case 1:
				if b, ok := next["dir/b.c"]; ok {
					next = next.with(files{"moved/b.c": scribble(r, b, "m", 1)}, "dir/b.c")
				}
			case 2:
				next = next.with(nil, "keep")
			case 3:
				next = next.with(files{"a.c": "exec:" + strings.TrimPrefix(next["a.c"], "exec:")})
			}
			states = append(states, next)
			state = next
		}
		texts := seriesOf(t, states...)
		repo := newRepo(t)
		base, want := treeOf(t, repo, states[0]), treeOf(t, repo, state)
		dir := checkout(t, states[0])
		userGit(t, dir, strings.Join(texts, ""), "am", "-q", "--keep-cr")
		if theirs := strings.TrimSpace(userGit(t, dir, "", "rev-parse", "HEAD^{tree}")); theirs != want {
			t.Fatalf("seed %d: git am itself makes %s, not %s", seed, theirs, want)
		}
		for _, strip := range []bool{false, true} {
			list := texts
			if strip {
				list = nil
				for _, text := range texts {
					list = append(list, blank(text))
				}
			}
			report, tree, err := Check(t.Context(), repo, base, load(t, list...))
			if err != nil {
				t.Fatal(err)
			}
			if strip && report.Result == ResultConflict {
				// Text that repeats itself is not always enough to go by.
				for _, p := range report.Patches {
					if p.Verdict == Conflict && !strings.Contains(p.Detail, "ambiguous") {
						t.Errorf("seed %d: %s: %s", seed, p.File, p.Detail)
					}
				}
				refused++
				continue
			}
			if report.Result != ResultClean || tree != want {
				t.Errorf("seed %d, without ids %v: %s, tree %s, want %s", seed, strip, verdicts(report), tree, want)
				for _, p := range report.Patches {
					t.Log(p.Verdict, p.Detail)
				}
			}
		}
	}
	if refused > rounds(t, 3)/10 {
		t.Errorf("%d series refused for their text alone", refused)
	}
}

// Against a tree that upstream changed, what applies lands where git's
// three-way merge puts it.
func TestLandsWhereGitMerges(t *testing.T) {
	t.Parallel()
	applied, refused := 0, 0
	for seed := range rounds(t, 4) {
		r := rand.New(rand.NewPCG(2, uint64(seed)))
		base := files{"a.c": source(r, "a", 8)}
		states := []files{base}
		for i := range 4 {
			last := states[len(states)-1]
			states = append(states, last.with(files{"a.c": scribble(r, last["a.c"], fmt.Sprint("p", i), 1+r.IntN(2))}))
		}
		now := base.with(files{"a.c": scribble(r, base["a.c"], "up", 4)})
		repo := newRepo(t)
		texts := seriesOf(t, states...)
		baseTree, nowTree := treeOf(t, repo, base), treeOf(t, repo, now)
		// Each patch alone, onto upstream's tree and the changes before it that
		// held: that is what git cherry-pick does.
		dir := checkout(t, base)
		for i := range states[1:] {
			replaceAll(t, dir, states[i+1])
			commitAll(t, dir, "p")
		}
		userGit(t, dir, "", "checkout", "-q", "-b", "onto", "main~4")
		replaceAll(t, dir, now)
		commitAll(t, dir, "upstream")
		gitSays := make([]bool, 4)
		for i := range 4 {
			_, err := tryGit(t.Context(), dir, "", "cherry-pick", "--allow-empty", "--keep-redundant-commits", fmt.Sprintf("main~%d", 3-i))
			if gitSays[i] = err == nil; err != nil {
				userGit(t, dir, "", "cherry-pick", "--abort")
			}
		}
		theirs := strings.TrimSpace(userGit(t, dir, "", "rev-parse", "HEAD^{tree}"))

		for _, strip := range []bool{false, true} {
			list := texts
			if strip {
				list = nil
				for _, text := range texts {
					list = append(list, blank(text))
				}
			}
			// Judged against what git took: leave out what it refused, for the
			// later patches stand on what is there.
			rep, err := newReplay(t.Context(), repo, baseTree, nowTree, load(t, list...))
			if err != nil {
				t.Fatal(err)
			}
			same := true
			for i, p := range rep.report.Patches {
				ours := !p.Verdict.failed()
				if ours {
					applied++
				}
				if ours && !gitSays[i] && p.Verdict != Upstreamed && p.Verdict != Partial {
					t.Logf("seed %d strip %v patch %d: we say %s, git refuses: %s", seed, strip, i+1, p.Verdict, p.Detail)
				}
				if ours != gitSays[i] {
					same = false
				}
				if !ours && gitSays[i] {
					refused++
					t.Logf("seed %d strip %v patch %d: git takes it, we say %s: %s", seed, strip, i+1, p.Verdict, p.Detail)
				}
			}
			if !same {
				continue
			}
			tree, err := rep.tree(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tree != theirs {
				t.Errorf("seed %d strip %v: our tree differs from git's: %s", seed, strip, verdicts(rep.report))
				t.Log(repo.Text(t.Context(), "cat-file", "-p", tree+":a.c"))
			}
		}
	}
	// The scribbling also takes headings away; nothing else may be refused.
	if refused*10 > applied {
		t.Errorf("%d patches applied, %d refused that git takes", applied, refused)
	}
}
