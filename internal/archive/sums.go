package archive

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// SumsName is the name of the file of checksums beside archives.
const SumsName = "SHA256SUMS"

// Sum is one line of it.
type Sum struct {
	Name   string
	SHA256 string
	// Parts are the names of the files that make up Name, which is then not there
	// itself. sha256sum passes over such a line, as a comment, and checks the parts.
	Parts []string
}

// EncodeSums gives the file's text, by name. sha256sum -c and shasum -c read it.
func EncodeSums(sums []Sum) []byte {
	sorted := slices.Clone(sums)
	slices.SortFunc(sorted, func(a, b Sum) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	for _, s := range sorted {
		if len(s.Parts) > 0 {
			fmt.Fprintf(&b, "# %s  %s = %s\n", s.SHA256, s.Name, strings.Join(s.Parts, " + "))
		} else {
			fmt.Fprintf(&b, "%s  %s\n", s.SHA256, s.Name)
		}
	}
	return []byte(b.String())
}

var sumLine = regexp.MustCompile(`^(# )?([0-9a-f]{64}) [ *](\S+)(?: = (\S+(?: \+ \S+)*))?$`)

// DecodeSums reads the file's text.
func DecodeSums(data []byte) ([]Sum, error) {
	var sums []Sum
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		m := sumLine.FindStringSubmatch(line)
		if m == nil || (m[1] == "") != (m[4] == "") {
			return nil, fmt.Errorf("line %d of %s is not a checksum: %q", n, SumsName, line)
		}
		s := Sum{Name: m[3], SHA256: m[2]}
		if m[4] != "" {
			s.Parts = strings.Split(m[4], " + ")
		}
		sums = append(sums, s)
	}
	return sums, nil
}

// Sums are the lines for an archive and its parts.
func (w Written) Sums() []Sum {
	if len(w.Parts) == 0 {
		return []Sum{{Name: w.Name, SHA256: w.SHA256}}
	}
	whole := Sum{Name: w.Name, SHA256: w.SHA256}
	var sums []Sum
	for _, p := range w.Parts {
		whole.Parts = append(whole.Parts, p.Name)
		sums = append(sums, Sum{Name: p.Name, SHA256: p.SHA256})
	}
	return append(sums, whole)
}
