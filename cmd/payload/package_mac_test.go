package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"payload/internal/codesign"
	"payload/internal/machofile"
	"payload/internal/manifest"
	"payload/internal/notary/notarytest"
	"payload/internal/testkit"
)

const macRelease = `version: 1
components:
  toy: {pin: TOY_VERSION, upstream: upstream}
packages:
  groups:
    - name: base
      system: darwin
      arch: universal
      presets: [arm, amd, arm26]
      single: ['v*/**']
      entitlements: {tool: {com.apple.security.cs.allow-jit: true}}
  origins:
    - {files: ['**'], component: toy, license: MIT}
  signing: {prefix: org.example., runtime: true}
`

// macRepo has trees that were staged for both processors, and for arm64 a
// variant of two systems each.
func macRepo(t *testing.T) string {
	t.Helper()
	return macRepoOf(t, func(lib string, amd64 bool) {
		system := []string{"/usr/lib/libSystem.B.dylib"}
		testkit.MachO{AMD64: amd64, Program: true, MacOS: [2]uint32{14, 0}, Needs: system}.File(t, filepath.Join(lib, "tool"))
		testkit.MachO{AMD64: amd64, ID: "@rpath/libtoy.dylib", MacOS: [2]uint32{14, 0}, Needs: system}.File(t, filepath.Join(lib, "libtoy.dylib"))
	})
}

// macRepoOf has a program and a library that compile puts into a folder.
func macRepoOf(t *testing.T, compile func(lib string, amd64 bool)) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("NOT RUN: git is not on PATH")
	}
	t.Setenv("PAYLOAD_CACHE", filepath.Join(t.TempDir(), "cache"))
	dir := t.TempDir()
	for name, text := range map[string]string{"payload.yaml": macRelease, "TOY_VERSION": "b1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	system := []string{"/usr/lib/libSystem.B.dylib"}
	for _, preset := range []string{"arm", "amd", "arm26"} {
		lib := filepath.Join(dir, "dist", preset, "lib", "payload")
		at := func(name string) string { return filepath.Join(lib, filepath.FromSlash(name)) }
		macOS := [2]uint32{14, 0}
		if preset != "arm26" {
			if err := os.MkdirAll(lib, 0o755); err != nil {
				t.Fatal(err)
			}
			compile(lib, preset == "amd")
			if err := os.WriteFile(at("LICENSE"), []byte("MIT\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		switch preset {
		case "arm26":
			macOS = [2]uint32{26, 2}
			testkit.MachO{ID: "@rpath/libgpu.dylib", MacOS: macOS, Needs: system}.File(t, at("v4/libgpu.dylib"))
		case "arm":
			testkit.MachO{ID: "@rpath/libgpu.dylib", MacOS: macOS, Needs: system}.File(t, at("v3/libgpu.dylib"))
		}
		target := map[string]string{"arm26": "26.2"}[preset]
		if target == "" {
			target = "14.0"
		}
		stageMac(t, lib, manifest.Manifest{Preset: preset, Components: []manifest.Component{}, Target: &manifest.Target{MacOS: target}})
	}
	commitAll(t, dir)
	return dir
}

// stageMac writes the manifest of what lies in lib.
func stageMac(t *testing.T, lib string, m manifest.Manifest) {
	t.Helper()
	var err error
	if m.Files, err = manifest.Describe(lib); err != nil {
		t.Fatal(err)
	}
	m.Verified = &manifest.Verified{Static: true}
	if err := manifest.Write(lib, m); err != nil {
		t.Fatal(err)
	}
}

func commitAll(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=toy", "-c", "user.email=toy@example.org", "commit", "-q", "-m", "all"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v\n%s", err, out)
		}
	}
}

// payloadIn runs the command line in this process.
func payloadIn(dir string, args ...string) (code int, stdout, stderr string) {
	var out, voice bytes.Buffer
	code = Main(append([]string{"-C", dir}, args...), strings.NewReader(""), &out, &voice)
	return code, out.String(), voice.String()
}

// unpacked is the archive of the release, laid out by another program.
func unpacked(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	archives, err := filepath.Glob(filepath.Join(dir, "dist", "release", "*-base.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives %v, %v", archives, err)
	}
	if out, err := exec.Command("tar", "-xzf", archives[0], "-C", to).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return filepath.Join(to, "lib", "payload")
}

func TestPackageDarwin(t *testing.T) {
	dir := macRepo(t)
	code, _, voice := payloadIn(dir, "package", "darwin")
	if code != exitDone {
		t.Fatalf("exit %d\n%s", code, voice)
	}
	for _, want := range []string{"libtoy.dylib is made of arm64 ", "5 files; 2 joined, 2 not for every processor, as declared", "4 files with 6 images signed (adhoc), every page checked"} {
		if !strings.Contains(voice, want) {
			t.Errorf("no %q in\n%s", want, voice)
		}
	}
	lib := unpacked(t, dir)
	data, err := os.ReadFile(filepath.Join(lib, "tool"))
	if err != nil {
		t.Fatal(err)
	}
	if archs, err := codesign.Check(data, nil); err != nil || !slices.Equal(archs, []string{"amd64", "arm64"}) {
		t.Errorf("%v, %v", archs, err)
	}
	m, err := manifest.Read(lib)
	if err != nil || m.Signing == nil || m.Signing.Kind != "adhoc" || m.Signing.Runtime {
		t.Errorf("signing %+v, %v", m.Signing, err)
	}
	if code, out, voice := payloadIn(dir, "verify", "--no-run", lib); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, out, voice)
	}
	// The same trees, the same bytes.
	first, err := os.ReadFile(filepath.Join(dir, "dist", "release", "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, voice := payloadIn(dir, "package", "darwin"); code != exitDone {
		t.Fatalf("exit %d\n%s", code, voice)
	}
	if second, _ := os.ReadFile(filepath.Join(dir, "dist", "release", "SHA256SUMS")); !bytes.Equal(first, second) {
		t.Errorf("a second time:\n%s\nfirst:\n%s", second, first)
	}
	// A variant for a newer macOS may lie beside one for the asked version; what
	// serves no Mac of that version is refused.
	if code, _, voice := payloadIn(dir, "package", "darwin", "--macos", "14.0"); code != exitDone {
		t.Errorf("exit %d\n%s", code, voice)
	}
	lib = unpacked(t, dir)
	if code, out, voice := payloadIn(dir, "verify", "--no-run", lib); code != exitDone {
		t.Errorf("verify, for macOS 14.0: exit %d\n%s%s", code, out, voice)
	}
	if code, out, _ := payloadIn(dir, "verify", "--no-run", "--macos", "13.0", lib); code != exitVerification || !strings.Contains(out, "v3/libgpu.dylib needs macOS 14.0") {
		t.Errorf("verify, for macOS 13.0: exit %d\n%s", code, out)
	}
	code, _, voice = payloadIn(dir, "package", "darwin", "--macos", "13.0")
	for _, want := range []string{"tool", "libtoy.dylib", "v3/libgpu.dylib", "v4/libgpu.dylib"} {
		if !strings.Contains(voice, want+" needs macOS ") {
			t.Errorf("nothing of %s in\n%s", want, voice)
		}
	}
	if code != exitVerification || strings.Contains(voice, ": sign") {
		t.Errorf("exit %d\n%s", code, voice)
	}
}

func TestPackageDarwinRefuses(t *testing.T) {
	dir := macRepo(t)
	p12, key := testkit.NewAuthority(t).DeveloperID(t), []string{"--notary-key", "nowhere.p8", "--notary-key-id", "K", "--notary-issuer", "I"}
	t.Setenv(certificatePasswordVar, testkit.CertificatePassword)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"linux", "--sign", "adhoc"}, exitUsage, "--sign is for darwin"},
		{[]string{"linux", "--macos", "14.0"}, exitUsage, "--macos is for darwin"},
		{[]string{"darwin", "--glibc", "2.28"}, exitUsage, "--glibc is for linux"},
		{[]string{"darwin", "--macos", "new"}, exitUsage, "--macos new: it is no version such as 14.0"},
		{[]string{"darwin", "--sign", "gold"}, exitUsage, "--sign gold: it is adhoc or developer-id"},
		{[]string{"darwin", "--sign", "developer-id"}, exitUsage, "needs one of --certificate and --identity"},
		{[]string{"darwin", "--certificate", "x.p12"}, exitUsage, "go with --sign developer-id"},
		{[]string{"darwin", "--notarize"}, exitUsage, "the notary takes no other signatures"},
		{[]string{"darwin", "--resume"}, exitUsage, "asking the notary needs --notary-key"},
		{[]string{"darwin", "--sign", "developer-id", "--certificate", "nowhere.p12"}, exitFailed, "reading the certificate in nowhere.p12"},
		{append([]string{"darwin", "--sign", "developer-id", "--certificate", p12, "--notarize"}, key...), exitFailed, "reading the notary's key"},
		{append([]string{"darwin", "--sign", "developer-id", "--certificate", p12, "--notarize", "--max-part", "1G"}, key...), exitUsage, "the notary takes whole archives"},
	} {
		if code, _, voice := payloadIn(dir, append([]string{"package"}, c.args...)...); code != c.code || !strings.Contains(voice, c.want) || strings.Contains(voice, "collect") {
			t.Errorf("%v: exit %d\n%s", c.args, code, voice)
		}
	}
	t.Setenv("PATH", strings.Join([]string{filepath.Dir(lookPath(t, "git"))}, ":"))
	for _, args := range [][]string{{"--dmg"}, {"--sign", "developer-id", "--identity", "Nobody"}} {
		if code, _, voice := payloadIn(dir, append([]string{"package", "darwin"}, args...)...); code != exitPrerequisite || !strings.Contains(voice, "is not on PATH") {
			t.Errorf("%v: exit %d\n%s", args, code, voice)
		}
	}
	data := filepath.Join(dir, "dist", "amd", "lib", "payload", "LICENSE")
	if err := os.WriteFile(data, []byte("BSD\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, voice := payloadIn(dir, "package", "darwin", "--allow-changed"); code != exitVerification || !strings.Contains(voice, "differ from byte 0 on") {
		t.Errorf("data that differs: exit %d\n%s", code, voice)
	}
}

func lookPath(t *testing.T, tool string) string {
	t.Helper()
	file, err := exec.LookPath(tool)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A Mac's own tools, as far as what they are asked for.
func TestPackageDarwinTools(t *testing.T) {
	dir := macRepo(t)
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	for name, script := range map[string]string{
		"hdiutil":  `for last; do :; done; echo image >"$last"`,
		"codesign": `true`,
		"xcrun":    `for last; do :; done; echo ticket >>"$last"`,
	} {
		text := "#!/bin/sh\necho " + name + " \"$@\" >>" + log + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	service := notarytest.New(t, "Accepted")
	notaryVariables(t, service)
	code, _, voice := payloadIn(dir, "package", "darwin", "--dmg", "--sign", "developer-id", "--identity", "Developer ID Application: Nobody", "--notarize", "--notary-wait", "5s")
	if code != exitDone {
		t.Fatalf("exit %d\n%s", code, voice)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 7 || !strings.HasPrefix(lines[0], "codesign --sign Developer ID Application: Nobody --force --identifier org.example.libgpu --options runtime --timestamp=none ") ||
		!strings.Contains(lines[3], "--entitlements ") || !strings.HasPrefix(lines[4], "hdiutil create -volname payload-darwin-universal-base") || !strings.HasSuffix(lines[5], ".dmg") || !strings.HasPrefix(lines[6], "xcrun stapler staple ") {
		t.Errorf("ran\n%s", text)
	}
	// The image and the .zip were submitted; the checksums are of the image with its ticket.
	if service.Submits != 2 {
		t.Errorf("%d submissions", service.Submits)
	}
	if image, err := os.ReadFile(filepath.Join(dir, "dist", "release", "payload-darwin-universal-base.dmg")); err != nil || string(image) != "image\nticket\n" {
		t.Errorf("image %q, %v", image, err)
	}
	sum := exec.Command("sha256sum", "-c", "--quiet", "SHA256SUMS")
	sum.Dir = filepath.Join(dir, "dist", "release")
	if out, err := sum.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Debug information goes to an archive of its own where there are tools that take
// it out; elsewhere it is told where it stays.
func TestPackageDarwinDebug(t *testing.T) {
	src := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() { println(1) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := macRepoOf(t, func(lib string, amd64 bool) {
		arch := "arm64"
		if amd64 {
			arch = "amd64"
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(lib, "tool"), src)
		cmd.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	})
	// Go signs for Apple silicon alone.
	code, _, voice := payloadIn(dir, "package", "darwin", "--allow-unverified")
	if code != exitDone || runtime.GOOS == "linux" && !strings.Contains(voice, "debug information stays in tool: taking it out needs macOS's tools") {
		t.Errorf("exit %d\n%s", code, voice)
	}
	bin := t.TempDir()
	for name, script := range map[string]string{"dsymutil": `mkdir -p "$3/Contents/Resources/DWARF" && cp "$1" "$3/Contents/Resources/DWARF/tool"`, "strip": `test "$1" = -S && test -s "$2"`, "llvm-strip": `test "$1" = -S && test -s "$2"`, "lipo": "true"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	code, _, voice = payloadIn(dir, "package", "darwin", "--allow-unverified")
	if code != exitDone || !strings.Contains(voice, "debug information of 1 files goes to payload-darwin-universal-base-dSYM.tgz") {
		t.Errorf("exit %d\n%s", code, voice)
	}
	out, err := exec.Command("tar", "-tzf", filepath.Join(dir, "dist", "release", "payload-darwin-universal-base-dSYM.tgz")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "tool.dSYM/Contents/Resources/DWARF/tool") {
		t.Errorf("%v\n%s", err, out)
	}
	release := filepath.Join(dir, "dist", "release")
	if sums, err := os.ReadFile(filepath.Join(release, "SHA256SUMS")); err != nil || !strings.Contains(string(sums), "-dSYM.tgz") {
		t.Errorf("%s, %v", sums, err)
	}
	main := filepath.Join(release, "payload-darwin-universal-base.tgz")
	if code, out, voice := payloadIn(dir, "verify", "--no-run", main); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, out, voice)
	}
	m, err := manifest.Read(unpacked(t, dir))
	if err != nil || m.Package.Debug == nil || len(m.Package.Debug.Files) != 1 || len(m.Package.Debug.Files[0].IDs) != 2 {
		t.Errorf("%+v, %v", m.Package, err)
	}
	if err := os.WriteFile(filepath.Join(release, m.Package.Debug.Name), out, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := payloadIn(dir, "verify", "--no-run", main); code != exitVerification || !strings.Contains(out, "debug.digest") {
		t.Errorf("verify, with other debug information: exit %d\n%s", code, out)
	}
	// What dsymutil made of another file is not packaged.
	if err := os.WriteFile(filepath.Join(bin, "dsymutil"), []byte("#!/bin/sh\nmkdir -p \"$3/Contents/Resources/DWARF\" && echo dwarf >\"$3/Contents/Resources/DWARF/tool\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, voice := payloadIn(dir, "package", "darwin", "--allow-unverified"); code != exitFailed || !strings.Contains(voice, "DWARF/tool is of []") {
		t.Errorf("exit %d\n%s", code, voice)
	}
}

// notaryVariables name the service as a user's environment does.
func notaryVariables(t *testing.T, service *notarytest.Service) {
	t.Helper()
	t.Setenv("PAYLOAD_NOTARY_URL", service.URL)
	t.Setenv("PAYLOAD_NOTARY_UPLOAD", service.Upload)
	t.Setenv("PAYLOAD_NOTARY_KEY", service.KeyFile())
	t.Setenv("PAYLOAD_NOTARY_KEY_ID", notarytest.KeyID)
	t.Setenv("PAYLOAD_NOTARY_ISSUER", notarytest.Issuer)
}

func TestPackageDarwinNotarised(t *testing.T) {
	dir := macRepo(t)
	service := notarytest.New(t, "In Progress")
	t.Setenv(certificatePasswordVar, testkit.CertificatePassword)
	notaryVariables(t, service)
	code, _, voice := payloadIn(dir, "package", "darwin", "--sign", "developer-id", "--certificate", testkit.NewAuthority(t).DeveloperID(t), "--notarize", "--notary-wait", "40ms")
	if code != exitFailed || !strings.Contains(voice, "hint: payload package darwin --resume") || !strings.Contains(voice, "has not decided on submission sub-1") {
		t.Fatalf("exit %d\n%s", code, voice)
	}
	service.Lock()
	service.Answers = []string{"Invalid"}
	service.Issues = []map[string]any{{"severity": "error", "path": "payload-darwin-universal-base.zip/lib/payload/v3/libgpu.dylib", "message": "The binary is wrong.", "architecture": "arm64"}}
	service.Unlock()
	code, stdout, voice := payloadIn(dir, "package", "darwin", "--resume", "--notary-wait", "5s", "--json")
	if code != exitVerification || !strings.Contains(voice, "error: v3/libgpu.dylib (arm64): The binary is wrong.") || service.Submits != 1 {
		t.Errorf("exit %d, %d submissions\n%s", code, service.Submits, voice)
	}
	var got notarised
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.Schema != notarySchema || len(got.Notary) != 1 || got.Notary[0].Status != "Invalid" || got.Notary[0].Archive != "payload-darwin-universal-base.zip" {
		t.Errorf("%v\n%s", err, stdout)
	}
	if code, _, voice := payloadIn(dir, "package", "darwin", "--resume"); code != exitFailed || !strings.Contains(voice, "no notarisation was left open") {
		t.Errorf("exit %d\n%s", code, voice)
	}
	service.Lock()
	service.Answers = []string{"Accepted"}
	service.Unlock()
	code, _, voice = payloadIn(dir, "package", "darwin", "--resume", "--notary-id", "sub-1", "--notary-wait", "5s")
	if code != exitDone || !strings.Contains(voice, "carries no ticket, as no archive can") {
		t.Errorf("exit %d\n%s", code, voice)
	}
	lib := unpacked(t, dir)
	data, err := os.ReadFile(filepath.Join(lib, "tool"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	m, err := manifest.Read(lib)
	if err != nil || m.Signing == nil || m.Signing.Team != "TEAM123456" || !m.Signing.Runtime {
		t.Errorf("signing %+v, %v", m.Signing, err)
	}
}
