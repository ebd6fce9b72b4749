package generate

import "strings"

// A stopper lets text through up to the first of some strings. What may yet
// become one is held back, however many pieces it comes in.
type stopper struct {
	stops []string
	held  string
}

// push adds text and gives what is sure to lie before any stop, and the stop
// that was reached. Nothing may be pushed after.
func (p *stopper) push(text string) (sure, stop string) {
	p.held += text
	first := -1
	for _, s := range p.stops {
		// Of two that begin at one place the longer is no less a stop: text ends there.
		if at := strings.Index(p.held, s); at >= 0 && (first < 0 || at < first) {
			first, stop = at, s
		}
	}
	if first >= 0 {
		sure, p.held = p.held[:first], ""
		return sure, stop
	}
	keep := p.unsure()
	sure, p.held = p.held[:len(p.held)-keep], p.held[len(p.held)-keep:]
	return sure, ""
}

// unsure is the length of the longest end of what is held that begins a stop.
func (p *stopper) unsure() int {
	longest := 0
	for _, s := range p.stops {
		for n := min(len(s)-1, len(p.held)); n > longest; n-- {
			if strings.HasSuffix(p.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// flush gives what was held back: the text ended before it became a stop.
func (p *stopper) flush() string {
	held := p.held
	p.held = ""
	return held
}
