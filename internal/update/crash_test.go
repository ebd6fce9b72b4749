package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"payload/internal/patch"
	"payload/internal/workspace"
)

// crashing is this test program as the process that is killed: in the folder
// of UPDATE_CRASH_ROOT it does what UPDATE_CRASH_DO says, and kills itself at
// the boundary of that number; 0 lists them all. ran is false where nothing of it is asked.
func crashing() (code int, ran bool) {
	root := os.Getenv("UPDATE_CRASH_ROOT")
	if root == "" {
		return 0, false
	}
	ctx := context.Background()
	w, err := workspace.Open(ctx, workspace.Options{Dir: root})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9, true
	}
	at, err := strconv.Atoi(os.Getenv("UPDATE_CRASH_AT"))
	if err != nil {
		return 9, true
	}
	j := newJob(w, silent(), built)
	all := at == 0
	j.at = func(boundary string) {
		if at--; all || at == 0 {
			fmt.Fprintln(os.Stdout, boundary)
		}
		if at == 0 {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {} // until it is dead
		}
	}
	switch os.Getenv("UPDATE_CRASH_DO") {
	case "start":
		err = j.start(ctx, Options{Component: "toy", Ref: "b101", Preset: "p", Commit: true})
	case "continue":
		err = j.reopen(ctx, "--continue", Finish{}, j.resolution(ctx))
	case "abort":
		err = j.abort(ctx, "")
	}
	var conflict *ConflictError
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &conflict):
		return 4, true
	}
	fmt.Fprintln(os.Stderr, err)
	return 1, true
}

// crash runs this program on a fixture and kills it at a boundary, or after a
// time; killed is false where it came to its end first.
func (f fixture) crash(t *testing.T, do string, at int, after time.Duration) (boundary string, killed bool) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if after > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, after)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), "UPDATE_CRASH_ROOT="+f.root, "UPDATE_CRASH_DO="+do, "UPDATE_CRASH_AT="+strconv.Itoa(at))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code > 0 && code != 4 {
		t.Fatalf("%s at %d: exit %d: %s", do, at, code, errs.String())
	}
	return strings.TrimSpace(out.String()), err != nil && code != 4
}

// copyOf is the fixture in another folder.
func (f fixture) copyOf(t *testing.T) fixture {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "cp", "-a", f.root, f.upstream.Dir, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return fixture{root: filepath.Join(dir, "repo"), upstream: f.upstream}
}

// finish goes on with an update after a kill, from the beginning where that is
// how far it came, and gives what the repository is then.
func (f fixture) finish(t *testing.T) map[string]string {
	t.Helper()
	_, err := f.goOn(t)
	var none *NoneOpenError
	var conflict *ConflictError
	if errors.As(err, &none) {
		if p, _ := os.ReadFile(filepath.Join(f.root, "TOY_VERSION")); string(p) == "b100\n" {
			_, err = Start(t.Context(), f.open(t), silent(), built, Options{Component: "toy", Ref: "b101", Preset: "p", Commit: true})
		} else {
			err = nil
		}
	}
	var open *patch.UnresolvedError
	if errors.As(err, &conflict) || errors.As(err, &open) {
		f.resolve(t, "conflict.txt", "resolved\n")
		_, err = f.goOn(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	return without(f.snapshot(t))
}

// abandon aborts after a kill. An update that was over by then stays.
func (f fixture) abandon(t *testing.T) map[string]string {
	t.Helper()
	_, err := Abort(t.Context(), f.open(t), silent(), "")
	var none *NoneOpenError
	if err != nil && !errors.As(err, &none) {
		t.Fatal(err)
	}
	return f.snapshot(t)
}

// An update is killed at every boundary there is. Going on gives what an
// uninterrupted run gives, and aborting what was there before; so does aborting
// after the abort was killed too.
func TestKilledAtEveryBoundary(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("starts some two hundred processes, and copies with cp")
	}
	k := killing{origin: newFixture(t, "offset", "upstreamed", "conflict")}
	k.before = k.origin.snapshot(t)
	whole := k.origin.copyOf(t)
	started := whole.boundaries(t, "start")
	stopped := whole.copyOf(t)
	stopped.resolve(t, "conflict.txt", "resolved\n")
	continued := stopped.copyOf(t).boundaries(t, "continue")
	k.want = whole.finish(t)
	if len(started) < 5 || len(continued) < 25 {
		t.Fatalf("boundaries: %q, %q", started, continued)
	}
	k.each(t, "start", k.origin, started)
	k.each(t, "continue", stopped, continued)
}

// killing is a fixture, as it was and as an uninterrupted update leaves it.
type killing struct {
	origin       fixture
	before, want map[string]string
}

// each kills do at each of its boundaries.
func (k killing) each(t *testing.T, do string, from fixture, boundaries []string) {
	t.Helper()
	over := slices.Index(boundaries, "over") // from here on nothing is open
	for i, boundary := range boundaries {
		t.Run(fmt.Sprintf("%s %d %s", do, i+1, boundary), func(t *testing.T) {
			t.Parallel()
			f := from.copyOf(t)
			if at, killed := f.crash(t, do, i+1, 0); !killed || at != boundary {
				t.Fatalf("killed %v at %q", killed, at)
			}
			other := f.copyOf(t)
			same(t, "continued", f.finish(t), k.want)
			if over >= 0 && i >= over {
				same(t, "nothing to abort", without(other.abandon(t)), k.want)
				return
			}
			if boundary == "new payload.lock" || boundary == "committed" {
				for n, at := range other.copyOf(t).boundaries(t, "abort") {
					third := other.copyOf(t)
					third.crash(t, "abort", n+1, 0)
					same(t, fmt.Sprintf("abort killed at %q, then aborted", at), third.abandon(t), k.before)
				}
			}
			same(t, "aborted", other.abandon(t), k.before)
		})
	}
}

// boundaries does something to its end and lists the boundaries it passed.
func (f fixture) boundaries(t *testing.T, do string) []string {
	t.Helper()
	out, killed := f.crash(t, do, 0, 0)
	if killed {
		t.Fatalf("%s: killed without being asked", do)
	}
	return strings.Split(out, "\n")
}

// The same at moments that nobody chose.
func TestKilledAtAnyTime(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("starts many processes, and copies with cp")
	}
	origin := newFixture(t, easy...)
	before := origin.snapshot(t)
	whole := origin.copyOf(t)
	begun := time.Now()
	if _, killed := whole.crash(t, "start", 0, 0); killed {
		t.Fatal("killed without being asked")
	}
	took := time.Since(begun)
	want := whole.finish(t)
	const tries = 12
	for i := range tries {
		f := origin.copyOf(t)
		after := took * time.Duration(i+1) / tries
		_, killed := f.crash(t, "start", 0, after)
		t.Logf("after %s: killed %v", after, killed)
		time.Sleep(50 * time.Millisecond) // a git that outlives it
		other := f.copyOf(t)
		what := fmt.Sprintf("killed after %s", after)
		same(t, what+", then continued", f.finish(t), want)
		if _, err := os.Stat(filepath.Join(other.root, folder, ".state", stateFile)); err == nil {
			same(t, what+", then aborted", other.abandon(t), before)
		}
	}
}
