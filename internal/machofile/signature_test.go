package machofile

import "testing"

// A page that no signature can be right about is an error, not a crash.
func FuzzSignature(f *testing.F) {
	image := make([]byte, 0x1000)
	f.Add(image, []byte{0xfa, 0xde, 0x0c, 0xc0, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20})
	f.Fuzz(func(t *testing.T, image, signature []byte) {
		_ = CheckSignature(image, signature) // must return
	})
}
