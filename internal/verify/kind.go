package verify

import (
	"context"
	"maps"
	"path"
	"regexp"
	"slices"

	"payload/internal/manifest"
	"payload/internal/verify/tinymodel"
)

// kind is a kind of program that can be started and asked. Everything that is
// particular to one stands in its entry of kinds.
type kind struct {
	// args start the program. {model}, {host}, {port}, {name} and {threads}
	// are filled in. Threads wait for each other by spinning, many times a
	// token: where other work has the cores, two take fifty times as long as
	// one. So only prompts use {threads}, and it is more than one only for the
	// checks in threaded.
	args []string
	env  []string
	// version prints what the program is; the pattern's first group is kept.
	version        []string
	versionPattern *regexp.Regexp
	// builtFrom finds the build number and the commit in the version, which must
	// be those of a component in the manifest.
	builtFrom *regexp.Regexp
	// portTaken matches the log line of a program that lost the race for its port.
	portTaken *regexp.Regexp
	health    string // GET of it gives 200 when the program is ready
	// variant matches the base name of a module that is one of several for the
	// same backend; the first group names it. The program picks one by itself.
	variant *regexp.Regexp
	// module matches the base name of a backend's module. One that lies in a
	// folder of its own is for a device.
	module *regexp.Regexp
	// deviceVars are the variables that choose or hide devices. The program gets
	// them from the person, and nothing else.
	deviceVars []string
	probe      probe
	// features are the CPU flags (as in /proc/cpuinfo) that a variant needs,
	// only to tell why one can't run: the program's own verdict decides.
	features map[string][]string
	log      []pattern
	noise    *regexp.Regexp // lines of the log that tell a person nothing
	checks   []check
	device   []check // for a start with a device's backend: what it computes
	threaded []check // for one more start, with more than one thread

	// steps are what the program goes through by itself, in order. With them it
	// is no server: it is started once, with a folder to write to, and prints
	// what came out of each.
	steps []step

	// questions are what the program is started for, each time to its end. {model}
	// is the tiny model's folder; what is printed is judged.
	questions func(tinymodel.Expectations) []question
}

// modules are the variants among files by name, and their paths.
func (k kind) modules(files []manifest.File) map[string]string {
	found := map[string]string{}
	for _, f := range files {
		if name := k.variantOf(path.Base(f.Path)); name != "" && f.Link == "" {
			found[name] = f.Path
		}
	}
	return found
}

// variantOf names the variant that a module's base name stands for; empty for
// other files.
func (k kind) variantOf(base string) string {
	if k.variant == nil {
		return ""
	}
	return firstGroup(k.variant, base)
}

// probe asks the program itself whether it would load one module. Programs
// skip modules silently when they look for the best one; named by path they
// say why.
type probe struct {
	args        []string
	env         []string       // {module} is filled in
	loaded      *regexp.Regexp // {module} is filled in; the group names the backend
	unsupported *regexp.Regexp
	broken      *regexp.Regexp // the first group tells why
}

// pattern is something that the log of a working program holds.
type pattern struct {
	name string
	re   *regexp.Regexp
	// accelerator restricts it to runs that expect another backend than the CPU.
	accelerator bool
	// every line must name the expected backend, not just one.
	every bool
}

// The patterns whose lines a person is shown.
const (
	patternDevice    = "device"
	patternOffloaded = "layers offloaded"
)

// someMiB matches a size that is not zero.
const someMiB = `(?:[1-9]\d*\.\d+|0\.\d*[1-9]\d*) MiB`

// Groups of a pattern that are looked at wherever they occur.
const (
	groupBackend = "backend" // must be the expected backend's name
	groupLayer   = "layer"   // which layer lies on groupBackend
	groupModule  = "module"  // path of the module that was loaded
	groupDone    = "done"    // must equal groupAll
	groupAll     = "all"
)

// check is one exchange with a running program.
type check struct {
	name string
	run  func(context.Context, *client) []problem
}

// problem is what a check found, before it is known in which variant.
type problem struct {
	id     string
	what   string
	title  string
	detail string
	gone   bool // the program may have died of it
}

// cpuBackend is the name that the log gives to the backend that always works.
const cpuBackend = "CPU"

var kinds = map[string]kind{
	"completion-server": {
		args: []string{
			"--model", "{model}", "--alias", "{name}", "--host", "{host}", "--port", "{port}",
			"--ctx-size", "1024", "--parallel", "2", "--threads", "1", "--threads-batch", "{threads}",
			"--offline", "--log-colors", "off", "--log-verbosity", "5",
		},
		// A failed assertion would otherwise wait for a debugger to print where.
		env:            []string{"GGML_NO_BACKTRACE=1"},
		version:        []string{"--version"},
		versionPattern: regexp.MustCompile(`(?m)^version: (.+)$`),
		builtFrom:      regexp.MustCompile(`(?:build )?(?P<build>\d+)(?:, commit | \()(?P<commit>[0-9a-f]{7,40})\)`),
		portTaken:      regexp.MustCompile(`(?i)couldn't bind|address already in use`),
		health:         "/health",
		variant:        regexp.MustCompile(`^(?:lib)?ggml-cpu-(.+)\.(?:so|dll)$`),
		module:         regexp.MustCompile(`^(?:lib)?ggml-[a-z]+\.(?:so|dll)$`),
		deviceVars: []string{
			"CUDA_VISIBLE_DEVICES", "GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_VK_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
			"HSA_OVERRIDE_GFX_VERSION", "ROCR_VISIBLE_DEVICES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES",
		},
		probe: probe{
			args:        []string{"--log-verbosity", "5", "--list-devices"},
			env:         []string{"GGML_BACKEND_PATH={module}"},
			loaded:      regexp.MustCompile(`loaded (\S+) backend from {module}`),
			unsupported: regexp.MustCompile(`backend .* is not supported on this system`),
			broken:      regexp.MustCompile(`failed to load .*?: (.+)`),
		},
		features: map[string][]string{
			"sandybridge":    {"sse4_2", "avx"},
			"ivybridge":      {"sse4_2", "avx", "f16c"},
			"piledriver":     {"sse4_2", "avx", "f16c", "fma"},
			"haswell":        {"avx2", "f16c", "fma", "bmi2"},
			"skylakex":       {"avx2", "f16c", "fma", "bmi2", "avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"},
			"cannonlake":     {"avx2", "avx512f", "avx512vl", "avx512bw", "avx512vbmi"},
			"cascadelake":    {"avx2", "avx512f", "avx512vl", "avx512bw", "avx512_vnni"},
			"icelake":        {"avx2", "avx512f", "avx512vl", "avx512bw", "avx512vbmi", "avx512_vnni"},
			"cooperlake":     {"avx2", "avx512f", "avx512vl", "avx512bw", "avx512_vnni", "avx512_bf16"},
			"zen4":           {"avx2", "avx512f", "avx512vl", "avx512bw", "avx512vbmi", "avx512_vnni", "avx512_bf16"},
			"alderlake":      {"avx2", "f16c", "fma", "bmi2", "avx_vnni"},
			"sapphirerapids": {"avx512f", "avx512vbmi", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8"},
			"armv8.2_1":      {"asimddp"},
			"armv8.2_2":      {"asimddp", "asimdhp"},
			"armv8.2_3":      {"asimddp", "asimdhp", "sve"},
			"armv8.6_1":      {"asimddp", "asimdhp", "sve", "i8mm"},
			"armv8.6_2":      {"asimddp", "asimdhp", "sve", "i8mm", "sve2"},
			"armv9.2_1":      {"asimddp", "asimdhp", "sve", "i8mm", "sme"},
			"armv9.2_2":      {"asimddp", "asimdhp", "sve", "i8mm", "sve2", "sme"},
		},
		log: []pattern{
			{name: "backend", re: regexp.MustCompile(`loaded (?P<backend>\S+) backend from (?P<module>.+)$`)},
			{name: patternDevice, re: regexp.MustCompile(` - (?P<backend>[A-Za-z]+)\d* *: .+ \(\d+ MiB, \d+ MiB free\)`)},
			{name: "layers", re: regexp.MustCompile(`layer +(?P<layer>\d+) assigned to device (?P<backend>[A-Za-z]+)\d*,`), every: true},
			{name: patternOffloaded, re: regexp.MustCompile(`offloaded (?P<done>\d+)/(?P<all>\d+) layers to GPU`), accelerator: true},
			// A dry run that only measures comes first, and prints zeros.
			{name: "weights memory", re: regexp.MustCompile(`model buffer size = +` + someMiB)},
			{name: "cache memory", re: regexp.MustCompile(`KV buffer size = +` + someMiB)},
			{name: "compute memory", re: regexp.MustCompile(`compute buffer size = +` + someMiB)},
			{name: "flash attention", re: regexp.MustCompile(`Flash Attention enabled|Flash Attention was auto, set to enabled`)},
		},
		noise:    regexp.MustCompile(`^[\d.]+ D `),
		checks:   completionChecks,
		device:   deviceChecks,
		threaded: []check{{"a long prompt", checkRepeat}},
	},
	"array-library": {steps: arraySteps},
	"token-runner":  {questions: runnerQuestions},
}

func kindNames() []string { return slices.Sorted(maps.Keys(kinds)) }

// Variants names the variants that modules, by their base names, are for a kind
// of program, sorted. Other modules are left out.
func Variants(kind string, modules []string) []string {
	var names []string
	for _, m := range modules {
		if re := kinds[kind].variant; re != nil {
			if name := firstGroup(re, m); name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
