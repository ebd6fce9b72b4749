package review

import (
	"context"
	"fmt"
	"path"
	"strings"

	"payload/internal/patch"
	"payload/internal/report"
	"payload/internal/workspace"
)

// The category of what is found about carried patches: whether upstream now
// supports what they add.
const patchCategory = "models"

// Patches judges the carried series against the new ref: which patches upstream
// has taken over, which may be dropped, which have to be refreshed.
func Patches(ctx context.Context, w *workspace.Workspace, p workspace.Pinned, ref string) ([]report.Finding, error) {
	if len(p.Series.Patches) == 0 {
		return nil, nil
	}
	checked, err := w.CheckSeries(ctx, p, ref)
	if err != nil {
		return nil, err
	}
	var found []report.Finding
	for i, outcome := range checked.Patches {
		f := report.Finding{
			Category: patchCategory, Detail: outcome.Detail,
			Affects: []report.Place{{Path: path.Join(p.Component.Patches, outcome.File)}},
		}
		for _, t := range outcome.Targets {
			f.Where = append(f.Where, report.Place{Ref: ref, Path: t.Path})
		}
		verdict(&f, p.Component.Name, ref, outcome)
		if f.ID != "" {
			f.Key = f.ID + ":" + outcome.File
			found = append(found, f)
		}
		condition, _ := p.Series.Patches[i].Message.Trailer(patch.DropWhen)
		may, why, err := w.Droppable(ctx, w.At(p, ref), condition)
		if err != nil {
			return nil, err
		}
		if may == workspace.Yes {
			found = append(found, report.Finding{
				ID: "patches.droppable", Key: "patches.droppable:" + outcome.File, Category: patchCategory, Severity: report.Warning,
				Title:  fmt.Sprintf("patch %s may be dropped at %s", outcome.File, ref),
				Detail: fmt.Sprintf("Its Drop-When holds (%s): %s.", condition, why),
				Where:  f.Where, Affects: f.Affects, Fix: "delete the patch, then: payload lock " + p.Component.Name,
			})
		}
	}
	return found, nil
}

// CarriedBy lists what p's patches change.
func CarriedBy(p workspace.Pinned) []Carried {
	var list []Carried
	for _, one := range p.Series.Patches {
		c := Carried{File: path.Join(p.Component.Patches, one.File)}
		for _, d := range one.Diffs {
			c.Paths = append(c.Paths, d.Path())
		}
		list = append(list, c)
	}
	return list
}

// verdict fills in a finding for what became of a patch; its id stays empty
// for one that applies as it is.
func verdict(f *report.Finding, component, ref string, o patch.Outcome) {
	refresh := fmt.Sprintf("payload patch refresh %s --ref %s", component, ref)
	f.Severity = report.Warning
	switch o.Verdict {
	case patch.Clean:
	case patch.Upstreamed:
		f.ID, f.Title = "patches.upstreamed", fmt.Sprintf("upstream %s holds what patch %s adds", ref, o.File)
		f.Fix = "delete the patch, then: payload lock " + component
	case patch.Partial:
		f.ID, f.Title = "patches.partly-upstreamed", fmt.Sprintf("upstream %s holds a part of what patch %s adds", ref, o.File)
		f.Fix = refresh
	case patch.Offset, patch.Merged, patch.Moved:
		f.ID, f.Title = "patches.needs-refresh", fmt.Sprintf("patch %s applies to %s with a change: %s", o.File, ref, o.Verdict)
		if o.Verdict == patch.Offset {
			f.Severity = report.Note
		}
		f.Fix = refresh
	default:
		f.ID, f.Title = "patches.conflict", fmt.Sprintf("patch %s does not apply to %s: %s", o.File, ref, o.Verdict)
		f.Severity = report.Error
		f.Fix = strings.Join([]string{"payload update", component, "--ref", ref}, " ")
	}
}
