// Package patch is the engine for a series of carried patches: it reads them,
// judges each against a tree, applies the series to git objects, and writes a
// series back from commits.
//
// It owns one promise: a patch never lands in the wrong place silently and is
// never skipped silently. So every context line must match (fuzz is zero), a
// text that fits in several places is a conflict, a hunk that would land in
// another function is a conflict, and text in a patch file that no hunk
// accounts for makes the file malformed. A place is trusted in this order:
// the file is byte for byte the one the patch was made for; a line-by-line
// mapping from that file (the pinned base's, or the blob that the patch names)
// leads there; the text is found once, below the heading that the hunk names.
//
// It refuses to touch a user's checkout: trees are read from and written to a
// private repository, and editing happens in a work folder of its own.
package patch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"payload/internal/pin"
)

// Series is the patches of one component, in the order they apply.
type Series struct {
	Dir     string
	Patches []Patch
}

// Patch is one file of a series.
type Patch struct {
	File   string // name inside Series.Dir
	Number int    // the digits the name begins with; -1 without any
	Data   []byte
	SHA256 string

	Message Message
	Diffs   []FileDiff

	// Malformed says why the file can't be used, beginning with one of the
	// contract's kinds: truncated, line endings, not a patch, duplicate number.
	// Diffs then hold what was read before the fault.
	Malformed string
}

// Load reads the *.patch files of dir, by number and then by name. A missing
// or empty folder is an empty series. A malformed file is kept, with its
// reason. An export that was interrupted after it was decided is finished
// first, so that a half-written series is never seen.
func Load(dir string) (Series, error) {
	s := Series{Dir: dir}
	if err := recoverSet(dir); err != nil {
		return s, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading the patches in %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".patch" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return s, fmt.Errorf("reading the patches in %s: %w", dir, err)
		}
		s.Patches = append(s.Patches, Parse(e.Name(), data))
	}
	s.order()
	return s, nil
}

// NewSeries is Load for files that are in memory.
func NewSeries(dir string, files map[string][]byte) Series {
	s := Series{Dir: dir}
	for name, data := range files {
		s.Patches = append(s.Patches, Parse(name, data))
	}
	s.order()
	return s
}

// order sorts the series and marks what shares a number with one before it:
// which of the two comes first is nowhere said.
func (s *Series) order() {
	slices.SortStableFunc(s.Patches, func(a, b Patch) int {
		switch {
		case a.Number == b.Number:
			return strings.Compare(a.File, b.File)
		case a.Number < 0:
			return 1
		case b.Number < 0:
			return -1
		}
		return a.Number - b.Number
	})
	for i := 1; i < len(s.Patches); i++ {
		p, before := &s.Patches[i], s.Patches[i-1]
		if p.Number >= 0 && p.Number == before.Number {
			p.Malformed = fmt.Sprintf("duplicate number: %s has %d too, so the order is not known", before.File, p.Number)
		}
	}
}

var leadingDigits = regexp.MustCompile(`^\d+`)

// Parse reads one patch file. It never fails: what is wrong with the file is
// in Malformed.
func Parse(file string, data []byte) Patch {
	sum := sha256.Sum256(data)
	p := Patch{File: file, Number: -1, Data: data, SHA256: hex.EncodeToString(sum[:])}
	if n, err := strconv.Atoi(leadingDigits.FindString(file)); err == nil {
		p.Number = n
	}
	head, diffs, err := parseDiffs(string(data))
	p.Diffs = diffs
	if err != nil {
		p.Malformed = err.Error()
	}
	p.Message = parseMessage(file, head)
	return p
}

// Digests lists the files and their digests, as the lock holds them.
func (s Series) Digests() []pin.Patch {
	list := make([]pin.Patch, 0, len(s.Patches))
	for _, p := range s.Patches {
		list = append(list, pin.Patch{File: p.File, SHA256: p.SHA256})
	}
	return list
}
