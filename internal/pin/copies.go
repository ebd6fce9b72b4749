package pin

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"payload/internal/atomicfile"
	"payload/internal/config"
)

// Place is a line of the repository, other than the pin file, that holds a
// component's ref.
type Place struct {
	Path   string `json:"path"`   // relative to the root, with forward slashes
	Line   int    `json:"line"`   // from 1
	Ref    string `json:"ref"`    // what it says
	Agrees bool   `json:"agrees"` // that is the ref asked about
}

// CopyError is a copy of a pin that payload.yaml declares and that can't be
// found.
type CopyError struct {
	Component string
	Path      string
	Why       string
}

func (e *CopyError) Error() string {
	return fmt.Sprintf("reading the copy of %s's pin in %s: %s", e.Component, e.Path, e.Why)
}

// Copies lists every declared copy of c's pin, in the order of payload.yaml and
// then of lines, and whether it says ref. A copy that isn't there is a
// *CopyError.
func Copies(f *config.File, c config.Component, ref string) ([]Place, error) {
	var places []Place
	for _, k := range c.Copies {
		text, err := os.ReadFile(f.Abs(k.Path))
		if err != nil {
			return places, &CopyError{Component: c.Name, Path: k.Path, Why: reason(err)}
		}
		found := k.Regexp().FindAllSubmatchIndex(text, -1)
		if len(found) == 0 {
			return places, &CopyError{Component: c.Name, Path: k.Path, Why: fmt.Sprintf("nothing in it matches %q", k.Pattern)}
		}
		for _, at := range found {
			said := string(group(text, at))
			places = append(places, Place{Path: k.Path, Line: LineAt(text, at[0]), Ref: said, Agrees: said == ref})
		}
	}
	return places, nil
}

// LineAt is the line, from 1, of a place in a text.
func LineAt(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// group is what the one group of a match holds; empty where it took no part.
func group(text []byte, at []int) []byte {
	if at[2] < 0 {
		return nil
	}
	return text[at[2]:at[3]]
}

func reason(err error) string {
	if os.IsNotExist(err) {
		return "it is not there"
	}
	return err.Error()
}

// Edit is a file that has to change, whole.
type Edit struct {
	Path     string // relative to the root, with forward slashes
	Mode     os.FileMode
	Old, New []byte
}

// CopyEdits gives the files that hold copies of c's pin as they read with ref
// in every copy. Those that read so already are left out; nothing is written. A
// copy that isn't there, or that its pattern would no longer find, is a
// *CopyError.
func CopyEdits(f *config.File, c config.Component, ref string) ([]Edit, error) {
	if _, err := Copies(f, c, ref); err != nil {
		return nil, err
	}
	var edits []Edit
	for _, k := range c.Copies {
		i := slices.IndexFunc(edits, func(e Edit) bool { return oneFile(f, e.Path, k.Path) })
		if i < 0 {
			e := Edit{Path: k.Path}
			info, err := os.Stat(f.Abs(k.Path))
			if err == nil {
				e.Mode = info.Mode().Perm()
				e.Old, err = os.ReadFile(f.Abs(k.Path))
			}
			if err != nil {
				return nil, &CopyError{Component: c.Name, Path: k.Path, Why: reason(err)}
			}
			e.New = e.Old
			i, edits = len(edits), append(edits, e)
		}
		edits[i].New = replaceGroup(edits[i].New, k, ref)
		if !finds(k, edits[i].New, ref) { // the next reader would not
			return nil, &CopyError{Component: c.Name, Path: k.Path, Why: fmt.Sprintf("with %s written there, %q does not find it", ref, k.Pattern)}
		}
	}
	return slices.DeleteFunc(edits, func(e Edit) bool { return bytes.Equal(e.Old, e.New) }), nil
}

// oneFile says whether two paths name one file, by links or in other words.
func oneFile(f *config.File, a, b string) bool {
	if a == b {
		return true
	}
	first, err := filepath.EvalSymlinks(f.Abs(a))
	if err != nil {
		return false
	}
	second, err := filepath.EvalSymlinks(f.Abs(b))
	return err == nil && first == second
}

// finds says whether every match of k holds ref, and there is one.
func finds(k config.Copy, text []byte, ref string) bool {
	found := k.Regexp().FindAllSubmatchIndex(text, -1)
	return len(found) > 0 && !slices.ContainsFunc(found, func(at []int) bool { return string(group(text, at)) != ref })
}

// replaceGroup puts ref into the group of every match.
func replaceGroup(text []byte, k config.Copy, ref string) []byte {
	var out []byte
	last := 0
	for _, at := range k.Regexp().FindAllSubmatchIndex(text, -1) {
		if at[2] < 0 {
			continue
		}
		out = append(append(out, text[last:at[2]]...), ref...)
		last = at[3]
	}
	return append(out, text[last:]...)
}

// SetCopies writes ref into every copy of c's pin, each file whole, and names
// the files that changed. A copy that isn't there is a *CopyError, and then
// nothing is written.
func SetCopies(f *config.File, c config.Component, ref string) ([]string, error) {
	edits, err := CopyEdits(f, c, ref)
	if err != nil {
		return nil, err
	}
	var changed []string
	for _, e := range edits {
		path, err := filepath.EvalSymlinks(f.Abs(e.Path)) // a link stays one
		if err == nil {
			err = atomicfile.Write(path, e.New, e.Mode)
		}
		if err != nil {
			return changed, fmt.Errorf("writing the copy of %s's pin: %w", c.Name, err)
		}
		changed = append(changed, e.Path)
	}
	return changed, nil
}
