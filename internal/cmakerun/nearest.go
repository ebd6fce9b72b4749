package cmakerun

import (
	"slices"
	"strings"
)

// Nearest gives up to n of names that are most like name, best first. Words
// that both share, split at _ and -, count more than letters, all but the
// first: an option that moved to another prefix keeps its last words.
func Nearest(name string, names []string, n int) []string {
	type scored struct {
		name  string
		score int
	}
	var list []scored
	own := words(name)
	own = own[min(1, len(own)):]
	for _, other := range names {
		score := Distance(strings.ToLower(name), strings.ToLower(other))
		for _, w := range words(other) {
			if slices.Contains(own, w) {
				score -= 2 + len(w)/2
			}
		}
		if score <= max(len(name), len(other))*2/3 {
			list = append(list, scored{other, score})
		}
	}
	slices.SortStableFunc(list, func(a, b scored) int { return a.score - b.score })
	var best []string
	for _, s := range list[:min(n, len(list))] {
		best = append(best, s.name)
	}
	return best
}

func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
}

// Distance counts the letters to insert, delete or replace to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
