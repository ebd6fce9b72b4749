package universal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/machofile"
	"payload/internal/testkit"
)

var (
	macOS14 = [2]uint32{14, 0}
	both    = []string{"amd64", "arm64"}
)

// trees are an arm64 and an amd64 payload that fit together.
func trees(t *testing.T) (arm, amd Tree) {
	t.Helper()
	root := t.TempDir()
	arm, amd = Tree{Arch: "arm64", Dir: filepath.Join(root, "arm")}, Tree{Arch: "amd64", Dir: filepath.Join(root, "amd")}
	for _, tree := range []Tree{arm, amd} {
		testkit.MachO{AMD64: tree.Arch == "amd64", ID: "@rpath/libx.dylib", MacOS: macOS14}.File(t, filepath.Join(tree.Dir, "libx.dylib"))
		testkit.MachO{AMD64: tree.Arch == "amd64", Program: true, MacOS: macOS14}.File(t, filepath.Join(tree.Dir, "bin", "tool"))
		write(t, filepath.Join(tree.Dir, "data.txt"), "the same\n")
		write(t, filepath.Join(tree.Dir, "payload.json"), tree.Arch)
		link(t, "libx.dylib", filepath.Join(tree.Dir, "liblink.dylib"))
	}
	testkit.MachO{ID: "@rpath/only.dylib", MacOS: macOS14}.File(t, filepath.Join(arm.Dir, "gpu", "only.dylib"))
	write(t, filepath.Join(arm.Dir, "gpu", "kernels"), "MTLB")
	return arm, amd
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, file string) {
	t.Helper()
	if err := os.Symlink(to, file); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMerge(t *testing.T) {
	arm, amd := trees(t)
	out := filepath.Join(t.TempDir(), "out")
	res, err := Merge(t.Context(), out, []Tree{arm, amd}, both, []string{"gpu/**"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Files != 6 || len(res.Joined) != 2 || !slices.Equal(res.Single, []string{"gpu/kernels", "gpu/only.dylib"}) {
		t.Errorf("result %+v", res)
	}
	for _, name := range []string{"libx.dylib", "bin/tool"} {
		fat := read(t, filepath.Join(out, name))
		list, err := machofile.Slices(bytes.NewReader(fat), int64(len(fat)))
		if err != nil || len(list) != 2 {
			t.Fatalf("%s: %+v, %v", name, list, err)
		}
		for i, tree := range []Tree{amd, arm} {
			if s := list[i]; s.Arch() != tree.Arch || !bytes.Equal(fat[s.Offset:s.Offset+s.Size], read(t, filepath.Join(tree.Dir, name))) {
				t.Errorf("%s: the image for %s is not its file", name, tree.Arch)
			}
		}
	}
	if to, err := os.Readlink(filepath.Join(out, "liblink.dylib")); err != nil || to != "libx.dylib" {
		t.Errorf("link to %q, %v", to, err)
	}
	if info, err := os.Stat(filepath.Join(out, "bin", "tool")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(out, "payload.json")); err == nil {
		t.Error("a tree's manifest was taken along")
	}
}

// Two backends for one processor lie beside each other.
func TestMergeOverlays(t *testing.T) {
	arm, amd := trees(t)
	second := Tree{Arch: "arm64", Dir: filepath.Join(t.TempDir(), "second")}
	write(t, filepath.Join(second.Dir, "data.txt"), "the same\n")
	testkit.MachO{ID: "@rpath/only.dylib", MacOS: macOS14}.File(t, filepath.Join(second.Dir, "gpu2", "only.dylib"))
	out := filepath.Join(t.TempDir(), "out")
	res, err := Merge(t.Context(), out, []Tree{arm, second, amd}, both, []string{"gpu*/**"})
	if err != nil || res.Files != 7 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A file that was staged universal is complete by itself; code of one tree
// alone is not, though there is no tree for the other processor.
func TestMergeOneTree(t *testing.T) {
	arm, amd := trees(t)
	out := filepath.Join(t.TempDir(), "out")
	if _, err := Merge(t.Context(), out, []Tree{arm, amd}, both, []string{"gpu/**"}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(arm.Dir, "bin", "tool"), string(read(t, filepath.Join(out, "bin", "tool"))))
	again := filepath.Join(t.TempDir(), "again")
	_, err := Merge(t.Context(), again, []Tree{arm}, both, []string{"gpu/**"})
	var wrong *Error
	if !errors.As(err, &wrong) || len(wrong.Problems) != 1 || !strings.Contains(wrong.Problems[0], "libx.dylib is in "+arm.Dir+" and there is none for amd64") {
		t.Errorf("got %v", err)
	}
	res, err := Merge(t.Context(), again, []Tree{arm}, both, []string{"gpu/**", "libx.dylib"})
	if err != nil || len(res.Joined) != 0 || res.Files != 6 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(t *testing.T, arm, amd Tree)
		want string
	}{
		{"data that differs", func(t *testing.T, _, amd Tree) {
			t.Helper()
			write(t, filepath.Join(amd.Dir, "data.txt"), "the sane\n")
		}, "amd/data.txt differ from byte 6 on"},
		{"one architecture alone", func(t *testing.T, _, amd Tree) {
			t.Helper()
			if err := os.Remove(filepath.Join(amd.Dir, "libx.dylib")); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(amd.Dir, "liblink.dylib")); err != nil {
				t.Fatal(err)
			}
		}, "libx.dylib is in "},
		{"a copy for the wrong processor", func(t *testing.T, arm, amd Tree) {
			t.Helper()
			write(t, filepath.Join(amd.Dir, "libx.dylib"), string(read(t, filepath.Join(arm.Dir, "libx.dylib"))))
		}, "amd/libx.dylib is for arm64, in a tree for amd64"},
		{"the same processor twice", func(t *testing.T, arm, _ Tree) {
			t.Helper()
			testkit.MachO{ID: "@rpath/libx.dylib", MacOS: [2]uint32{15, 0}}.File(t, filepath.Join(arm.Dir, "..", "arm2", "libx.dylib"))
		}, "are both for arm64, and differ"},
		{"a link that differs", func(t *testing.T, _, amd Tree) {
			t.Helper()
			if err := os.Remove(filepath.Join(amd.Dir, "liblink.dylib")); err != nil {
				t.Fatal(err)
			}
			link(t, "bin/tool", filepath.Join(amd.Dir, "liblink.dylib"))
		}, "liblink.dylib is a link to libx.dylib in "},
		{"a link here, a file there", func(t *testing.T, _, amd Tree) {
			t.Helper()
			if err := os.Remove(filepath.Join(amd.Dir, "liblink.dylib")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(amd.Dir, "liblink.dylib"), "x")
		}, "and a file in "},
		{"names that differ in case", func(t *testing.T, arm, _ Tree) {
			t.Helper()
			write(t, filepath.Join(arm.Dir, "gpu", "Kernels"), "x")
		}, "gpu/Kernels and gpu/kernels are one name on a Mac"},
		{"folders that differ in case", func(t *testing.T, arm, _ Tree) {
			t.Helper()
			write(t, filepath.Join(arm.Dir, "GPU", "more"), "x")
		}, "GPU and gpu are one name on a Mac"},
		{"executable in one", func(t *testing.T, _, amd Tree) {
			t.Helper()
			if err := os.Chmod(filepath.Join(amd.Dir, "bin", "tool"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "bin/tool is executable in only one of"},
		{"a file and a folder", func(t *testing.T, _, amd Tree) {
			t.Helper()
			write(t, filepath.Join(amd.Dir, "gpu"), "x")
		}, "gpu is a file in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			arm, amd := trees(t)
			c.harm(t, arm, amd)
			all := []Tree{arm, amd}
			if second := filepath.Join(arm.Dir, "..", "arm2"); exists(second) {
				all = append(all, Tree{Arch: "arm64", Dir: second})
			}
			out := filepath.Join(t.TempDir(), "out")
			_, err := Merge(t.Context(), out, all, both, []string{"gpu/**", "GPU/**"})
			var wrong *Error
			if !errors.As(err, &wrong) || !slices.ContainsFunc(wrong.Problems, func(p string) bool { return strings.Contains(p, c.want) }) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if exists(out) {
				t.Error("something was written")
			}
		})
	}
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
