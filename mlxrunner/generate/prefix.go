package generate

import (
	"slices"

	"payload/mlx"
	"payload/mlxrunner/cache"
)

// LeastPrefix is from how many tokens on a common beginning is taken over from
// an earlier request: it costs a copy, which fewer are not worth.
const LeastPrefix = 16

// A prefix is what a request left behind: its tokens, and what the models
// remember of them.
type prefix struct {
	tokens []int
	memories
}

// memories are what the models remember of one text. That of the draft may end
// before; nil is none.
type memories struct {
	kv, draft *cache.Cache
}

func (m memories) free() {
	for _, c := range []*cache.Cache{m.kv, m.draft} {
		if c != nil {
			c.Free()
		}
	}
}

func (m memories) bytes() int64 {
	n := m.kv.Bytes()
	if m.draft != nil {
		n += m.draft.Bytes()
	}
	return n
}

// common is how many tokens a and b begin with alike.
func common(a, b []int) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// usable is how many tokens of a prompt need not be computed again with p: all
// but the last at most, and those that p can be taken back to.
func (p *prefix) usable(prompt []int) int {
	n := common(p.tokens, prompt[:len(prompt)-1])
	if n < LeastPrefix || !p.kv.Continues(len(prompt)) || p.kv.CanTrim(p.kv.Offset()-n) != nil {
		return 0
	}
	return n
}

// remembered finds what has the most of a prompt: what an earlier request left,
// by its place, or else a text that is under way, with a place of -1.
func (r *Runner) remembered(prompt []int) (best *prefix, at, most int) {
	at = -1
	for i, p := range r.prefixes {
		if n := p.usable(prompt); n > most {
			best, at, most = p, i, n
		}
	}
	for _, g := range r.under {
		// What is being computed was not read yet, and what was read last not computed.
		p := &prefix{g.text[:min(len(g.text), g.kv.Offset())], g.memories}
		if n := p.usable(prompt); n > most {
			best, at, most = p, -1, n
		}
	}
	return best, at, most
}

// recall gives what is remembered of the beginning of a prompt. What an earlier
// request left is taken as it is where the prompt goes on from its end, as a
// conversation does; else it stays for others and a fork of it is given, of the
// draft's memory only where that will be written to.
func (r *Runner) recall(s *mlx.Scope, prompt []int, draft bool) (memories, error) {
	p, at, most := r.remembered(prompt)
	if p == nil {
		kv, err := r.empty()
		return memories{kv: kv}, err
	}
	if at >= 0 {
		r.prefixes = slices.Delete(r.prefixes, at, at+1)
		if most == len(p.tokens) {
			return p.memories, nil
		}
		r.prefixes = append(r.prefixes, p) // used last
	}
	kv, err := p.kv.Fork(s, most)
	if err != nil {
		return memories{}, err
	}
	m := memories{kv: kv}
	if draft && p.draft != nil {
		// A draft that can't be taken back so far reads the prompt again.
		if draft, err := p.draft.Fork(s, min(most, p.draft.Offset())); err == nil {
			m.draft = draft
		}
	}
	return m, s.Err()
}

// keep leaves what is remembered of text for requests to come, as far as that
// is allowed, and owns it from here on. A fork that nothing was added to is not
// kept: it says nothing new, and would hold what is counted as another's.
func (r *Runner) keep(text []int, m memories) {
	if m.draft != nil && m.draft.Shares() {
		m.draft.Free()
		m.draft = nil
	}
	n := m.kv.Offset()
	if m.kv.Shares() || r.Prefixes <= 0 || n < LeastPrefix || n > len(text) || m.draft != nil && m.draft.Offset() > n {
		m.free()
		return
	}
	p := &prefix{slices.Clone(text[:n]), m}
	// Of two where one can be taken back to the other, the longer one is enough.
	r.prefixes = slices.DeleteFunc(r.prefixes, func(q *prefix) bool {
		switch {
		case p.covers(q):
			q.free()
		case q.covers(p):
			p.free()
			p = q
		default:
			return false
		}
		return true
	})
	r.prefixes = append(r.prefixes, p)
	for len(r.prefixes) > r.Prefixes {
		r.evict()
	}
}

// covers tells whether q can be had from p.
func (p *prefix) covers(q *prefix) bool {
	return common(p.tokens, q.tokens) == len(q.tokens) && p.kv.Turn == 0 && p.kv.CanTrim(len(p.tokens)-len(q.tokens)) == nil
}

// evict frees what was used the longest ago, and tells whether there was any.
func (r *Runner) evict() bool {
	if len(r.prefixes) == 0 {
		return false
	}
	r.prefixes[0].free()
	r.prefixes = slices.Delete(r.prefixes, 0, 1)
	return true
}

// Forget frees what is kept of earlier requests.
func (r *Runner) Forget() {
	for r.evict() {
	}
}

// Kept tells how many earlier requests are remembered, and their size in bytes.
// As all of a Runner, it is called on the models' thread.
func (r *Runner) Kept() (requests int, bytes int64) {
	for _, p := range r.prefixes {
		bytes += p.bytes()
	}
	return len(r.prefixes), bytes
}
