package testkit

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blacktop/go-macho"
	"github.com/blacktop/go-macho/pkg/codesign"
	signtypes "github.com/blacktop/go-macho/pkg/codesign/types"
)

// MachO describes a Mach-O file for arm64 that holds no code.
type MachO struct {
	AMD64   bool     // for x86-64 instead
	Program bool     // else a library
	ID      string   // the library's own name
	Needs   []string // names of libraries
	Rpaths  []string
	MacOS   [2]uint32 // oldest system: 14, 0; zero leaves it out
	Symbols []MachOSymbol
	Exports []string // an export trie, as ExportTrie takes it; nil: none
	Full    bool     // no room for another load command
	Bare    bool     // no signature
}

// MachOSymbol is a symbol that the file defines or, with an ordinal, takes from
// the library of that place in Needs, from 1.
type MachOSymbol struct {
	Name    string
	Ordinal int
	Local   bool
}

// ExportTrie is the export trie of some symbols: "_name", or "_name=2" and
// "_name=2:_original" of one that is passed on from the library of that place.
func ExportTrie(symbols ...string) []byte {
	root := []byte{0, byte(len(symbols))}
	size := len(root)
	for _, s := range symbols {
		name, _, _ := strings.Cut(s, "=")
		size += len(name) + 4
	}
	var leaves []byte
	for _, s := range symbols {
		name, to, passed := strings.Cut(s, "=")
		at := size + len(leaves)
		root = append(append(root, name...), 0, byte(at)|0x80, byte(at>>7)|0x80, byte(at>>14))
		leaf := []byte{0, 0} // flags and address
		if passed {
			ordinal, original, _ := strings.Cut(to, ":")
			leaf = append(append([]byte{8, ordinal[0] - '0'}, original...), 0)
		}
		leaves = append(append(append(leaves, byte(len(leaf))), leaf...), 0)
	}
	return append(root, leaves...)
}

const machoPage = 0x4000

// File writes the file, signed ad hoc by go-macho unless it is bare.
func (m MachO) File(tb testing.TB, file string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, m.bytes(), 0o755); err != nil {
		tb.Fatal(err)
	}
	if m.Bare {
		return
	}
	f, err := macho.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	if err := f.CodeSign(&codesign.Config{ID: filepath.Base(file), Flags: signtypes.ADHOC}); err != nil {
		tb.Fatal(err)
	}
	var signed bytes.Buffer
	if err := f.SaveBuffer(&signed); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, signed.Bytes(), 0o755); err != nil {
		tb.Fatal(err)
	}
}

func (m MachO) bytes() []byte {
	le := binary.LittleEndian
	words := func(list ...uint32) (b []byte) {
		for _, w := range list {
			b = le.AppendUint32(b, w)
		}
		return b
	}
	name := func(text string, size int) []byte { return append([]byte(text), make([]byte, size-len(text))...) }
	var symbols, texts []byte
	texts = append(texts, 0)
	for _, s := range m.Symbols {
		symbols = append(symbols, words(uint32(len(texts)))...)
		kind, section, desc := byte(0x0f), byte(1), uint16(0)
		switch {
		case s.Ordinal > 0:
			kind, section, desc = 0x01, 0, uint16(s.Ordinal)<<8
		case s.Local:
			kind = 0x0e
		}
		symbols = append(symbols, kind, section)
		symbols = le.AppendUint64(le.AppendUint16(symbols, desc), 0)
		texts = append(append(texts, s.Name...), 0)
	}
	for len(texts)%8 != 0 {
		texts = append(texts, 0)
	}
	linkedit := append(bytes.Clone(symbols), texts...)
	trieAt := machoPage + len(linkedit)
	trie := ExportTrie(m.Exports...)
	if m.Exports != nil {
		linkedit = append(linkedit, trie...)
		linkedit = append(linkedit, make([]byte, -len(linkedit)&7)...)
	}

	segment := func(title string, from, size uint64, sections uint32) []byte {
		b := words(0x19, 72+80*sections)
		b = append(b, name(title, 16)...)
		for _, v := range []uint64{from, (size + machoPage - 1) / machoPage * machoPage, from, size} {
			b = le.AppendUint64(b, v)
		}
		return append(b, words(5, 5, sections, 0)...)
	}
	withPath := func(kind uint32, fixed []uint32, path string) []byte {
		at := 8 + 4 + 4*len(fixed)
		size := (at + len(path) + 1 + 7) / 8 * 8
		return append(words(append([]uint32{kind, uint32(size), uint32(at)}, fixed...)...), name(path, size-at)...)
	}
	var commands []byte
	count := uint32(0)
	add := func(b []byte) { commands, count = append(commands, b...), count+1 }
	text := segment("__TEXT", 0, machoPage, 1)
	text = append(text, append(name("__text", 16), name("__TEXT", 16)...)...)
	sectionAt := len(text)
	text = append(text, make([]byte, 48)...)
	add(text)
	add(segment("__LINKEDIT", machoPage, uint64(len(linkedit)), 0))
	add(words(0x2, 24, machoPage, uint32(len(m.Symbols)), uint32(machoPage+len(symbols)), uint32(len(texts))))
	if m.Exports != nil {
		add(words(0x80000033, 16, uint32(trieAt), uint32(len(trie))))
	}
	if m.ID != "" {
		add(withPath(0xd, []uint32{2, 0, 0}, m.ID))
	}
	for _, n := range m.Needs {
		add(withPath(0xc, []uint32{2, 0, 0}, n))
	}
	for _, r := range m.Rpaths {
		add(withPath(0x8000001c, nil, r))
	}
	if m.MacOS != [2]uint32{} {
		add(words(0x32, 24, 1, m.MacOS[0]<<16|m.MacOS[1]<<8, 0, 0))
	}
	begins := 32 + len(commands) + 16 // a signature's command
	if !m.Full {
		begins += 512
	}
	le.PutUint64(commands[sectionAt:], uint64(begins))
	le.PutUint64(commands[sectionAt+8:], uint64(machoPage-begins))
	le.PutUint32(commands[sectionAt+16:], uint32(begins))
	kind := uint32(6)
	if m.Program {
		kind = 2
	}
	cpu, sub := uint32(0x100000c), uint32(0)
	if m.AMD64 {
		cpu, sub = 0x1000007, 3
	}
	file := append(words(0xfeedfacf, cpu, sub, kind, count, uint32(len(commands)), 0x85, 0), commands...)
	file = append(file, make([]byte, machoPage-len(file))...)
	return append(file, linkedit...)
}
