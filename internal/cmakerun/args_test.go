package cmakerun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"payload/internal/run"
	"payload/internal/testkit"
)

func TestArguments(t *testing.T) {
	b := NewBuild("/r", "llama/server", Preset{Name: "cpu", Vendor: Vendor{Targets: []string{"server"}}})
	b.Jobs = 3
	b.Exe = "/bin/payload"
	b.Sources = []Source{{
		Component: "lib.x", Var: "LIB_X", Tree: "/store/t", Ref: "v1", Commit: "abc", Build: 7, Patched: "123",
		Depends: []string{"/r/PIN", "/r/payload.lock"},
	}}
	b.Launcher = Launcher{Name: "ccache", Path: "/usr/bin/ccache"}
	want := []string{
		"cmake", "-S", "/r/llama/server", "-B", "/r/build/llama-server-cpu", "--preset", "cpu",
		"-DLIB_X_SOURCE_DIR:PATH=/r/build/llama-server-cpu/src/lib.x", "-DLIB_X_REF:STRING=v1", "-DLIB_X_COMMIT:STRING=abc",
		"-DLIB_X_BUILD_NUMBER:STRING=7", "-DLIB_X_TREE:STRING=123", "-DLIB_X_DEPENDS:STRING=/r/PIN;/r/payload.lock",
	}
	if got := ConfigureArgs(b); !slices.Equal(got, want) {
		t.Errorf("configure %q, want %q", got, want)
	}
	if got, want := CompileCmd(b).String(), "CCACHE_BASEDIR=/r PAYLOAD_EXE=/bin/payload NINJA_STATUS='[%f/%t] ' cmake --build /r/build/llama-server-cpu --parallel 3 --target server"; got != want {
		t.Errorf("compile %q, want %q", got, want)
	}
	b.Preset.Generator = "Ninja"
	if got, want := strings.Join(CompileArgs(b), " "), "ninja -C /r/build/llama-server-cpu -j 3 server"; got != want {
		t.Errorf("compile %q, want %q", got, want)
	}
	b.Preset.Cache = map[string]CacheVariable{"CMAKE_MAKE_PROGRAM": {Value: "/opt/ninja"}}
	b.Targets = []string{"one", "two"}
	b.Jobs = 0
	if got, want := strings.Join(CompileArgs(b), " "), "/opt/ninja -C /r/build/llama-server-cpu one two"; got != want {
		t.Errorf("compile %q, want %q", got, want)
	}
	b.Preset.Generator = "Unix Makefiles"
	if got, want := strings.Join(CompileArgs(b), " "), "cmake --build /r/build/llama-server-cpu --target one two"; got != want {
		t.Errorf("compile %q, want %q", got, want)
	}
	if got, want := strings.Join(InstallArgs(b, "base", "/p"), " "), "cmake --install /r/build/llama-server-cpu --prefix /p --component base"; got != want {
		t.Errorf("install %q, want %q", got, want)
	}
	b.BinaryDir = "/elsewhere"
	if env := CompileCmd(b).Env; !slices.Contains(env, "CCACHE_BASEDIR=/elsewhere") {
		t.Errorf("environment of a build folder outside the repository: %q", env)
	}
	for name, want := range map[string]string{"mlx": "mlx-cpu", ".": "r-cpu", "a/b/c": "a-b-c-cpu"} {
		if got := NewBuild("/r", name, Preset{Name: "cpu"}).ID(); got != want {
			t.Errorf("project %s: %s, want %s", name, got, want)
		}
	}
}

// Defaults are those of the same machine and tools, and of nothing else that
// the preset says.
func TestDefaultsArguments(t *testing.T) {
	b := NewBuild("/r", "app", Preset{Name: "cuda", Generator: "Ninja", ToolchainFile: "/t.cmake", Cache: map[string]CacheVariable{
		"CMAKE_BUILD_TYPE": {Value: "Release"}, "GGML_CUDA": {Value: "ON"}, "CMAKE_CUDA_FLAGS": {Value: "-x"},
		"CMAKE_CUDA_COMPILER": {Value: "/nvcc", Type: "FILEPATH"}, "CMAKE_CUDA_ARCHITECTURES": {Value: "90"},
		"CMAKE_OSX_DEPLOYMENT_TARGET": {Value: "14.0"}, "CMAKE_SYSTEM_NAME": {Value: "Linux"},
	}})
	b.BinaryDir = "/s"
	want := "cmake -S /r/app -B /s -G Ninja --toolchain /t.cmake -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_CUDA_COMPILER:FILEPATH=/nvcc -DCMAKE_OSX_DEPLOYMENT_TARGET=14.0 -DCMAKE_SYSTEM_NAME=Linux"
	if got := strings.Join(DefaultsArgs(b), " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestFindLauncher(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if l, err := FindLauncher("auto"); err != nil || l != (Launcher{}) {
		t.Errorf("none installed: %+v, %v", l, err)
	}
	if _, err := FindLauncher("ccache"); !errors.As(err, new(*run.MissingError)) {
		t.Errorf("one asked for that is missing: %v", err)
	}
	testkit.Fake(t, "sccache", "exit 0\n")
	if l, err := FindLauncher(""); err != nil || l.Name != "sccache" {
		t.Errorf("only sccache installed: %+v, %v", l, err)
	}
	if env := (Launcher{Name: "sccache", Path: "/x/sccache"}).compileEnv(Build{}); env != nil {
		t.Errorf("sccache gets ccache's variables: %q", env)
	}
	testkit.Fake(t, "ccache", "exit 0\n")
	l, err := FindLauncher("auto")
	if err != nil || l.Name != "ccache" || !filepath.IsAbs(l.Path) {
		t.Errorf("both installed: %+v, %v", l, err)
	}
	if env := l.configureEnv(); !slices.Contains(env, "CMAKE_CXX_COMPILER_LAUNCHER="+l.Path) || !slices.Contains(env, "CMAKE_CUDA_COMPILER_LAUNCHER="+l.Path) {
		t.Errorf("environment %q", env)
	}
	if l, err := FindLauncher("none"); err != nil || l != (Launcher{}) {
		t.Errorf("none asked for: %+v, %v", l, err)
	}
	t.Setenv("CCACHE_BASEDIR", "/mine")
	if env := l.compileEnv(Build{Root: "/r", BinaryDir: "/r/b"}); env != nil {
		t.Errorf("a person's own CCACHE_BASEDIR is replaced: %q", env)
	}
}

// A second checkout, with another path, takes everything from the cache.
func TestAnotherCheckoutHitsTheCache(t *testing.T) {
	l, err := FindLauncher("ccache")
	if err != nil {
		t.Skip("ccache is not installed, so hits in another checkout were not exercised")
	}
	cache := t.TempDir()
	t.Setenv("CCACHE_DIR", cache)
	t.Setenv("CCACHE_BASEDIR", "")
	store := filepath.Join(tree(t, projectFixture), "store", "a")
	for i := range 2 {
		if res, err := run.Do(context.Background(), run.Cmd{Args: []string{"ccache", "-z"}}); err != nil {
			t.Fatal(err, res)
		}
		b := fixture(t, "plain")
		b.Sources[0].Tree = store
		b.Launcher = l
		c := configure(t, b)
		if must(c.Reply.Cache())["CMAKE_C_COMPILER_LAUNCHER"].Value != l.Path {
			t.Fatal("CMake does not know the launcher")
		}
		compile(t, b)
		stats := mustRun(t, "ccache", "-s")
		hits := regexp.MustCompile(`(?m)Hits: +(\d+) +/ +(\d+)`).FindStringSubmatch(stats)
		if hits == nil || hits[2] == "0" {
			t.Fatalf("the cache was not used: %s", stats)
		}
		if want := []string{"0", hits[2]}[i]; hits[1] != want {
			t.Errorf("checkout %d: want %s hits, got %s", i+1, want, stats)
		}
	}
}

func TestJobs(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const meminfo = "MemTotal:       65536000 kB\nMemAvailable:   33554432 kB\n" // 32 GiB
	for name, c := range map[string]struct {
		files  fstest.MapFS
		cores  int
		jobs   int
		reason string
	}{
		"nothing known": {fstest.MapFS{}, 4, 4, "4 cores"},
		"one core":      {fstest.MapFS{"proc/meminfo": file(meminfo)}, 1, 1, "1 core"},
		"enough memory": {fstest.MapFS{"proc/meminfo": file(meminfo)}, 8, 8, "8 cores"},
		"many cores":    {fstest.MapFS{"proc/meminfo": file(meminfo)}, 64, 32, "32.0 GiB of memory (available) at 1.0 GiB a job, 64 cores"},
		"no memory":     {fstest.MapFS{"proc/meminfo": file("MemAvailable: 500000 kB\n")}, 8, 1, "0.5 GiB of memory (available) at 1.0 GiB a job, 8 cores"},
		"v2, a parent's limit": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/user/job\n"),
			"sys/fs/cgroup/user/memory.max":     file("6442450944\n"), // 6 GiB
			"sys/fs/cgroup/user/memory.current": file("4294967296\n"), // 4 GiB, of which
			"sys/fs/cgroup/user/memory.stat":    file("anon 1\ninactive_file 1073741824\n"),
			"sys/fs/cgroup/user/job/memory.max": file("max\n"),
		}, 16, 3, "3.0 GiB of memory (left to the control group) at 1.0 GiB a job, 16 cores"},
		"v2, processor time": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/cpu.max": file("250000 100000\n"),
		}, 16, 3, "the control group may use 2.5 of 16 cores"},
		"v2, no limit": {fstest.MapFS{
			"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/cpu.max": file("max 100000\n"), "sys/fs/cgroup/memory.max": file("max\n"),
		}, 3, 3, "3 cores"},
		"v1, path of the host": {fstest.MapFS{
			"proc/self/cgroup":                            file("4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  file("2147483648\n"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes":  file("104857600\n"),
			"sys/fs/cgroup/memory/memory.stat":            file("inactive_file 5\ntotal_inactive_file 104857600\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":          file("-1\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":         file("100000\n"),
			"sys/fs/cgroup/memory/other/memory.limit_in_": file("1\n"),
		}, 16, 2, "2.0 GiB of memory (left to the control group) at 1.0 GiB a job, 16 cores"},
		"v1, no limit": {fstest.MapFS{
			"proc/self/cgroup":                           file("4:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 5, 5, "5 cores"},
		"v1, processor time": {fstest.MapFS{
			"proc/self/cgroup":                    file("1:cpu:/\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  file("20000\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_period_us": file("100000\n"),
		}, 5, 1, "the control group may use 0.2 of 5 cores"},
	} {
		jobs, reason := ReadLimits(c.files, c.cores).Jobs(JobMemory)
		if jobs != c.jobs || reason != c.reason {
			t.Errorf("%s: %d jobs, %q; want %d, %q", name, jobs, reason, c.jobs, c.reason)
		}
	}
	if jobs, reason := Jobs(); jobs < 1 || reason == "" {
		t.Errorf("here: %d, %q", jobs, reason)
	}
}

func TestParseConfigure(t *testing.T) {
	out := `-- Looking
CMake Warning (dev) at x.cmake:1 (foo):
  A warning.
This warning is for project developers.

CMake Error at lib/CMakeLists.txt:12 (find_package):
  Could not find a package configuration file provided by "Foo" with any of
  the following names:

    FooConfig.cmake
Call Stack (most recent call first):
  CMakeLists.txt:3 (include)


-- Configuring incomplete, errors occurred!
`
	e := parseConfigure(out)
	if e.File != "lib/CMakeLists.txt" || e.Line != 12 || e.Message != `Could not find a package configuration file provided by "Foo" with any of the following names: FooConfig.cmake` {
		t.Errorf("%+v", e)
	}
	e = parseConfigure("CMake Error: CMake was unable to find a build program corresponding to \"Ninja\".  CMAKE_MAKE_PROGRAM is not set.\nCMake Error: CMAKE_C_COMPILER not set\n")
	if e.Missing != "Ninja" || e.File != "" || !strings.HasPrefix(e.Message, "CMake was unable to find") || strings.Contains(e.Message, "not set CMake") {
		t.Errorf("%+v", e)
	}
	unused := "CMake Warning:\n  Manually-specified variables were not used by the project:\n\n    LIB_X_REF\n    MINE\n\n\n-- Build files\n    NOT_THIS\n"
	if got := unusedIn(unused); !slices.Equal(got, []string{"LIB_X_REF", "MINE"}) {
		t.Errorf("unused %q", got)
	}
	b := Build{Sources: []Source{{Var: "LIB_X"}}}
	if n := countWarnings(out+unused, b); n != 2 {
		t.Errorf("%d warnings, want 2", n)
	}
	if n := countWarnings(strings.Replace(unused, "    MINE\n", "", 1), b); n != 0 {
		t.Errorf("%d warnings, want none: only this tool's own variables are unused", n)
	}
}

// BenchmarkKeep is what a build that has nothing to do costs above the build
// tool itself.
func BenchmarkKeep(b *testing.B) {
	build := fixture(b, "plain")
	configure(b, build)
	compile(b, build)
	b.ResetTimer()
	for range b.N {
		if c := configure(b, build); c.Verdict.Action != Keep {
			b.Fatalf("%+v", c.Verdict)
		}
		if steps := compile(b, build).Steps; steps != 0 {
			b.Fatalf("%d steps", steps)
		}
	}
	if _, err := os.Stat(build.BuildLog()); err != nil {
		b.Fatal(err)
	}
}
