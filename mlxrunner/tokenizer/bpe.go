package tokenizer

import (
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

func newModel(keys map[string]json.RawMessage) (model, error) {
	name := ""
	if keys["type"] != nil {
		var err error
		if name, err = read[string](keys["type"]); err != nil {
			return nil, fmt.Errorf("type: %w", err)
		}
	} else if keys["merges"] != nil { // as in files older than the types
		name = "BPE"
	}
	if name == "BPE" {
		return newBPE(keys)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	switch name {
	case "Unigram":
		return newUnigram(text)
	case "WordPiece":
		return newWordPiece(text)
	case "WordLevel":
		return newWordLevel(text)
	}
	return nil, unknown(name)
}

// vocabulary is both ways between tokens and ids.
type vocabulary struct {
	ids    map[string]int
	tokens []string
}

func newVocabulary(ids map[string]int) (vocabulary, error) {
	v := vocabulary{ids: ids}
	highest := -1
	for token, id := range ids {
		if id < 0 {
			return v, fmt.Errorf("token %q has id %d", token, id)
		}
		highest = max(highest, id)
	}
	// Ids may have gaps, but a stray one must not take the memory.
	if highest > 4*len(ids)+1<<20 {
		return v, fmt.Errorf("the highest id is %d of %d tokens", highest, len(ids))
	}
	v.tokens = make([]string, highest+1)
	for token, id := range ids {
		v.tokens[id] = token
	}
	return v, nil
}

func (v *vocabulary) id(token string) (int, bool) {
	id, ok := v.ids[token]
	return id, ok
}

func (v *vocabulary) token(id int) (string, bool) {
	if id < 0 || id >= len(v.tokens) {
		return "", false
	}
	token := v.tokens[id]
	return token, token != "" || v.ids[""] == id && len(v.ids) > 0
}

func (v *vocabulary) size() int { return len(v.tokens) }

// bytesOf is the ids of a text's bytes, spelt <0x0A>; false when one is missing.
func (v *vocabulary) bytesOf(text string, ids []int) ([]int, bool) {
	start := len(ids)
	for i := range len(text) {
		id, ok := v.ids[fmt.Sprintf("<0x%02X>", text[i])]
		if !ok {
			return ids[:start], false
		}
		ids = append(ids, id)
	}
	return ids, true
}

// bpe joins characters into tokens, the pair that was learnt first before
// others.
type bpe struct {
	vocabulary
	merges       map[pair]merge
	unk          *int // nil: what is not known is dropped
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool // a piece that is a token is that token
	prefix       string
	suffix       string

	cache cache
}

// pair is two ids, in one word: maps of words are the fastest.
type pair uint64

func pairOf(left, right int) pair { return pair(left)<<32 | pair(uint32(right)) }

type merge struct{ rank, id int32 }

func newBPE(keys map[string]json.RawMessage) (model, error) {
	ids, err := scanVocabulary(keys["vocab"])
	if err != nil {
		return nil, err
	}
	merges := keys["merges"]
	delete(keys, "vocab")
	delete(keys, "merges")
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	s, err := read[struct {
		Dropout      *float64
		Unk          *string `json:"unk_token"`
		Prefix       *string `json:"continuing_subword_prefix"`
		Suffix       *string `json:"end_of_word_suffix"`
		FuseUnk      bool    `json:"fuse_unk"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
	}](text)
	if err != nil {
		return nil, err
	}
	if s.Dropout != nil && *s.Dropout > 0 {
		return nil, fmt.Errorf("dropout %v is for training: encoding would be random", *s.Dropout)
	}
	m := &bpe{fuseUnk: s.FuseUnk, byteFallback: s.ByteFallback, ignoreMerges: s.IgnoreMerges, cache: newCache()}
	if m.vocabulary, err = newVocabulary(ids); err != nil {
		return nil, err
	}
	if s.Prefix != nil {
		m.prefix = *s.Prefix
	}
	if s.Suffix != nil {
		m.suffix = *s.Suffix
	}
	if s.Unk != nil {
		id, ok := m.ids[*s.Unk]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", *s.Unk)
		}
		m.unk = &id
	}
	return m, m.readMerges(merges)
}

func (m *bpe) readMerges(text []byte) error {
	m.merges = make(map[pair]merge, 2*len(m.ids)) // a token has one or two
	var joined []byte
	last := 0
	return scanMerges(text, func(rank int, left, right []byte) error {
		a, okLeft := m.ids[string(left)]
		b, okRight := m.ids[string(right)]
		joined = append(append(joined[:0], left...), bytes.TrimPrefix(right, []byte(m.prefix))...)
		id, ok := m.near(last, joined)
		last = id
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("%q and %q to %q: not all are in the vocabulary", left, right, joined)
		}
		m.merges[pairOf(a, b)] = merge{int32(rank), int32(id)}
		return nil
	})
}

// near finds a token's id. Most merges give the token of the one before, or the
// next: a look there is cheaper than one in a map.
func (m *bpe) near(id int, token []byte) (int, bool) {
	for _, guess := range []int{id, id + 1} {
		if guess < len(m.tokens) && len(token) > 0 && m.tokens[guess] == string(token) {
			return guess, true
		}
	}
	found, ok := m.ids[string(token)]
	return found, ok
}

func (m *bpe) encode(text string, ids []int) ([]int, error) {
	if text == "" {
		return ids, nil
	}
	if id, ok := m.ids[text]; ok && m.ignoreMerges {
		return append(ids, id), nil
	}
	if known, ok := m.cache.get(text); ok {
		return append(ids, known...), nil
	}
	word := m.join(m.characters(text))
	m.cache.put(text, word)
	return append(ids, word...), nil
}

// characters is a piece as the tokens of its characters.
func (m *bpe) characters(text string) []int {
	ids := make([]int, 0, len(text))
	unk := false // whether an unknown token is still to be put
	flush := func() {
		if unk {
			ids = append(ids, *m.unk)
		}
		unk = false
	}
	for i, r := range text {
		end := i + len(string(r))
		c := text[i:end]
		if i > 0 {
			c = m.prefix + c
		}
		if end == len(text) {
			c += m.suffix
		}
		if id, ok := m.ids[c]; ok {
			flush()
			ids = append(ids, id)
			continue
		}
		if m.byteFallback {
			// What is still to be put comes after: so does the reference.
			if with, ok := m.bytesOf(c, ids); ok {
				ids = with
				continue
			}
		}
		if m.unk != nil {
			if !m.fuseUnk {
				flush()
			}
			unk = true
		}
	}
	flush()
	return ids
}

// symbol is a token of a word that is being joined, in a linked list.
type symbol struct{ id, prev, next int }

// candidate is a pair that may be joined, by the place of its left symbol.
type candidate struct {
	rank, at int
	pair     pair
	id       int
}

// queue gives the lowest rank first, and the leftmost of equal ones.
type queue []candidate

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// join applies the merges; the time grows as n log n with the word's length.
func (m *bpe) join(ids []int) []int {
	word := make([]symbol, len(ids))
	for i, id := range ids {
		word[i] = symbol{id, i - 1, i + 1}
	}
	var q queue
	look := func(left int) {
		if left < 0 || word[left].next >= len(word) {
			return
		}
		p := pairOf(word[left].id, word[word[left].next].id)
		if found, ok := m.merges[p]; ok {
			heap.Push(&q, candidate{int(found.rank), left, p, int(found.id)})
		}
	}
	for i := range word {
		look(i)
	}
	const gone = -1
	for q.Len() > 0 {
		c := heap.Pop(&q).(candidate)
		left := &word[c.at]
		// A symbol may have been joined since the pair was seen.
		if left.id == gone || left.next >= len(word) || pairOf(left.id, word[left.next].id) != c.pair {
			continue
		}
		right := &word[left.next]
		left.id, left.next = c.id, right.next
		right.id = gone
		if left.next < len(word) {
			word[left.next].prev = c.at
		}
		look(left.prev)
		look(c.at)
	}
	out := ids[:0]
	for i := 0; i < len(word); i = word[i].next {
		out = append(out, word[i].id)
	}
	return out
}

// cache keeps the ids of pieces: a text is mostly words that were there before.
type cache struct {
	mu   *sync.RWMutex
	word map[string][]int
}

// The bounds keep a cache at some megabytes; the reference's are the same.
const (
	cacheWords  = 10_000
	cacheLength = 256 // bytes of a piece
)

func newCache() cache { return cache{mu: &sync.RWMutex{}, word: map[string][]int{}} }

func (c cache) get(piece string) ([]int, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ids, ok := c.word[piece]
	return ids, ok
}

func (c cache) put(piece string, ids []int) {
	if len(piece) > cacheLength {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.word) >= cacheWords {
		return
	}
	// The key would otherwise keep the whole text alive that it was cut from.
	c.word[strings.Clone(piece)] = ids
}
