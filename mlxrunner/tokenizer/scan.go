package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Vocabularies have some hundred thousand tokens and merges, and a program
// waits for them before its first word: encoding/json takes most of a second.
// So the two are read by a scanner of their own. What it passes over is
// decoded by encoding/json later, which finds the faults.

// scanner reads JSON from the front; the first error stays.
type scanner struct {
	text []byte
	at   int
	err  error
}

func (s *scanner) fail(want string) {
	switch {
	case s.err != nil:
	case s.at >= len(s.text):
		s.err = fmt.Errorf("unexpected end of JSON, want %s", want)
	default:
		s.err = fmt.Errorf("at byte %d: want %s", s.at, want)
	}
}

// peek passes over white space and gives the byte that follows, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ' ', '\n', '\r', '\t':
		default:
			return s.text[s.at]
		}
	}
	return 0
}

// take passes over c if it comes next.
func (s *scanner) take(c byte) bool {
	if s.err != nil || s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) want(c byte) {
	if !s.take(c) {
		s.fail(strconv.QuoteRune(rune(c)))
	}
}

// list reads what stands between two brackets, one by one.
func (s *scanner) list(begin, end byte, one func()) {
	s.want(begin)
	if s.err != nil || s.take(end) {
		return
	}
	for s.err == nil {
		one()
		if s.take(end) {
			return
		}
		s.want(',')
	}
}

// quoted reads a string; without escapes it is a part of the text.
func (s *scanner) quoted() []byte {
	s.want('"')
	start, plain := s.at, true
	for s.err == nil {
		n := s.at
		for n < len(s.text) && s.text[n] != '"' && s.text[n] != '\\' {
			n++
		}
		if s.at = n; n+1 >= len(s.text) && (n >= len(s.text) || s.text[n] != '"') {
			s.fail("the end of a string")
			return nil
		}
		if s.text[n] == '"' {
			break
		}
		plain = false
		s.at = n + 2
	}
	if s.err != nil {
		return nil
	}
	s.at++
	if plain {
		return s.text[start : s.at-1]
	}
	var out string
	if err := json.Unmarshal(s.text[start-1:s.at], &out); err != nil {
		s.err = fmt.Errorf("at byte %d: %w", start-1, err)
	}
	return []byte(out)
}

// pass passes over a string.
func (s *scanner) pass() {
	for s.at++; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	if s.at >= len(s.text) {
		s.at = len(s.text)
		s.fail("the end of a string")
	}
}

// number reads a whole number.
func (s *scanner) number() int {
	s.peek()
	start := s.at
	for s.at < len(s.text) && (s.text[s.at] == '-' || s.text[s.at] >= '0' && s.text[s.at] <= '9') {
		s.at++
	}
	n, err := strconv.Atoi(string(s.text[start:s.at]))
	if err != nil {
		s.at = start
		s.fail("a whole number")
	}
	return n
}

// skip passes over a value and gives it.
func (s *scanner) skip() json.RawMessage {
	first := s.peek()
	start, depth := s.at, 0
	for s.err == nil && s.at < len(s.text) {
		switch s.text[s.at] {
		case '"':
			if s.pass(); s.err != nil {
				return nil
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth < 0 {
			break
		}
		s.at++
		if depth == 0 && (first == '{' || first == '[' || first == '"') {
			return s.text[start:s.at]
		}
		if depth == 0 && s.at < len(s.text) && strings.IndexByte(",]} \n\r\t", s.text[s.at]) >= 0 {
			return s.text[start:s.at]
		}
	}
	s.fail("a value")
	return nil
}

// document gives the values of a tokenizer.json as they stand, and apart those
// of its model, nil where that is no object.
func document(text []byte) (steps, model map[string]json.RawMessage, err error) {
	s := &scanner{text: text}
	steps = s.members(func(key string) bool {
		if key != "model" || s.peek() != '{' {
			return false
		}
		model = s.members(func(string) bool { return false })
		return true
	})
	return steps, model, s.end()
}

// members gives the values of an object; own may read one itself.
func (s *scanner) members(own func(key string) bool) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	s.list('{', '}', func() {
		key := string(s.quoted())
		s.want(':')
		if s.err == nil && !own(key) {
			out[key] = s.skip()
		}
	})
	return out
}

// end says what was wrong, or that something follows.
func (s *scanner) end() error {
	if s.err == nil && s.peek() != 0 {
		s.fail("the end")
	}
	return s.err
}

// scanVocabulary reads an object of tokens and their ids.
func scanVocabulary(text []byte) (map[string]int, error) {
	type entry struct{ start, end, id int }
	var entries []entry
	var arena []byte // the tokens alone, so that the text is not kept
	s := &scanner{text: text}
	s.list('{', '}', func() {
		start := len(arena)
		arena = append(arena, s.quoted()...)
		s.want(':')
		entries = append(entries, entry{start, len(arena), s.number()})
	})
	if err := s.end(); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	tokens := string(arena)
	ids := make(map[string]int, len(entries))
	for _, e := range entries {
		ids[tokens[e.start:e.end]] = e.id
	}
	return ids, nil
}

// scanMerges reads merges in both forms, "a b" and ["a", "b"], and hands them
// to each with their rank.
func scanMerges(text []byte, each func(rank int, left, right []byte) error) error {
	rank := 0
	s := &scanner{text: text}
	s.list('[', ']', func() {
		left, right, err := s.merge()
		if err == nil && s.err == nil {
			err = each(rank, left, right)
		}
		if err != nil && s.err == nil {
			s.err = fmt.Errorf("merge %d, %w", rank+1, err)
		}
		rank++
	})
	return s.end()
}

func (s *scanner) merge() (left, right []byte, err error) {
	if s.peek() == '"' {
		line := s.quoted()
		var ok bool
		if left, right, ok = bytes.Cut(line, []byte(" ")); !ok || bytes.Contains(right, []byte(" ")) {
			return nil, nil, fmt.Errorf("%q, is not two tokens", line)
		}
		return left, right, nil
	}
	n := 0
	s.list('[', ']', func() {
		left, right = right, s.quoted()
		n++
	})
	if n != 2 && s.err == nil {
		return nil, nil, errors.New("is not two tokens")
	}
	return left, right, nil
}
