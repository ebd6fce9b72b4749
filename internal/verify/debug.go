package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"payload/internal/archive"
	"payload/internal/manifest"
)

// checkDebug holds files against the ids by which the manifests say that their
// debug information is found.
func checkDebug(res *Result, dir string, d described) {
	for _, m := range d.all {
		for _, f := range debugged(m) {
			ids, err := idsIn(dir, f.Path)
			if err == nil && !slices.Equal(ids, f.IDs) { // one that can't be read is reported already
				res.static("debug.id", f.Path, f.Path+" is not the file that its debug information is of",
					fmt.Sprintf("its ids are %v, those of %s in %s are %v", ids, f.In, m.Package.Debug.Name, f.IDs), f.Path)
			}
		}
	}
}

// idsIn are those of a file that a manifest names, which may be anybody's.
func idsIn(dir, name string) ([]string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, os.ErrNotExist
	}
	return manifest.BuildIDs(filepath.Join(dir, filepath.FromSlash(name)))
}

func debugged(m manifest.Manifest) []manifest.Debugged {
	if m.Package == nil || m.Package.Debug == nil {
		return nil
	}
	return m.Package.Debug.Files
}

// debug holds the archives of debug information that lie beside the archive
// against what its manifest says of them. They need not be there: users don't
// want them.
func (o *Opened) debug(ctx context.Context) error {
	d, err := readManifests(o.Dir)
	if err != nil {
		return nil //nolint:nilerr // reading the payload will say it
	}
	for _, m := range d.all {
		if len(debugged(m)) == 0 {
			continue
		}
		name := m.Package.Debug.Name
		file := filepath.Join(filepath.Dir(o.Name), name)
		if name == "." || name == ".." || name != filepath.Base(name) {
			o.found(archive.Problem{ID: "debug.digest", Entry: manifest.Name, Title: fmt.Sprintf("%s names no file as its debug information: %q", manifest.Name, name)})
			continue
		}
		parts, err := archive.Parts(file)
		switch p := (*archive.Problem)(nil); {
		case errors.Is(err, os.ErrNotExist):
			continue
		case errors.As(err, &p):
			o.found(archive.Problem{ID: p.ID, Entry: filepath.Base(file), Title: p.Title, Detail: p.Detail})
			continue
		case err != nil:
			return &FolderError{Dir: file, Err: err}
		}
		if err := o.debugArchive(ctx, file, parts, *m.Package.Debug); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
	}
	return nil
}

func (o *Opened) debugArchive(ctx context.Context, file string, parts []string, d manifest.Debug) error {
	size, sum, err := digestOf(parts)
	if err != nil {
		return err
	}
	if size != d.Size || sum != d.SHA256 {
		o.found(archive.Problem{
			ID: "debug.digest", Entry: d.Name, Title: d.Name + " is not the debug information of this archive",
			Detail: fmt.Sprintf("SHA-256 %s, %d bytes; %s says %s, %d bytes", sum, size, manifest.Name, d.SHA256, d.Size),
		})
		return nil
	}
	temp, err := os.MkdirTemp("", "payload-debug-")
	if err != nil {
		return err
	}
	defer removeTemp(temp)
	contents, err := archive.Unpack(ctx, file, temp, archive.Defaults)
	if err != nil {
		return err
	}
	for _, p := range contents.Problems {
		o.found(p)
	}
	for _, f := range d.Files {
		ids, err := idsIn(temp, f.In)
		if err != nil || !slices.Equal(ids, f.IDs) {
			why := fmt.Sprintf("its ids are %v, %s says %v", ids, manifest.Name, f.IDs)
			if err != nil {
				why = "it is not there"
			}
			o.found(archive.Problem{ID: "debug.id", Entry: f.In, Title: fmt.Sprintf("%s in %s is not the debug information of %s", f.In, d.Name, f.Path), Detail: why})
		}
	}
	return nil
}

// digestOf is the size and SHA-256 of what files make up together.
func digestOf(files []string) (size int64, sum string, err error) {
	h := sha256.New()
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return 0, "", err
		}
		n, err := io.Copy(h, f)
		_ = f.Close() // only read
		if err != nil {
			return 0, "", err
		}
		size += n
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}
