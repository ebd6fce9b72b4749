package tokenizer

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// ErrNoBytes says that a token's text depends on the token behind it.
var ErrNoBytes = errors.New("its decoder writes a token by what follows it, so a token has no text of its own")

// Bytes gives for each id what it adds to a text that has begun, which may be a
// part of a character; nil for special tokens, for ids that the vocabulary
// lacks and for those that add nothing. Ids that add something else where the
// text begins are told: some decoders drop the space there.
func (t *Tokenizer) Bytes() (added [][]byte, otherAtBegin []int, err error) {
	if looksAhead(t.decoder) {
		return nil, nil, ErrNoBytes
	}
	raw := func(tokens ...string) []byte { return []byte(strings.Join(t.decode(tokens, true), "")) }
	added = make([][]byte, t.Size())
	before := t.word()
	begun := raw(before)
	for id := range added {
		token, ok := t.Token(id)
		if !ok || t.Special(id) {
			continue
		}
		text, ok := bytes.CutPrefix(raw(before, token), begun)
		if !ok || len(text) == 0 {
			continue
		}
		added[id] = text
		if !bytes.Equal(raw(token), text) {
			otherAtBegin = append(otherAtBegin, id)
		}
	}
	return added, otherAtBegin, nil
}

func looksAhead(d decoder) bool {
	switch d := d.(type) {
	case suffixDecoder:
		return true
	case decoders:
		return slices.ContainsFunc(d, looksAhead)
	}
	return false
}

// word is a token that a text can begin with: neither a byte nor special.
func (t *Tokenizer) word() string {
	for id := range t.Size() {
		token, ok := t.Token(id)
		if _, isByte := byteOf(token); ok && !isByte && !t.Special(id) && len(t.Decode([]int{id}, true)) > 0 {
			return token
		}
	}
	return ""
}
