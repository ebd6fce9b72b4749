//go:build !windows

package model

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/fs/safetensors"
)

// A mapped file that was cut short is an error when it is read in, and does not
// end the process; the mapping ends with its last user.
func TestMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	const size = 32760
	_, content, err := safetensors.Layout([]safetensors.Tensor{{Name: "a", DType: safetensors.U8, Shape: []int64{size}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	content = append(content, bytes.Repeat([]byte("weights!"), size/8)...)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	// Another file that comes to the path has nothing to do with the header.
	if err := errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, []byte("short"), 0o644)); err != nil {
		t.Fatal(err)
	}
	path += ".old"
	m := mapFile(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if m == nil {
		t.Fatal("it is not mapped")
	}
	at := f.Tensors[0].Offset
	first, last := piece{"first", m.take(at, 16)}, piece{"last", m.take(at+size-8, 8)}
	if err := errors.Join(first.touch(), last.touch()); err != nil || string(first.bytes) != "weights!weights!" {
		t.Errorf("%q, %v", first.bytes, err)
	}
	first.bytes[0] = 'W'
	if kept, err := os.ReadFile(path); err != nil || bytes.Contains(kept, []byte("W")) {
		t.Errorf("the file was written to (%v)", err)
	}
	// Of this one only the end lies on a page that is gone.
	if err := os.Truncate(path, 7*4096); err != nil {
		t.Fatal(err)
	}
	if err := (piece{"across", m.bytes[6*4096+8:][:4096]}).touch(); err == nil {
		t.Error("the end of a tensor is gone, and no error")
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := last.touch(); err == nil || !strings.Contains(err.Error(), "the tensor last: its bytes are not in the file") {
		t.Errorf("bytes that are gone give %v", err)
	}
	for range 3 { // mapFile and two pieces
		if len(m.bytes) == 0 {
			t.Fatal("it was given back too early")
		}
		m.release()
	}
	if m.users.Load() != 0 {
		t.Errorf("%d users are left", m.users.Load())
	}
}
