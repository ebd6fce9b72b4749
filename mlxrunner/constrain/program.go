package constrain

import "slices"

// A program is what a grammar compiles to: points, between which bytes lead and
// calls, which read what another point begins and then go on. It is an
// automaton with a stack, for texts that hold themselves.
type program struct {
	points []point
	start  int32
}

type point struct {
	edges []edge // any order, may overlap
	calls []call
	final bool // what was called ends here
}

type call struct{ to, then int32 }

// budget bounds what a grammar may cost to compile.
type budget struct{ states, work int }

const (
	maxStates = 100_000
	maxWork   = 10_000_000
)

func newBudget() *budget { return &budget{maxStates, maxWork} }

func (b *budget) spend(states, work int) {
	b.states -= states
	b.work -= work
	if b.states < 0 || b.work < 0 {
		panic(refusal{&UnsupportedError{Feature: "a grammar of this size", Why: "its automaton has too many states; counts (maxLength, maxItems, {n,m}) and many alternatives make it large"}})
	}
}

// refusal carries an error out of a compiler; only catch sees it.
type refusal struct{ err error }

// catch turns a refusal into an error.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case refusal:
		*err = p.err
	default:
		panic(p)
	}
}

// A builder writes a program.
type builder struct {
	program
	budget *budget
}

func (b *builder) point() int32 {
	b.budget.spend(1, 1)
	b.points = append(b.points, point{})
	return int32(len(b.points) - 1)
}

func (b *builder) end() int32 {
	at := b.point()
	b.points[at].final = true
	return at
}

func (b *builder) edge(from, to int32, lo, hi byte) {
	b.budget.spend(0, 1)
	b.points[from].edges = append(b.points[from].edges, edge{lo, hi, to})
}

func (b *builder) call(from, to, then int32) {
	b.budget.spend(0, 1)
	b.points[from].calls = append(b.points[from].calls, call{to, then})
}

// text writes a text and gives the point behind it.
func (b *builder) text(from int32, text string) int32 {
	for i := range len(text) {
		to := b.point()
		b.edge(from, to, text[i], text[i])
		from = to
	}
	return from
}

// separator writes a comma or a colon, behind which a space may stand. It gives
// both points behind it.
func (b *builder) separator(from int32, sign byte) [2]int32 {
	bare := b.text(from, string(sign))
	return [2]int32{bare, b.text(bare, " ")}
}

// rule writes what can be called to read a text that a dfa accepts, and gives
// its start. One that accepts nothing is a point that leads nowhere.
func (b *builder) rule(d dfa) int32 {
	first := b.copy(d)
	for i, s := range d {
		b.points[int(first)+i].final = s.final
	}
	return first
}

// quotes is rule for a text between quotes.
func (b *builder) quotes(d dfa) int32 {
	start, end := b.point(), b.end()
	first := b.copy(d)
	b.edge(start, first, '"', '"')
	for i, s := range d {
		if s.final {
			b.edge(first+int32(i), end, '"', '"')
		}
	}
	return start
}

func (b *builder) copy(d dfa) int32 {
	if len(d) == 0 {
		return b.point()
	}
	first := int32(len(b.points))
	for range d {
		b.point()
	}
	for i, s := range d {
		for _, e := range s.edges {
			b.edge(first+int32(i), first+e.to, e.lo, e.hi)
		}
	}
	return first
}

// live tells from which points an end can be reached.
func (p *program) live() []bool {
	live := make([]bool, len(p.points))
	needed := make([][]int32, len(p.points)) // by which points
	for i, at := range p.points {
		for _, e := range at.edges {
			needed[e.to] = append(needed[e.to], int32(i))
		}
		for _, c := range at.calls {
			needed[c.to] = append(needed[c.to], int32(i))
			needed[c.then] = append(needed[c.then], int32(i))
		}
	}
	var found []int32
	for i, at := range p.points {
		if at.final {
			live[i] = true
			found = append(found, int32(i))
		}
	}
	for len(found) > 0 {
		at := found[len(found)-1]
		found = found[:len(found)-1]
		for _, from := range needed[at] {
			if !live[from] && p.leads(from, live) {
				live[from] = true
				found = append(found, from)
			}
		}
	}
	return live
}

func (p *program) leads(from int32, live []bool) bool {
	return slices.ContainsFunc(p.points[from].edges, func(e edge) bool { return live[e.to] }) ||
		slices.ContainsFunc(p.points[from].calls, func(c call) bool { return live[c.to] && live[c.then] })
}

// prune leaves out what leads to no end, so that every text that was begun can
// be ended.
func (p *program) prune(live []bool) {
	for i := range p.points {
		at := &p.points[i]
		at.edges = slices.DeleteFunc(at.edges, func(e edge) bool { return !live[e.to] })
		at.calls = slices.DeleteFunc(at.calls, func(c call) bool { return !live[c.to] || !live[c.then] })
	}
}

// Regex compiles a regular expression in Go's syntax, which the whole text has
// to match. It speaks of characters, written in UTF-8.
func Regex(expr string) (g *Grammar, err error) {
	defer catch(&err)
	b := &builder{budget: newBudget()}
	d := expression(b.budget, plain, expr, "", false)
	if len(d) == 0 {
		return nil, &InvalidError{Why: "no text matches the expression " + expr}
	}
	if len(d) == 1 && len(d[0].edges) == 0 {
		return nil, &InvalidError{Why: "only the empty text matches the expression " + expr}
	}
	b.start = b.rule(d)
	return &Grammar{"regex:" + expr, b.program}, nil
}
