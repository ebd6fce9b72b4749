package review

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/report"
)

// logLine is one line that the program may print.
type logLine struct {
	format string
	sample string // with values filled in
	call   string // what prints it; empty for a stream
	at     report.Place
}

// logLines are the lines of every call of the named functions, in all files of
// the rule: a line that moved is still there.
func (r *reviewer) logLines(p *plan, side int) []logLine {
	of := compileNames(p.rule.Of)
	streams := slices.Contains(p.rule.Of, "<<") // what is put into a stream may be logged later
	ref := []string{r.in.Old.Ref, r.in.New.Ref}[side]
	var lines []logLine
	for _, path := range p.paths[side] {
		f := r.trees.parse(side, path)
		for i := range f.Tokens {
			if streams && f.Tokens[i].Is("<<") {
				if text, _, ok := f.StringAt(i+1, len(f.Tokens)); ok {
					lines = append(lines, logLine{format: text, sample: text, at: report.Place{Ref: ref, Path: path, Line: f.Tokens[i+1].Line}})
				}
				continue
			}
			callee, open, ok := f.Callee(i)
			if !ok {
				continue
			}
			if _, ok := of.match(callee); !ok {
				continue
			}
			for _, a := range f.Args(open) {
				format, next, isString := f.StringAt(a.Start, a.End)
				if !isString || next != a.End {
					continue
				}
				for line := range strings.SplitSeq(strings.Trim(format, "\n"), "\n") {
					lines = append(lines, logLine{format: line, sample: sample(line), call: last(callee), at: report.Place{Ref: ref, Path: path, Line: f.Tokens[i].Line}})
				}
			}
		}
	}
	return lines
}

// sample prints a format with values that are right for its specifiers.
func sample(format string) string {
	return printSpec.ReplaceAllStringFunc(strings.ReplaceAll(format, "%%", "%"), func(spec string) string {
		switch spec[len(spec)-1] {
		case 's':
			return "CPU"
		case 'f', 'F', 'g', 'e':
			decimals := "25"
			if _, after, ok := strings.Cut(spec, "."); ok && after != "" && after[0] >= '0' && after[0] <= '9' {
				decimals = strings.Repeat("5", int(after[0]-'0'))
			}
			return strings.TrimSuffix("1."+decimals, ".")
		case 'c':
			return "c"
		case 'p', 'x', 'X':
			return "0x1"
		}
		return "1"
	})
}

// logs compares, for each pattern of a consumer, the lines that match it.
func (r *reviewer) logs(p *plan) {
	lines := [2][]logLine{r.logLines(p, before), r.logLines(p, after)}
	c := classOf(p.rule)
	for _, name := range slices.Sorted(maps.Keys(p.rule.Patterns)) {
		re := regexp.MustCompile(p.rule.Patterns[name])
		was, is := matching(re, lines[before]), matching(re, lines[after])
		ours := r.ours.naming(r.globs(p.rule), "word", p.rule.Patterns[name])
		if line := p.rule.PatternLines[name]; line > 0 {
			ours = append([]report.Place{{Path: config.FileName, Line: line}}, ours...)
		}
		f := report.Finding{Category: p.rule.Category, Affects: ours, Fix: p.rule.Fix}
		switch {
		case len(was) == 0 && len(is) == 0:
			f.ID, f.Severity = "watch.pattern-dead", report.Warning
			f.Title = fmt.Sprintf("no %s matches the pattern %q at either ref", c.what, name)
			f.Detail = fmt.Sprintf("%s matches nothing that %s prints.", re, strings.Join(p.rule.In, ", "))
			f.Fix = "correct the pattern in payload.yaml"
		case len(is) == 0:
			f.ID, f.Severity = c.findingID("removed"), report.Error
			f.Title = fmt.Sprintf("%s %q is not printed any more", c.what, name)
			f.Detail = fmt.Sprintf("Consumers look for %s. It matched:\n%s", re, formats(was))
			f.Where = places(was)
			if near, ok := nearest(was[0], lines[after]); ok {
				f.Detail += "\nMost like it now: " + near.format
				f.Where = append(f.Where, near.at)
			}
			if f.Fix == "" {
				f.Fix = "look for what replaces it, and change the pattern and its consumers"
			}
		default:
			gone, came := missing(was, is), missing(is, was)
			if len(gone) == 0 { // more lines that match hurt nobody
				r.level(f, c, name, was, is)
				continue
			}
			f.ID, f.Severity = c.findingID("changed"), report.Warning
			f.Title = fmt.Sprintf("%s %q has another form", c.what, name)
			f.Detail = fmt.Sprintf("Still matched by %s.\nwas: %s\nis: %s", re, formats(gone), formats(came))
			if len(came) == 0 {
				f.Title = fmt.Sprintf("one form of the %s %q is not printed any more", c.what, name)
				f.Detail = fmt.Sprintf("gone: %s\nstill there: %s", formats(gone), formats(is))
			}
			f.Where = append(places(gone), places(came)...)
		}
		f.Key = f.ID + ":" + name
		if s, ok := severityOf(p.rule, strings.TrimPrefix(f.ID, c.id+"-")); ok {
			if s == "" {
				continue
			}
			f.Severity = s
		}
		r.add(f)
	}
}

// level tells of a line that another function prints than before: it may come
// at another level of verbosity now.
func (r *reviewer) level(f report.Finding, c class, name string, was, is []logLine) {
	calls := func(lines []logLine, format string) []string {
		var list []string
		for _, l := range lines {
			if l.format == format && !slices.Contains(list, l.call) {
				list = append(list, l.call)
			}
		}
		slices.Sort(list)
		return list
	}
	for _, l := range was {
		a, b := calls(was, l.format), calls(is, l.format)
		if slices.Equal(a, b) {
			continue
		}
		f.ID, f.Severity = c.findingID("level-changed"), report.Warning
		f.Key = f.ID + ":" + name
		f.Title = fmt.Sprintf("%s %q is printed by %s, was %s", c.what, name, strings.Join(b, ", "), strings.Join(a, ", "))
		f.Detail = "It may come at another level of verbosity: " + l.format
		f.Where = []report.Place{l.at}
		if i := slices.IndexFunc(is, func(o logLine) bool { return o.format == l.format }); i >= 0 {
			f.Where = append(f.Where, is[i].at)
		}
		f.Fix = "see that consumers still ask for enough verbosity"
		r.add(f)
		return
	}
}

// nearest is the line that has most in common with one that is gone.
func nearest(gone logLine, lines []logLine) (logLine, bool) {
	var best logLine
	score := 0.5
	for _, l := range lines {
		if s := dice(words(gone.format), words(l.format)); s > score {
			best, score = l, s
		}
	}
	return best, best.format != ""
}

func matching(re *regexp.Regexp, lines []logLine) []logLine {
	var found []logLine
	for _, l := range lines {
		if re.MatchString(l.sample) {
			found = append(found, l)
		}
	}
	return found
}

// missing are the lines of a whose format b lacks.
func missing(a, b []logLine) []logLine {
	has := map[string]bool{}
	for _, l := range b {
		has[l.format] = true
	}
	var found []logLine
	for _, l := range a {
		if !has[l.format] {
			has[l.format] = true
			found = append(found, l)
		}
	}
	return found
}

func formats(lines []logLine) string {
	var list []string
	for _, l := range lines[:min(len(lines), 4)] {
		list = append(list, l.format)
	}
	return strings.Join(list, "\n     ")
}

func places(lines []logLine) []report.Place {
	var list []report.Place
	for _, l := range lines[:min(len(lines), 3)] {
		list = append(list, l.at)
	}
	return list
}
