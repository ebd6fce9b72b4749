package drift

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"payload/internal/report"
	"payload/internal/run"
	"payload/internal/testkit"
	"payload/internal/workspace"
)

// fixture is a repository in which everything agrees, its two upstreams beside it.
func fixture(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	t.Setenv("PAYLOAD_CACHE", filepath.Join(top, "cache"))
	for _, dir := range []string{"toy", "lib"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	toy, lib := testkit.RepoAt(t, filepath.Join(top, "toy")), testkit.RepoAt(t, filepath.Join(top, "lib"))
	greeting := "#include \"toy.h\"\n\nconst char *toy_greeting(void) {\n    return \"hello\";\n}\n\nint toy_version(void) { return 100; }\n"
	options := "cmake_minimum_required(VERSION 3.21)\nproject(toy C)\noption(TOY_LOUD \"toy: greet in capitals\" OFF)\noption(TOY_NATIVE \"toy: for this machine\" ON)\nset(TARGET toy-lib)\nadd_library(${TARGET} SHARED toy.c)\ntoy_option_depr(WARNING TOY_OLD TOY_LOUD)\n"
	toy.Commit(map[string]string{"toy.c": greeting, "toy.h": "const char *toy_greeting(void);\n", "CMakeLists.txt": options, "deps.txt": "lib v1.0\n"}, "b100")
	toy.Commit(map[string]string{"CMakeLists.txt": strings.Replace(options, "option(TOY_LOUD \"toy: greet in capitals\" OFF)\n", "", 1)}, "b101")
	toy.Commit(map[string]string{"toy.c": strings.Replace(greeting, "hello", "good morning", 1), "CMakeLists.txt": "cmake_minimum_required(VERSION 3.21)\nproject(toy C)\noption(TOY_COUNT \"toy: another count\" ON)\nset(TARGET toy-lib)\nadd_library(${TARGET} SHARED toy.c)\n"}, "b102")
	lib.Commit(map[string]string{"l": "1\n"}, "v1.0")
	lib.Commit(map[string]string{"l": "2\n"}, "v2.0")

	root := filepath.Join(top, "repo")
	archive, err := txtar.ParseFile("testdata/repo.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		testkit.Write(t, filepath.Join(root, f.Name), string(f.Data))
	}
	g := testkit.RepoAt(t, root)
	testkit.Write(t, filepath.Join(root, "gen/hash.txt"), g.Run("hash-object", "gen/in.txt")+"\n")
	lock(t, root)
	g.Run("add", "-A")
	g.Run("commit", "-q", "-m", "all agrees")
	return root
}

func lock(t *testing.T, root string) {
	t.Helper()
	w := opened(t, root)
	for _, c := range w.File.Components {
		if _, err := w.Relock(t.Context(), c.Name); err != nil {
			t.Fatal(err)
		}
	}
	w.SortLock()
	if err := w.Lock.Save(root); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, root string) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(t.Context(), workspace.Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var today = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

func found(t *testing.T, root string, opts Options) Result {
	t.Helper()
	opts.Today, opts.Timeout = today, 10*time.Second
	result, err := Run(t.Context(), opened(t, root), opts)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// edit is one change to the fixture: a text in place of another, a whole new
// file, or a file that goes.
type edit struct{ file, old, new string }

const gone = "\x00"

func (e edit) apply(t *testing.T, root string) {
	t.Helper()
	file := filepath.Join(root, filepath.FromSlash(e.file))
	switch {
	case e.new == gone:
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		return
	case e.old == "":
		testkit.Write(t, file, e.new)
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), e.old) {
		t.Fatalf("%s does not hold %q", e.file, e.old)
	}
	testkit.Write(t, file, strings.Replace(string(text), e.old, e.new, 1))
}

const (
	presets  = "server/CMakePresets.json"
	buildYML = ".github/workflows/build.yml"
	docker   = "docker/cpu.Dockerfile"
	first    = "patches/0001-toy-greet-in-the-morning.patch"
	second   = "patches/0002-toy-count-from-one.patch"
)

// A third patch, which git would add.
var third = "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: A U Thor <author@example.com>\nDate: Sat, 3 Feb 2001 04:05:08 +0000\nSubject: [PATCH] lib: more\n\nUpstream-Status: Pending\nDrop-When: never\n---\n new.c | 1 +\n\ndiff --git a/new.c b/new.c\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..587be6b4c3f93f93c489c0111bba5596147a26cb\n--- /dev/null\n+++ b/new.c\n@@ -0,0 +1 @@\n+x\n"

// broken lists a way for each check to fail, and what is found: id, file:line,
// and words of the title.
var broken = []struct {
	name  string
	edits []edit
	want  string // "id file:line"; one that is not the check's own is no fault
	words string
}{
	{"the pin moved without the lock", []edit{{"TOY_VERSION", "", "b101\n"}}, "lock.pin TOY_VERSION:1", "b101"},
	{"a patch was edited without the lock", []edit{{first, "Mornings are", "Mornings were"}}, "lock.patches " + first + ":1", "changed"},
	{"a patch was deleted without the lock", []edit{{second, "", gone}}, "lock.patches payload.lock:11", "not on disk"},
	{"a component that was never locked", []edit{{"payload.yaml", "  lib:\n", "  new:\n    pin: LIB_VERSION\n    upstream: ../lib\n  lib:\n"}}, "lock.missing LIB_VERSION:1", "new"},
	{"the lock's tree is another", []edit{{"payload.lock", "patched: ", "patched: 0123456789012345678901234567890123456789 #"}}, "lock.tree payload.lock:16", "another tree"},
	{"the lock of a component that is gone", []edit{{"payload.yaml", "      - {component: lib, path: deps.txt, pattern: '^lib (\\S+)$'}\n  lib:\n    pin: LIB_VERSION\n    upstream: ../lib\n", "      []\n"}}, "lock.stale payload.lock:", "lib"},
	{"a pin of two lines", []edit{{"TOY_VERSION", "", "b100\nb101\n"}}, "lock.unreadable TOY_VERSION:1", "toy"},

	{"a copy of the pin stayed behind", []edit{{docker, "ARG TOY=b100", "ARG TOY=b99"}}, "copies.differs " + docker + ":7", "says b99"},
	{"a copy that is gone", []edit{{docker, "ARG TOY=b100\n", ""}}, "copies.missing " + docker, "can't be found"},
	{"coupled pins apart", []edit{{"LIB_VERSION", "", "v2.0\n"}, {"payload.lock", "ref: v1.0", "ref: v2.0"}}, "coupled.differs LIB_VERSION:1", "wants lib v1.0"},
	{"a coupling that finds nothing", []edit{{"payload.yaml", "'^lib (\\S+)$'", "'^engine (\\S+)$'"}}, "coupled.unknown TOY_VERSION:1", "nothing in deps.txt"},

	{"a patch that is cut off", []edit{{first, "-    return \"hello\";\n+    return \"good morning\";\n }\n \n int toy_version(void) { return 100; }\n", ""}}, "series.malformed " + first + ":1", "truncated"},
	{"a number given twice", []edit{{"patches/0002-lib-more.patch", "", third}}, "series.duplicate ", "duplicate number"},
	{"a number left out", []edit{{"patches/0005-lib-more.patch", "", third}}, "series.gap patches/0005-lib-more.patch:1", "0003 to 0004 are missing"},
	{"no number", []edit{{"patches/lib-more.patch", "", third}}, "series.unnumbered patches/lib-more.patch:1", "no number"},
	{"no reason for a patch", []edit{{first, "Upstream-Status: Pending\n", ""}}, "series.metadata " + first + ":1", "Upstream-Status"},
	{"a patch that landed elsewhere", []edit{{first, "@@ -1,7 +1,7 @@", "@@ -11,7 +11,7 @@"}}, "series.offset " + first + ":1", "offset"},
	{"a patch with an old file name", []edit{{second, "Subject: [PATCH] toy: an option of our own", "Subject: [PATCH] toy: an option of our own\nX-Odd: 1"}, {second, "+option(TOY_COUNT \"toy: count\" OFF)", "+option(TOY_COUNT \"toy: count\" OFF) "}}, "lock.patches " + second + ":1", "changed"},
	{"a patch that no longer applies", []edit{{first, "-    return \"hello\";", "-    return \"hi\";"}}, "series.conflict " + first + ":1", "conflict"},
	{"a patch under another name", []edit{{"patches/0003-more.diff", "", third}}, "series.stray patches/0003-more.diff:1", "never applied"},
	{"patches that git converts", []edit{{".gitattributes", "", "* text=auto\n"}}, "series.attributes " + first + ":1", "line ends"},

	{"a generated file by hand", []edit{{"gen/in.txt", "", "in\nmore\n"}, {"gen/checked.txt", "", "in\nmore\n"}}, "generated.differs gen/hash.txt:1", "not what its source makes"},
	{"a generator that says no", []edit{{"gen/checked.txt", "", "by hand\n"}}, "generated.differs gen/checked.txt", "not what its generator makes"},
	{"a vendored file by hand", []edit{{"vendored/toy.h", "", "const char *toy_greeting(void);\nint more;\n"}}, "generated.differs vendored/toy.h:2", "vendored/toy.h"},
	{"a vendored file whose source is gone", []edit{{"payload.yaml", "from: toy.h", "from: old.h"}}, "generated.source payload.yaml:", "vendored/toy.h"},
	{"a generated file that is gone", []edit{{"gen/hash.txt", "", gone}}, "generated.missing payload.yaml:", "gen/hash.txt"},

	{"an option that upstream removed", []edit{{presets, `"TOY_LOUD": "ON"`, `"TOY_LOUDER": "ON"`}}, "options.undeclared " + presets + ":21", "TOY_LOUDER"},
	{"an option that only warns that it is obsolete", []edit{{presets, `"TOY_LOUD": "ON"`, `"TOY_OLD": "ON"`}}, "options.undeclared " + presets + ":21", "TOY_OLD"},
	{"an option of a patch that is gone", []edit{{second, "", gone}}, "options.undeclared " + presets + ":11", "TOY_COUNT"},
	{"a target that is gone", []edit{{presets, `"toy-lib"`, `"toy-libs"`}}, "targets.missing " + presets + ":16", "toy-libs"},
	{"a component that nothing installs", []edit{{presets, `["base"]`, `["base", "extra"]`}}, "targets.component " + presets + ":15", "extra"},
	{"a component of another folder", []edit{{presets, `"TOY_FOLDER": "quiet"`, `"TOY_FOLDER": "loud"`}}, "targets.component " + presets + ":20", "toy_quiet"},
	{"a release preset for this machine", []edit{{presets, `"TOY_LOUD": "ON"`, `"TOY_NATIVE": "ON"`}}, "native.required " + presets + ":21", "TOY_NATIVE is ON"},
	{"an option left to its default", []edit{{presets, "        \"TOY_NATIVE\": \"OFF\",\n", ""}}, "native.required " + presets + ":", "not set"},
	{"flags for this machine", []edit{{presets, `"CMAKE_BUILD_TYPE": "Release"`, `"CMAKE_C_FLAGS": "-O2 -march=native"`}}, "native.flags " + presets + ":9", "-march=native"},

	{"a filter for a folder that was deleted", []edit{{buildYML, "      - cmake/**\n", "      - cmake/**\n      - old/**\n"}}, "filters.dead " + buildYML + ":10", "old/**"},
	{"a filter with ./ before it", []edit{{buildYML, "- server/**", "- ./server/**"}}, "filters.dead " + buildYML + ":8", "./server/**"},
	{"a filter with / behind it", []edit{{buildYML, "- server/**", "- server/"}}, "filters.dead " + buildYML + ":8", "server/"},
	{"a filter that is a folder", []edit{{buildYML, "- server/**", "- server"}}, "filters.dead " + buildYML + ":8", "server"},
	{"a filter without the patches", []edit{{buildYML, "      - patches/**\n", ""}}, "filters.incomplete " + buildYML + ":4", "patches/0001"},
	{"a filter without the pins", []edit{{buildYML, "      - '*_VERSION'\n", ""}}, "filters.incomplete " + buildYML + ":4", "TOY_VERSION"},
	{"a filter without the CMake files", []edit{{buildYML, "      - cmake/**\n", ""}}, "filters.incomplete " + buildYML + ":4", "cmake/Find.cmake"},
	{"a filter that takes some out again", []edit{{buildYML, "'!**.md'", "'!**.cmake'"}}, "filters.incomplete " + buildYML + ":4", "cmake/Find.cmake"},
	{"inputs that are ignored", []edit{{buildYML, "['**.md', 'docs/**']", "['**.md', 'patches/**']"}}, "filters.ignored " + buildYML + ":12", "patches/0001"},

	{"a key without the patches", []edit{{buildYML, "${{ steps.key.outputs.key }}", "b-${{ hashFiles('*_VERSION', 'payload.*', 'server/**', 'cmake') }}"}}, "cache-keys.incomplete " + buildYML + ":23", "patches/0001"},
	{"a key of a step that prints another", []edit{{buildYML, "run: payload cache-key quiet", "run: date"}}, "cache-keys.incomplete " + buildYML + ":23", "TOY_VERSION"},
	{"a key over nothing", []edit{{buildYML, "hashFiles('payload.lock')", "hashFiles('payload.lock', 'old/**')"}}, "cache-keys.dead " + buildYML + ":29", "old/**"},
	// A default that upstream flipped stays as it was in an old CMakeCache.txt.
	{"an old build folder comes back", []edit{{buildYML, "          key: ${{ steps.key.outputs.key }}\n", "          key: ${{ steps.key.outputs.key }}\n          restore-keys: server-\n"}}, "cache-keys.restore " + buildYML + ":24", "build of other inputs"},
	{"a script that is gone", []edit{{buildYML, "gen/run.sh quiet", "gen/build.sh quiet"}}, "workflows.missing " + buildYML + ":31", "gen/build.sh"},
	{"a preset that is gone", []edit{{buildYML, "gen/run.sh quiet", "payload build --preset quiet,hushed"}}, "workflows.preset " + buildYML + ":31", "hushed"},
	{"a preset of a matrix that is gone", []edit{{buildYML, "    runs-on: ubuntu-24.04\n", "    runs-on: ubuntu-24.04\n    strategy: {matrix: {preset: [quiet, silent]}}\n"}}, "workflows.preset " + buildYML + ":16", "silent"},
	{"an action that is gone", []edit{{buildYML, "./.github/actions/setup", "./.github/actions/old"}}, "workflows.missing " + buildYML + ":17", "no action"},
	{"a workflow that is no YAML", []edit{{buildYML, "jobs:", "jobs: ]"}}, "workflows.unreadable " + buildYML + ":1", "no YAML"},

	{"a new patch that a stage's list lacks", []edit{{docker, `["patches/", "patches/"]`, `["` + first + `", "` + second + `", "patches/"]`}, {"patches/0003-lib-more.patch", "", third}}, "docker.incomplete " + docker + ":6", "patches/0003-lib-more.patch"},
	{"a stage without the CMake modules", []edit{{docker, "COPY cmake cmake\n", ""}}, "docker.incomplete " + docker + ":6", "cmake/Find.cmake"},
	{"a stage that copies what is gone", []edit{{docker, "COPY cmake cmake", "COPY cmake old/ ./"}}, "docker.dead " + docker + ":13", "old/"},
	{"inputs that .dockerignore leaves out", []edit{{".dockerignore", "!patches\n", ""}}, "docker.ignored " + docker + ":9", "patches/"},

	{"a linter's rule for a folder that is gone", []edit{{".golangci.yml", "!**/internal/run/**", "!**/internal/exec/**"}}, "depguard.dead .golangci.yml:7", "internal/exec"},
	{"a linter's rule for a package that is gone", []edit{{".golangci.yml", "internal/run, desc", "internal/exec, desc"}}, "depguard.package .golangci.yml:10", "internal/exec"},
	{"the tree names what is gone", []edit{{"docs/layout.md", "  hello.c                 its", "  hallo.c                 its"}}, "layout.missing docs/layout.md:6", "server/hallo.c"},
	{"the tree leaves a folder out", []edit{{"internal/new/new.go", "", "package new\n"}}, "layout.unlisted docs/layout.md:3", "internal/new"},
	{"no tree at all", []edit{{"docs/layout.md", "", gone}}, "layout.missing payload.yaml:", "docs/layout.md"},
}

func TestChecks(t *testing.T) {
	root := fixture(t)
	if clean := found(t, root, Options{}); len(clean.Findings) > 0 {
		t.Fatalf("where everything agrees, this is found:\n%s", said(clean.Findings))
	}
	caught := map[string]bool{}
	for i, c := range broken {
		id, at, _ := strings.Cut(c.want, " ")
		check, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		caught[check.ID] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(filepath.Dir(root), fmt.Sprint("case", i)) // beside the upstreams
			if err := os.CopyFS(dir, os.DirFS(root)); err != nil {
				t.Fatal(err)
			}
			for _, e := range c.edits {
				e.apply(t, dir)
			}
			result := found(t, dir, Options{Checks: []string{check.ID}})
			if !slices.ContainsFunc(result.Findings, func(f report.Finding) bool {
				return f.ID == id && strings.HasPrefix(f.Where[0].String(), at) && strings.Contains(f.Title+f.Detail, c.words) && f.Key != ""
			}) {
				t.Errorf("want %s with %q, found:\n%s", c.want, c.words, said(result.Findings))
			}
			for _, f := range result.Findings {
				if f.Where[0].Path == "" || f.Severity == "" || f.Title == "" {
					t.Errorf("no place, severity or title: %+v", f)
				}
			}
			if !result.Failed() {
				t.Error("it does not count as failed")
			}
		})
	}
	for _, c := range Checks() {
		if !c.Upstream && c.ID != "waivers" && !caught[c.ID] {
			t.Errorf("nothing breaks %s", c.ID)
		}
	}
}

func said(findings []report.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %v %s: %s\n", f.ID, f.Where, f.Title, f.Detail)
	}
	return b.String()
}

// Nothing in the work tree is changed by looking at it.
func TestReadOnly(t *testing.T) {
	root := fixture(t)
	edit{"TOY_VERSION", "", "b101\n"}.apply(t, root)
	edit{first, "@@ -1,7 +1,7 @@", "@@ -11,7 +11,7 @@"}.apply(t, root)
	before := status(t, root)
	found(t, root, Options{})
	if after := status(t, root); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func status(t *testing.T, root string) string {
	t.Helper()
	res, err := run.Do(t.Context(), run.Cmd{Dir: root, Args: []string{"git", "diff", "HEAD"}})
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout)
}

func TestWaivers(t *testing.T) {
	root := fixture(t)
	edit{buildYML, "- server/**", "- server/"}.apply(t, root)
	edit{buildYML, "      - cmake/**\n", "      - cmake/**\n      - old/**\n"}.apply(t, root)
	waivers := func(list string) Result {
		text, err := os.ReadFile(filepath.Join(root, "payload.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "waivers:")
		testkit.Write(t, filepath.Join(root, "payload.yaml"), head+"waivers:\n"+list)
		return found(t, root, Options{Checks: []string{"filters", "waivers"}})
	}
	for name, c := range map[string]struct {
		waivers string
		left    int // of filters.dead
		waived  int
		also    string
	}{
		"by id":     {"  - {id: filters.dead, reason: it moves soon, expires: 2026-12-01}\n", 0, 2, ""},
		"last day":  {"  - {id: filters.dead, reason: it moves soon, expires: 2026-11-30}\n", 0, 2, ""},
		"by key":    {"  - {id: filters.dead, key: 'filters.dead:" + buildYML + ":old/**', reason: it moves soon, expires: 2026-12-01}\n", 1, 1, ""},
		"by path":   {"  - {id: filters.dead, path: .github/workflows/*.yml, reason: r, expires: 2026-12-01}\n", 0, 2, ""},
		"elsewhere": {"  - {id: filters.dead, path: docs/**, reason: r, expires: 2026-12-01}\n", 2, 0, "waivers.unused"},
		"expired":   {"  - {id: filters.dead, reason: it moves soon, expires: 2026-11-29}\n", 2, 0, "waivers.expired"},
		"no such":   {"  - {id: filter.dead, reason: r, expires: 2026-12-01}\n", 2, 0, "waivers.unknown"},
		"not run":   {"  - {id: docker.dead, reason: r, expires: 2026-12-01}\n", 2, 0, ""},
	} {
		result := waivers(c.waivers)
		left, also := 0, c.also == ""
		for _, f := range result.Findings {
			switch {
			case f.ID == "filters.dead":
				left++
			case strings.HasPrefix(f.ID, "waivers."):
				also = f.ID == c.also && f.Where[0].Path == "payload.yaml" && f.Where[0].Line > 20
			}
		}
		if left != c.left || len(result.Waived) != c.waived || !also {
			t.Errorf("%s: %d left, %d waived:\n%s", name, left, len(result.Waived), said(result.Findings))
		}
	}
}

// TestFix cures what needs no decision, and leaves the rest to see.
func TestFix(t *testing.T) {
	root := fixture(t)
	for _, e := range []edit{
		{first, "@@ -1,7 +1,7 @@", "@@ -11,7 +11,7 @@"},
		{"patches/0007-lib-more.patch", "", third},
		{docker, "ARG TOY=b100", "ARG TOY=b99"},
		{"vendored/toy.h", "", "by hand\n"},
		{"gen/hash.txt", "", gone},
		{buildYML, "- server/**", "- server/"},
	} {
		e.apply(t, root)
	}
	did, err := Fix(t.Context(), opened(t, root), Options{Today: today})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"updated 0001", "renamed 0007-lib-more.patch to 0003-lib-more.patch", "wrote b100 into " + docker, "made vendored/toy.h", "made gen/hash.txt", "wrote payload.lock"} {
		if !slices.ContainsFunc(did, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("not done: %s; done: %q", want, did)
		}
	}
	result := found(t, root, Options{})
	for _, f := range result.Findings {
		if !strings.HasPrefix(f.ID, "filters.") {
			t.Errorf("left: %s", said([]report.Finding{f}))
		}
	}
	if len(result.Findings) == 0 {
		t.Error("the filter was a person's to correct")
	}
	if again, err := Fix(t.Context(), opened(t, root), Options{Today: today}); err != nil || len(again) > 0 {
		t.Errorf("a second time: %q, %v", again, err)
	}
}

// GitHub's own examples of its pattern language.
func TestPathFilter(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"README.md", "server.rb"}, []string{"docs/a"}},
		{"*.jsx?", []string{"page.js", "page.jsx"}, []string{"page.jsxx", "a/page.js"}},
		{"**", []string{"all/the/files.md"}, nil},
		{"*.js", []string{"app.js"}, []string{"lib/app.js"}},
		{"**.js", []string{"index.js", "js/index.js", "src/js/app.js"}, []string{"index.ts"}},
		{"docs/*", []string{"docs/README.md"}, []string{"docs/a/b", "docs"}},
		{"docs/**", []string{"docs/README.md", "docs/mona/octocat.txt"}, []string{"adocs/x"}},
		{"docs/**/*.md", []string{"docs/README.md", "docs/mona/hello-world.md"}, []string{"docs/a.txt"}},
		{"**/docs/**", []string{"docs/hello.md", "dir/docs/my-file.txt"}, []string{"mydocs/x"}},
		{"**/*src/**", []string{"a/src/app.js", "my-src/code/js/app.js"}, nil},
		{"**/*-post.md", []string{"my-post.md", "path/their-post.md"}, nil},
		{"[a-c].go", []string{"a.go"}, []string{"d.go"}},
		{"a+.go", []string{"aa.go"}, []string{"ab.go"}},
		{"./docs/**", nil, []string{"docs/README.md"}},
		{"docs/", nil, []string{"docs/README.md"}},
	} {
		re, err := pathFilter(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range c.yes {
			if !re.MatchString(name) {
				t.Errorf("%s does not match %s", c.pattern, name)
			}
		}
		for _, name := range c.no {
			if re.MatchString(name) {
				t.Errorf("%s matches %s", c.pattern, name)
			}
		}
	}
}

// Every check explains itself; a finding's id leads to its check.
func TestFind(t *testing.T) {
	for _, c := range Checks() {
		if len(c.Explanation) < 40 || c.Title == "" {
			t.Errorf("%s explains nothing", c.ID)
		}
	}
	if c, err := Find("cache-keys.restore"); err != nil || c.ID != "cache-keys" {
		t.Errorf("%s, %v", c.ID, err)
	}
	if _, err := Find("cache"); err == nil {
		t.Error("the beginning of an id is taken")
	}
}

// Upstream is asked only where that is wanted.
func TestUpstream(t *testing.T) {
	root := fixture(t)
	for _, f := range found(t, root, Options{}).Findings {
		t.Errorf("without asking: %s", said([]report.Finding{f}))
	}
	result := found(t, root, Options{Upstream: true})
	want := []string{
		"upstream.behind TOY_VERSION:1", "upstream.merged " + first + ":1", "upstream.conflict " + second + ":1", "upstream.behind LIB_VERSION:1",
	}
	var got []string
	for _, f := range result.Findings {
		got = append(got, f.ID+" "+f.Where[0].String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("want %q, found:\n%s", want, said(result.Findings))
	}

	toy := filepath.Join(filepath.Dir(root), "toy")
	if _, err := testkit.RunGit(t.Context(), toy, "tag", "-f", "b100", "b101"); err != nil {
		t.Fatal(err)
	}
	edit{first, "contains toy.c good day", "contains toy.c hello"}.apply(t, root)
	result = found(t, root, Options{Checks: []string{"upstream"}})
	if !slices.ContainsFunc(result.Findings, func(f report.Finding) bool {
		return f.ID == "upstream.moved" && f.Where[0].Path == "payload.lock" && f.Where[0].Line == 6
	}) {
		t.Errorf("a moved tag:\n%s", said(result.Findings))
	}
	if _, err := testkit.RunGit(t.Context(), toy, "tag", "-f", "b100", "b101~1"); err != nil {
		t.Fatal(err)
	}
	result = found(t, root, Options{Checks: []string{"upstream"}})
	if !slices.ContainsFunc(result.Findings, func(f report.Finding) bool { return f.ID == "upstream.droppable" }) {
		t.Errorf("a patch that is no longer needed:\n%s", said(result.Findings))
	}
	if err := os.RemoveAll(toy); err != nil {
		t.Fatal(err)
	}
	result = found(t, root, Options{Checks: []string{"upstream"}})
	if !slices.ContainsFunc(result.Findings, func(f report.Finding) bool { return f.ID == "upstream.away" }) {
		t.Errorf("an upstream that is away:\n%s", said(result.Findings))
	}
}
