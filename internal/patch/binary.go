package patch

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Binary is the forward half of a git binary patch: the new content, or a
// delta from the old one.
type Binary struct {
	Delta bool
	Data  []byte
}

const (
	alphabet85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
	maxBinary  = 1 << 30
)

// binary reads what follows "GIT binary patch". The reverse half is checked
// for form and dropped: the blob ids say whether a patch fits.
func (r *reader) binary() (*Binary, error) {
	var halves []*Binary
	for len(halves) < 2 && r.more() {
		kind, size, ok := strings.Cut(r.peek(), " ")
		if !ok || kind != "literal" && kind != "delta" {
			break
		}
		want, err := strconv.Atoi(size)
		if err != nil || want < 0 || want > maxBinary {
			return nil, r.fault(notPatch, "not the size of a binary change: %q", clip(size))
		}
		r.at++
		var packed []byte
		for r.peek() != "" {
			packed, err = append85(packed, r.peek())
			if err != nil {
				return nil, r.fault(truncated, "%v", err)
			}
			r.at++
		}
		if !r.more() {
			return nil, r.fault(truncated, "the binary change does not end")
		}
		r.at++
		data, err := inflate(packed, want)
		if err != nil {
			return nil, r.fault(truncated, "binary data: %v", err)
		}
		halves = append(halves, &Binary{Delta: kind == "delta", Data: data})
	}
	if len(halves) == 0 {
		return nil, r.fault(truncated, "a binary change without its data")
	}
	return halves[0], nil
}

func inflate(packed []byte, want int) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, int64(want)+1))
	if err != nil {
		return nil, err
	}
	if len(data) != want {
		return nil, fmt.Errorf("%d bytes stated, %d held", want, len(data))
	}
	return data, nil
}

// append85 decodes one line of git's base 85: its length as a letter, then
// five characters for every four bytes.
func append85(to []byte, line string) ([]byte, error) {
	var n int
	switch c := line[0]; {
	case c >= 'A' && c <= 'Z':
		n = int(c-'A') + 1
	case c >= 'a' && c <= 'z':
		n = int(c-'a') + 27
	default:
		return nil, fmt.Errorf("not a line of binary data: %q", clip(line))
	}
	text := line[1:]
	if len(text) != (n+3)/4*5 {
		return nil, fmt.Errorf("a line of binary data is %d characters long, not %d", len(text), (n+3)/4*5)
	}
	for i := 0; i < len(text); i += 5 {
		var v uint64
		for _, c := range []byte(text[i : i+5]) {
			digit := strings.IndexByte(alphabet85, c)
			if digit < 0 {
				return nil, fmt.Errorf("not a line of binary data: %q", clip(line))
			}
			v = v*85 + uint64(digit)
		}
		if v > 1<<32-1 {
			return nil, fmt.Errorf("not a line of binary data: %q", clip(line))
		}
		group := []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
		to = append(to, group[:min(4, n)]...)
		n -= 4
	}
	return to, nil
}

var errDelta = errors.New("the delta is damaged")

// apply is the new content of a file that holds old.
func (b *Binary) apply(old string) (string, error) {
	if !b.Delta {
		return string(b.Data), nil
	}
	d := b.Data
	number := func() (n int) {
		for shift := 0; len(d) > 0 && shift < 35; shift += 7 {
			c := d[0]
			d = d[1:]
			n |= int(c&0x7f) << shift
			if c&0x80 == 0 {
				return n
			}
		}
		return -1
	}
	from, to := number(), number()
	if from != len(old) {
		return "", fmt.Errorf("the delta is for a file of %d bytes, this one has %d", from, len(old))
	}
	if to < 0 || to > maxBinary {
		return "", errDelta
	}
	var out strings.Builder
	for len(d) > 0 {
		c := d[0]
		d = d[1:]
		if c&0x80 == 0 { // insert the next c bytes
			if c == 0 || int(c) > len(d) {
				return "", errDelta
			}
			out.Write(d[:c])
			d = d[c:]
			continue
		}
		var v [7]int
		for i := range v {
			if c&(1<<i) == 0 {
				continue
			}
			if len(d) == 0 {
				return "", errDelta
			}
			v[i] = int(d[0])
			d = d[1:]
		}
		offset := v[0] | v[1]<<8 | v[2]<<16 | v[3]<<24
		size := v[4] | v[5]<<8 | v[6]<<16
		if size == 0 {
			size = 0x10000
		}
		if offset+size > len(old) || out.Len()+size > to {
			return "", errDelta
		}
		out.WriteString(old[offset : offset+size])
	}
	if out.Len() != to {
		return "", errDelta
	}
	return out.String(), nil
}
