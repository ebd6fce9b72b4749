package generate

import (
	"encoding/json"
	"testing"

	"payload/mlxrunner/tokenizer"
)

// tokens makes a tokenizer of words, by their ids; <0x..> are bytes.
func tokens(t *testing.T, words ...string) *tokenizer.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for id, word := range words {
		vocab[word] = id
	}
	text, err := json.Marshal(map[string]any{
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}, "byte_fallback": true},
		"decoder": map[string]any{"type": "Sequence", "decoders": []any{
			map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
