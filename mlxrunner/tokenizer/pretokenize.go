package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// preTokenizer cuts a piece of text into pieces that the model encodes alone.
type preTokenizer interface {
	split(p piece) ([]piece, error)
}

// cutter is a preTokenizer that is one function.
type cutter func(p piece) ([]piece, error)

func (f cutter) split(p piece) ([]piece, error) { return f(p) }

// splitEach applies s to every piece that is text still.
func splitEach(pieces []piece, s preTokenizer) ([]piece, error) {
	out := make([]piece, 0, len(pieces))
	for _, p := range pieces {
		if p.token {
			out = append(out, p)
			continue
		}
		cut, err := s.split(p)
		if err != nil {
			return nil, err
		}
		out = append(out, cut...)
	}
	return out, nil
}

func newPreTokenizer(text json.RawMessage) (preTokenizer, error) {
	name, err := kind(text)
	if err != nil || name == "" {
		return nil, err
	}
	switch name {
	case "Sequence":
		return newSequence(text)
	case "ByteLevel":
		return newByteLevel(text)
	case "Split":
		return newSplit(text)
	case "Metaspace":
		m, err := readMetaspace(text)
		return m, err
	case "Digits":
		s, err := read[struct {
			Individual bool `json:"individual_digits"`
		}](text)
		how := contiguous
		if s.Individual {
			how = isolated
		}
		return runesOf(unicode.IsNumber, how), err
	case "Punctuation":
		s, err := read[struct{ Behavior behavior }](text)
		if s.Behavior == "" {
			s.Behavior = isolated
		}
		return runesOf(isPunctuation, s.Behavior), errors.Join(err, s.Behavior.check())
	case "WhitespaceSplit":
		return runesOf(isSpace, removed), nil
	case "Whitespace":
		return cutter(words), nil
	case "BertPreTokenizer":
		return preTokenizers{runesOf(isSpace, removed), runesOf(isPunctuation, isolated)}, nil
	case "CharDelimiterSplit":
		s, err := read[struct{ Delimiter string }](text)
		return runesOf(func(r rune) bool { return string(r) == s.Delimiter }, removed), err
	case "UnicodeScripts":
		return cutter(scripts), nil
	case "FixedLength":
		s, err := read[struct{ Length int }](text)
		if err == nil && s.Length < 1 {
			err = fmt.Errorf("length %d is less than 1", s.Length)
		}
		return cutter(func(p piece) ([]piece, error) { return fixed(p, s.Length), nil }), err
	}
	return nil, unknown(name)
}

type preTokenizers []preTokenizer

func (all preTokenizers) split(p piece) ([]piece, error) {
	pieces := []piece{p}
	for _, s := range all {
		var err error
		if pieces, err = splitEach(pieces, s); err != nil {
			return nil, err
		}
	}
	return pieces, nil
}

func newSequence(text json.RawMessage) (preTokenizer, error) {
	s, err := read[struct {
		Members []json.RawMessage `json:"pretokenizers"`
	}](text)
	if err != nil {
		return nil, err
	}
	all, err := list(s.Members, newPreTokenizer)
	return preTokenizers(all), err
}

// behavior says what becomes of what a splitter finds.
type behavior string

const (
	removed      behavior = "Removed"
	isolated     behavior = "Isolated"
	withPrevious behavior = "MergedWithPrevious"
	withNext     behavior = "MergedWithNext"
	contiguous   behavior = "Contiguous" // finds beside each other are one piece
)

func (b behavior) check() error {
	switch b {
	case removed, isolated, withPrevious, withNext, contiguous:
		return nil
	}
	return fmt.Errorf("behavior %q is not supported", string(b))
}

// apply turns spans, which cover p's text, into pieces.
func (b behavior) apply(p piece, spans []span) []piece {
	var out []piece
	put := func(start, end int) {
		if start < end {
			out = append(out, piece{text: p.text[start:end], first: p.first && start == 0})
		}
	}
	switch b {
	case removed:
		for _, s := range spans {
			if !s.match {
				put(s.start, s.end)
			}
		}
	case isolated:
		for _, s := range spans {
			put(s.start, s.end)
		}
	case contiguous:
		for i := 0; i < len(spans); {
			j := i + 1
			for j < len(spans) && spans[j].match == spans[i].match {
				j++
			}
			put(spans[i].start, spans[j-1].end)
			i = j
		}
	case withPrevious:
		// A find joins what lies before it, but not another find.
		for i := 0; i < len(spans); i++ {
			start := spans[i].start
			if !spans[i].match && i+1 < len(spans) && spans[i+1].match {
				i++
			}
			put(start, spans[i].end)
		}
	case withNext:
		for i := 0; i < len(spans); i++ {
			start := spans[i].start
			if spans[i].match && i+1 < len(spans) && !spans[i+1].match {
				i++
			}
			put(start, spans[i].end)
		}
	}
	return out
}

func newSplit(text json.RawMessage) (preTokenizer, error) {
	s, err := read[struct {
		Pattern  search
		Behavior behavior
		Invert   bool
	}](text)
	if err = errors.Join(err, s.Behavior.check()); err != nil {
		return nil, err
	}
	return cutter(func(p piece) ([]piece, error) {
		spans, err := s.Pattern.spans(p.text)
		if s.Invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		return s.Behavior.apply(p, spans), err
	}), nil
}

// runesOf splits at the characters of a class.
func runesOf(class func(rune) bool, how behavior) preTokenizer {
	return cutter(func(p piece) ([]piece, error) {
		var spans []span
		start := 0 // of what lies between finds
		for i, r := range p.text {
			if !class(r) {
				continue
			}
			if start < i {
				spans = append(spans, span{start, i, false})
			}
			start = i + len(string(r))
			spans = append(spans, span{i, start, true})
		}
		if start < len(p.text) {
			spans = append(spans, span{start, len(p.text), false})
		}
		return how.apply(p, spans), nil
	})
}

// words gives runs of word characters and runs of what is neither that nor
// white space.
func words(p piece) ([]piece, error) {
	class := func(r rune) int {
		switch {
		case isWord(r):
			return 1
		case isSpace(r):
			return 2
		}
		return 3
	}
	return runs(p, class, 2), nil
}

// runs cuts where the class changes and leaves out the runs of one class.
func runs(p piece, class func(rune) int, without int) []piece {
	var out []piece
	start, last := 0, without
	put := func(end int) {
		if start < end && last != without {
			out = append(out, piece{text: p.text[start:end], first: p.first && start == 0})
		}
	}
	for i, r := range p.text {
		if c := class(r); c != last {
			put(i)
			start, last = i, c
		}
	}
	put(len(p.text))
	return out
}

// scripts cuts where the script changes. Spaces belong to what stands before
// them, kana to the ideographs. Spaces at the beginning are left out, as the
// reference does.
func scripts(p piece) ([]piece, error) {
	const none = 0
	last := none
	numbers := map[string]int{"": none}
	return runs(p, func(r rune) int {
		name := scriptOf(r)
		if _, ok := numbers[name]; !ok {
			numbers[name] = len(numbers)
		}
		if name != "" {
			last = numbers[name]
		}
		return last
	}, none), nil
}

func scriptOf(r rune) string {
	switch {
	case r == ' ':
		return ""
	case r == 'ー', unicode.In(r, unicode.Hiragana, unicode.Katakana):
		return "Han"
	}
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return ""
}

func fixed(p piece, length int) []piece {
	var out []piece
	runes := []rune(p.text)
	for i := 0; i < len(runes); i += length {
		end := min(len(runes), i+length)
		out = append(out, piece{text: string(runes[i:end]), first: p.first && i == 0})
	}
	return out
}

// metaspace writes spaces as a visible character and cuts before it.
type metaspace struct {
	replacement string
	prepend     string // always, first, never
	cut         bool
}

func readMetaspace(text json.RawMessage) (metaspace, error) {
	s, err := read[struct {
		Replacement string
		Prepend     string `json:"prepend_scheme"`
		AddPrefix   *bool  `json:"add_prefix_space"` // before there were schemes
		Split       *bool
	}](text)
	m := metaspace{replacement: s.Replacement, prepend: s.Prepend, cut: s.Split == nil || *s.Split}
	switch {
	case m.prepend == "" && s.AddPrefix != nil && !*s.AddPrefix:
		m.prepend = "never"
	case m.prepend == "":
		m.prepend = "always"
	}
	if err == nil && m.prepend != "always" && m.prepend != "first" && m.prepend != "never" {
		err = fmt.Errorf("prepend_scheme %q is not supported", m.prepend)
	}
	if err == nil && len([]rune(m.replacement)) != 1 {
		err = fmt.Errorf("replacement %q is not one character", m.replacement)
	}
	return m, err
}

func (m metaspace) split(p piece) ([]piece, error) {
	p.text = strings.ReplaceAll(p.text, " ", m.replacement)
	if (m.prepend == "always" || m.prepend == "first" && p.first) && !strings.HasPrefix(p.text, m.replacement) {
		p.text = m.replacement + p.text
	}
	if !m.cut {
		return []piece{p}, nil
	}
	spans := search{text: m.replacement}.literal(p.text)
	return withNext.apply(p, spans), nil
}
