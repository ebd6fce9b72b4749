package tokenizer

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

func newModel(text json.RawMessage) (model, error) {
	name, err := kind(text)
	if err != nil {
		// Files older than the types hold BPE.
		var old struct{ Merges json.RawMessage }
		if json.Unmarshal(text, &old) != nil || old.Merges == nil {
			return nil, err
		}
		name = "BPE"
	}
	switch name {
	case "BPE":
		return newBPE(text)
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

type pair struct{ left, right int }

type merge struct{ rank, id int }

// pairs reads merges in both forms: "a b", and ["a", "b"].
type pairs [][2]string

func (p *pairs) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*[][2]string)(p)) == nil {
		return nil
	}
	var lines []string
	if err := json.Unmarshal(text, &lines); err != nil {
		return err
	}
	*p = nil
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("merge %d, %q, is not two tokens", i+1, line)
		}
		*p = append(*p, [2]string{left, right})
	}
	return nil
}

func newBPE(text json.RawMessage) (model, error) {
	s, err := read[struct {
		Vocab        map[string]int
		Merges       pairs
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
	m := &bpe{
		merges: make(map[pair]merge, len(s.Merges)), fuseUnk: s.FuseUnk,
		byteFallback: s.ByteFallback, ignoreMerges: s.IgnoreMerges, cache: newCache(),
	}
	if m.vocabulary, err = newVocabulary(s.Vocab); err != nil {
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
	for rank, two := range s.Merges {
		left, okLeft := m.ids[two[0]]
		right, okRight := m.ids[two[1]]
		joined := two[0] + strings.TrimPrefix(two[1], m.prefix)
		id, ok := m.ids[joined]
		if !okLeft || !okRight || !ok {
			return nil, fmt.Errorf("merge %d, %q and %q to %q: not all are in the vocabulary", rank+1, two[0], two[1], joined)
		}
		m.merges[pair{left, right}] = merge{rank, id}
	}
	return m, nil
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
		p := pair{word[left].id, word[word[left].next].id}
		if found, ok := m.merges[p]; ok {
			heap.Push(&q, candidate{found.rank, left, p, found.id})
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
		if left.id != c.pair.left || left.next >= len(word) || word[left.next].id != c.pair.right {
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
