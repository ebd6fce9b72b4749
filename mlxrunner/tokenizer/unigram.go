package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram finds the most likely cut of a piece: the tokens whose log
// probabilities have the greatest sum (Kudo 2018, by the algorithm of Viterbi).
type unigram struct {
	vocabulary
	scores       []float64 // log probability by id
	unk          int       // -1: none
	unkScore     float64
	byteFallback bool
	longest      int // token, in bytes
}

// unkPenalty is how much less likely than the least likely token an unknown
// character is, as a logarithm; SentencePiece's number.
const unkPenalty = 10

func newUnigram(text json.RawMessage) (model, error) {
	s, err := read[struct {
		Vocab        []scored
		Unk          *int `json:"unk_id"`
		ByteFallback bool `json:"byte_fallback"`
	}](text)
	if err != nil {
		return nil, err
	}
	if len(s.Vocab) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	m := &unigram{unk: -1, byteFallback: s.ByteFallback}
	ids := make(map[string]int, len(s.Vocab))
	least := math.Inf(1)
	for id, t := range s.Vocab {
		ids[t.token] = id
		m.scores = append(m.scores, t.score)
		m.longest = max(m.longest, len(t.token))
		least = min(least, t.score)
	}
	if m.vocabulary, err = newVocabulary(ids); err != nil {
		return nil, err
	}
	m.unkScore = least - unkPenalty
	if s.Unk != nil {
		if m.unk = *s.Unk; m.unk < 0 || m.unk >= len(s.Vocab) {
			return nil, fmt.Errorf("unk_id %d is not in the vocabulary of %d", m.unk, len(s.Vocab))
		}
	}
	return m, nil
}

// scored is a vocabulary's entry: ["token", log probability].
type scored struct {
	token string
	score float64
}

func (s *scored) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&s.token, &s.score})
}

// step is the best way to a place in the text.
type step struct {
	start int // of its last token; -1: the place was not reached
	id    int
	score float64
}

func (m *unigram) encode(text string, ids []int) ([]int, error) {
	steps := make([]step, len(text)+1)
	for i := range steps[1:] {
		steps[i+1].start = -1
	}
	for at := 0; at < len(text); {
		_, length := utf8.DecodeRuneInString(text[at:])
		single := false // whether a token is this one character
		for n := 1; n <= min(m.longest, len(text)-at); n++ {
			id, ok := m.ids[text[at:at+n]]
			if !ok {
				continue
			}
			reach(&steps[at+n], at, id, steps[at].score+m.scores[id])
			single = single || n == length
		}
		if !single {
			if m.unk < 0 {
				return nil, fmt.Errorf("%q is not in the vocabulary, which has no unk_id", text[at:at+length])
			}
			reach(&steps[at+length], at, m.unk, steps[at].score+m.unkScore)
		}
		at += length
	}
	var cut []string
	unks := "" // unknown characters beside each other are one token
	flush := func() {
		if unks != "" {
			cut = append(cut, unks)
		}
		unks = ""
	}
	for end := len(text); end > 0; end = steps[end].start {
		found := text[steps[end].start:end]
		if steps[end].id == m.unk {
			unks = found + unks
			continue
		}
		flush()
		cut = append(cut, found)
	}
	flush()
	slices.Reverse(cut)
	for _, token := range cut {
		ids = m.ofToken(token, ids)
	}
	return ids, nil
}

func reach(s *step, from, id int, score float64) {
	if s.start < 0 || score > s.score {
		*s = step{from, id, score}
	}
}

func (m *unigram) ofToken(token string, ids []int) []int {
	if id, ok := m.ids[token]; ok {
		return append(ids, id)
	}
	if m.byteFallback {
		if with, ok := m.bytesOf(token, ids); ok {
			return with
		}
	}
	return append(ids, m.unk)
}

// wordPiece takes the longest token at each place of a word.
type wordPiece struct {
	vocabulary
	unk     int
	prefix  string // of a token that is not a word's beginning
	longest int    // word, in characters; longer ones are unknown
}

func newWordPiece(text json.RawMessage) (model, error) {
	s, err := read[struct {
		Vocab   map[string]int
		Unk     string  `json:"unk_token"`
		Prefix  *string `json:"continuing_subword_prefix"`
		Longest *int    `json:"max_input_chars_per_word"`
	}](text)
	if err != nil {
		return nil, err
	}
	m := &wordPiece{prefix: "##", longest: 100}
	if s.Prefix != nil {
		m.prefix = *s.Prefix
	}
	if s.Longest != nil {
		m.longest = *s.Longest
	}
	m.vocabulary, m.unk, err = withUnk(s.Vocab, s.Unk)
	return m, err
}

func withUnk(ids map[string]int, unk string) (vocabulary, int, error) {
	v, err := newVocabulary(ids)
	if err != nil {
		return v, 0, err
	}
	id, ok := v.ids[unk]
	if !ok {
		return v, 0, fmt.Errorf("unk_token %q is not in the vocabulary", unk)
	}
	return v, id, nil
}

func (m *wordPiece) encode(text string, ids []int) ([]int, error) {
	if utf8.RuneCountInString(text) > m.longest {
		return append(ids, m.unk), nil
	}
	start := len(ids)
	for at := 0; at < len(text); {
		id, length, ok := m.at(text[at:], at > 0)
		if !ok {
			return append(ids[:start], m.unk), nil
		}
		ids = append(ids, id)
		at += length
	}
	return ids, nil
}

// at is the longest token that text begins with.
func (m *wordPiece) at(text string, inside bool) (id, length int, ok bool) {
	prefix := ""
	if inside {
		prefix = m.prefix
	}
	for end := len(text); end > 0; end-- {
		if end < len(text) && !utf8.RuneStart(text[end]) {
			continue
		}
		if id, ok := m.ids[prefix+text[:end]]; ok {
			return id, end, true
		}
	}
	return 0, 0, false
}

// wordLevel knows whole pieces alone.
type wordLevel struct {
	vocabulary
	unk int
}

func newWordLevel(text json.RawMessage) (model, error) {
	s, err := read[struct {
		Vocab map[string]int
		Unk   string `json:"unk_token"`
	}](text)
	if err != nil {
		return nil, err
	}
	m := &wordLevel{}
	m.vocabulary, m.unk, err = withUnk(s.Vocab, s.Unk)
	return m, err
}

func (m *wordLevel) encode(text string, ids []int) ([]int, error) {
	if id, ok := m.ids[text]; ok {
		return append(ids, id), nil
	}
	return append(ids, m.unk), nil
}
