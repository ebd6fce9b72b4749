package create

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"payload/fs/gguf"
	"payload/mlxrunner/tokenizer"
)

// LLAMA_CPP names llama.cpp's sources, which hold real vocabularies as GGUF
// files and what llama.cpp makes of hard texts with each.
func TestRealVocabularies(t *testing.T) {
	dir := os.Getenv("LLAMA_CPP")
	if dir == "" {
		t.Skip("NOT RUN: LLAMA_CPP names no sources: LLAMA_CPP=$(payload source --pristine llama.cpp)")
	}
	for _, name := range []string{"llama-bpe", "llama-spm", "qwen2", "gpt-2", "refact", "starcoder", "command-r", "phi-3"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "models", "ggml-vocab-"+name+".gguf")
			tok := tokenizerOf(t, path)
			texts, ids := recorded(t, path)
			for i, text := range texts {
				got, err := tok.Encode(text, false)
				if err != nil || !slices.Equal(got, ids[i]) {
					t.Errorf("%q is %v\nwant %v, %v", text, got, ids[i], err)
				}
			}
		})
	}
}

// tokenizerOf goes the way of an import, through the text of tokenizer.json.
func tokenizerOf(t *testing.T, path string) *tokenizer.Tokenizer {
	t.Helper()
	file, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	v, err := (&metadata{file: file}).vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v.tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func recorded(t *testing.T, path string) (texts []string, ids [][]int) {
	t.Helper()
	in, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	texts = strings.Split(string(in), "\n__ggml_vocab_test__\n")
	for line := range strings.Lines(string(out)) {
		var list []int
		for _, word := range strings.Fields(line) {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, n)
		}
		ids = append(ids, list)
	}
	if texts = texts[:min(len(texts), len(ids))]; len(texts) < 40 || len(texts) != len(ids) {
		t.Fatalf("%d texts and %d answers", len(texts), len(ids))
	}
	return texts, ids
}
