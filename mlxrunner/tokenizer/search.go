package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dlclark/regexp2"
)

// search is what a step looks for: a text or a regular expression. The
// expressions are written for an engine with lookahead (Oniguruma), which Go's
// own lacks.
type search struct {
	text string
	re   *regexp2.Regexp
}

func (s *search) UnmarshalJSON(text []byte) error {
	var form struct{ String, Regex *string }
	if err := json.Unmarshal(text, &form); err != nil {
		return err
	}
	switch {
	case form.String != nil && *form.String != "":
		s.text = *form.String
	case form.Regex != nil:
		re, err := compile(*form.Regex)
		if err != nil {
			return err
		}
		s.re = re
	default:
		return fmt.Errorf("pattern %s is neither String nor Regex", text)
	}
	return nil
}

func compile(pattern string) (*regexp2.Regexp, error) {
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return re, nil
}

// span is a stretch of a text, in bytes; match says whether it was found or
// lies between two finds.
type span struct {
	start, end int
	match      bool
}

// spans covers text with what is found and what lies between.
func (s search) spans(text string) ([]span, error) {
	if s.re == nil {
		return s.literal(text), nil
	}
	var out []span
	done := 0
	put := func(start, end int) {
		if done < start {
			out = append(out, span{done, start, false})
		}
		if start < end {
			out = append(out, span{start, end, true})
		}
		done = max(done, end)
	}
	// The engine counts characters; texts are cut in bytes.
	runes := []rune(text)
	at, offset := 0, 0
	bytesAt := func(index int) int {
		for ; at < index; at++ {
			offset += len(string(runes[at]))
		}
		return offset
	}
	m, err := s.re.FindRunesMatch(runes)
	for ; err == nil && m != nil; m, err = s.re.FindNextMatch(m) {
		start := bytesAt(m.Index)
		put(start, bytesAt(m.Index+m.Length))
	}
	if err != nil {
		return nil, err
	}
	if done < len(text) {
		out = append(out, span{done, len(text), false})
	}
	return out, nil
}

func (s search) literal(text string) []span {
	var out []span
	for done := 0; done < len(text); {
		i := strings.Index(text[done:], s.text)
		if i < 0 {
			return append(out, span{done, len(text), false})
		}
		if i > 0 {
			out = append(out, span{done, done + i, false})
		}
		out = append(out, span{done + i, done + i + len(s.text), true})
		done += i + len(s.text)
	}
	return out
}

// replace puts content, taken as it is, in place of every find. A text that the
// engine gives up on stays as it is: no expression of a replacement backtracks.
func (s search) replace(text, content string) string {
	if s.re == nil {
		return strings.ReplaceAll(text, s.text, content)
	}
	spans, err := s.spans(text)
	if err != nil {
		return text
	}
	var out strings.Builder
	for _, found := range spans {
		if found.match {
			out.WriteString(content)
			continue
		}
		out.WriteString(text[found.start:found.end])
	}
	return out.String()
}
