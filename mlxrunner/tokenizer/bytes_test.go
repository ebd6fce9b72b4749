package tokenizer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// What tokens add, one behind the other, is what they decode to.
func TestBytes(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for name, r := range fixtures(t) {
		tok := parse(t, r.Tokenizer)
		added, other, err := tok.Bytes()
		if (name == "clip") != errors.Is(err, ErrNoBytes) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if len(added) != tok.Size() {
			t.Errorf("%s: %d ids, want %d", name, len(added), tok.Size())
		}
		var ids []int
		for id, text := range added {
			if text != nil && !slices.Contains(other, id) {
				ids = append(ids, id)
			}
		}
		for range 100 {
			if len(ids) == 0 {
				break
			}
			picked := []int{ids[chance.IntN(len(ids))]}
			for range 20 {
				if id := chance.IntN(len(added)); added[id] != nil {
					picked = append(picked, id)
				}
			}
			var want strings.Builder
			for _, id := range picked {
				want.Write(added[id])
			}
			if got := tok.decodeRaw(picked); got != want.String() {
				t.Fatalf("%s: %v is %q, its tokens add %q", name, picked, got, want.String())
			}
		}
		t.Logf("%s: %d ids, %d add something, %d something else at the beginning", name, len(added), len(ids)+len(other), len(other))
	}
}
