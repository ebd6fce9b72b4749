package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// zipEntry is one entry of a zip file.
type zipEntry struct {
	name, data string
	mode       fs.FileMode
}

func zipOf(t *testing.T, entries ...zipEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode)
		to, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpack writes data to a file, unpacks it, and gives what was seen and where.
func unpack(t *testing.T, name string, data []byte, limits Limits) (Contents, string) {
	t.Helper()
	file, dir := filepath.Join(t.TempDir(), name), t.TempDir()
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Unpack(context.Background(), file, dir, limits)
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func ids(c Contents) []string {
	list := []string{}
	for _, p := range c.Problems {
		list = append(list, p.ID)
	}
	return list
}

// TestRestored packs a tree in each form and wants it back: content, modes and
// links.
func TestRestored(t *testing.T) {
	from := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"bin/run": 0o755, "data": 0o644} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte("holds "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../data", filepath.Join(from, "bin", "link")); err != nil {
		t.Skip("no links here: ", err)
	}
	items, err := Items(from)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for name, write := range map[string]func(path string, o Writing) (Written, error){
		"x.tgz": func(p string, o Writing) (Written, error) { return WriteTarGzip(ctx, p, items, o) },
		"x.zip": func(p string, o Writing) (Written, error) { return WriteZip(ctx, p, items, o) },
		"x.tar.zst": func(p string, o Writing) (Written, error) {
			return WriteTarZstd(ctx, p, items, Zstd{Level: 3, Window: 20, Job: 1 << 20}, o)
		},
	} {
		for _, most := range []int64{0, 100} { // in one file, in parts
			path := filepath.Join(t.TempDir(), name)
			if _, err := write(path, Writing{MaxPart: most, Threads: 1}); err != nil {
				t.Fatal(name, err)
			}
			dir := t.TempDir()
			c, err := Unpack(ctx, path, dir, Defaults)
			if err != nil || len(c.Problems) > 0 {
				t.Fatal(name, most, err, c.Problems)
			}
			if (len(c.Files) > 1) != (most > 0) {
				t.Errorf("%s: read %q", name, c.Files)
			}
			for file, mode := range map[string]fs.FileMode{"bin/run": 0o755, "data": 0o644} {
				info, err := os.Stat(filepath.Join(dir, file))
				data, rerr := os.ReadFile(filepath.Join(dir, file))
				if err != nil || rerr != nil || info.Mode().Perm() != mode || string(data) != "holds "+file {
					t.Errorf("%s: %s is %v, %q, %v", name, file, info, data, err)
				}
			}
			if target, err := os.Readlink(filepath.Join(dir, "bin", "link")); target != "../data" {
				t.Errorf("%s: the link is %q, %v", name, target, err)
			}
		}
	}
}

func TestBadZips(t *testing.T) {
	plain := zipEntry{"a", "text", 0o644}
	good := zipOf(t, plain, zipEntry{"b", strings.Repeat("text", 100), 0o755})
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"traversal":     {zipOf(t, zipEntry{"../x", "", 0o644}), "archive.traversal"},
		"backslashes":   {zipOf(t, zipEntry{`..\x`, "", 0o644}), "archive.traversal"},
		"absolute":      {zipOf(t, zipEntry{"/x", "", 0o644}), "archive.absolute-name"},
		"NUL":           {zipOf(t, zipEntry{"a\x00b", "", 0o644}), "names.control"},
		"twice":         {zipOf(t, plain, plain), "archive.duplicate"},
		"case":          {zipOf(t, plain, zipEntry{"A", "", 0o644}), "names.case-clash"},
		"link out":      {zipOf(t, zipEntry{"l", "../../etc/passwd", fs.ModeSymlink | 0o777}), "links.outside"},
		"absolute link": {zipOf(t, zipEntry{"l", "/etc/passwd", fs.ModeSymlink | 0o777}), "links.absolute"},
		"through link":  {zipOf(t, zipEntry{"l", "d", fs.ModeSymlink | 0o777}, zipEntry{"l/x", "", 0o644}), "archive.duplicate"},
		"device":        {zipOf(t, zipEntry{"d", "", fs.ModeDevice | 0o644}), "archive.special-file"},
		"setuid":        {zipOf(t, zipEntry{"s", "", fs.ModeSetuid | 0o755}), "archive.mode"},
		"cut off":       {good[:len(good)-30], "archive.truncated"},
		"trailing":      {append(bytes.Clone(good), "more"...), "archive.trailing"},
		"one more":      {append(bytes.Clone(good), 0), "archive.trailing"},
		"much more":     {append(bytes.Clone(good), make([]byte, 3<<20)...), "archive.trailing"},
		"damaged":       {flipped(good, 32), "archive.damaged"},
		"long link":     {zipOf(t, zipEntry{"l", strings.Repeat("x", 5000), fs.ModeSymlink | 0o777}), "archive.damaged"},
		"shared bytes":  {sharing(t, good), "archive.bomb"},
	} {
		t.Run(name, func(t *testing.T) {
			seen, _ := unpack(t, "x.zip", c.data, Defaults)
			if got := ids(seen); !slices.Equal(got, []string{c.want}) {
				t.Errorf("found %q, want %q: %+v", got, c.want, seen.Problems)
			}
		})
	}
}

func flipped(data []byte, at int) []byte {
	b := bytes.Clone(data)
	b[at] ^= 1
	return b
}

// sharing has the second entry of a zip file begin where the first does.
func sharing(t *testing.T, data []byte) []byte {
	t.Helper()
	b := bytes.Clone(data)
	at := bytes.LastIndex(b, []byte("PK\x01\x02"))
	if at < 0 {
		t.Fatal("no table of entries")
	}
	binary.LittleEndian.PutUint32(b[at+42:], 0)
	return b
}

func tgzOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLimits(t *testing.T) {
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}
	}
	data := tgzOf(t, file("a", 1<<20), file("b", 1<<20), file("c", 10))
	for name, c := range map[string]struct {
		limits Limits
		want   []string
	}{
		"enough":  {Limits{Bytes: 3 << 20, Entries: 3, Ratio: 10, FreeBytes: 3 << 20}, []string{}},
		"bytes":   {Limits{Bytes: 1 << 20, Entries: 3, Ratio: 10000, FreeBytes: 3 << 20}, []string{"archive.bomb"}},
		"entries": {Limits{Bytes: 3 << 20, Entries: 2, Ratio: 10000, FreeBytes: 3 << 20}, []string{"archive.bomb"}},
		"ratio":   {Limits{Bytes: 3 << 20, Entries: 3, Ratio: 10, FreeBytes: 1 << 10}, []string{"archive.bomb"}},
	} {
		if seen, _ := unpack(t, "x.tgz", data, c.limits); !slices.Equal(ids(seen), c.want) {
			t.Errorf("%s: found %q, want %q", name, ids(seen), c.want)
		}
	}
}

func TestBadGzips(t *testing.T) {
	good := tgzOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Size: 100})
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut off":  {good[:len(good)-3], "archive.truncated"},
		"trailing": {append(bytes.Clone(good), "some more bytes"...), "archive.trailing"},
		"one more": {append(bytes.Clone(good), 0), "archive.trailing"},
		"another":  {append(bytes.Clone(good), good...), "archive.trailing"},
		"damaged":  {flipped(good, len(good)-6), "archive.damaged"},
	} {
		if seen, _ := unpack(t, "x.tgz", c.data, Defaults); !slices.Equal(ids(seen), []string{c.want}) {
			t.Errorf("%s: found %q, want %q", name, ids(seen), c.want)
		}
	}
}

// Whatever follows the last frame that a tar file needs is told from a frame that
// is cut off.
func TestBadZstds(t *testing.T) {
	plain, err := gzip.NewReader(bytes.NewReader(tgzOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Size: 300 << 10})))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frames := func(cuts ...int) (out []byte) {
		from := 0
		for _, to := range append(cuts, len(text)) {
			out = z.EncodeAll(text[from:to], out)
			from = to
		}
		return out
	}
	one, two := frames(), frames(len(text)-600)
	after := func(data []byte, more ...byte) []byte { return append(bytes.Clone(data), more...) }
	for name, c := range map[string]struct {
		data []byte
		want []string
	}{
		"whole":                {one, []string{}},
		"two frames":           {two, []string{}},
		"something to skip":    {after(one, 0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9), []string{}},
		"cut off":              {one[:len(one)-1], []string{"archive.truncated"}},
		"half":                 {one[:len(one)/2], []string{"archive.truncated"}},
		"the second cut off":   {two[:len(two)-1], []string{"archive.truncated"}},
		"one byte more":        {after(one, 0), []string{"archive.trailing"}},
		"one more after two":   {after(two, 0x28), []string{"archive.trailing"}},
		"three bytes":          {after(one, 0x28, 0xb5, 0x2f), []string{"archive.trailing"}},
		"a frame's beginning":  {after(one, 0x28, 0xb5, 0x2f, 0xfd), []string{"archive.trailing"}},
		"a frame's half":       {after(one, one[:len(one)-1]...), []string{"archive.trailing"}},
		"a damaged frame":      {after(one, flipped(one, len(one)-1)...), []string{"archive.trailing"}},
		"more after a skip":    {after(one, 0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9, 7), []string{"archive.trailing"}},
		"cut in the checksum":  {one[:len(one)-3], []string{"archive.truncated"}},
		"half of what to skip": {after(one, 0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 9), []string{"archive.trailing"}},
		"no frame's beginning": {after(one, 0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff, 0xff), []string{"archive.trailing"}},
		"another":              {after(one, one...), []string{"archive.trailing"}},
		"text":                 {after(one, []byte("some more bytes")...), []string{"archive.trailing"}},
		"damaged":              {flipped(one, len(one)-1), []string{"archive.damaged"}},
	} {
		if seen, _ := unpack(t, "x.tar.zst", c.data, Defaults); !slices.Equal(ids(seen), c.want) {
			t.Errorf("%s: found %q, want %q: %+v", name, ids(seen), c.want, seen.Problems)
		}
	}
}

// A context that ends stops the unpacking.
func TestCancelled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tgz")
	if err := os.WriteFile(file, tgzOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Size: 100}), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Unpack(ctx, file, t.TempDir(), Defaults); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Whatever a file holds, nothing is written outside of the folder.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("PK\x05\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		file, dir := filepath.Join(parent, "x"), filepath.Join(parent, "in")
		if err := errors.Join(os.WriteFile(file, data, 0o644), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		_, _ = Unpack(context.Background(), file, dir, Limits{Bytes: 1 << 20, Entries: 100, Ratio: 100, FreeBytes: 1 << 16, Window: 1 << 20})
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 2 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}
