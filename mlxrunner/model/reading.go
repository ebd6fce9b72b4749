package model

import (
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"payload/fs/safetensors"
)

// A reading takes tensors from a checkpoint to their places.
type reading struct{ of *safetensors.Checkpoint }

// plain reads a tensor as it stands.
func (r reading) plain(t safetensors.Tensor, to []byte) error {
	if _, err := io.ReadFull(r.data(t.Name), to); err != nil {
		return fmt.Errorf("reading the tensor %s: %w", t.Name, err)
	}
	return nil
}

func (r reading) data(name string) *io.SectionReader {
	t, file, _ := r.of.Tensor(name)
	return file.Data(t)
}

// turned reads rows of a matrix of 2 or 4 bytes an element, from one on, so that
// their columns lie one after the other; t.Shape is that of the result.
func (r reading) turned(t safetensors.Tensor, first int, to []byte) error {
	columns, rows := int(t.Shape[0]), int(t.Shape[1])
	width := int64(columns) * t.DType.Bits() / 8
	from := io.NewSectionReader(r.data(t.Name), int64(first)*width, int64(rows)*width)
	var err error
	if t.DType.Bits() == 16 {
		err = turn(from, as[uint16](to), rows, columns)
	} else {
		err = turn(from, as[uint32](to), rows, columns)
	}
	if err != nil {
		return fmt.Errorf("reading the tensor %s: %w", t.Name, err)
	}
	return nil
}

// stripes hold some rows of a matrix between file and place.
var stripes = sync.Pool{New: func() any { return new([]uint32) }}

// stripe is how many bytes of rows are read at once: they stay in a processor's
// own cache while they are turned.
const stripe = 256 << 10

// turn reads a matrix by rows and writes it by columns.
func turn[T uint16 | uint32](from io.Reader, to []T, rows, columns int) error {
	width := columns * int(unsafe.Sizeof(T(0)))
	some := max(8, stripe/width&^7) // of eight, so that all but the last have their full lanes
	words := stripes.Get().(*[]uint32)
	defer stripes.Put(words)
	if need := (some*width + 3) / 4; len(*words) < need {
		*words = make([]uint32, need)
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&(*words)[0])), some*width)
	for first := 0; first < rows; first += some {
		n := min(some, rows-first)
		if _, err := io.ReadFull(from, bytes[:n*width]); err != nil {
			return err
		}
		lay(to[first:], as[T](bytes[:n*width]), n, columns, rows)
	}
	return nil
}

// lay writes rows that lie one after the other as columns that begin apart
// elements from each other, eight at a time.
func lay[T any](to, from []T, rows, columns, apart int) {
	row := func(i int) []T { return from[i*columns:][:columns] }
	i := 0
	for ; i+8 <= rows; i += 8 {
		a, b, c, d, e, f, g, h := row(i), row(i+1), row(i+2), row(i+3), row(i+4), row(i+5), row(i+6), row(i+7)
		for j := range a {
			at := to[j*apart+i:][:8]
			at[0], at[1], at[2], at[3] = a[j], b[j], c[j], d[j]
			at[4], at[5], at[6], at[7] = e[j], f[j], g[j], h[j]
		}
	}
	for ; i < rows; i++ {
		for j, v := range row(i) {
			to[j*apart+i] = v
		}
	}
}

// as looks at bytes as elements of their own size.
func as[T uint16 | uint32](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(T(0))))
}

// A piece is a tensor's place in a mapped file.
type piece struct {
	name  string
	bytes []byte
}

// touch has the system bring a piece in. A file that was cut short meanwhile
// is an error here; later it would end the process.
func (p piece) touch() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("reading the tensor %s: its bytes are not in the file any more", p.name)
		}
	}()
	willNeed(p.bytes)
	sum := p.bytes[len(p.bytes)-1] // on a page that the loop may not come to
	for i := 0; i < len(p.bytes); i += 4096 {
		sum += p.bytes[i]
	}
	touched.Store(uint32(sum))
	return nil
}

// touched keeps the compiler from leaving the reads out.
var touched atomic.Uint32
