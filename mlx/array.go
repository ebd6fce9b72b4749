package mlx

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"payload/mlx/internal/c"
	"payload/mlx/internal/watch"
)

// An Array is a reference to an array of MLX. Operations of a Scope make
// arrays; they are freed with the scope, or by Free once they were kept.
type Array struct {
	h     c.Array
	owner *Scope
	freed *atomic.Bool
}

// Free gives the reference up, whoever owns it. It may be called twice, and on nil.
func (a *Array) Free() {
	if a == nil || a.h == 0 {
		return
	}
	_ = c.ArrayFree(a.h) // it can't fail on a handle of its own
	a.h = 0
	watch.Freed(a.freed)
}

// Valid tells whether the array is there: not nil, not freed.
func (a *Array) Valid() bool { return a != nil && a.h != 0 }

// Shape gives the length of each axis; nil for an array that is not valid.
func (a *Array) Shape() []int {
	if !a.Valid() {
		return nil
	}
	out := make([]int, c.ArrayNdim(a.h))
	if len(out) > 0 {
		for i, n := range unsafe.Slice((*int32)(c.ArrayShape(a.h)), len(out)) {
			out[i] = int(n)
		}
	}
	return out
}

// Dims gives the number of axes.
func (a *Array) Dims() int {
	if !a.Valid() {
		return 0
	}
	return int(c.ArrayNdim(a.h))
}

// Dim gives the length of an axis; -1 is the last one. It is 0 where there is none.
func (a *Array) Dim(axis int) int {
	shape := a.Shape()
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return 0
	}
	return shape[axis]
}

// Size gives the number of elements.
func (a *Array) Size() int {
	if !a.Valid() {
		return 0
	}
	return int(c.ArraySize(a.h))
}

// Bytes gives the size of all elements.
func (a *Array) Bytes() int {
	if !a.Valid() {
		return 0
	}
	return int(c.ArrayNbytes(a.h))
}

// Dtype gives the type of the elements.
func (a *Array) Dtype() Dtype {
	if !a.Valid() {
		return Bool
	}
	return Dtype(c.ArrayDtype(a.h))
}

// describe gives type and shape for an error: float32[2 3].
func (a *Array) describe() string {
	if !a.Valid() {
		return "nothing"
	}
	return fmt.Sprintf("%v%v", a.Dtype(), a.Shape())
}

// New makes an array of shape out of data, which is copied. Without a shape
// it makes a vector. F16 and BF16 hold half floats.
func New[T Element](s *Scope, data []T, shape ...int) *Array {
	if !s.ready("New") {
		return nil
	}
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	if n := product(shape); n != len(data) {
		return s.refuse("New", fmt.Errorf("%d elements don't fill shape %v", len(data), shape))
	}
	var empty [1]T // C wants an address where there is nothing to read
	p := unsafe.Pointer(&empty)
	if len(data) > 0 {
		p = unsafe.Pointer(unsafe.SliceData(data))
	}
	var dims [8]int32
	h, err := c.ArrayNewData(p, narrow(dims[:0], shape), c.Dtype(dtypeFor[T]()))
	return s.made("New", h, err)
}

// Mapped makes an array over data, which must lie outside Go's heap (mapped
// from a file, say), hold elements of dtype in native order and stay as it is. It
// must be writable: MLX may put a result where nothing else refers to. Where
// the device can't use it in place, MLX copies it at once (Maps). release is
// called once, on any thread: when MLX is done with data, or where an error keeps
// it from beginning.
func (s *Scope) Mapped(data []byte, dtype Dtype, shape []int, release func()) *Array {
	at := unsafe.Pointer(unsafe.SliceData(data))
	n := int64(len(data))
	if uintptr(at)%4096 == 0 { // Metal's, and MLX counts that, or copied
		n = 0
	}
	mapped.Add(n)
	id := releases.add(func() {
		mapped.Add(-n)
		if release != nil {
			release()
		}
	})
	a := s.over(at, len(data), dtype, shape, id)
	if a == nil {
		if release, held := releases.take(id); held { // MLX has not called it
			release()
		}
	}
	return a
}

func (s *Scope) over(at unsafe.Pointer, size int, dtype Dtype, shape []int, id uintptr) *Array {
	if !s.ready("Mapped") {
		return nil
	}
	if n := product(shape) * dtype.Size(); n != size || n == 0 {
		return s.refuse("Mapped", fmt.Errorf("%d bytes don't fill %v%v", size, dtype, shape))
	}
	var dims [8]int32
	h, err := c.ArrayNewDataManagedPayload(uintptr(at), narrow(dims[:0], shape), c.Dtype(dtype), id, releaseAddress())
	return s.made("Mapped", h, err)
}

// mapped is how many bytes arrays use in place, which MLX does not count.
var mapped atomic.Int64

// probe lies in the program's data, never at a page's first word.
var probe [3]uint64

// Maps tells whether Mapped uses memory in place, if a word before it can be
// read and it is aligned for its elements; else it copies.
func (s *Scope) Maps() bool {
	words := probe[:]
	if uintptr(unsafe.Pointer(&words[1]))%4096 < 8 {
		words = words[1:]
	}
	at := unsafe.Pointer(&words[1])
	sub := s.Sub()
	a := sub.Mapped(unsafe.Slice((*byte)(at), 8), Uint8, []int{8}, nil)
	in := a != nil && c.ArrayDataUint8(a.h) == at
	return sub.Close() == nil && in
}

// Scalar makes an array without axes.
func (s *Scope) Scalar(v float64, dtype Dtype) *Array {
	if !s.ready("Scalar") {
		return nil
	}
	bits := dtype.bits(v)
	h, err := c.ArrayNewData(unsafe.Pointer(&bits), nil, c.Dtype(dtype))
	return s.made("Scalar", h, err)
}

// Like makes a scalar of a's type, so that it changes no type it meets.
func (s *Scope) Like(a *Array, v float64) *Array {
	if !s.ready("Like", a) {
		return nil
	}
	return s.Scalar(v, a.Dtype())
}

// Values evaluates a and copies its elements, in the order of rows. T must
// stand for a's type.
func Values[T Element](s *Scope, a *Array) ([]T, error) {
	if !s.ready("Values", a) {
		return nil, s.err
	}
	if want := dtypeFor[T](); a.Dtype() != want {
		return nil, s.fault("Values", fmt.Errorf("elements are asked for as %v", want), a)
	}
	var row c.Array
	if err := c.Contiguous(&row, a.h, false, s.stream.h); err != nil {
		return nil, s.fault("Values", err, a)
	}
	defer func() { _ = c.ArrayFree(row) }() // it can't fail
	if err := s.eval("Values", row); err != nil {
		return nil, err
	}
	n := int(c.ArraySize(row))
	if n == 0 {
		return []T{}, nil
	}
	// Any of mlx-c's typed addresses is the address of the first element.
	return slices.Clone(unsafe.Slice((*T)(c.ArrayDataUint8(row)), n)), nil
}

// Floats evaluates a and gives its elements as float32, whatever its type.
func Floats(s *Scope, a *Array) ([]float32, error) {
	if !s.ready("Floats", a) {
		return nil, s.err
	}
	if a.Dtype() == Float32 {
		return Values[float32](s, a)
	}
	as := s.AsType(a, Float32)
	defer as.Free()
	return Values[float32](s, as)
}

// Item evaluates an array of one element and gives it. T must stand for a's type.
func Item[T Element](s *Scope, a *Array) (T, error) {
	var zero T
	if s.ready("Item", a) && a.Size() != 1 {
		return zero, s.fault("Item", fmt.Errorf("it has %d elements, not one", a.Size()), a)
	}
	v, err := Values[T](s, a)
	if err != nil {
		return zero, err
	}
	return v[0], nil
}

// Text evaluates a and prints it as MLX does, shortened when large.
func (s *Scope) Text(a *Array) (string, error) {
	if !s.ready("Text", a) {
		return "", s.err
	}
	text, err := c.StringNew()
	if err != nil {
		return "", s.fault("Text", err, a)
	}
	defer func() { _ = c.StringFree(text) }() // it can't fail
	if err := c.ArrayTostring(&text, a.h); err != nil {
		return "", s.fault("Text", err, a)
	}
	return c.StringData(text), nil
}

// narrow puts ints into to as C has them.
func narrow(to []int32, from []int) []int32 {
	for _, n := range from {
		to = append(to, int32(n))
	}
	return to
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
