package constrain

import (
	"encoding/binary"
	"slices"
)

// An edge is taken by a byte from lo to hi.
type edge struct {
	lo, hi byte
	to     int32
}

// A dfa is a deterministic automaton over bytes. Its start is state 0; one
// without states accepts nothing. From each state an end can be reached.
type dfa []dfaState

type dfaState struct {
	edges []edge // in order, none overlapping
	final bool
}

// accepts tells whether a text is in the language.
func (d dfa) accepts(text string) bool {
	if len(d) == 0 {
		return false
	}
	at := int32(0)
	for i := range len(text) {
		if at = d.step(at, text[i]); at < 0 {
			return false
		}
	}
	return d[at].final
}

// step gives the state after a byte, -1 where there is none.
func (d dfa) step(at int32, b byte) int32 {
	if at < 0 {
		return -1
	}
	for _, e := range d[at].edges {
		if b < e.lo {
			break
		}
		if b <= e.hi {
			return e.to
		}
	}
	return -1
}

// product runs automata side by side, the first of which has to accept, and
// accepts what keep says of the others. It is their intersection, or what is in
// some and not in others.
func product(b *budget, keep func(accepted []bool) bool, parts ...dfa) dfa {
	if len(parts[0]) == 0 {
		return nil
	}
	start := make([]int32, len(parts))
	for i, d := range parts {
		if len(d) == 0 {
			start[i] = -1
		}
	}
	accepted := make([]bool, len(parts)-1)
	final := func(at []int32) bool {
		if !parts[0][at[0]].final {
			return false
		}
		for i, s := range at[1:] {
			accepted[i] = s >= 0 && parts[i+1][s].final
		}
		return keep(accepted)
	}
	return minimal(explore(b, start, final, func(at []int32, cut *cuts) {
		for i, s := range at {
			if s >= 0 {
				cut.add(parts[i][s].edges)
			}
		}
	}, func(at []int32, by byte) []int32 {
		next := make([]int32, len(at))
		for i, s := range at {
			next[i] = parts[i].step(s, by)
		}
		if next[0] < 0 {
			return nil
		}
		return next
	}))
}

func all(accepted []bool) bool { return !slices.Contains(accepted, false) }

// cuts are where the bytes that edges take begin, so that all bytes from one to
// the next lead to the same place.
type cuts [257]bool

func (c *cuts) add(edges []edge) {
	for _, e := range edges {
		c[e.lo], c[int(e.hi)+1] = true, true
	}
}

// explore makes a dfa of sets of numbers, from the first on; next gives the set
// after a byte, nil for none.
func explore(b *budget, start []int32, final func([]int32) bool, cut func([]int32, *cuts), next func([]int32, byte) []int32) dfa {
	var d dfa
	sets := [][]int32{start}
	ids := map[string]int32{key(start): 0}
	for i := 0; i < len(sets); i++ {
		b.spend(1, len(sets[i]))
		state := dfaState{final: final(sets[i])}
		var at cuts
		cut(sets[i], &at)
		for lo := 0; lo < 256; {
			hi := lo + 1
			for hi < 256 && !at[hi] {
				hi++
			}
			if set := next(sets[i], byte(lo)); len(set) > 0 {
				k := key(set)
				id, ok := ids[k]
				if !ok {
					id = int32(len(sets))
					ids[k], sets = id, append(sets, set)
				}
				state.edges = addEdge(state.edges, edge{byte(lo), byte(hi - 1), id})
			}
			lo = hi
		}
		d = append(d, state)
	}
	return trim(d)
}

// addEdge adds an edge behind the others, as one with the last where they meet.
func addEdge(edges []edge, e edge) []edge {
	if n := len(edges); n > 0 && edges[n-1].to == e.to && int(edges[n-1].hi)+1 == int(e.lo) {
		edges[n-1].hi = e.hi
		return edges
	}
	return append(edges, e)
}

func key(set []int32) string {
	out := make([]byte, 0, 4*len(set))
	for _, n := range set {
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	return string(out)
}

// trim leaves out states from which no end can be reached.
func trim(d dfa) dfa {
	from := make([][]int32, len(d))
	var live []int32
	seen := make([]bool, len(d))
	for i, s := range d {
		for _, e := range s.edges {
			from[e.to] = append(from[e.to], int32(i))
		}
		if s.final {
			seen[i] = true
			live = append(live, int32(i))
		}
	}
	for len(live) > 0 {
		at := live[len(live)-1]
		live = live[:len(live)-1]
		for _, p := range from[at] {
			if !seen[p] {
				seen[p] = true
				live = append(live, p)
			}
		}
	}
	if len(d) == 0 || !seen[0] {
		return nil
	}
	number := make([]int32, len(d))
	n := int32(0)
	for i := range d {
		if number[i] = -1; seen[i] {
			number[i] = n
			n++
		}
	}
	return renumber(d, number, int(n))
}

// renumber gives states new numbers; -1 leaves one out, and of those with the
// same number the first counts.
func renumber(d dfa, number []int32, n int) dfa {
	out := make(dfa, n)
	done := make([]bool, n)
	for i, s := range d {
		if number[i] < 0 || done[number[i]] {
			continue
		}
		done[number[i]] = true
		kept := dfaState{final: s.final}
		for _, e := range s.edges {
			if e.to = number[e.to]; e.to >= 0 {
				kept.edges = addEdge(kept.edges, e)
			}
		}
		out[number[i]] = kept
	}
	return out
}

// rounds bounds how long minimal tries: a chain of thousands of states would
// need as many rounds as it is long, and has nothing to be joined.
const rounds = 40

// minimal joins states that accept the same (Moore, 1956).
func minimal(d dfa) dfa {
	class, n := make([]int32, len(d)), 0
	for range rounds {
		ids := map[string]int32{}
		next := make([]int32, len(d))
		var text []byte
		for i, s := range d {
			text = append(text[:0], 0)
			if s.final {
				text[0] = 1
			}
			var edges []edge
			for _, e := range s.edges {
				edges = addEdge(edges, edge{e.lo, e.hi, class[e.to]})
			}
			text = binary.LittleEndian.AppendUint32(text, uint32(class[i]))
			for _, e := range edges {
				text = binary.LittleEndian.AppendUint32(append(text, e.lo, e.hi), uint32(e.to))
			}
			id, ok := ids[string(text)]
			if !ok {
				id = int32(len(ids))
				ids[string(text)] = id
			}
			next[i] = id
		}
		class = next
		if len(ids) == n {
			return renumber(d, class, n)
		}
		n = len(ids)
	}
	return d
}
