package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorded is a file of testdata, written by scripts/tokenizers/make.py: what
// the reference library does.
type recorded struct {
	Tokenizer json.RawMessage
	Texts     []struct {
		Text             string
		IDs, Special     []int
		Decoded, Skipped string
	}
	Decodes []struct {
		IDs  []int
		Text string
	}
}

// fixtures reads testdata or, for scripts/tokenizers/real.py, the folder that
// TOKENIZER_FIXTURES names.
func fixtures(t *testing.T) map[string]recorded {
	t.Helper()
	dir := os.Getenv("TOKENIZER_FIXTURES")
	if dir == "" {
		dir = "testdata"
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(paths) == 0 || dir == "testdata" && len(paths) < 20 {
		t.Fatalf("%d fixtures, %v", len(paths), err)
	}
	all := map[string]recorded{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var r recorded
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = r
	}
	return all
}

func parse(t *testing.T, text []byte) *Tokenizer {
	t.Helper()
	tok, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestParity holds every id and every text against the reference library's.
func TestParity(t *testing.T) {
	for name, r := range fixtures(t) {
		t.Run(name, func(t *testing.T) {
			tok := parse(t, r.Tokenizer)
			for _, c := range r.Texts {
				ids, err := tok.Encode(c.Text, false)
				if err != nil || !slices.Equal(ids, c.IDs) {
					t.Errorf("%q is %v\nwant    %v\nas %q\nwant %q, %v", c.Text, ids, c.IDs, tok.tokens(ids, false), tok.tokens(c.IDs, false), err)
				}
				special, err := tok.Encode(c.Text, true)
				if err != nil || !slices.Equal(special, c.Special) {
					t.Errorf("%q with special tokens is %v, want %v, %v", c.Text, special, c.Special, err)
				}
				if got := tok.Decode(c.Special, false); got != c.Decoded {
					t.Errorf("%v decodes to %q, want %q", c.Special, got, c.Decoded)
				}
				if got := tok.Decode(c.Special, true); got != c.Skipped {
					t.Errorf("%v without special tokens decodes to %q, want %q", c.Special, got, c.Skipped)
				}
			}
			for _, c := range r.Decodes {
				if got := tok.Decode(c.IDs, false); got != c.Text {
					t.Errorf("%v decodes to %q, want %q", c.IDs, got, c.Text)
				}
			}
		})
	}
}

// TestStream holds that what is streamed is what is decoded at once, id by id,
// and that no part of a character is given.
func TestStream(t *testing.T) {
	for name, r := range fixtures(t) {
		t.Run(name, func(t *testing.T) {
			tok := parse(t, r.Tokenizer)
			for _, c := range r.Texts {
				for _, skip := range []bool{false, true} {
					s := tok.Stream(skip)
					var out strings.Builder
					for _, id := range c.Special {
						part := s.Push(id)
						if strings.ContainsRune(part, '\ufffd') && !strings.ContainsRune(c.Text, '\ufffd') {
							t.Errorf("%q: half a character was given: %q", c.Text, part)
						}
						out.WriteString(part)
					}
					out.WriteString(s.Flush())
					if want := tok.Decode(c.Special, skip); out.String() != want {
						t.Errorf("%v is streamed as %q, decoded as %q", c.Special, out.String(), want)
					}
				}
			}
		})
	}
}

// TestStreamOfAnything streams random ids, broken characters among them.
// Byte-level vocabularies have one decoding; with byte tokens a broken run
// keeps what was whole, so no more than it may be lost.
func TestStreamOfAnything(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for name, r := range fixtures(t) {
		tok := parse(t, r.Tokenizer)
		_, fallback := tok.ID("<0x41>")
		for range 200 {
			ids := make([]int, 1+chance.IntN(60))
			for i := range ids {
				ids[i] = chance.IntN(tok.Size())
			}
			s := tok.Stream(true)
			var out strings.Builder
			for i, id := range ids {
				out.WriteString(s.Push(id))
				if rest := len(tok.decodeRaw(ids[:i+1])) - len(out.String()); !fallback && rest > 3 && !strings.ContainsRune(out.String(), '\ufffd') {
					t.Fatalf("%s: %d bytes are held back after %v", name, rest, ids[:i+1])
				}
			}
			out.WriteString(s.Flush())
			want := tok.Decode(ids, true)
			if fallback {
				want = Valid(tok.decodeRaw(ids))
			}
			if out.String() != want {
				t.Fatalf("%s: %v is streamed as %q, decoded as %q", name, ids, out.String(), want)
			}
		}
	}
}

func (t *Tokenizer) decodeRaw(ids []int) string {
	return strings.Join(t.decode(t.tokens(ids, true), true), "")
}

// TestSpeed tells how fast the longest text of each is encoded.
func TestSpeed(t *testing.T) {
	for name, r := range fixtures(t) {
		tok := parse(t, r.Tokenizer)
		longest := ""
		for _, c := range r.Texts {
			if len(c.Text) > len(longest) {
				longest = c.Text
			}
		}
		began := time.Now()
		ids, err := tok.Encode(longest, false)
		if err != nil || len(ids) == 0 {
			t.Errorf("%s: %d ids, %v", name, len(ids), err)
		}
		t.Logf("%s: %.2f MB/s for %d tokens", name, float64(len(longest))/1e6/time.Since(began).Seconds(), len(ids))
	}
}

func TestConcurrentUse(t *testing.T) {
	r := fixtures(t)["llama3"]
	tok := parse(t, r.Tokenizer)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for _, c := range r.Texts {
				if ids, err := tok.Encode(c.Text, false); err != nil || !slices.Equal(ids, c.IDs) {
					t.Errorf("%q: %v, %v", c.Text, ids, err)
				}
			}
		})
	}
	wait.Wait()
}
