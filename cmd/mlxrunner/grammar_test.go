package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"payload/mlx/mlxtest"
)

func TestGrammar(t *testing.T) {
	mlxtest.Library(t)
	schema := filepath.Join(t.TempDir(), "form.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(schema, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"type": "object", "properties": {"harbour": {"type": "string", "maxLength": 8}, "boats": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["harbour", "boats"], "additionalProperties": false}`)
	run := []string{"run", "--model", tiny, "--prompt", "The harbour of Senn wakes"}
	for _, more := range [][]string{nil, {"--lookup", "3"}, {"--temperature", "2"}} {
		code, out, err := mlxrunner("", append(append(run, "--json-schema", schema), more...)...)
		var got struct {
			Harbour string
			Boats   int
		}
		if e := json.Unmarshal([]byte(out), &got); code != exitDone || e != nil || len([]rune(got.Harbour)) > 8 || got.Boats > 9 {
			t.Errorf("%v: %d, %q, %v, %s", more, code, out, e, err)
		}
	}
	code, out, err := mlxrunner("", append(run, "--regex", `\d\d:\d\d`)...)
	if code != exitDone || !regexp.MustCompile(`^\d\d:\d\d\n$`).MatchString(out) {
		t.Errorf("%d, %q, %s", code, out, err)
	}
	write(`{"properties": {"n": {"multipleOf": 3}}}`)
	for _, c := range []struct {
		more []string
		says []string
	}{
		{[]string{"--json-schema", schema}, []string{"form.json: multipleOf at /properties/n is not supported"}},
		{[]string{"--json-schema", schema + "x"}, []string{"reading the JSON schema: open "}},
		{[]string{"--regex", `a\b`}, []string{`--regex a\b: \b is not supported`}},
		{[]string{"--regex", `(`}, []string{"--regex (: ", "missing closing )"}},
		{[]string{"--regex", `a`, "--json-schema", schema}, []string{"--json-schema and --regex"}},
	} {
		code, out, err := mlxrunner("", append(run, c.more...)...)
		if code != exitUsage || out != "" || !strings.HasPrefix(err, "error: ") {
			t.Errorf("%v: %d, %q, %s", c.more, code, out, err)
		}
		wantIn(t, err, c.says)
	}
}
