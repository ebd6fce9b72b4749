// Package gguf reads what a GGUF file holds: its metadata, and of its tensors
// names, types, shapes and where the bytes are. It reads no tensor, and it
// refuses every file whose tensors do not lie in it one after the other, so
// that a reader can trust a Tensor's place.
//
// The format (version 3 of ggml's, and 2, which differs in nothing read here),
// all little-endian: "GGUF", the version, the numbers of tensors and of keys;
// the keys, each a text, a type and a value; the tensors, each a text, its
// dimensions from the innermost, a type and an offset; then, aligned, the bytes.
package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path/filepath"
)

// Magic is what a file begins with.
const Magic = "GGUF"

// Header is what a file says about itself.
type Header struct {
	Version int
	// Meta has uint64, int64, float64, bool or string for a key, or a slice of
	// one of them.
	Meta    map[string]any
	Tensors []Tensor // in the order of their bytes

	at map[string]int // name -> place in Tensors
}

// Tensor is one entry of the list of tensors.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int64 // from the outermost, as in other formats
	Offset int64   // of the first byte, from the start of the file
	Size   int64   // in bytes
}

// Tensor finds a tensor by name.
func (h *Header) Tensor(name string) (Tensor, bool) {
	i, ok := h.at[name]
	if !ok {
		return Tensor{}, false
	}
	return h.Tensors[i], true
}

// File is an opened file. Its tensors' bytes are read on demand.
type File struct {
	*Header
	Path string
	f    *os.File
}

// Open reads a file's header and keeps the file open until Close.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a GGUF file: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var header *Header
	if err == nil {
		header, err = Read(f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the header of %s: %w", filepath.Base(path), err), f.Close())
	}
	return &File{Header: header, Path: path, f: f}, nil
}

// ReadAt reads bytes of a tensor from its byte off on.
func (f *File) ReadAt(t Tensor, into []byte, off int64) error {
	if off < 0 || off+int64(len(into)) > t.Size {
		return fmt.Errorf("reading %s: bytes %d to %d of the tensor %q, which has %d", f.Path, off, off+int64(len(into)), t.Name, t.Size)
	}
	if _, err := f.f.ReadAt(into, t.Offset+off); err != nil {
		return fmt.Errorf("reading the tensor %q of %s: %w", t.Name, f.Path, err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// maxDims is ggml's own limit.
const maxDims = 4

// Read reads the header of a file of size bytes. It allocates no more than a
// small multiple of the bytes that are there, whatever the header announces.
func Read(file io.ReaderAt, size int64) (*Header, error) {
	r := &reader{r: bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 1<<16), left: size, size: size}
	h := &Header{Meta: map[string]any{}, at: map[string]int{}}
	magic := make([]byte, len(Magic))
	r.fill(magic)
	if r.err == nil && string(magic) != Magic {
		return nil, fmt.Errorf("it begins with %q, not with %q: this is no GGUF file", magic, Magic)
	}
	version := r.u32()
	if r.err == nil && version != 2 && version != 3 {
		if swapped := bits.ReverseBytes32(version); swapped == 2 || swapped == 3 {
			return nil, errors.New("it is big-endian, which is not supported")
		}
		return nil, fmt.Errorf("version %d of GGUF is not supported, 2 and 3 are", version)
	}
	h.Version = int(version)
	tensors, keys := r.u64(), r.u64()
	r.room(tensors, 24, "tensors") // name, dimensions, type, offset
	r.room(keys, 13, "keys")       // name, type, a byte
	for i := uint64(0); i < keys && r.err == nil; i++ {
		h.key(r)
	}
	for i := uint64(0); i < tensors && r.err == nil; i++ {
		h.tensor(r)
	}
	if r.err != nil {
		return nil, r.err
	}
	return h, h.place(r.size-r.left, size)
}

func (h *Header) key(r *reader) {
	key := r.text()
	value := r.value(r.u32())
	switch _, twice := h.Meta[key]; {
	case r.err != nil:
		r.err = fmt.Errorf("key %d, %q: %w", len(h.Meta)+1, shorten(key), r.err)
	case twice:
		r.err = fmt.Errorf("the key %q stands there twice", key)
	default:
		h.Meta[key] = value
	}
}

func (h *Header) tensor(r *reader) {
	t := Tensor{Name: r.text()}
	dims := r.u32()
	if r.err == nil && (dims == 0 || dims > maxDims) {
		r.err = fmt.Errorf("it has %d dimensions", dims)
	}
	if r.err == nil {
		t.Shape = make([]int64, dims)
	}
	for i := range t.Shape {
		n := r.u64()
		if n > math.MaxInt64 {
			r.fail("dimension %d is %d", i, n)
		}
		t.Shape[len(t.Shape)-1-i] = int64(n)
	}
	t.Type = Type(r.u32())
	offset := r.u64()
	if r.err == nil && offset > math.MaxInt64 {
		r.err = fmt.Errorf("it begins at byte %d", offset)
	}
	t.Offset = int64(offset)
	if r.err == nil {
		t.Size, r.err = t.Type.bytes(t.Shape)
	}
	if _, twice := h.at[t.Name]; r.err == nil && twice {
		r.err = errors.New("it stands there twice")
	}
	if r.err != nil {
		r.err = fmt.Errorf("tensor %d, %q: %w", len(h.Tensors)+1, shorten(t.Name), r.err)
		return
	}
	h.at[t.Name] = len(h.Tensors)
	h.Tensors = append(h.Tensors, t)
}

// place turns relative offsets into places in the file, and requires what
// ggml does: tensors in the order of the list, each aligned, none beyond the end.
func (h *Header) place(end, size int64) error {
	align := int64(32)
	if value, ok := h.Meta["general.alignment"]; ok {
		n, ok := value.(uint64)
		if !ok || n == 0 || n > 1<<20 || n&(n-1) != 0 {
			return fmt.Errorf("general.alignment is %v, want a power of two", value)
		}
		align = int64(n)
	}
	start, at := padded(end, align), int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Offset != at {
			return fmt.Errorf("the tensor %q begins at byte %d of the data, want %d, behind the one before", t.Name, t.Offset, at)
		}
		if t.Size > size-start-at {
			return fmt.Errorf("the tensor %q needs %d bytes, the file has %d left: it is truncated", t.Name, t.Size, max(0, size-start-at))
		}
		t.Offset += start
		at = padded(at+t.Size, align)
	}
	return nil
}

func padded(n, align int64) int64 { return (n + align - 1) / align * align }

// reader reads values until something is wrong; the first error stays.
type reader struct {
	r    *bufio.Reader
	left int64 // bytes of the file
	size int64
	err  error
	word [8]byte
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// room says whether n things of at least size bytes can be in what is left.
func (r *reader) room(n uint64, size int64, what string) bool {
	if r.err == nil && n > uint64(r.left/size) {
		r.fail("%d %s are announced at byte %d, the file has %d bytes left: it is truncated or damaged", n, what, r.size-r.left, r.left)
	}
	return r.err == nil
}

// fill reads into, which keeps what it has after an error.
func (r *reader) fill(into []byte) {
	if !r.room(uint64(len(into)), 1, "bytes") {
		return
	}
	if _, err := io.ReadFull(r.r, into); err != nil {
		r.fail("at byte %d: %w", r.size-r.left, err)
	}
	r.left -= int64(len(into))
}

// little reads a little-endian number of at most 8 bytes.
func (r *reader) little(bytes int64) uint64 {
	r.word = [8]byte{}
	r.fill(r.word[:bytes])
	return binary.LittleEndian.Uint64(r.word[:])
}

func (r *reader) u32() uint32 { return uint32(r.little(4)) }
func (r *reader) u64() uint64 { return r.little(8) }

func (r *reader) text() string {
	n := r.u64()
	if !r.room(n, 1, "bytes of text") {
		return ""
	}
	out := make([]byte, n)
	r.fill(out)
	return string(out)
}

// Types of values.
const (
	kindUint8 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// widths is how many bytes a value has, at least for a text.
var widths = map[uint32]int64{
	kindUint8: 1, kindInt8: 1, kindUint16: 2, kindInt16: 2, kindUint32: 4, kindInt32: 4, kindFloat32: 4,
	kindBool: 1, kindString: 8, kindUint64: 8, kindInt64: 8, kindFloat64: 8,
}

func (r *reader) value(kind uint32) any {
	switch kind {
	case kindUint8, kindUint16, kindUint32, kindUint64:
		return r.unsigned(kind)
	case kindInt8, kindInt16, kindInt32, kindInt64:
		return r.signed(kind)
	case kindFloat32, kindFloat64:
		return r.float(kind)
	case kindBool:
		return r.truth()
	case kindString:
		return r.text()
	case kindArray:
		return r.array()
	}
	r.fail("values of type %d are not known", kind)
	return nil
}

func (r *reader) unsigned(kind uint32) uint64 { return r.little(widths[kind]) }

func (r *reader) signed(kind uint32) int64 {
	unused := 64 - 8*widths[kind]
	return int64(r.unsigned(kind)<<unused) >> unused
}

func (r *reader) float(kind uint32) float64 {
	if kind == kindFloat32 {
		return float64(math.Float32frombits(r.u32()))
	}
	return math.Float64frombits(r.u64())
}

func (r *reader) truth() bool {
	b := r.little(1)
	if b > 1 {
		r.fail("%d is neither true nor false", b)
	}
	return b == 1
}

func (r *reader) array() any {
	kind := r.u32()
	n := r.u64()
	width, ok := widths[kind]
	if r.err == nil && !ok {
		r.fail("arrays of type %d are not known", kind)
	}
	if r.err != nil || !r.room(n, width, "values") {
		return nil
	}
	switch kind {
	case kindInt8, kindInt16, kindInt32, kindInt64:
		return many(r, n, func() int64 { return r.signed(kind) })
	case kindFloat32, kindFloat64:
		return many(r, n, func() float64 { return r.float(kind) })
	case kindBool:
		return many(r, n, r.truth)
	case kindString:
		return many(r, n, r.text)
	}
	return many(r, n, func() uint64 { return r.unsigned(kind) })
}

func many[T any](r *reader, n uint64, one func() T) []T {
	out := make([]T, 0, n)
	for range n {
		if r.err != nil {
			return nil
		}
		out = append(out, one())
	}
	return out
}

func shorten(name string) string {
	if len(name) > 80 {
		return name[:80] + "…"
	}
	return name
}
