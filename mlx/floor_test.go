package mlx

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// image is a Mach-O file that says which macOS it is for, and nothing else.
func image(major, minor uint32) []byte {
	var b []byte
	for _, w := range []uint32{0xfeedfacf, 0x100000c, 0, 6, 1, 24, 0, 0, 0x32, 24, 1, major<<16 | minor<<8, 0, 0} {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func kernels(major, minor uint16) []byte {
	b := append([]byte("MTLB"), make([]byte, 12)...)
	binary.LittleEndian.PutUint16(b[12:], major)
	binary.LittleEndian.PutUint16(b[14:], minor)
	return b
}

// variants is a payload with a folder for two versions of macOS. The libraries
// can be loaded nowhere, so the error says which were tried.
func variants(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, v := range map[string][2]uint32{"mlx_metal_v3": {14, 0}, "mlx_metal_v4": {26, 2}} {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, data := range map[string][]byte{libraryName(): image(14, 0), "libmlx.dylib": image(v[0], v[1]), "mlx.metallib": kernels(uint16(v[0]), uint16(v[1]))} {
			if err := os.WriteFile(filepath.Join(sub, file), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestVariantBySystem(t *testing.T) {
	dir := variants(t)
	for _, c := range []struct {
		system string
		first  string // the folder that is tried first
		passed []string
	}{
		{"26.2", "mlx_metal_v4", nil},
		{"27.0", "mlx_metal_v4", nil},
		{"26.1", "mlx_metal_v3", []string{"mlx_metal_v4"}},
		{"14.0", "mlx_metal_v3", []string{"mlx_metal_v4"}},
		{"13.6.1", "", []string{"mlx_metal_v4", "mlx_metal_v3"}},
	} {
		_, err := open(candidates(dir, "/nowhere"), c.system)
		var missing *LoadError
		if !errors.As(err, &missing) {
			t.Fatalf("macOS %s: %v", c.system, err)
		}
		first := ""
		var passed []string
		for _, p := range missing.Places {
			name := filepath.Base(filepath.Dir(p.Path))
			switch {
			case p.Why == "no such file":
			case strings.Contains(p.Why, "and later, this is "+c.system):
				passed = append(passed, name)
			case first == "":
				first = name
			}
		}
		if first != c.first || strings.Join(passed, " ") != strings.Join(c.passed, " ") {
			t.Errorf("macOS %s: tries %q and passes over %q, want %q and %q\n%v", c.system, first, passed, c.first, c.passed, err)
		}
	}
}

// Kernels that are for a newer system than their library count.
func TestKernelsTooNew(t *testing.T) {
	dir := variants(t)
	lib := filepath.Join(dir, "mlx_metal_v3", libraryName())
	if err := os.WriteFile(filepath.Join(filepath.Dir(lib), "mlx.metallib"), kernels(26, 2), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := tooNew(lib, "15.1"); got != "mlx.metallib is for macOS 26.2 and later, this is 15.1" {
		t.Errorf("got %q", got)
	}
}

func TestMacOSVersion(t *testing.T) {
	for _, c := range [][3]string{
		{"14.5", "23.5.0", "14.5"},
		{"26.2", "25.2.0", "26.2"},
		{"16.0", "25.2.0", "26.2"}, // told to programs of an older SDK
		{"10.16", "24.1.0", "15.1"},
		{"", "25.0.0", "26.0"},
		{"", "", ""},
	} {
		if got := macOSVersion(c[0], c[1]); got != c[2] {
			t.Errorf("%q, kernel %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
