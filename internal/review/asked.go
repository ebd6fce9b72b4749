package review

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"payload/internal/config"
	"payload/internal/report"
	"payload/internal/verify"
)

// Answers is what one program said, asked twice: what differs between two
// starts of the same program is no news about another one.
type Answers [2]verify.Answers

// Ask starts the program of the staged payload in dir, twice, and asks it.
func Ask(ctx context.Context, dir string, tell func(string, ...any)) (*Answers, error) {
	var a Answers
	for i := range a {
		if i > 0 { // so that times in whole seconds differ too
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(1100 * time.Millisecond):
			}
		}
		var err error
		if a[i], err = verify.Ask(ctx, dir); err != nil {
			return nil, err
		}
	}
	tell("asked the program in %s: %d lines of help, %d answers, %d streams, %d log lines", dir,
		strings.Count(a[0].Help, "\n"), len(a[0].JSON), len(a[0].Raw), len(a[0].Log))
	return &a, nil
}

// asked compares what the two programs said.
func (r *reviewer) asked() {
	if r.in.Asked[before] == nil || r.in.Asked[after] == nil {
		return
	}
	type view struct {
		class class
		items func(*Answers, class) []item
	}
	running := func(id, what, category string) class {
		c := class{id: id, what: what, category: category}
		// Whoever reads an answer names a key in quotes.
		c.rule = config.Rule{ID: id, Category: category, Uses: "quoted"}
		return c
	}
	flag := running("run.flag", "flag in the help", "server")
	flag.rule.Uses, flag.plural = "word", "flags in the help"
	for _, v := range []view{
		{flag, helpItems},
		{running("run.key", "answered key", "server"), keyItems},
		{running("run.frame", "streamed part", "streaming"), frameItems},
	} {
		r.report(compare(v.items(r.in.Asked[before], v.class), v.items(r.in.Asked[after], v.class)))
	}
	r.ordered()
	r.logged()
}

// helpItems reads the table of flags that a program prints.
func helpItems(a *Answers, c class) []item {
	var found []item
	lines := bufio.NewScanner(strings.NewReader(a[0].Help))
	for lines.Scan() {
		line := lines.Text()
		if !flagForm.MatchString(line) {
			if n := len(found); n > 0 && strings.HasPrefix(line, "  ") {
				found[n-1].attrs["help"] += " " + strings.TrimSpace(line)
			}
			continue
		}
		it := item{class: c, attrs: map[string]string{}}
		var names []string
		for {
			end := strings.IndexAny(line, ", ")
			if end < 0 {
				end = len(line)
			}
			names = append(names, line[:end])
			rest := strings.TrimPrefix(line[end:], ",")
			if rest == line[end:] || !strings.HasPrefix(strings.TrimLeft(rest, " "), "-") {
				line = rest
				break
			}
			line = strings.TrimLeft(rest, " ")
		}
		value, help, _ := strings.Cut(strings.TrimPrefix(line, " ")+"  ", "  ")
		it.attrs["argument"], it.attrs["help"] = value, strings.TrimSpace(help)
		slices.SortStableFunc(names, func(a, b string) int { return isLong(b) - isLong(a) })
		it.name, it.alt = names[0], names[1:]
		it.uses = longer(names)
		found = append(found, it)
	}
	for i := range found {
		help := strings.Join(strings.Fields(found[i].attrs["help"]), " ")
		if m := defaultForm.FindStringSubmatch(help); m != nil {
			found[i].attrs["default"] = m[1]
		}
		found[i].attrs["help"] = strings.Join(strings.Fields(withoutDefault(help)), " ")
	}
	return found
}

// keyItems are the paths of JSON answers: with their types, and those values
// that two starts agree on.
func keyItems(a *Answers, c class) []item {
	var found []item
	for endpoint, value := range a[0].JSON {
		now, again := map[string][2]string{}, map[string][2]string{}
		flatten("", value, now)
		flatten("", a[1].JSON[endpoint], again)
		for path, v := range now {
			it := item{class: c, name: path, scope: endpoint, attrs: map[string]string{"type": v[0]}, uses: []string{last(strings.TrimSuffix(path, "[]"))}}
			if again[path] == v {
				it.attrs["value"] = v[1]
			}
			found = append(found, it)
		}
	}
	slices.SortFunc(found, func(a, b item) int { return strings.Compare(a.identity(), b.identity()) })
	return found
}

// flatten gives type and value by path: "data[].id".
func flatten(path string, value any, into map[string][2]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			flatten(strings.TrimPrefix(path+"."+key, "."), inner, into)
		}
	case []any:
		into[path] = [2]string{"array", ""}
		for _, inner := range v {
			flatten(path+"[]", inner, into)
		}
	case string:
		text := v
		if len(text) > 200 {
			text = fmt.Sprintf("%d bytes", len(text))
		}
		into[path] = [2]string{"string", text}
	case float64:
		into[path] = [2]string{"number", fmt.Sprint(v)}
	case bool:
		into[path] = [2]string{"boolean", fmt.Sprint(v)}
	default:
		into[path] = [2]string{"null", ""}
	}
}

// frameItems are what a stream is made of: comments, fields, end marks, and the
// keys of the JSON in data.
func frameItems(a *Answers, c class) []item {
	var found []item
	for endpoint, raw := range a[0].Raw {
		parts := map[string]string{}
		for _, shape := range frameShapes(raw) {
			inner, isJSON := strings.CutPrefix(strings.TrimSuffix(shape, "}"), "data: {")
			if !isJSON {
				parts[shape] = ""
				continue
			}
			for key := range strings.SplitSeq(inner, ", ") {
				name, kind, _ := strings.Cut(key, " ")
				parts[name] = kind
			}
		}
		for name, kind := range parts {
			found = append(found, item{class: c, name: name, scope: endpoint, attrs: map[string]string{"type": kind}, uses: []string{last(strings.TrimSuffix(name, "[]"))}})
		}
	}
	slices.SortFunc(found, func(a, b item) int { return strings.Compare(a.identity(), b.identity()) })
	return found
}

// ordered tells of streams whose lines come in another order or number: the
// same request gives the same text, so another one is another cadence.
func (r *reviewer) ordered() {
	was, is := r.in.Asked[before], r.in.Asked[after]
	for _, endpoint := range slices.Sorted(maps.Keys(was[0].Raw)) {
		a, b := frameShapes(was[0].Raw[endpoint]), frameShapes(is[0].Raw[endpoint])
		steady := slices.Equal(a, frameShapes(was[1].Raw[endpoint])) && slices.Equal(b, frameShapes(is[1].Raw[endpoint]))
		if !steady || slices.Equal(a, b) {
			continue
		}
		r.add(report.Finding{
			ID: "run.stream-changed", Key: "run.stream-changed:" + endpoint, Category: "streaming", Severity: report.Note,
			Title:  fmt.Sprintf("the stream of %s has other lines for the same request", endpoint),
			Detail: "was: " + clip(strings.Join(runs(a), "\n     ")) + "\nis: " + clip(strings.Join(runs(b), "\n    ")),
		})
	}
}

// frameShapes gives a stream's lines without what varies in them.
func frameShapes(raw string) []string {
	var list []string
	for line := range strings.SplitSeq(strings.TrimSuffix(raw, "\n"), "\n") {
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		switch {
		case line == "":
			continue
		case field == "":
			list = append(list, "a comment:"+value)
		case field == "data" && strings.HasPrefix(strings.TrimSpace(value), "{"):
			var data any
			if json.Unmarshal([]byte(value), &data) != nil {
				list = append(list, "data: broken JSON")
				continue
			}
			paths := map[string][2]string{}
			flatten("", data, paths)
			var keys []string
			for path, v := range paths {
				keys = append(keys, path+" "+v[0])
			}
			slices.Sort(keys)
			list = append(list, "data: {"+strings.Join(keys, ", ")+"}")
		default:
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// runs folds equal neighbours: "data: {…} ×8".
func runs(list []string) []string {
	var out []string
	for i := 0; i < len(list); {
		n := i
		for n < len(list) && list[n] == list[i] {
			n++
		}
		out = append(out, fmt.Sprintf("%s ×%d", list[i], n-i))
		i = n
	}
	return out
}

var (
	logPrefix = regexp.MustCompile(`^[\d.:]+ [A-Z] `)
	logNumber = regexp.MustCompile(`0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*`)
)

// logForms gives the lines that both starts printed, and those that any did,
// with numbers and times taken out; the values are lines as they were.
func logForms(a *Answers) (both, ever map[string]string) {
	forms := [2]map[string]string{{}, {}}
	for i := range a {
		for _, line := range a[i].Log {
			line = strings.TrimSpace(logPrefix.ReplaceAllString(line, ""))
			if form := strings.Join(strings.Fields(logNumber.ReplaceAllString(line, "N")), " "); form != "" {
				forms[i][form] = line
			}
		}
	}
	both, ever = map[string]string{}, forms[1]
	for form, line := range forms[0] {
		if _, ok := forms[1][form]; ok {
			both[form] = line
		}
		ever[form] = line
	}
	return both, ever
}

// maxLogLines is how many lines a finding shows.
const maxLogLines = 60

// logged compares the logs: a pattern of a consumer that matches no more is an
// error, all other lines are told together.
func (r *reviewer) logged() {
	was, everWas := logForms(r.in.Asked[before])
	is, everIs := logForms(r.in.Asked[after])
	var gone, came []string
	for form, line := range was {
		if _, ok := everIs[form]; !ok {
			gone = append(gone, line)
		}
	}
	for form, line := range is {
		if _, ok := everWas[form]; !ok {
			came = append(came, line)
		}
	}
	slices.Sort(gone)
	slices.Sort(came)
	for _, p := range r.plans {
		for name, pattern := range p.rule.Patterns {
			re := regexp.MustCompile(pattern)
			matched := func(forms map[string]string) (line string) {
				for _, l := range forms {
					if re.MatchString(l) {
						line = max(line, l) // the same one every time
					}
				}
				return line
			}
			if old := matched(was); old != "" && matched(everIs) == "" {
				r.add(report.Finding{
					ID: "run.log-line-removed", Key: "run.log-line-removed:" + name, Category: p.rule.Category, Severity: report.Error,
					Title:   fmt.Sprintf("the running program does not log %q any more", name),
					Detail:  fmt.Sprintf("Consumers look for %s. It matched: %s", pattern, old),
					Affects: []report.Place{{Path: config.FileName, Line: p.rule.PatternLines[name]}},
				})
			}
		}
	}
	for _, l := range []struct {
		id, what string
		lines    []string
	}{{"run.log-removed", "are not logged any more", gone}, {"run.log-added", "are new", came}} {
		if len(l.lines) > 0 {
			r.add(report.Finding{
				ID: l.id, Key: l.id + ":all", Category: "server", Severity: report.Note,
				Title:  fmt.Sprintf("%d lines of a start and some requests %s", len(l.lines), l.what),
				Detail: strings.Join(l.lines[:min(len(l.lines), maxLogLines)], "\n"),
			})
		}
	}
}
