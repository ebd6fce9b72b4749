// Package universal makes one tree of several that were staged for one
// processor each. Mach-O files of the same path become one universal file whose
// images are, byte for byte, what went in; everything else must be equal.
// Nothing is chosen silently: a file that only one tree has must be declared,
// and all that doesn't fit is told at once, before anything is written.
package universal

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/machofile"
	"payload/internal/manifest"
)

// Tree is one staged payload. Trees of the same architecture lie over each
// other.
type Tree struct {
	Arch string // "arm64" or "amd64"; each Mach-O file has an image for it
	Dir  string
	// Takes says which files are wanted; nil: all.
	Takes func(path string) bool
}

// Joined is a universal file that was made.
type Joined struct {
	Path   string  `json:"path"`
	Images []Image `json:"images"`
}

// Image is one of its images.
type Image struct {
	Arch   string `json:"arch"`
	From   string `json:"from"`   // the file that it was
	SHA256 string `json:"sha256"` // of that file, and of the bytes in the universal one
}

// Result is what Merge did.
type Result struct {
	Files  int      `json:"files"`
	Joined []Joined `json:"joined"`
	Single []string `json:"single"` // files that lack an architecture, and may
}

// Error is all that keeps trees from becoming one.
type Error struct{ Problems []string }

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "making one payload of all architectures: " + e.Problems[0]
	}
	return fmt.Sprintf("making one payload of all architectures: %d files don't fit together:\n  %s", len(e.Problems), strings.Join(e.Problems, "\n  "))
}

// entry is a file of one tree.
type entry struct {
	manifest.File
	tree Tree
}

func (e entry) full() string { return filepath.Join(e.tree.Dir, filepath.FromSlash(e.Path)) }

// Merge writes the union of trees to out, an empty or missing folder. archs are
// those that every Mach-O file has to have an image for, and for which, where
// there are trees for them, all else has to be; single has globs of paths that
// need not. Manifests of the trees
// (payload.json at the root) are left out. Data is linked, not copied, where the
// file system can: nothing may write to it in place afterwards.
func Merge(ctx context.Context, out string, trees []Tree, archs, single []string) (Result, error) {
	files := map[string][]entry{}
	for _, tree := range trees {
		list, err := manifest.Describe(tree.Dir)
		if err != nil {
			return Result{}, err
		}
		for _, f := range list {
			if tree.Takes == nil || tree.Takes(f.Path) {
				files[f.Path] = append(files[f.Path], entry{f, tree})
			}
		}
	}
	p := planner{archs: archs, trees: trees, single: single}
	p.clashes(files)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p.add(name, files[name])
	}
	if len(p.problems) > 0 {
		return Result{}, &Error{p.problems}
	}
	res := Result{Files: len(p.steps), Single: p.alone}
	for _, s := range p.steps {
		if ctx.Err() != nil {
			return res, fmt.Errorf("making one payload of all architectures: %w", context.Cause(ctx))
		}
		joined, err := s.do(out)
		if err != nil {
			return res, fmt.Errorf("making one payload of all architectures: %s: %w", s.path, err)
		}
		if joined != nil {
			res.Joined = append(res.Joined, *joined)
		}
	}
	return res, nil
}

// step makes one file of the result from one entry, or joins several.
type step struct {
	path string
	from []entry
}

// planner decides what becomes of each path, and notes what doesn't fit.
type planner struct {
	archs    []string
	trees    []Tree
	single   []string
	steps    []step
	alone    []string
	problems []string
}

func (p *planner) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// clashes reports names that are one on a Mac's file system, folders included,
// and a file that is a folder elsewhere.
func (p *planner) clashes(files map[string][]entry) {
	seen, isDir := map[string]string{}, map[string]bool{}
	names := map[string]bool{}
	for name := range files {
		names[name] = true
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			names[d], isDir[d] = true, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		folded := strings.ToLower(name)
		if other, ok := seen[folded]; ok && path.Dir(other) == path.Dir(name) {
			p.problem("%s and %s are one name on a Mac", other, name)
		}
		seen[folded] = name
		if len(files[name]) > 0 && isDir[name] {
			p.problem("%s is a file in %s, and a folder elsewhere", name, files[name][0].tree.Dir)
		}
	}
}

// add decides about one path.
func (p *planner) add(name string, all []entry) {
	for _, e := range all {
		if why := misplaced(e); why != "" {
			p.problem("%s %s", e.full(), why)
			return
		}
	}
	first := all[0]
	for _, e := range all[1:] {
		switch {
		case e.Link != first.Link:
			p.problem("%s is %s in %s, and %s in %s", name, kind(first), first.tree.Dir, kind(e), e.tree.Dir)
			return
		case e.Executable != first.Executable:
			p.problem("%s is executable in only one of %s and %s", name, first.tree.Dir, e.tree.Dir)
			return
		}
	}
	different := slices.Clone(all[:1])
	for _, e := range all[1:] {
		if !slices.ContainsFunc(different, func(d entry) bool { return d.SHA256 == e.SHA256 }) {
			different = append(different, e)
		}
	}
	if !p.complete(name, all) {
		return
	}
	if len(different) > 1 && !p.joins(name, different) {
		return
	}
	p.steps = append(p.steps, step{name, different})
}

// misplaced says why a Mach-O file can't be one of its tree's.
func misplaced(e entry) string {
	if e.Link != "" || !isMachO(e) || slices.Contains(e.images(), e.tree.Arch) {
		return ""
	}
	return fmt.Sprintf("is for %s, in a tree for %s", e.Arch, e.tree.Arch)
}

// images are the architectures of a Mach-O file.
func (e entry) images() []string { return strings.Split(e.Arch, "+") }

// isMachO looks at the content; Arch alone may be another format's.
func isMachO(e entry) bool {
	f, err := machofile.Open(e.full())
	if err != nil {
		return errors.As(err, new(*machofile.SlicesError))
	}
	defer func() { _ = f.Close() }() // only read
	return len(f.Slices) > 0
}

func kind(e entry) string {
	if e.Link != "" {
		return "a link to " + e.Link
	}
	return "a file"
}

// complete makes sure that every architecture has the file, or that it is
// declared.
func (p *planner) complete(name string, all []entry) bool {
	var missing []string
	code := all[0].Link == "" && isMachO(all[0])
	for _, arch := range p.archs {
		has := slices.ContainsFunc(all, func(e entry) bool { return e.tree.Arch == arch || code && slices.Contains(e.images(), arch) })
		staged := slices.ContainsFunc(p.trees, func(t Tree) bool { return t.Arch == arch })
		if !has && (code || staged) {
			missing = append(missing, arch)
		}
	}
	if len(missing) == 0 {
		return true
	}
	for _, glob := range p.single {
		if doublestar.MatchUnvalidated(glob, name) {
			p.alone = append(p.alone, name)
			return true
		}
	}
	p.problem("%s is in %s and there is none for %s; what need not be for every processor is declared under single", name, all[0].tree.Dir, strings.Join(missing, " and "))
	return false
}

// joins says whether different contents of one path are images for different
// processors.
func (p *planner) joins(name string, different []entry) bool {
	for i, e := range different {
		if !isMachO(e) {
			other := different[(i+1)%len(different)]
			at, err := firstDifference(e.full(), other.full())
			if err != nil {
				p.problem("%s: %v", name, err)
			} else {
				p.problem("%s and %s differ from byte %d on, and are no code that could be joined", e.full(), other.full(), at)
			}
			return false
		}
		for _, other := range different[:i] {
			for _, arch := range e.images() {
				if slices.Contains(other.images(), arch) {
					p.problem("%s and %s are both for %s, and differ", other.full(), e.full(), arch)
					return false
				}
			}
		}
	}
	return true
}

// firstDifference is the offset of the first byte that is not the same.
func firstDifference(a, b string) (int64, error) {
	fa, err := os.Open(a)
	if err != nil {
		return 0, err
	}
	defer func() { _ = fa.Close() }() // only read
	fb, err := os.Open(b)
	if err != nil {
		return 0, err
	}
	defer func() { _ = fb.Close() }() // only read
	ra, rb := bufio.NewReader(fa), bufio.NewReader(fb)
	for at := int64(0); ; at++ {
		x, errA := ra.ReadByte()
		y, errB := rb.ReadByte()
		if x != y || errA != nil || errB != nil {
			return at, nil
		}
	}
}

func (s step) do(out string) (*Joined, error) {
	to := filepath.Join(out, filepath.FromSlash(s.path))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return nil, err
	}
	first := s.from[0]
	switch {
	case first.Link != "":
		return nil, os.Symlink(filepath.FromSlash(first.Link), to)
	case len(s.from) > 1:
		return s.join(to)
	case isMachO(first):
		return nil, copyFile(first.full(), to, mode(first)) // it will be signed
	}
	if os.Link(first.full(), to) == nil {
		return nil, nil
	}
	return nil, copyFile(first.full(), to, mode(first))
}

func mode(e entry) os.FileMode {
	if e.Executable {
		return 0o755
	}
	return 0o644
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	return create(to, mode, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

func create(file string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// join writes a universal file, reads it back, and holds each of its images
// against what was to go in.
func (s step) join(to string) (*Joined, error) {
	joined := &Joined{Path: s.path}
	var inputs []machofile.Input
	for _, e := range s.from {
		data, err := os.ReadFile(e.full())
		if err != nil {
			return nil, err
		}
		list, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.full(), err)
		}
		for _, slice := range list {
			image := data[slice.Offset : slice.Offset+slice.Size]
			inputs = append(inputs, machofile.Input{Slice: slice, From: bytes.NewReader(image)})
			sum := sha256.Sum256(image)
			joined.Images = append(joined.Images, Image{slice.Arch(), e.full(), hex.EncodeToString(sum[:])})
		}
	}
	if err := create(to, mode(s.from[0]), func(w io.Writer) error {
		_, err := machofile.Join(w, inputs)
		return err
	}); err != nil {
		return nil, err
	}
	return joined, joined.check(to)
}

func (j *Joined) check(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	list, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, want := range j.Images {
		i := slices.IndexFunc(list, func(s machofile.Slice) bool { return s.Arch() == want.Arch })
		if i < 0 {
			return errors.New("the image for " + want.Arch + " is not in what was written")
		}
		sum := sha256.Sum256(data[list[i].Offset : list[i].Offset+list[i].Size])
		if hex.EncodeToString(sum[:]) != want.SHA256 {
			return errors.New("the image for " + want.Arch + " is not what it was, in what was written")
		}
	}
	return nil
}
