package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A tokenizer that can't be followed exactly is refused, with the step that is
// unknown.
func TestRefused(t *testing.T) {
	const words = `"model":{"type":"WordLevel","vocab":{"[UNK]":0},"unk_token":"[UNK]"}`
	for text, want := range map[string]string{
		`{`:                           "unexpected end of JSON",
		`{"model":null}`:              "model: type",
		`{"model":{"type":"Neural"}}`: `model: type "Neural" is not supported`,
		`{"model":{"type":"WordLevel","vocab":{},"unk_token":"x"}}`:                                                                             `unk_token "x" is not in the vocabulary`,
		`{"model":{"type":"WordLevel","vocab":{"a":-1},"unk_token":"a"}}`:                                                                       `token "a" has id -1`,
		`{"model":{"type":"WordLevel","vocab":{"a":99999999},"unk_token":"a"}}`:                                                                 "the highest id is 99999999 of 1 tokens",
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}}`:                                                                       `merge 1, "a" and "b" to "ab": not all are in the vocabulary`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}}`:                                                                               `merge 1, "a", is not two tokens`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}}`:                                                                    "dropout 0.1 is for training",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"x"}}`:                                                                  `unk_token "x" is not in the vocabulary`,
		`{"model":{"type":"Unigram","vocab":[]}}`:                                                                                               "the vocabulary is empty",
		`{"model":{"type":"Unigram","vocab":[["a",-1]],"unk_id":3}}`:                                                                            "unk_id 3 is not in the vocabulary of 1",
		`{` + words + `,"normalizer":{"type":"Magic"}}`:                                                                                         `normalizer: type "Magic" is not supported`,
		`{` + words + `,"normalizer":{"lowercase":true}}`:                                                                                       "normalizer: it has no type",
		`{` + words + `,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]}}`:                                          `normalizer: 2 of its sequence: type "X"`,
		`{` + words + `,"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}}`:                                                 "precompiled_charsmap is truncated",
		`{` + words + `,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<x"},"behavior":"Isolated"}}`:                                     `pattern "(?<x"`,
		`{` + words + `,"pre_tokenizer":{"type":"Split","pattern":{"Glob":"*"},"behavior":"Isolated"}}`:                                         "neither String nor Regex",
		`{` + words + `,"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Torn"}}`:                                           `behavior "Torn" is not supported`,
		`{` + words + `,"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}}`:                                        `prepend_scheme "last"`,
		`{` + words + `,"pre_tokenizer":{"type":"FixedLength","length":0}}`:                                                                     "length 0 is less than 1",
		`{` + words + `,"decoder":{"type":"CTC"}}`:                                                                                              `decoder: type "CTC" is not supported`,
		`{` + words + `,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"special_tokens":{}}}`: `special token "x" is not in special_tokens`,
		`{` + words + `,"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}}}`:                                        "holds it 0 times",
		`{` + words + `,"added_tokens":[{"id":-2,"content":"x"}]}`:                                                                              `added_tokens: token "x" has id -2`,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwant  %q", text, err, want)
		}
	}
}

func TestNoUnknown(t *testing.T) {
	tok := parse(t, []byte(`{"model":{"type":"Unigram","vocab":[["a",-1],["b",-2]]}}`))
	if _, err := tok.Encode("abc", false); err == nil || !strings.Contains(err.Error(), `"c" is not in the vocabulary, which has no unk_id`) {
		t.Errorf("%v", err)
	}
	if ids, err := tok.Encode("ba", true); err != nil || !slices.Equal(ids, []int{1, 0}) {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestLookUp(t *testing.T) {
	tok := parse(t, fixtures(t)["llama3"].Tokenizer)
	id, ok := tok.ID("<|begin|>")
	token, _ := tok.Token(id)
	if !ok || token != "<|begin|>" || !tok.Special(id) || id >= tok.Size() {
		t.Errorf("<|begin|> is %d of %d, spelt %q", id, tok.Size(), token)
	}
	if id, ok := tok.ID("<mask>"); !ok || tok.Special(id) {
		t.Errorf("<mask> is %d, special", id)
	}
	if _, ok := tok.ID("no such token"); ok {
		t.Error("a token was made up")
	}
	for _, id := range []int{-1, tok.Size(), 1 << 40} {
		if token, ok := tok.Token(id); ok {
			t.Errorf("id %d is %q", id, token)
		}
		if text := tok.Decode([]int{id}, false); text != "" {
			t.Errorf("id %d decodes to %q", id, text)
		}
	}
}

func TestValid(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                    "plain",
		"\xff":                     "\ufffd",
		"a\xf0\x9f\x98b":           "a\ufffdb",           // the beginning of one character
		"\xf0\x9f\x98\xf0\x9f\x98": "\ufffd\ufffd",       // of two
		"\xc0\xaf":                 "\ufffd\ufffd",       // never the beginning of one
		"\xed\xa0\x80":             "\ufffd\ufffd\ufffd", // a surrogate
		"\xe2\x82":                 "\ufffd",
		"\x80\x80é":                "\ufffd\ufffdé",
		"real \ufffd":              "real \ufffd",
	} {
		if got := Valid(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// An emoji may arrive a byte a token, and bytes may never become one.
func TestStreamByBytes(t *testing.T) {
	tok := parse(t, fixtures(t)["llama2"].Tokenizer)
	byteID := func(b string) int {
		id, ok := tok.ID(b)
		if !ok {
			t.Fatalf("no token %s", b)
		}
		return id
	}
	s := tok.Stream(true)
	for _, step := range []struct{ token, want string }{
		{"<0xF0>", ""},
		{"<0x9F>", ""},
		{"<0x98>", ""},
		{"<0x80>", "😀"},
		{"<0xF0>", ""},
		{"<0x9F>", ""},
		{"<0xFF>", "\ufffd\ufffd"},
		{"<0xC3>", ""},
		{"<0xA9>", "é"},
		{"<0xE2>", ""},
	} {
		if got := s.Push(byteID(step.token)); got != step.want {
			t.Errorf("%s gives %q, want %q", step.token, got, step.want)
		}
	}
	if got := s.Flush(); got != "\ufffd" {
		t.Errorf("the end gives %q", got)
	}
	if got := s.Flush(); got != "" {
		t.Errorf("the end, again, gives %q", got)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, FileName)) {
		t.Errorf("%v", err)
	}
	if _, err := Load("../../internal/verify/tinymodel/safetensors"); err != nil {
		t.Error(err)
	}
}

// A long piece must not take quadratic time or more.
func BenchmarkLongWord(b *testing.B) {
	text, err := os.ReadFile("testdata/llama3.json")
	if err != nil {
		b.Fatal(err)
	}
	r, err := read[recorded](text)
	if err != nil {
		b.Fatal(err)
	}
	tok, err := Parse(r.Tokenizer)
	if err != nil {
		b.Fatal(err)
	}
	word := strings.Repeat("the", 30_000)
	b.SetBytes(int64(len(word)))
	for b.Loop() {
		if _, err := tok.Encode(word, false); err != nil {
			b.Fatal(err)
		}
	}
}
