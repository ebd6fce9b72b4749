package update

import (
	"fmt"
	"strings"

	"payload/internal/patch"
	"payload/internal/source"
	"payload/internal/workspace"
)

// Schema is the first key of the result's JSON.
const Schema = "payload.update/v1"

// Status says how an update ended.
type Status string

// The ends of an update.
const (
	Done      Status = "done"
	Unchanged Status = "unchanged" // the repository holds this already
	Planned   Status = "planned"   // a dry run that found nothing in the way
	Stopped   Status = "conflict"
	Aborted   Status = "aborted"
)

// Result is what an update did: `payload update --json` prints it.
type Result struct {
	Schema   string                `json:"schema"`
	Status   Status                `json:"status"`
	Updates  []Moved               `json:"updates"`
	Conflict *Conflict             `json:"conflict,omitempty"`
	Files    Files                 `json:"files"`
	Messages Messages              `json:"messages"`
	Coupled  []workspace.Agreement `json:"coupled"`
	Build    *Built                `json:"build,omitempty"`
	Commits  []string              `json:"commits"`
}

// Files are the files that change, relative to the root, in two groups that
// are reviewed differently.
type Files struct {
	Mechanical []string `json:"mechanical"` // pin, lock, copies, patches that stand at other lines
	Content    []string `json:"content"`    // patches that read differently or are gone
}

// Messages are the commits' messages; empty for a group without files.
type Messages struct {
	Mechanical string `json:"mechanical,omitempty"`
	Content    string `json:"content,omitempty"`
}

// Built is what the build made.
type Built struct {
	Preset  string `json:"preset"`
	Staged  string `json:"staged,omitempty"`
	Summary string `json:"summary"`
}

// Moved is one component that moved.
type Moved struct {
	Component string  `json:"component"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Commit    string  `json:"commit"`           // empty where no source tells
	Base      *Base   `json:"base,omitempty"`   // the base branch
	Source    string  `json:"source,omitempty"` // where the new tree is from
	Pristine  string  `json:"pristine,omitempty"`
	Patched   string  `json:"patched,omitempty"`
	Patches   []Patch `json:"patches"`
}

// Action is what was done about a patch.
type Action string

// The actions.
const (
	Kept      Action = "kept"      // not a byte changed
	Refreshed Action = "refreshed" // the same lines at another place
	Rewritten Action = "rewritten" // merged, reduced or retargeted
	Dropped   Action = "dropped"   // upstream holds it, or its own condition says so
	Skipped   Action = "skipped"   // a person said so
	Resolved  Action = "resolved"  // a person made it anew
	Waiting   Action = "waiting"   // the conflict, and what comes after it
)

// Patch is what became of one patch.
type Patch struct {
	File    string         `json:"file"`
	Now     string         `json:"now"` // its file in the new series; empty when it is gone
	Verdict patch.Verdict  `json:"verdict"`
	Action  Action         `json:"action"`
	Targets []patch.Target `json:"targets"`
	Detail  string         `json:"detail"`
	Reason  string         `json:"reason,omitempty"` // of what was skipped, or dropped by its condition
	// DropWhen is whether the condition of the Drop-When trailer holds at the new ref.
	DropWhen workspace.Truth `json:"drop_when"`
	DropWhy  string          `json:"drop_why"`
	Upstream []source.Commit `json:"upstream,omitempty"` // the commits that brought what upstream holds of it
}

// Conflict is where an update stopped.
type Conflict struct {
	Component string        `json:"component"`
	To        string        `json:"to"`
	File      string        `json:"file"`
	Verdict   patch.Verdict `json:"verdict"`
	Detail    string        `json:"detail"`
	Folder    string        `json:"folder,omitempty"` // relative to the root; empty in a dry run
	Unmerged  []string      `json:"unmerged"`
	Sides     []Side        `json:"sides"`
	Manual    bool          `json:"manual"`            // there is nothing to merge: the change has to be made by hand
	Settled   bool          `json:"settled"`           // git merges it without a conflict, in a place that may be wrong
	History   string        `json:"history,omitempty"` // why no commit is named
}

// Side is one place that upstream and the patch want differently.
type Side struct {
	patch.Side
	Commits []source.Commit `json:"commits"` // upstream's, that changed these lines; newest first
}

// ConflictError is an update that stopped for a person.
type ConflictError struct{ Conflict Conflict }

func (e *ConflictError) Error() string {
	c := e.Conflict
	return fmt.Sprintf("carrying %s to %s %s: %s: %s", c.File, c.Component, c.To, c.Verdict, strings.ReplaceAll(c.Detail, "\n", "; "))
}

// messages words the commits for what was done.
func (r *Result) messages() {
	var moves, notes, content []string
	for _, m := range r.Updates {
		if m.From == m.To {
			moves = append(moves, fmt.Sprintf("%s at %s", m.Component, m.To))
		} else {
			moves = append(moves, fmt.Sprintf("%s from %s to %s", m.Component, m.From, m.To))
		}
		for _, p := range m.Patches {
			line := fmt.Sprintf("%s: %s, %s", p.File, p.Verdict, p.Action)
			if p.Reason != "" {
				line += ": " + p.Reason
			}
			for _, c := range p.Upstream {
				line += fmt.Sprintf("\n  upstream's %.12s %s", c.ID, c.Subject)
			}
			for _, t := range p.Targets {
				if t.RenamedTo != "" {
					line += fmt.Sprintf("\n  %s is %s now", t.Path, t.RenamedTo)
				}
			}
			switch p.Action {
			case Refreshed:
				notes = append(notes, line)
			case Rewritten, Dropped, Skipped, Resolved:
				content = append(content, line)
			}
		}
	}
	title := "Update " + strings.Join(moves, " and ")
	if len(r.Files.Mechanical) > 0 {
		r.Messages.Mechanical = message(title, notes)
	}
	if len(r.Files.Content) > 0 {
		var names []string
		for _, m := range r.Updates {
			names = append(names, m.Component+" "+m.To)
		}
		r.Messages.Content = message("Carry the patches to "+strings.Join(names, " and "), content)
	}
}

func message(title string, lines []string) string {
	if len(lines) == 0 {
		return title + "\n"
	}
	return title + "\n\n" + strings.Join(lines, "\n") + "\n"
}
