package relocate

import (
	"debug/elf"
	"debug/macho"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/machofile"
	"payload/internal/testkit"
)

func library(t *testing.T, dir, name string, flags ...string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "x.c")
	if err := os.WriteFile(source, []byte("int answer(void) { return 42; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	args := append([]string{"-shared", "-fPIC", "-o", file, source, "-Wl,-soname," + name}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

func search(t *testing.T, file string) []string {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		list, err := f.DynString(tag)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
	}
	return all
}

func TestELF(t *testing.T) {
	for name, c := range map[string]struct {
		rpath, want, err string
		changed          bool
	}{
		"of a wheel":    {rpath: "$ORIGIN/../../x.libs", want: "$ORIGIN", changed: true},
		"several":       {rpath: "$ORIGIN/../a:$ORIGIN/../b", want: "$ORIGIN", changed: true},
		"right already": {rpath: "$ORIGIN", want: "$ORIGIN"},
		"absolute":      {rpath: "/opt/x/lib", err: "does not begin with $ORIGIN"},
	} {
		t.Run(name, func(t *testing.T) {
			file := library(t, t.TempDir(), "libx.so", "-Wl,-rpath,"+c.rpath)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := Beside(file)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				after, err := os.ReadFile(file)
				if err != nil || !slices.Equal(before, after) {
					t.Error("the file was changed")
				}
				return
			}
			if err != nil || changed != c.changed {
				t.Errorf("changed %t, %v", changed, err)
			}
			if got := search(t, file); !slices.Equal(got, []string{c.want}) {
				t.Errorf("it searches %q", got)
			}
			if again, err := Beside(file); again || err != nil {
				t.Errorf("a second time: %t, %v", again, err)
			}
		})
	}
}

// Without a search path to change, what it needs would not be found.
func TestELFWithoutPath(t *testing.T) {
	dir := t.TempDir()
	library(t, dir, "liby.so")
	file := library(t, dir, "libx.so", "-L"+dir, "-Wl,--no-as-needed", "-ly")
	if _, err := Beside(file); err == nil || !strings.Contains(err.Error(), "no search path") {
		t.Errorf("got %v", err)
	}
}

func TestMachO(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "libx.dylib")
	needs := testkit.MachO{ID: "@rpath/libx.dylib", Needs: []string{"@rpath/liby.dylib", "/usr/lib/libSystem.B.dylib"}, MacOS: [2]uint32{14, 0}}
	needs.File(t, file)
	if changed, err := Beside(file); changed || err != nil {
		t.Fatalf("nothing lies beside it: %t, %v", changed, err)
	}
	testkit.MachO{ID: "@rpath/liby.dylib", MacOS: [2]uint32{14, 0}}.File(t, filepath.Join(dir, "liby.dylib"))
	if changed, err := Beside(file); !changed || err != nil {
		t.Fatalf("changed %t, %v", changed, err)
	}
	f, err := macho.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var paths []string
	for _, load := range f.Loads {
		if r, ok := load.(*macho.Rpath); ok {
			paths = append(paths, r.Path)
		}
	}
	if !slices.Equal(paths, []string{"@loader_path"}) {
		t.Errorf("it searches %q", paths)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if changed, err := Beside(file); changed || err != nil {
		t.Errorf("a second time: %t, %v", changed, err)
	}
}

// Where a command more would reach into the code, nothing is written.
func TestMachOWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "libx.dylib")
	testkit.MachO{ID: "@rpath/libx.dylib", Needs: []string{"@rpath/liby.dylib"}, MacOS: [2]uint32{14, 0}, Full: true}.File(t, file)
	testkit.MachO{ID: "@rpath/liby.dylib", MacOS: [2]uint32{14, 0}}.File(t, filepath.Join(dir, "liby.dylib"))
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Beside(file); !errors.As(err, new(*machofile.RoomError)) {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || !slices.Equal(before, after) {
		t.Error("the file was changed")
	}
}

// A name from the machine that compiled it would be found nowhere else.
func TestMachOAbsoluteNames(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "libx.dylib")
	testkit.MachO{ID: "/Users/x/build/libx.dylib", Needs: []string{"/opt/x/liby.dylib", "/usr/lib/libSystem.B.dylib", "/opt/x/libz.dylib"}, MacOS: [2]uint32{14, 0}}.File(t, file)
	testkit.MachO{ID: "@rpath/liby.dylib", MacOS: [2]uint32{14, 0}}.File(t, filepath.Join(dir, "liby.dylib"))
	if changed, err := Beside(file); !changed || err != nil {
		t.Fatalf("changed %t, %v", changed, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := machofile.Thin(data)
	if err != nil {
		t.Fatal(err)
	}
	got := append([]string{m.ID()}, append(m.Needed(), m.Rpaths()...)...)
	want := []string{"@rpath/libx.dylib", "@rpath/liby.dylib", "/usr/lib/libSystem.B.dylib", "/opt/x/libz.dylib", "@loader_path"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOtherFiles(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "short": "ab", "text": "not a library at all\n"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if changed, err := Beside(file); changed || err != nil {
			t.Errorf("%s: %t, %v", name, changed, err)
		}
	}
}
