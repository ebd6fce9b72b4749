package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"payload/internal/archive"
	"payload/internal/manifest"
	"payload/internal/report"
)

// ErrNotOver is a payload that can't be laid over another one.
var ErrNotOver = errors.New("it is no archive of a group that lies over another one")

var errNoBase = errors.New("no payload is in it")

// Over lays what o opened over the payload of its base, in a temporary folder
// that becomes o.Dir: what users have when both are unpacked. Where they don't go
// together is in the findings. The error is a *FolderError, or ctx's cause.
func (o *Opened) Over(ctx context.Context, base *Opened) error {
	if o.Dir == "" {
		return nil // it is in the findings why
	}
	o.Findings = slices.Concat(o.Findings, base.Findings)
	if base.Dir == "" {
		o.Dir = ""
		return nil
	}
	above, err := o.manifestsOf(o, ErrNotOver)
	if err != nil {
		return err
	}
	if o.Dir != "" && slices.ContainsFunc(above.all, func(m manifest.Manifest) bool { return m.Package == nil || m.Package.Over == "" }) {
		return &FolderError{Dir: o.Name, Err: ErrNotOver}
	}
	below, err := o.manifestsOf(base, errNoBase)
	if err != nil || o.Dir == "" {
		return err
	}
	for _, name := range above.names {
		if slices.Contains(below.names, name) {
			return &FolderError{Dir: base.Name, Err: fmt.Errorf("it holds %s already", name)}
		}
	}
	temp, err := os.MkdirTemp("", "payload-over-")
	if err != nil {
		return &FolderError{Dir: o.Name, Err: err}
	}
	if err := o.lay(ctx, base.Dir, temp); err != nil {
		removeTemp(temp)
		return err
	}
	if o.temp != "" {
		removeTemp(o.temp)
	}
	o.Dir, o.temp = temp, temp
	for _, m := range above.all {
		o.fits(m.Package, base.Name, below)
	}
	return nil
}

// manifestsOf reads those of p. One that can't be read is a finding, and nothing
// of o is looked at any more.
func (o *Opened) manifestsOf(p *Opened, without error) (described, error) {
	d, err := readManifests(p.Dir)
	switch {
	case errors.As(err, new(*manifest.MissingError)):
		return d, &FolderError{Dir: p.Name, Err: without}
	case err != nil:
		name := filepath.Base(p.Name)
		o.found(archive.Problem{ID: "manifest.unreadable", Entry: name, Title: "a manifest of " + name + " can't be read", Detail: within(p.Dir, err)})
		o.Dir = ""
	}
	return d, nil
}

// lay makes in dir what unpacking the base and then o gives. Files are linked,
// since they are only read; of two with one name the base's stays.
func (o *Opened) lay(ctx context.Context, base, dir string) error {
	link := func(from, to string) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return linkFile(from, to)
	}
	if err := copyFolder(base, dir, link, nil); err != nil {
		return &FolderError{Dir: base, Err: err}
	}
	files, err := manifest.Describe(o.Dir)
	if err != nil {
		return &FolderError{Dir: o.Name, Err: err}
	}
	there, err := manifest.Describe(dir)
	if err != nil {
		return &FolderError{Dir: base, Err: err}
	}
	both := map[string]bool{}
	for _, f := range files {
		i := slices.IndexFunc(there, func(b manifest.File) bool { return b.Path == f.Path })
		if i < 0 {
			continue
		}
		both[f.Path] = true
		if b := there[i]; b.SHA256 != f.SHA256 || b.Link != f.Link {
			o.found(archive.Problem{ID: "over.replaces", Entry: f.Path, Title: f.Path + " would replace another file of the base", Detail: "its SHA-256 is " + orNothing(f.SHA256) + ", the base's " + orNothing(b.SHA256)})
		}
	}
	if err := copyFolder(o.Dir, dir, link, func(name string) bool { return both[name] }); err != nil {
		return &FolderError{Dir: o.Name, Err: err}
	}
	return nil
}

// fits holds what a group says of its base against one.
func (o *Opened) fits(p *manifest.Package, name string, base described) {
	packed := slices.ContainsFunc(base.all, func(m manifest.Manifest) bool { return m.Package != nil })
	same := slices.ContainsFunc(base.all, func(m manifest.Manifest) bool {
		return m.Package != nil && m.Package.Group == p.Over && m.Package.OS == p.OS && m.Package.Arch == p.Arch
	})
	if packed && !same { // a staged tree is of no group yet
		o.found(archive.Problem{ID: "over.group", Title: fmt.Sprintf("%s lies over %s for %s/%s, and %s is something else", p.Group, p.Over, p.OS, p.Arch, filepath.Base(name))})
	}
	files := base.files()
	tree := manifest.NewTree(base.list())
	for _, r := range p.Relies {
		real, err := tree.Follow(r.Path)
		f, ok := files[real]
		switch {
		case err != nil || !ok:
			o.found(archive.Problem{ID: "over.missing", Entry: r.Path, Title: fmt.Sprintf("%s loads %s, which the base does not have", p.Group, r.Path)})
		case f.SHA256 != r.SHA256 && !base.stripped(real):
			o.found(archive.Problem{
				ID: "over.relies", Entry: r.Path, Title: fmt.Sprintf("%s of the base is not the file that %s was proven with", r.Path, p.Group),
				Detail: fmt.Sprintf("its SHA-256 is %s, and was %s; what is loaded of it is there, or another finding says what is not", f.SHA256, r.SHA256),
			})
			o.Findings[len(o.Findings)-1].Severity = report.Warning
		}
	}
}

// list is every file of the manifests.
func (d described) list() (all []manifest.File) {
	for _, m := range d.all {
		all = append(all, m.Files...)
	}
	return all
}

// stripped says whether debug information was taken out of a file: its content is
// not what it was when it was proven.
func (d described) stripped(file string) bool {
	return slices.ContainsFunc(d.all, func(m manifest.Manifest) bool {
		return slices.ContainsFunc(debugged(m), func(f manifest.Debugged) bool { return f.Path == file })
	})
}
