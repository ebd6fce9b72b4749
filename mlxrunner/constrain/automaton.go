package constrain

import (
	"encoding/binary"
	"slices"
	"sync"
)

// An Automaton is a grammar over a vocabulary. It may be used by any number of
// goroutines.
//
// What it has found out it keeps, up to a bound: states and where bytes lead
// from them; and for each point of the program which tokens may follow, as far
// as that does not depend on what called. In most texts most tokens stay inside
// of one string or number, so what has to be looked at for a stack that was
// never seen are the few that lead out.
type Automaton struct {
	*Grammar
	v    *Vocabulary
	done *State // where a text is complete

	mu     sync.Mutex
	states map[string]*State
	inside map[int32]*local
	pairs  map[[2]*State]*State // what both gave
	used   int                  // bytes, roughly
	serial uint64               // of the last state: one that was forgotten is no other's equal
}

// maxBytes bounds what an automaton keeps.
const maxBytes = 64 << 20

// A State is what was read so far. It does not change, so keeping one is all
// it takes to come back to it.
type State struct {
	// items are the points where the text may be, each once and in order, with
	// what is waiting below it. Stacks that go on alike are one, so their number
	// never exceeds that of the points, however often they branch.
	items []item
	final bool // the text may end here

	id   uint64 // of the one with these items, while it is kept
	next *[256]*State
	mask []uint64 // by id, one bit each
}

type item struct {
	at    int32
	under *State // where the text is when what at belongs to has ended
}

// Final tells whether the text may end here.
func (s *State) Final() bool { return s.final }

// Complete tells whether the text must end here: nothing may follow.
func (s *State) Complete() bool { return s.final && len(s.items) == 0 }

// nowhere is where a byte leads that may not come.
var nowhere = &State{}

// local is which tokens may follow a point, whatever called it.
type local struct {
	mask []uint64
	out  []int32 // nodes of the vocabulary where what was called ends, and that go on
}

func newAutomaton(g *Grammar, v *Vocabulary) *Automaton {
	a := &Automaton{Grammar: g, v: v, done: &State{final: true}}
	a.forget()
	return a
}

func (a *Automaton) forget() {
	a.states, a.inside, a.pairs, a.used = map[string]*State{}, map[int32]*local{}, map[[2]*State]*State{}, 0
}

// Start is before the first token.
func (a *Automaton) Start() *State {
	a.mu.Lock()
	defer a.mu.Unlock()
	var start merger
	a.arrive(&start, a.start, a.done)
	return a.intern(start.items, start.final)
}

// Next is the state after a token, nil where the token may not come. After an
// id that ends a text, which may come where the state is Final, nothing may.
func (a *Automaton) Next(s *State, id int) *State {
	if slices.Contains(a.v.end, id) {
		if s.final {
			return a.done
		}
		return nil
	}
	text := a.v.bytes(id)
	if len(text) == 0 {
		return nil
	}
	return a.read(s, text)
}

// read is the state after a text, nil where it may not come.
func (a *Automaton) read(s *State, text []byte) *State {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range text {
		if s = a.step(s, b); s == nowhere {
			return nil
		}
	}
	return s
}

// Allowed writes for each id whether it may come next, false for ids that the
// vocabulary lacks. It tells whether any may.
func (a *Automaton) Allowed(s *State, allowed []bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	any := false
	rest := allowed
	for _, word := range a.mask(s) {
		n := min(64, len(rest))
		if n < 64 {
			word &= 1<<n - 1
		}
		any = any || word != 0
		spread(word, rest[:n])
		rest = rest[n:]
	}
	clear(rest)
	for _, id := range a.v.end {
		if s.final && id < len(allowed) {
			allowed[id], any = true, true
		}
	}
	return any
}

// eight are the bits of a byte.
var eight = func() (t [256][8]bool) {
	for b := range t {
		for i := range 8 {
			t[b][i] = b>>i&1 != 0
		}
	}
	return t
}()

func spread(word uint64, into []bool) {
	for ; len(into) >= 8; word >>= 8 {
		*(*[8]bool)(into) = eight[byte(word)]
		into = into[8:]
	}
	copy(into, eight[byte(word)][:])
}

// mask gives the tokens that may follow a state.
func (a *Automaton) mask(s *State) []uint64 {
	if s.mask != nil {
		return s.mask
	}
	mask := make([]uint64, (len(a.v.tokens)+63)/64)
	for _, it := range s.items {
		in := a.insideOf(it.at)
		for i, word := range in.mask {
			mask[i] |= word
		}
		if len(it.under.items) == 0 {
			continue
		}
		for _, n := range in.out {
			a.walk(it.under, n+1, a.v.nodes[n].after, func(n int32, _ *State) { a.set(mask, n) })
		}
	}
	s.mask = mask
	a.keep(8 * len(mask))
	return mask
}

func (a *Automaton) insideOf(at int32) *local {
	if in := a.inside[at]; in != nil {
		return in
	}
	in := &local{mask: make([]uint64, (len(a.v.tokens)+63)/64)}
	// What is below is done, so that it shows where what at belongs to ends.
	start := a.intern([]item{{at, a.done}}, false)
	a.walk(start, 0, int32(len(a.v.nodes)), func(n int32, s *State) {
		a.set(in.mask, n)
		if s.final && a.v.nodes[n].after > n+1 {
			in.out = append(in.out, n)
		}
	})
	a.inside[at] = in
	a.keep(8*len(in.mask) + 4*len(in.out))
	return in
}

func (a *Automaton) set(mask []uint64, n int32) {
	if id := a.v.nodes[n].id; id >= 0 {
		mask[id/64] |= 1 << (id % 64)
		if len(a.v.others) > 0 {
			for _, id := range a.v.others[n] {
				mask[id/64] |= 1 << (id % 64)
			}
		}
	}
}

// walk goes through the nodes from one up to another that the bytes of a text
// behind s can reach, and shows each with its state.
func (a *Automaton) walk(s *State, from, to int32, show func(int32, *State)) {
	if from >= to {
		return
	}
	base := a.v.nodes[from].depth
	path := []*State{s} // by depth, from base on
	nodes := a.v.nodes
	for n := from; n < to; {
		at := &nodes[n]
		depth := int(at.depth - base)
		next := a.step(path[depth], at.b)
		if next == nowhere {
			n = at.after
			continue
		}
		path = append(path[:depth+1], next)
		show(n, next)
		n++
	}
}

// step gives the state after a byte, nowhere for none.
func (a *Automaton) step(s *State, b byte) *State {
	if s.next == nil {
		s.next = new([256]*State)
		a.keep(2048)
	} else if next := s.next[b]; next != nil {
		return next
	}
	var next merger
	for _, it := range s.items {
		a.advance(&next, it.at, it.under, b)
	}
	to := nowhere
	if next.final || len(next.items) > 0 {
		to = a.intern(next.items, next.final)
	}
	s.next[b] = to
	return to
}

// advance adds where a byte leads from a point.
func (a *Automaton) advance(next *merger, at int32, under *State, b byte) {
	p := &a.points[at]
	for _, e := range p.edges {
		if e.lo <= b && b <= e.hi {
			a.arrive(next, e.to, under)
		}
	}
	for _, c := range p.calls {
		var below merger
		a.arrive(&below, c.then, under)
		a.advance(next, c.to, a.intern(below.items, below.final), b)
	}
}

// arrive adds a point, and where the text is when what it belongs to ends here.
func (a *Automaton) arrive(next *merger, at int32, under *State) {
	p := &a.points[at]
	if len(p.edges) > 0 || len(p.calls) > 0 {
		a.add(next, item{at, under})
	}
	if p.final {
		next.final = next.final || under.final
		for _, it := range under.items {
			a.add(next, it)
		}
	}
}

// A merger collects the items of a state.
type merger struct {
	items []item
	final bool
}

func (a *Automaton) add(next *merger, it item) {
	i, found := slices.BinarySearchFunc(next.items, it.at, func(have item, at int32) int { return int(have.at) - int(at) })
	if !found {
		next.items = slices.Insert(next.items, i, it)
		return
	}
	next.items[i].under = a.both(next.items[i].under, it.under)
}

// both is the state that is in either of two.
func (a *Automaton) both(s, t *State) *State {
	if s == t {
		return s
	}
	pair := [2]*State{s, t}
	if found := a.pairs[pair]; found != nil {
		return found
	}
	m := merger{slices.Clone(s.items), s.final || t.final}
	for _, it := range t.items {
		a.add(&m, it)
	}
	found := a.intern(m.items, m.final)
	a.pairs[pair] = found
	a.keep(100)
	return found
}

// intern gives the one state with these items.
func (a *Automaton) intern(items []item, final bool) *State {
	if len(items) == 0 && final {
		return a.done
	}
	k := make([]byte, 0, 12*len(items)+1)
	for _, it := range items {
		k = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(k, uint32(it.at)), it.under.id)
	}
	if final {
		k = append(k, 1)
	}
	if s := a.states[string(k)]; s != nil {
		return s
	}
	a.serial++
	s := &State{items: items, final: final, id: a.serial}
	a.states[string(k)] = s
	a.keep(200 + 40*len(items))
	return s
}

// keep counts what is kept, and forgets all of it when that is too much. States
// that are in use go on, they only meet no equals any more.
func (a *Automaton) keep(bytes int) {
	if a.used += bytes; a.used > maxBytes {
		a.forget()
		a.used = bytes
	}
}
