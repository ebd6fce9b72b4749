package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Item is one file or link that is written to an archive.
type Item struct {
	Name       string // in the archive, with forward slashes
	File       string // that holds the content; empty for a link
	Size       int64  // bytes of File
	Link       string // target, relative to the folder of Name
	Executable bool
}

// Items lists the files and links below root, by name in order of bytes, so
// that the order of a folder or a locale plays no part. Folders are not listed:
// who unpacks makes them, with the rights of the place.
func Items(root string) ([]Item, error) {
	var items []Item
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		item := Item{Name: filepath.ToSlash(rel)}
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			if item.Link, err = os.Readlink(path); err != nil {
				return err
			}
			item.Link = filepath.ToSlash(item.Link)
		case entry.Type().IsRegular():
			item.File, item.Size, item.Executable = path, info.Size(), info.Mode()&0o111 != 0
		default:
			return fmt.Errorf("%s is neither file, folder nor link", item.Name)
		}
		items = append(items, item)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", root, err)
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

// Writing says how an archive is written. Items and it decide every byte:
// users, rights beyond "executable", times and the number of cores do not.
type Writing struct {
	Time    time.Time // of every entry, in whole seconds
	MaxPart int64     // bytes of each part; 0: one file
	Threads int       // at least 1
	// Progress is told after each piece how many bytes of the items are written.
	// nil means silence.
	Progress func(done, total int64)
}

// Written is an archive as it came out.
type Written struct {
	Name   string // base name of the whole
	SHA256 string // of the whole
	Size   int64
	Parts  []Part // in order; empty where it is one file
}

// Part is one piece of an archive that was split.
type Part struct {
	Name   string
	SHA256 string
	Size   int64
}

// PartName is the name of part n of an archive, counted from 1.
func PartName(archive string, n int) string { return fmt.Sprintf("%s.part%03d", archive, n) }

// sink writes a file, in parts where asked, and hashes whole and parts. Files
// are made in dir, which the caller gives over when all went well.
type sink struct {
	dir, name string
	max       int64
	whole     hash.Hash
	part      hash.Hash
	file      *os.File
	inPart    int64
	size      int64
	parts     []Part
}

func newSink(path string, max int64) *sink {
	return &sink{dir: filepath.Dir(path), name: filepath.Base(path), max: max, whole: sha256.New()}
}

// Write implements io.Writer.
func (s *sink) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		if s.file != nil && s.max > 0 && s.inPart == s.max {
			if err := s.endPart(); err != nil {
				return done, err
			}
		}
		if s.file == nil {
			if err := s.beginPart(); err != nil {
				return done, err
			}
		}
		piece := b[done:]
		if s.max > 0 {
			piece = piece[:min(int64(len(piece)), s.max-s.inPart)]
		}
		n, err := s.file.Write(piece)
		_, _ = s.whole.Write(piece[:n]) // hashes don't fail
		_, _ = s.part.Write(piece[:n])
		done, s.inPart, s.size = done+n, s.inPart+int64(n), s.size+int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *sink) beginPart() error {
	name := PartName(s.name, len(s.parts)+1)
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	s.parts = append(s.parts, Part{Name: name})
	s.file, s.inPart, s.part = f, 0, sha256.New()
	return nil
}

func (s *sink) endPart() error {
	p := &s.parts[len(s.parts)-1]
	p.SHA256, p.Size = hex.EncodeToString(s.part.Sum(nil)), s.inPart
	f := s.file
	s.file = nil
	err := f.Chmod(0o644) // whatever the umask is
	// Without it a power cut can leave the final name with no content.
	return errors.Join(err, f.Sync(), f.Close())
}

// close ends the archive. What fits into one part has the archive's own name.
func (s *sink) close() (Written, error) {
	if s.file == nil && len(s.parts) == 0 {
		if err := s.beginPart(); err != nil { // nothing was written
			return Written{}, err
		}
	}
	if s.file != nil {
		if err := s.endPart(); err != nil {
			return Written{}, err
		}
	}
	w := Written{Name: s.name, SHA256: hex.EncodeToString(s.whole.Sum(nil)), Size: s.size, Parts: s.parts}
	if len(s.parts) == 1 {
		w.Parts = nil
		return w, os.Rename(filepath.Join(s.dir, s.parts[0].Name), filepath.Join(s.dir, s.name))
	}
	return w, nil
}

// abandon closes what is open and deletes what was written.
func (s *sink) abandon() {
	if s.file != nil {
		_ = s.file.Close() // about to be deleted
	}
	for _, p := range s.parts {
		_ = os.Remove(filepath.Join(s.dir, p.Name)) // the first error is the one to tell
	}
}

// write makes the file path out of what fill gives to a writer. It leaves
// nothing there when it fails.
func write(path string, o Writing, fill func(io.Writer) error) (w Written, err error) {
	s := newSink(path, o.MaxPart)
	defer func() {
		if err != nil {
			s.abandon()
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if err := fill(s); err != nil {
		return Written{}, err
	}
	return s.close()
}

// meter counts what was read of the items.
type meter struct {
	ctx         context.Context
	done, total int64
	tell        func(done, total int64)
}

func newMeter(ctx context.Context, items []Item, o Writing) *meter {
	m := &meter{ctx: ctx, tell: o.Progress}
	for _, item := range items {
		m.total += item.Size
	}
	return m
}

func (m *meter) add(n int64) error {
	m.done += n
	if m.tell != nil {
		m.tell(m.done, m.total)
	}
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	return nil
}

// copyFile copies the content of an item, which must still have the size that
// was listed.
func (m *meter) copyFile(w io.Writer, item Item) error {
	f, err := os.Open(item.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	buf := make([]byte, 1<<20)
	var size int64
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			size += int64(n)
			if err := m.add(int64(n)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if size != item.Size {
		return fmt.Errorf("%s changed while it was packed: %d bytes, then %d", item.Name, item.Size, size)
	}
	return nil
}

// tarOf writes the items as a tar file: plain headers of no user, one time, and
// the longer form only where a name needs it.
func tarOf(ctx context.Context, w io.Writer, items []Item, o Writing) error {
	t := tar.NewWriter(w)
	m := newMeter(ctx, items, o)
	for _, item := range items {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: item.Name, Size: item.Size, Mode: 0o644, ModTime: o.Time.Truncate(time.Second)}
		if item.Executable {
			h.Mode = 0o755
		}
		if item.Link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, item.Link, 0o777
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if item.Link == "" {
			if err := m.copyFile(t, item); err != nil {
				return err
			}
		}
	}
	return t.Close()
}
