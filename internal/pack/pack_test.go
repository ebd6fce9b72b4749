package pack

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"payload/internal/archive"
	"payload/internal/config"
	"payload/internal/manifest"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/verify"
	"payload/internal/voice"
	"payload/internal/workspace"
)

const repositoryYAML = `version: 1
components:
  toy:
    pin: TOY_VERSION
    upstream: https://github.com/Example/Toy.git
    patches: patches
    mirrors: [{ref: v1, pypi: toy-source==1.0, sha256: 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e}]
packages:
  zstd: %s
  groups:
    - {name: base, system: linux, arch: amd64, presets: [cpu]}
    - {name: base, system: windows, arch: amd64, presets: [win]}
    - {name: two, system: darwin, arch: arm64, presets: [a, b]}
  origins:
    - {files: ['licenses/other/**'], name: other, license: BSD-3-Clause, purl: pkg:generic/other@2}
    - {files: ['**'], component: toy, license: MIT}
`

const hex40 = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"

// release is a repository with a lock, and an empty folder of staged trees.
type release struct {
	t    *testing.T
	root string
	w    *workspace.Workspace
}

func newRelease(t *testing.T) *release {
	t.Helper()
	zstd, err := archive.ZstdVersion(t.Context())
	if err != nil {
		t.Skip("NOT RUN: zstd is not on PATH")
	}
	r := &release{t: t, root: t.TempDir()}
	t.Setenv("PAYLOAD_CACHE", t.TempDir())
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	r.write(config.FileName, fmt.Sprintf(repositoryYAML, zstd))
	r.write("TOY_VERSION", "v1\n")
	r.write("patches/0001-one.patch", "not applied here\n")
	sum, err := manifest.Digest(filepath.Join(r.root, "patches", "0001-one.patch"))
	if err != nil {
		t.Fatal(err)
	}
	lock := pin.Lock{Entries: []pin.Entry{{
		Component: "toy", Ref: "v1", Commit: hex40, Patches: []pin.Patch{{File: "0001-one.patch", SHA256: sum}},
		Sources: []pin.Source{{From: "pypi:toy-source==1.0", Pristine: strings.Repeat("a", 40), Patched: strings.Repeat("b", 40)}},
	}}}
	if err := lock.Save(r.root); err != nil {
		t.Fatal(err)
	}
	if r.w, err = workspace.Open(t.Context(), workspace.Options{Dir: r.root}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) write(name, text string) string {
	r.t.Helper()
	file := filepath.Join(r.root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// stage describes dist/PRESET as it stands, made from what the lock has.
func (r *release) stage(preset string, change func(*manifest.Manifest)) {
	r.t.Helper()
	dir := filepath.Join(r.root, "dist", preset, "lib", "payload")
	files, err := manifest.Describe(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	e := r.w.Lock.Entries[0]
	m := manifest.Manifest{
		Project: "native", Preset: preset, Files: files, Verified: &manifest.Verified{Static: true},
		Components: []manifest.Component{{
			Name: "toy", Ref: e.Ref, Commit: e.Commit, Pristine: e.Sources[0].Pristine, Patched: e.Sources[0].Patched, Source: e.Sources[0].From,
			Patches: []manifest.Patch{manifest.Patch(e.Patches[0])},
		}},
	}
	if change != nil {
		change(&m)
	}
	if err := manifest.Write(dir, m); err != nil {
		r.t.Fatal(err)
	}
}

func (r *release) options(system string) Options {
	return Options{System: system, From: filepath.Join(r.root, "dist"), Out: filepath.Join(r.root, "out"), Version: "1.2.3"}
}

func (r *release) run(o Options) (Result, error) {
	return Run(r.t.Context(), r.w, voice.New(io.Discard), o)
}

func (r *release) must(o Options) Result {
	r.t.Helper()
	res, err := r.run(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *release) read(name string) []byte {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.root, "out", name))
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// compile makes shared libraries: liba needs libb.
func (r *release) compile(dir string, flags ...string) {
	r.t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		r.t.Skip("NOT RUN: no C compiler")
	}
	r.write("b.c", "int b(void) { return 1; }\n")
	r.write("a.c", "int b(void); int a(void) { return b(); }\n")
	if err := os.MkdirAll(filepath.Join(r.root, dir), 0o755); err != nil {
		r.t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-o", dir + "/libb.so", "b.c", "-Wl,-soname,libb.so"},
		{"-o", dir + "/liba.so", "a.c", "-L" + dir, "-lb", "-Wl,-rpath,$ORIGIN"},
	} {
		cmd := exec.Command("cc", slices.Concat([]string{"-shared", "-fPIC", "-Wl,--build-id"}, flags, args)...)
		cmd.Dir = r.root
		if out, err := cmd.CombinedOutput(); err != nil {
			r.t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestProof holds the inventory against CycloneDX's own schema and says what is
// in it, and the provenance against the form that SLSA publishes.
func TestProof(t *testing.T) {
	r := newRelease(t)
	r.compile("dist/cpu/lib/payload")
	r.write("dist/cpu/lib/payload/licenses/other/LICENSE", "text")
	r.stage("cpu", nil)
	res := r.must(r.options("linux"))
	name := "payload-linux-amd64-base"

	bom := r.read(name + sbomEnding)
	valid(t, "bom-1.6.schema.json", bom)
	var b struct {
		Components []struct {
			Ref      string `json:"bom-ref"`
			Purl     string `json:"purl"`
			Licenses []struct{ Expression string }
			Hashes   []struct{ Content string }
			Pedigree struct {
				Ancestors []struct{ Purl string }
				Patches   []struct{ Diff struct{ URL string } }
			}
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(bom, &b); err != nil {
		t.Fatal(err)
	}
	refs := map[string]int{}
	for i, c := range b.Components {
		refs[c.Ref] = i
		if strings.HasPrefix(c.Ref, "file:") && (len(c.Licenses) != 1 || len(c.Hashes) != 1) {
			t.Errorf("%s has licences %v and digests %v", c.Ref, c.Licenses, c.Hashes)
		}
	}
	up := b.Components[refs["upstream:toy"]]
	if up.Purl != "pkg:github/example/toy@"+hex40 || up.Pedigree.Ancestors[0].Purl != "pkg:pypi/toy-source@1.0" || !strings.HasPrefix(up.Pedigree.Patches[0].Diff.URL, "patches/0001-one.patch#sha256=") {
		t.Errorf("upstream is %+v", up)
	}
	if c := b.Components[refs["third-party:other"]]; c.Purl != "pkg:generic/other@2" || c.Licenses[0].Expression != "BSD-3-Clause" {
		t.Errorf("the other one is %+v", c)
	}
	edges := map[string][]string{}
	for _, d := range b.Dependencies {
		edges[d.Ref] = d.DependsOn
	}
	if got := edges["file:liba.so"]; !slices.Contains(got, "file:libb.so") || !slices.Contains(got, "upstream:toy") {
		t.Errorf("liba.so loads %v", got)
	}

	var s Statement
	dec := json.NewDecoder(bytes.NewReader(r.read(name + provenanceEnding)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	checkStatement(t, s)
	bound := map[string]string{}
	for _, d := range s.Subject {
		bound[d.Name] = d.Digest["sha256"]
	}
	for _, f := range res.Packages[0].Files {
		sum, err := manifest.Digest(filepath.Join(r.root, "out", f.Name))
		if err != nil || sum != f.SHA256 || f.Kind != "provenance" && bound[f.Name] != sum {
			t.Errorf("%s is %s, the result says %s, the provenance %s, %v", f.Name, sum, f.SHA256, bound[f.Name], err)
		}
	}
	var uris []string
	for _, d := range s.Predicate.BuildDefinition.ResolvedDependencies {
		uris = append(uris, d.URI)
	}
	if !slices.Contains(uris, "git+https://github.com/Example/Toy.git@v1") || !slices.Contains(uris, "pkg:pypi/toy-source@1.0") {
		t.Errorf("it was made of %v", uris)
	}
}

// checkStatement holds what the specifications of Statement v1 and of SLSA's
// provenance v1 require: types, digests of all subjects, URIs where they say so.
func checkStatement(t *testing.T, s Statement) {
	t.Helper()
	isHex := regexp.MustCompile(`^[0-9a-f]{64}$|^[0-9a-f]{40}$`)
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" || len(s.Subject) == 0 {
		t.Errorf("it is a %s of a %s", s.Type, s.PredicateType)
	}
	d := s.Predicate.BuildDefinition
	for _, x := range slices.Concat(s.Subject, d.ResolvedDependencies) {
		if len(x.Digest) == 0 || x.Name == "" && x.URI == "" {
			t.Errorf("%+v has no digest or no name", x)
		}
		for alg, v := range x.Digest {
			if !isHex.MatchString(v) || alg == "" {
				t.Errorf("the digest %s of %s is %q", alg, x.Name, v)
			}
		}
	}
	for _, uri := range []string{d.BuildType, s.Predicate.RunDetails.Builder.ID} {
		if u, err := url.Parse(uri); err != nil || u.Scheme == "" {
			t.Errorf("%q is no URI", uri)
		}
	}
	if d.ExternalParameters.System == "" || d.InternalParameters.Time != "2001-09-09T01:46:40Z" {
		t.Errorf("the parameters are %+v, %+v", d.ExternalParameters, d.InternalParameters)
	}
}

// valid holds data against a schema of CycloneDX, which its Go module carries.
func valid(t *testing.T, name string, data []byte) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "schema")
	c := jsonschema.NewCompiler()
	for _, file := range []string{name, "spdx.schema.json", "jsf-0.82.schema.json"} {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join(dir, "jsf-0.82.schemax.json") // its name in the module
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource("http://cyclonedx.org/schema/"+file, doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile("http://cyclonedx.org/schema/" + name)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%v\n%s", err, data)
	}
	value.(map[string]any)["components"] = []any{map[string]any{"name": "of no type"}}
	if schema.Validate(value) == nil {
		t.Error("the schema lets anything pass")
	}
}

// TestDebug holds that debug information goes into an archive of its own, by
// build id, that the library still works with it, and symbols stay.
func TestDebug(t *testing.T) {
	if _, err := run.LookPath("objcopy"); err != nil {
		t.Skip("NOT RUN: objcopy is not on PATH")
	}
	r := newRelease(t)
	r.compile("dist/cpu/lib/payload", "-g")
	r.stage("cpu", nil)
	res := r.must(r.options("linux"))
	debug := "payload-linux-amd64-base-debug.tar.zst"
	if i := slices.IndexFunc(res.Packages[0].Files, func(f File) bool { return f.Name == debug && f.Kind == "debug" }); i < 0 {
		t.Fatalf("the files are %+v", res.Packages[0].Files)
	}
	dir := t.TempDir()
	for _, name := range []string{debug, "payload-linux-amd64-base.tar.zst"} {
		if out, err := exec.Command("tar", "-C", dir, "-xf", filepath.Join(r.root, "out", name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	library := filepath.Join(dir, "lib", "payload", "liba.so")
	staged := filepath.Join(r.root, "dist", "cpu", "lib", "payload", "liba.so")
	if hasDebugInformation(library) || !hasDebugInformation(staged) {
		t.Error("liba.so still has debug information, or the staged file lost it")
	}
	m, err := manifest.Read(filepath.Join(dir, "lib", "payload"))
	if err != nil || m.Package.Debug == nil {
		t.Fatalf("%+v, %v", m.Package, err)
	}
	sum, err := manifest.Digest(filepath.Join(r.root, "out", debug))
	if d := m.Package.Debug; err != nil || d.Name != debug || d.SHA256 != sum || d.Size != int64(len(r.read(debug))) {
		t.Errorf("%+v, %v", d, err)
	}
	ids, err := manifest.BuildIDs(staged)
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	in := "lib/debug/.build-id/" + ids[0][:2] + "/" + ids[0][2:] + ".debug"
	if i := slices.IndexFunc(m.Package.Debug.Files, func(f manifest.Debugged) bool { return f.Path == "liba.so" }); i < 0 || !reflect.DeepEqual(m.Package.Debug.Files[i], manifest.Debugged{Path: "liba.so", In: in, IDs: ids}) {
		t.Errorf("%+v", m.Package.Debug.Files)
	}
	split := filepath.Join(dir, filepath.FromSlash(in))
	if other, err := manifest.BuildIDs(split); !slices.Equal(other, ids) || !hasDebugInformation(split) || err != nil {
		t.Errorf("%s has the ids %s, %v", split, other, err)
	}
	for _, f := range m.Files {
		if sum, err := manifest.Digest(filepath.Join(dir, "lib", "payload", f.Path)); err != nil || sum != f.SHA256 {
			t.Errorf("%s is not what the manifest says, %v", f.Path, err)
		}
	}
	r.debugFits(dir, m, split)
}

// debugFits has an archive verified beside its debug information, and beside what
// is not that: another file, one of another build, and a file of another build
// under the manifest.
func (r *release) debugFits(dir string, m manifest.Manifest, split string) {
	t := r.t
	t.Helper()
	name := filepath.Join(r.root, "out", "payload-linux-amd64-base.tar.zst")
	for _, file := range []string{"payload-linux-amd64-base.cdx.json", archive.SumsName} { // the list is another check's
		if err := os.Remove(filepath.Join(r.root, "out", file)); err != nil {
			t.Fatal(err)
		}
	}
	found := func() (ids []string) {
		o, err := verify.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		res, err := verify.Payload(t.Context(), verify.Options{Dir: o.Dir, NoRun: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range slices.Concat(o.Findings, res.Findings) {
			ids = append(ids, f.ID)
		}
		return ids
	}
	pack := func(file string) {
		if out, err := exec.Command("tar", "-C", dir, "--zstd", "-cf", file, "lib/"+map[bool]string{true: "payload", false: "debug"}[file == name]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	expect := func(what string, want ...string) {
		if got := found(); !slices.Equal(got, want) {
			t.Errorf("%s: found %v, want %v", what, got, want)
		}
	}
	expect("what was packaged")
	debug := filepath.Join(r.root, "out", m.Package.Debug.Name)
	r.compile("other", "-g", "-O2")
	other := filepath.Join(r.root, "other", "liba.so")
	if out, err := exec.Command("objcopy", "--only-keep-debug", other, split).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pack(debug)
	expect("another build's", "debug.digest")
	var err error
	if m.Package.Debug.SHA256, err = manifest.Digest(debug); err != nil {
		t.Fatal(err)
	}
	m.Package.Debug.Size = int64(len(r.read(filepath.Base(debug))))
	write := func() {
		if err := manifest.Write(filepath.Join(dir, "lib", "payload"), m); err != nil {
			t.Fatal(err)
		}
		pack(name)
	}
	write()
	expect("another build's, that the manifest names", "debug.id")
	if err := os.Remove(debug); err != nil {
		t.Fatal(err)
	}
	expect("none")
	own := m.Package.Debug.Name
	for _, m.Package.Debug.Name = range []string{"", "..", "../" + own} {
		write()
		expect("a name that is no file's", "debug.digest")
	}
	m.Package.Debug.Name = own
	if m.Package.Debug.Files[0].IDs, err = manifest.BuildIDs(other); err != nil {
		t.Fatal(err)
	}
	write()
	expect("a file that another build's is of", "debug.id")
}

// TestWindows holds that a package for Windows has no links: a file that was one
// is there, and a link that leads to nothing is refused.
func TestWindows(t *testing.T) {
	r := newRelease(t)
	r.write("dist/win/lib/payload/tool.exe", "program")
	if err := os.Symlink("tool.exe", filepath.Join(r.root, "dist/win/lib/payload/other.exe")); err != nil {
		t.Skip("NOT RUN: no links here")
	}
	r.stage("win", nil)
	r.must(r.options("windows"))
	z, err := zip.OpenReader(filepath.Join(r.root, "out", "payload-windows-amd64-base.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if f.Mode().Type() != 0 {
			t.Errorf("%s is a %v", f.Name, f.Mode())
		}
	}
	r2, err := z.Open("lib/payload/other.exe")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r2); string(data) != "program" || err != nil {
		t.Errorf("other.exe holds %q, %v", data, err)
	}
}

// TestRefused holds each reason to its allowance, and that the manifest tells
// what was allowed.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, what, why string
		change          func(*manifest.Manifest)
	}{
		{"patch", AllowUnlocked, "was built with other patches", func(m *manifest.Manifest) { m.Components[0].Patches[0].SHA256 = strings.Repeat("0", 64) }},
		{"no patches", AllowUnlocked, "without its patches", func(m *manifest.Manifest) { m.Components[0].Unpatched = true }},
		{"commit", AllowUnlocked, "the lock has v1", func(m *manifest.Manifest) { m.Components[0].Commit = strings.Repeat("1", 40) }},
		{"tree", AllowUnlocked, "from another tree than the lock's", func(m *manifest.Manifest) { m.Components[0].Patched = strings.Repeat("c", 40) }},
		{"source", AllowUnlocked, "from override /x, which the lock does not have", func(m *manifest.Manifest) { m.Components[0].Source = "override /x" }},
		{"prebuilt", AllowUnlocked, "brought compiled", func(m *manifest.Manifest) { m.Components[0].Prebuilt = "pypi:x==1" }},
		{"component", AllowUnlocked, "other is not a component", func(m *manifest.Manifest) { m.Components[0].Name = "other" }},
		{"not verified", AllowUnverified, "was never verified", func(m *manifest.Manifest) { m.Verified = nil }},
		{"static", AllowUnverified, "failed the check of its files", func(m *manifest.Manifest) { m.Verified.Static = false }},
		{"not run", AllowUnverified, "nothing of it was run: asked not to run it", func(m *manifest.Manifest) {
			m.Components[0].Verify = "completion-server"
			m.Verified.Skipped = []manifest.Skipped{{Name: "x", Reason: "asked not to run it"}}
		}},
		{"file", AllowChanged, "text is not the file that was staged", func(m *manifest.Manifest) { m.Files[0].SHA256 = strings.Repeat("0", 64) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRelease(t)
			r.write("dist/cpu/lib/payload/text", "text")
			r.stage("cpu", c.change)
			o := r.options("linux")
			_, err := r.run(o)
			refused, ok := errors.AsType[*RefusedError](err)
			if !ok || refused.Reasons[0].What != c.what || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("%v", err)
			}
			if left, _ := os.ReadDir(o.Out); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
			for _, other := range Allowances {
				if other != c.what {
					o.Allow = append(o.Allow, other)
				}
			}
			if _, err := r.run(o); err == nil {
				t.Errorf("%v pass over it", o.Allow)
			}
			o.Allow = append(o.Allow, AllowUnverified, c.what) // what is not checked as its kind asks fails that check too
			if got := r.must(o).Packages[0].Allowed; len(got) == 0 || got[0].What != c.what || !strings.Contains(got[0].Why, c.why) {
				t.Errorf("allowed were %v", got)
			}
		})
	}
}

// TestSigned holds that signatures are minisign's, of the checksums and the
// provenance, and the same each time.
func TestSigned(t *testing.T) {
	r := newRelease(t)
	r.write("dist/cpu/lib/payload/text", "text")
	r.stage("cpu", nil)
	// The same key twice: as it is, and under the password "secret".
	public, err := minisign.PublicKeyFromFile("testdata/key.pub")
	if err != nil {
		t.Fatal(err)
	}
	o := r.options("linux")
	var first []byte
	for _, name := range []string{"plain", "locked"} {
		if o.SignKey, err = filepath.Abs("testdata/" + name + ".key"); err != nil {
			t.Fatal(err)
		}
		if name == "locked" {
			if _, err := r.run(o); err == nil || !strings.Contains(err.Error(), "it is encrypted") {
				t.Errorf("%v", err)
			}
			t.Setenv(PasswordVar, "secret")
		}
		res := r.must(o)
		if !res.Signed {
			t.Error("the result says that nothing is signed")
		}
		for _, signed := range []string{archive.SumsName, "payload-linux-amd64-base" + provenanceEnding} {
			signature := r.read(signed + signatureEnding)
			reader := minisign.NewReader(bytes.NewReader(r.read(signed)))
			if _, err := io.Copy(io.Discard, reader); err != nil {
				t.Fatal(err)
			}
			if !reader.Verify(public, signature) || !strings.Contains(string(signature), "trusted comment: file:"+signed) {
				t.Errorf("the signature of %s is wrong:\n%s", signed, signature)
			}
		}
		if first != nil && !bytes.Equal(first, r.read(archive.SumsName+signatureEnding)) {
			t.Error("two signatures of the same differ")
		}
		first = r.read(archive.SumsName + signatureEnding)
	}
	// Without a key the old signature, which is of other checksums, goes.
	o.SignKey = ""
	r.write("out/payload-linux-amd64-base-debug.tar.zst", "of the last release")
	r.write("out/payload-linux-amd64-base_other.zip", "of another group")
	r.must(o)
	entries, err := os.ReadDir(o.Out)
	if err != nil || len(entries) != 5 {
		t.Errorf("of the last release are left: %v, %v", entries, err)
	}
}

// TestParts holds that a release that is no longer split leaves no parts behind.
func TestParts(t *testing.T) {
	r := newRelease(t)
	noise := make([]byte, 3<<20)
	seed := uint32(1)
	for i := range noise {
		seed = seed*1664525 + 1013904223
		noise[i] = byte(seed >> 24)
	}
	r.write("dist/cpu/lib/payload/noise", string(noise))
	r.stage("cpu", nil)
	o := r.options("linux")
	o.MaxPart = 1 << 20
	res := r.must(o)
	if parts := res.Packages[0].Files[0].Parts; len(parts) != 4 || !exists(filepath.Join(o.Out, parts[3])) {
		t.Fatalf("%+v", res.Packages[0].Files)
	}
	if sums := string(r.read(archive.SumsName)); !strings.Contains(sums, "# "+res.Packages[0].Files[0].SHA256+"  payload-linux-amd64-base.tar.zst = ") {
		t.Errorf("%s", sums)
	}
	o.MaxPart = 0
	whole := r.must(o)
	if whole.Packages[0].Files[0].SHA256 != res.Packages[0].Files[0].SHA256 {
		t.Error("the parts made another archive")
	}
	entries, _ := os.ReadDir(o.Out)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"SHA256SUMS", "payload-linux-amd64-base.cdx.json", "payload-linux-amd64-base.provenance.json", "payload-linux-amd64-base.tar.zst"}; !slices.Equal(names, want) {
		t.Errorf("there are %v", names)
	}
	if strings.Contains(string(r.read(archive.SumsName)), "part") {
		t.Error("the checksums still list parts")
	}
}

// TestMadeBy holds that whatever packaging writes is replaced by the next one:
// debug information of an earlier build must not stay in a release.
func TestMadeBy(t *testing.T) {
	p := Package{name: "payload-darwin-universal-base"}
	var ends []string
	for system, list := range forms {
		for _, f := range append(slices.Clone(list), debugForms[system]) {
			if f.ending != "" {
				ends = append(ends, f.ending, f.ending+".part001")
			}
		}
	}
	for _, ending := range append(ends, ".dmg", ".cdx.json", ".provenance.json", ".provenance.json"+signatureEnding) {
		if !madeBy(p, p.name+ending) {
			t.Errorf("%s%s would stay", p.name, ending)
		}
		if madeBy(p, p.name+"-mine"+ending) {
			t.Errorf("%s-mine%s would be deleted", p.name, ending)
		}
	}
}

// TestStepsOfASystem holds that a system's own merging and signing take the
// place of the common ones, and what they make is packaged in both forms.
func TestStepsOfASystem(t *testing.T) {
	r := newRelease(t)
	for _, p := range []string{"a", "b"} {
		r.write("dist/"+p+"/lib/payload/same", "one of "+p)
		r.stage(p, nil)
	}
	o := r.options("darwin")
	if _, err := r.run(o); !errors.Is(err, errTwoFiles) {
		t.Errorf("%v", err)
	}
	var order []string
	o.Merge = func(_ context.Context, j *Job) error {
		order = append(order, fmt.Sprintf("merge %d", len(j.Trees)))
		return os.WriteFile(filepath.Join(j.Payload, "same"), []byte("both"), 0o644)
	}
	o.Sign = func(_ context.Context, j *Job) error {
		order = append(order, "sign")
		return nil
	}
	o.Extra = func(_ context.Context, j *Job) error {
		order = append(order, "extra")
		if err := os.WriteFile(filepath.Join(j.New, j.Name()+".dmg"), []byte("image"), 0o644); err != nil {
			return err
		}
		return j.Add(j.Name()+".dmg", "archive")
	}
	res := r.must(o)
	if got := strings.Join(order, ", "); got != "merge 2, sign, extra" {
		t.Errorf("the steps were %s", got)
	}
	var names []string
	for _, f := range res.Packages[0].Files {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "payload-darwin-arm64-two.tgz payload-darwin-arm64-two.zip payload-darwin-arm64-two.dmg payload-darwin-arm64-two.cdx.json payload-darwin-arm64-two.provenance.json" {
		t.Errorf("the files are %s", got)
	}
	if sums := string(r.read(archive.SumsName)); !strings.Contains(sums, ".dmg") {
		t.Errorf("%s", sums)
	}
	// One of two trees is not enough.
	if err := os.RemoveAll(filepath.Join(r.root, "dist", "b")); err != nil {
		t.Fatal(err)
	}
	_, err := r.run(o)
	if missing, ok := errors.AsType[*NotStagedError](err); !ok || !slices.Equal(missing.Presets, []string{"b"}) {
		t.Errorf("%v", err)
	}
}

// TestLeftByAKill holds that what a killed packaging left is cleared, and the
// folder of one that runs is not.
func TestLeftByAKill(t *testing.T) {
	r := newRelease(t)
	r.write("dist/cpu/lib/payload/text", "text")
	r.stage("cpu", nil)
	left := r.write("out/"+workPrefix+"1/new/half", "half")
	busy, done, err := workFolder(filepath.Join(r.root, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	}()
	r.must(r.options("linux"))
	if exists(left) || !exists(busy) {
		t.Errorf("the left one is there: %t, the busy one: %t", exists(left), exists(busy))
	}
}

func TestPurls(t *testing.T) {
	at := time.Now().Format("2006")
	for _, c := range []struct{ got, want string }{
		{repositoryPurl("https://github.com/A/B", manifest.Component{Commit: "c"}), "pkg:github/a/b@c"},
		{repositoryPurl("https://example.org/x.git", manifest.Component{Name: "x y", Ref: "v1"}), "pkg:generic/x%20y@v1?vcs_url=git%2Bhttps%3A%2F%2Fexample.org%2Fx.git%40v1"},
		{repositoryPurl("../upstream", manifest.Component{Name: "x", Ref: "r" + at}), "pkg:generic/x@r" + at},
		{sourcePurl("pypi:A_b==1.0/manylinux"), "pkg:pypi/a-b@1.0"},
		{sourcePurl("crate:x-sys==0.2.0"), "pkg:cargo/x-sys@0.2.0"},
		{sourcePurl("git"), ""},
		{sourcePurl("archive:x.tar"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

// TestHeldHere holds that a group that leaves modules to another one does not
// claim their variants.
func TestHeldHere(t *testing.T) {
	built := []manifest.Component{{Verify: "completion-server", Variants: []string{"haswell", "x64"}}}
	here := heldHere(built, []manifest.File{{Path: "libggml-cpu-x64.so"}, {Path: "vulkan/libggml-vulkan.so"}})
	if got := here[0].Variants; !slices.Equal(got, []string{"x64"}) || len(built[0].Variants) != 2 {
		t.Errorf("%v are claimed, of %v", got, built[0].Variants)
	}
}

// A tree of which every file differs is refused in a few lines, and what else is
// wrong is not lost among them.
func TestRefusedForMuch(t *testing.T) {
	var e RefusedError
	for i := range 600 {
		e.Reasons = append(e.Reasons, manifest.Allowed{What: AllowChanged, Why: fmt.Sprintf("p: file%d is not the file that was staged", i)})
	}
	e.Reasons = append(e.Reasons, manifest.Allowed{What: AllowUnlocked, Why: "p: it is of another commit"})
	lines := strings.Split(e.Error(), "\n")
	want := []string{"refused, for 601 reasons:", "  p: file7 is not the file that was staged", "  and 592 more that --allow-changed would pass over", "  p: it is of another commit"}
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("%q is not among %q", line, lines)
		}
	}
	if len(lines) != 11 {
		t.Errorf("it has %d lines: %q", len(lines), lines)
	}
}
