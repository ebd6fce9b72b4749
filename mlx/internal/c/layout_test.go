package c

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the goldens")

// On arm64 machines of Apple, arguments that find no register lie on the stack
// packed by their size, not in slots of eight bytes as everywhere else. Where
// they lie follows from the types of the registered functions; a slip there
// (an int32 for a bool) would be seen on a Mac only. The golden is read in
// review when the bindings move, and was held against what clang makes of the
// same declarations for arm64-apple-macos14 (docs/mlx.md).
func TestStackLayoutOnApple(t *testing.T) {
	var b strings.Builder
	for _, s := range bound {
		if s.reg == nil {
			continue
		}
		if stack := appleStack(reflect.TypeOf(s.reg).Elem()); len(stack) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", s.name, strings.Join(stack, ", "))
		}
	}
	compareGolden(t, "apple_stack.golden", b.String())
}

// appleStack gives what of fn's arguments lies on the stack: number, offset
// and size. Eight words fit into registers, and eight floats into theirs.
func appleStack(fn reflect.Type) []string {
	words, floats, offset := 0, 0, 0
	var out []string
	for i := range fn.NumIn() {
		in := fn.In(i)
		switch in.Kind() {
		case reflect.Float32, reflect.Float64:
			if floats++; floats <= 8 {
				continue
			}
		case reflect.Struct:
			n := (int(in.Size()) + 7) / 8
			if n > 2 { // passed as an address
				n = 1
			}
			if words+n <= 8 {
				words += n
				continue
			}
			words = 8
		default:
			if words++; words <= 8 {
				continue
			}
		}
		size := int(in.Size())
		offset = (offset + size - 1) / size * size
		out = append(out, fmt.Sprintf("%d at %d (%d)", i+1, offset, size))
		offset += size
	}
	return out
}

// Everything on the fast path must fit into registers on Apple's arm64, where
// SyscallN doesn't pack.
func TestFastPathFitsRegisters(t *testing.T) {
	source, err := os.ReadFile("zapi.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := strings.Count(string(source), "fr.call(fn")
	if calls < 500 {
		t.Errorf("only %d functions on the fast path", calls)
	}
	if strings.Contains(string(source), "fr.args[8]") {
		t.Error("a call of more than eight words is on the fast path")
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs from what the bindings give (run with -update to accept):\n%s", path, got)
	}
}
