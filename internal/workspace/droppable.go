package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/source"
)

// Truth is an answer that can't always be given.
type Truth string

// The answers.
const (
	Yes     Truth = "yes"
	No      Truth = "no"
	Unknown Truth = "unknown"
)

// Droppable tells whether a Drop-When condition holds at p's ref, and in words
// why. A condition that can't be read or tested here is Unknown.
func (w *Workspace) Droppable(ctx context.Context, p Pinned, dropWhen string) (Truth, string, error) {
	if dropWhen == "" {
		return Unknown, "it has no " + patch.DropWhen + " trailer", nil
	}
	c, err := patch.ParseCondition(dropWhen)
	if err != nil {
		return Unknown, err.Error(), nil
	}
	switch c.Kind {
	case "ref":
		order, ok := pin.Compare(p.Ref, c.Ref)
		switch {
		case !ok:
			return Unknown, fmt.Sprintf("%s and %s have no order without upstream's commits", p.Ref, c.Ref), nil
		case order >= 0:
			return Yes, fmt.Sprintf("%s is %s or later", p.Ref, c.Ref), nil
		}
		return No, fmt.Sprintf("%s comes before %s", p.Ref, c.Ref), nil
	case "commit":
		return w.holds(ctx, p, c.Commit)
	case "contains":
		pristine, err := w.Pristine(ctx, p)
		if err != nil {
			return Unknown, "", err
		}
		has, err := w.store.Repo().Has(ctx, pristine.Tree+":"+c.Path)
		if err != nil {
			return Unknown, "", fmt.Errorf("looking for %s in %s %s: %w", c.Path, p.Component.Name, p.Ref, err)
		}
		if !has {
			return Unknown, c.Path + " is not there any more", nil
		}
		text, err := w.store.Repo().Text(ctx, "cat-file", "blob", pristine.Tree+":"+c.Path)
		if err != nil {
			return Unknown, "", fmt.Errorf("reading %s of %s %s: %w", c.Path, p.Component.Name, p.Ref, err)
		}
		if strings.Contains(text, c.Text) {
			return Yes, fmt.Sprintf("%s holds %q", c.Path, c.Text), nil
		}
		return No, fmt.Sprintf("%s does not hold %q yet", c.Path, c.Text), nil
	}
	return No, "it is meant to stay", nil
}

// holds tells whether a commit is among those that lead up to p's ref.
func (w *Workspace) holds(ctx context.Context, p Pinned, commit string) (Truth, string, error) {
	at, err := w.Pristine(ctx, p)
	if err != nil {
		return Unknown, "", err
	}
	unknown := "whether upstream holds commit " + commit + " shows only in its history, "
	if at.From != string(source.FromGit) {
		return Unknown, unknown + "which a snapshot lacks", nil
	}
	h, err := w.History(ctx, p, at.Commit)
	switch {
	case errors.Is(err, source.ErrNoHistory):
		return Unknown, unknown + "which can't be had: " + err.Error(), nil
	case err != nil:
		return Unknown, "", err
	case h.Holds(ctx, commit, at.Commit):
		return Yes, fmt.Sprintf("upstream's %s holds commit %s", p.Ref, commit), nil
	}
	return No, fmt.Sprintf("upstream's %s does not hold commit %s yet", p.Ref, commit), ctx.Err()
}
