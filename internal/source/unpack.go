package source

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// unpack writes the folder sub of a tar or zip file into dir, which it makes. The
// archive's top folder is left out of the paths: with top there must be exactly
// one, without it there may be one. Everything is looked at before anything is
// written, and an archive that reaches outside is refused with a *RefusedError.
func unpack(ctx context.Context, file, sub string, top bool, dir string) error {
	var list contents
	if err := eachEntry(ctx, file, func(h *tar.Header, _ io.Reader) error { return list.add(h) }); err != nil {
		return err
	}
	if err := list.choose(sub, top); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	// Also the kernel holds every path below dir.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // the files in it are closed one by one
	return eachEntry(ctx, file, func(h *tar.Header, body io.Reader) error {
		name, ok := list.chosen(h.Name)
		if !ok {
			return nil
		}
		return list.write(root, h, name, body)
	})
}

// eachEntry calls do for every entry of a zip file or of a tar file, compressed
// or not.
func eachEntry(ctx context.Context, file string, do func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	magic := make([]byte, 2)
	if _, err := f.ReadAt(magic, 0); err == nil && string(magic) == "PK" {
		return eachZipped(ctx, file, do)
	}
	plain, err := decompress(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }() // only read
	archive := tar.NewReader(plain)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(h, archive); err != nil {
			return err
		}
	}
}

// eachZipped calls do for every entry of a zip file, described as a tar's.
func eachZipped(ctx context.Context, file string, do func(*tar.Header, io.Reader) error) error {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // only read
	for _, entry := range archive.File {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := unzipped(entry, do); err != nil {
			return err
		}
	}
	return nil
}

func unzipped(entry *zip.File, do func(*tar.Header, io.Reader) error) error {
	body, err := entry.Open()
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // only read
	mode := entry.Mode()
	h := &tar.Header{Name: entry.Name, Typeflag: tar.TypeReg, Mode: int64(mode.Perm())}
	switch {
	case mode.IsDir():
		h.Typeflag = tar.TypeDir
	case mode&fs.ModeSymlink != 0:
		target, err := io.ReadAll(io.LimitReader(body, 1<<12))
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(target)
	case !mode.IsRegular():
		h.Typeflag = tar.TypeChar // anything that is refused
	}
	return do(h, body)
}

// decompress recognises the compression by the first bytes.
func decompress(r *bufio.Reader) (io.ReadCloser, error) {
	magic, err := r.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r)
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case bytes.HasPrefix(magic, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(r)), nil
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z'}):
		return nil, errors.New("the file is neither a zip, a tar nor a tar.gz, tar.bz2 or tar.zst")
	}
	return io.NopCloser(r), nil
}

// contents is what an archive holds.
type contents struct {
	kinds  map[string]byte // tar's type of every path, cleaned
	links  map[string]string
	prefix string // of the paths that are written; empty or ending in a slash
}

func refuse(format string, args ...any) error {
	return &RefusedError{Why: fmt.Sprintf(format, args...)}
}

// add notes an entry and refuses one that no archive of sources has.
func (c *contents) add(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name := path.Clean(h.Name)
	if strings.Contains(h.Name, "\\") || path.IsAbs(h.Name) || name != "." && !filepath.IsLocal(filepath.FromSlash(name)) {
		return refuse("path %q leads outside", h.Name)
	}
	if name == "." {
		return nil
	}
	if c.kinds == nil {
		c.kinds, c.links = map[string]byte{}, map[string]string{}
	}
	if old, twice := c.kinds[name]; twice && (old != tar.TypeDir || h.Typeflag != tar.TypeDir) {
		return refuse("%s is there twice", name)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink, tar.TypeLink:
		c.links[name] = h.Linkname
	default:
		return refuse("%s is neither a file, a folder nor a link", name)
	}
	c.kinds[name] = h.Typeflag
	return nil
}

// choose settles which part is written and checks it as a whole.
func (c *contents) choose(sub string, top bool) error {
	first := c.top()
	if first == "" && top {
		return errors.New("the archive has no single top folder")
	}
	c.prefix = path.Join(first, sub) + "/"
	if c.prefix == "/" {
		c.prefix = ""
	}
	names := collisions{}
	files := 0
	for full, kind := range c.kinds {
		name, ok := c.chosen(full)
		if !ok {
			continue
		}
		if kind != tar.TypeDir {
			files++
		}
		for part := name; part != "."; part = path.Dir(part) {
			if err := names.add(part); err != nil {
				return refuse("%v", err)
			}
			if above, ok := c.kinds[c.prefix+part]; ok && part != name && above != tar.TypeDir {
				return refuse("%s lies below %s, which is not a folder", name, part)
			}
		}
		switch kind {
		case tar.TypeSymlink:
			if leaves(name, c.links[full]) {
				return refuse("link %s leads outside, to %s", name, c.links[full])
			}
		case tar.TypeLink:
			target := path.Clean(c.links[full])
			if _, ok := c.chosen(target); !ok || c.kinds[target] != tar.TypeReg {
				return refuse("link %s leads outside, to %s", name, c.links[full])
			}
		}
	}
	if files == 0 {
		return fmt.Errorf("the archive has no files in %q", sub)
	}
	return nil
}

// top is the one folder that everything lies in, or empty.
func (c *contents) top() string {
	top := ""
	for name, kind := range c.kinds {
		first, _, below := strings.Cut(name, "/")
		if !below && kind != tar.TypeDir || top != "" && first != top {
			return ""
		}
		top = first
	}
	return top
}

// chosen is the path that an entry is written to. A stray .git is left out.
func (c *contents) chosen(full string) (string, bool) {
	name, ok := strings.CutPrefix(path.Clean(full), c.prefix)
	if !ok || name == "" || name == "." {
		return "", false
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return "", false
		}
	}
	return name, true
}

// write lays out one entry. Times aren't kept: nothing depends on them.
func (c *contents) write(root *os.Root, h *tar.Header, name string, body io.Reader) error {
	name = filepath.FromSlash(name)
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		target, _ := c.chosen(h.Linkname)
		return root.Link(filepath.FromSlash(target), name)
	case tar.TypeXGlobalHeader:
		return nil
	}
	mode := os.FileMode(0o644) // git tells no more than this of a mode
	if h.Mode&0o100 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, body); err != nil {
		_ = f.Close() // the copy's error is the one to tell
		return err
	}
	return f.Close()
}
