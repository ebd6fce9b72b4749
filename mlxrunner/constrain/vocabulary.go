package constrain

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
)

// A Vocabulary is the bytes of every token, as a tree by beginnings. It keeps
// the automata of the last grammars, so it may be used by any number of
// goroutines.
type Vocabulary struct {
	tokens [][]byte
	end    []int
	nodes  []node            // depth first; the root is not among them
	others map[int32][]int32 // further ids of a node

	mu    sync.Mutex
	bound *list.List // of *Automaton, the last used first
}

// node is a beginning of tokens.
type node struct {
	b     byte
	depth uint16 // of its last byte, from 1
	after int32  // the first node that does not begin with it
	id    int32  // of the token that it is; -1: of none
}

// maxToken bounds the bytes of a token; no vocabulary comes near it.
const maxToken = 1<<16 - 1

// kept is how many automata a vocabulary keeps.
const kept = 8

// NewVocabulary makes one of tokens by id, nil where a token never is part of a
// text (special ones), and the ids that end a text.
func NewVocabulary(tokens [][]byte, end []int) *Vocabulary {
	v := &Vocabulary{tokens: tokens, end: end, others: map[int32][]int32{}, bound: list.New()}
	var ids []int32
	for id, text := range tokens {
		if len(text) > 0 && len(text) <= maxToken && !slices.Contains(end, id) {
			ids = append(ids, int32(id))
		}
	}
	slices.SortFunc(ids, func(a, b int32) int {
		return cmp.Or(slices.Compare(tokens[a], tokens[b]), cmp.Compare(a, b))
	})
	var open []int32 // the nodes of the last token
	shut := func(depth int) {
		for _, n := range open[depth:] {
			v.nodes[n].after = int32(len(v.nodes))
		}
		open = open[:depth]
	}
	var last []byte
	for _, id := range ids {
		text := tokens[id]
		same := 0
		for same < min(len(last), len(text)) && last[same] == text[same] {
			same++
		}
		shut(same)
		for i := same; i < len(text); i++ {
			open = append(open, int32(len(v.nodes)))
			v.nodes = append(v.nodes, node{b: text[i], depth: uint16(i + 1), id: -1})
		}
		if at := open[len(text)-1]; v.nodes[at].id < 0 {
			v.nodes[at].id = id
		} else {
			v.others[at] = append(v.others[at], id)
		}
		last = text
	}
	shut(0)
	return v
}

// bytes of an id; nil where it has none that may be part of a text.
func (v *Vocabulary) bytes(id int) []byte {
	if id < 0 || id >= len(v.tokens) || slices.Contains(v.end, id) {
		return nil
	}
	return v.tokens[id]
}

// Bind makes the automaton of a grammar over a vocabulary, or gives the one
// that was made of the same grammar not long ago, with what it knows.
func (g *Grammar) Bind(v *Vocabulary) *Automaton {
	v.mu.Lock()
	defer v.mu.Unlock()
	for e := v.bound.Front(); e != nil; e = e.Next() {
		if a := e.Value.(*Automaton); a.source == g.source {
			v.bound.MoveToFront(e)
			return a
		}
	}
	a := newAutomaton(g, v)
	v.bound.PushFront(a)
	if v.bound.Len() > kept {
		v.bound.Remove(v.bound.Back())
	}
	return a
}
