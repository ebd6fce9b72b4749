package verify

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"payload/internal/testkit"
)

// TestRelease compares releases: what a later one lost is found, what merely has
// another version number is not.
func TestRelease(t *testing.T) {
	old := macRelease(t, nil)
	k := kit{t, old}
	put(t, k.path("libz.1.2.dylib"), "x")
	put(t, k.path("licenses/gone"), "x")
	sealMac(t, old)
	release, err := ReadRelease(context.Background(), "old.tgz", old)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		images func(files map[string]*testkit.MachO)
		tree   func(k kit)
		want   []string
		failed bool
	}{
		"the same": {want: []string{}},
		"a file gone": {
			tree: func(k kit) { k.remove("licenses", "gone") },
			want: []string{"release.gone:licenses/gone"}, failed: true,
		},
		"another version": {
			tree: func(k kit) { k.must(os.Rename(k.path("libz.1.2.dylib"), k.path("libz.1.3.dylib"))) },
			want: []string{},
		},
		"grown": {
			tree: func(k kit) { put(k.T, k.path("licenses/LICENSE"), string(make([]byte, 2<<20))) },
			want: []string{"release.grown:licenses/LICENSE"},
		},
		"a floor raised": {
			images: func(files map[string]*testkit.MachO) {
				files["libbase.dylib:arm64"].MacOS = [2]uint32{14, 2}
			},
			want: []string{"macho.minos:libbase.dylib", "release.floor:.:macOS"}, failed: true,
		},
		"a library newly needed": {
			images: func(files map[string]*testkit.MachO) {
				lib := files["mlx_metal_v3/libjaccl.dylib"]
				lib.Needs = append(lib.Needs, "/usr/lib/libz.1.dylib")
			},
			want: []string{"release.needs:/usr/lib/libz.1.dylib"}, failed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := macRelease(t, c.images)
			k := kit{t, dir}
			put(t, filepath.Join(dir, "libz.1.2.dylib"), "x")
			put(t, filepath.Join(dir, "licenses", "gone"), "x")
			if c.tree != nil {
				c.tree(k)
			}
			sealMac(t, dir)
			res, err := Payload(context.Background(), Options{Dir: dir, Against: release, Growth: DefaultGrowth})
			if err != nil {
				t.Fatal(err)
			}
			if got := keys(res.Findings); !slices.Equal(got, c.want) || res.Failed() != c.failed {
				t.Errorf("found %q (failed %t), want %q\n%+v", got, res.Failed(), c.want, res.Findings)
			}
		})
	}
}
