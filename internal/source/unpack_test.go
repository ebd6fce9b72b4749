package source

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestUnpackRefuses(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		why     string
	}{
		"upwards":             {[]tar.Header{file("top/a"), file("top/../../evil")}, `"top/../../evil" leads outside`},
		"absolute":            {[]tar.Header{file("top/a"), file("/evil")}, `"/evil" leads outside`},
		"backslash":           {[]tar.Header{file("top/a"), file(`top/..\..\evil`)}, "leads outside"},
		"device":              {[]tar.Header{file("top/a"), {Name: "top/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}, "top/null is neither"},
		"pipe":                {[]tar.Header{file("top/a"), {Name: "top/p", Typeflag: tar.TypeFifo}}, "top/p is neither"},
		"link up":             {[]tar.Header{file("top/a"), link("top/sub/l", "../../evil")}, "link sub/l leads outside, to ../../evil"},
		"link absolute":       {[]tar.Header{file("top/a"), link("top/l", "/etc/passwd")}, "link l leads outside"},
		"hard link":           {[]tar.Header{file("top/a"), {Name: "top/l", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}}, "link l leads outside"},
		"case":                {[]tar.Header{file("top/Readme"), file("top/README")}, "differ by case alone"},
		"case of a folder":    {[]tar.Header{file("top/Dir/a"), file("top/dir/b")}, "differ by case alone"},
		"twice":               {[]tar.Header{file("top/a"), file("top/./a")}, "top/a is there twice"},
		"through a link":      {[]tar.Header{file("top/a"), link("top/l", "sub"), file("top/l/evil")}, "l/evil lies below l, which is not a folder"},
		"link and file":       {[]tar.Header{link("top/l", "a"), file("top/l")}, "top/l is there twice"},
		"name of another one": {[]tar.Header{file("top/a"), file("top/a/b")}, "a/b lies below a, which is not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			around := t.TempDir()
			path, dir := filepath.Join(around, "x.tar.gz"), filepath.Join(around, "out", "dir")
			must(t, os.Mkdir(filepath.Dir(dir), 0o755))
			writeTar(t, path, c.entries, nil)
			err := unpack(t.Context(), path, "", true, dir)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v; want %q", err, c.why)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("something was written")
			}
		})
	}
}

func TestUnpackTopFolder(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	one := []tar.Header{{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, file("top/a"), file("top/sub/b"), {Name: "top/sub/c", Typeflag: tar.TypeLink, Linkname: "top/sub/b"}}
	two := []tar.Header{file("a"), file("./sub/b")}
	for name, c := range map[string]struct {
		entries []tar.Header
		sub     string
		top     bool
		want    []string
	}{
		"one":                       {one, "", true, []string{"a", "sub/b", "sub/c"}},
		"one, part":                 {one, "sub", true, []string{"b", "c"}},
		"one, not asked":            {one, "", false, []string{"a", "sub/b", "sub/c"}},
		"none":                      {two, "", false, []string{"a", "sub/b"}},
		"none, part":                {two, "sub", false, []string{"b"}},
		"none where one must be":    {two, "", true, nil},
		"a part that isn't there":   {one, "su", true, nil},
		"a part that is above them": {one, "..", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path, dir := filepath.Join(t.TempDir(), "x.tar.gz"), filepath.Join(t.TempDir(), "dir")
			writeTar(t, path, c.entries, nil)
			err := unpack(t.Context(), path, c.sub, c.top, dir)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("got %v", err)
			}
			if c.want == nil {
				return
			}
			var got []string
			for _, name := range mustWalk(t, dir) {
				got = append(got, filepath.ToSlash(strings.TrimPrefix(name, dir+string(filepath.Separator))))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func mustWalk(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	return files
}

func TestUnpackCompressions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	writeTar(t, path, []tar.Header{{Name: "top/a", Typeflag: tar.TypeReg, Mode: 0o755}}, map[string]string{"top/a": "content"})
	var plain []byte
	must(t, eachEntry(t.Context(), path, func(*tar.Header, io.Reader) error { return nil }))
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	r, err := decompress(bufio.NewReader(f))
	must(t, err)
	plain, err = io.ReadAll(r)
	must(t, err)
	z, err := zstd.NewWriter(nil)
	must(t, err)
	for name, data := range map[string][]byte{"x.tar": plain, "x.tar.zst": z.EncodeAll(plain, nil)} {
		path, dir := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "dir")
		must(t, os.WriteFile(path, data, 0o644))
		must(t, unpack(t.Context(), path, "", false, dir))
		got, err := os.ReadFile(filepath.Join(dir, "a"))
		if err != nil || string(got) != "content" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	cut := filepath.Join(t.TempDir(), "cut.tar")
	must(t, os.WriteFile(cut, plain[:515], 0o644))
	for _, bad := range []string{cut, os.Args[0]} {
		if err := unpack(t.Context(), bad, "", false, filepath.Join(t.TempDir(), "dir")); err == nil {
			t.Errorf("%s was unpacked", bad)
		}
	}
}
