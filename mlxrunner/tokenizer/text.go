package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Valid is text with each maximal part of a character that is not UTF-8 as one
// U+FFFD, which is what the Unicode Standard recommends (chapter 3, "U+FFFD
// Substitution of Maximal Subparts") and what other decoders do.
func Valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n <= 1 {
			n = max(1, partial(text))
		}
		out.WriteRune(r)
		text = text[n:]
	}
	return out.String()
}

// partial is the length of the longest beginning of text, which does not begin
// with a whole character, that could be the beginning of one.
func partial(text string) int {
	for n := min(3, len(text)); n > 0; n-- {
		if !utf8.FullRuneInString(text[:n]) {
			return n
		}
	}
	return 0
}

// unfinished is how many bytes at the end of text may be the beginning of a
// character whose other bytes are still to come.
func unfinished(text string) int {
	for n := min(3, len(text)); n > 0; n-- {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRuneInString(tail) {
			return n
		}
	}
	return 0
}

// isWord is \w of Unicode's regular expressions (UTS 18, annex C).
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// isPunctuation is what BERT takes for punctuation: ASCII's symbols too.
func isPunctuation(r rune) bool {
	return r < utf8.RuneSelf && strings.ContainsRune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", r) || unicode.IsPunct(r)
}

// isSpace is Unicode's White_Space.
func isSpace(r rune) bool { return unicode.Is(unicode.White_Space, r) }
