package verify

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// peFile is the least PE file for x86-64 that imports one function, work, of
// each library; a library has such a function too.
func peFile(program bool, libraries ...string) string {
	spec := peSpec{program: program}
	for _, library := range libraries {
		spec.imports = append(spec.imports, foreign{library, "work"})
	}
	if !program {
		spec.exports = []string{"work"}
	}
	return spec.file()
}

// A peSpec is what a PE file is joined to: names, or numbers as "#12".
type peSpec struct {
	program          bool
	imports, delayed []foreign
	exports          []string // "name", or "name=OTHER.name", from number 5 on
}

func (p peSpec) file() string {
	le := binary.LittleEndian
	const section, base = 0x200, 0x1000 // in the file, in memory
	var data []byte
	add := func(b ...byte) uint32 {
		for len(data)%8 != 0 {
			data = append(data, 0)
		}
		data = append(data, b...)
		return uint32(base + len(data) - len(b))
	}
	words := func(words ...uint32) (b []byte) {
		for _, w := range words {
			b = le.AppendUint32(b, w)
		}
		return b
	}
	text := func(s string) uint32 { return add(append([]byte(s), 0)...) }
	thunk := func(name string) uint32 {
		if number, ok := strings.CutPrefix(name, "#"); ok {
			n, _ := strconv.Atoi(number)
			return add(le.AppendUint64(nil, 1<<63|uint64(n))...)
		}
		hint := add(append([]byte("\x00\x00"+name), 0)...)
		return add(append(le.AppendUint64(nil, uint64(hint)), make([]byte, 8)...)...)
	}
	var imports, delayed []byte
	for _, i := range p.imports {
		at := thunk(i.name)
		add(make([]byte, 8)...)
		imports = append(imports, words(at, 0, 0, text(i.library), at)...)
	}
	for _, i := range p.delayed {
		at := thunk(i.name)
		add(make([]byte, 8)...)
		delayed = append(delayed, words(1, text(i.library), 0, at, at, 0, 0, 0)...)
	}
	importAt := add(append(imports, make([]byte, 20)...)...)
	delayedAt := add(append(delayed, make([]byte, 32)...)...)
	// Strings that pass something on lie within the table's own extent.
	exportAt := add(make([]byte, 40)...)
	var functions, names, places []byte
	for i, e := range p.exports {
		name, to, passed := strings.Cut(e, "=")
		function := uint32(base)
		if passed {
			function = text(to)
		}
		functions = append(functions, words(function)...)
		names = append(names, words(text(name))...)
		places = le.AppendUint16(places, uint16(i))
	}
	n := uint32(len(p.exports))
	table := words(0, 0, 0, text("self.dll"), 5, n, n, add(functions...), add(names...), add(places...))
	copy(data[exportAt-base:], table)
	exportSize := uint32(base+len(data)) - exportAt
	if n == 0 {
		exportAt = 0
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
	if !p.program {
		le.PutUint16(h[18:], 0x2022) // a library
	}
	o := h[20:]
	le.PutUint16(o, 0x20b)
	le.PutUint32(o[108:], 16)
	for dir, at := range map[int][2]uint32{exportTable: {exportAt, exportSize}, importTable: {importAt, uint32(len(imports) + 20)}, delayTable: {delayedAt, uint32(len(delayed) + 32)}} {
		copy(o[112+8*dir:], words(at[0], at[1]))
	}
	s := o[240:]
	copy(s, ".rdata")
	copy(s[8:], words(uint32(len(data)), base, uint32(len(data)), section))
	return string(b) + string(data)
}

func TestPE(t *testing.T) {
	for name, c := range map[string]struct {
		change func(files map[string]string)
		want   []string
	}{
		"good": {want: []string{}},
		"what compilers add by themselves": {
			change: func(f map[string]string) {
				f["GGML-base.dll"] = peFile(false, "VCRUNTIME140_THREADS.dll", "MSVCP140_ATOMIC_WAIT.dll", "WINTRUST.dll", "imagehlp.dll")
			},
			want: []string{},
		},
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
		"a function gone": {
			change: func(f map[string]string) { f["GGML-base.dll"] = peSpec{exports: []string{"other"}}.file() },
			want:   []string{"symbols.undefined:cuda/ggml-cuda.dll:ggml-base.dll", "symbols.undefined:server.exe:ggml-base.dll"},
		},
		"a function by its number": {
			change: func(f map[string]string) {
				f["server.exe"] = peSpec{program: true, imports: []foreign{{"ggml-base.dll", "#5"}}}.file()
			},
			want: []string{},
		},
		"a number that nothing has": {
			change: func(f map[string]string) {
				f["server.exe"] = peSpec{program: true, imports: []foreign{{"ggml-base.dll", "#6"}}}.file()
			},
			want: []string{"symbols.undefined:server.exe:ggml-base.dll"},
		},
		"a function that the system has": {
			change: func(f map[string]string) { f["GGML-base.dll"] = peSpec{exports: []string{"work=KERNEL32.Beep"}}.file() },
			want:   []string{},
		},
		"a function that another library has": {
			change: func(f map[string]string) {
				f["GGML-base.dll"] = peSpec{exports: []string{"work=core.#5"}}.file()
				f["core.dll"] = peSpec{exports: []string{"real"}}.file()
			},
			want: []string{},
		},
		"a function that another library lacks": {
			change: func(f map[string]string) {
				f["GGML-base.dll"] = peSpec{exports: []string{"work=core.real"}}.file()
				f["core.dll"] = peSpec{exports: []string{"unreal"}}.file()
			},
			want: []string{"symbols.undefined:cuda/ggml-cuda.dll:ggml-base.dll", "symbols.undefined:server.exe:ggml-base.dll"},
		},
		"a function of a library that is not there": {
			change: func(f map[string]string) { f["GGML-base.dll"] = peSpec{exports: []string{"work=core.real"}}.file() },
			want:   []string{"symbols.undefined:cuda/ggml-cuda.dll:ggml-base.dll", "symbols.undefined:server.exe:ggml-base.dll"},
		},
		"a function that nobody takes, of a library that is not there": {
			change: func(f map[string]string) {
				f["GGML-base.dll"] = peSpec{exports: []string{"work", "play=core.real"}}.file()
			},
			want: []string{},
		},
		"a function that is passed on in a ring": {
			change: func(f map[string]string) {
				f["GGML-base.dll"] = peSpec{exports: []string{"work=GGML-base.work"}}.file()
			},
			want: []string{"symbols.undefined:cuda/ggml-cuda.dll:ggml-base.dll", "symbols.undefined:server.exe:ggml-base.dll"},
		},
		"what is looked for when it is called": {
			change: func(f map[string]string) {
				f["server.exe"] = peSpec{program: true, delayed: []foreign{{"ggml-base.dll", "play"}, {"gone.dll", "work"}}}.file()
			},
			want: []string{"closure.missing:server.exe:gone.dll", "symbols.undefined:server.exe:ggml-base.dll"},
		},
		"a table that leads outside": {
			change: func(f map[string]string) {
				b := []byte(f["GGML-base.dll"])
				binary.LittleEndian.PutUint32(b[0x44+20+112+8*importTable:], 0x7fffffff)
				f["GGML-base.dll"] = string(b)
			},
			want: []string{"pe.unreadable:GGML-base.dll"},
		},
		"entries that share one list of names": {
			change: func(f map[string]string) {
				const many = 1500
				le := binary.LittleEndian
				b := []byte(peSpec{imports: slices.Repeat([]foreign{{"ggml-base.dll", "#5"}}, many)}.file())
				list := uint32(len(b) - 0x200 + 0x1000)
				for range many {
					b = le.AppendUint64(b, 1<<63|5)
				}
				b = append(b, make([]byte, 8)...)
				size := uint32(len(b) - 0x200)
				le.PutUint32(b[0x44+20+240+8:], size)
				le.PutUint32(b[0x44+20+240+16:], size)
				entries := b[le.Uint32(b[0x44+20+112+8*importTable:])-0x1000+0x200:]
				for i := range many {
					le.PutUint32(entries[20*i:], list)
				}
				f["GGML-base.dll"] = string(b)
			},
			want: []string{"pe.unreadable:GGML-base.dll"},
		},
		"more exports than there are numbers": {
			change: func(f map[string]string) {
				b := []byte(f["GGML-base.dll"])
				at := binary.LittleEndian.Uint32(b[0x44+20+112:]) - 0x1000 + 0x200
				binary.LittleEndian.PutUint32(b[at+20:], 1<<30)
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
			for _, f := range res.Findings {
				for _, w := range f.Where {
					if files[w.Path] == "" {
						t.Errorf("%s is at %s, which is no file", f.Key, w.Path)
					}
				}
			}
		})
	}
}
