package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"payload/internal/testkit"
)

// What can go wrong around `payload source` besides the steps themselves: the
// disk, other processes, the files of the store, downloads and servers.

// few is n for plain `go test` and all for scripts/faults, less of it where only
// some of the steps are broken.
func few(n, all int) int {
	if *everyFault > 0 {
		return max(n, all*4/max(4, *everyFault))
	}
	return n
}

func named(name string) scenario {
	for _, sc := range scenarios() {
		if sc.name == name {
			return sc
		}
	}
	panic("no scenario " + name)
}

// prepared is a world in which sc can begin.
func prepared(t *testing.T, name string) (*world, scenario) {
	t.Helper()
	w, sc := newWorld(t), named(name)
	if sc.prepare != nil {
		sc.prepare(t, w)
	}
	w.keep()
	return w, sc
}

// namespace runs a shell script with mounts of its own, as root alone may.
func (w *world) namespace(script string, args ...string) (traced, error) {
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Dir, cmd.Env = w.at("repo"), w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return traced{}, err
	}
	return traced{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}, nil
}

func needsMounts(t *testing.T, w *world) {
	t.Helper()
	res, err := w.namespace(`mount -t tmpfs -o size=64k none "$PAYLOAD_CACHE/.."`)
	if err != nil || res.code != 0 {
		t.Skipf("mounting needs root: %v %s", err, res.stderr)
	}
}

func TestFaultFullDisk(t *testing.T) {
	t.Parallel()
	w, sc := prepared(t, "source, by git")
	if err := os.MkdirAll(w.at("cäche"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.keep()
	needsMounts(t, w)
	// The disk grows after the broken run, which is what a person does.
	const script = `
set -eu
mount -t tmpfs -o size="$1"k none "$PAYLOAD_CACHE"
code=0
payload source toy >first 2>&2 || code=$?
echo "$code" >code
mount -o remount,size=64m "$PAYLOAD_CACHE"
payload source toy >again 2>errors
cp -a "$(cat again)" ../copy
if test "$code" = 0; then cp -a "$(cat first)" ../copy-first; fi
payload cache prune 2>/dev/null >/dev/null
find "$PAYLOAD_CACHE" -name '*.tmp' >left
`
	var c tally
	const enough = 1800 // KiB: a third of the trials has room for everything
	for i := range few(2, 60) {
		w.begin()
		size := 4 + i*enough/few(2, 60)
		res, err := w.namespace(script, fmt.Sprint(size))
		if err != nil {
			t.Fatal(err)
		}
		label := fmt.Sprintf("a disk of %d KiB", size)
		c.tried++
		if res.code != 0 {
			data, _ := os.ReadFile(w.at("repo", "errors"))
			c.bad("%s: with room again: %s%s", label, res.stderr, data)
			continue
		}
		code := strings.TrimSpace(read(t, w.at("repo", "code")))
		why := w.differs(w.at("copy"), w.tree)
		if code == "0" {
			c.right++
			why += w.differs(w.at("copy-first"), w.tree)
		} else {
			c.errors++
			why += clearError(traced{code: 1, stderr: res.stderr}, "free some space")
		}
		if left := read(t, w.at("repo", "left")); left != "" {
			why += "left over: " + left
		}
		if why != "" {
			c.bad("%s: %s", label, why)
			continue
		}
		c.again++
	}
	allFaults.add(t, "a small disk that is full", sc.name, c)
}

func TestFaultReadOnly(t *testing.T) {
	t.Parallel()
	var c tally
	for _, name := range []string{"source, by git", "source, laid out anew", "source, there already", "lock", "cache prune"} {
		w, sc := prepared(t, name)
		if err := os.MkdirAll(w.at("cäche"), 0o755); err != nil {
			t.Fatal(err)
		}
		needsMounts(t, w)
		res, err := w.namespace(`mount --bind "$PAYLOAD_CACHE" "$PAYLOAD_CACHE" && mount -o remount,ro,bind "$PAYLOAD_CACHE" && exec "$@"`, sc.args...)
		if err != nil {
			t.Fatal(err)
		}
		w.judge(sc, res, "read-only", "the cache folder is read-only", &c)
	}
	allFaults.add(t, "a read-only cache folder", "five verbs", c)
}

func TestFaultKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source, by git", "source, from an archive", "source --repair"} {
		w, sc := prepared(t, name)
		begun := time.Now()
		w.run(sc.env, sc.args...)
		whole := time.Since(begun)
		var c tally
		n := few(1, 60)
		for i := range n {
			w.begin()
			cmd := exec.Command(sc.args[0], sc.args[1:]...)
			cmd.Dir, cmd.Env = w.at("repo"), append(slices.Clone(w.env), sc.env...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(whole * time.Duration(i+1) / time.Duration(n+1))
			_ = cmd.Process.Kill() // ended by itself
			_ = cmd.Wait()
			res := traced{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
			if res.code == 0 {
				res = w.run(sc.env, sc.args...)
			}
			w.judge(sc, res, "", fmt.Sprintf("killed after %s", whole*time.Duration(i+1)/time.Duration(n+1)), &c)
		}
		allFaults.add(t, "kill -9 of payload at some time, its children left running", name, c)
	}
}

func TestFaultProcessesRace(t *testing.T) {
	t.Parallel()
	w, sc := prepared(t, "source, by git")
	source := sc.args
	mirror := []string{"env", "PAYLOAD_SOURCE_KINDS=mirror", "payload", "source", "toy"}
	for _, set := range []struct {
		name string
		args [][]string
	}{
		{"four that lay out one tree", [][]string{source, source, source, source}},
		{"two sources, a repair and a prune", [][]string{source, mirror, append(slices.Clone(source), "--repair"), {"payload", "cache", "prune"}}},
		{"two sources, a lock and a prune of what is damaged", [][]string{source, mirror, {"payload", "lock"}, {"payload", "cache", "prune", "--damaged"}}},
	} {
		var c tally
		for round := range few(1, 40) {
			w.begin()
			results := make([]traced, len(set.args))
			var all sync.WaitGroup
			for i, args := range set.args {
				all.Go(func() {
					time.Sleep(time.Duration(round*i) * 3 * time.Millisecond)
					results[i] = w.run(nil, args...)
				})
			}
			all.Wait()
			for i, res := range results {
				tree := slices.Contains(set.args[i], "source")
				c.tried++
				why := ""
				if res.code != 0 {
					why = clearError(res, "")
					c.errors++
					c.examples = append(c.examples, fmt.Sprintf("%v: %s", set.args[i], res.stderr))
				} else {
					c.right++
				}
				if again := w.run(sc.env, sc.args...); tree && why == "" {
					if again.code != 0 {
						why = again.stderr
					} else {
						why = wrongTree(w, again)
					}
				}
				if why != "" {
					c.bad("round %d, %v: %s", round, set.args[i], why)
					continue
				}
				c.again++
			}
			if left := w.left(); len(left) > 0 {
				c.bad("round %d: left over: %v", round, left)
			}
		}
		allFaults.add(t, "processes that race", set.name, c)
	}
}

// storeFiles lists the files of the store, each kind of them once or, for all
// faults, every one.
func (w *world) storeFiles() (list []string) {
	seen := map[string]int{}
	_ = filepath.WalkDir(w.at("cäche"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".lock") || entry.Type() != 0 {
			return nil
		}
		kind := filepath.Dir(path) + filepath.Ext(path)
		if strings.Contains(path, "/objects/") {
			kind = "object" + filepath.Ext(path)
		} else if strings.Contains(path, "/trees/") && filepath.Dir(path) != w.at("cäche", "trees") {
			kind = "tree"
		}
		if seen[kind]++; seen[kind] <= few(2, 60) {
			list = append(list, path)
		}
		return nil
	})
	return list
}

// damages are done to one file each.
var damages = []struct {
	name string
	do   func(data []byte) []byte // nil takes the file away
}{
	{"gone", nil},
	{"empty", func([]byte) []byte { return nil }},
	{"cut in half", func(data []byte) []byte { return data[:len(data)/2] }},
	{"a byte flipped", func(data []byte) []byte {
		if len(data) > 0 {
			data[len(data)*2/3] ^= 0x40
		}
		return data
	}},
}

func damage(path string, do func([]byte) []byte) error {
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if do == nil {
		return os.Remove(path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(path, do(data), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode())
}

func TestFaultDamagedStore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"source, there already", "source, laid out anew"} {
		w, sc := prepared(t, name)
		sc.args = []string{"payload", "source", "toy"}
		for _, d := range damages {
			var c tally
			for i, path := range w.storeFiles() {
				if *everyFault == 0 && i%len(damages) != len(d.name)%len(damages) {
					continue
				}
				w.begin()
				if err := damage(path, d.do); err != nil {
					t.Fatal(err)
				}
				res := w.run(sc.env, sc.args...)
				if res.code != 0 { // what a person does next
					w.run(nil, "payload", "cache", "prune", "--damaged")
				}
				w.judge(sc, res, "", path+" "+d.name, &c)
			}
			w.begin()
			allFaults.add(t, "a damaged file of the store: "+d.name, name, c)
		}
	}
}

func TestFaultClockSetBack(t *testing.T) {
	t.Parallel()
	w, sc := prepared(t, "source, there already")
	future := time.Now().AddDate(2, 0, 0)
	var c tally
	for _, harm := range []bool{false, true} {
		w.begin()
		var file string
		err := filepath.WalkDir(w.at(), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "one.txt" && strings.Contains(path, "/trees/") {
				file = path
			}
			if err != nil || entry.Type() == fs.ModeSymlink {
				return err
			}
			return os.Chtimes(path, future, future)
		})
		if err != nil {
			t.Fatal(err)
		}
		// Once more, so that the index knows these times.
		w.must(t, sc.args...)
		if harm {
			data := []byte(strings.Replace(read(t, file), "four", "FOUR", 1))
			if err := damage(file, func([]byte) []byte { return data }); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, future, future); err != nil {
				t.Fatal(err)
			}
		}
		res := w.run(nil, sc.args...)
		if harm && res.code != exitVerification {
			c.bad("a change was not seen: %+v", res)
		}
		repair := sc
		repair.args = append(slices.Clone(sc.args), "--repair")
		w.judge(repair, res, "", "the clock set back two years", &c)
	}
	allFaults.add(t, "the clock set back after the store was made", sc.name, c)
}

func TestFaultHome(t *testing.T) {
	t.Parallel()
	w, sc := prepared(t, "source, by git")
	var c tally
	without := func(gone ...string) (env []string) {
		for _, kv := range w.env {
			name, _, _ := strings.Cut(kv, "=")
			if !slices.Contains(gone, name) {
				env = append(env, kv)
			}
		}
		return env
	}
	for name, env := range map[string][]string{
		"no HOME":                 without("HOME"),
		"no HOME, no cache named": without("HOME", "PAYLOAD_CACHE"),
		"HOME is not there":       append(without("HOME", "PAYLOAD_CACHE"), "HOME=/proc/none"),
		"HOME is a file":          append(without("HOME", "PAYLOAD_CACHE"), "HOME="+w.at("toy.tar")),
		"the cache is a file":     append(without("PAYLOAD_CACHE"), "PAYLOAD_CACHE="+w.at("toy.tar")),
		"the cache is relative":   append(without("PAYLOAD_CACHE"), "PAYLOAD_CACHE=relative"),
		"no TMPDIR there":         append(without("TMPDIR"), "TMPDIR="+w.at("none")),
	} {
		w.begin()
		kept := w.env
		w.env = env
		res := w.run(nil, sc.args...)
		if !filepath.IsAbs(strings.TrimSpace(res.stdout)) && res.code == 0 {
			c.bad("%s: the path %q is not absolute", name, res.stdout)
		}
		tree := res
		w.env = kept
		judged := sc
		judged.wrong = func(w *world, res traced) string { return wrongTree(w, res) }
		w.judge(judged, tree, "", name, &c)
	}
	allFaults.add(t, "HOME, TMPDIR or the cache folder missing or wrong", sc.name, c)
}

func TestFaultDownload(t *testing.T) {
	t.Parallel()
	w, sc := prepared(t, "source, from an archive")
	var c tally
	archive := read(t, w.at("toy.tar"))
	n := few(1, 60)
	for i := range n {
		w.begin()
		cut := len(archive) * i / n
		testkit.Write(t, w.at("toy.tar"), archive[:cut])
		res := w.run(sc.env, sc.args...)
		if res.code != exitVerification {
			c.bad("%d bytes of %d: exit code %d", cut, len(archive), res.code)
		}
		testkit.Write(t, w.at("toy.tar"), archive)
		w.judge(sc, res, "its sha256 is", fmt.Sprintf("%d bytes of %d", cut, len(archive)), &c)
	}
	allFaults.add(t, "a download cut short", "an archive", c)

	c = tally{}
	for i := range n {
		w.begin()
		flipped := []byte(archive)
		flipped[len(flipped)*i/n] ^= 1
		testkit.Write(t, w.at("toy.tar"), string(flipped))
		res := w.run(sc.env, sc.args...)
		testkit.Write(t, w.at("toy.tar"), archive)
		w.judge(sc, res, "its sha256 is", fmt.Sprint("byte ", len(flipped)*i/n), &c)
	}
	allFaults.add(t, "a mirror with another digest", "an archive", c)
}

// A package manager that is killed, or leaves something else than was asked.
func TestFaultClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(t, "sh", "-c", `mkdir sdist && cp -a ../upstream sdist/toy-1 && rm -rf sdist/toy-1/.git && git -C ../upstream checkout -q b200 && rm -rf sdist/toy-1 && mkdir sdist/toy-1 && cp -a ../upstream/. sdist/toy-1 && rm -rf sdist/toy-1/.git && tar -C sdist -czf ../toy-1.tar.gz toy-1 && rm -rf sdist && git -C ../upstream checkout -q main`)
	sum := strings.Fields(w.must(t, "sha256sum", "../toy-1.tar.gz").stdout)[0]
	text := read(t, w.at("repo", "payload.yaml"))
	at, end := strings.Index(text, "archive: "), strings.Index(text, "}")
	testkit.Write(t, w.at("repo", "payload.yaml"), text[:at]+"pypi: toy==1, sha256: "+sum+text[end:])
	w.env = append(w.env, "PIP_GOOD="+w.at("toy-1.tar.gz"))
	w.env[0] = "PATH=" + w.at("bin") + ":" + os.Getenv("PATH")
	pip := func(body string) {
		testkit.Write(t, w.at("bin", "pip"), `#!/bin/sh
if [ "$1" = --version ]; then echo "pip 24.0"; exit 0; fi
while [ $# -gt 0 ]; do case "$1" in -d) out=$2; shift ;; esac; shift; done
mkdir -p "$out"
`+body+"\n")
		if err := os.Chmod(w.at("bin", "pip"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	good := `cp "$PIP_GOOD" "$out"`
	pip(good)
	w.must(t, "payload", "lock")
	w.drop("cäche")
	w.keep()
	sc := named("source, from an archive")
	var c tally
	for name, body := range map[string]string{
		"killed half-way":           `head -c 999 "$PIP_GOOD" >"$out/toy-1.tar.gz"; kill -9 $$`,
		"half a file, and success":  `head -c 999 "$PIP_GOOD" >"$out/toy-1.tar.gz"`,
		"nothing, and success":      `true`,
		"two files":                 good + `; cp "$PIP_GOOD" "$out/other.tar.gz"`,
		"an error":                  `echo "ERROR: Connection broken: IncompleteRead(999 bytes read)" >&2; exit 1`,
		"a folder in place of it":   `mkdir "$out/toy-1.tar.gz"`,
		"a page in place of a file": `echo "<html>sign in</html>" >"$out/toy-1.tar.gz"`,
		"a name from outside":       `cp "$PIP_GOOD" "$out/.."; ln -s ../toy-1.tar.gz "$out/toy-1.tar.gz"`,
	} {
		w.begin()
		pip(body)
		res := w.run(sc.env, sc.args...)
		pip(good)
		w.judge(sc, res, "", "pip: "+name, &c)
	}
	allFaults.add(t, "a package manager that fails or lies", "a PyPI mirror", c)
}

// breaker is a git server over HTTP that goes wrong after some bytes.
type breaker struct {
	backend http.Handler
	mu      sync.Mutex
	after   int    // bytes of answers to let through
	how     string // close, hang, garble, refuse; empty works
	stop    chan struct{}
}

func (b *breaker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	how := b.how
	b.mu.Unlock()
	if how == "refuse" {
		http.Error(rw, "busy", http.StatusServiceUnavailable)
		return
	}
	b.backend.ServeHTTP(&broken{ResponseWriter: rw, b: b}, r)
}

type broken struct {
	http.ResponseWriter
	b *breaker
}

func (w *broken) Write(data []byte) (int, error) {
	w.b.mu.Lock()
	how, pass := w.b.how, min(len(data), w.b.after)
	w.b.after -= pass
	w.b.mu.Unlock()
	if how == "" || pass == len(data) {
		return w.ResponseWriter.Write(data)
	}
	if how == "garble" {
		data = slices.Clone(data)
		for i := pass; i < len(data); i += 7 {
			data[i] ^= 0x15
		}
		return w.ResponseWriter.Write(data)
	}
	if _, err := w.ResponseWriter.Write(data[:pass]); err != nil {
		return 0, err
	}
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
	if how == "hang" {
		<-w.b.stop
	}
	panic(http.ErrAbortHandler) // the connection is closed
}

func TestFaultServer(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	server := &breaker{stop: make(chan struct{}), backend: &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + w.at("upstream"), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}}
	listening := httptest.NewServer(server)
	defer listening.Close()
	defer close(server.stop)
	edit(t, w.at("repo", "payload.yaml"), "upstream: ../upstream", "upstream: "+listening.URL+"/.git")
	w.env = append(w.env, "PAYLOAD_GIT_TIMEOUT=2", "no_proxy=127.0.0.1")
	w.must(t, "payload", "lock")
	w.drop("cäche")
	w.keep()
	sc := named("source, by git")
	// What a whole fetch takes, in bytes.
	const plenty = 1 << 30
	server.after, server.how = plenty, "close"
	w.must(t, append([]string{"env"}, append(sc.env, sc.args...)...)...)
	whole := plenty - server.after
	set := func(how string, after int) {
		server.mu.Lock()
		defer server.mu.Unlock()
		server.how, server.after = how, after
	}
	for _, kind := range []struct {
		how, name string
		tries     int
	}{
		{"close", "a server that closes the connection after some bytes", few(3, 50)},
		{"garble", "a server that sends other bytes", few(2, 50)},
		{"refuse", "a server that is busy", 1},
		{"hang", "a server that falls silent after some bytes", few(1, 4)},
	} {
		var c tally
		for i := range kind.tries {
			w.begin()
			after := whole * i / kind.tries
			set(kind.how, after)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
			begun := time.Now()
			res := w.run(sc.env, sc.args...)
			took := time.Since(begun)
			if ctx.Err() != nil {
				c.bad("%s after %d of %d bytes: it took %s", kind.how, after, whole, took)
			}
			cancel()
			set("", 0)
			w.judge(sc, res, "", fmt.Sprintf("%s after %d of %d bytes", kind.how, after, whole), &c)
		}
		allFaults.add(t, kind.name, "git over HTTP", c)
	}

	// One that accepts and never answers.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var c tally
	for _, scheme := range []string{"http", "git"} {
		w.begin()
		edit(t, w.at("repo", "payload.yaml"), listening.URL+"/.git", scheme+"://"+silent.Addr().String()+"/x.git")
		begun := time.Now()
		res := w.run(sc.env, sc.args...)
		if took := time.Since(begun); took > 20*time.Second {
			c.bad("%s: it took %s", scheme, took)
		}
		edit(t, w.at("repo", "payload.yaml"), scheme+"://"+silent.Addr().String()+"/x.git", listening.URL+"/.git")
		w.judge(sc, res, "no answer within 2s", "a server that never answers, "+scheme, &c)
	}
	allFaults.add(t, "a server that never answers", "git over HTTP and git's own protocol", c)
}

// A disk that fills up while a build is configured, compiled or staged.
func TestFaultBuildDisk(t *testing.T) {
	t.Parallel()
	w, sc := prepared(t, "build, staging")
	needsMounts(t, w)
	const script = `
set -eu
mkdir -p build dist
mount -t tmpfs -o size="$2"k none "$1"
shift 2
code=0
"$@" >/dev/null 2>&1 || code=$?
test "$code" != 0 || exit 0
"$@" >&2 2>../words || code=$?
cat ../words >&2
mount -o remount,size=64m "$PWD/build" 2>/dev/null || mount -o remount,size=64m "$PWD/dist"
"$@" >/dev/null 2>../again || { cat ../again >&2; exit 99; }
test "$(dist/quiet/lib/payload/hello)" = "good evening 100" || exit 98
exit "$code"
`
	for _, folder := range []string{"build", "dist"} {
		var c tally
		for i := range few(1, 25) {
			w.begin()
			w.drop("repo/build")
			w.drop("repo/dist")
			size := 8 + 12*i
			res, err := w.namespace(script, append([]string{folder, fmt.Sprint(size)}, sc.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			c.tried++
			label := fmt.Sprintf("%s of %d KiB", folder, size)
			switch why := clearError(res, "free some space"); {
			case res.code == 0:
				c.right++
				c.again++
			case res.code >= 98:
				c.bad("%s: with room again: exit code %d: %s", label, res.code, res.stderr)
			case why != "":
				c.bad("%s: %s", label, why)
			default:
				c.errors++
				c.again++
			}
		}
		allFaults.add(t, "a small disk that is full: the build's", folder, c)
	}
}
