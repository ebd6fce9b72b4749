package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"payload/internal/testkit"
)

// Every verb that writes is broken at its steps, one step at a time, and run
// again. What counts: the outcome is right or a clear error, and what the break
// left over goes away. Plain `go test` breaks a few steps of each; all of them,
// and docs/faults.md, take some twenty minutes: scripts/faults.

var (
	everyFault = flag.Int("faults", 0, "break every `n`th step and try every other fault, not a few of them")
	faultTable = flag.String("faults.table", "", "write the table of all faults to this `file`")
)

// world is a repository, its upstream and a store, in a folder whose name is a
// trap of its own: at. A trial begins with a copy of what was prepared.
type world struct {
	base string
	user string // who runs payload: empty, or the arguments of setpriv
	env  []string
	tree map[string]string // what `payload source toy` has to give
	t    *testing.T
}

func (w *world) at(parts ...string) string {
	return filepath.Join(append([]string{w.base, "at"}, parts...)...)
}

// newWorld makes an upstream, a repository that pins b200 of it with three
// patches and the archive of the same as a mirror, and no store.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{base: filepath.Join(t.TempDir(), "wörld with spaces"), t: t}
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.at(), "TMPDIR=" + w.at("tmp"), "PAYLOAD_CACHE=" + w.at("cäche"),
		"PAYLOAD_GIT_TIMEOUT=20", "PAYLOAD_CMAKE=" + w.at("cmake"), "LC_ALL=C",
	}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		w.env = append(w.env, "GOCOVERDIR="+dir)
	}
	for _, err := range []error{
		os.MkdirAll(w.at("tmp"), 0o777), os.CopyFS(w.at(), os.DirFS("testdata/toy")), os.CopyFS(w.at("cmake"), os.DirFS("../../cmake")),
		os.RemoveAll(w.at("repo", "patches")), os.MkdirAll(w.at("repo", "patches"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	up := testkit.RepoAt(t, w.at("upstream"))
	w.fillUpstream(t)
	commit := up.Commit(nil, "b200")
	w.must(t, "tar", "-C", w.at("upstream"), "-cf", w.at("toy.tar"), "--exclude=.git", ".")
	w.carry(t, up)
	testkit.Write(t, w.at("repo", "TOY_VERSION"), "b200\n")
	sum := sha256.Sum256([]byte(read(t, w.at("toy.tar"))))
	edit(t, w.at("repo", "payload.yaml"), "    target: hello\n", fmt.Sprintf("    target: hello\n    mirrors:\n      - {ref: b200, commit: %s, archive: ../toy.tar, sha256: %x}\n", commit, sum))
	return w
}

// fillUpstream adds small files, a large one, a program, a link, and attributes
// that would change line ends if anybody heeded them.
func (w *world) fillUpstream(t *testing.T) {
	t.Helper()
	files := map[string]string{
		"large.bin":            strings.Repeat("\x00large\r\n", 12000),
		"tool.sh":              "#!/bin/sh\n",
		".gitattributes":       "*.txt text eol=crlf\n*.c export-ignore\n",
		".gitignore":           "*.bin\n",
		".git/info/attributes": "* -text\n",
		"one.txt":              "1\n2\n3\n4\n5\n6\n7\n",
		"two.txt":              "1\n2\n3\n4\n5\n6\n7\n",
	}
	for i := range 8 {
		files[fmt.Sprintf("part %d/näme %d.txt", i%3, i)] = strings.Repeat(fmt.Sprintln("line of", i), 9)
	}
	for name, text := range files {
		testkit.Write(t, w.at("upstream", name), text)
	}
	for _, err := range []error{os.Chmod(w.at("upstream", "tool.sh"), 0o755), os.Symlink("tool.sh", w.at("upstream", "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// carry makes three patches of b200, notes what comes of them, and commits
// b201, which has lines above every patched place.
func (w *world) carry(t *testing.T, up testkit.Git) {
	t.Helper()
	edits := [][3]string{{"toy.c", `"hello"`, `"good morning"`}, {"one.txt", "4\n", "four\n"}, {"two.txt", "4\n", "four\n"}}
	for i, e := range edits {
		edit(t, w.at("upstream", e[0]), e[1], e[2])
		diff := up.Run("diff", "--full-index", "--", e[0])
		text := fmt.Sprintf("From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: A U Thor <author@example.com>\nDate: Sat, 3 Feb 2001 04:05:06 +0000\nSubject: [PATCH] change %d\n\nUpstream-Status: Pending\nDrop-When: never\n---\n\n%s\n", i+1, diff)
		testkit.Write(t, w.at("repo", "patches", fmt.Sprintf("%04d-change-%d.patch", i+1, i+1)), text)
	}
	w.tree = picture(t, w.at("upstream"))
	up.Run("checkout", "-q", "--", ".")
	for _, e := range edits {
		edit(t, w.at("upstream", e[0]), "", "// above everything\n")
	}
	up.Commit(nil, "b201")
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	text := read(t, path)
	if !strings.Contains(text, old) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	testkit.Write(t, path, strings.Replace(text, old, new, 1))
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// picture is a folder's files, without .git: what each is, and its content.
func picture(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && entry.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			data = []byte(target)
			if err != nil {
				return err
			}
		} else if data, err = os.ReadFile(path); err != nil {
			return err
		}
		seen[path[len(dir):]] = fmt.Sprintf("%v %v %x", info.Mode().Type(), info.Mode()&0o100 != 0, sha256.Sum256(data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// argv is a command as the world's user gives it.
func (w *world) argv(args ...string) []string {
	return append(strings.Fields(w.user), args...)
}

// run runs a command in the repository with nothing broken.
func (w *world) run(env []string, args ...string) traced {
	argv := w.argv(args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = w.at("repo"), append(slices.Clone(w.env), env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the code tells
	return traced{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

func (w *world) must(t *testing.T, args ...string) traced {
	t.Helper()
	res := w.run(nil, args...)
	if res.code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, res.code, res.stderr)
	}
	return res
}

// keep makes what is at hand the beginning of every trial; begin goes there.
func (w *world) keep()  { w.copy("at", "kept") }
func (w *world) begin() { w.copy("kept", "at") }

func (w *world) copy(from, to string) {
	from, to = filepath.Join(w.base, from), filepath.Join(w.base, to)
	script := `chmod -R u+w "$2" 2>/dev/null; rm -rf "$2" && cp -a "$1" "$2"`
	if out, err := exec.Command("sh", "-c", script, "sh", from, to).CombinedOutput(); err != nil {
		w.t.Fatalf("copying the world: %v: %s", err, out)
	}
}

// scenario is a verb that is broken, and what has to come of it.
type scenario struct {
	name    string
	env     []string
	prepare func(t *testing.T, w *world)
	args    []string
	within  string // only steps below this folder of the world are broken
	every   int    // of the steps, where all are too many; 0 is 1
	// wrong says what is wrong after a run that said that all is well.
	wrong func(w *world, res traced) string
	// half says what is wrong with what a broken run left, where that must be
	// whole at any time.
	half func(w *world) string
}

func locked(t *testing.T, w *world) {
	t.Helper()
	w.must(t, "payload", "lock")
	w.drop("cäche")
}

func stored(t *testing.T, w *world) {
	t.Helper()
	w.must(t, "payload", "lock")
	w.must(t, "payload", "source", "toy")
}

// drop deletes a folder of the world.
func (w *world) drop(name string) {
	out, err := exec.Command("sh", "-c", `chmod -R u+w "$1" && rm -rf "$1"`, "sh", w.at(name)).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

// wrongTree compares the tree that `payload source` printed with the right one.
func wrongTree(w *world, res traced) string {
	return w.differs(strings.TrimSpace(res.stdout), w.tree)
}

func (w *world) differs(dir string, want map[string]string) string {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Sprintf("%q is no folder", dir)
	}
	got := picture(w.t, dir)
	if maps.Equal(got, want) {
		return ""
	}
	for name := range want {
		if got[name] != want[name] {
			return fmt.Sprintf("%s of %s is not what it should be", name, dir)
		}
	}
	return fmt.Sprintf("%s has %d files, should have %d", dir, len(got), len(want))
}

var fromTheMirror = []string{"PAYLOAD_SOURCE_KINDS=store,mirror"}

// scenarios lists the verbs that write. The references that they are compared
// with are read on first use: the same run with nothing broken.
func scenarios() []scenario {
	sourceToy := []string{"payload", "source", "toy"}
	var lock, series, staged, compiled string
	var released map[string]string
	return []scenario{
		{name: "source, by git", prepare: locked, args: sourceToy, env: []string{"PAYLOAD_SOURCE_KINDS=store,git"}, wrong: wrongTree},
		{name: "source, from an archive", prepare: locked, args: sourceToy, env: fromTheMirror, wrong: wrongTree},
		{name: "source, laid out anew", prepare: func(t *testing.T, w *world) {
			t.Helper()
			stored(t, w)
			w.drop("cäche/trees")
		}, args: sourceToy, wrong: wrongTree},
		{name: "source, there already", prepare: stored, args: sourceToy, wrong: wrongTree},
		{name: "source --repair", prepare: stored, args: append(slices.Clone(sourceToy), "--repair"), wrong: wrongTree},
		{name: "lock", args: []string{"payload", "lock"}, wrong: func(w *world, res traced) string {
			// A source that can't be read has no row; that has to be told.
			if now := read(w.t, w.at("repo", "payload.lock")); strings.Contains(res.stderr, "not locked from") {
				return beyond(now, lock)
			}
			return other("payload.lock", &lock, func() string { return read(w.t, w.at("repo", "payload.lock")) })
		}, half: func(w *world) string {
			data, err := os.ReadFile(w.at("repo", "payload.lock"))
			if err != nil {
				return ""
			}
			return beyond(string(data), lock)
		}},
		{name: "cache prune", prepare: stored, args: []string{"payload", "cache", "prune"}, wrong: func(w *world, _ traced) string {
			return wrongTree(w, w.run(nil, sourceToy...))
		}},
		{name: "cache prune --damaged", prepare: func(t *testing.T, w *world) {
			t.Helper()
			stored(t, w)
			objects, err := filepath.Glob(w.at("cäche", "git", "objects", "[0-9a-f][0-9a-f]", "*"))
			if err != nil || len(objects) == 0 {
				t.Fatalf("no objects: %v", err)
			}
			for _, name := range objects {
				if err := os.Chmod(name, 0o644); err != nil {
					t.Fatal(err)
				}
				testkit.Write(t, name, "damaged")
			}
		}, args: []string{"payload", "cache", "prune", "--damaged"}, wrong: func(w *world, _ traced) string {
			w.drop("cäche/trees")
			return wrongTree(w, w.run(nil, sourceToy...))
		}},
		{name: "patch refresh", prepare: func(t *testing.T, w *world) {
			t.Helper()
			testkit.Write(t, w.at("repo", "TOY_VERSION"), "b201\n")
			w.must(t, "payload", "lock")
		}, args: []string{"payload", "patch", "refresh", "toy"}, wrong: func(w *world, _ traced) string {
			return other("the series", &series, func() string { return fmt.Sprint(picture(w.t, w.at("repo", "patches"))) })
		}, half: func(w *world) string {
			// The next reader finishes what was decided; before that nothing has changed.
			res := w.run(nil, "payload", "patch", "check", "toy")
			if res.code != 0 && res.code != 3 {
				return fmt.Sprintf("the series is neither as before nor as it should be: %s%s", res.stdout, res.stderr)
			}
			return ""
		}},
		{
			name: "build, staging", prepare: stagedBefore, args: []string{"payload", "build", "--preset", "quiet", "--launcher", "none"}, within: "repo/dist",
			wrong: func(w *world, _ traced) string {
				return other("dist/quiet", &staged, func() string { return fmt.Sprint(picture(w.t, w.at("repo", "dist", "quiet"))) })
			}, half: wholeStage,
		},
		{
			name: "build, configuring and compiling", prepare: stagedBefore, args: []string{"payload", "build", "--preset", "quiet", "--launcher", "none"}, within: "repo/build", every: 9,
			wrong: func(w *world, _ traced) string {
				return other("dist/quiet", &compiled, func() string { return fmt.Sprint(picture(w.t, w.at("repo", "dist", "quiet"))) })
			}, half: wholeStage,
		},
		{
			name: "package", prepare: releasedBefore, args: []string{"payload", "package", "linux"},
			wrong: func(w *world, _ traced) string {
				if released == nil {
					released = picture(w.t, w.at("repo", "dist", "release"))
				}
				return w.differs(w.at("repo", "dist", "release"), released)
			}, half: func(w *world) string { return wholeRelease(w, released) },
		},
	}
}

// stagedBefore builds with another patch first, so that the build that is
// broken has a stage and a build folder to replace.
func stagedBefore(t *testing.T, w *world) {
	t.Helper()
	for _, file := range []string{"0002-change-2.patch", "0003-change-3.patch"} {
		if err := os.Remove(w.at("repo", "patches", file)); err != nil {
			t.Fatal(err)
		}
	}
	w.must(t, "payload", "lock")
	w.must(t, "payload", "build", "--preset", "quiet", "--launcher", "none")
	edit(t, w.at("repo", "patches", "0001-change-1.patch"), `"good morning"`, `"good evening"`)
	w.must(t, "payload", "lock")
}

// wholeStage says what is wrong with a staged program: it greets as before or
// as now, or there is none. A tree that was put aside goes back with the next build.
func wholeStage(w *world) string {
	program := w.at("repo", "dist", "quiet", "lib", "payload", "hello")
	if _, err := os.Stat(w.at("repo", "dist", "quiet")); err != nil {
		return ""
	}
	out, err := exec.Command(program).CombinedOutput()
	if text := string(out); err != nil || text != "good morning 100\n" && text != "good evening 100\n" {
		return fmt.Sprintf("the staged program says %q, %v", out, err)
	}
	return ""
}

// releasedBefore makes a release with other patches first, so that the one that
// is broken has files to replace.
func releasedBefore(t *testing.T, w *world) {
	t.Helper()
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("NOT RUN: zstd is not on PATH")
	}
	zstd := regexp.MustCompile(`v(\d+\.\d+\.\d+)`).FindStringSubmatch(w.must(t, "zstd", "--version").stdout)
	edit(t, w.at("repo", "payload.yaml"), "components:\n", "packages:\n  zstd: "+zstd[1]+"\n  groups: [{name: base, system: linux, arch: amd64, presets: [quiet]}]\ncomponents:\n")
	stagedBefore(t, w)
	w.must(t, "payload", "package", "linux", "--allow-unlocked")
	w.copy("at/repo/dist/release", "at/old")
	w.must(t, "payload", "build", "--preset", "quiet", "--launcher", "none")
	testkit.Write(t, w.at("repo", ".gitignore"), "build/\ndist/\n")
	w.must(t, "sh", "-c", "git init -q && git add -A && git -c user.name=toy -c user.email=toy@example.org commit -q -m toy")
}

// wholeRelease says what is wrong with a release: its archive is there, each of
// its files is the old one or the new one, and the checksums hold where there
// are any. What is being put together has names that begin with a dot.
func wholeRelease(w *world, now map[string]string) string {
	dir := w.at("repo", "dist", "release")
	old, got := picture(w.t, w.at("old")), picture(w.t, dir)
	if archive := "/payload-linux-amd64-base.tar.zst"; got[archive] == "" {
		return archive + " is gone"
	}
	for name, what := range got {
		if !strings.HasPrefix(name, "/.") && what != old[name] && what != now[name] {
			return name + " is neither the old one nor the new one"
		}
	}
	if got["/SHA256SUMS"] == "" {
		return ""
	}
	cmd := exec.Command("sha256sum", "-c", "--quiet", "SHA256SUMS")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("SHA256SUMS does not hold: %s", out)
	}
	return ""
}

// beyond says which line of text the reference lacks, or that it is cut off.
func beyond(text, reference string) string {
	for line := range strings.Lines(text) {
		if !strings.Contains(reference, line) {
			return fmt.Sprintf("payload.lock says %q", line)
		}
	}
	if !strings.Contains(text, "patched:") || !strings.HasSuffix(text, "\n") {
		return "payload.lock is cut off"
	}
	return ""
}

// other compares what there is with what the first look saw.
func other(what string, reference *string, now func() string) string {
	got := now()
	if *reference == "" {
		*reference = got
	}
	if got != *reference {
		return what + " is not what it should be"
	}
	return ""
}

// breakage is one way to break a step.
type breakage struct {
	name  string
	fault fault // At is filled in
	says  string
	meets func(call string) bool // the calls that can go wrong like this; nil: all
}

var breakages = []breakage{
	{name: "kill -9 of all processes", fault: fault{Kill: everyone}},
	{name: "kill -9 of all, a write half done", fault: fault{Kill: everyone, Half: true}, meets: func(call string) bool { return call == "write" }},
	{name: "kill -9 of the one process", fault: fault{Kill: oneAlone}},
	{name: "disk full from here on", fault: fault{Errno: syscall.ENOSPC, Onward: true}, says: "free some space", meets: needsRoom},
	{name: "one call fails: EIO", fault: fault{Errno: syscall.EIO}, meets: func(call string) bool { return call != "execve" }},
	{name: "one call fails: EACCES", fault: fault{Errno: syscall.EACCES}, meets: func(call string) bool { return !strings.Contains(call, "write") && !strings.Contains(call, "sync") }},
}

// tally counts what came of one kind of fault.
type tally struct {
	tried, died, errors, right int // the broken run
	again, clear, wrong        int // the run after it
	examples                   []string
}

func (c *tally) bad(format string, args ...any) {
	c.wrong++
	c.examples = append(c.examples, fmt.Sprintf(format, args...))
}

// clearError says why a failed run's words won't do.
func clearError(res traced, says string) string {
	switch {
	case strings.Contains(res.stderr, "panic:") || strings.Contains(res.stderr, "goroutine "):
		return "a panic: " + res.stderr
	case !strings.Contains(res.stderr, "error: "):
		return fmt.Sprintf("exit code %d and no error: %q", res.code, res.stderr)
	case !strings.Contains(strings.ToLower(res.stderr), says):
		return fmt.Sprintf("the error should say %q: %s", says, res.stderr)
	}
	return ""
}

// judge counts what came of a broken run and of the run after it.
func (w *world) judge(sc scenario, broken traced, says, hit string, c *tally) {
	c.tried++
	switch {
	case broken.code < 0:
		c.died++
	case broken.code == 0:
		c.right++
		if why := sc.wrong(w, broken); why != "" {
			c.bad("%s, %s: it said that all is well, and %s", sc.name, hit, why)
			return
		}
	default:
		c.errors++
		if why := clearError(broken, says); why != "" {
			c.bad("%s, %s: %s", sc.name, hit, why)
			return
		}
	}
	if sc.half != nil {
		if why := sc.half(w); why != "" {
			c.bad("%s, %s: %s", sc.name, hit, why)
			return
		}
	}
	again := w.run(sc.env, sc.args...)
	if again.code != 0 {
		c.clear++
		if why := clearError(again, ""); why != "" {
			c.bad("%s, %s: the run after it: %s", sc.name, hit, why)
			return
		}
		c.examples = append(c.examples, fmt.Sprintf("%s, %s: the run after it stopped: %s", sc.name, hit, again.stderr))
		return
	}
	if why := sc.wrong(w, again); why != "" {
		c.bad("%s, %s: the run after it said that all is well, and %s", sc.name, hit, why)
		return
	}
	if left := w.left(); len(left) > 0 {
		c.bad("%s, %s: left over after a prune: %v", sc.name, hit, left)
		return
	}
	c.again++
}

// left lists what a prune leaves of half-made files, a day later.
func (w *world) left() []string {
	yesterday := time.Now().Add(-25 * time.Hour)
	half := func() (list []string) {
		_ = filepath.WalkDir(w.at("cäche"), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			name := entry.Name()
			if entry.IsDir() && filepath.Dir(path) == w.at("cäche", "trees") && !strings.HasSuffix(name, ".tmp") {
				return fs.SkipDir // a tree, with dots of its own
			}
			inGit := strings.HasPrefix(path, w.at("cäche", "git")+"/")
			if strings.HasSuffix(name, ".tmp") || strings.HasPrefix(path, w.at("cäche", "git", "refs", "payload", "writing")+"/") || strings.Contains(name, ".index.") || strings.HasPrefix(name, "tmp_") || strings.HasPrefix(name, ".") || inGit && strings.HasSuffix(name, ".lock") {
				list = append(list, path)
				_ = os.Chtimes(path, yesterday, yesterday)
				if entry.IsDir() {
					return fs.SkipDir
				}
			}
			return nil
		})
		return list
	}
	if len(half()) == 0 {
		return nil
	}
	if res := w.run(nil, "payload", "cache", "prune"); res.code != 0 {
		return []string{res.stderr}
	}
	return half()
}

// steps chooses which of the calls are broken.
func (b breakage) steps(calls []string, every, offset int) []int {
	var list []int
	for i, call := range calls {
		if b.meets == nil || b.meets(call) {
			list = append(list, i+1)
		}
	}
	var chosen []int
	if *everyFault > 0 {
		for i := offset % *everyFault; i < len(list); i += max(1, every) * *everyFault {
			chosen = append(chosen, list[i])
		}
		return chosen
	}
	if len(list) == 0 {
		return nil
	}
	return []int{list[len(list)*(2*offset+1)/23%len(list)]}
}

func TestFaultAtEveryStep(t *testing.T) {
	t.Parallel()
	for i, sc := range scenarios() {
		ways := breakages
		if *everyFault == 0 {
			ways = []breakage{breakages[i%6], breakages[(i+3)%6]}
		}
		if *everyFault == 0 && strings.HasPrefix(sc.name, "build") {
			continue // seconds a trial
		}
		t.Run(strings.ReplaceAll(sc.name, ",", ""), func(t *testing.T) {
			t.Parallel()
			w, _ := prepared(t, sc.name)
			w.breakSteps(t, sc, i, ways, 1)
		})
	}
}

// The same as somebody who isn't root, whom permissions stop.
func TestFaultUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("all tests are run by somebody who isn't root already")
	}
	for i, sc := range scenarios() {
		if strings.HasPrefix(sc.name, "build") || *everyFault == 0 && i != 2 {
			continue
		}
		t.Run(strings.ReplaceAll(sc.name, ",", ""), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.giveAway(t)
			if sc.prepare != nil {
				sc.prepare(t, w)
			}
			w.keep()
			var some []breakage
			for _, b := range breakages {
				b.name = "an unprivileged user: " + b.name
				some = append(some, b)
			}
			if *everyFault == 0 {
				some = some[3:5]
			}
			w.breakSteps(t, sc, i, some, 9)
		})
	}
}

// giveAway makes the world nobody's, with programs of its own: those of the
// test lie where root alone may look.
func (w *world) giveAway(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"payload", "stop-at-steps", "trace"} {
		if out, err := exec.Command("sh", "-c", `mkdir -p "$2" && cp "$1" "$2/$3"`, "sh", self, w.at("bin"), name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for dir := w.base; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("chown", "-R", "65534:65534", w.base).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.user = "setpriv --reuid=65534 --regid=65534 --clear-groups --"
	w.env[0] = "PATH=" + w.at("bin") + ":" + os.Getenv("PATH")
}

// breakSteps breaks the steps of a scenario in each of some ways.
func (w *world) breakSteps(t *testing.T, sc scenario, offset int, ways []breakage, every int) {
	t.Helper()
	if res := w.run(sc.env, sc.args...); res.code != 0 || sc.wrong(w, res) != "" {
		t.Fatalf("with nothing broken: %+v: %s", res, sc.wrong(w, res))
	}
	w.begin()
	argv, env := w.argv(sc.args...), append(slices.Clone(w.env), sc.env...)
	whole, err := trace(w.at("repo"), w.at(sc.within), env, argv, fault{})
	if err != nil || whole.code != 0 || len(whole.steps) == 0 {
		t.Fatalf("traced with nothing broken: %+v, %v", whole, err)
	}
	for j, b := range ways {
		var c tally
		for _, at := range b.steps(whole.steps, max(1, sc.every)*every, offset+2*j) {
			w.begin()
			f := b.fault
			f.At = at
			broken, err := trace(w.at("repo"), w.at(sc.within), env, argv, f)
			if err != nil {
				t.Fatal(err)
			}
			w.judge(sc, broken, b.says, fmt.Sprintf("step %d of %d (%s) of %s", at, len(whole.steps), broken.hit, b.name), &c)
		}
		allFaults.add(t, b.name, sc.name, c)
	}
}
