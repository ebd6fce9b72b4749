package mlx

import (
	"io"
	"sync"
	"unsafe"

	"payload/fs/safetensors"
	"payload/mlx/internal/c"

	"github.com/ebitengine/purego"
)

// Fill makes an array of each tensor, by its name; they belong to the scope.
// When MLX first wants an array it calls fill, on a thread of its own and for
// several arrays at a time, to write all bytes of to, the array's place in
// memory: row-major, in the machine's order. MLX knows no way to tell of a fault
// there, so one becomes the error of the scope, or the scope inside, that waits
// for an evaluation next. done, which may be nil, is called once, when MLX wants
// nothing more or where an error keeps it from beginning.
//
// To MLX the arrays are those of a safetensors file, so their types are what
// that format and MLX share.
func (s *Scope) Fill(tensors []safetensors.Tensor, fill func(t safetensors.Tensor, to []byte) error, done func()) map[string]*Array {
	const op = "Fill"
	if done == nil {
		done = func() {}
	}
	if !s.ready(op) {
		done()
		return nil
	}
	arrays, err := s.fill(tensors, fill, done)
	if err != nil {
		_ = s.fault(op, err) // kept by the scope
	}
	return arrays
}

func (s *Scope) fill(tensors []safetensors.Tensor, fill func(safetensors.Tensor, []byte) error, done func()) (map[string]*Array, error) {
	stream, err := s.stream.cpu()
	var pretend *pretence
	if err == nil {
		pretend, err = pretendFile(tensors)
	}
	if err != nil {
		done()
		return nil, err
	}
	pretend.fill, pretend.done, pretend.lost = fill, done, s.lost
	reader, err := c.IoReaderNew(pretended.add(pretend), readerTable())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.IoReaderFree(reader) }() // it can't fail
	arrays, err := c.MapStringToArrayNew()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.MapStringToArrayFree(arrays) }() // it can't fail
	texts, err := c.MapStringToStringNew()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.MapStringToStringFree(texts) }() // it can't fail
	if err := c.LoadSafetensorsReader(&arrays, &texts, reader, stream); err != nil {
		return nil, err
	}
	return s.arraysOf(arrays)
}

// A pretence is the file that MLX takes its arrays from: a header, and bytes
// that are made when they are asked for.
type pretence struct {
	header  []byte
	size    int64
	at      int64                        // while the header is read
	tensors map[int64]safetensors.Tensor // by the place of their first byte
	fill    func(safetensors.Tensor, []byte) error
	done    func()
	lost    *lost
}

func pretendFile(tensors []safetensors.Tensor) (*pretence, error) {
	layout, header, err := safetensors.Layout(tensors, nil)
	if err != nil {
		return nil, err
	}
	asked := map[string]safetensors.Tensor{}
	for _, t := range tensors {
		asked[t.Name] = t
	}
	p := &pretence{header: header, size: int64(len(header)), tensors: map[int64]safetensors.Tensor{}}
	for _, t := range layout.Tensors {
		p.size += t.Size
		if t.Size > 0 { // MLX asks for no empty one
			p.tensors[t.Offset] = asked[t.Name]
		}
	}
	return p, nil
}

// lost is the first fault of filling, of a scope and those inside it.
type lost struct {
	sync.Mutex
	err error
}

func (l *lost) keep(err error) {
	l.Lock()
	defer l.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *lost) get() error {
	l.Lock()
	defer l.Unlock()
	return l.err
}

var pretended registry[*pretence]

// readerTable is how MLX reads a pretence. It never fails: an exception on
// MLX's threads would end the process.
var readerTable = sync.OnceValue(func() c.IoVtable {
	yes := purego.NewCallback(func(uintptr) uintptr { return 1 })
	label := append([]byte("arrays that are filled"), 0)
	return c.IoVtable{
		IsOpen: yes,
		Good:   yes,
		Tell: purego.NewCallback(func(id uintptr) uintptr {
			p, _ := pretended.get(id)
			return uintptr(p.at)
		}),
		Seek: purego.NewCallback(func(id uintptr, to int64, whence int32) uintptr {
			p, _ := pretended.get(id)
			switch whence {
			case io.SeekStart:
				p.at = to
			case io.SeekCurrent:
				p.at += to
			case io.SeekEnd:
				p.at = p.size + to
			}
			return 0
		}),
		Read: purego.NewCallback(func(id uintptr, to *byte, n uintptr) uintptr {
			p, _ := pretended.get(id)
			p.at += int64(copy(unsafe.Slice(to, n), p.header[p.at:]))
			return n
		}),
		ReadAtOffset: purego.NewCallback(func(id uintptr, to *byte, n uintptr, from int64) uintptr {
			if p, _ := pretended.get(id); n > 0 {
				if err := p.fill(p.tensors[from], unsafe.Slice(to, n)); err != nil {
					p.lost.keep(err)
				}
			}
			return n
		}),
		Label: purego.NewCallback(func(uintptr) *byte { return &label[0] }),
		Free: purego.NewCallback(func(id uintptr) uintptr {
			p, _ := pretended.take(id)
			p.done()
			return 0
		}),
	}
})
