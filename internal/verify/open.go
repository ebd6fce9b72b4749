package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sourcegraph/conc/pool"

	"payload/internal/archive"
	"payload/internal/folder"
	"payload/internal/manifest"
	"payload/internal/report"
)

const categoryArchive = "archive"

// Packed is what was seen of an archive.
type Packed struct {
	Path  string       `json:"path"`
	Kind  archive.Kind `json:"kind"`
	Parts int          `json:"parts"`
	Bytes int64        `json:"bytes"` // of the archive, all parts
}

// Opened is a payload that can be read as a folder. Close it.
type Opened struct {
	Name     string  // what the person named
	Dir      string  // the folder that holds payload.json
	Archive  *Packed // nil for a folder
	Findings []report.Finding

	temp string
}

// Close deletes what was unpacked.
func (o *Opened) Close() {
	if o.temp != "" {
		removeTemp(o.temp)
	}
}

var errRelease = errors.New("this is the folder of a release, and each of its archives is verified by itself")

// Open finds the payload in a staged folder, or unpacks an archive into a
// temporary folder. What is wrong with the archive is in the findings; with
// any, Dir is empty, since an archive that can't be trusted isn't looked into.
// The error is a *FolderError, or ctx's cause.
func Open(ctx context.Context, name string) (*Opened, error) {
	o := &Opened{Name: name}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(name, archive.SumsName)); err == nil {
			return nil, &FolderError{Dir: name, Err: errRelease}
		}
		o.Dir = Folder(name)
		return o, nil
	}
	if err != nil && !archive.Looks(name) {
		return nil, &FolderError{Dir: name, Err: err}
	}
	if o.temp, err = os.MkdirTemp("", "payload-archive-"); err != nil {
		return nil, &FolderError{Dir: name, Err: err}
	}
	if err := o.unpack(ctx); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (o *Opened) unpack(ctx context.Context) error {
	parts, err := archive.Parts(o.Name)
	if err != nil && !errors.As(err, new(*archive.Problem)) {
		return &FolderError{Dir: o.Name, Err: err}
	}
	var sums []archive.Problem
	work := pool.New().WithContext(ctx).WithFirstError()
	work.Go(func(ctx context.Context) (err error) {
		sums, err = archive.CheckSums(ctx, parts)
		return err
	})
	contents, err := archive.Unpack(ctx, o.Name, o.temp, archive.Defaults)
	serr := work.Wait()
	o.Archive = &Packed{Path: o.Name, Kind: contents.Kind, Parts: len(contents.Files), Bytes: contents.Packed}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("unpacking %s: %w", o.Name, context.Cause(ctx))
	case errors.As(err, new(*archive.NotArchiveError)) && archive.Looks(o.Name):
		o.found(archive.Problem{ID: "archive.format", Title: filepath.Base(o.Name) + " is no archive", Detail: err.Error()})
	case err != nil:
		return err
	case serr != nil:
		return serr
	}
	for _, p := range slices.Concat(sums, contents.Problems) {
		o.found(p)
	}
	if len(o.Findings) == 0 {
		o.Dir = Folder(o.temp)
		o.outside()
		return o.debug(ctx)
	}
	return nil
}

func (o *Opened) found(p archive.Problem) {
	what := p.Entry
	if what == "" {
		what = filepath.Base(o.Name)
	}
	f := fault(categoryArchive, p.ID, what, p.Title, p.Detail, what)
	if !slices.ContainsFunc(o.Findings, func(other report.Finding) bool { return other.Key == f.Key }) {
		o.Findings = append(o.Findings, f)
	}
}

// outside reports files of an archive that lie beside the payload, where its
// manifest says nothing of them.
func (o *Opened) outside() {
	rel, err := filepath.Rel(o.temp, o.Dir)
	if err != nil || rel == "." {
		return
	}
	all, err := manifest.List(o.temp)
	if err != nil {
		return // reading the payload will say it
	}
	inside := filepath.ToSlash(rel) + "/"
	for _, f := range all {
		if !strings.HasPrefix(f.Path, inside) {
			o.found(archive.Problem{ID: "archive.outside", Entry: f.Path, Title: f.Path + " lies beside the payload in " + inside, Detail: "no manifest says what it should be"})
		}
	}
}

// Folder is the folder below dir that holds the payload: where its manifest
// lies, looked for in the places that staging and packaging use.
func Folder(dir string) string {
	for _, in := range []string{".", "lib/payload", "*", "*/lib/payload"} {
		found, err := folder.Glob(dir, path.Join(in, "payload*.json"))
		if err != nil {
			break
		}
		folders := map[string]bool{}
		for _, file := range found {
			if manifest.IsName(filepath.Base(file)) {
				folders[filepath.Dir(file)] = true
			}
		}
		for folder := range folders {
			if len(folders) == 1 {
				return folder
			}
		}
	}
	if inside := filepath.Join(dir, "lib", "payload"); exists(inside) {
		return inside
	}
	return dir
}
