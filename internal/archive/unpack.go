package archive

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"payload/internal/manifest"
)

// writer unpacks entries below root. Links are made when every file is there,
// so that nothing is ever written through one.
type writer struct {
	ctx    context.Context
	root   *os.Root
	limits Limits
	read   func() int64 // bytes of the archive that were read

	entries  int
	bytes    int64
	made     map[string]bool
	folded   map[string]string // by Fold, the name and those of its folders
	links    []manifest.File
	folders  []folder
	problems []Problem
}

type folder struct {
	name string
	mode fs.FileMode
}

// entry is one file, folder or link of an archive.
type entry struct {
	name  string
	mode  fs.FileMode // type and permissions
	link  string      // a symbolic link's target
	known bool        // the archive says permissions
	// refused is why the kind of entry is none of the three.
	refused *Problem
	open    func() (io.Reader, error)
}

func (w *writer) problem(p Problem) { w.problems = append(w.problems, p) }

// add unpacks one entry, or notes why it doesn't. Its error ends the unpacking.
func (w *writer) add(e entry) error {
	if err := w.ctx.Err(); err != nil {
		return context.Cause(w.ctx)
	}
	w.entries++
	if w.entries > w.limits.Entries {
		return &Problem{ID: "archive.bomb", Title: fmt.Sprintf("the archive has more than %d entries", w.limits.Entries)}
	}
	name, bad := w.accept(e)
	if bad != nil {
		w.problem(*bad)
		return nil
	}
	switch {
	case e.mode.IsDir():
		w.folders = append(w.folders, folder{name, e.mode.Perm()})
		return w.root.MkdirAll(name, 0o755)
	case e.mode&fs.ModeSymlink != 0:
		w.links = append(w.links, manifest.File{Path: name, Link: e.link})
		return nil
	}
	return w.file(name, e)
}

// accept gives an entry's name in a clean form, or why it is refused.
func (w *writer) accept(e entry) (string, *Problem) {
	name := strings.TrimPrefix(e.name, "./")
	if e.mode.IsDir() {
		name = strings.TrimSuffix(name, "/")
	}
	refuse := func(id, title, detail string) (string, *Problem) {
		return "", &Problem{ID: id, Entry: e.name, Title: title, Detail: detail}
	}
	switch {
	case e.refused != nil:
		return "", e.refused
	case strings.HasPrefix(name, "/") || len(name) > 1 && name[1] == ':' || strings.HasPrefix(name, `\`):
		return refuse("archive.absolute-name", fmt.Sprintf("the entry %q has an absolute name", e.name), "it would be written outside of where it is unpacked")
	case slices.Contains(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' }), ".."):
		return refuse("archive.traversal", fmt.Sprintf("the entry %q leads out of the archive", e.name), "it would be written outside of where it is unpacked")
	case e.mode.IsDir() && (name == "" || name == "."):
		return ".", nil
	case name == "" || path.Clean(name) != name || name == ".":
		return refuse("archive.name", fmt.Sprintf("the entry %q has no plain name", e.name), "programs that unpack it differ in what they make of it")
	}
	if bad := CheckName(name); bad != nil {
		return "", bad
	}
	if bad := w.clash(name, e.mode.IsDir()); bad != nil {
		return "", bad
	}
	if e.known && e.mode&fs.ModeSymlink == 0 {
		if special := e.mode & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky); special != 0 || e.mode.Perm()&0o022 != 0 || e.mode.Perm()&0o444 != 0o444 {
			return refuse("archive.mode", fmt.Sprintf("%s has the permissions %v", name, e.mode), "everyone has to read it, nobody but its owner to change it, and it has no rights of its own")
		}
	}
	return name, nil
}

// clash holds a name and its folders against those that are there: a second
// time, in another case, or a file in a folder's place.
func (w *writer) clash(name string, dir bool) *Problem {
	for p := name; p != "."; p = path.Dir(p) {
		other, ok := w.folded[Fold(p)]
		if ok && other != p {
			return &Problem{ID: "names.case-clash", Entry: p, Title: fmt.Sprintf("%s and %s are one file where case does not count", other, p), Detail: "on macOS and Windows one of them overwrites the other"}
		}
		w.folded[Fold(p)] = p
		if wasDir, ok := w.made[p]; ok && p != name && !wasDir {
			return &Problem{ID: "archive.duplicate", Entry: name, Title: fmt.Sprintf("%s lies in %s, which is no folder", name, p)}
		}
		if p != name {
			w.made[p] = true
		}
	}
	if wasDir, ok := w.made[name]; ok && (!dir || !wasDir) {
		return &Problem{ID: "archive.duplicate", Entry: name, Title: fmt.Sprintf("%s is in the archive more than once", name), Detail: "programs that unpack it differ in which one they keep"}
	}
	w.made[name] = dir
	return nil
}

// file writes one file, never over another.
func (w *writer) file(name string, e entry) (err error) {
	from, err := e.open()
	if err != nil {
		return damaged(name, "", err)
	}
	if dir := path.Dir(name); dir != "." {
		if err := w.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// The owner can always read and delete what was unpacked.
	mode := fs.FileMode(0o644)
	if e.known {
		mode = e.mode.Perm() | 0o400
	}
	out, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	limited := &limitedReader{w: w, from: from}
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, limited, make([]byte, 256<<10)); err != nil {
		if limited.err != nil {
			return damaged(name, "", limited.err)
		}
		return err
	}
	return out.Chmod(mode) // the umask took some of it
}

// limitedReader hands on what an entry holds until a limit is met.
type limitedReader struct {
	w    *writer
	from io.Reader
	err  error // what reading came to, apart from its end
}

func (l *limitedReader) Read(b []byte) (int, error) {
	n, err := l.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	w := l.w
	w.bytes += int64(n)
	switch {
	case w.ctx.Err() != nil:
		l.err = context.Cause(w.ctx)
	case w.bytes > w.limits.Bytes:
		l.err = &Problem{ID: "archive.bomb", Title: fmt.Sprintf("the archive unpacks to more than %d bytes", w.limits.Bytes)}
	case w.bytes > w.limits.FreeBytes && w.bytes/w.limits.Ratio > w.read():
		l.err = &Problem{ID: "archive.bomb", Title: fmt.Sprintf("the archive unpacks to more than %d times its size", w.limits.Ratio), Detail: "no payload compresses as well"}
	}
	if l.err != nil {
		return n, l.err
	}
	return n, err
}

// damaged turns what a decompressor says into a problem, of an entry or, with
// none, of a place in the archive. What the context or a limit said stays as it
// is.
func damaged(entry, place string, err error) error {
	if entry != "" {
		place = "in " + entry
	}
	var p *Problem
	switch {
	case errors.As(err, &p), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Problem{ID: "archive.truncated", Title: "the archive ends early", Detail: place}
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return &Problem{ID: "archive.window", Title: "the archive needs more memory to unpack than zstd allows by itself", Detail: "users would have to say --long to zstd"}
	case errors.As(err, new(*fs.PathError)):
		return err
	}
	return &Problem{ID: "archive.damaged", Entry: entry, Title: "the archive is damaged", Detail: fmt.Sprintf("%s: %v", place, err)}
}

// finish makes the links, whose targets must lie in the archive, and gives
// folders their permissions.
func (w *writer) finish() error {
	var all []manifest.File
	for name, dir := range w.made {
		if dir {
			name += "/."
		}
		all = append(all, manifest.File{Path: name})
	}
	tree := manifest.NewTree(slices.Concat(all, w.links))
	for _, l := range w.links {
		switch _, err := tree.Follow(l.Path); {
		case errors.Is(err, manifest.ErrAbsolute):
			w.problem(Problem{ID: "links.absolute", Entry: l.Path, Title: l.Path + " is a link to an absolute path", Detail: "points to " + l.Link})
			continue
		case errors.Is(err, manifest.ErrOutside):
			w.problem(Problem{ID: "links.outside", Entry: l.Path, Title: l.Path + " is a link out of the archive", Detail: "points to " + l.Link})
			continue
		}
		if dir := path.Dir(l.Path); dir != "." {
			if err := w.root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := w.root.Symlink(l.Link, l.Path); err != nil {
			return err
		}
	}
	for _, f := range w.folders {
		if err := w.root.Chmod(f.name, f.mode|0o700); err != nil {
			return err
		}
	}
	return nil
}

// tar unpacks a compressed tar file.
func (w *writer) tar(v *volume, kind Kind) error {
	read := &counter{from: io.NewSectionReader(v, 0, v.size)}
	w.read = func() int64 { return read.count }
	packed := bufio.NewReaderSize(read, 1<<20)
	plain, done, err := decompress(packed, kind, w.limits.Window)
	if err != nil {
		return damaged("", "at its beginning", err)
	}
	defer done()
	counted := &counter{from: plain}
	t := tar.NewReader(counted)
	at, end := "its beginning", int64(0) // where the last entry ends
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return damaged("", "after "+at, err)
		}
		const block = 512
		at, end = h.Name, counted.count+(h.Size+block-1)/block*block
		if err := w.add(tarEntry(h, t)); err != nil {
			return err
		}
	}
	// A tar file ends with two blocks of zeros. Without them it was cut at a
	// place where that doesn't show otherwise.
	if counted.count < end+2*512 {
		return &Problem{ID: "archive.truncated", Title: "the archive ends early", Detail: "it has no end after " + at}
	}
	err = w.rest(plain, packed)
	if err != nil && kind == TarZstd && w.ctx.Err() == nil && w.zstdTrailing(v, end+2*512) {
		return errTrailing
	}
	return err
}

// rest makes sure that nothing but zeros follows the end of a tar file, and
// nothing at all its compressed form.
func (w *writer) rest(plain io.Reader, packed io.Reader) error {
	buf := make([]byte, 64<<10)
	for total := 0; ; {
		n, err := plain.Read(buf)
		total += n
		switch {
		case len(bytes.Trim(buf[:n], "\x00")) > 0 || total > 1<<20:
			return errTrailing
		case errors.Is(err, io.EOF):
			if n, _ := packed.Read(buf[:1]); n > 0 {
				return errTrailing
			}
			return nil
		case err != nil:
			return damaged("", "at its end", err)
		}
	}
}

func decompress(packed *bufio.Reader, kind Kind, window uint64) (io.Reader, func(), error) {
	if kind == TarGzip {
		z, err := gzip.NewReader(packed)
		if err == nil {
			z.Multistream(false) // what follows is not part of the archive
		}
		return z, func() {}, err
	}
	z, err := zstd.NewReader(packed, zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}

func tarEntry(h *tar.Header, t *tar.Reader) entry {
	e := entry{name: h.Name, mode: fs.FileMode(h.Mode).Perm() | h.FileInfo().Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky), known: true}
	e.open = func() (io.Reader, error) { return t, nil }
	special := func(detail string) {
		e.refused = &Problem{ID: "archive.special-file", Entry: h.Name, Title: fmt.Sprintf("%s is neither file, folder nor link", h.Name), Detail: detail}
	}
	switch h.Typeflag {
	case tar.TypeReg:
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				special("it is a file with holes, which not every program unpacks")
			}
		}
	case tar.TypeDir:
		e.mode |= fs.ModeDir
	case tar.TypeSymlink:
		e.mode, e.link = fs.ModeSymlink, h.Linkname
	case tar.TypeLink:
		e.refused = &Problem{ID: "archive.hard-link", Entry: h.Name, Title: fmt.Sprintf("%s is a hard link to %s", h.Name, h.Linkname), Detail: "Windows and some file systems have none; a symbolic link does"}
	default:
		special(fmt.Sprintf("its kind is %q: a device, a pipe, or an extension of one tar program", h.Typeflag))
	}
	return e
}

// counter counts what is read.
type counter struct {
	from  io.Reader
	count int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.count += int64(n)
	return n, err
}

// endOfZip is the record at the end of a zip file without a comment.
const (
	endOfZip     = "PK\x05\x06"
	endOfZipSize = 22
)

// zip unpacks a zip file.
func (w *writer) zip(v *volume) error {
	end := make([]byte, endOfZipSize)
	if _, err := v.ReadAt(end, max(0, v.size-endOfZipSize)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	z, err := zip.NewReader(v, v.size)
	switch {
	case err != nil && !strings.HasPrefix(string(end), endOfZip):
		if found, err := zipTrailing(v); found || err != nil {
			return cmp.Or(err, error(errTrailing))
		}
		return &Problem{ID: "archive.truncated", Title: "the archive ends early", Detail: "a zip file ends with a table of its entries; this one has none"}
	case err != nil:
		return damaged("", "in its table of entries", err)
	case !strings.HasPrefix(string(end), endOfZip):
		return errTrailing
	}
	if err := overlap(z.File); err != nil {
		return err
	}
	for _, f := range z.File {
		if err := w.zipEntry(f); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) zipEntry(f *zip.File) error {
	const fromUnix, fromMacOS = 3, 19
	creator := f.CreatorVersion >> 8
	e := entry{name: f.Name, mode: f.Mode(), known: creator == fromUnix || creator == fromMacOS}
	var opened io.ReadCloser
	defer func() {
		if opened != nil {
			_ = opened.Close() // its end was checked by reading
		}
	}()
	e.open = func() (io.Reader, error) {
		var err error
		opened, err = f.Open()
		return opened, err
	}
	switch e.mode.Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		const longest = 4096
		target, err := readAtMost(e.open, longest)
		if err != nil {
			return damaged(f.Name, "", err)
		}
		e.link = string(target)
	default:
		e.refused = &Problem{ID: "archive.special-file", Entry: f.Name, Title: fmt.Sprintf("%s is neither file, folder nor link", f.Name), Detail: "its mode is " + e.mode.String()}
	}
	if f.Flags&1 != 0 {
		e.refused = &Problem{ID: "archive.damaged", Entry: f.Name, Title: f.Name + " is encrypted"}
	}
	return w.add(e)
}

func readAtMost(open func() (io.Reader, error), limit int64) ([]byte, error) {
	r, err := open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the target of a link is longer than %d bytes", limit)
	}
	return data, err
}

// overlap finds entries that share bytes: a small file that unpacks to any size.
func overlap(files []*zip.File) error {
	type span struct {
		name     string
		from, to int64
	}
	var spans []span
	for _, f := range files {
		from, err := f.DataOffset()
		if err != nil {
			return damaged(f.Name, "", err)
		}
		spans = append(spans, span{f.Name, from, from + int64(f.CompressedSize64)})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to || spans[i].from == spans[i-1].from {
			return &Problem{ID: "archive.bomb", Entry: spans[i].name, Title: fmt.Sprintf("the entries %s and %s share bytes", spans[i-1].name, spans[i].name), Detail: "a small archive that unpacks to any size is made so"}
		}
	}
	return nil
}
