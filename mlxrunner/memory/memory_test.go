package memory

import (
	"testing"
	"testing/fstest"

	"payload/mlx"
	"payload/mlx/mlxtest"
)

func TestContainer(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int64 // 0 is none
	}{
		"not Linux": {fstest.MapFS{}, 0},
		"version 2": {fstest.MapFS{
			"proc/self/cgroup":                     file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max":         file("max\n"),
			"sys/fs/cgroup/a/memory.max":           file("2147483648\n"),
			"sys/fs/cgroup/a/b/other/c/memory.max": file("5\n"),
		}, 2 << 30},
		"version 2, mounted at the group": {fstest.MapFS{
			"proc/self/cgroup":         file("0::/../../docker/x\n"),
			"sys/fs/cgroup/memory.max": file("1073741824\n"),
		}, 1 << 30},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("5:cpu,cpuacct:/c\n4:memory:/c\n0::/\n"),
			"sys/fs/cgroup/memory/c/memory.limit_in_bytes": file("3221225472\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   file("9223372036854771712\n"),
		}, 3 << 30},
		"version 1, no limit": {fstest.MapFS{
			"proc/self/cgroup":                           file("4:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 0},
	} {
		got, ok := container(c.root)
		if ok != (c.want != 0) || ok && got != c.want {
			t.Errorf("%s: %d, %v; want %d", name, got, ok, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{"100": 100, "1.5GiB": 3 << 29, "512 MiB": 512 << 20, "16GB": 16e9, "7B": 7, "0": 0, "-1GiB": 0, "GiB": 0, "": 0, "1e30": 0, "12 parsecs": 0, "NaN": 0} {
		got, err := Parse(text)
		if (err == nil) != (want != 0) || got != want && want != 0 {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for n, want := range map[int64]string{512: "0.5 KiB", 3 << 19: "1.5 MiB", 5 << 30: "5.0 GiB"} {
		if got := Text(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestAvailable(t *testing.T) {
	mlxtest.Library(t)
	n, from, err := Available(mlx.CPU)
	if err != nil || n < 100<<20 || from == "" {
		t.Errorf("%d, %q, %v", n, from, err)
	}
}
