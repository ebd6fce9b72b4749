package verify

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/verify/tinymodel"
)

// fakePayload is a payload whose program is this test binary.
func fakePayload(t *testing.T, f fake) string {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(exe, filepath.Join(dir, "server")); err != nil {
		if err := copyFile(exe, filepath.Join(dir, "server")); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, fakeFile), string(data))
	for name := range f.Variants {
		put(t, filepath.Join(dir, "libggml-cpu-"+name+".so"), "stands for a module")
	}
	if f.Device != "" {
		put(t, filepath.Join(dir, "gpu", "libggml-gpu.so"), "stands for a module")
	}
	seal(t, dir)
	return dir
}

var testLimits = limits{ready: 10 * time.Second, request: 10 * time.Second, stop: 2 * time.Second, probe: 10 * time.Second}

// verifyFake runs both halves with short limits, and makes sure that nothing
// stays behind.
func verifyFake(t *testing.T, ctx context.Context, dir string, change func(*sessions)) (Result, error) { //nolint:revive // t leads
	t.Helper()
	temp := t.TempDir()
	res := Result{Findings: []report.Finding{}}
	o := Options{Dir: dir, Program: "server", Kind: "completion-server", Tell: t.Logf}
	files, err := static(&res, o)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := tinymodel.Expected()
	if err != nil {
		t.Fatal(err)
	}
	s := &sessions{kind: kinds[o.Kind], options: o, files: files, limits: testLimits, model: []byte("stands for a model"), expected: expected, res: &res, tempIn: temp}
	if change != nil {
		change(s)
	}
	err = s.run(ctx)
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left over in the temporary folder: %v", left)
	}
	for _, name := range processesBelow(t, temp) {
		t.Errorf("still running: %s", name)
	}
	return res, err
}

func processesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && strings.HasPrefix(target, dir) {
			names = append(names, target)
		}
	}
	return names
}

func TestRuntimeGood(t *testing.T) {
	for name, f := range map[string]fake{
		"plain":            {},
		"awkward streams":  {Awkward: true},
		"lost ports":       {LostPort: 2},
		"other log prefix": {LogReplace: [2]string{"0.00.01", "whatever 9.99.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := verifyFake(t, t.Context(), fakePayload(t, f), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Findings) > 0 {
				t.Fatalf("found %+v", res.Findings)
			}
			r := res.Runtime
			if r.Version != "0.5.0-dev (build 11312, commit 0c1e57098)" || len(r.Variants) != 1 || r.Requests < 60 || r.Requests < r.Variants[0].Requests {
				t.Errorf("saw %+v", r)
			}
			if v := r.Variants[0]; v.PromptTPS != 1141 || v.DecodeTPS != 280 || !strings.Contains(v.Log["cache memory"], "KV buffer size =     0.75 MiB") {
				t.Errorf("saw %+v", v)
			}
		})
	}
}

func TestRuntimeFaults(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "libfar.so")
	put(t, outside, "x")
	for name, tt := range map[string]struct {
		fake fake
		want []string // beginnings of keys
		text string   // in the first finding
	}{
		"exits at start":       {fake{Die: "exit"}, []string{"runtime.exit:starting"}, "no such thing as a model"},
		"killed at start":      {fake{Die: "kill"}, []string{"runtime.crash:SIGKILL"}, "SIGKILL"},
		"exits on a request":   {fake{DieOn: "/completion"}, []string{"runtime.exit:completions"}, "this is the end"},
		"never ready":          {fake{Health: 503}, []string{"runtime.not-ready:"}, "503"},
		"does not stop":        {fake{IgnoreTerm: true}, []string{"runtime.stuck:stop"}, "killed after 2s"},
		"fails while stopping": {fake{CrashOnStop: true}, []string{"runtime.exit:stopping"}, "status 11"},
		"ports always lost":    {fake{LostPort: 9}, []string{"runtime.exit:starting"}, "couldn't bind"},
		"another server":       {fake{WrongName: true}, []string{"models.wrong:"}, "somebody else's"},
		"wrong chat":           {fake{WrongChat: true}, []string{"text.wrong:POST /v1/chat/completions ready streamed", "text.wrong:POST /v1/chat/completions "}, "want"},
		"wrong tokens":         {fake{WrongTokens: true}, []string{"tokens.wrong:POST /tokenize"}, "got  ["},
		"wrong probabilities":  {fake{WrongProbs: true}, []string{"logprobs.wrong:POST /completion with probabilities "}, "each within"},
		"wrong text":           {fake{WrongText: true}, []string{"text.wrong:POST /completion "}, `got  \"X`},
		"wrong stop":           {fake{WrongStop: true}, []string{"stop.wrong:POST /completion "}, "word"},
		"no timings":           {fake{NoTimings: true}, []string{"timings.missing:"}, ""},
		"status 500":           {fake{Status: 500}, []string{"request.failed:POST /completion"}, "busy"},
		"no end":               {fake{NoEnd: true}, []string{"stream.incomplete:POST /completion", "stream.incomplete:POST /v1/chat/completions"}, "without its end mark"},
		"cut":                  {fake{Cut: true}, []string{"stream.incomplete:POST /completion", "stream.incomplete:POST /v1/chat/completions"}, ""},
		"after the end":        {fake{AfterEnd: true}, []string{"stream.extra:POST /completion", "stream.extra:POST /v1/chat/completions"}, ""},
		"error frame":          {fake{ErrorFrame: true}, []string{"stream.error:POST /completion", "stream.error:POST /v1/chat/completions"}, "context shift"},
		"error line":           {fake{ErrorLine: true}, []string{"stream.error:POST /completion", "stream.error:POST /v1/chat/completions"}, "context shift"},
		"error event":          {fake{ErrorEvent: true}, []string{"stream.error:POST /completion", "stream.error:POST /v1/chat/completions"}, "context shift"},
		"stream of JSON":       {fake{Plain: true}, []string{"request.failed:POST /completion", "request.failed:POST /v1/chat/completions"}, "not text/event-stream"},
		"maps a file outside":  {fake{MapOutside: outside}, []string{"runtime.mapped-outside:libfar.so"}, outside},
		"no cache line":        {fake{LogWithout: "KV buffer"}, []string{"log.missing:cache memory"}, "KV buffer size"},
		"no flash attention":   {fake{LogReplace: [2]string{"lash", "lush"}}, []string{"log.missing:flash attention"}, ""},
		"no backend":           {fake{LogWithout: "load_backend"}, []string{"log.missing:backend"}, ""},
		"only zeros":           {fake{LogReplace: [2]string{"0.75 MiB", "0.00 MiB"}}, []string{"log.missing:cache memory"}, ""},
		"one layer elsewhere":  {fake{LogReplace: [2]string{"layer   1 assigned to device CPU", "layer   1 assigned to device CUDA0"}}, []string{"backend.wrong:layers"}, "CUDA"},
		"other backend":        {fake{LogReplace: [2]string{"device CPU,", "device Vulkan0,"}}, []string{"backend.wrong:layers"}, "Vulkan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := verifyFake(t, t.Context(), fakePayload(t, tt.fake), func(s *sessions) {
				if tt.fake.Health != 0 {
					s.limits.ready = time.Second
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			got := keys(res.Findings)
			if !res.Failed() || len(got) < len(tt.want) {
				t.Fatalf("got %q", got)
			}
			for _, k := range got {
				if !slices.ContainsFunc(tt.want, func(w string) bool { return strings.HasPrefix(k, w) }) {
					t.Errorf("got %q", k)
				}
			}
			for _, w := range tt.want {
				if !slices.ContainsFunc(got, func(k string) bool { return strings.HasPrefix(k, w) }) {
					t.Errorf("%q is not in %q", w, got)
				}
			}
			if all, _ := json.Marshal(res.Findings); !strings.Contains(string(all), tt.text) {
				t.Errorf("%q is not in %s", tt.text, all)
			}
			if v := res.Verified(); len(v.Variants) > 0 {
				t.Errorf("counts as verified: %v", v.Variants)
			}
		})
	}
}

func TestRuntimeVariants(t *testing.T) {
	f := fake{Variants: map[string]string{"haswell": "ok", "skylakex": "ok", "sapphirerapids": "unsupported", "zen9": "broken", "icelake": "dies"}}
	dir := fakePayload(t, f)
	res, err := verifyFake(t, t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := keys(res.Findings), []string{"runtime.exit:icelake:starting", "variant.broken:zen9"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	names := []string{}
	for _, v := range res.Runtime.Variants {
		names = append(names, v.Name)
		if v.Best != (v.Name == "skylakex") || !strings.HasSuffix(v.Log["backend"], "libggml-cpu-"+v.Name+".so") {
			t.Errorf("saw %+v", v)
		}
	}
	if want := []string{"skylakex", "haswell"}; !slices.Equal(names, want) {
		t.Errorf("ran %q, want %q", names, want)
	}
	if len(res.Runtime.Skipped) != 1 || res.Runtime.Skipped[0].Name != "sapphirerapids" || !strings.HasPrefix(res.Runtime.Skipped[0].Reason, "needs ") && !strings.HasPrefix(res.Runtime.Skipped[0].Reason, "the program says") {
		t.Errorf("skipped %+v", res.Runtime.Skipped)
	}
	want := &manifest.Verified{Static: true, Kind: "completion-server", Version: "0.5.0-dev (build 11312, commit 0c1e57098)", Variants: []string{"haswell", "skylakex"}, Skipped: res.Runtime.Skipped}
	if got := res.Verified(); !reflect.DeepEqual(got, want) {
		t.Errorf("verified %+v", got)
	}

	// Some versions load before they log: what is mapped tells it then.
	f = fake{Variants: map[string]string{"haswell": "ok", "skylakex": "ok"}, LogWithout: "load_backend", MapModule: true}
	res, err = verifyFake(t, t.Context(), fakePayload(t, f), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Findings) != 0 || len(res.Runtime.Variants) != 2 || res.Runtime.Variants[0].Log["backend"] != "libggml-cpu-"+res.Runtime.Variants[0].Name+".so is mapped" {
		t.Errorf("got %q, ran %+v", keys(res.Findings), res.Runtime.Variants)
	}

	// A program that loads something else than the only variant there is.
	f = fake{Variants: map[string]string{"haswell": "ok", "skylakex": "ok"}, ClaimVariant: "skylakex"}
	res, err = verifyFake(t, t.Context(), fakePayload(t, f), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := keys(res.Findings), []string{"variant.wrong:haswell:backend"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The payload that is verified is not the one that is written to.
func TestProgramThatWritesToItsFiles(t *testing.T) {
	t.Parallel()
	dir := fakePayload(t, fake{Variants: map[string]string{"haswell": "ok"}, WriteModule: true})
	before, err := manifest.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	res, err := verifyFake(t, t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := manifest.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(before, after, func(a, b manifest.File) bool { return a.SHA256 == b.SHA256 }) {
		t.Errorf("the payload changed: %+v, was %+v", after, before)
	}
	if len(res.Findings) > 0 {
		t.Errorf("found %+v", res.Findings)
	}
}

func TestRuntimeBackend(t *testing.T) {
	for _, tt := range []struct{ backends, want []string }{
		{[]string{"CPU"}, []string{}},
		{[]string{"CPU", "CUDA"}, []string{"backend.idle:CUDA"}},
	} {
		res, err := verifyFake(t, t.Context(), fakePayload(t, fake{}), func(s *sessions) { s.options.Backends = tt.backends })
		if err != nil {
			t.Fatal(err)
		}
		if got := keys(res.Findings); !slices.Equal(got, tt.want) {
			t.Errorf("for %q: got %q, want %q", tt.backends, got, tt.want)
		}
	}
}

// A backend in a folder of its own must do all of the work of a program that is
// started with it; the program without it is a machine without the device.
func TestRuntimeAccelerator(t *testing.T) {
	for name, tt := range map[string]struct {
		fake   fake
		hidden bool
		built  []string
		want   []string // keys
		title  string
	}{
		"works":         {fake{Device: "ok"}, false, []string{"Vulkan", "CPU"}, []string{}, ""},
		"device hidden": {fake{Device: "ok"}, true, []string{"Vulkan", "CPU"}, []string{"backend.idle:Vulkan:Vulkan"}, "the CPU did the work, not Vulkan: 2 of 2 layers lay on the CPU"},
		"half the work": {fake{Device: "ok", Offload: 1}, false, []string{"Vulkan"}, []string{"backend.idle:Vulkan:Vulkan"}, "Vulkan did only a part of the work: 1 of 2 layers lay on it"},
		"no driver":     {fake{Device: "broken"}, false, []string{"Vulkan", "CPU"}, []string{"backend.broken:gpu/libggml-gpu.so"}, "libcuda.so.1: cannot open"},
		"says nothing":  {fake{Device: "silent"}, false, []string{"Vulkan"}, []string{}, ""},
		"logs too late": {fake{Device: "silent", LogWithout: "load_backend", MapModule: true, Variants: map[string]string{"haswell": "ok"}}, false, []string{"Vulkan"}, []string{}, ""},
		"another one":   {fake{Device: "other"}, false, []string{"Vulkan", "CPU"}, []string{"backend.missing:Vulkan", "backend.unknown:gpu/libggml-gpu.so"}, "is the CUDA backend"},
		"one of two":    {fake{Device: "ok"}, false, []string{"Vulkan", "CUDA", "CPU"}, []string{"backend.missing:CUDA"}, "built for CUDA and holds no module of it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GGML_VK_VISIBLE_DEVICES", map[bool]string{false: "0"}[tt.hidden])
			res, err := verifyFake(t, t.Context(), fakePayload(t, tt.fake), func(s *sessions) { s.options.Backends = tt.built })
			if err != nil {
				t.Fatal(err)
			}
			if got := keys(res.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if all, _ := json.Marshal(res.Findings); !strings.Contains(string(all), tt.title) {
				t.Errorf("%q is not in %s", tt.title, all)
			}
			proven := slices.Contains(res.Verified().Backends, "Vulkan")
			if worked := len(res.Runtime.Backends) == 1; worked != proven || worked != !slices.ContainsFunc(tt.want, func(k string) bool { return strings.Contains(k, "Vulkan") || strings.HasPrefix(k, "backend.broken") }) {
				t.Errorf("proven %+v, ran %+v", res.Verified(), res.Runtime.Backends)
			}
			if !strings.Contains(res.Runtime.Variants[0].Log["backend"], "cpu") {
				t.Errorf("without the module it ran %+v", res.Runtime.Variants)
			}
		})
	}
}

// What is not run is said, and no machine without the device can hide it.
func TestNotRun(t *testing.T) {
	res, err := Payload(t.Context(), Options{Dir: fakePayload(t, fake{Device: "ok"}), Kind: "completion-server", Program: "server", Backends: []string{"Vulkan", "CPU"}, NoRun: true})
	if err != nil || res.Failed() {
		t.Fatalf("%+v, %v", res, err)
	}
	if got, want := res.Proven(), "files checked; NOT run: server, Vulkan"; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	if v := res.Verified(); v.Kind != "" || len(v.Backends) > 0 || len(v.Skipped) != 2 || v.Skipped[1].Name != "Vulkan" {
		t.Errorf("the manifest gets %+v", v)
	}
}

func TestRuntimeVersion(t *testing.T) {
	const commit = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
	for name, tt := range map[string]struct {
		commit string
		build  int
		want   []string
	}{
		"same":          {commit, 11312, []string{}},
		"no build":      {commit, 0, []string{}},
		"other build":   {commit, 1, []string{"version.wrong:server"}},
		"other commit":  {"4df29be4f4c3673f428170fda944a5b19f743bb8", 11312, []string{"version.wrong:server"}},
		"commit unsaid": {"", 0, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fakePayload(t, fake{})
			m, err := manifest.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			m.Components = []manifest.Component{{Name: "other", Ref: "v1"}, {Name: "c", Ref: "b1", Commit: tt.commit, Build: tt.build}}
			if err := manifest.Write(dir, m); err != nil {
				t.Fatal(err)
			}
			res, err := verifyFake(t, t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := keys(res.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRuntimeProgramMissing(t *testing.T) {
	res, err := verifyFake(t, t.Context(), fakePayload(t, fake{}), func(s *sessions) { s.options.Program = "other" })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := keys(res.Findings), []string{"program.missing:other"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A payload for another machine is verified as far as that goes.
func TestRuntimeForeign(t *testing.T) {
	dir := goodPayload(t)
	for _, name := range []string{"prog", "libbase.so.1", "libdeep.so", "sub/libmod.so"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		data[18], data[19] = 243, 0 // e_machine: RISC-V
		put(t, filepath.Join(dir, name), string(data))
	}
	seal(t, dir)
	res, err := verifyFake(t, t.Context(), dir, func(s *sessions) { s.options.Program = "prog" })
	if err != nil {
		t.Fatal(err)
	}
	skipped := res.Runtime.Skipped
	if len(res.Findings) > 0 || len(skipped) != 1 || !strings.Contains(skipped[0].Reason, "riscv64") {
		t.Errorf("found %+v, skipped %+v", res.Findings, skipped)
	}
}

func TestRuntimeCancelled(t *testing.T) {
	for name, f := range map[string]fake{"ready never": {Health: 503}, "deaf": {Health: 503, IgnoreTerm: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := verifyFake(t, ctx, fakePayload(t, f), nil)
			if err == nil || !strings.Contains(err.Error(), "deadline") {
				t.Errorf("error is %v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// The program must not see the caller's loader variables, proxies or home.
func TestMinimalEnvironment(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/somewhere")
	t.Setenv("PAYLOAD_CACHE", "/somewhere")
	dir := t.TempDir()
	put(t, filepath.Join(dir, "prog"), "#!/bin/sh\nenv\n")
	if err := os.Chmod(filepath.Join(dir, "prog"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &sessions{options: Options{Program: "prog"}, limits: testLimits, temp: t.TempDir()}
	out, err := s.once(t.Context(), dir, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, line := range out.lines() {
		if name, _, ok := strings.Cut(line, "="); ok && name != "PWD" && name != "_" && name != "SHLVL" && name != "OLDPWD" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if want := []string{"HOME", "LC_ALL", "PATH", "TMPDIR", "XDG_CACHE_HOME"}; !slices.Equal(names, want) {
		t.Errorf("the program sees %q", names)
	}
}

func TestPayload(t *testing.T) {
	res, err := Payload(t.Context(), Options{Dir: fakePayload(t, fake{}), Kind: "completion-server", Program: "server"})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Findings) > 0 || res.Schema != Schema || res.Runtime == nil || len(res.Runtime.Variants) != 1 {
		t.Errorf("got %+v", res)
	}
	data, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), `{"schema":"payload.verify/v1","dir":`) || !strings.Contains(string(data), `"findings":[]`) || !strings.Contains(string(data), `"skipped":[]`) {
		t.Errorf("as JSON %s", data)
	}
	res, err = Payload(t.Context(), Options{Dir: fakePayload(t, fake{Die: "exit"}), Kind: "completion-server", Program: "server", NoRun: true})
	if err != nil || res.Runtime != nil || res.Failed() {
		t.Errorf("without running: %+v, %v", res, err)
	}
}
