package codesign

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/digitorus/pkcs7"

	"payload/internal/machofile"
)

// Check holds every page of every image of a Mach-O file against its signature,
// and the signature against the certificate, where id is not nil. It gives the
// architectures.
func Check(data []byte, id *Identity) (images []string, err error) {
	err = each(data, func(s machofile.Slice, image []byte) error {
		m, err := machofile.Thin(image)
		if err != nil {
			return err
		}
		at, size, ok := m.Signature()
		switch {
		case !ok:
			return errors.New("it has no signature")
		case at+size > len(image):
			return errors.New("its signature lies beyond its end")
		}
		if err := machofile.CheckSignature(image[:at], image[at:at+size]); err != nil {
			return err
		}
		images = append(images, s.Arch())
		if id == nil {
			return nil
		}
		return checkSigner(image[at:at+size], id)
	})
	return images, err
}

// The parts of a signature that are looked for.
const (
	partDirectory = 0
	partCMS       = 0x10000
)

// checkSigner makes sure that the certificate signed the code directory.
func checkSigner(signature []byte, id *Identity) error {
	p7, err := pkcs7.Parse(part(signature, partCMS, 8))
	if err != nil {
		return fmt.Errorf("its certificate's part: %w", err)
	}
	p7.Content = part(signature, partDirectory, 0)
	if err := p7.Verify(); err != nil {
		return fmt.Errorf("its certificate's part: %w", err)
	}
	if who := p7.GetOnlySigner(); who == nil || !bytes.Equal(who.Raw, id.Certificate.Raw) {
		return errors.New("another certificate signed it")
	}
	return nil
}

// part gives one blob of a signature without its first skip bytes, which may be
// its magic and length.
func part(signature []byte, kind uint32, skip int) []byte {
	be := binary.BigEndian
	for i := range int(be.Uint32(signature[8:])) { // CheckSignature has been through it
		if be.Uint32(signature[12+8*i:]) != kind {
			continue
		}
		at := uint64(be.Uint32(signature[16+8*i:]))
		if at+8 > uint64(len(signature)) {
			return nil
		}
		if length := uint64(be.Uint32(signature[at+4:])); length >= uint64(skip) && length <= uint64(len(signature))-at {
			return signature[at+uint64(skip) : at+length]
		}
	}
	return nil
}
