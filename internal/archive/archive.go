// Package archive reads finished archives: .tar.zst, .tgz and .zip, whole or in
// parts, told apart by their content. It unpacks into a folder that it is given
// and writes nowhere else, whatever the archive says, and stops at limits.
//
// What a user's machine must not meet (a name that leads out, a hard link, a
// file that ends early) is a Problem, not an error: an error means that this
// machine couldn't read or write. Whether what was unpacked is a good payload is
// internal/verify's question.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is a form of archive.
type Kind string

// The forms.
const (
	TarZstd Kind = "tar.zst"
	TarGzip Kind = "tgz"
	Zip     Kind = "zip"
)

// magics are the first bytes of each form.
var magics = []struct {
	kind  Kind
	bytes string
}{
	{TarZstd, "\x28\xb5\x2f\xfd"},
	{TarGzip, "\x1f\x8b"},
	{Zip, "PK\x03\x04"},
	{Zip, "PK\x05\x06"}, // without an entry
}

// extensions are the names that an archive goes by.
var extensions = []string{".tar.zst", ".tzst", ".tgz", ".tar.gz", ".zip"}

// Limits bound what is unpacked.
type Limits struct {
	Bytes   int64 // of all files together
	Entries int
	Ratio   int64 // bytes unpacked for each byte read, beyond the first FreeBytes
	// FreeBytes are unpacked whatever the ratio is: small archives of text
	// compress well.
	FreeBytes int64
	Window    uint64 // bytes of history that a decompressor may have to keep
}

// Defaults allow several times what the largest payload needs. The window is
// what zstd takes without being told to take more: users call it through tar.
var Defaults = Limits{Bytes: 32 << 30, Entries: 100_000, Ratio: 1000, FreeBytes: 64 << 20, Window: 128 << 20}

// Problem is something that an archive must not have or be.
type Problem struct {
	ID    string // the kind of finding: "archive.traversal"
	Entry string // a name in the archive; empty for the archive itself
	Title string
	// Detail says why that is bad, or what the library said.
	Detail string
}

func (p *Problem) Error() string { return p.Title }

// Contents is what was seen of an archive.
type Contents struct {
	Kind     Kind
	Files    []string // the archive, or its parts in order
	Packed   int64    // bytes of those
	Entries  int
	Bytes    int64 // of all unpacked files
	Problems []Problem
}

// Looks says whether path names an archive, or a part of one, by its name.
func Looks(path string) bool {
	base := strings.ToLower(filepath.Base(path))
	if m := partName.FindStringSubmatch(base); m != nil {
		base = m[1]
	}
	return slices.ContainsFunc(extensions, func(ext string) bool { return strings.HasSuffix(base, ext) })
}

// NotArchiveError is a file that doesn't begin as an archive does.
type NotArchiveError struct{ Path string }

func (e *NotArchiveError) Error() string {
	return fmt.Sprintf("%s is no archive: it begins neither as a zstd, a gzip nor a zip file does", e.Path)
}

// partName is the name of a part: the archive's, and which part it is.
var partName = regexp.MustCompile(`^(.+)\.part(\d{1,4})$`)

// Parts are the files that make up the archive at path: itself, or all the
// parts where path names one of them or what they are parts of. A part that is
// not there is a *Problem.
func Parts(path string) ([]string, error) {
	whole := path
	if m := partName.FindStringSubmatch(path); m != nil {
		whole = m[1]
	} else if _, err := os.Stat(path); err == nil {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(filepath.Dir(whole))
	if err != nil {
		return nil, fmt.Errorf("looking for the parts of %s: %w", whole, err)
	}
	numbered := map[int]string{}
	last := 0
	for _, e := range entries {
		m := partName.FindStringSubmatch(e.Name())
		if m == nil || m[1] != filepath.Base(whole) {
			continue
		}
		n, err := strconv.Atoi(m[2])
		if err != nil || numbered[n] != "" {
			return nil, &Problem{ID: "archive.part", Title: fmt.Sprintf("two files are part %d of %s", n, filepath.Base(whole))}
		}
		numbered[n] = filepath.Join(filepath.Dir(whole), e.Name())
		last = max(last, n)
	}
	if last == 0 {
		_, err := os.Stat(path)
		return []string{path}, err
	}
	var parts []string
	for n := 1; n <= last; n++ {
		if numbered[n] == "" {
			title := fmt.Sprintf("part %d of %s is not there", n, filepath.Base(whole))
			return nil, &Problem{ID: "archive.part", Title: title, Detail: fmt.Sprintf("there is a part %d", last)}
		}
		parts = append(parts, numbered[n])
	}
	return parts, nil
}

// Unpack unpacks the archive at path into the folder dir, which exists and is
// empty. With problems among the contents, dir holds only some of it.
func Unpack(ctx context.Context, path, dir string, limits Limits) (Contents, error) {
	c := Contents{Files: []string{path}}
	parts, err := Parts(path)
	if p := (*Problem)(nil); errors.As(err, &p) {
		c.Problems = append(c.Problems, *p)
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.Files = parts
	v, err := open(parts)
	if err != nil {
		return c, fmt.Errorf("reading %s: %w", path, err)
	}
	defer v.close()
	c.Packed = v.size
	if c.Kind, err = v.kind(path); err != nil {
		return c, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return c, fmt.Errorf("unpacking %s: %w", path, err)
	}
	defer func() { _ = root.Close() }() // a folder
	w := &writer{ctx: ctx, root: root, limits: limits, read: func() int64 { return c.Packed }, made: map[string]bool{}, folded: map[string]string{}}
	if c.Kind == Zip {
		err = w.zip(v)
	} else {
		err = w.tar(v, c.Kind)
	}
	if err == nil {
		err = w.finish()
	}
	c.Entries, c.Bytes, c.Problems = w.entries, w.bytes, w.problems
	if p := (*Problem)(nil); errors.As(err, &p) {
		c.Problems = append(c.Problems, *p)
		err = nil
	}
	if err != nil {
		return c, fmt.Errorf("unpacking %s: %w", path, err)
	}
	return c, nil
}

// volume is the bytes of an archive, whose parts are joined.
type volume struct {
	files []*os.File
	ends  []int64 // where each file ends in the whole
	size  int64
}

func open(paths []string) (*volume, error) {
	v := &volume{}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			v.close()
			return nil, err
		}
		v.files = append(v.files, f)
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file", p)
		}
		if err != nil {
			v.close()
			return nil, err
		}
		v.size += info.Size()
		v.ends = append(v.ends, v.size)
	}
	return v, nil
}

func (v *volume) close() {
	for _, f := range v.files {
		_ = f.Close() // only read
	}
}

func (v *volume) kind(path string) (Kind, error) {
	first := make([]byte, 4)
	n, err := v.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	for _, m := range magics {
		if bytes.HasPrefix(first[:n], []byte(m.bytes)) {
			return m.kind, nil
		}
	}
	return "", &NotArchiveError{Path: path}
}

// ReadAt reads across the files' borders.
func (v *volume) ReadAt(b []byte, at int64) (int, error) {
	done := 0
	for i, f := range v.files {
		start := v.ends[i] - v.fileSize(i)
		if at >= v.ends[i] {
			continue
		}
		want := int(min(int64(len(b)-done), v.ends[i]-at))
		n, err := f.ReadAt(b[done:done+want], at-start)
		done, at = done+n, at+int64(n)
		if done == len(b) || err != nil {
			return done, err
		}
	}
	return done, io.EOF
}

func (v *volume) fileSize(i int) int64 {
	if i == 0 {
		return v.ends[0]
	}
	return v.ends[i] - v.ends[i-1]
}
