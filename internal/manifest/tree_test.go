package manifest

import (
	"errors"
	"testing"
)

func TestFollow(t *testing.T) {
	tree := NewTree([]File{
		{Path: "lib/a.so"},
		{Path: "lib/l", Link: "a.so"},
		{Path: "d", Link: "lib/deep/er"},
		{Path: "lib/deep/er/x"},
		{Path: "up", Link: "d/../../../y"},
		{Path: "in", Link: "d/../er/x"},
		{Path: "abs", Link: "/lib/a.so"},
		{Path: "drive", Link: `C:\x`},
		{Path: "c1", Link: "c2"},
		{Path: "c2", Link: "c1"},
		{Path: "none", Link: "lib/none"},
		{Path: "empty/."},
		{Path: "e", Link: "empty"},
		{Path: "under", Link: "lib/a.so/x"},
	})
	for from, want := range map[string]struct {
		to  string
		err error
	}{
		"lib/a.so":        {"lib/a.so", nil},
		"lib/l":           {"lib/a.so", nil},
		"d":               {"lib/deep/er", nil},
		"d/x":             {"lib/deep/er/x", nil},
		"up":              {"", ErrNothing},
		"d/../../../../y": {"", ErrOutside},
		"in":              {"lib/deep/er/x", nil},
		"abs":             {"", ErrAbsolute},
		"drive":           {"", ErrAbsolute},
		"c1":              {"", ErrCycle},
		"none":            {"", ErrNothing},
		"e":               {"empty", nil},
		"under":           {"", ErrNothing},
		"../x":            {"", ErrOutside},
	} {
		if to, err := tree.Follow(from); to != want.to || !errors.Is(err, want.err) {
			t.Errorf("%s leads to %q, %v; want %q, %v", from, to, err, want.to, want.err)
		}
	}
}
