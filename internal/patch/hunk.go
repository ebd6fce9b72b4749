package patch

import (
	"fmt"
	"slices"
	"strings"
)

// start is the index of the first old line.
func (h Hunk) start() int {
	if h.OldLines == 0 {
		return h.OldStart
	}
	return h.OldStart - 1
}

// end is the index of the first new line.
func (h Hunk) newStart() int {
	if h.NewLines == 0 {
		return h.NewStart
	}
	return h.NewStart - 1
}

// shape is a hunk as the texts to look for.
type shape struct {
	before, after []string
	runs          []changeRun
	lead, trail   int // context lines before the first change and after the last
}

// changeRun is one unbroken piece of change inside a hunk: before[from:to]
// becomes with.
type changeRun struct {
	from, to int
	with     []string
}

func (h Hunk) shape() shape {
	var s shape
	open := false
	for _, l := range h.Lines {
		if l.Op == ' ' {
			open = false
			s.before = append(s.before, l.Text)
			s.after = append(s.after, l.Text)
			continue
		}
		if !open {
			s.runs = append(s.runs, changeRun{from: len(s.before), to: len(s.before)})
			open = true
		}
		r := &s.runs[len(s.runs)-1]
		if l.Op == '-' {
			s.before = append(s.before, l.Text)
			r.to = len(s.before)
		} else {
			s.after = append(s.after, l.Text)
			r.with = append(r.with, l.Text)
		}
	}
	if len(s.runs) > 0 {
		s.lead = s.runs[0].from
		s.trail = len(s.before) - s.runs[len(s.runs)-1].to
	}
	return s
}

// mixed is the text of the hunk with the runs of mask already changed.
func (s shape) mixed(mask int) []string {
	var text []string
	at := 0
	for i, r := range s.runs {
		text = append(text, s.before[at:r.from]...)
		if mask&(1<<i) != 0 {
			text = append(text, r.with...)
		} else {
			text = append(text, s.before[r.from:r.to]...)
		}
		at = r.to
	}
	return append(text, s.before[at:]...)
}

// edit replaces lines [from,to) of a file.
type edit struct {
	from, to int
	with     []string
}

// applyEdits makes the new content; edits may come in any order but must not
// touch the same lines.
func applyEdits(lines []string, edits []edit) (string, bool) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
	size := 0
	for _, l := range lines {
		size += len(l)
	}
	for _, e := range edits {
		for _, l := range e.with {
			size += len(l)
		}
	}
	var out strings.Builder
	out.Grow(size)
	at := 0
	for i, e := range edits {
		// Two insertions at one point have no order.
		if e.from < at || i > 0 && e.from == at && e.from == e.to && edits[i-1].from == edits[i-1].to {
			return "", false
		}
		for _, l := range lines[at:e.from] {
			out.WriteString(l)
		}
		for _, l := range e.with {
			out.WriteString(l)
		}
		at = e.to
	}
	for _, l := range lines[at:] {
		out.WriteString(l)
	}
	return out.String(), true
}

// origin is the file that a diff was made for: its lines, where each hunk's
// old lines begin in it, and what became of its lines in the file at hand.
type origin struct {
	lines []string
	at    []int
	to    []int
}

// site is the file at hand while its hunks are judged.
type site struct {
	path   string
	lines  []string
	lang   *language
	git    bool // the diff names headings, so an empty one says something
	total  int  // hunks in the diff
	origin *origin
}

// fit is what became of one hunk.
type fit struct {
	verdict Verdict
	at      int // index of its place; -1 unless clean or offset
	edits   []edit
	detail  string
}

// judge finds the place of hunk n.
func (s site) judge(n int, h Hunk) fit {
	sh := h.shape()
	var f fit
	if s.origin != nil {
		f = s.judgeMapped(n, h, sh)
	} else {
		f = s.judgeText(h, sh)
	}
	if f.detail != "" {
		f.detail = fmt.Sprintf("hunk %d of %d (line %d): %s", n+1, s.total, h.start()+1, f.detail)
	}
	return f
}

func (s site) landed(h Hunk, sh shape, at int) fit {
	f := fit{verdict: Clean, at: at, edits: sh.edits(at, 0)}
	if at != h.start() {
		f.verdict = Offset
		f.detail = fmt.Sprintf("found at line %d%s", at+1, s.in(at+sh.lead))
	}
	return f
}

// edits turns the runs not in mask into edits of a file in which the hunk
// begins at line at, with the runs of mask changed already.
func (s shape) edits(at, mask int) []edit {
	var list []edit
	for i, r := range s.runs {
		if mask&(1<<i) != 0 {
			at += len(r.with) - (r.to - r.from)
			continue
		}
		list = append(list, edit{from: at + r.from, to: at + r.to, with: r.with})
	}
	return list
}

// in names the function around a line, for messages.
func (s site) in(at int) string {
	if s.lang == nil {
		return ""
	}
	if i := heading(s.lines, at, s.lang.function); i >= 0 {
		return fmt.Sprintf(", in %q", clip(headText(s.lines, i)))
	}
	return ""
}

func failed(format string, args ...any) fit {
	return fit{verdict: Conflict, at: -1, detail: fmt.Sprintf(format, args...)}
}

// fits filters the places of text that agree with the ends of the file: a hunk
// without context before or after its change was made for that end.
func (s site) fits(text []string, sh shape) []int {
	return slices.DeleteFunc(findAll(s.lines, text), func(at int) bool {
		return sh.lead == 0 && at != 0 || sh.trail == 0 && at+len(text) != len(s.lines)
	})
}

// agrees says whether a place is below the heading that the hunk names. A
// heading among the context lines has been compared with them.
func (s site) agrees(h Hunk, sh shape, at int) bool {
	switch {
	case s.lang == nil || at == h.start() && h.Section == "":
		return true
	case heading(sh.before, sh.lead, s.lang.function) >= 0:
		return true
	case h.Section != "":
		return s.lang.inSection(h.Section, s.lines, at)
	}
	return !s.git || heading(s.lines, at, s.lang.function) < 0
}

// judgeText judges by the text alone: nothing is known of the file that the
// patch was made for.
func (s site) judgeText(h Hunk, sh shape) fit {
	if sh.lead == 0 && h.start() > 0 && h.OldLines > 0 || h.OldLines == 0 && h.start() > 0 {
		return failed("no context lines before its change, so its place is not sure; make it anew with git format-patch")
	}
	if len(sh.before) == 0 && len(s.lines) == 0 {
		return s.landed(h, sh, 0)
	}
	if slices.Equal(s.lines, sh.after) && sh.lead == 0 && sh.trail == 0 {
		return fit{verdict: Upstreamed, at: -1, detail: "the file holds its result"}
	}
	all := s.fits(sh.before, sh)
	var good []int
	for _, at := range all {
		if s.agrees(h, sh, at) {
			good = append(good, at)
		}
	}
	var done []int
	for _, at := range s.fits(sh.after, sh) {
		if s.agrees(h, sh, at) {
			done = append(done, at)
		}
	}
	// The old text may be found again inside the new one.
	inside := func(at int) bool {
		return slices.ContainsFunc(done, func(d int) bool { return d <= at && at+len(sh.before) <= d+len(sh.after) })
	}
	open := slices.DeleteFunc(slices.Clone(good), inside)
	switch {
	case slices.Contains(good, h.start()) && !slices.Contains(open, h.start()):
		return failed("ambiguous: it fits at line %d, but its result stands there too, at %s", h.start()+1, s.places(done))
	case slices.Contains(open, h.start()):
		return s.landed(h, sh, h.start())
	case len(open) > 0 && len(done) > 0:
		return failed("ambiguous: its result stands at %s, and its old text at %s", s.places(done), s.places(open))
	case len(open) == 1:
		return s.landed(h, sh, open[0])
	case len(open) > 1:
		return failed("ambiguous: it fits at %s", s.places(open))
	case len(done) == 1 || slices.Contains(done, h.newStart()):
		at := done[0]
		if len(done) > 1 {
			at = h.newStart()
		}
		return fit{verdict: Upstreamed, at: -1, detail: fmt.Sprintf("its result stands at line %d%s", at+1, s.in(at+sh.lead))}
	case len(done) > 1:
		return failed("ambiguous: its result stands at %s, and which of them is meant is not known", s.places(done))
	}
	if f, ok := s.judgeMixed(h, sh); ok {
		return f
	}
	if len(all) > 0 {
		section := "no function"
		if h.Section != "" {
			section = fmt.Sprintf("%q", h.Section)
		}
		return failed("it was made for %s, and its text is only found at %s", section, s.places(all))
	}
	return failed("%s", s.miss(h, sh))
}

// maxRuns bounds the mixtures that are tried.
const maxRuns = 6

// judgeMixed looks for the hunk with some of its runs changed already.
func (s site) judgeMixed(h Hunk, sh shape) (fit, bool) {
	if len(sh.runs) < 2 || len(sh.runs) > maxRuns {
		return fit{}, false
	}
	type found struct{ mask, at int }
	var list []found
	for mask := 1; mask < 1<<len(sh.runs)-1; mask++ {
		for _, at := range s.fits(sh.mixed(mask), sh) {
			if s.agrees(h, sh, at) {
				list = append(list, found{mask, at})
			}
		}
	}
	if len(list) != 1 {
		return fit{}, false
	}
	f := fit{verdict: Partial, at: -1, edits: sh.edits(list[0].at, list[0].mask)}
	f.detail = fmt.Sprintf("found at line %d%s; %d of its %d changes are there already", list[0].at+1, s.in(list[0].at+sh.lead), len(sh.runs)-len(f.edits), len(sh.runs))
	return f, true
}

// judgeMapped judges by the lines of the file that the patch was made for and
// what became of them.
func (s site) judgeMapped(n int, h Hunk, sh shape) fit {
	o, p := s.origin, s.origin.at[n]
	q := s.mapped(p, sh)
	if q >= 0 {
		if f, bad := s.misplaced(p, q, sh); bad {
			return f
		}
		return s.landed(h, sh, q)
	}
	// The mapping keeps the order of lines; a function that moved as a whole
	// is known by its name.
	here, there := findAll(s.lines, sh.before), findAll(o.lines, sh.before)
	if s.lang != nil && len(here) == 1 && len(there) == 1 && sh.lead > 0 && sh.trail > 0 {
		a, b := heading(o.lines, p+sh.lead, s.lang.function), heading(s.lines, here[0]+sh.lead, s.lang.function)
		// A class or namespace of the same name is not precise enough.
		if name := headText(o.lines, a); strings.Contains(name, "(") && name == headText(s.lines, b) && s.lang.count(o.lines, name) == 1 && s.lang.count(s.lines, name) == 1 {
			return s.landed(h, sh, here[0])
		}
	}
	if len(findAll(o.lines, sh.after)) == 0 {
		var done []int
		for _, at := range findAll(s.lines, sh.after) {
			if s.same(p+sh.lead, at+sh.lead) && s.between(p, at, sh) {
				done = append(done, at)
			}
		}
		if len(done) == 1 {
			return fit{verdict: Upstreamed, at: -1, detail: fmt.Sprintf("its result stands at line %d%s", done[0]+1, s.in(done[0]+sh.lead))}
		}
	}
	return s.judgeMerge(p, h, sh, here)
}

// mapped is where all lines of the hunk went, unbroken, or -1.
func (s site) mapped(p int, sh shape) int {
	o := s.origin
	q := -1
	switch {
	case len(sh.before) > 0:
		q = o.to[p]
	case len(o.lines) == 0 && len(s.lines) == 0:
		return 0
	}
	if q < 0 {
		return -1
	}
	for k := range sh.before {
		if o.to[p+k] != q+k {
			return -1
		}
	}
	// Without context of its own the hunk's neighbours must have stayed too.
	if sh.lead == 0 && s.image(p-1) != q-1 || sh.trail == 0 && s.image(p+len(sh.before)) != q+len(sh.before) {
		return -1
	}
	return q
}

// image is where line i of the origin went; the ends of the files, one before
// the first line and one behind the last, go to each other. -2 is nowhere.
func (s site) image(i int) int {
	switch {
	case i < 0:
		return -1
	case i >= len(s.origin.lines):
		return len(s.lines)
	case s.origin.to[i] < 0:
		return -2
	}
	return s.origin.to[i]
}

// between says whether a place lies between what became of the nearest kept
// lines above and below the hunk.
func (s site) between(p, at int, sh shape) bool {
	lo, hi := p-1, p+len(sh.before)
	for s.image(lo) == -2 {
		lo--
	}
	for s.image(hi) == -2 {
		hi++
	}
	return s.image(lo) < at+max(sh.lead, 1) && at+len(sh.after)-sh.trail <= s.image(hi)+sh.trail
}

func (s site) same(i, j int) bool {
	return s.lang == nil || s.lang.sameFunction(s.origin.lines, i, s.lines, j, s.origin.to)
}

// misplaced is the conflict of a hunk that the mapping leads into another
// function, or to one of several twins of which one came or went.
func (s site) misplaced(p, q int, sh shape) (fit, bool) {
	o := s.origin
	if !s.same(p+sh.lead, q+sh.lead) {
		was := "the head of the file"
		if a := heading(o.lines, p+sh.lead, s.lang.function); a >= 0 {
			was = fmt.Sprintf("%q", clip(headText(o.lines, a)))
		}
		return failed("it was made for %s, and its text is now at %s", was, s.places([]int{q + sh.lead})), true
	}
	twins := func(lines []string, at int) (rank, n int) {
		name := ""
		if s.lang != nil {
			name = headText(lines, heading(lines, at+sh.lead, s.lang.function))
		}
		for _, i := range findAll(lines, sh.before) {
			// In the file at hand a renamed function has another name, but then
			// it is compared with itself only.
			if s.lang != nil && headText(lines, heading(lines, i+sh.lead, s.lang.function)) != name {
				continue
			}
			if i == at {
				rank = n
			}
			n++
		}
		return rank, n
	}
	rankA, a := twins(o.lines, p)
	rankB, b := twins(s.lines, q)
	if max(a, b) > 1 && (a != b || rankA != rankB) {
		return failed("ambiguous: its text stood in %d places, now in %d: %s", a, b, s.places(findAll(s.lines, sh.before))), true
	}
	return fit{}, false
}

// judgeMerge merges run by run: a change is taken where the lines it replaces,
// and the ones next to them, are as they were.
func (s site) judgeMerge(p int, h Hunk, sh shape, elsewhere []int) fit {
	o := s.origin
	var edits []edit
	done, first := 0, -1
	for i, r := range sh.runs {
		old := sh.before[r.from:r.to]
		lo, hi := s.image(p+r.from-1), s.image(p+r.to)
		if lo == -2 || hi == -2 || hi <= lo {
			return failed("%s", s.miss(h, sh)+s.decoys(elsewhere))
		}
		region := s.lines[lo+1 : hi]
		switch {
		case slices.Equal(region, r.with) && !slices.Equal(region, old):
			done++
			continue
		case !slices.Equal(region, old):
			return failed("%s%s", s.both(lo+1, hi, i, sh), s.decoys(elsewhere))
		}
		if !s.same(p+r.from, lo+1) {
			return failed("its lines are now at %s, another function", s.places([]int{lo + 1}))
		}
		// A mapping may slide past an insertion that is there already.
		if len(old) == 0 && (repeats(s.lines, lo+1, r.with) && !repeats(o.lines, p+r.from, r.with)) {
			return failed("the lines that it adds stand next to its place already, near line %d", lo+2)
		}
		if first < 0 {
			first = lo + 1
		}
		edits = append(edits, edit{from: lo + 1, to: hi, with: r.with})
	}
	switch {
	case len(edits) == 0:
		return fit{verdict: Upstreamed, at: -1, detail: "its result is there"}
	case done > 0:
		return fit{verdict: Partial, at: -1, edits: edits, detail: fmt.Sprintf("merged at line %d%s; %d of its %d changes are there already", first+1, s.in(first), done, len(sh.runs))}
	}
	return fit{verdict: Merged, at: -1, edits: edits, detail: fmt.Sprintf("merged at line %d%s: lines around it changed", first+1, s.in(first))}
}

// repeats says whether text ends or begins right at index at.
func repeats(lines []string, at int, text []string) bool {
	n := len(text)
	return at >= n && slices.Equal(lines[at-n:at], text) || at+n <= len(lines) && slices.Equal(lines[at:at+n], text)
}

// both shows the two sides of a place that the patch and upstream changed.
func (s site) both(from, to, i int, sh shape) string {
	theirs := "took the lines away"
	if to > from {
		theirs = fmt.Sprintf("has %q", clip(s.lines[from]))
	}
	ours := "takes the lines away"
	if with := sh.runs[i].with; len(with) > 0 {
		ours = fmt.Sprintf("wants %q", clip(with[0]))
	}
	return fmt.Sprintf("both changed line %d%s: the file now %s, the patch %s", from+1, s.in(from), theirs, ours)
}

// decoys names places that a looser tool would have taken.
func (s site) decoys(at []int) string {
	if len(at) == 0 {
		return ""
	}
	return "; the same text at " + s.places(at) + " is another place"
}

// places lists lines, with their functions, for a message.
func (s site) places(at []int) string {
	var words []string
	for _, i := range at[:min(len(at), 4)] {
		word := fmt.Sprintf("line %d", i+1)
		if fn := s.in(i); fn != "" {
			word += " (" + strings.TrimPrefix(fn, ", ") + ")"
		}
		words = append(words, word)
	}
	if more := len(at) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// miss says how the nearest text differs from what the hunk expects.
func (s site) miss(h Hunk, sh shape) string {
	if len(s.lines) == 0 {
		return "the file is empty"
	}
	best, bestAt := -1, 0
	for at := range s.lines {
		n := 0
		for k, want := range sh.before {
			if at+k < len(s.lines) && s.lines[at+k] == want && strings.TrimSpace(want) != "" {
				n++
			}
		}
		if n > best || n == best && distance(at, h.start()) < distance(bestAt, h.start()) {
			best, bestAt = n, at
		}
	}
	if best <= 0 {
		bare := func(lines []string) []string {
			out := make([]string, len(lines))
			for i, l := range lines {
				out[i] = strings.TrimRight(l, "\r\n")
			}
			return out
		}
		if at := findAll(bare(s.lines), bare(sh.before)); len(at) > 0 {
			return fmt.Sprintf("line endings: the text at line %d differs from the patch's in nothing but CR and LF", at[0]+1)
		}
		if bestAt = h.start(); bestAt >= len(s.lines) {
			return "none of its lines is in the file any more"
		}
	}
	for k, want := range sh.before {
		got, at := "the end of the file", bestAt+k
		if at < len(s.lines) {
			if s.lines[at] == want {
				continue
			}
			got = fmt.Sprintf("%q", clip(s.lines[at]))
			if clip(s.lines[at]) == clip(want) {
				return fmt.Sprintf("line endings: line %d differs from the patch's in nothing but its end", at+1)
			}
		}
		if bestAt == h.start() {
			return fmt.Sprintf("line %d should be %q but is %s", at+1, clip(want), got)
		}
		return fmt.Sprintf("nearest at line %d%s, where line %d should be %q but is %s", bestAt+1, s.in(bestAt+sh.lead), at+1, clip(want), got)
	}
	return fmt.Sprintf("its text is at line %d, but its change belongs to an end of the file or to another function", bestAt+1)
}

func distance(a, b int) int { return max(a-b, b-a) }
