package machofile

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // older signatures have a second list of hashes of this kind
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// The format of a code signature, as <kern/cs_blobs.h> of Apple's open-source
// kernel has it; all numbers are big-endian.
const (
	superBlobMagic = 0xfade0cc0
	directoryMagic = 0xfade0c02
	slotDirectory  = 0      // the kind of the main code directory
	slotAlternate  = 0x1000 // of the first further one, up to slotAlternate+5
	maxBlobs       = 64
)

// PageError is a page whose bytes are not those that were signed.
type PageError struct {
	page int
	from int64 // its first byte
}

func (e *PageError) Error() string {
	return fmt.Sprintf("page %d, from byte %d, is not what was signed", e.page, e.from)
}

// CheckSignature holds every page of a Mach-O image before its signature
// against the signature's hashes. It gives a *PageError for the first page that
// differs. Whose signature it is, is not looked at.
func CheckSignature(image, signature []byte) error {
	count := 0
	be := binary.BigEndian
	if len(signature) < 12 || be.Uint32(signature) != superBlobMagic {
		return errors.New("it is no signature")
	}
	blobs := be.Uint32(signature[8:])
	if blobs > maxBlobs || len(signature) < 12+8*int(blobs) {
		return errors.New("its index is damaged")
	}
	for i := range int(blobs) {
		kind, offset := be.Uint32(signature[12+8*i:]), be.Uint32(signature[16+8*i:])
		if kind != slotDirectory && (kind < slotAlternate || kind > slotAlternate+5) {
			continue
		}
		if uint64(offset) > uint64(len(signature)) {
			return errors.New("its index leads outside")
		}
		if err := checkDirectory(image, signature[offset:]); err != nil {
			return err
		}
		count++
	}
	if count == 0 {
		return errors.New("it has no code directory")
	}
	return nil
}

// checkDirectory compares the hashes of one code directory.
func checkDirectory(image, d []byte) error {
	be := binary.BigEndian
	const header = 44 // up to what the first version has
	if len(d) < header || be.Uint32(d) != directoryMagic || uint64(be.Uint32(d[4:])) > uint64(len(d)) {
		return errors.New("its code directory is damaged")
	}
	d = d[:be.Uint32(d[4:])]
	hashes, slots, limit := uint64(be.Uint32(d[16:])), uint64(be.Uint32(d[28:])), uint64(be.Uint32(d[32:]))
	if version := be.Uint32(d[8:]); version >= 0x20300 && len(d) >= 64 {
		if long := be.Uint64(d[56:]); long != 0 {
			limit = long
		}
	}
	size, kind, pageBits := uint64(d[36]), d[37], d[39]
	var sum func() hash.Hash
	switch kind {
	case 1:
		sum = sha1.New
	case 2, 3: // 3 is cut to 20 bytes
		sum = sha256.New
	case 4:
		sum = sha512.New384
	default:
		return fmt.Errorf("its hashes are of the unknown kind %d", kind)
	}
	switch {
	case limit != uint64(len(image)):
		return fmt.Errorf("it covers %d bytes, and %d lie before it", limit, len(image))
	case pageBits < 9 || pageBits > 20:
		return fmt.Errorf("its pages are 2^%d bytes", pageBits)
	case size == 0 || size > uint64(sum().Size()):
		return fmt.Errorf("its hashes are %d bytes", size)
	case slots != (limit+(1<<pageBits)-1)>>pageBits:
		return fmt.Errorf("it has %d hashes for %d pages", slots, (limit+(1<<pageBits)-1)>>pageBits)
	case hashes+slots*size > uint64(len(d)):
		return errors.New("its hashes are cut off")
	}
	for page := range slots {
		from := page << pageBits
		h := sum()
		h.Write(image[from:min(limit, from+1<<pageBits)])
		at := hashes + page*size
		if !bytes.Equal(h.Sum(nil)[:size], d[at:at+size]) {
			return &PageError{page: int(page), from: int64(from)}
		}
	}
	return nil
}
