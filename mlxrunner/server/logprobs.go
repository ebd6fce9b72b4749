package server

import (
	"payload/mlxrunner/generate"
	"payload/mlxrunner/sample"
	"payload/mlxrunner/tokenizer"
)

// A tokenLog is what chat completions tell of a token.
type tokenLog struct {
	Token   string     `json:"token"`
	Logprob float64    `json:"logprob"`
	Bytes   []int      `json:"bytes"`
	Top     []tokenLog `json:"top_logprobs,omitempty"`
}

func (m *Model) logOf(l sample.Logprob) tokenLog {
	text := m.Tok.Adds(l.Token)
	out := tokenLog{Token: tokenizer.Valid(text), Logprob: finite(l.Logprob), Bytes: []int{}}
	for _, b := range []byte(text) {
		out.Bytes = append(out.Bytes, int(b))
	}
	return out
}

// logsOf tells of the tokens of a text. The one that ends it is none of them.
func (m *Model) logsOf(tokens []generate.Token) []tokenLog {
	out := []tokenLog{}
	for _, t := range tokens {
		if m.ends(t.ID) {
			continue
		}
		entry := m.logOf(sample.Logprob{Token: t.ID, Logprob: t.Logprob})
		entry.Top = []tokenLog{}
		for _, top := range t.Top {
			entry.Top = append(entry.Top, m.logOf(top))
		}
		out = append(out, entry)
	}
	return out
}

// A textLog is what completions tell of tokens.
type textLog struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // in characters, of the text told
}

func (l *textLog) add(more textLog) {
	l.Tokens, l.Logprobs = append(l.Tokens, more.Tokens...), append(l.Logprobs, more.Logprobs...)
	l.Top, l.Offsets = append(l.Top, more.Top...), append(l.Offsets, more.Offsets...)
}

// textLogOf tells of tokens that begin at a place of the text, and gives the
// place after them.
func (m *Model) textLogOf(tokens []generate.Token, at int) (textLog, int) {
	log := textLog{Tokens: []string{}, Logprobs: []float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	for _, t := range tokens {
		if m.ends(t.ID) {
			continue
		}
		text := m.Tok.Adds(t.ID)
		top := map[string]float64{}
		for _, l := range t.Top {
			top[tokenizer.Valid(m.Tok.Adds(l.Token))] = finite(l.Logprob)
		}
		log.add(textLog{[]string{tokenizer.Valid(text)}, []float64{finite(t.Logprob)}, []map[string]float64{top}, []int{at}})
		at += characters(text)
	}
	return log, at
}

// characters counts those that begin in text; the rest of one that began in a
// token before is none.
func characters(text string) (n int) {
	for i := range len(text) {
		if text[i]&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// finite is what JSON can hold of a logarithm; OpenAI's API gives -9999 for
// what is impossible.
func finite(x float64) float64 {
	if x > -9999 {
		return x
	}
	return -9999
}
