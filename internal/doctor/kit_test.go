//go:build linux

package doctor

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, path, text string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, text)
	}
}

func TestOtherRelease(t *testing.T) {
	targets := "https://mirror/security/ bookworm main Debian\nhttps://mirror/other/ main Other\nhttps://mirror/debian/ main Debian\nhttps://mirror/debian/ main Debian\n"
	line, err := otherRelease(targets, "debian", "trixie")
	if err != nil || !strings.HasSuffix(line, "https://mirror/debian/ trixie main\n") {
		t.Errorf("%q, %v", line, err)
	}
	if line, err := otherRelease("https://mirror/ubuntu/ main Ubuntu\n", "ubuntu", "noble"); err != nil || !strings.HasSuffix(line, "noble main universe\n") {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := otherRelease("https://mirror/other/ main Other\n", "debian", "trixie"); err == nil {
		t.Error("somebody else's packages are taken")
	}
}

// A kit of packages of a newer release is unpacked, with apt's own checks, and
// a second one takes its place whole.
func TestDebsKit(t *testing.T) {
	id := systemID()
	if id == "" {
		t.Skip("NOT RUN: this system has no os-release")
	}
	t.Setenv("PAYLOAD_CACHE", t.TempDir())
	log := filepath.Join(t.TempDir(), "log")
	testkit.Fake(t, "apt-get", `echo "$@" >>`+log+`
case "$*" in
indextargets*) echo "https://mirror/x/ main `+id+`" ;;
*update) case "$*" in *AllowUnauthenticated*|*allow-unauthenticated*) exit 9;; esac ;;
*"download one two") touch one_1.deb two_1.deb ;;
*) exit 8 ;;
esac`)
	testkit.Fake(t, "dpkg-deb", `mkdir -p "$3/usr/include/one"; echo "new $(basename "$2")" >"$3/usr/include/one/$(basename "$2").h"`)
	kits["test"] = debs{packages: []string{"one", "two"}, releases: map[string]string{id: "next"}, keep: map[string]string{"usr/include": "sub/include"}}
	t.Cleanup(func() { delete(kits, "test") })
	dir, err := KitsDir()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "test", "old"), "old")
	var out bytes.Buffer
	if err := MakeKit(t.Context(), "test", &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	holds(t, filepath.Join(dir, "test", "sub", "include", "one", "two_1.deb.h"), "new two_1.deb\n")
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "test", "old")); err == nil {
		t.Error("the old kit is mixed with the new one")
	}
	// What fails leaves the kit that is there.
	testkit.Fake(t, "dpkg-deb", "echo damaged >&2; exit 2")
	if err := MakeKit(t.Context(), "test", &out); err == nil || !strings.Contains(err.Error(), "unpacking test: dpkg-deb") {
		t.Errorf("%v", err)
	}
	holds(t, filepath.Join(dir, "test", "sub", "include", "one", "one_1.deb.h"), "new one_1.deb\n")
}

// wheel writes an archive; a name that ends in ! is a program.
func wheel(t *testing.T, path string, files map[string]string) {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for name, text := range files {
		header := &zip.FileHeader{Name: strings.TrimSuffix(name, "!")}
		header.SetMode(0o644)
		if strings.HasSuffix(name, "!") {
			header.SetMode(0o755)
		}
		w, err := z.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, out.String())
}

// A kit of wheels looks as CMake expects a toolkit to, and one can link with it
// where there is no driver.
func TestWheelsKit(t *testing.T) {
	made := filepath.Join(t.TempDir(), "sdk-1.whl")
	wheel(t, made, map[string]string{
		"nvidia/x/bin/nvcc!": "#!/bin/sh\n", "nvidia/x/lib/libcudart.so.13": "elf", "nvidia/x/include/cuda.h": "#define cuInit cuInit_v2\nint cuInit(int); int cuMemFree(int); cudaError_t no;\n",
		"other/file": "not of the SDK",
	})
	asked := filepath.Join(t.TempDir(), "asked")
	testkit.Fake(t, "pip", `case "$1" in
--version) echo "pip 24.0"; exit ;;
esac
echo "$*" >`+asked+`
for last; do :; done
while [ "$1" != -r ]; do shift; done; cat "$2" >>`+asked+`
while [ "$1" != -d ]; do shift; done; mkdir -p "$2"; cp `+made+` "$2"`)
	k := wheels{requirements: []string{"sdk==1 --hash=sha256:ab"}, folder: "nvidia/x", driver: "libcuda.so.1", driverHeader: "include/cuda.h"}
	dir := filepath.Join(t.TempDir(), "kit")
	var out bytes.Buffer
	if err := k.fill(t.Context(), dir, t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(asked)
	if err != nil || !strings.Contains(string(text), "--no-deps --only-binary :all: --require-hashes") || !strings.Contains(string(text), "sdk==1 --hash=sha256:ab\n") {
		t.Errorf("pip was asked for %s, %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bin", "nvcc")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	holds(t, filepath.Join(dir, "lib64", "libcudart.so"), "elf")
	if _, err := os.Stat(filepath.Join(dir, "file")); err == nil {
		t.Error("what is not of the SDK is unpacked")
	}
	program := filepath.Join(t.TempDir(), "prog.c")
	write(t, program, "int cuMemFree(int), cuInit_v2(int); int main(void) { return cuInit_v2(0) + cuMemFree(0); }\n")
	linked := exec.Command("cc", program, "-o", program+".out", "-L"+filepath.Join(dir, "lib", "stubs"), "-lcuda") //nolint:noctx // a test's compiler
	if text, err := linked.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestUnzipRefuses(t *testing.T) {
	for _, name := range []string{"a/../../x", "a//etc/x"} {
		bad := filepath.Join(t.TempDir(), "bad.whl")
		wheel(t, bad, map[string]string{name: "x"})
		if err := unzip(t.Context(), bad, "a/", t.TempDir()); err == nil {
			t.Errorf("%s is unpacked", name)
		}
	}
}

// A kit is offered only where what it holds will do.
func TestKitFits(t *testing.T) {
	kits["fits"] = wheels{holds: "13.0", system: kits["cuda_v13"].(wheels).system}
	t.Cleanup(func() { delete(kits, "fits") })
	if !kits["fits"].usable() {
		t.Skip("NOT RUN: no such kit for this system")
	}
	for _, tt := range []struct {
		min, below string
		want       bool
	}{{"13.0", "14", true}, {"12.8", "13", false}, {"13.1", "14", false}, {"", "", true}} {
		if got := usableKit("fits", Finding{Min: tt.min, Below: tt.below}) != ""; got != tt.want {
			t.Errorf("from %q below %q: %t", tt.min, tt.below, got)
		}
	}
}
