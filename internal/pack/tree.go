package pack

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/manifest"
)

// unite copies what the group takes of every tree into one folder. Trees may
// hold the same file, never two of one name.
func unite(ctx context.Context, j *Job) error {
	for _, t := range j.Trees {
		n := 0
		for _, f := range t.Manifest.Files {
			if !j.Group.Takes(f.Path) {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := j.take(t, f); err != nil {
				return fmt.Errorf("taking %s of %s: %w", f.Path, t.Preset, err)
			}
			n++
		}
		if n == 0 {
			return fmt.Errorf("no file of %s belongs to the group: it takes %s", t.Preset, strings.Join(j.Group.Files, ", "))
		}
		j.Say("%d of %d files of %s", n, len(t.Manifest.Files), t.Preset)
	}
	return nil
}

var errTwoFiles = errors.New("another tree has another file of that name")

// take copies one file of a tree. A package for Windows has no links: what one
// points to is copied.
func (j *Job) take(t Tree, f manifest.File) error {
	from, to := filepath.Join(t.Dir, filepath.FromSlash(f.Path)), filepath.Join(j.Payload, filepath.FromSlash(f.Path))
	if f.Link != "" && j.Group.System == "windows" {
		target, ok := follow(t.Manifest.Files, f)
		if !ok {
			return fmt.Errorf("the link points to %s, which is no file of the tree", f.Link)
		}
		from, f = filepath.Join(t.Dir, filepath.FromSlash(target.Path)), target
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		if there, err := os.Readlink(to); err == nil && there == f.Link {
			return nil
		}
		if exists(to) {
			return errTwoFiles
		}
		return os.Symlink(f.Link, to)
	}
	if exists(to) {
		same, err := sameFile(from, to)
		if err == nil && !same {
			err = errTwoFiles
		}
		return err
	}
	return copyAs(from, to, f.Executable)
}

// follow is the file that a link of the tree leads to.
func follow(files []manifest.File, f manifest.File) (manifest.File, bool) {
	for range 40 { // as many as the kernel follows
		if f.Link == "" {
			return f, true
		}
		target := path.Join(path.Dir(f.Path), f.Link)
		i := slices.IndexFunc(files, func(other manifest.File) bool { return other.Path == target })
		if i < 0 {
			return f, false
		}
		f = files[i]
	}
	return f, false
}

// copyAs copies a file with the rights that an archive gives it, whatever the
// umask and the staged file's are.
func copyAs(from, to string, executable bool) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	return out.Chmod(mode)
}

func sameFile(a, b string) (bool, error) {
	x, err := manifest.Digest(a)
	if err != nil {
		return false, err
	}
	y, err := manifest.Digest(b)
	return x == y, err
}

// share keeps one of files that are equal, whatever their names, and makes the
// others relative links to it. Programs stay: one that is started through a link
// looks for its libraries where the link leads.
func share(_ context.Context, j *Job) error {
	files, err := manifest.Describe(j.Payload)
	if err != nil {
		return err
	}
	// The one that lies highest is kept, and of those the first by name.
	slices.SortStableFunc(files, func(a, b manifest.File) int {
		return strings.Count(a.Path, "/") - strings.Count(b.Path, "/")
	})
	type content struct {
		sha256     string
		executable bool
	}
	kept := map[content]string{}
	links := 0
	for _, f := range files {
		if f.Link != "" || f.Arch == "" && f.Size < smallest || isProgram(j.at(f.Path)) {
			continue
		}
		c := content{f.SHA256, f.Executable}
		first, ok := kept[c]
		if !ok {
			kept[c] = f.Path
			continue
		}
		same, err := equal(j.at(first), j.at(f.Path))
		if err != nil {
			return err
		}
		if !same {
			continue
		}
		target, err := filepath.Rel(filepath.Dir(j.at(f.Path)), j.at(first))
		if err != nil {
			return err
		}
		if err := os.Remove(j.at(f.Path)); err != nil {
			return err
		}
		if err := os.Symlink(filepath.ToSlash(target), j.at(f.Path)); err != nil {
			return err
		}
		links++
		j.result.Saved += f.Size
	}
	if links > 0 {
		j.Say("%d files are links to equal ones, %d bytes less", links, j.result.Saved)
	}
	return nil
}

// smallest is the size in bytes from which a file that is no library is worth a
// link. Below it are texts of licences, which people look for in their places.
const smallest = 64 << 10

// isProgram says whether an ELF file is started by itself.
func isProgram(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// at is where a file of the payload lies.
func (j *Job) at(name string) string { return filepath.Join(j.Payload, filepath.FromSlash(name)) }

// equal compares bytes: a link stands for a file in all that follows.
func equal(a, b string) (bool, error) {
	x, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer func() { _ = x.Close() }() // only read
	y, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer func() { _ = y.Close() }()
	bufX, bufY := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errX := io.ReadFull(x, bufX)
		m, errY := io.ReadFull(y, bufY)
		if !bytes.Equal(bufX[:n], bufY[:m]) {
			return false, nil
		}
		endX, endY := errors.Is(errX, io.EOF) || errors.Is(errX, io.ErrUnexpectedEOF), errors.Is(errY, io.EOF) || errors.Is(errY, io.ErrUnexpectedEOF)
		switch {
		case endX && endY:
			return true, nil
		case errX != nil && !endX:
			return false, errX
		case errY != nil && !endY:
			return false, errY
		}
	}
}
