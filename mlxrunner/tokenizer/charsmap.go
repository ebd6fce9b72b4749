package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/rivo/uniseg"
)

// charsMap is SentencePiece's table of replacements: 4 bytes, little-endian,
// the length of the trie; the trie, a double array of 32-bit units as the
// library darts-clone writes it, from text to a place in the rest; the rest,
// replacements that end with a zero byte.
type charsMap struct {
	trie []uint32
	rest []byte
}

func newCharsMap(data []byte) (normalizer, error) {
	if len(data) < 4 {
		return nil, errors.New("precompiled_charsmap is too short")
	}
	size := binary.LittleEndian.Uint32(data)
	if size%4 != 0 || uint64(size) > uint64(len(data)-4) || size == 0 {
		return nil, errors.New("precompiled_charsmap is truncated")
	}
	m := &charsMap{trie: make([]uint32, size/4), rest: data[4+size:]}
	for i := range m.trie {
		m.trie[i] = binary.LittleEndian.Uint32(data[4+4*i:])
	}
	return m, nil
}

// normalize replaces each short grapheme cluster that the table has a beginning
// of and, in the others, each character. That a beginning stands for the whole
// is how the reference reads the table.
func (m *charsMap) normalize(text string) string {
	var out strings.Builder
	state := -1
	for len(text) > 0 {
		var cluster string
		cluster, text, _, state = uniseg.FirstGraphemeClusterInString(text, state)
		if len(cluster) < 6 {
			if with, ok := m.replacement(cluster); ok {
				out.Write(with)
				continue
			}
		}
		for _, r := range cluster {
			if with, ok := m.replacement(string(r)); ok {
				out.Write(with)
				continue
			}
			out.WriteRune(r)
		}
	}
	return out.String()
}

// replacement follows the trie to the first entry on the way.
func (m *charsMap) replacement(text string) ([]byte, bool) {
	at := unit(m.trie[0]).offset()
	for i := range len(text) {
		c := uint32(text[i])
		at ^= c
		if c == 0 || at >= uint32(len(m.trie)) {
			return nil, false
		}
		u := unit(m.trie[at])
		if u.label() != c {
			return nil, false
		}
		at ^= u.offset()
		if !u.leaf() {
			continue
		}
		if at >= uint32(len(m.trie)) {
			return nil, false
		}
		place := unit(m.trie[at]).value()
		if place > uint32(len(m.rest)) {
			return nil, false
		}
		with, _, _ := bytes.Cut(m.rest[place:], []byte{0})
		return with, true
	}
	return nil, false
}

// unit is an entry of the double array.
type unit uint32

func (u unit) leaf() bool     { return u>>8&1 == 1 }
func (u unit) value() uint32  { return uint32(u) & (1<<31 - 1) }
func (u unit) label() uint32  { return uint32(u) & (1<<31 | 0xff) }
func (u unit) offset() uint32 { return uint32(u) >> 10 << (uint32(u) & (1 << 9) >> 6) }
