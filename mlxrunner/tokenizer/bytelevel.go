package tokenizer

import (
	"encoding/json"
	"strings"
)

// Byte-level vocabularies spell every byte as a visible character: printable
// Latin-1 as itself, the rest from U+0100 upwards.
var (
	byteRunes [256]rune
	runeBytes = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range byteRunes {
		r := rune(b)
		if r < '!' || r > '~' && r < '¡' || r == 0xad {
			r = next
			next++
		}
		byteRunes[b] = r
		runeBytes[r] = byte(b)
	}
}

func toByteRunes(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for i := range len(text) {
		out.WriteRune(byteRunes[text[i]])
	}
	return out.String()
}

// fromByteRunes is a token's bytes; one with a character that spells none is an
// added token and stands for itself.
func fromByteRunes(token string) string {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := runeBytes[r]
		if !ok {
			return token
		}
		out = append(out, b)
	}
	return string(out)
}

// gpt2 is the pattern that byte-level pre-tokenizers without one of their own
// use: contractions, then words, numbers and symbols, each with the space before.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func newByteLevel(text json.RawMessage) (preTokenizer, error) {
	s, err := read[struct {
		AddPrefixSpace *bool `json:"add_prefix_space"`
		UseRegex       *bool `json:"use_regex"`
	}](text)
	if err != nil {
		return nil, err
	}
	re, err := compile(gpt2)
	if err != nil {
		return nil, err
	}
	on := func(b *bool) bool { return b == nil || *b }
	return cutter(func(p piece) ([]piece, error) {
		if on(s.AddPrefixSpace) && !strings.HasPrefix(p.text, " ") {
			p.text = " " + p.text
		}
		pieces := []piece{p}
		if on(s.UseRegex) {
			spans, err := search{re: re}.spans(p.text)
			if err != nil {
				return nil, err
			}
			pieces = isolated.apply(p, spans)
		}
		for i := range pieces {
			pieces[i].text = toByteRunes(pieces[i].text)
		}
		return pieces, nil
	}), nil
}
