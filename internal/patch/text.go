package patch

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
)

// splitLines cuts text behind every line feed. Only the last line may lack one.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// blobID is git's id of a file's content.
func blobID(content string) string {
	return objectID(sha1.New(), content)
}

// blobID256 is the id in a repository whose object format is sha256.
func blobID256(content string) string {
	return objectID(sha256.New(), content)
}

func objectID(h hash.Hash, content string) string {
	fmt.Fprintf(h, "blob %d\x00", len(content))
	_, _ = io.WriteString(h, content) // a hash takes everything
	return hex.EncodeToString(h.Sum(nil))
}

// findAll lists every index at which want stands in lines.
func findAll(lines, want []string) []int {
	if len(want) == 0 {
		return nil
	}
	var found []int
	for i := 0; i+len(want) <= len(lines); i++ {
		if lines[i] == want[0] && slices.Equal(lines[i:i+len(want)], want) {
			found = append(found, i)
		}
	}
	return found
}

// mapLines maps each line of a to the line of b that it became, or -1. Equal
// ends are matched first, then lines that occur once on each side (patience),
// then the rest by the shortest edit script.
func mapLines(a, b []string) []int {
	ids := map[string]int{}
	intern := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = len(ids)
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	m := mapper{a: intern(a), b: intern(b), to: make([]int, len(a))}
	for i := range m.to {
		m.to[i] = -1
	}
	m.match(0, len(a), 0, len(b))
	return m.to
}

type mapper struct {
	a, b []int
	to   []int
}

func (m *mapper) match(a0, a1, b0, b1 int) {
	for a0 < a1 && b0 < b1 && m.a[a0] == m.b[b0] {
		m.to[a0] = b0
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && m.a[a1-1] == m.b[b1-1] {
		a1, b1 = a1-1, b1-1
		m.to[a1] = b1
	}
	if a0 == a1 || b0 == b1 {
		return
	}
	anchors := m.unique(a0, a1, b0, b1)
	if len(anchors) == 0 {
		m.shortest(a0, a1, b0, b1)
		return
	}
	for _, p := range anchors {
		m.match(a0, p[0], b0, p[1])
		m.to[p[0]] = p[1]
		a0, b0 = p[0]+1, p[1]+1
	}
	m.match(a0, a1, b0, b1)
}

// unique is the longest rising run of pairs of lines that occur once on each
// side of the range.
func (m *mapper) unique(a0, a1, b0, b1 int) [][2]int {
	type count struct{ inA, inB, at int }
	seen := make(map[int]*count, b1-b0)
	for j := b0; j < b1; j++ {
		c := seen[m.b[j]]
		if c == nil {
			c = &count{}
			seen[m.b[j]] = c
		}
		c.inB++
		c.at = j
	}
	for i := a0; i < a1; i++ {
		if c := seen[m.a[i]]; c != nil {
			c.inA++
		}
	}
	// Patience sorting: piles by the place in b, each pair linked to the best
	// pile before it.
	type link struct {
		pair [2]int
		prev int
	}
	var links []link
	var piles []int
	for i := a0; i < a1; i++ {
		c := seen[m.a[i]]
		if c == nil || c.inA != 1 || c.inB != 1 {
			continue
		}
		k, _ := slices.BinarySearchFunc(piles, c.at, func(l, at int) int { return links[l].pair[1] - at })
		prev := -1
		if k > 0 {
			prev = piles[k-1]
		}
		links = append(links, link{[2]int{i, c.at}, prev})
		if k == len(piles) {
			piles = append(piles, 0)
		}
		piles[k] = len(links) - 1
	}
	if len(piles) == 0 {
		return nil
	}
	var run [][2]int
	for l := piles[len(piles)-1]; l >= 0; l = links[l].prev {
		run = append(run, links[l].pair)
	}
	slices.Reverse(run)
	return run
}

// maxEdits bounds the search for the shortest script; a region that differs by
// more has no lines worth matching.
const maxEdits = 1000

// shortest is Myers' greedy search; the trace is kept to walk back.
func (m *mapper) shortest(a0, a1, b0, b1 int) {
	n, k := a1-a0, b1-b0
	limit := min(n+k, maxEdits)
	v := make([]int, 2*limit+3)
	mid := limit + 1
	var trace [][]int
	for d := 0; d <= limit; d++ {
		trace = append(trace, slices.Clone(v[mid-d-1:mid+d+2]))
		for diag := -d; diag <= d; diag += 2 {
			var x int
			if diag == -d || diag != d && v[mid+diag-1] < v[mid+diag+1] {
				x = v[mid+diag+1]
			} else {
				x = v[mid+diag-1] + 1
			}
			y := x - diag
			for x < n && y < k && m.a[a0+x] == m.b[b0+y] {
				x, y = x+1, y+1
			}
			v[mid+diag] = x
			if x >= n && y >= k {
				m.walkBack(trace, a0, b0, n, k)
				return
			}
		}
	}
}

func (m *mapper) walkBack(trace [][]int, a0, b0, x, y int) {
	for d := len(trace) - 1; d >= 0; d-- {
		v := trace[d] // v[i] is the diagonal i-d-1
		at := func(diag int) int { return v[diag+d+1] }
		diag := x - y
		prev := diag - 1
		if diag == -d || diag != d && at(diag-1) < at(diag+1) {
			prev = diag + 1
		}
		px := at(prev)
		py := px - prev
		if d == 0 {
			px, py = 0, 0
		}
		for x > px && y > py && x > 0 && y > 0 && m.a[a0+x-1] == m.b[b0+y-1] {
			x, y = x-1, y-1
			m.to[a0+x] = b0 + y
		}
		x, y = px, py
	}
}
