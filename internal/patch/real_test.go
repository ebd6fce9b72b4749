package patch

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/internal/git"
)

// BenchmarkRealTree checks 40 patches over the source folder that
// PAYLOAD_BENCH_SOURCE names, and tells how long git am -3 takes for the same
// series from the same commit, in the same run.
func BenchmarkRealTree(b *testing.B) {
	source := os.Getenv("PAYLOAD_BENCH_SOURCE")
	if source == "" {
		b.Skip("PAYLOAD_BENCH_SOURCE names no source folder")
	}
	repo, err := git.Open(b.Context(), filepath.Join(b.TempDir(), "private.git"))
	if err != nil {
		b.Fatal(err)
	}
	pristine, err := repo.WriteDir(b.Context(), source, filepath.Join(b.TempDir(), "index"))
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("pristine tree %s", pristine)
	dir := filepath.Join(b.TempDir(), "work")
	do := func(stdin string, args ...string) string {
		out, err := tryGit(b.Context(), dir, stdin, args...)
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := repo.Checkout(b.Context(), pristine, dir, filepath.Join(b.TempDir(), "index2")); err != nil {
		b.Fatal(err)
	}
	do("", "init", "-q", "--template=")
	if err := os.MkdirAll(filepath.Join(dir, ".git", "info"), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "info", "attributes"), []byte(git.Attributes), 0o644); err != nil {
		b.Fatal(err)
	}
	do("", "config", "gc.auto", "0")
	do("", "add", "-A", "-f")
	do("base", "commit", "-q", "-F", "-")
	do("", "tag", "base")

	var targets []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && slices.Contains([]string{".cpp", ".c", ".h", ".cu", ".py", ".m"}, filepath.Ext(path)) && !strings.Contains(path, ".git/") {
			targets = append(targets, path)
		}
		return nil
	})
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 40 {
		for range 1 + r.IntN(3) {
			path := targets[r.IntN(len(targets))]
			if i%4 == 0 { // the files that people patch are the large ones
				for _, t := range targets {
					if strings.HasSuffix(t, "ggml-vulkan.cpp") {
						path = t
					}
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			lines := splitLines(string(text))
			for range 1 + r.IntN(3) {
				at := r.IntN(len(lines))
				lines[at] = fmt.Sprintf("// change %d %d\n", i, r.IntN(1e9)) + lines[at]
			}
			if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		do(fmt.Sprintf("change %d", i), "commit", "-q", "-a", "-F", "-")
	}
	series := filepath.Join(b.TempDir(), "series")
	do("", "format-patch", "-q", "-o", series, "-N", "--zero-commit", "--no-signature", "--full-index", "--binary", "base")
	want := strings.TrimSpace(do("", "rev-parse", "HEAD^{tree}"))
	do("", "checkout", "-q", "-b", "am", "base")
	s, err := Load(series)
	if err != nil {
		b.Fatal(err)
	}
	var patches []string
	for _, p := range s.Patches {
		patches = append(patches, filepath.Join(series, p.File))
	}

	for b.Loop() {
		s, err := Load(series)
		if err != nil {
			b.Fatal(err)
		}
		report, tree, err := Check(b.Context(), repo, pristine, s)
		if err != nil || tree != want {
			b.Fatalf("%s: tree %s, want %s: %v", verdicts(report), tree, want, err)
		}
	}
	ours := b.Elapsed() / time.Duration(b.N)
	begun := time.Now()
	do("", append([]string{"am", "-q", "-3"}, patches...)...)
	am := time.Since(begun)
	if got := strings.TrimSpace(do("", "rev-parse", "HEAD^{tree}")); got != want {
		b.Fatalf("git am made %s, want %s", got, want)
	}
	b.ReportMetric(am.Seconds()*1000, "git-am-ms")
	b.ReportMetric(ours.Seconds()/am.Seconds(), "of-git-am")
	b.Logf("%d patches: %v, git am -3 %v", len(s.Patches), ours, am)
}
