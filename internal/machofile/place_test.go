package machofile

import "testing"

// Beyond 4 GiB the table needs 64-bit offsets.
func TestPlaceBeyond4GiB(t *testing.T) {
	for _, c := range []struct {
		size int64
		wide bool
	}{{1 << 20, false}, {3 << 30, true}} {
		inputs := []Input{{Slice: Slice{CPU: CPUArm64, Size: c.size}}, {Slice: Slice{CPU: CPUAmd64, Size: c.size}}}
		if wide := place(inputs); wide != c.wide {
			t.Errorf("two images of %d bytes: wide %t", c.size, wide)
		}
		if inputs[0].CPU != CPUAmd64 || inputs[1].Offset < inputs[0].Offset+c.size {
			t.Errorf("placed %+v", inputs)
		}
	}
}
