package tokenizer

import (
	"os"
	"testing"
)

// BenchmarkLoad reads the tokenizer.json that TOKENIZER_JSON names.
func BenchmarkLoad(b *testing.B) {
	path := os.Getenv("TOKENIZER_JSON")
	if path == "" {
		b.Skip("TOKENIZER_JSON names no file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
