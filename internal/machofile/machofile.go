// Package machofile reads and edits Mach-O files as bytes: which images a file
// holds, what its load commands say, and whether another one fits. An edit
// changes the bytes that it is about and no others; one that has no room is
// refused. Only 64-bit little-endian images are edited, since no other runs on
// a Mac of today. What the images mean to dyld is internal/verify's work.
package machofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Numbers of <mach-o/loader.h>, <mach-o/fat.h> and <mach/machine.h>.
const (
	magic64    = 0xfeedfacf
	magic32    = 0xfeedface
	magicFat   = 0xcafebabe // big-endian, as the rest of a fat header
	magicFat64 = 0xcafebabf

	CPUAmd64 = 0x01000007
	CPUArm64 = 0x0100000c

	TypeProgram = 2
	TypeDylib   = 6
	TypeBundle  = 8

	headerSize = 32 // of a 64-bit image
	// A Java class file begins like a fat one; where this count stands it has
	// its version, from 45.
	maxSlices = 32
)

// Slice is one image in a file.
type Slice struct {
	CPU, SubCPU uint32
	Offset      int64 // in the file
	Size        int64
	Align       uint32 // power of two that Offset is a multiple of; 0 in a thin file
}

// Arch is the slice's CPU in Go's words, or its number.
func (s Slice) Arch() string {
	switch s.CPU {
	case CPUAmd64:
		return "amd64"
	case CPUArm64:
		return "arm64"
	}
	return fmt.Sprintf("cpu%#x", s.CPU)
}

// Slices gives the images of a file of size bytes: one for a thin Mach-O file,
// all those of a universal one, none for anything else. A universal file with a
// CPU twice, or whose slices overlap or lie outside, is an error.
func Slices(r io.ReaderAt, size int64) ([]Slice, error) {
	var head [headerSize]byte
	n, err := r.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < 12 {
		return nil, nil
	}
	be, le := binary.BigEndian, binary.LittleEndian
	switch m := le.Uint32(head[:]); {
	case m == magic64 || m == magic32:
		return []Slice{{CPU: le.Uint32(head[4:]), SubCPU: le.Uint32(head[8:]), Size: size}}, nil
	case be.Uint32(head[:]) != magicFat && be.Uint32(head[:]) != magicFat64, be.Uint32(head[4:]) > maxSlices:
		return nil, nil
	}
	wide := be.Uint32(head[:]) == magicFat64
	count, each := int64(be.Uint32(head[4:])), int64(entrySize(wide))
	table := make([]byte, count*each)
	if _, err := r.ReadAt(table, 8); err != nil {
		return nil, errors.New("its table of images is cut off")
	}
	var slices []Slice
	end := 8 + count*each
	for ; len(table) > 0; table = table[each:] {
		s := Slice{CPU: be.Uint32(table), SubCPU: be.Uint32(table[4:])}
		if wide {
			s.Offset, s.Size, s.Align = int64(be.Uint64(table[8:])), int64(be.Uint64(table[16:])), be.Uint32(table[24:])
		} else {
			s.Offset, s.Size, s.Align = int64(be.Uint32(table[8:])), int64(be.Uint32(table[12:])), be.Uint32(table[16:])
		}
		if s.Offset < end || s.Size < 0 || s.Size > size-s.Offset {
			return nil, fmt.Errorf("its image for %s lies outside the file or in another's bytes", s.Arch())
		}
		end = s.Offset + s.Size
		for _, other := range slices {
			if sameCPU(other, s) {
				return nil, fmt.Errorf("it has two images for %s", s.Arch())
			}
		}
		slices = append(slices, s)
	}
	return slices, nil
}

// sameCPU leaves out the capability bits of the sub-type, as the kernel does.
func sameCPU(a, b Slice) bool {
	const mask = 0x00ffffff
	return a.CPU == b.CPU && a.SubCPU&mask == b.SubCPU&mask
}

func entrySize(wide bool) int {
	if wide {
		return 32
	}
	return 20
}

// RoomError is a load command that has no room between the others and the
// first byte of the image's content.
type RoomError struct {
	Needs int // bytes
	Room  int
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("its load commands have room for %d more bytes, and need %d", e.Room, e.Needs)
}

// Load commands.
const (
	cmdSegment     = 0x19
	cmdLoadDylib   = 0xc
	cmdIDDylib     = 0xd
	cmdWeakDylib   = 0x80000018
	cmdReexport    = 0x8000001f
	cmdUpward      = 0x80000023
	cmdRpath       = 0x8000001c
	cmdSignature   = 0x1d
	cmdBuild       = 0x32
	cmdVersionMin  = 0x24
	segmentHeader  = 72
	sectionHeader  = 80
	zeroFill       = 1 // section types without bytes in the file
	zeroFillBig    = 0xc
	zeroFillThread = 0x12
)

// Image is one thin image, edited in place.
type Image struct{ data []byte }

type command struct{ kind, at, size int }

// Thin checks that data is a whole 64-bit image. It keeps data.
func Thin(data []byte) (*Image, error) {
	le := binary.LittleEndian
	if len(data) < headerSize || le.Uint32(data) != magic64 {
		return nil, errors.New("it is no 64-bit Mach-O image")
	}
	m := &Image{data: data}
	end := headerSize + int(le.Uint32(data[20:]))
	if end > len(data) {
		return nil, errors.New("its load commands are cut off")
	}
	at := headerSize
	for range le.Uint32(data[16:]) {
		if at+8 > end {
			return nil, errors.New("its load commands are cut off")
		}
		kind, size := le.Uint32(data[at:]), int(le.Uint32(data[at+4:]))
		if size < 8 || at+size > end {
			return nil, fmt.Errorf("its load command at byte %d has %d bytes", at, size)
		}
		if least, ok := leastSize[kind]; ok && size < least {
			return nil, fmt.Errorf("its load command at byte %d has %d bytes", at, size)
		}
		if kind == cmdSegment && size < segmentHeader+sectionHeader*int(le.Uint32(data[at+64:])) {
			return nil, fmt.Errorf("its segment at byte %d is cut off", at)
		}
		at += size
	}
	if at != end {
		return nil, errors.New("its load commands do not end where they should")
	}
	return m, nil
}

// leastSize has the commands that are looked into.
var leastSize = map[uint32]int{
	cmdSegment: segmentHeader, cmdLoadDylib: 24, cmdIDDylib: 24, cmdWeakDylib: 24, cmdReexport: 24, cmdUpward: 24,
	cmdRpath: 12, cmdSignature: 16, cmdBuild: 24, cmdVersionMin: 16,
}

// Bytes are the image's; they change with the next edit.
func (m *Image) Bytes() []byte { return m.data }

// Slice says which CPU the image is for.
func (m *Image) Slice() Slice {
	return Slice{CPU: m.u32(4), SubCPU: m.u32(8), Size: int64(len(m.data))}
}

// Type is the kind of file: TypeProgram, TypeDylib, TypeBundle or another.
func (m *Image) Type() int { return int(m.u32(12)) }

func (m *Image) u32(at int) uint32        { return binary.LittleEndian.Uint32(m.data[at:]) }
func (m *Image) u64(at int) uint64        { return binary.LittleEndian.Uint64(m.data[at:]) }
func (m *Image) put32(at int, v uint32)   { binary.LittleEndian.PutUint32(m.data[at:], v) }
func (m *Image) put64(at int, v uint64)   { binary.LittleEndian.PutUint64(m.data[at:], v) }
func (m *Image) end() int                 { return headerSize + int(m.u32(20)) }
func (m *Image) name(at, size int) string { return cString(m.data[at : at+size]) }

func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

func (m *Image) commands() []command {
	var list []command
	at := headerSize
	for range m.u32(16) {
		c := command{int(m.u32(at)), at, int(m.u32(at + 4))}
		list = append(list, c)
		at += c.size
	}
	return list
}

// path is the text of a command that names a file or folder.
func (m *Image) path(c command) string {
	offset := int(m.u32(c.at + 8))
	if offset >= c.size {
		return ""
	}
	return cString(m.data[c.at+offset : c.at+c.size])
}

func isDylib(kind int) bool {
	return kind == cmdLoadDylib || kind == cmdWeakDylib || kind == cmdReexport || kind == cmdUpward
}

// ID is a library's own name; empty for a program.
func (m *Image) ID() string {
	for _, c := range m.commands() {
		if c.kind == cmdIDDylib {
			return m.path(c)
		}
	}
	return ""
}

// Needed are the names of libraries, in the order that symbols count them.
func (m *Image) Needed() []string { return m.paths(isDylib) }

// Rpaths are the folders that @rpath stands for.
func (m *Image) Rpaths() []string { return m.paths(func(kind int) bool { return kind == cmdRpath }) }

func (m *Image) paths(kind func(int) bool) []string {
	var list []string
	for _, c := range m.commands() {
		if kind(c.kind) {
			list = append(list, m.path(c))
		}
	}
	return list
}

// Segment is where a segment lies in the file.
type Segment struct {
	Name         string
	Offset, Size uint64
	at           int
}

// Segments in their order.
func (m *Image) Segments() []Segment {
	var list []Segment
	for _, c := range m.commands() {
		if c.kind == cmdSegment {
			list = append(list, Segment{Name: m.name(c.at+8, 16), Offset: m.u64(c.at + 40), Size: m.u64(c.at + 48), at: c.at})
		}
	}
	return list
}

// SDK is the version of the SDK that the image says it was built with, as
// xxxx.yy.zz in nibbles; 0 where it says none.
func (m *Image) SDK() uint32 {
	for _, c := range m.commands() {
		switch c.kind {
		case cmdBuild:
			return m.u32(c.at + 16)
		case cmdVersionMin:
			return m.u32(c.at + 12)
		}
	}
	return 0
}

// DebugInfo is how many bytes of DWARF the image holds itself.
func (m *Image) DebugInfo() int64 {
	for _, s := range m.Segments() {
		if s.Name == "__DWARF" {
			return int64(s.Size)
		}
	}
	return 0
}

// ContentStart is the offset of the first byte of the file that is content, behind
// the load commands and the room that they have.
func (m *Image) ContentStart() int {
	first := uint64(len(m.data))
	for _, s := range m.Segments() {
		if s.Offset > 0 && s.Size > 0 {
			first = min(first, s.Offset)
		}
		for i := range int(m.u32(s.at + 64)) {
			section := s.at + segmentHeader + i*sectionHeader
			offset, flags := uint64(m.u32(section+48)), m.u32(section+64)&0xff
			if offset > 0 && m.u64(section+40) > 0 && flags != zeroFill && flags != zeroFillBig && flags != zeroFillThread {
				first = min(first, offset)
			}
		}
	}
	return int(first)
}

// replace puts b in the place of size bytes of load commands at at.
func (m *Image) replace(at, size int, b []byte) error {
	end := m.end()
	grows := len(b) - size
	if room := m.ContentStart() - end; grows > room {
		return &RoomError{Needs: grows, Room: max(room, 0)}
	}
	if grows > 0 && len(bytes.Trim(m.data[end:end+grows], "\x00")) > 0 {
		return errors.New("after its load commands lie bytes that belong to nothing, and would be lost")
	}
	rest := bytes.Clone(m.data[at+size : end])
	copy(m.data[at:], b)
	copy(m.data[at+len(b):], rest)
	if grows < 0 {
		clear(m.data[end+grows : end])
	}
	m.put32(20, uint32(end+grows-headerSize))
	return nil
}

func (m *Image) add(b []byte) error {
	if err := m.replace(m.end(), 0, b); err != nil {
		return err
	}
	m.put32(16, m.u32(16)+1)
	return nil
}

// withPath makes a command of fixed words and a text after them, whose offset
// stands in the first word.
func withPath(kind uint32, words []uint32, path string) []byte {
	le := binary.LittleEndian
	offset := 12 + 4*len(words)
	size := (offset + len(path) + 1 + 7) / 8 * 8
	b := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, kind), uint32(size)), uint32(offset))
	for _, w := range words {
		b = le.AppendUint32(b, w)
	}
	return append(b, append([]byte(path), make([]byte, size-offset-len(path))...)...)
}

// AddRpath adds a folder that @rpath stands for, after the others.
func (m *Image) AddRpath(path string) error { return m.add(withPath(cmdRpath, nil, path)) }

// Rename gives the library's own name and those of the libraries that it needs
// as rename says; a name that it gives back as it was is left alone. Nothing is
// changed where one of them has no room.
func (m *Image) Rename(rename func(name string, own bool) string) (changed bool, err error) {
	before := bytes.Clone(m.data[:m.ContentStart()])
	for i := range m.commands() {
		c := m.commands()[i] // an earlier one may have moved it
		if c.kind != cmdIDDylib && !isDylib(c.kind) {
			continue
		}
		old := m.path(c)
		name := rename(old, c.kind == cmdIDDylib)
		if name == old {
			continue
		}
		words := []uint32{m.u32(c.at + 12), m.u32(c.at + 16), m.u32(c.at + 20)} // time and versions
		if err := m.replace(c.at, c.size, withPath(uint32(c.kind), words, name)); err != nil {
			copy(m.data, before)
			return false, fmt.Errorf("renaming %s to %s: %w", old, name, err)
		}
		changed = true
	}
	return changed, nil
}

// Signature gives where the image's code signature lies.
func (m *Image) Signature() (offset, size int, ok bool) {
	for _, c := range m.commands() {
		if c.kind == cmdSignature {
			return int(m.u32(c.at + 8)), int(m.u32(c.at + 12)), true
		}
	}
	return 0, 0, false
}

// ReserveSignature makes room for a signature of size bytes at the image's end,
// in place of the one that it has: the load command is written, the bytes
// themselves are left zero. It gives their offset, which is where what is signed
// ends.
func (m *Image) ReserveSignature(size int) (int, error) {
	link, err := m.linkEdit()
	if err != nil {
		return 0, err
	}
	at, old, signed := m.Signature()
	switch {
	case signed && (at < int(link.Offset) || at+old != int(link.Offset+link.Size)):
		return 0, errors.New("its signature is not the last thing in __LINKEDIT")
	case !signed:
		at = (len(m.data) + 15) / 16 * 16
		command := binary.LittleEndian.AppendUint64(nil, cmdSignature|16<<32)
		if err := m.add(append(command, make([]byte, 8)...)); err != nil {
			return 0, err
		}
	}
	m.data = append(m.data[:min(at, len(m.data))], make([]byte, size+max(0, at-len(m.data)))...)
	for _, c := range m.commands() {
		if c.kind == cmdSignature {
			m.put32(c.at+8, uint32(at))
			m.put32(c.at+12, uint32(size))
		}
	}
	page := uint64(0x1000)
	if m.Slice().CPU == CPUArm64 {
		page = 0x4000
	}
	length := uint64(at+size) - link.Offset
	m.put64(link.at+48, length)
	m.put64(link.at+32, (length+page-1)/page*page)
	return at, nil
}

// linkEdit is the last segment; nothing may lie behind it.
func (m *Image) linkEdit() (Segment, error) {
	segments := m.Segments()
	for _, s := range segments {
		if s.Name == "__LINKEDIT" {
			if s.Offset+s.Size != uint64(len(m.data)) {
				return s, errors.New("__LINKEDIT does not end where the image does")
			}
			return s, nil
		}
	}
	return Segment{}, errors.New("it has no __LINKEDIT")
}

// Section is the content of a section; nil where there is none.
func (m *Image) Section(segment, name string) []byte {
	for _, s := range m.Segments() {
		for i := range int(m.u32(s.at + 64)) {
			at := s.at + segmentHeader + i*sectionHeader
			if s.Name != segment || m.name(at, 16) != name {
				continue
			}
			offset, size := uint64(m.u32(at+48)), m.u64(at+40)
			if offset > uint64(len(m.data)) || size > uint64(len(m.data))-offset {
				return nil
			}
			return m.data[offset : offset+size]
		}
	}
	return nil
}
