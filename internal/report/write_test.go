package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the goldens anew")

// sample has what is hard to write: marks of every format in the texts, a
// finding without a place, one whose places are upstream's.
func sample() Report {
	return Report{
		Schema: "payload.test/v1", Title: "payload test", Summary: "A <b>summary</b>.", Fallback: "payload.yaml",
		Rules: []Rule{{ID: "filters", Title: "Path filters", Help: "A filter that matches nothing never starts a job."}, {ID: "options.removed", Title: "An option is gone", Help: "Gone."}},
		Findings: []Finding{
			{ID: "filters.wide", Key: "k3", Severity: Note, Title: "nothing much"},
			{
				ID: "filters.dead", Key: "k1", Severity: Error, Title: "`./llama/**` | matches <nothing>, @all", Detail: "100%\nof ```files```: a, b",
				Where: []Place{{Path: ".github/workflows/a b.yml", Line: 7}, {Path: "x", Line: 1}}, Fix: "write llama/**",
			},
			{
				ID: "options.removed", Key: "k2", Category: "build", Severity: Warning, Title: "GGML_X is gone", Commit: "0c1e", Command: "git diff a b -- c",
				Where: []Place{{Ref: "b1", Path: "ggml/CMakeLists.txt", Line: 3}}, Affects: []Place{{Path: "llama/server/CMakePresets.json", Line: 20}},
			},
		},
		Waived: []Waived{{Finding: Finding{ID: "series.metadata", Key: "k4", Severity: Error, Title: "no trailer", Where: []Place{{Path: "p/1.patch", Line: 1}}}, Reason: "until | upstream answers", Expires: "2027-01-31"}},
	}
}

func written(t *testing.T, f Format, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, f, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	for _, f := range forms() {
		got := written(t, f.format, sample())
		golden := filepath.Join("testdata", string(f.format)+".golden")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not as in %s:\n%s", f.format, golden, got)
		}
	}
}

// TestSARIF holds the log against the published schema of 2.1.0.
func TestSARIF(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/sarif/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]Report{"sample": sample(), "empty": {Title: "t", Fallback: "payload.yaml"}} {
		text := written(t, SARIF, r)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// The schema would see a fault.
		broken, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.Replace(text, `"version": "2.1.0"`, `"version": "2.2"`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(broken) == nil {
			t.Error("the schema lets any version pass")
		}
	}
	var log sarifLog
	if err := json.Unmarshal([]byte(written(t, SARIF, sample())), &log); err != nil {
		t.Fatal(err)
	}
	for _, res := range log.Runs[0].Results {
		if len(res.Locations) != 1 || res.Locations[0].Physical.Artifact.URI == "" || res.Fingerprints["payloadKey/v1"] == "" {
			t.Errorf("%s has no place or no fingerprint: %+v", res.RuleID, res)
		}
		if log.Runs[0].Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID {
			t.Errorf("%s points at another rule", res.RuleID)
		}
	}
}

// TestMarkdownFits holds that a comment is never longer than GitHub takes, and
// says what it left out.
func TestMarkdownFits(t *testing.T) {
	r := sample()
	for range 2000 {
		r.Findings = append(r.Findings, r.Findings[1])
	}
	text := written(t, Markdown, r)
	if len(text) > 65536 {
		t.Errorf("%d bytes", len(text))
	}
	if !strings.Contains(text, "more findings do not fit here") {
		t.Error("nothing says that findings were left out")
	}
}

func TestFormatOf(t *testing.T) {
	for file, want := range map[string]Format{"a/drift.sarif": SARIF, "x.json": JSON, "c.MD": Markdown, "p.html": HTML, "t.txt": Text} {
		if got, err := FormatOf(file); err != nil || got != want {
			t.Errorf("%s: %s, %v", file, got, err)
		}
	}
	if _, err := FormatOf("report.xml"); err == nil || !strings.Contains(err.Error(), ".sarif") {
		t.Errorf("an unknown ending: %v", err)
	}
	if _, err := ParseFormat("yaml"); err == nil || !strings.Contains(err.Error(), "markdown") {
		t.Errorf("an unknown format: %v", err)
	}
}
