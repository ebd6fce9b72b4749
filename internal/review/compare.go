package review

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"payload/internal/cmakerun"
)

// difference is what happened to one item.
type difference struct {
	change   string // added, removed, renamed, changed
	old, new *item
	attrs    []string // that changed, sorted
}

// compare matches the items of one class at both sides.
func compare(was, is []item) []difference {
	was, is = merge(was), merge(is)
	now := map[string]int{}
	for i, it := range is {
		now[it.identity()] = i
		for _, alt := range it.alt {
			key := item{class: it.class, scope: it.scope, name: alt}.identity()
			if _, taken := now[key]; !taken {
				now[key] = i
			}
		}
	}
	var list []difference
	matched := map[int]bool{}
	var gone []int
	for i := range was {
		n, ok := now[was[i].identity()]
		for _, alt := range was[i].alt {
			if !ok {
				n, ok = now[item{class: was[i].class, scope: was[i].scope, name: alt}.identity()]
			}
		}
		if !ok {
			gone = append(gone, i)
			continue
		}
		matched[n] = true
		if was[i].class.rule.Find == "files" && was[i].name != is[n].name {
			list = append(list, difference{"renamed", &was[i], &is[n], nil}) // git compared the contents
			continue
		}
		if attrs := changedAttrs(was[i], is[n]); len(attrs) > 0 {
			list = append(list, difference{"changed", &was[i], &is[n], attrs})
		}
		list = append(list, spellings(was[i], is[n])...)
	}
	var came []int
	for i := range is {
		if !matched[i] {
			came = append(came, i)
		}
	}
	gone, came = moved(was, is, gone, came)
	renames := renamed(was, is, gone, came)
	for _, i := range gone {
		if n, ok := renames[i]; ok {
			list = append(list, difference{"renamed", &was[i], &is[n], changedAttrs(was[i], is[n])})
		} else {
			list = append(list, difference{"removed", &was[i], nil, nil})
		}
	}
	taken := slices.Collect(maps.Values(renames))
	for _, i := range came {
		if !slices.Contains(taken, i) {
			list = append(list, difference{"added", nil, &is[i], nil})
		}
	}
	return list
}

func changedAttrs(a, b item) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(a.attrs)) {
		if a.attrs[key] != b.attrs[key] {
			list = append(list, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b.attrs)) {
		if _, ok := a.attrs[key]; !ok && b.attrs[key] != "" {
			list = append(list, key)
		}
	}
	return slices.DeleteFunc(list, func(key string) bool {
		// A default that isn't known at one side is no news.
		return key == "default" && (a.attrs[key] == "" || b.attrs[key] == "")
	})
}

// spellings tells of names of an item that it does not have any more. One that
// is lost beside one that came is its new name.
func spellings(a, b item) []difference {
	lost, came := unlike(a, b), unlike(b, a)
	if len(a.alt) == 0 || len(lost) == 0 {
		return nil
	}
	old := a
	old.name, old.alt, old.uses = lost[0], lost[1:], longer(lost)
	if len(lost) == 1 && len(came) == 1 && isLong(lost[0]) == isLong(came[0]) {
		now := b
		now.name, now.alt = came[0], nil
		return []difference{{"renamed", &old, &now, nil}}
	}
	return []difference{{"removed", &old, &b, nil}}
}

// unlike are the names of a that b lacks.
func unlike(a, b item) []string {
	var list []string
	for _, name := range append([]string{a.name}, a.alt...) {
		if name != b.name && !slices.Contains(b.alt, name) {
			list = append(list, name)
		}
	}
	return list
}

// moved takes out pairs that have the same name in another scope, where one of
// the scopes exists on one side only: the code moved into another function.
func moved(was, is []item, gone, came []int) ([]int, []int) {
	scopes := [2]map[string]bool{{}, {}}
	for side, items := range [][]item{was, is} {
		for _, it := range items {
			scopes[side][it.scope] = true
		}
	}
	for _, i := range slices.Clone(gone) {
		if was[i].scope == "" {
			continue
		}
		for _, n := range came {
			if is[n].name == was[i].name && is[n].scope != was[i].scope && (!scopes[before][is[n].scope] || !scopes[after][was[i].scope]) {
				gone = slices.DeleteFunc(gone, func(x int) bool { return x == i })
				came = slices.DeleteFunc(came, func(x int) bool { return x == n })
				break
			}
		}
	}
	// A new function that has a key which others had before is code that was
	// cut out of one of them, or does as they do; its endpoint tells when not.
	known := map[string]bool{}
	for _, it := range was {
		known[it.name] = true
	}
	came = slices.DeleteFunc(came, func(n int) bool {
		return is[n].class.rule.Find == "keys" && known[is[n].name] && !scopes[before][is[n].scope]
	})
	return gone, came
}

// sure is how alike two items must be for one to be the other's new name.
const sure = 0.7

// renamed pairs what is gone with what came, the most alike first.
func renamed(was, is []item, gone, came []int) map[int]int {
	type pair struct {
		old, new int
		score    float64
	}
	var all []pair
	if len(gone)*len(came) > 40000 { // a file was replaced whole; nobody renamed all of it
		return nil
	}
	if len(gone) > 0 && was[gone[0]].class.rule.Find == "files" {
		return nil // git has told
	}
	for _, i := range gone {
		for _, n := range came {
			if s := alike(was[i], is[n]); s >= sure {
				all = append(all, pair{i, n, s})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(b.score, a.score) })
	found := map[int]int{}
	used := map[int]bool{}
	for _, p := range all {
		if _, done := found[p.old]; !done && !used[p.new] {
			found[p.old] = p.new
			used[p.new] = true
		}
	}
	return found
}

// telling are the attributes that say what an item is for.
var telling = []string{"help", "value", "signature", "handler", "entry", "body", "argument", "url", "from"}

// alike is how much two items have in common, 0 to 1: their names, and what
// they are for.
func alike(a, b item) float64 {
	name := max(dice(words(a.name), words(b.name)), closeness(a.name, b.name))
	if a.scope != b.scope {
		name *= 0.8
	}
	total, n := 0.0, 0
	for _, key := range telling {
		x, y := a.attrs[key], b.attrs[key]
		if x == "" || y == "" {
			continue
		}
		n++
		if x == y {
			total++
		} else {
			total += 0.9 * dice(words(x), words(y))
		}
	}
	if n == 0 {
		if name < 0.8 {
			return 0
		}
		return name
	}
	if name < 0.25 {
		return 0
	}
	return 0.4*name + 0.6*total/float64(n)
}

// words cuts text where its kind of character changes.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// dice is twice what two lists share over the sum of their lengths.
func dice(a, b []string) float64 {
	if len(a)+len(b) == 0 {
		return 0
	}
	count := map[string]int{}
	for _, w := range a {
		count[w]++
	}
	shared := 0
	for _, w := range b {
		if count[w] > 0 {
			count[w]--
			shared++
		}
	}
	return 2 * float64(shared) / float64(len(a)+len(b))
}

// closeness is 1 less the edit distance over the longer length. Names with
// different numbers in them are different things: v1 is not v2.
func closeness(a, b string) float64 {
	if digits(a) != digits(b) {
		return 0
	}
	if len(a) > 80 || len(b) > 80 {
		return 0
	}
	return 1 - float64(cmakerun.Distance(a, b))/float64(max(len(a), len(b), 1))
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
}
