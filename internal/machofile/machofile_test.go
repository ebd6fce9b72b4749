package machofile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blacktop/go-macho"

	"payload/internal/machofile"
	"payload/internal/testkit"
)

func image(tb testing.TB, m testkit.MachO) []byte {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "x")
	m.File(tb, file)
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func thin(t *testing.T, data []byte) *machofile.Image {
	t.Helper()
	m, err := machofile.Thin(bytes.Clone(data))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestJoinAndSlices(t *testing.T) {
	arm := image(t, testkit.MachO{ID: "@rpath/a.dylib", MacOS: [2]uint32{14, 0}})
	amd := image(t, testkit.MachO{ID: "@rpath/a.dylib", MacOS: [2]uint32{14, 0}, AMD64: true, Rpaths: []string{"@loader_path"}})
	input := func(data []byte) machofile.Input {
		return machofile.Input{Slice: thin(t, data).Slice(), From: bytes.NewReader(data)}
	}
	var fat bytes.Buffer
	placed, err := machofile.Join(&fat, []machofile.Input{input(arm), input(amd)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := machofile.Slices(bytes.NewReader(fat.Bytes()), int64(fat.Len()))
	if err != nil || !slices.Equal(got, placed) {
		t.Fatalf("placed %+v, found %+v, %v", placed, got, err)
	}
	// As lipo: arm64 last, 4 KiB and 16 KiB.
	if len(got) != 2 || got[0].Arch() != "amd64" || got[0].Offset != 0x1000 || got[0].Align != 12 || got[1].Align != 14 || got[1].Offset%0x4000 != 0 {
		t.Errorf("placed at %+v", got)
	}
	for i, want := range [][]byte{amd, arm} {
		if s := got[i]; !bytes.Equal(fat.Bytes()[s.Offset:s.Offset+s.Size], want) {
			t.Errorf("the image for %s is not what went in", s.Arch())
		}
	}
	f, err := macho.NewFatFile(bytes.NewReader(fat.Bytes())) // another reader's opinion
	if err != nil || len(f.Arches) != 2 {
		t.Errorf("go-macho: %v", err)
	}
	if _, err := machofile.Join(&fat, []machofile.Input{input(arm), input(amd), input(arm)}); err == nil || !strings.Contains(err.Error(), "two images are for arm64") {
		t.Errorf("a CPU twice: %v", err)
	}
}

// A file of another format is none of ours, a damaged one is an error.
func TestSlicesOfOthers(t *testing.T) {
	be := func(words ...byte) []byte { return append(words, make([]byte, 64)...) }
	for name, data := range map[string][]byte{
		"empty": nil, "text": []byte("#!/bin/sh\necho hello\n"),
		"java class": be(0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 61),
	} {
		if got, err := machofile.Slices(bytes.NewReader(data), int64(len(data))); err != nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	outside := be(0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 1, 1, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 14)
	if _, err := machofile.Slices(bytes.NewReader(outside), int64(len(outside))); err == nil {
		t.Error("an image beyond the file's end is no error")
	}
}

// An edit changes the load commands and nothing behind them.
func TestAddRpathTouchesNothingElse(t *testing.T) {
	data := image(t, testkit.MachO{ID: "@rpath/a.dylib", Needs: []string{"/usr/lib/libSystem.B.dylib"}, MacOS: [2]uint32{14, 0}})
	m := thin(t, data)
	if err := m.AddRpath("@loader_path/../x"); err != nil {
		t.Fatal(err)
	}
	if got := m.Rpaths(); !slices.Equal(got, []string{"@loader_path/../x"}) {
		t.Errorf("rpaths %q", got)
	}
	if len(m.Bytes()) != len(data) || !bytes.Equal(m.Bytes()[0x400:], data[0x400:]) {
		t.Error("bytes behind the load commands changed")
	}
	f, err := macho.NewFile(bytes.NewReader(m.Bytes()))
	if err != nil || !slices.Equal(f.ImportedLibraries(), []string{"/usr/lib/libSystem.B.dylib"}) {
		t.Errorf("go-macho: %v", err)
	}
}

// What has no room is refused, and the image is what it was.
func TestNoRoom(t *testing.T) {
	data := image(t, testkit.MachO{ID: "@rpath/a.dylib", Needs: []string{"@rpath/b.dylib"}, MacOS: [2]uint32{14, 0}, Full: true})
	for name, edit := range map[string]func(m *machofile.Image) error{
		"rpath": func(m *machofile.Image) error { return m.AddRpath("@loader_path") },
		"names": func(m *machofile.Image) error {
			_, err := m.Rename(func(name string, own bool) string {
				if own {
					return "@rpath/a" // shorter: this one fits
				}
				return "@rpath/" + strings.Repeat("b", 60)
			})
			return err
		},
	} {
		m := thin(t, data)
		var room *machofile.RoomError
		if err := edit(m); !errors.As(err, &room) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(m.Bytes(), data) {
			t.Errorf("%s: the image changed", name)
		}
	}
	bare := thin(t, image(t, testkit.MachO{Bare: true, MacOS: [2]uint32{14, 0}}))
	for bare.AddRpath("@loader_path/very/far/away") == nil { // until it is full
	}
	if _, err := bare.ReserveSignature(16); !errors.As(err, new(*machofile.RoomError)) {
		t.Errorf("a signature without room for its command: %v", err)
	}
}

func TestRename(t *testing.T) {
	m := thin(t, image(t, testkit.MachO{ID: "/build/liba.dylib", Needs: []string{"/build/libb.dylib", "/usr/lib/libc++.1.dylib"}, Rpaths: []string{"@loader_path"}, MacOS: [2]uint32{14, 0}}))
	changed, err := m.Rename(func(name string, _ bool) string { return strings.Replace(name, "/build/", "@rpath/", 1) })
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	got := append([]string{m.ID()}, append(m.Needed(), m.Rpaths()...)...)
	if want := []string{"@rpath/liba.dylib", "@rpath/libb.dylib", "/usr/lib/libc++.1.dylib", "@loader_path"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if _, err := machofile.Thin(m.Bytes()); err != nil {
		t.Error(err)
	}
}

// Bytes that are no image are an error, never a crash.
func FuzzThin(f *testing.F) {
	f.Add(image(f, testkit.MachO{ID: "@rpath/a.dylib", Needs: []string{"@rpath/b.dylib"}, MacOS: [2]uint32{14, 0}})[:0x5000])
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = machofile.Slices(bytes.NewReader(data), int64(len(data)))
		m, err := machofile.Thin(data)
		if err != nil {
			return
		}
		m.Needed()
		m.Section("__TEXT", "__text")
		_ = m.AddRpath("@loader_path")
		_, _ = m.ReserveSignature(32)
	})
}
