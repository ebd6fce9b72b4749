package tokenizer

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What encoding/json reads is read alike; whatever else there is, it ends.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1,"b":[1,{"c":"]"}],"d":"\"\\"}`, `{"model":{"vocab":{"a":0,"\u00e9\"":1},"merges":[["a","b"],"a b"]},"x":null}`,
		`{"a":"`, `{"a":"\`, `{"a":[`, `{"a"`, `[`, ` { "a" : -1.5e3 , "b" : true } `, `{"a":1}}`, `{"a":{}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		steps, model, err := document(text)
		_, _ = scanVocabulary(text)
		_ = scanMerges(text, func(int, []byte, []byte) error { return nil })
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if model != nil {
			return
		}
		for key, value := range want {
			if got := steps[key]; !bytes.Equal(got, value) && bytes.Count(text, []byte(`"`+key+`"`)) == 1 {
				t.Errorf("%q: %q is %q, want %q", text, key, got, value)
			}
		}
	})
}
