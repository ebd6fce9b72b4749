package review

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"payload/internal/report"
)

func TestPageShowsHunks(t *testing.T) {
	var old, new strings.Builder
	for i := range 40 {
		fmt.Fprintf(&old, "int line%d;\n", i)
		fmt.Fprintf(&new, "int line%d;\n", i)
	}
	f := build(t, map[string]string{
		"rules":     "        - {id: server.exit, category: server, find: literals, in: [a.cpp, b.cpp], match: \"^x\"}\n",
		"old/a.cpp": old.String() + "void f() { puts(\"x old\"); }\n" + old.String(),
		"new/b.cpp": "// moved\n" + new.String() + "void f() { puts(\"x new\"); }\n" + new.String(),
	})
	in := f.input()
	res, err := Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Page(t.Context(), in.Repo, res)
	if err != nil {
		t.Fatal(err)
	}
	shown := false
	for _, e := range p.Entries {
		for _, h := range e.Hunks {
			if h.Path != "a.cpp → b.cpp" {
				t.Errorf("hunk of %s", h.Path)
			}
			for _, r := range h.Rows {
				if r.Kind() == "both" && strings.Contains(r.Old, "x old") && strings.Contains(r.New, "x new") && r.OldLine == 41 && r.NewLine == 42 {
					shown = true
				}
			}
		}
	}
	if !shown {
		t.Errorf("no hunk shows the change: %s", lines(res.Findings))
	}
}

func TestMarkdownIsPlainAndBounded(t *testing.T) {
	res := Result{Component: "toy", Old: Side{Ref: "b1"}, New: Side{Ref: "b2"}}
	res.Findings = append(res.Findings, report.Finding{
		ID: "a.b", Category: "server", Severity: report.Error, Title: "key <b>_x_</b> of @team `y` removed",
		Affects: []report.Place{{Path: "a.go", Line: 3}}, Where: []report.Place{{Ref: "b1", Path: "s.cpp", Line: 9}}, Fix: "look",
	})
	var b bytes.Buffer
	if err := Markdown(&b, res); err != nil {
		t.Fatal(err)
	}
	want := "- **error** key &lt;b&gt;\\_x\\_&lt;/b&gt; of @\u200bteam \\`y\\` removed; in our files: `a.go:3` (b1 `s.cpp:9`)<br>look\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("%s\nlacks %s", b.String(), want)
	}
	for range 3000 {
		res.Findings = append(res.Findings, report.Finding{ID: "a.c", Category: "models", Severity: report.Note, Title: strings.Repeat("name ", 20)})
	}
	b.Reset()
	if err := Markdown(&b, res); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 65536 || !strings.Contains(b.String(), " more: `payload review toy b1..b2`") || !strings.Contains(b.String(), "</details>") {
		t.Errorf("%d bytes, end %q", b.Len(), b.String()[b.Len()-100:])
	}
}
