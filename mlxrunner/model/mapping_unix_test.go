//go:build !windows

package model

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mapped file that was cut short is an error when it is read in, and does not
// end the process; the mapping ends with its last user.
func TestMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, bytes.Repeat([]byte("weights!"), 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	m := mapFile(path)
	if m == nil {
		t.Fatal("it is not mapped")
	}
	first, last := piece{"first", m.take(8, 16)}, piece{"last", m.take(32760, 8)}
	if err := errors.Join(first.touch(), last.touch()); err != nil || string(first.bytes) != "weights!weights!" {
		t.Errorf("%q, %v", first.bytes, err)
	}
	first.bytes[0] = 'W'
	if kept, err := os.ReadFile(path); err != nil || bytes.Contains(kept, []byte("W")) {
		t.Errorf("the file was written to (%v)", err)
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
