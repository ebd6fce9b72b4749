package review

import (
	"regexp"
	"slices"
	"strings"

	"payload/internal/report"
	"payload/internal/review/scan"
)

var flagForm = regexp.MustCompile(`^--?[A-Za-z]`)

// flags are calls that describe a command-line argument: braces with its
// spellings, then for what it takes and for help a string each, then what it
// does. Methods chained to the call give further attributes.
func (e *extractor) flags(s unit) []item {
	var found []item
	for _, c := range e.calls(s) {
		it := item{class: e.class, from: c.from, attrs: map[string]string{}, at: s.place(s.Tokens[c.at].Line)}
		var names, texts []string
		var printed []string // what the help's format specifiers print
		for _, a := range c.args {
			switch {
			case s.Tokens[a.Start].Is("{"):
				for _, n := range s.Args(a.Start) {
					if text, _, isString := s.StringAt(n.Start, n.End); isString && flagForm.MatchString(text) {
						names = append(names, text)
					}
				}
			case s.Tokens[a.Start].Is("["):
				continue
			default:
				text, args := formatted(s.File, a)
				if text == "" {
					continue
				}
				texts, printed = append(texts, text), args
			}
		}
		if len(names) == 0 || len(texts) == 0 {
			continue
		}
		slices.SortStableFunc(names, func(a, b string) int { return isLong(b) - isLong(a) })
		it.name, it.alt = names[0], names[1:]
		it.uses = longer(names)
		help := texts[len(texts)-1]
		it.attrs["argument"] = strings.Join(texts[:len(texts)-1], " ")
		it.attrs["help"] = strings.Join(strings.Fields(withoutDefault(help)), " ")
		var at *scan.Decl
		it.attrs["default"], at = e.flagDefault(help, printed)
		if at != nil {
			it.also = &report.Place{Ref: s.ref, Path: at.Path, Line: at.Line}
		}
		e.chained(s, s.Match[c.open]+1, it.attrs)
		it.uses = append(it.uses, strings.Fields(it.attrs["env"])...) // going with the flag
		if e.filter.ok(it.name) && allowed(e.plan.rule.Only, it.attrs) {
			found = append(found, it)
		}
	}
	return found
}

// longer leaves out the spellings of one letter: -j is anybody's.
func longer(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return len(n) == 2 })
}

func isLong(name string) int {
	if strings.HasPrefix(name, "--") {
		return 1
	}
	return 0
}

// formatted is a string argument: a literal, or the literal that a formatting
// call begins with, and then what it prints.
func formatted(f *scan.File, a scan.Span) (text string, args []string) {
	text, next, ok := f.StringAt(a.Start, a.End)
	if ok && next == a.End {
		return text, nil
	}
	for k := a.Start; k < a.End; k++ {
		if !f.Tokens[k].Is("(") {
			continue
		}
		inner := f.Args(k)
		if len(inner) == 0 {
			return "", nil
		}
		if text, _, ok = f.StringAt(inner[0].Start, inner[0].End); !ok {
			return "", nil
		}
		for _, arg := range inner[1:] {
			args = append(args, f.Text(arg.Start, arg.End))
		}
		return text, args
	}
	return text, nil
}

// chained reads .method(arguments) after a call.
func (e *extractor) chained(s unit, i int, attrs map[string]string) {
	byMethod := map[string]string{}
	for attr, method := range e.plan.rule.Chain {
		byMethod[method] = attr
	}
	for i+2 < len(s.Tokens) && s.Tokens[i].Is(".") && s.Tokens[i+2].Is("(") && s.Match[i+2] > 0 {
		if attr, ok := byMethod[s.Tokens[i+1].Text]; ok {
			var words []string
			for k := i + 3; k < s.Match[i+2]; k++ {
				if t := s.Tokens[k]; t.Kind == scan.Ident || t.Kind == scan.String {
					words = append(words, t.Text)
				}
			}
			slices.Sort(words)
			attrs[attr] = strings.Join(words, " ")
		}
		i = s.Match[i+2] + 1
	}
}

var (
	defaultForm = regexp.MustCompile(`\(default: ?((?:[^()]|\([^()]*\))*)\)`)
	printSpec   = regexp.MustCompile(`%[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]`)
	chainForm   = regexp.MustCompile(`^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+`)
)

func withoutDefault(help string) string { return defaultForm.ReplaceAllString(help, "") }

// flagDefault is the default that the help tells. Where it prints a variable,
// that is the initial value of the field, which is given too; unknown is empty.
func (e *extractor) flagDefault(help string, printed []string) (string, *scan.Decl) {
	loc := defaultForm.FindStringSubmatchIndex(help)
	if loc == nil {
		return "", nil
	}
	var at *scan.Decl
	text := help[loc[2]:loc[3]]
	n := len(printSpec.FindAllString(strings.ReplaceAll(help[:loc[2]], "%%", ""), -1))
	unknown := false
	text = printSpec.ReplaceAllStringFunc(text, func(string) string {
		value := ""
		if n < len(printed) {
			if d, ok := e.types.field(printed[n]); ok {
				value, at = strings.Trim(strings.TrimSuffix(d.Value, "f"), `{}"`), &d
			}
		}
		n++
		unknown = unknown || value == ""
		return value
	})
	if unknown {
		return "", nil
	}
	return text, at
}

// types are fields of structs, for initial values.
type types struct {
	vars   map[string]string
	fields map[string]map[string]scan.Decl // type -> field
}

func (t *trees) types(p *plan, side int) *types {
	if p.rule.Defaults == nil {
		return nil
	}
	known := &types{vars: p.rule.Defaults.Vars, fields: map[string]map[string]scan.Decl{}}
	for _, path := range p.extra[side] {
		for _, d := range t.parse(side, path).Decls {
			if d.Kind != scan.Field {
				continue
			}
			if known.fields[d.Of] == nil {
				known.fields[d.Of] = map[string]scan.Decl{}
			}
			d.Path = path
			known.fields[d.Of][d.Name] = d
		}
	}
	return known
}

// field is the one whose value an expression such as params.draft.n_max prints;
// of "a.b ? x : y" it is a.b. ok is false when it isn't known.
func (t *types) field(expression string) (d scan.Decl, ok bool) {
	if t == nil {
		return d, false
	}
	for strings.HasPrefix(expression, "(") { // a cast
		_, rest, closed := strings.Cut(expression, ")")
		if !closed {
			return d, false
		}
		expression = strings.TrimSpace(rest)
	}
	chain := strings.Split(chainForm.FindString(expression), ".")
	if len(chain) < 2 {
		return d, false
	}
	of := t.vars[chain[0]]
	for n, name := range chain[1:] {
		if d, ok = t.fields[of][name]; !ok {
			return d, false
		}
		if n == len(chain)-2 || chain[n+2] == "c_str" {
			return d, true
		}
		of = d.Type
	}
	return d, false
}
