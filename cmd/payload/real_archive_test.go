//go:build real

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"payload/internal/archive"
	"payload/internal/machofile"
	"payload/internal/manifest"
	"payload/internal/verify"
)

// verified is what payload verify says of a path.
func verified(t *testing.T, want int, args ...string) verify.Result {
	t.Helper()
	code, out, stderr := payload(t, slices.Concat([]string{"verify", "--json"}, args)...)
	if code != want {
		t.Fatalf("exit %d, want %d: %s%s", code, want, out, stderr)
	}
	var res verify.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatal(err)
	}
	return res
}

// TestRealArchive packs the payload of the real MLX for Linux, and has it run
// from the archive. Its floors are upstream's, with what they come from.
func TestRealArchive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("mlx_cpu is for Linux")
	}
	_, _, staged := buildReal(t, "mlx_cpu")
	items, err := archive.Items(staged)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "payload.tgz")
	if _, err := archive.WriteTarGzip(context.Background(), file, items, archive.Writing{Threads: 2}); err != nil {
		t.Fatal(err)
	}
	res := verified(t, exitDone, file)
	if res.Runtime == nil || res.Runtime.Requests == 0 {
		t.Errorf("nothing was run: %+v", res.Runtime)
	}
	if f := res.Static.Floor; f.Glibc != "2.35" || f.Glibcxx != "3.4.30" {
		t.Errorf("floor is %+v", f)
	}
	if i := slices.IndexFunc(res.Static.Floors, func(n verify.Needed) bool { return n.What == "glibc" }); i < 0 ||
		res.Static.Floors[i].Library != "libm.so.6" || !slices.Contains(res.Static.Floors[i].Symbols, "hypotf") {
		t.Errorf("floors are %+v", res.Static.Floors)
	}
	wantFinding(t, verified(t, exitVerification, file, "--no-run", "--glibc", "2.34").Findings, "floor.glibc")
	verified(t, exitDone, file, "--no-run", "--glibc", "2.35", "--glibcxx", "3.4.30", "--against", staged)
}

// TestRealArchiveDarwin packages the real payloads for macOS, verifies the
// archive, and changes what is in it, with a manifest that fits each time.
func TestRealArchiveDarwin(t *testing.T) {
	if os.Getenv("PAYLOAD_TEST_ALL") == "" || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("NOT RUN: payloads for macOS are cut by scripts/test --all, on Linux for x86-64")
	}
	for _, preset := range []string{"mlx_metal_v3", "mlx_metal_v4"} {
		buildReal(t, preset, "--cross")
	}
	release := t.TempDir()
	must(t, "package", "darwin", "--group", "mlx", "--allow-unverified", "--out", release)
	files, err := filepath.Glob(filepath.Join(release, "*.tgz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("archives: %q, %v", files, err)
	}
	if res := verified(t, exitDone, files[0]); res.Static.MachO < 8 || len(res.Findings) > 0 {
		t.Errorf("static is %+v, findings %+v", res.Static, res.Findings)
	}
	dir := t.TempDir()
	if c, err := archive.Unpack(context.Background(), files[0], dir, archive.Defaults); err != nil || len(c.Problems) > 0 {
		t.Fatal(err, c.Problems)
	}
	testRealMutations(t, verify.Folder(dir))
}

// testRealMutations changes one file of a payload at a time, and puts it back.
func testRealMutations(t *testing.T, dir string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	const v3, v4 = "mlx_metal_v3/", "mlx_metal_v4/"
	for _, c := range []struct {
		name  string
		files []string // that change touches, and that are put back
		// change is given the paths of the files.
		change func(t *testing.T, paths []string)
		want   string
	}{
		{"a byte of code", []string{v3 + "libmlx.dylib"}, func(t *testing.T, p []string) { t.Helper(); flipByte(t, p[0], 0x100000) }, "macho.signature-page"},
		{"kernels swapped", []string{v3 + "mlx.metallib", v4 + "mlx.metallib"}, swap, "metallib.pairing"},
		{"libraries swapped", []string{v3 + "libmlx.dylib", v4 + "libmlx.dylib"}, swap, "metallib.pairing"},
		{"a library gone", []string{v4 + "libjaccl.dylib"}, func(t *testing.T, p []string) { t.Helper(); remove(t, p[0]) }, "closure.missing"},
		{"another library in its place", []string{v3 + "libjaccl.dylib", v3 + "libmlxc.dylib"}, swap, "symbols.undefined"},
		{"a later macOS", []string{v3 + "libmlxc.dylib"}, func(t *testing.T, p []string) { t.Helper(); setMinimum(t, p[0], 15<<16) }, "macho.minos"},
		{"a path of the builder", []string{v3 + "libmlxc.dylib"}, addRpath, "rpath.absolute"},
		{"a broken signature", []string{v3 + "libmlxc.dylib"}, func(t *testing.T, p []string) {
			t.Helper()
			flipByte(t, p[0], int64(bytes.LastIndex(contentOf(t, p[0]), []byte{0xfa, 0xde, 0x0c, 0xc0})))
		}, "macho.signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := manifest.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			sealed := contentOf(t, in(manifest.Name))
			var paths []string
			for _, f := range c.files {
				keep := filepath.Join(t.TempDir(), "kept")
				if err := os.WriteFile(keep, contentOf(t, in(f)), 0o755); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := os.WriteFile(in(f), contentOf(t, keep), 0o755); err != nil {
						t.Error(err)
					}
				}()
				paths = append(paths, in(f))
			}
			c.change(t, paths)
			if m.Files, err = manifest.Describe(dir); err != nil {
				t.Fatal(err)
			}
			if err := manifest.Write(dir, m); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(in(manifest.Name), sealed, 0o644); err != nil {
					t.Error(err)
				}
			}()
			wantFinding(t, verified(t, exitVerification, dir, "--no-run").Findings, c.want)
		})
	}
}

func contentOf(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func swap(t *testing.T, p []string) {
	t.Helper()
	a, b := contentOf(t, p[0]), contentOf(t, p[1])
	for i, data := range [][]byte{b, a} {
		if err := os.WriteFile(p[i], data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func addRpath(t *testing.T, p []string) {
	t.Helper()
	image, err := machofile.Thin(contentOf(t, p[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := image.AddRpath("/Users/x/build"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p[0], image.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
}

// setMinimum changes the oldest macOS in a thin file's LC_BUILD_VERSION.
func setMinimum(t *testing.T, file string, version uint32) {
	t.Helper()
	data := contentOf(t, file)
	command := binary.LittleEndian.AppendUint32(nil, 0x32)
	at := bytes.Index(data[:0x4000], append(command, 0x20, 0, 0, 0, 1, 0, 0, 0))
	if at < 0 {
		at = bytes.Index(data[:0x4000], append(command, 0x18, 0, 0, 0, 1, 0, 0, 0))
	}
	if at < 0 {
		t.Fatalf("%s has no LC_BUILD_VERSION", file)
	}
	binary.LittleEndian.PutUint32(data[at+12:], version)
	if err := os.WriteFile(file, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
