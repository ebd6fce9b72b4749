package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder turns the spelling of tokens into text. With raw, bytes that are no
// UTF-8 are kept as they are, for a caller that waits for the rest of a
// character.
type decoder interface {
	decode(tokens []string, raw bool) []string
}

// each is a decoder that turns every token on its own.
type each func(i int, token string) string

func (f each) decode(tokens []string, _ bool) []string {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		out[i] = f(i, token)
	}
	return out
}

type decoders []decoder

func (all decoders) decode(tokens []string, raw bool) []string {
	for _, d := range all {
		tokens = d.decode(tokens, raw)
	}
	return tokens
}

func newDecoder(text json.RawMessage) (decoder, error) {
	name, err := kind(text)
	if err != nil || name == "" {
		return nil, err
	}
	switch name {
	case "Sequence":
		s, err := read[struct{ Decoders []json.RawMessage }](text)
		if err != nil {
			return nil, err
		}
		all, err := list(s.Decoders, newDecoder)
		return decoders(all), err
	case "ByteLevel":
		return byteLevelDecoder{}, nil
	case "ByteFallback":
		return byteFallback{}, nil
	case "Fuse":
		return fuse{}, nil
	case "Replace":
		f, err := newReplace(text)
		return each(func(_ int, token string) string { return f(token) }), err
	case "Strip":
		return newStripDecoder(text)
	case "Metaspace":
		m, err := readMetaspace(text)
		return each(m.decodeOne), err
	case "WordPiece":
		return newWordPieceDecoder(text)
	case "BPEDecoder":
		s, err := read[struct{ Suffix string }](text)
		return suffixDecoder{s.Suffix}, err
	}
	return nil, unknown(name)
}

type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(tokens []string, raw bool) []string {
	var out strings.Builder
	for _, token := range tokens {
		out.WriteString(fromByteRunes(token))
	}
	if raw {
		return []string{out.String()}
	}
	return []string{Valid(out.String())}
}

// byteFallback joins tokens that spell a byte. A run of them that is no UTF-8
// is one U+FFFD a byte.
type byteFallback struct{}

func (byteFallback) decode(tokens []string, raw bool) []string {
	var out []string
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case raw || utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, string(utf8.RuneError))
			}
		}
		run = nil
	}
	for _, token := range tokens {
		if b, ok := byteOf(token); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, token)
	}
	flush()
	return out
}

// byteOf reads <0x0A>.
func byteOf(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

type fuse struct{}

func (fuse) decode(tokens []string, _ bool) []string { return []string{strings.Join(tokens, "")} }

func newStripDecoder(text json.RawMessage) (decoder, error) {
	s, err := read[struct {
		Content     string
		Start, Stop int
	}](text)
	if err == nil && len([]rune(s.Content)) != 1 {
		err = fmt.Errorf("content %q is not one character", s.Content)
	}
	return each(func(_ int, token string) string {
		for i := 0; i < s.Start && strings.HasPrefix(token, s.Content); i++ {
			token = token[len(s.Content):]
		}
		for i := 0; i < s.Stop && strings.HasSuffix(token, s.Content); i++ {
			token = token[:len(token)-len(s.Content)]
		}
		return token
	}), err
}

func (m metaspace) decodeOne(i int, token string) string {
	space := " "
	if i == 0 && m.prepend != "never" {
		space = ""
	}
	return strings.ReplaceAll(token, m.replacement, space)
}

// tidy takes out the spaces that splitting at punctuation left.
var tidy = []string{
	" .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m",
	" do not", " don't", " 's", "'s", " 've", "'ve", " 're", "'re",
}

func newWordPieceDecoder(text json.RawMessage) (decoder, error) {
	s, err := read[struct {
		Prefix  string
		Cleanup bool
	}](text)
	return each(func(i int, token string) string {
		if i > 0 {
			if rest, ok := strings.CutPrefix(token, s.Prefix); ok {
				token = rest
			} else {
				token = " " + token
			}
		}
		if s.Cleanup {
			for j := 0; j < len(tidy); j += 2 {
				token = strings.ReplaceAll(token, tidy[j], tidy[j+1])
			}
		}
		return token
	}), err
}

// suffixDecoder turns the mark of a word's end into a space, but for the last.
type suffixDecoder struct{ suffix string }

func (d suffixDecoder) decode(tokens []string, _ bool) []string {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		space := " "
		if i == len(tokens)-1 {
			space = ""
		}
		out[i] = strings.ReplaceAll(token, d.suffix, space)
	}
	return out
}
