package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites a text before it is split.
type normalizer interface{ normalize(text string) string }

// rewrite is a normalizer that is one function.
type rewrite func(string) string

func (f rewrite) normalize(text string) string { return f(text) }

type normalizers []normalizer

func (all normalizers) normalize(text string) string {
	for _, n := range all {
		text = n.normalize(text)
	}
	return text
}

func newNormalizer(text json.RawMessage) (normalizer, error) {
	name, err := kind(text)
	if err != nil || name == "" {
		return nil, err
	}
	switch name {
	case "Sequence":
		s, err := read[struct{ Normalizers []json.RawMessage }](text)
		if err != nil {
			return nil, err
		}
		all, err := list(s.Normalizers, newNormalizer)
		return normalizers(all), err
	case "NFC":
		return rewrite(norm.NFC.String), nil
	case "NFD":
		return rewrite(norm.NFD.String), nil
	case "NFKC":
		return rewrite(norm.NFKC.String), nil
	case "NFKD":
		return rewrite(norm.NFKD.String), nil
	case "Lowercase":
		return rewrite(lower), nil
	case "StripAccents":
		return rewrite(stripMarks), nil
	case "ByteLevel":
		return rewrite(toByteRunes), nil
	case "Nmt":
		return rewrite(nmt), nil
	case "Prepend":
		s, err := read[struct{ Prepend string }](text)
		return rewrite(func(text string) string {
			if text == "" {
				return ""
			}
			return s.Prepend + text
		}), err
	case "Strip":
		return newStrip(text)
	case "Replace":
		return newReplace(text)
	case "BertNormalizer":
		return newBert(text)
	case "Precompiled":
		s, err := read[struct {
			Map []byte `json:"precompiled_charsmap"` // base64
		}](text)
		if err != nil {
			return nil, err
		}
		return newCharsMap(s.Map)
	}
	return nil, unknown(name)
}

func newStrip(text json.RawMessage) (normalizer, error) {
	s, err := read[struct {
		Left  bool `json:"strip_left"`
		Right bool `json:"strip_right"`
	}](text)
	return rewrite(func(text string) string {
		if s.Left {
			text = strings.TrimLeftFunc(text, isSpace)
		}
		if s.Right {
			text = strings.TrimRightFunc(text, isSpace)
		}
		return text
	}), err
}

func newReplace(text json.RawMessage) (rewrite, error) {
	s, err := read[struct {
		Pattern search
		Content string
	}](text)
	return func(text string) string { return s.Pattern.replace(text, s.Content) }, err
}

// lower is the full lower case without the rule for a final sigma: the
// reference maps each character on its own.
func lower(text string) string {
	var out strings.Builder
	for _, r := range text {
		if r == 'İ' { // the one character whose lower case is two
			out.WriteString("i̇")
			continue
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// stripMarks leaves marks out; text is decomposed already.
func stripMarks(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Mc, r) || unicode.Is(unicode.Me, r) {
			return -1
		}
		return r
	}, text)
}

// nmt leaves out control characters and turns white space into a space, as
// SentencePiece's nmt_nfkc does.
func nmt(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x01 && r <= 0x08, r == 0x0b, r >= 0x0e && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
			return -1
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
			return ' '
		}
		return r
	}, text)
}

// newBert is the normalisation of BERT's vocabularies.
func newBert(text json.RawMessage) (normalizer, error) {
	s, err := read[struct {
		Clean        bool  `json:"clean_text"`
		Chinese      bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"` // null: as lowercase
		Lowercase    bool  `json:"lowercase"`
	}](text)
	strip := s.Lowercase
	if s.StripAccents != nil {
		strip = *s.StripAccents
	}
	return rewrite(func(text string) string {
		if s.Clean {
			text = strings.Map(clean, text)
		}
		if s.Chinese {
			text = spaceIdeographs(text)
		}
		if strip {
			text = strings.Map(func(r rune) rune {
				if unicode.Is(unicode.Mn, r) {
					return -1
				}
				return r
			}, norm.NFD.String(text))
		}
		if s.Lowercase {
			text = lower(text)
		}
		return text
	}), err
}

func clean(r rune) rune {
	switch {
	case r == '\t', r == '\n', r == '\r', isSpace(r):
		return ' '
	case r == 0, r == 0xfffd, unicode.Is(unicode.C, r):
		return -1
	}
	return r
}

// spaceIdeographs puts spaces around the blocks of CJK ideographs.
func spaceIdeographs(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.Is(ideographs, r) {
			out.WriteByte(' ')
			out.WriteRune(r)
			out.WriteByte(' ')
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

var ideographs = &unicode.RangeTable{
	R16: []unicode.Range16{{0x3400, 0x4dbf, 1}, {0x4e00, 0x9fff, 1}, {0xf900, 0xfaff, 1}},
	R32: []unicode.Range32{{0x20000, 0x2a6df, 1}, {0x2a700, 0x2b73f, 1}, {0x2b740, 0x2b81f, 1}, {0x2b920, 0x2ceaf, 1}, {0x2f800, 0x2fa1f, 1}},
}
