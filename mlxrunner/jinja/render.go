package jinja

import (
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
)

// Render writes the template with these names set. Values are what FromJSON
// and NewDict give, and plain nil, bool, int, float64 and string. The clock is
// what strftime_now tells.
func (t *Template) Render(names *Dict, clock time.Time) (text string, err error) {
	defer recovered(&err)
	r := &rendering{clock: func(format string) string { return strftime.Format(format, clock) }}
	s := &scope{names: map[string]any{}, rendering: r}
	for _, key := range names.keys {
		s.names[key.(string)] = names.values[key]
	}
	var out strings.Builder
	runAll(t.body, s, &out)
	return out.String(), nil
}

// maxRange is the longest range the reference's sandbox gives.
const maxRange = 100_000

// globals are the names that are there without being set.
var globals map[string]func(s *scope) any

func init() {
	globals = map[string]func(s *scope) any{
		"range": func(*scope) any { return function(rangeOf) },
		"dict":  func(*scope) any { return function(dictOf) },
		"namespace": func(*scope) any {
			return function(func(p []any, n *Dict) any { return &namespace{dictOf(p, n).(*Dict)} })
		},
		"cycler": func(*scope) any { return function(cycler) },
		"joiner": func(*scope) any { return function(joiner) },
		"raise_exception": func(*scope) any {
			return function(func(plain []any, _ *Dict) any {
				message := ""
				if len(plain) > 0 {
					message = toString(plain[0])
				}
				panic(&Error{Reason: message, Raised: true})
			})
		},
		"strftime_now": func(s *scope) any {
			return function(func(plain []any, _ *Dict) any {
				if len(plain) != 1 {
					fail("strftime_now takes a format")
				}
				return s.clock(toString(plain[0]))
			})
		},
	}
}

func rangeOf(plain []any, _ *Dict) any {
	bounds := []int{0, 0, 1}
	if len(plain) == 0 || len(plain) > 3 {
		fail("range takes 1 to 3 numbers, it is given %d", len(plain))
	}
	for i, v := range plain {
		n, ok := v.(int)
		if !ok {
			refuse(v)
			fail("range goes by int, not by %s", typeName(v))
		}
		bounds[i] = n
	}
	if len(plain) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, end, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		fail("the step of a range is 0")
	}
	out := NewList()
	for i := start; step > 0 && i < end || step < 0 && i > end; i += step {
		if len(out.Items) == maxRange {
			fail("a range of more than %d numbers", maxRange)
		}
		out.Items = append(out.Items, i)
	}
	return out
}

// dictOf makes a dictionary from another, or from pairs, and names.
func dictOf(plain []any, named *Dict) any {
	out := NewDict()
	for _, v := range plain {
		if d, ok := v.(*Dict); ok {
			for _, key := range d.keys {
				out.Set(key, d.values[key])
			}
			continue
		}
		for _, p := range items(v) {
			two := items(p)
			if len(two) != 2 {
				fail("a pair of a dict has %d values", len(two))
			}
			hashable(two[0])
			out.Set(two[0], two[1])
		}
	}
	for _, key := range named.keys {
		out.Set(key, named.values[key])
	}
	return out
}

func cycler(plain []any, _ *Dict) any {
	if len(plain) == 0 {
		fail("cycler has nothing to go through")
	}
	at := 0
	d := NewDict()
	d.Set("next", function(func([]any, *Dict) any {
		v := plain[at]
		at = (at + 1) % len(plain)
		d.Set("current", plain[at])
		return v
	}))
	d.Set("reset", function(func([]any, *Dict) any {
		at = 0
		d.Set("current", plain[0])
		return nil
	}))
	d.Set("current", plain[0])
	return &namespace{d}
}

func joiner(plain []any, _ *Dict) any {
	sep := any(", ")
	if len(plain) > 0 {
		sep = plain[0]
	}
	used := false
	return function(func([]any, *Dict) any {
		if !used {
			used = true
			return ""
		}
		return sep
	})
}
