package patch

import (
	"fmt"
	"strings"
)

// Verdict is what became of a patch, a file of it, or a hunk.
type Verdict string

// The verdicts of the contract.
const (
	Clean      Verdict = "clean"      // applies exactly
	Offset     Verdict = "offset"     // applies at another line, same place
	Merged     Verdict = "merged"     // an unambiguous three-way merge
	Upstreamed Verdict = "upstreamed" // upstream holds the change already
	Partial    Verdict = "partial"    // upstream holds some of it
	Moved      Verdict = "moved"      // the target was renamed; the retargeted patch applies
	Conflict   Verdict = "conflict"   // needs a person
	Collision  Verdict = "collision"  // the file it adds exists
	Malformed  Verdict = "malformed"  // not a sound patch file
	Blocked    Verdict = "blocked"    // depends on one that failed
)

// Result sums up a series.
type Result string

// The results of the contract, with their exit codes.
const (
	ResultClean    Result = "clean"    // 0
	ResultRefresh  Result = "refresh"  // 3
	ResultConflict Result = "conflict" // 4
)

// Schema is the first key of the report's JSON.
const Schema = "payload.patch-check/v1"

// Report is the judgement of a series. Component and Ref are the caller's to
// fill in.
type Report struct {
	Schema    string    `json:"schema"`
	Component string    `json:"component"`
	Ref       string    `json:"ref"`
	Result    Result    `json:"result"`
	Patches   []Outcome `json:"patches"`
}

// Outcome is the judgement of one patch.
type Outcome struct {
	File    string   `json:"file"`
	Verdict Verdict  `json:"verdict"`
	Targets []Target `json:"targets"`
	Detail  string   `json:"detail"` // for a person, a fact a line; empty for clean
}

// Failed says whether the patch is left out of the tree.
func (o Outcome) Failed() bool { return o.Verdict.failed() }

// Target is one file of a patch.
type Target struct {
	Path      string  `json:"path"`
	Verdict   Verdict `json:"verdict"`
	RenamedTo string  `json:"renamed_to,omitempty"`
}

// failed says whether a patch with this verdict is left out of the tree.
func (v Verdict) failed() bool {
	switch v {
	case Conflict, Collision, Malformed, Blocked:
		return true
	}
	return false
}

// rank orders verdicts from good to bad; the worst of the parts is the whole's.
var rank = map[Verdict]int{Clean: 0, Offset: 1, Merged: 2, Partial: 3, Moved: 4, Blocked: 5, Collision: 6, Conflict: 7, Malformed: 8}

// combine is the verdict of a whole from its parts: upstreamed only when every
// part is, partial when some are and the others apply.
func combine(parts []Verdict) Verdict {
	worst, upstreamed := Clean, 0
	for _, v := range parts {
		if v == Upstreamed {
			upstreamed++
			continue
		}
		if rank[v] > rank[worst] {
			worst = v
		}
	}
	switch {
	case worst.failed() || upstreamed == 0:
		return worst
	case upstreamed == len(parts):
		return Upstreamed
	case worst == Moved:
		return Moved
	}
	return Partial
}

// resultOf sums up the patches that are not left out.
func resultOf(patches []Outcome, skip map[string]bool) Result {
	result := ResultClean
	for _, p := range patches {
		switch {
		case skip[p.File]:
			result = ResultRefresh
		case p.Verdict.failed():
			return ResultConflict
		case p.Verdict != Clean:
			result = ResultRefresh
		}
	}
	return result
}

// ConflictError is a series of which some patch doesn't apply.
type ConflictError struct{ Report Report }

func (e *ConflictError) Error() string {
	for _, p := range e.Report.Patches {
		if p.Verdict.failed() {
			where := e.Report.Component
			if e.Report.Ref != "" {
				where = strings.TrimSpace(where + " " + e.Report.Ref)
			}
			if where != "" {
				where = " to " + where
			}
			return fmt.Sprintf("applying %s%s: %s: %s", p.File, where, p.Verdict, strings.ReplaceAll(p.Detail, "\n", "; "))
		}
	}
	return "applying the patches: conflict"
}
