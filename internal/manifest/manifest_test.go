package manifest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"payload/internal/run"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.txt"), "hello\n", 0o644)
	write(t, filepath.Join(dir, "sub", "a"), "", 0o755)
	write(t, filepath.Join(dir, Name), "{}", 0o644)
	write(t, filepath.Join(dir, "sub", Name), "{}", 0o644)
	if err := os.Symlink("../b.txt", filepath.Join(dir, "sub", "l")); err != nil {
		t.Skip("no links here: ", err)
	}
	got, err := Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	const braces = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	want := []File{
		{Path: "b.txt", SHA256: "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", Size: 6},
		{Path: "sub/a", SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", Executable: true},
		{Path: "sub/l", Link: "../b.txt"},
		{Path: "sub/" + Name, SHA256: braces, Size: 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDescribeELF(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a compiler for ELF")
	}
	dir := t.TempDir()
	src := filepath.Join(t.TempDir(), "a.cpp")
	write(t, src, "#include <stdexcept>\n#include <cstdio>\nint f(int n) { if (n) throw std::runtime_error(\"no\"); return std::puts(\"x\"); }\n", 0o644)
	if _, err := run.Do(context.Background(), run.Cmd{Args: []string{"c++", "-shared", "-fPIC", "-o", filepath.Join(dir, "liba.so"), src}}); err != nil {
		t.Fatal(err)
	}
	got, err := Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Arch != runtime.GOARCH {
		t.Errorf("arch is %q, want %q", got[0].Arch, runtime.GOARCH)
	}
	if f := got[0].Floor; f == nil || newer(f.Glibc, "2.2") != f.Glibc || newer(f.Glibcxx, "3.4") != f.Glibcxx {
		t.Errorf("floor is %+v", f)
	}
}

// machoFile is the least 64-bit dylib: a header and one load command.
func machoFile(cpu uint32, cmd []uint32) []byte {
	var buf bytes.Buffer
	for _, word := range append([]uint32{0xfeedfacf, cpu, 0, 6, 1, uint32(4 * len(cmd)), 0, 0}, cmd...) {
		_ = binary.Write(&buf, binary.LittleEndian, word) // a buffer takes all
	}
	return buf.Bytes()
}

func inspect(data []byte) (string, *Floor) { return Inspect(bytes.NewReader(data), int64(len(data))) }

func TestInspectMachO(t *testing.T) {
	for _, tt := range []struct {
		name        string
		cpu         uint32
		cmd         []uint32
		arch, macos string
	}{
		{"build version", 0x0100000c, []uint32{0x32, 24, 1, 0x000e0000, 0x000f0000, 0}, "arm64", "14.0"},
		{"version minimum", 0x01000007, []uint32{0x24, 16, 0x000a0d06, 0}, "amd64", "10.13.6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arch, floor := inspect(machoFile(tt.cpu, tt.cmd))
			if arch != tt.arch || floor == nil || floor.MacOS != tt.macos {
				t.Errorf("got %q, %+v", arch, floor)
			}
		})
	}
}

// The table of a universal file that is larger than 4 GiB has offsets of 64 bits.
func TestInspectBeyond4GiB(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no holes there")
	}
	amd64, arm64 := machoFile(0x01000007, []uint32{0x24, 16, 0x000a0d06, 0}), machoFile(0x0100000c, []uint32{0x32, 24, 1, 0x000e0000, 0x000f0000, 0})
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the file is of no use afterwards
	const near, far = 0x1000, 5 << 30
	be := binary.BigEndian
	head := be.AppendUint32(be.AppendUint32(nil, 0xcafebabf), 2)
	for _, s := range []struct {
		cpu     uint32
		at      uint64
		content []byte
	}{{0x01000007, near, amd64}, {0x0100000c, far, arm64}} {
		head = be.AppendUint64(be.AppendUint32(be.AppendUint32(head, s.cpu), 0), s.at)
		head = be.AppendUint64(be.AppendUint64(head, uint64(len(s.content))), 14<<32)
		if _, err := f.WriteAt(s.content, int64(s.at)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		t.Fatal(err)
	}
	if arch, floor := Inspect(f, far+int64(len(arm64))); arch != "amd64+arm64" || floor == nil || floor.MacOS != "14.0" {
		t.Errorf("got %q, %+v", arch, floor)
	}
}

func TestInspectDamaged(t *testing.T) {
	for _, text := range []string{"", "ab", "\x7fELF", "\x7fELF\x02\x01\x01 and then nothing of use", "\xcf\xfa\xed\xfe\x00"} {
		if arch, floor := inspect([]byte(text)); arch != "" || floor != nil {
			t.Errorf("%q: got %q, %+v", text, arch, floor)
		}
	}
}

func TestNewer(t *testing.T) {
	for _, tt := range [][3]string{
		{"2.9", "2.34", "2.34"},
		{"2.34", "2.9", "2.34"},
		{"", "2.2.5", "2.2.5"},
		{"2.34", "PRIVATE", "2.34"},
		{"2.34", "", "2.34"},
	} {
		if got := newer(tt[0], tt[1]); got != tt[2] {
			t.Errorf("newer(%q, %q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}

func TestWriteRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.As(err, new(*MissingError)) {
		t.Errorf("reading nothing: %v", err)
	}
	m := Manifest{
		Project:    "p",
		Components: []Component{{Name: "c", Ref: "b1", Patches: []Patch{{File: "0001-a<b>.patch", SHA256: "00"}}}},
		Files:      []File{{Path: "x", Size: 1, Floor: &Floor{Glibc: "2.34"}}},
	}
	if err := Write(dir, m); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(filepath.Join(dir, Name))
	if !bytes.Contains(first, []byte("0001-a<b>.patch")) || !bytes.HasPrefix(first, []byte("{\n  \"schema\": \"payload.manifest/v1\"")) {
		t.Errorf("wrote %s", first)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Schema = Schema
	if !reflect.DeepEqual(got, m) {
		t.Errorf("read %+v", got)
	}
	if err := Write(dir, got); err != nil {
		t.Fatal(err)
	}
	if second, _ := os.ReadFile(filepath.Join(dir, Name)); !bytes.Equal(first, second) {
		t.Error("writing what was read gives other bytes")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

func TestReadWrong(t *testing.T) {
	for _, text := range []string{"", "{", `{"schema":"other/v1"}`} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, Name), text, 0o644)
		if _, err := Read(dir); err == nil || errors.As(err, new(*MissingError)) {
			t.Errorf("%q: error is %v", text, err)
		}
	}
}
