package constrain

import (
	"errors"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// An alphabet is how a character is written in the text.
type alphabet func(n *nfa, from, to int32, lo, hi rune)

// plain is UTF-8.
func plain(n *nfa, from, to int32, lo, hi rune) {
	for _, part := range []struct{ lo, hi rune }{
		{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, unicode.MaxRune}, // without surrogates
	} {
		if l, h := max(lo, part.lo), min(hi, part.hi); l <= h {
			n.utf8(from, to, l, h)
		}
	}
}

// quoted is the inside of a JSON string, each character in its one way.
func quoted(n *nfa, from, to int32, lo, hi rune) {
	for r := lo; r <= min(hi, 0x1f); r++ {
		n.text(from, to, escape(r))
	}
	at := max(lo, 0x20)
	for _, r := range []rune{'"', '\\'} {
		if at <= r && r <= hi {
			plain(n, from, to, at, r-1)
			n.text(from, to, escape(r))
			at = r + 1
		}
	}
	plain(n, from, to, at, hi)
}

// escape writes a character as it stands in a JSON string.
func escape(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < 0x20 {
		const hex = "0123456789abcdef"
		return `\u00` + string(hex[r>>4]) + string(hex[r&15])
	}
	return string(r)
}

// An nfa is an automaton on its way to a dfa.
type nfa struct {
	budget  *budget
	write   alphabet
	states  []nfaState
	pointer string // of the schema it is for
}

type nfaState struct {
	edges []edge
	free  []int32 // reached without a byte
	begin []int32 // at the beginning of the text alone
	end   []int32 // at its end
}

func (n *nfa) state() int32 {
	n.budget.spend(0, 100) // what it takes of memory, beside a step's
	n.states = append(n.states, nfaState{})
	return int32(len(n.states) - 1)
}

func (n *nfa) bytes(from, to int32, lo, hi byte) {
	n.states[from].edges = append(n.states[from].edges, edge{lo, hi, to})
}

func (n *nfa) jump(from, to int32) { n.states[from].free = append(n.states[from].free, to) }

func (n *nfa) text(from, to int32, text string) {
	for i := range len(text) {
		next := to
		if i < len(text)-1 {
			next = n.state()
		}
		n.bytes(from, next, text[i], text[i])
		from = next
	}
}

// utf8 adds characters whose encodings have one length. They are cut so that in
// each part every byte goes through all of its values on its own.
func (n *nfa) utf8(from, to int32, lo, hi rune) {
	length := utf8.RuneLen(lo)
	for i := 1; i < length; i++ {
		low := rune(1)<<(6*i) - 1 // what the last i bytes hold
		if lo&^low == hi&^low {
			continue
		}
		if lo&low != 0 {
			n.utf8(from, to, lo, lo|low)
			n.utf8(from, to, (lo|low)+1, hi)
			return
		}
		if hi&low != low {
			n.utf8(from, to, lo, hi&^low-1)
			n.utf8(from, to, hi&^low, hi)
			return
		}
	}
	a, b := utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi)
	for i := range a {
		next := to
		if i < len(a)-1 {
			next = n.state()
		}
		n.bytes(from, next, a[i], b[i])
		from = next
	}
}

// add appends an expression to a state and gives the state behind it.
func (n *nfa) add(re *syntax.Regexp, from int32) int32 {
	switch re.Op {
	case syntax.OpNoMatch:
		return n.state()
	case syntax.OpEmptyMatch:
		return from
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			to := n.state()
			n.write(n, from, to, r, r)
			if re.Flags&syntax.FoldCase != 0 {
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					n.write(n, from, to, f, f)
				}
			}
			from = to
		}
		return from
	case syntax.OpCharClass:
		to := n.state()
		for i := 0; i < len(re.Rune); i += 2 {
			n.write(n, from, to, re.Rune[i], re.Rune[i+1])
		}
		return to
	case syntax.OpAnyChar:
		return n.any(from)
	case syntax.OpAnyCharNotNL:
		to := n.state()
		n.write(n, from, to, 0, '\n'-1)
		n.write(n, from, to, '\n'+1, unicode.MaxRune)
		return to
	case syntax.OpBeginText:
		to := n.state()
		n.states[from].begin = append(n.states[from].begin, to)
		return to
	case syntax.OpEndText:
		to := n.state()
		n.states[from].end = append(n.states[from].end, to)
		return to
	case syntax.OpCapture:
		return n.add(re.Sub[0], from)
	case syntax.OpStar:
		return n.repeat(re.Sub[0], from, 0, -1)
	case syntax.OpPlus:
		return n.repeat(re.Sub[0], from, 1, -1)
	case syntax.OpQuest:
		return n.repeat(re.Sub[0], from, 0, 1)
	case syntax.OpRepeat:
		return n.repeat(re.Sub[0], from, re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			from = n.add(sub, from)
		}
		return from
	case syntax.OpAlternate:
		to := n.state()
		for _, sub := range re.Sub {
			first := n.state()
			n.jump(from, first)
			n.jump(n.add(sub, first), to)
		}
		return to
	}
	panic(refusal{&UnsupportedError{Feature: re.String(), Pointer: n.pointer, Why: "whether it matches depends on what is around it"}})
}

func (n *nfa) any(from int32) int32 {
	to := n.state()
	n.write(n, from, to, 0, unicode.MaxRune)
	return to
}

// repeat appends sub at least least and at most most times; -1 is any number.
func (n *nfa) repeat(sub *syntax.Regexp, from int32, least, most int) int32 {
	for range least {
		from = n.add(sub, from)
	}
	if most < 0 {
		loop := n.state()
		n.jump(from, loop)
		n.jump(n.add(sub, loop), loop)
		return loop
	}
	to := n.state()
	n.jump(from, to)
	for range most - least {
		first := n.state()
		n.jump(from, first)
		from = n.add(sub, first)
		n.jump(from, to)
	}
	return to
}

// close gives all that is reached without a byte, in order.
func (n *nfa) close(set []int32, begin, end bool) []int32 {
	seen := map[int32]bool{}
	var out []int32
	push := func(states []int32) {
		for _, s := range states {
			if !seen[s] {
				seen[s] = true
				out = append(out, s)
			}
		}
	}
	push(set)
	for i := 0; i < len(out); i++ {
		s := &n.states[out[i]]
		push(s.free)
		if begin {
			push(s.begin)
		}
		if end {
			push(s.end)
		}
	}
	slices.Sort(out)
	n.budget.spend(0, len(out))
	return out
}

// initial marks the set that the text begins with: only there the beginning
// can be asserted.
const initial = -1

// dfa makes the automaton of what leads from one state to another.
func (n *nfa) dfa(from, to int32) dfa {
	start := append([]int32{initial}, n.close([]int32{from}, true, false)...)
	final := func(set []int32) bool {
		if set[0] == initial {
			return slices.Contains(n.close(set[1:], true, true), to)
		}
		return slices.Contains(n.close(set, false, true), to)
	}
	return explore(n.budget, start, final, func(set []int32, cut *cuts) {
		for _, s := range set {
			if s != initial {
				cut.add(n.states[s].edges)
			}
		}
	}, func(set []int32, b byte) []int32 {
		var next []int32
		for _, s := range set {
			if s == initial {
				continue
			}
			for _, e := range n.states[s].edges {
				if e.lo <= b && b <= e.hi {
					next = append(next, e.to)
				}
			}
		}
		return n.close(next, false, false)
	})
}

// expression makes the automaton of an expression. With anywhere, it may match
// any part of the text.
func expression(b *budget, write alphabet, expr, pointer string, anywhere bool) dfa {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		panic(refusal{refused(err, pointer)})
	}
	n := &nfa{budget: b, write: write, pointer: pointer}
	from := n.state()
	at := from
	if anywhere {
		at = n.anything(at)
	}
	at = n.add(re, at)
	if anywhere {
		at = n.anything(at)
	}
	return minimal(n.dfa(from, at))
}

func (n *nfa) anything(from int32) int32 {
	loop := n.state()
	n.jump(from, loop)
	n.jump(n.any(loop), loop)
	return loop
}

// refused tells an expression that is none from one that another engine has.
func refused(err error, pointer string) error {
	var e *syntax.Error
	if !errors.As(err, &e) {
		return &InvalidError{Pointer: pointer, Why: err.Error()}
	}
	switch e.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape:
		return &UnsupportedError{Feature: e.Expr, Pointer: pointer, Why: "the expressions of Go (RE2) don't have it"}
	case syntax.ErrLarge, syntax.ErrNestingDepth, syntax.ErrInvalidRepeatSize:
		return &UnsupportedError{Feature: "an expression of this size", Pointer: pointer, Why: e.Error()}
	}
	return &InvalidError{Pointer: pointer, Why: e.Error()}
}
