package search

import (
	"slices"
	"testing"
)

// over makes a search over refs that are as said.
func over(refs []outcome, order *[]int) *asked {
	return newAsked(len(refs), func(i int) (outcome, error) {
		*order = append(*order, i)
		return refs[i], nil
	})
}

func refs(n int, bads ...int) []outcome {
	list := make([]outcome, n)
	for _, i := range bads {
		list[i] = bad
	}
	return list
}

func from(first, n int) (list []int) {
	for i := first; i < n; i++ {
		list = append(list, i)
	}
	return list
}

// Wherever the break of 200 refs is, it takes ten probes at most, and the
// break's first ref is known too.
func TestNewestOf200(t *testing.T) {
	for first := range 200 {
		var order []int
		s := over(refs(200, from(first, 200)...), &order)
		best, broken, err := s.newest(Probes)
		if err != nil || best != first-1 || broken != first || len(order) > Probes {
			t.Errorf("break at %d: best %d, broken %d after %d probes %v; %v", first, best, broken, len(order), order, err)
		}
		before := len(order)
		if last, bad, _ := s.firstBad(); last != first-1 || bad != first || len(order) != before {
			t.Errorf("break at %d: %d is the first bad, with %d more probes", first, bad, len(order)-before)
		}
	}
}

// Breakage comes and goes.
func TestNewestLooksBeyondABreak(t *testing.T) {
	for name, c := range map[string]struct {
		n            int
		bads         []int
		best, broken int
	}{
		"all good":            {10, nil, 9, 10},
		"all bad":             {10, from(0, 10), -1, 0},
		"healed at the end":   {10, []int{4, 5}, 9, 10},
		"one bad, then more":  {10, []int{4, 7, 8, 9}, 6, 7},
		"two good in between": {10, []int{2, 3, 4, 7, 8, 9}, 6, 7},
		"good right after":    {200, slices.Concat([]int{99}, from(101, 200)), 100, 101},
		"nothing":             {0, nil, -1, 0},
	} {
		var order []int
		best, broken, err := over(refs(c.n, c.bads...), &order).newest(Probes)
		if err != nil || best != c.best || broken != c.broken {
			t.Errorf("%s: best %d, broken %d, want %d, %d; probes %v; %v", name, best, broken, c.best, c.broken, order, err)
		}
		if slices.Sort(order); len(slices.Compact(order)) != len(order) {
			t.Errorf("%s: something was asked twice: %v", name, order)
		}
	}
}

// A ref that tells nothing is gone round.
func TestNewestGoesRoundWhatIsOut(t *testing.T) {
	list := refs(20, from(12, 20)...)
	for _, i := range []int{19, 9, 10, 11, 13} {
		list[i] = out
	}
	var order []int
	best, broken, err := over(list, &order).newest(Probes)
	if err != nil || best != 8 || broken != 12 {
		t.Errorf("best %d, broken %d, probes %v; %v", best, broken, order, err)
	}
	order = nil
	if best, broken, _ := over([]outcome{out, out}, &order).newest(Probes); best != -1 || broken != 2 {
		t.Errorf("all out: %d, %d", best, broken)
	}
}
