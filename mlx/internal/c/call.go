// Package c calls mlx-c, one Go function a C function, without cgo.
//
// It owns how a call is made: zapi.go, which is generated, says what each
// function takes. Integers and pointers, up to eight words of them, go through
// SyscallN with words kept in a pooled frame (under 250 ns, no allocation);
// floats, more words and wide structs go through functions that purego
// registers (under a microsecond, two allocations).
//
// Everything that C reads or writes during a call lies in the frame, on the
// heap: a callback can grow the goroutine's stack while C holds an address.
// An error of MLX comes back as *Error from the call that made it. C tells it
// to a callback on the same thread, so the thread is locked for the call and
// the text is kept by thread. Nothing here frees anything that C owns.
package c

//go:generate sh -c "go run ../../gen/mlxgen -C ../../.. -o . -tree \"${DOLLAR}(go run ../../../cmd/payload -C ../../.. source mlx-c)\""

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Every function of mlx-c that is bound on this machine's architecture.
var bound = append(symbols, symbolsARM64...)

// A symbol is a function of the library and where its address goes.
type symbol struct {
	name string
	fn   *uintptr // the fast path
	reg  any      // pointer to a function that purego fills in
}

// A frame holds the words of one call and what they point to.
type frame struct {
	args   [8]uintptr
	out    [4]uint64
	buf    [64]uint64 // copies of slices and texts, while they fit
	used   int        // words of buf
	more   [][]uint64 // copies that did not fit
	keep   unsafe.Pointer
	seen   uint64
	failed bool
	text   string
}

var frames = sync.Pool{New: func() any { return new(frame) }}

func newFrame() *frame { return frames.Get().(*frame) }

// drop gives the frame back.
func (fr *frame) drop() {
	fr.used, fr.failed = 0, false
	if fr.keep != nil || fr.more != nil || fr.text != "" {
		fr.keep, fr.more, fr.text = nil, nil, ""
	}
	frames.Put(fr)
}

// call makes a call of n words on the fast path.
func (fr *frame) call(fn uintptr, n int) uintptr {
	fr.enter()
	r, _, _ := purego.SyscallN(fn, fr.args[:n]...)
	fr.leave()
	return r
}

// enter locks the thread, so that an error told during the call is found again.
func (fr *frame) enter() {
	runtime.LockOSThread()
	fr.seen = told.count.Load()
}

func (fr *frame) leave() {
	if told.count.Load() != fr.seen {
		fr.text, fr.failed = told.take()
	}
	runtime.UnlockOSThread()
}

// done gives the frame back and the error of the call name, whose status is rc.
func (fr *frame) done(name string, rc int32) error {
	failed, text := fr.failed, fr.text
	fr.drop()
	if failed {
		return newError(name, text)
	}
	if rc != 0 {
		return &Status{Func: name, Code: int(rc)}
	}
	return nil
}

func (fr *frame) outAddress(i int) uintptr { return uintptr(unsafe.Pointer(&fr.out[i])) }

// slice copies n bytes to where C may read them, and gives their address.
func (fr *frame) slice(p unsafe.Pointer, n int) uintptr {
	if n == 0 {
		return 0
	}
	at := fr.room(n)
	copy(unsafe.Slice((*byte)(at), n), unsafe.Slice((*byte)(p), n))
	return uintptr(at)
}

// room gives n bytes of the frame, or of the heap, that live until drop.
func (fr *frame) room(n int) unsafe.Pointer {
	words := (n + 7) / 8
	if fr.used+words <= len(fr.buf) {
		at := unsafe.Pointer(&fr.buf[fr.used])
		fr.used += words
		return at
	}
	block := make([]uint64, words)
	fr.more = append(fr.more, block)
	return unsafe.Pointer(&block[0])
}

// cText copies s with the zero byte that ends a text in C.
func (fr *frame) cText(s string) uintptr {
	at := fr.room(len(s) + 1)
	to := unsafe.Slice((*byte)(at), len(s)+1)
	copy(to, s)
	to[len(s)] = 0
	return uintptr(at)
}

func (fr *frame) texts(all []string) uintptr {
	if len(all) == 0 {
		return 0
	}
	list := make([]uintptr, len(all))
	for i, s := range all { // the texts live in the frame, so words will do
		list[i] = fr.cText(s)
	}
	return fr.slice(unsafe.Pointer(&list[0]), len(list)*int(unsafe.Sizeof(list[0])))
}

// An Error is what MLX said about a call.
type Error struct {
	Func  string // the function of mlx-c
	Text  string // what MLX said
	Where string // file and line of mlx-c
}

func (e *Error) Error() string { return e.Text }

// newError splits the place off that mlx-c puts behind its text.
func newError(name, text string) *Error {
	e := &Error{Func: name, Text: text}
	if i := strings.LastIndex(text, " at "); i >= 0 {
		e.Text, e.Where = text[:i], text[i+len(" at "):]
	}
	return e
}

// A Status is a result other than 0 that came without a word. Code 2 is
// mlx-c's for: not found, or no more.
type Status struct {
	Func string
	Code int
}

func (s *Status) Error() string { return fmt.Sprintf("%s gave status %d", s.Func, s.Code) }

// NotFound tells whether err is mlx-c's answer for: not found, or no more.
func NotFound(err error) bool {
	s, ok := err.(*Status) //nolint:errorlint // errors of this package are never wrapped by it
	return ok && s.Code == 2
}

// told keeps what C told the error callback, by thread, until the call that
// made it takes it.
var told tellings

type tellings struct {
	count atomic.Uint64
	texts sync.Map // thread (uintptr) to text (string)
}

// tell is the error callback. C calls it on the thread of the failing call.
func tell(text, _ uintptr) uintptr {
	told.texts.Store(ThreadID(), goString(text))
	told.count.Add(1)
	return 0
}

// take gives what was told on this thread. Another thread's error moves the
// count too, so there may be nothing.
func (t *tellings) take() (string, bool) {
	text, ok := t.texts.LoadAndDelete(ThreadID())
	if !ok {
		return "", false
	}
	return text.(string), true
}

func has(b bool) uint64 { return truth(b) << 32 }

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func complexBits(v complex64) uint64 {
	return uint64(math.Float32bits(real(v))) | uint64(math.Float32bits(imag(v)))<<32
}

func complexFrom(word uint64) complex64 {
	return complex(math.Float32frombits(uint32(word)), math.Float32frombits(uint32(word>>32)))
}

// address turns a word that C gave into a pointer. The memory is C's, so the
// garbage collector has no part in it.
func address(word uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&word)) }

// goString copies a text of C.
func goString(word uintptr) string {
	if word == 0 {
		return ""
	}
	p := address(word)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// cTextOrNull is cText, and a null pointer for the empty text.
func (fr *frame) cTextOrNull(s string) uintptr {
	if s == "" {
		return 0
	}
	return fr.cText(s)
}
