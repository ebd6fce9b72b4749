package verify

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"
)

// peFile is the least PE file for x86-64 that imports one function of each
// library.
func peFile(program bool, libraries ...string) string {
	le := binary.LittleEndian
	const section, at = 0x200, 0x1000 // in the file, in memory
	table := make([]byte, 20*(len(libraries)+1))
	for i, lib := range libraries {
		name := at + len(table)
		table = append(append(table, lib...), 0)
		hint := at + len(table)
		table = append(table, "\x00\x00work\x00"...)
		for len(table)%8 != 0 {
			table = append(table, 0)
		}
		thunk := at + len(table)
		table = le.AppendUint64(le.AppendUint64(table, uint64(hint)), 0)
		le.PutUint32(table[20*i:], uint32(thunk))
		le.PutUint32(table[20*i+12:], uint32(name))
		le.PutUint32(table[20*i+16:], uint32(thunk))
	}
	b := make([]byte, section)
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], 0x40)
	copy(b[0x40:], "PE\x00\x00")
	h := b[0x44:]
	le.PutUint16(h, 0x8664)
	le.PutUint16(h[2:], 1)     // sections
	le.PutUint16(h[16:], 240)  // size of what follows
	le.PutUint16(h[18:], 0x22) // executable
	if !program {
		le.PutUint16(h[18:], 0x2022) // a library
	}
	o := h[20:]
	le.PutUint16(o, 0x20b)
	le.PutUint32(o[108:], 16)
	le.PutUint32(o[112+8:], at)
	le.PutUint32(o[112+12:], uint32(len(table)))
	s := o[240:]
	copy(s, ".idata")
	le.PutUint32(s[8:], uint32(len(table)))
	le.PutUint32(s[12:], at)
	le.PutUint32(s[16:], uint32(len(table)))
	le.PutUint32(s[20:], section)
	return string(b) + string(table)
}

func TestPE(t *testing.T) {
	for name, c := range map[string]struct {
		change func(files map[string]string)
		want   []string
	}{
		"good": {want: []string{}},
		"a library gone": {
			change: func(f map[string]string) { delete(f, "GGML-base.dll") },
			want:   []string{"closure.missing:cuda/ggml-cuda.dll:ggml-base.dll", "closure.missing:server.exe:ggml-base.dll"},
		},
		"a library of the builder": {
			change: func(f map[string]string) { f["GGML-base.dll"] = peFile(false, "libstdc++-6.dll") },
			want:   []string{"closure.missing:GGML-base.dll:libstdc++-6.dll"},
		},
		"another backend's library": {
			change: func(f map[string]string) {
				f["rocm/amdhip64.dll"] = f["cuda/cudart64_13.dll"]
				f["cuda/ggml-cuda.dll"] = peFile(false, "amdhip64.dll")
			},
			want: []string{"closure.missing:cuda/ggml-cuda.dll:amdhip64.dll"},
		},
		"another architecture": {
			change: func(f map[string]string) {
				b := []byte(f["GGML-base.dll"])
				binary.LittleEndian.PutUint16(b[0x44:], 0xaa64)
				f["GGML-base.dll"] = string(b)
			},
			want: []string{"arch.wrong:GGML-base.dll"},
		},
		"cut off": {
			change: func(f map[string]string) { f["GGML-base.dll"] = f["GGML-base.dll"][:0x60] },
			want:   []string{"pe.unreadable:GGML-base.dll"},
		},
		"a table that leads outside": {
			change: func(f map[string]string) {
				b := []byte(f["GGML-base.dll"])
				binary.LittleEndian.PutUint32(b[0x200+12:], 0x7fffffff)
				f["GGML-base.dll"] = string(b)
			},
			want: []string{"pe.unreadable:GGML-base.dll"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{
				"server.exe":           peFile(true, "ggml-base.dll", "KERNEL32.dll", "api-ms-win-crt-runtime-l1-1-0.dll"),
				"GGML-base.dll":        peFile(false, "KERNEL32.dll"),
				"cuda/ggml-cuda.dll":   peFile(false, "ggml-base.dll", "cudart64_13.dll", "nvcuda.dll"),
				"cuda/cudart64_13.dll": peFile(false, "KERNEL32.dll"),
			}
			if c.change != nil {
				c.change(files)
			}
			dir := t.TempDir()
			for name, data := range files {
				put(t, filepath.Join(dir, name), data)
			}
			seal(t, dir)
			res := verifyStatic(t, dir)
			if got := keys(res.Findings); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q\n%+v", got, c.want, res.Findings)
			}
		})
	}
}
