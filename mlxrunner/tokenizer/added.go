package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// addedToken is a token that is found in the text before anything else.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word goes on beside it
	LStrip     bool   `json:"lstrip"`      // takes white space before it along
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // looked for after normalisation
	Special    bool   `json:"special"`
}

type added struct {
	ids     map[string]int // by the spelling given
	tokens  map[int]string
	special map[int]bool
	before  matcher // in the text as it is
	after   matcher // in the normalised text
}

func newAdded(list []addedToken, m model, n normalizer) (*added, error) {
	a := &added{ids: map[string]int{}, tokens: map[int]string{}, special: map[int]bool{}}
	for _, t := range list {
		if t.Content == "" {
			continue
		}
		if t.ID < 0 {
			return nil, fmt.Errorf("token %q has id %d", t.Content, t.ID)
		}
		// The vocabulary's id goes before the one given here.
		if id, ok := m.id(t.Content); ok {
			t.ID = id
		}
		a.ids[t.Content], a.tokens[t.ID] = t.ID, t.Content
		a.special[t.ID] = a.special[t.ID] || t.Special
		if !t.Normalized {
			a.before.add(t.Content, t)
			continue
		}
		content := t.Content
		if n != nil {
			content = n.normalize(content)
		}
		if content == "" {
			return nil, errors.New("normalisation leaves nothing of token " + t.Content)
		}
		// It decodes as it is found.
		a.tokens[t.ID] = content
		a.after.add(content, t)
	}
	return a, nil
}

// cut cuts the text at added tokens: first as it stands, then what is left,
// normalised.
func (a *added) cut(pieces []piece, n normalizer) []piece {
	pieces = a.before.cut(pieces)
	if n != nil {
		for i, p := range pieces {
			if !p.token {
				pieces[i].text = n.normalize(p.text)
			}
		}
	}
	return a.after.cut(pieces)
}

// matcher finds the leftmost, then longest, of a set of texts. Vocabularies
// have up to some thousand, most with one beginning and few lengths:
// "<unused17>".
type matcher struct {
	tokens  map[string]addedToken
	lengths [256][]int // of the texts with that first byte, the greatest first
}

func (m *matcher) add(text string, t addedToken) {
	if m.tokens == nil {
		m.tokens = map[string]addedToken{}
	}
	m.tokens[text] = t
	lengths := &m.lengths[text[0]]
	if i, found := slices.BinarySearchFunc(*lengths, len(text), func(have, want int) int { return want - have }); !found {
		*lengths = slices.Insert(*lengths, i, len(text))
	}
}

// at finds the token that text begins with, and how long it is.
func (m *matcher) at(text string) (addedToken, int, bool) {
	for _, n := range m.lengths[text[0]] {
		if n > len(text) {
			continue
		}
		if t, ok := m.tokens[text[:n]]; ok {
			return t, n, true
		}
	}
	return addedToken{}, 0, false
}

func (m *matcher) cut(pieces []piece) []piece {
	var out []piece
	for _, p := range pieces {
		if p.token {
			out = append(out, p)
			continue
		}
		out = m.cutOne(p, out)
	}
	return out
}

func (m *matcher) cutOne(p piece, out []piece) []piece {
	text, done := p.text, 0 // done: what is cut off already
	for i := 0; i < len(text); {
		found, length, ok := m.at(text[i:])
		if !ok {
			i++
			continue
		}
		start, end := i, i+length
		i = end
		if found.SingleWord && !alone(text, start, end) {
			continue
		}
		if found.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], isSpace)))
		}
		if found.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], isSpace))
		}
		if done < start {
			out = append(out, piece{text: text[done:start], first: p.first && done == 0})
		}
		out = append(out, piece{id: found.ID, token: true})
		done, i = end, max(i, end)
	}
	if done < len(text) {
		out = append(out, piece{text: text[done:], first: p.first && done == 0})
	}
	return out
}

// alone says whether no word touches text[start:end].
func alone(text string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return (start == 0 || !isWord(before)) && (end == len(text) || !isWord(after))
}
