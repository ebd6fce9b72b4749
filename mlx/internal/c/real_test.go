package c_test

import (
	"debug/elf"
	"debug/macho"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"payload/mlx"
	"payload/mlx/internal/c"
	"payload/mlx/mlxtest"
)

// exported lists the functions of mlx-c that the library exports.
func exported(t *testing.T, path string) []string {
	t.Helper()
	var names []string
	if file, err := elf.Open(path); err == nil {
		defer file.Close()
		symbols, err := file.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				names = append(names, s.Name)
			}
		}
	} else if file, err := macho.Open(path); err == nil {
		defer file.Close()
		for _, s := range file.Symtab.Syms {
			if s.Sect != 0 && s.Type&1 == 1 { // defined here, and external
				names = append(names, strings.TrimPrefix(s.Name, "_"))
			}
		}
	} else {
		t.Skipf("NOT RUN: no way here to list what %s exports", path)
	}
	return slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasPrefix(n, "mlx_") && !strings.HasPrefix(n, "_mlx_")
	})
}

// Loading resolved every function that is bound; here the other way around:
// the library has none that is not.
func TestEveryFunctionIsBound(t *testing.T) {
	mlxtest.Library(t)
	path, err := mlx.Library()
	if err != nil {
		t.Fatal(err)
	}
	have, bound := exported(t, path), c.Bound()
	if len(have) < 600 {
		t.Fatalf("%s exports %d functions of mlx-c", path, len(have))
	}
	for _, n := range have {
		if !slices.Contains(bound, n) {
			t.Errorf("%s is exported and not bound", n)
		}
	}
	for _, n := range bound {
		if !slices.Contains(have, n) {
			t.Errorf("%s is bound and not exported", n)
		}
	}
}

// The libraries cut for macOS, where they lie staged, export what is bound
// there: half floats too.
func TestTheMacLibraryExportsWhatIsBound(t *testing.T) {
	staged, err := filepath.Glob("../../../dist/mlx_metal_*/lib/payload/mlx_metal_*/libmlxc.dylib")
	if err != nil {
		t.Fatal(err)
	}
	if len(staged) == 0 {
		t.Skip("NOT RUN: no payload for macOS is staged in dist")
	}
	var bound []string
	for _, file := range []string{"zapi.go", "zapi_arm64.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\{name: "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
			bound = append(bound, m[1])
		}
	}
	slices.Sort(bound)
	for _, path := range staged {
		have := exported(t, path)
		slices.Sort(have)
		if !slices.Equal(have, bound) {
			t.Errorf("%s exports %d functions of mlx-c, and %d are bound", path, len(have), len(bound))
		}
	}
}

func TestFastPathAllocatesNothing(t *testing.T) {
	mlxtest.Library(t)
	s, err := c.DefaultCpuStreamNew()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.StreamFree(s) }()
	a, err := c.ArrayNewInt(3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.ArrayFree(a) }()
	shape := []int32{2, 3, 4}
	var out c.Array
	calls := map[string]func() error{
		"a value": func() error { c.ArrayNdim(a); return nil },
		"out":     func() error { return c.ArraySet(&out, a) },
		"a slice": func() error { return c.BroadcastTo(&out, a, shape, s) },
	}
	for name, f := range calls {
		if n := testing.AllocsPerRun(1000, func() { err = f() }); n > 0 || err != nil {
			t.Errorf("a call with %s: %v allocations, error %v", name, n, err)
		}
	}
	_ = c.ArrayFree(out)
}

// An error of one call is never another's: failing and succeeding calls on
// many goroutines get what is theirs.
func TestErrorsStayWithTheirCalls(t *testing.T) {
	mlxtest.Library(t)
	a, err := c.ArrayNewInt(3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.ArrayFree(a) }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				if err := c.ArrayEval(0); err == nil || !strings.Contains(err.Error(), "non-empty mlx_array") {
					t.Errorf("an empty array: %v", err)
				}
				var out c.Array
				if err := c.ArraySet(&out, a); err != nil {
					t.Errorf("a good call: %v", err)
				}
				_ = c.ArrayFree(out)
			}
		})
	}
	wg.Wait()
}

// Signals come in the middle of calls: those of Go's scheduler (URG) and
// profiler (PROF), and one that the program takes (TERM). Threads that MLX
// made get them too.
func TestSignalStorm(t *testing.T) {
	mlxtest.Library(t)
	taken := make(chan os.Signal, 64)
	signal.Notify(taken, syscall.SIGTERM, sigURG, sigPROF)
	defer signal.Stop(taken)
	var seen, calls atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-taken:
				seen.Add(1)
			}
		}
	})
	wg.Go(func() {
		self := os.Getpid()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				sendSignal(self, i)
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	for range 2 {
		wg.Go(func() { storm(t, stop, &calls) })
	}
	time.Sleep(2 * time.Second)
	close(stop)
	wg.Wait()
	t.Logf("%d signals during %d evaluations", seen.Load(), calls.Load())
	if seen.Load() < 100 || calls.Load() < 20 {
		t.Errorf("%d signals during %d evaluations prove nothing", seen.Load(), calls.Load())
	}
}
