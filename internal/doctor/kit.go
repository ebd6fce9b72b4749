package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// kit is a folder that --fix fills for tools which the system's packages do not
// have, or not new enough. Nothing of the system changes: files of packages are
// unpacked below KitsDir.
type kit interface {
	usable() bool    // on this system
	version() string // of what it holds; empty when that is known only afterwards
	words() string
	// fill makes the kit's files in dir; temp is for anything else.
	fill(ctx context.Context, dir, temp string, w io.Writer) error
}

var kits = map[string]kit{
	// Headers alone: an SDK as far as CMake and ggml look into one.
	"vulkan": debs{
		packages: []string{"libvulkan-dev", "spirv-headers"},
		releases: map[string]string{"debian": "trixie", "ubuntu": "noble"},
		keep:     map[string]string{"usr/include": "include", "usr/share/cmake": "share/cmake"},
	},
	// 13.0, so that the drivers of the first day will do.
	"cuda_v13": wheels{
		requirements: []string{
			"nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
			"nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
			"nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
			"nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
			"nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
			"nvidia-cublas==13.1.1.3 --hash=sha256:37936a16db8fe4ac1f065c2139360608a543a09275cb1a1af612e08cfa065436",
		},
		holds: "13.0", system: "linux/amd64", folder: "nvidia/cu13", driver: "libcuda.so.1", driverHeader: "include/cuda.h",
	},
}

// usableKit is name where a kit can be made here and would do for f, else empty.
func usableKit(name string, f Finding) string {
	k, ok := kits[name]
	if !ok || !k.usable() || k.version() != "" && (older(k.version(), f.Min) || newer(k.version(), f.Below)) {
		return ""
	}
	return name
}

// systemID is how os-release names this system.
func systemID() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(line, "ID="); ok {
			return strings.Trim(strings.TrimSpace(id), `"`)
		}
	}
	return ""
}

// KitInWords says what making a kit does.
func KitInWords(name string) string {
	dir, err := KitsDir()
	if err != nil {
		dir = "the cache folder"
	}
	return fmt.Sprintf("unpacks %s to %s", kits[name].words(), filepath.Join(dir, name))
}

// MakeKit makes the folder of a kit anew, whole or not at all. What the clients
// that fetch it print goes to w.
func MakeKit(ctx context.Context, name string, w io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("unpacking %s: %w", name, err)
		}
	}()
	dir, err := KitsDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	fresh := filepath.Join(temp, "kit")
	if err := kits[name].fill(ctx, fresh, temp, w); err != nil {
		return err
	}
	place := filepath.Join(dir, name)
	if err := os.Rename(place, filepath.Join(temp, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, place)
}
