package archive

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

var errTrailing = &Problem{ID: "archive.trailing", Title: "something follows the end of the archive", Detail: "who unpacks it never sees that"}

// wholeFrames is how many bytes at the beginning of a zstd file are whole
// frames: what is behind them is half of one, or none. The format is RFC 8878's,
// of which a skippable frame says its size and another one is walked block by
// block.
func wholeFrames(r io.ReaderAt) (end int64) {
	for {
		size, err := frame(r, end)
		if err != nil {
			return end
		}
		end += size
	}
}

// frame is the size of the frame that begins at a place of the file, or why
// none does.
func frame(r io.ReaderAt, at int64) (size int64, err error) {
	read := func(b []byte) error {
		n, err := r.ReadAt(b, at+size)
		if n == len(b) {
			err = nil
		}
		size += int64(n)
		return err
	}
	head := make([]byte, zstd.HeaderMaxSize)
	if err := read(head); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	var h zstd.Header
	if err := h.Decode(head[:size]); err != nil {
		return 0, err
	}
	size = int64(h.HeaderSize)
	for last := h.Skippable; !last; {
		block := make([]byte, 3)
		if err := read(block); err != nil {
			return 0, err
		}
		const one = 1 // a byte that is repeated
		bits := uint32(block[0]) | uint32(block[1])<<8 | uint32(block[2])<<16
		last = bits&1 == 1
		if kind := bits >> 1 & 3; kind == one {
			size++
		} else {
			size += int64(bits >> 3)
		}
	}
	if h.Skippable {
		size += int64(h.SkippableSize)
	}
	if h.HasCheckSum {
		size += 4
	}
	_, err = r.ReadAt(make([]byte, 1), at+size-1) // whether it is all there
	return size, err
}

// zstdTrailing says whether the whole frames of a file that can't be read to its
// end hold so many bytes: then what is wrong is none of the tar file's.
func (w *writer) zstdTrailing(v *volume, plain int64) bool {
	whole := wholeFrames(v)
	if whole == v.size {
		return false
	}
	z, done, err := decompress(bufio.NewReader(io.NewSectionReader(v, 0, whole)), TarZstd, w.limits.Window)
	if err != nil {
		return false
	}
	defer done()
	n, err := io.CopyN(io.Discard, z, plain)
	return n == plain && err == nil
}

// zipTrailing says whether a zip file ends anywhere in the file: with a record
// that says that the table of entries ends where the record begins. In a file with
// large numbers two further records stand between them, and the second says where
// the first one begins.
func zipTrailing(v *volume) (bool, error) {
	const window, first, second = 1 << 20, 56, 20
	for at := int64(0); at < v.size; at += window {
		b := make([]byte, min(window+second+endOfZipSize, v.size-at))
		if _, err := v.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		for from := 0; ; from++ {
			i := bytes.Index(b[from:], []byte(endOfZip))
			if from += i; i < 0 || from+endOfZipSize > len(b) {
				break
			}
			le, record := binary.LittleEndian, b[from:]
			begins := at + int64(from)
			if int64(le.Uint32(record[12:]))+int64(le.Uint32(record[16:])) == begins {
				return true, nil
			}
			if from >= second && le.Uint64(b[from-second+8:]) == uint64(begins-second-first) {
				return true, nil
			}
		}
	}
	return false, nil
}
