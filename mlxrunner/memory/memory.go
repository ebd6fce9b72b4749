// Package memory says how much memory a model may take on this machine: what
// the device recommends, and what the container allows. It reads and sets
// nothing of MLX but what the device tells.
package memory

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"payload/mlx"
)

// Of what there is, these parts may be taken; the rest is the system's and that
// of other programs.
const (
	hostShare   = 0.8 // of memory that processor and programs share
	deviceShare = 0.9 // of what an accelerator recommends or has
)

// Available is how many bytes may be taken on d, and where the number is from.
func Available(d mlx.Device) (bytes int64, from string, err error) {
	bytes, from, err = ofDevice(d)
	if err != nil {
		return 0, "", err
	}
	if limit, ok := container(os.DirFS("/")); ok && d.Kind == mlx.KindCPU {
		if n := share(limit, hostShare); n < bytes {
			bytes, from = n, "80% of what the container may have"
		}
	}
	return bytes, from, nil
}

func ofDevice(d mlx.Device) (int64, string, error) {
	info, err := d.Info()
	if err != nil {
		return 0, "", err
	}
	for _, known := range []struct{ key, from string }{
		{"max_recommended_working_set_size", "90% of what Metal recommends"},
		{"total_memory", "90% of the device's memory"},
	} {
		if n, ok := info[known.key].(uint64); ok && n > 0 {
			return share(int64(min(n, math.MaxInt64)), deviceShare), known.from, nil
		}
	}
	m, err := mlx.MemoryInUse()
	return m.Limit, "80% of the machine's memory", err // MLX starts with that
}

func share(n int64, part float64) int64 { return int64(float64(n) * part) }

// container gives the lowest limit of this process's control groups, of either
// version, if one has any. root is the file system.
func container(root fs.FS) (int64, bool) {
	lines, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	lowest := int64(math.MaxInt64)
	for line := range strings.Lines(string(lines)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[1] == "": // version 2
			lowest = min(lowest, along(root, "sys/fs/cgroup", parts[2], "memory.max"))
		case strings.Contains(","+parts[1]+",", ",memory,"):
			lowest = min(lowest, along(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"))
		}
	}
	// Version 1 says "no limit" by a number of pages that no machine has.
	return lowest, lowest < 1<<60
}

// along gives the lowest limit of a group and those above it. In a container the
// group's own folder is where the mount begins, so that names lead nowhere.
func along(root fs.FS, mount, group, file string) int64 {
	lowest := int64(math.MaxInt64)
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		text, err := fs.ReadFile(root, path.Join(mount, group, file))
		if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil { // else it is "max"
			lowest = min(lowest, n)
		}
		if group == "/" {
			return lowest
		}
	}
}

var units = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// Parse reads a size: a number of bytes, or with a unit (512MiB, 1.5GiB, 16GB).
func Parse(text string) (int64, error) {
	for _, u := range units {
		number, found := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n > 0) || n*u.bytes >= math.MaxInt64 {
			break
		}
		return int64(n * u.bytes), nil
	}
	return 0, fmt.Errorf("the size %q is not one as 512MiB, 1.5GiB or 16GB", text)
}

// Text writes a size for people.
func Text(bytes int64) string {
	switch n := float64(bytes); {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", n/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
}
