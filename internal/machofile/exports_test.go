package machofile_test

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	"payload/internal/machofile"
	"payload/internal/testkit"
)

func TestExports(t *testing.T) {
	trie := testkit.ExportTrie("_own", "_other=1", "_renamed=2:_original")
	got, err := machofile.Exports(trie)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b machofile.Export) int { return cmp.Compare(a.Name, b.Name) })
	want := []machofile.Export{{Name: "_other", Library: 1, Original: "_other"}, {Name: "_own"}, {Name: "_renamed", Library: 2, Original: "_original"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The names of a trie by hand: "_a" and "_ab" share their beginning, and the
// second is weak.
func TestExportsShareBeginnings(t *testing.T) {
	good := []byte{0, 1, '_', 0, 5, 0, 1, 'a', 0, 10, 2, 0, 0x10, 1, 'b', 0, 17, 3, 4, 0x20, 0, 0}
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"as it is":        {func(b []byte) []byte { b[17], b[18], b[19], b[20] = 2, 4, 0x20, 0; return b }, ""},
		"a ring":          {func(b []byte) []byte { b[9] = 0; return b }, "two ways"},
		"a ring of one":   {func(b []byte) []byte { b[9] = 5; return b }, "two ways"},
		"outside":         {func(b []byte) []byte { b[9] = 100; return b }, "outside"},
		"a text's end":    {func(b []byte) []byte { return b[:3] }, "outside"},
		"a number's end":  {func(b []byte) []byte { b[4] = 0x80; return b[:5] }, "outside"},
		"too large a one": {func([]byte) []byte { return append(bytes.Repeat([]byte{0xff}, 12), 0) }, "outside"},
		"half of a node":  {func(b []byte) []byte { b[10] = 50; return b }, "outside"},
		"half of a name":  {func(b []byte) []byte { b[10], b[11], b[12] = 2, 8, 1; return b }, "outside"},
	} {
		got, err := machofile.Exports(c.change(bytes.Clone(good)))
		if c.want == "" {
			if want := []machofile.Export{{Name: "_a"}, {Name: "_ab", Weak: true}}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want %q", name, got, err, c.want)
		}
	}
}

// Bytes that are no trie are an error, never a crash or without an end.
func FuzzExports(f *testing.F) {
	f.Add(testkit.ExportTrie("_own", "_other=1", "_renamed=2:_original"))
	f.Add([]byte{0, 1, '_', 0, 5, 0, 1, 'a', 0, 10, 2, 0, 0x10, 1, 'b', 0, 17, 2, 4, 0x20, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := machofile.Exports(data)
		if err != nil && found != nil || len(found) > len(data) {
			t.Errorf("%d symbols of %d bytes, %v", len(found), len(data), err)
		}
	})
}
