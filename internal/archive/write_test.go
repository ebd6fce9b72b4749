package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"payload/internal/run"
)

// tree makes a folder with a library, its copy under another name, a program, a
// link and a name longer than a plain tar header holds.
func tree(t *testing.T, mode os.FileMode, when time.Time) string {
	t.Helper()
	root := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	library := make([]byte, 3<<20)
	for i := range library {
		library[i] = byte(random.IntN(16))
	}
	long := strings.Repeat("long/", 30) + strings.Repeat("n", 150)
	for name, content := range map[string]string{"lib/b.so": string(library), "lib/a.txt": "text", "lib/prog": "#!", long: "deep", "lib/empty": ""} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		m := mode
		if name == "lib/prog" {
			m |= 0o100
		}
		if err := os.WriteFile(file, []byte(content), m); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, m); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("b.so", filepath.Join(root, "lib", "c.so")); err != nil {
		t.Skip("NOT RUN: no links here")
	}
	return root
}

var writers = map[string]func(context.Context, string, []Item, Writing) (Written, error){
	"x.tar.zst": func(ctx context.Context, path string, items []Item, o Writing) (Written, error) {
		return WriteTarZstd(ctx, path, items, Zstd{Level: 3, Window: 24, Job: 1 << 20}, o)
	},
	"x.tgz": WriteTarGzip,
	"x.zip": WriteZip,
}

func items(t *testing.T, root string) []Item {
	t.Helper()
	list, err := Items(root)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func hasZstd(t *testing.T) {
	t.Helper()
	if _, err := run.LookPath("zstd"); err != nil {
		t.Skip("NOT RUN: zstd is not on PATH")
	}
}

// TestSameBytes holds that rights, times and the number of threads play no part,
// and that parts joined are the whole.
func TestSameBytes(t *testing.T) {
	hasZstd(t)
	when := time.Unix(1_000_000_000, 0)
	one, two := tree(t, 0o644, when), tree(t, 0o600, time.Now())
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, err := write(t.Context(), filepath.Join(dir, name), items(t, one), Writing{Time: when, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			tokyo := time.FixedZone("tokyo", 9*3600)
			b, err := write(t.Context(), filepath.Join(dir, "second-"+name), items(t, two), Writing{Time: when.In(tokyo).Add(300 * time.Millisecond), Threads: 7, MaxPart: 500_000})
			if err != nil {
				t.Fatal(err)
			}
			if a.SHA256 != b.SHA256 || a.Size != b.Size {
				t.Errorf("%d bytes %s, then %d bytes %s", a.Size, a.SHA256, b.Size, b.SHA256)
			}
			whole, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(whole); hex.EncodeToString(sum[:]) != a.SHA256 || int64(len(whole)) != a.Size {
				t.Error("the file is not what was said of it")
			}
			var joined []byte
			for i, p := range b.Parts {
				data, err := os.ReadFile(filepath.Join(dir, p.Name))
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(data)
				if hex.EncodeToString(sum[:]) != p.SHA256 || p.Name != PartName("second-"+name, i+1) || len(data) > 500_000 {
					t.Errorf("part %+v", p)
				}
				joined = append(joined, data...)
			}
			if len(b.Parts) < 2 || !bytes.Equal(joined, whole) {
				t.Errorf("%d parts make %d bytes, the whole has %d", len(b.Parts), len(joined), len(whole))
			}
			check(t, name, whole, items(t, one))
		})
	}
}

// check reads an archive with other code than ours.
func check(t *testing.T, name string, data []byte, want []Item) {
	t.Helper()
	got := map[string]string{}
	switch filepath.Ext(name) {
	case ".zip":
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r) // checks the CRC
			if err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			got[f.Name] = fmt.Sprintf("%v %x", f.Mode(), sha256.Sum256(content))
			// The old field, for those who read no other, is of the same moment.
			h := zip.FileHeader{ModifiedDate: f.ModifiedDate, ModifiedTime: f.ModifiedTime} //nolint:staticcheck // what old programs read
			if old := h.ModTime(); f.Modified.Unix() != 1_000_000_000 || old.Unix() != 1_000_000_000 {
				t.Errorf("%s is of %v and %v", f.Name, f.Modified, old)
			}
		}
	default:
		var plain io.Reader
		var err error
		if strings.HasSuffix(name, ".tgz") {
			plain, err = gzip.NewReader(bytes.NewReader(data))
		} else {
			plain, err = zstd.NewReader(bytes.NewReader(data))
		}
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(plain)
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 1_000_000_000 {
				t.Errorf("%s tells of %d %d %q %v", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeSymlink {
				content = []byte(h.Linkname)
			}
			got[h.Name] = fmt.Sprintf("%v %x", h.FileInfo().Mode(), sha256.Sum256(content))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	for _, item := range want {
		mode, content := os.FileMode(0o644), []byte(item.Link)
		switch {
		case item.Link != "":
			mode = os.ModeSymlink | 0o777
		case item.Executable:
			mode = 0o755
		}
		if item.Link == "" {
			var err error
			if content, err = os.ReadFile(item.File); err != nil {
				t.Fatal(err)
			}
		}
		if is := fmt.Sprintf("%v %x", mode, sha256.Sum256(content)); got[item.Name] != is {
			t.Errorf("%s is %s, want %s", item.Name, got[item.Name], is)
		}
	}
}

// TestWriteFails holds that an archive that can't be finished leaves nothing, and
// says why.
func TestWriteFails(t *testing.T) {
	hasZstd(t)
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			list := items(t, tree(t, 0o644, time.Now()))
			for i := range list {
				if list[i].Name == "lib/a.txt" {
					list[i].Size++ // it was longer when it was listed
				}
			}
			if _, err := write(t.Context(), filepath.Join(dir, name), list, Writing{Threads: 2, MaxPart: 1 << 20}); err == nil || !strings.Contains(err.Error(), "lib/a.txt changed while it was packed") {
				t.Errorf("%v", err)
			}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if _, err := write(ctx, filepath.Join(dir, name), items(t, tree(t, 0o644, time.Now())), Writing{Threads: 2}); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

func TestSums(t *testing.T) {
	a, b := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	text := string(EncodeSums([]Sum{{Name: "x.zip.part001", SHA256: a}, {Name: "x.zip", SHA256: b, Parts: []string{"x.zip.part001", "x.zip.part002"}}, {Name: "a", SHA256: b}}))
	want := b + "  a\n# " + b + "  x.zip = x.zip.part001 + x.zip.part002\n" + a + "  x.zip.part001\n"
	if text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	sums, err := DecodeSums([]byte(text))
	if err != nil || len(sums) != 3 || len(sums[1].Parts) != 2 || string(EncodeSums(sums)) != text {
		t.Errorf("%v, %v", sums, err)
	}
	for _, bad := range []string{"x\n", a + " x\n", a + "  x = y\n", "# " + a + "  x\n", strings.ToUpper(a) + "  x\n"} {
		if _, err := DecodeSums([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestZstdArgs holds the command line: no setting but the number of threads
// depends on the machine, and zstd unpacks every window without being told to.
func TestZstdArgs(t *testing.T) {
	for size, want := range map[int64]string{
		1000:     "--long=20 -B8388608 --zstd=overlapLog=9 -T2",
		30 << 20: "--long=25 -B16777216 --zstd=overlapLog=8 -T2",
		9 << 30:  "--long=27 -B67108864 --zstd=overlapLog=6 -T2",
	} {
		if got := strings.Join(Best.args(size, 2), " "); got != "zstd --quiet --stdout --no-progress --check -19 "+want {
			t.Errorf("%d bytes: %s", size, got)
		}
	}
}

// TestLastPart holds that the list of checksums tells which part is not there,
// where the numbers of those that are can't.
func TestLastPart(t *testing.T) {
	dir := t.TempDir()
	w, err := WriteTarGzip(t.Context(), filepath.Join(dir, "x.tgz"), items(t, tree(t, 0o644, time.Now())), Writing{MaxPart: 500_000})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, SumsName), EncodeSums(w.Sums()), 0o644); err != nil {
		t.Fatal(err)
	}
	last := len(w.Parts)
	for _, missing := range []int{0, last} {
		if missing > 0 {
			if err := os.Remove(filepath.Join(dir, w.Parts[missing-1].Name)); err != nil {
				t.Fatal(err)
			}
		}
		parts, err := Parts(filepath.Join(dir, "x.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		problems, err := CheckSums(t.Context(), parts)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case missing == 0 && len(problems) > 0:
			t.Errorf("nothing is missing: %+v", problems)
		case missing > 0 && (len(problems) != 1 || problems[0].ID != "archive.part" || problems[0].Title != fmt.Sprintf("part %d of x.tgz is not there", last)):
			t.Errorf("part %d is missing: %+v", last, problems)
		}
	}
}
