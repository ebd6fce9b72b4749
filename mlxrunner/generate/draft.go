package generate

import "fmt"

// A DraftError says why a model can't guess for another.
type DraftError struct{ Why string }

func (e *DraftError) Error() string { return "the draft model can't guess for this one: " + e.Why }

// UseDraft makes d guess for requests that ask for it. Both must be used on one
// thread, and their tokens must be the same ones. d is not to be used for
// anything else.
func (r *Runner) UseDraft(d *Runner) error {
	if why := differ(r, d); why != "" {
		return &DraftError{why}
	}
	r.draft = d
	return nil
}

// differ names the first token that is not the same in both.
func differ(r, d *Runner) string {
	for id := range max(r.Vocab, d.Vocab) {
		own, is := r.Tok.Token(id)
		other, there := d.Tok.Token(id)
		switch {
		case is && !there:
			return fmt.Sprintf("token %d is %q here, and the draft has none", id, own)
		case there && !is:
			return fmt.Sprintf("token %d is %q in the draft, and there is none here", id, other)
		case own != other:
			return fmt.Sprintf("token %d is %q here and %q in the draft", id, own, other)
		}
	}
	return ""
}
