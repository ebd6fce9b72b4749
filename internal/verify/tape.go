package verify

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// tape keeps what a program prints: the beginning, which holds what is
// asserted, and the end, which tells why it died. What lies between is dropped
// when it gets too long.
type tape struct {
	mu   sync.Mutex
	head []byte
	tail []byte
	gap  bool
}

const (
	headSize = 4 << 20
	tailSize = 64 << 10
)

func (t *tape) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(b), headSize-len(t.head))
	t.head = append(t.head, b[:n]...)
	t.tail = append(t.tail, b[n:]...)
	if over := len(t.tail) - tailSize; over > 0 {
		t.tail = append(t.tail[:0], t.tail[over:]...)
		t.gap = true
	}
	return len(b), nil
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gap {
		return string(t.head) + "\n[…]\n" + string(t.tail)
	}
	return string(t.head) + string(t.tail)
}

func (t *tape) lines() []string {
	return strings.Split(strings.ReplaceAll(t.String(), "\r", ""), "\n")
}

// last gives the last n lines that hold something and are no noise.
func (t *tape) last(n int, noise *regexp.Regexp) string {
	var kept []string
	for _, line := range slices.Backward(t.lines()) {
		line = strings.TrimRight(line, " ")
		if line == "" || noise != nil && noise.MatchString(line) {
			continue
		}
		if kept = append(kept, clip(line, 300)); len(kept) == n {
			break
		}
	}
	slices.Reverse(kept)
	return strings.Join(kept, "\n")
}
