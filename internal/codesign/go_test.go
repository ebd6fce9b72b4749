package codesign

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"payload/internal/machofile"
	"payload/internal/testkit"
)

// What Go's linker writes: signed by itself for arm64, unsigned for amd64.
func TestGoProgram(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var images [][]byte
	for _, arch := range []string{"arm64", "amd64"} {
		out := filepath.Join(dir, arch)
		cmd := exec.Command("go", "build", "-o", out, src)
		cmd.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, text)
		}
		images = append(images, read1(t, out))
	}
	if _, err := Check(images[1], nil); err == nil {
		t.Error("the amd64 program is signed already: this test proves nothing")
	}
	fat, err := machofile.JoinThin(images)
	if err != nil {
		t.Fatal(err)
	}
	a := testkit.NewAuthority(t)
	for _, o := range []Options{{}, {Identity: signer(t, a), Runtime: true}} {
		signed, err := Bytes(t.Context(), fat, "hello", nil, o)
		if err != nil {
			t.Fatal(err)
		}
		if archs, err := Check(signed, o.Identity); err != nil || !slices.Equal(archs, []string{"amd64", "arm64"}) {
			t.Errorf("%s: %v, %v", o.Kind(), archs, err)
		}
	}
}
