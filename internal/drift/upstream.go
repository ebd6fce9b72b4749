package drift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"payload/internal/config"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/report"
	"payload/internal/search"
	"payload/internal/workspace"
)

func checkUpstream(ctx context.Context, r *repo) ([]report.Finding, error) {
	lockText, err := os.ReadFile(r.file.Abs(pin.LockName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", pin.LockName, err)
	}
	var found []report.Finding
	for _, c := range r.file.Components {
		ref, behind, refs, err := search.Latest(ctx, r.w, c.Name, search.Options{})
		var moved *pin.MovedTagError
		var unordered *search.UnorderedError
		at := place(c.Pin, 1)
		switch {
		case errors.As(err, &moved):
			found = append(found, finding("upstream.moved", c.Name, report.Error, place(pin.LockName, lineOf(string(lockText), moved.Locked)),
				moved.Error(), "What a fresh checkout gets is not what was reviewed.", "if the move is meant: payload lock "+c.Name))
			continue
		case errors.As(err, &unordered):
			found = append(found, finding("upstream.unordered", c.Name, report.Note, at, unordered.Error(), "", ""))
			continue
		case err != nil:
			return nil, err
		}
		if refs.Away != "" {
			found = append(found, finding("upstream.away", c.Name, report.Warning, at, "the upstream of "+c.Name+" could not be asked", refs.Away, ""))
		}
		more, err := r.droppable(ctx, c, refs.Pinned)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
		if behind == 0 {
			continue
		}
		found = append(found, finding("upstream.behind", c.Name, report.Note, at, fmt.Sprintf("%s %s is behind %s, by %d", c.Name, refs.Pinned.Ref, ref, behind), "", "payload update "+c.Name+" --ref best"))
		more, err = r.atTip(ctx, c, refs.Pinned, ref)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// droppable finds patches whose Drop-When holds at the pin.
func (r *repo) droppable(ctx context.Context, c config.Component, p workspace.Pinned) ([]report.Finding, error) {
	var found []report.Finding
	for _, one := range p.Series.Patches {
		when, _ := one.Message.Trailer(patch.DropWhen)
		holds, why, err := r.w.Droppable(ctx, p, when)
		if err != nil {
			return nil, err
		}
		if holds == workspace.Yes {
			found = append(found, finding("upstream.droppable", one.File, report.Warning, place(path.Join(c.Patches, one.File), 1),
				one.File+" is no longer needed", why, "delete it, then payload lock "+c.Name))
		}
	}
	return found, nil
}

// atTip judges the series at the newest ref.
func (r *repo) atTip(ctx context.Context, c config.Component, p workspace.Pinned, ref string) ([]report.Finding, error) {
	if len(p.Series.Patches) == 0 {
		return nil, nil
	}
	judged, err := r.w.CheckSeries(ctx, p, ref)
	if err != nil {
		return nil, err
	}
	var found []report.Finding
	for _, v := range judged.Patches {
		id, severity, title := "upstream.merged", report.Note, fmt.Sprintf("upstream holds %s by %s", v.File, ref)
		switch v.Verdict {
		case patch.Clean, patch.Offset, patch.Merged, patch.Moved:
			continue
		case patch.Upstreamed:
		case patch.Partial:
			title = fmt.Sprintf("upstream holds some of %s by %s", v.File, ref)
		default:
			id, severity, title = "upstream.conflict", report.Warning, fmt.Sprintf("%s does not apply to %s: %s", v.File, ref, v.Verdict)
		}
		f := finding(id, v.File, severity, place(path.Join(c.Patches, v.File), 1), title, v.Detail, "")
		f.Command = "payload patch check " + c.Name + " --ref " + ref
		found = append(found, f)
	}
	return found, nil
}
