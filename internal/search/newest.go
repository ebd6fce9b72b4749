package search

// outcome is what a probe says of a ref.
type outcome int

// The outcomes. A ref that is out tells nothing: no source has it, or what was
// asked can't be tried there.
const (
	good outcome = iota
	bad
	out
)

// asked is a search over refs 0 to n-1, before which (at -1) all is good. What
// was asked once isn't asked again.
type asked struct {
	n     int
	known map[int]outcome
	ask   func(i int) (outcome, error)
	count int // of refs asked that weren't out
}

func newAsked(n int, ask func(i int) (outcome, error)) *asked {
	return &asked{n: n, known: map[int]outcome{}, ask: ask}
}

func (a *asked) at(i int) (outcome, error) {
	if o, ok := a.known[i]; ok {
		return o, nil
	}
	o, err := a.ask(i)
	if err != nil {
		return o, err
	}
	a.known[i] = o
	if o != out {
		a.count++
	}
	return o, nil
}

// between gives the ref to ask next, of those after lo and before hi: the
// middle one, or the nearest to it that isn't out. It is -1 when none is left.
func between(lo, hi int, isOut func(int) bool) int {
	mid := lo + (hi-lo)/2
	for d := 0; mid-d > lo || mid+d < hi; d++ {
		for _, i := range []int{mid - d, mid + d} {
			if i > lo && i < hi && !isOut(i) {
				return i
			}
		}
	}
	return -1
}

// narrow halves the way from a good ref to a bad one until they are next to
// each other, or only refs that are out lie between them.
func (a *asked) narrow(lo, hi int) (lastGood, firstBad int, err error) {
	for {
		i := between(lo, hi, func(i int) bool { return a.known[i] == out && a.has(i) })
		if i < 0 {
			return lo, hi, nil
		}
		switch o, err := a.at(i); {
		case err != nil:
			return lo, hi, err
		case o == good:
			lo = i
		case o == bad:
			hi = i
		}
	}
}

func (a *asked) has(i int) bool { _, ok := a.known[i]; return ok }

// newest finds the newest good ref; it's -1 where none is. broken is the bad
// one right after it; n where nothing is.
//
// The newest ref is asked first, then the way down to the good start is halved.
// Breakage comes and goes, so that finds the end of some good stretch, perhaps
// not of the last. What is left of the probes is therefore spent on the refs
// right after the break, nearest first: where one is good again, the search goes
// on from there to the next ref known to be bad. A good stretch that lies
// wholly between bad refs that were asked stays unseen.
func (a *asked) newest(probes int) (best, broken int, err error) {
	hi := a.n
	for hi == a.n || a.known[hi] == out {
		next := hi - 1
		if next < 0 {
			return -1, a.n, nil
		}
		o, err := a.at(next)
		if err != nil || o == good {
			return next, a.n, err
		}
		hi = next
	}
	lo := -1
	for {
		if lo, hi, err = a.narrow(lo, hi); err != nil {
			return lo, hi, err
		}
		again, err := a.beyond(hi, probes)
		if err != nil || again < 0 {
			return lo, hi, err
		}
		lo, hi = again, a.nextBad(again)
	}
}

// beyond looks for a ref after a break that is good again.
func (a *asked) beyond(broken, probes int) (int, error) {
	for i := broken + 1; i < a.n; i++ {
		if !a.has(i) && a.count >= probes {
			continue
		}
		if o, err := a.at(i); err != nil || o == good {
			return i, err
		}
	}
	return -1, nil
}

func (a *asked) nextBad(from int) int {
	for i := from + 1; i < a.n; i++ {
		if a.known[i] == bad && a.has(i) {
			return i
		}
	}
	return a.n - 1
}

// firstBad finds the first ref of the last known bad stretch's beginning: from
// what is known already, the good ref before the earliest bad one is narrowed.
func (a *asked) firstBad() (lastGood, firstBad int, err error) {
	hi := a.n
	for i := a.n - 1; i >= 0; i-- {
		if a.has(i) && a.known[i] == bad {
			hi = i
		}
	}
	if hi == a.n {
		return a.n - 1, a.n, nil
	}
	lo := -1
	for i := range hi {
		if a.has(i) && a.known[i] == good {
			lo = i
		}
	}
	return a.narrow(lo, hi)
}
