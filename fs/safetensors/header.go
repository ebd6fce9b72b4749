// Package safetensors reads what a safetensors file or a checkpoint of several
// holds, without reading the tensors: names, types, shapes, and where the bytes
// are. It refuses every header whose offsets do not tile the file exactly, so
// that a reader can trust a Tensor's place. It writes files whose tensors come
// piece by piece, and it converts nothing.
//
// The format: 8 bytes, little-endian, the length of the header; the header, a
// JSON object from tensor name to {dtype, shape, data_offsets}, and
// "__metadata__" from text to text, padded with spaces; then the bytes of the
// tensors, row-major and little-endian, one after the other.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxHeader is the longest header that is read, in bytes: the limit of the
// format's reference implementation.
const MaxHeader = 100_000_000

const metadataKey = "__metadata__"

// Tensor is one entry of a header.
type Tensor struct {
	Name   string
	DType  DType
	Shape  []int64 // empty for a scalar
	Offset int64   // of the first byte, from the start of the file
	Size   int64   // in bytes
}

// Header is what a file says about itself.
type Header struct {
	Tensors  []Tensor // in the order of their bytes
	Metadata map[string]string

	at map[string]int // name -> place in Tensors
}

// Tensor finds a tensor by name.
func (h *Header) Tensor(name string) (Tensor, bool) {
	i, ok := h.at[name]
	if !ok {
		return Tensor{}, false
	}
	return h.Tensors[i], true
}

// ReadHeader reads the header of a file of size bytes. It reads nothing
// beyond the header. The error names the tensor that is wrong.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, fmt.Errorf("the file has %d bytes; a header begins with 8", size)
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("reading the length of the header: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case length > MaxHeader:
		return nil, fmt.Errorf("a header of %d bytes is announced, the limit is %d", length, MaxHeader)
	case int64(length) > size-int64(len(prefix)):
		return nil, fmt.Errorf("a header of %d bytes is announced, the file has %d: it is truncated", length, size)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, int64(len(prefix))); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	h, err := parse(text)
	if err != nil {
		return nil, err
	}
	if err := h.place(int64(len(prefix))+int64(length), size); err != nil {
		return nil, err
	}
	return h, nil
}

// parse reads the JSON; offsets stay relative to the end of the header.
func parse(text []byte) (*Header, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the header is not UTF-8")
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("the header does not begin with {: this is no safetensors file")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	h := &Header{}
	err := object(d, func(name string) error {
		if name == metadataKey {
			h.Metadata = map[string]string{}
			return metadata(d, h.Metadata)
		}
		t := Tensor{Name: name}
		if err := t.parse(d); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		h.Tensors = append(h.Tensors, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	if rest := bytes.TrimRight(text[d.InputOffset():], " \t\r\n"); len(rest) != 0 {
		return nil, errors.New("the header goes on after its JSON object")
	}
	return h, nil
}

// metadata reads the texts. MLX writes null where there are none.
func metadata(d *json.Decoder, into map[string]string) error {
	token, err := d.Token()
	if err == nil && token == nil {
		return nil
	}
	if err := expect(token, err, '{'); err != nil {
		return err
	}
	return members(d, func(key string) error {
		token, err := d.Token()
		if err != nil {
			return err
		}
		value, ok := token.(string)
		if !ok {
			return fmt.Errorf("%s: %q is not text", metadataKey, key)
		}
		into[key] = value
		return nil
	})
}

// parse reads a tensor's object; Offset is relative and Size the difference of
// its two offsets.
func (t *Tensor) parse(d *json.Decoder) error {
	seen := 0
	err := object(d, func(key string) error {
		seen++
		switch key {
		case "dtype":
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, ok := token.(string)
			if t.DType = DType(name); !ok || t.DType.Bits() == 0 {
				return fmt.Errorf("dtype %v is not known", token)
			}
		case "shape":
			var err error
			if t.Shape, err = integers(d, key); err != nil {
				return err
			}
		case "data_offsets":
			offsets, err := integers(d, key)
			if err != nil {
				return err
			}
			if len(offsets) != 2 || offsets[0] > offsets[1] {
				return fmt.Errorf("data_offsets %v are not a begin and an end", offsets)
			}
			t.Offset, t.Size = offsets[0], offsets[1]-offsets[0]
		default:
			return fmt.Errorf("key %q is not known", key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if seen != 3 {
		return errors.New("dtype, shape and data_offsets are needed")
	}
	want, ok := t.bytes()
	switch {
	case !ok:
		return fmt.Errorf("%s of shape %v is more than can be addressed, or no whole number of bytes", t.DType, t.Shape)
	case want != t.Size:
		return fmt.Errorf("%s of shape %v needs %d bytes, data_offsets give %d", t.DType, t.Shape, want, t.Size)
	}
	return nil
}

// bytes is the size that type and shape ask for; false when it overflows or
// ends within a byte.
func (t *Tensor) bytes() (int64, bool) {
	total := uint64(t.DType.Bits())
	for _, n := range t.Shape {
		high, low := bits.Mul64(total, uint64(n))
		if high != 0 {
			// A later zero would make the tensor empty; no tool writes one.
			return 0, false
		}
		total = low
	}
	return int64(total / 8), total%8 == 0
}

// place turns relative offsets into places in the file and requires that the
// tensors tile the rest of it: no gap, no overlap, nothing after the end.
func (h *Header) place(start, size int64) error {
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int {
		// Empty ones go before the one that begins there.
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	h.at = make(map[string]int, len(h.Tensors))
	at := int64(0)
	before := "the header"
	for i := range h.Tensors {
		t := &h.Tensors[i]
		switch {
		case t.Offset < at:
			return fmt.Errorf("tensor %q begins at byte %d of the data, inside %s, which ends at %d", t.Name, t.Offset, before, at)
		case t.Offset > at:
			return fmt.Errorf("tensor %q begins at byte %d of the data, %s ends at %d: a gap", t.Name, t.Offset, before, at)
		case t.Size > size-start-at:
			return fmt.Errorf("tensor %q needs %d bytes, the file has %d left: it is truncated", t.Name, t.Size, size-start-at)
		}
		at += t.Size
		before = strconv.Quote(t.Name)
		t.Offset += start
		h.at[t.Name] = i
	}
	if at != size-start {
		return fmt.Errorf("the file has %d bytes after the last tensor", size-start-at)
	}
	return nil
}

// object walks a JSON object, which encoding/json would do without telling
// that a key stands there twice.
func object(d *json.Decoder, value func(key string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	return members(d, value)
}

// members reads the rest of an object whose { was read.
func members(d *json.Decoder, value func(key string) error) error {
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		key := token.(string) // Token gives nothing else in this place
		if seen[key] {
			return fmt.Errorf("key %q stands there twice", key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

func integers(d *json.Decoder, key string) ([]int64, error) {
	if err := delim(d, '['); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	var list []int64
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		text, _ := token.(json.Number)
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: %v is not a whole number from 0", key, token)
		}
		list = append(list, n)
	}
	return list, delim(d, ']')
}

func delim(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	return expect(token, err, want)
}

// expect says when what Token gave is not want.
func expect(token json.Token, err error, want json.Delim) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%v where %v is expected", token, want)
	}
	return nil
}
