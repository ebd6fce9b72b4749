package tokenizer

import "strings"

// Stream decodes ids one at a time. What it has given never changes with ids
// that follow: a character whose bytes are not all there waits, and bytes that
// can't become one are U+FFFD as soon as that is sure. A run of byte tokens
// that turns out to be no UTF-8 keeps the characters before the fault, which
// Decode, as the reference does, makes U+FFFD too.
type Stream struct {
	t    *Tokenizer
	skip bool
	ids  []int // the last ones: what a decoder needs of the text before
	sent int   // bytes of their text that were given
}

// context is how many ids are decoded again with each new one. Decoders look at
// most at the token before.
const context = 4

// Stream starts a text; skip leaves special tokens out.
func (t *Tokenizer) Stream(skip bool) *Stream { return &Stream{t: t, skip: skip} }

// Push adds an id and gives the text that is now sure.
func (s *Stream) Push(id int) string {
	if s.skip && s.t.Special(id) {
		return ""
	}
	s.ids = append(s.ids, id)
	text := s.raw()
	out := s.give(text, len(text)-unfinished(text))
	if len(s.ids) > 4*context {
		s.forget(len(text) - s.sent)
	}
	return out
}

// forget drops ids whose text was given; waiting is how many bytes were not. A
// decoder treats the first token of a text and a run of byte tokens as one, so
// what is kept begins with another kind.
func (s *Stream) forget(waiting int) {
	for i := len(s.ids) - context; i > 0; i-- {
		token, _ := s.t.Token(s.ids[i])
		if _, isByte := byteOf(token); !isByte {
			s.ids = append(s.ids[:0], s.ids[i:]...)
			s.sent = max(0, len(s.raw())-waiting)
			return
		}
	}
}

// Flush gives what is still held back; the text ends there.
func (s *Stream) Flush() string {
	text := s.raw()
	return s.give(text, len(text))
}

func (s *Stream) raw() string { return strings.Join(s.t.decode(s.t.tokens(s.ids, s.skip), true), "") }

func (s *Stream) give(text string, ready int) string {
	if ready <= s.sent {
		return ""
	}
	out := Valid(text[s.sent:ready])
	s.sent = ready
	return out
}
