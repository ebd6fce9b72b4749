package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Writer writes a file whose tensors are known before their bytes are. The
// bytes go straight to their places, so that no more lies in memory than is
// being written.
type Writer struct {
	Header
	path string
	f    *os.File
	done map[string]int64 // bytes written
}

// Create begins a file. Offset and Size of the tensors are computed; they are
// ordered by the size of their elements, as the reference implementation does,
// so that each begins at a multiple of its own.
func Create(path string, tensors []Tensor, metadata map[string]string) (*Writer, error) {
	w := &Writer{path: path, done: map[string]int64{}}
	h, header, err := Layout(tensors, metadata)
	if err == nil {
		w.Header = *h
		w.f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err == nil {
		if _, err = w.f.Write(header); err != nil {
			err = errors.Join(err, w.f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return w, nil
}

// Layout places tensors as Create does, and gives the first bytes of a file
// that holds them: the header and its length.
func Layout(tensors []Tensor, metadata map[string]string) (*Header, []byte, error) {
	h := &Header{Tensors: slices.Clone(tensors), Metadata: metadata}
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.Bits(), a.DType.Bits()), strings.Compare(a.Name, b.Name))
	})
	entries := map[string]any{}
	if h.Metadata != nil {
		entries[metadataKey] = h.Metadata
	}
	at := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		var ok bool
		if t.Size, ok = t.bytes(); t.DType.Bits() == 0 || !ok {
			return nil, nil, fmt.Errorf("tensor %q: %s of shape %v can't be stored", t.Name, t.DType, t.Shape)
		}
		if _, twice := entries[t.Name]; twice {
			return nil, nil, fmt.Errorf("tensor %q stands there twice", t.Name)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int64{}
		}
		entries[t.Name] = struct {
			DType   DType    `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, shape, [2]int64{at, at + t.Size}}
		t.Offset = at
		at += t.Size
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, nil, err
	}
	if pad := len(text) % 8; pad != 0 {
		text = append(text, strings.Repeat(" ", 8-pad)...)
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	return h, out, h.place(int64(len(out)), int64(len(out))+at)
}

// To gives what takes a tensor's bytes, in order, and refuses more than it has.
func (w *Writer) To(name string) io.Writer { return &place{w, name} }

type place struct {
	w    *Writer
	name string
}

func (p *place) Write(b []byte) (int, error) {
	t, ok := p.w.Tensor(p.name)
	done := p.w.done[p.name]
	if !ok || done+int64(len(b)) > t.Size {
		return 0, fmt.Errorf("writing %s: tensor %q has %d bytes, %d are given", p.w.path, p.name, t.Size, done+int64(len(b)))
	}
	n, err := p.w.f.WriteAt(b, t.Offset+done)
	p.w.done[p.name] = done + int64(n)
	if err != nil {
		err = fmt.Errorf("writing tensor %q: %w", p.name, err)
	}
	return n, err
}

// Close ends the file, on the disk. A tensor that lacks bytes is an error.
func (w *Writer) Close() error {
	var err error
	for _, t := range w.Tensors {
		if w.done[t.Name] != t.Size {
			err = fmt.Errorf("writing %s: tensor %q has %d bytes, %d were given", w.path, t.Name, t.Size, w.done[t.Name])
			break
		}
	}
	if err == nil {
		err = w.f.Sync()
	}
	return errors.Join(err, w.f.Close())
}
