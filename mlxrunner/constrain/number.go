package constrain

import "fmt"

const (
	// maxDigits is how many digits a number has before the point, and behind
	// it; a bound with more digits allows as many as it has.
	maxDigits = 20
	// maxPower is how many digits an exponent has.
	maxPower = 3
)

// A bound is the least or the greatest number.
type bound struct {
	decimal
	open bool // it is not among them
}

// A span is the numbers between two bounds, nil for none.
type span struct {
	low, high *bound
	whole     bool // integers
}

// String names the numbers.
func (s span) String() string {
	out := "fractions too"
	if s.whole {
		out = "integers"
	}
	for _, at := range []*bound{s.low, s.high} {
		if at == nil {
			out += " any"
		} else {
			out += fmt.Sprintf(" %s open %t", at.decimal, at.open)
		}
	}
	return out
}

// narrow takes the tighter of two bounds; side is 1 for lower ones.
func narrow(a, b *bound, side int) *bound {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	order := a.compare(b.decimal) * side
	if order > 0 || order == 0 && a.open {
		return a
	}
	return b
}

// The parts of a number that was begun.
const (
	atStart = iota
	afterSign
	isZero // before the point, where no digit may follow
	inWhole
	afterPoint
	inPart
	afterE
	afterESign
	inPower
)

// Where the digits read lie against those of a bound.
const (
	same = iota
	less
	more
)

// dfa makes the automaton of a span's numbers. Its states are sets of one: sign,
// part, digits of the part, and where the number lies against both bounds.
func (s span) dfa(b *budget) dfa {
	digits, fraction := maxDigits, maxDigits
	for _, at := range []*bound{s.low, s.high} {
		if at != nil {
			digits, fraction = max(digits, len(at.whole)+1), max(fraction, len(at.part)+1)
		}
	}
	return minimal(explore(b, []int32{0, atStart, 0, same, same}, s.final,
		func(_ []int32, cut *cuts) {
			for c := '+'; c <= 'f'; c++ {
				cut[c] = true
			}
		},
		func(at []int32, c byte) []int32 { return s.next(at, c, digits, fraction) }))
}

// sides are the bounds of the digits of a number with a sign.
func (s span) sides(negative bool) (low, high *bound, possible bool) {
	zero := decimal{whole: "0"}
	if !negative {
		if s.low != nil && !s.low.negative {
			low = s.low
		}
		return low, s.high, s.high == nil || !s.high.negative
	}
	low = &bound{zero, true} // there is no -0
	if s.high != nil && s.high.negative {
		low = s.high
	}
	if s.low != nil {
		high = s.low
	}
	return low, high, s.low == nil || s.low.negative
}

func (s span) final(at []int32) bool {
	negative, part, n := at[0] == 1, at[1], int(at[2])
	low, high, _ := s.sides(negative)
	switch part {
	case isZero, inWhole:
		return above(low, ended(low, at[3], n)) && below(high, ended(high, at[4], n))
	case inPart:
		return above(low, endedPart(low, at[3], n)) && below(high, endedPart(high, at[4], n))
	case inPower:
		return true
	}
	return false
}

func above(low *bound, order int32) bool {
	return low == nil || order == more || order == same && !low.open
}

func below(high *bound, order int32) bool {
	return high == nil || order == less || order == same && !high.open
}

// ended is the order when n digits are all that there is.
func ended(b *bound, order int32, n int) int32 {
	order = atPoint(b, order, n)
	if b != nil && order == same && b.part != "" {
		return less
	}
	return order
}

// atPoint is the order when n digits are all that there is before the point.
func atPoint(b *bound, order int32, n int) int32 {
	switch {
	case b == nil:
		return same
	case n < len(b.whole):
		return less
	case n > len(b.whole):
		return more
	}
	return order
}

func endedPart(b *bound, order int32, n int) int32 {
	if b != nil && order == same && n < len(b.part) {
		return less
	}
	return order
}

// compare is the order with one more digit; digits are those of the bound.
func compare(digits string, n int, c byte, order int32) int32 {
	if order != same {
		return order
	}
	have := byte('0')
	if n < len(digits) {
		have = digits[n]
	}
	switch {
	case c < have:
		return less
	case c > have:
		return more
	}
	return same
}

func (b *bound) digits() (whole, part string) {
	if b == nil {
		return "", ""
	}
	return b.whole, b.part
}

func (s span) next(at []int32, c byte, digits, fraction int) []int32 {
	negative, part, n := at[0], at[1], int(at[2])
	low, high, possible := s.sides(negative == 1)
	lowWhole, lowPart := low.digits()
	highWhole, highPart := high.digits()
	to := func(part int32, n int, low, high int32) []int32 {
		return []int32{negative, part, int32(n), low, high}
	}
	digit := c >= '0' && c <= '9'
	exponent := !s.whole && s.low == nil && s.high == nil
	switch part {
	case atStart, afterSign:
		if c == '-' && part == atStart {
			negative = 1
			return to(afterSign, 0, same, same)
		}
		if !digit || !possible {
			return nil
		}
		part = inWhole
		if c == '0' {
			part = isZero
		}
		return to(part, 1, compare(lowWhole, 0, c, same), compare(highWhole, 0, c, same))
	case isZero, inWhole:
		if digit && part == inWhole && n < digits {
			return to(inWhole, n+1, compare(lowWhole, n, c, at[3]), compare(highWhole, n, c, at[4]))
		}
		if c == '.' && !s.whole {
			return to(afterPoint, 0, atPoint(low, at[3], n), atPoint(high, at[4], n))
		}
	case afterPoint, inPart:
		if digit && n < fraction {
			return to(inPart, n+1, compare(lowPart, n, c, at[3]), compare(highPart, n, c, at[4]))
		}
	case afterE, afterESign, inPower:
		if (c == '+' || c == '-') && part == afterE {
			return to(afterESign, 0, same, same)
		}
		if digit && n < maxPower {
			return to(inPower, n+1, same, same)
		}
		return nil
	}
	if (c == 'e' || c == 'E') && exponent && part != afterPoint {
		return to(afterE, 0, same, same)
	}
	return nil
}
