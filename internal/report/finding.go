// Package report owns the one model of findings that review, drift and verify
// share, and how findings are written out: as text, JSON, SARIF 2.1.0, Markdown,
// an HTML page and GitHub's annotations. It knows nothing of what is found.
package report

// Severity ranks a finding.
type Severity string

// The severities, worst first.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Place is a spot in a file, at a ref where the file is upstream's.
type Place struct {
	Ref  string `json:"ref,omitempty"`
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
}

// Finding is one thing that a person should look at.
type Finding struct {
	ID       string   `json:"id"`  // the kind: lower case with dots, "closure.missing"
	Key      string   `json:"key"` // stable fingerprint for waivers and SARIF
	Category string   `json:"category"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"` // names the thing found
	Detail   string   `json:"detail,omitempty"`
	Where    []Place  `json:"where,omitempty"`
	Affects  []Place  `json:"affects,omitempty"`
	Commit   string   `json:"commit,omitempty"`
	Command  string   `json:"command,omitempty"` // shows it
	Fix      string   `json:"fix,omitempty"`     // what to do
}

var rank = map[Severity]int{Note: 1, Warning: 2, Error: 3}

// Worst is the highest severity among findings, or empty when there are none.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, f := range findings {
		if rank[f.Severity] > rank[worst] {
			worst = f.Severity
		}
	}
	return worst
}
