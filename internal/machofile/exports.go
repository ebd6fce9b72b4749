package machofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// An Export is a symbol that an image has for others.
type Export struct {
	Name string
	Weak bool // a definition that gives way to another image's
	// Library is the ordinal, from 1, of the needed library that the symbol is
	// passed on from, and Original its name there. Without, the image has it itself.
	Library  uint64
	Original string
}

// Flags of an export, as <mach-o/loader.h> has them.
const (
	exportWeak     = 0x04
	exportReexport = 0x08
)

// mostNames bounds the bytes of all names together, since a trie of some
// kilobytes can stand for any number. The largest libraries have a few dozen
// megabytes.
const mostNames = 256 << 20

var errTrie = errors.New("its export trie leads outside of itself")

// Exports reads an export trie, which LC_DYLD_EXPORTS_TRIE or LC_DYLD_INFO points
// to: where there is one, dyld looks nowhere else. <mach-o/loader.h> describes it
// before dyld_info_command. Symbols come in no order.
func Exports(trie []byte) ([]Export, error) {
	type node struct {
		at   uint64
		name string
	}
	if len(trie) == 0 {
		return nil, nil
	}
	var found []Export
	seen, total := map[uint64]bool{0: true}, 0
	for todo := []node{{}}; len(todo) > 0; {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		r := trieReader{rest: trie[n.at:]}
		if own := (trieReader{rest: r.take(r.number())}); len(own.rest) > 0 {
			found = append(found, own.export(n.name))
			r.err = errors.Join(r.err, own.err)
		}
		for range r.byte() {
			child := node{name: n.name + r.text(), at: r.number()}
			if r.err != nil || child.at >= uint64(len(trie)) {
				return nil, errTrie
			}
			if seen[child.at] {
				return nil, fmt.Errorf("its export trie has two ways to the names that begin with %q", child.name)
			}
			if total += len(child.name); total > mostNames {
				return nil, fmt.Errorf("the names in its export trie have more than %d bytes", mostNames)
			}
			seen[child.at] = true
			todo = append(todo, child)
		}
		if r.err != nil {
			return nil, errTrie
		}
	}
	return found, nil
}

// trieReader reads what a node holds. After an error all is empty.
type trieReader struct {
	rest []byte
	err  error
}

// take gives the next bytes.
func (r *trieReader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.rest, r.err = nil, errTrie
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *trieReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads a ULEB128.
func (r *trieReader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest, r.err = nil, errTrie
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// text reads up to a zero.
func (r *trieReader) text() string {
	end := bytes.IndexByte(r.rest, 0)
	if end < 0 {
		r.rest, r.err = nil, errTrie
		return ""
	}
	return string(r.take(uint64(end) + 1)[:end])
}

// export reads what the node of a whole name says. Addresses are left alone.
func (r *trieReader) export(name string) Export {
	flags := r.number()
	e := Export{Name: name, Weak: flags&exportWeak != 0}
	if flags&exportReexport != 0 {
		if e.Library, e.Original = r.number(), r.text(); e.Original == "" {
			e.Original = name
		}
	}
	return e
}
