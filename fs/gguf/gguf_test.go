package gguf

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const tiny = "../../internal/verify/tinymodel/tiny.gguf"

func read(tb testing.TB) []byte {
	tb.Helper()
	text, err := os.ReadFile(tiny)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func TestOpen(t *testing.T) {
	f, err := Open(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Version != 3 || len(f.Tensors) != 30 || f.Meta["general.architecture"] != "llama" || f.Meta["llama.block_count"] != uint64(3) || f.Meta["tokenizer.ggml.add_bos_token"] != true {
		t.Errorf("version %d, %d tensors, %v", f.Version, len(f.Tensors), f.Meta["llama.block_count"])
	}
	if tokens, ok := f.Meta["tokenizer.ggml.tokens"].([]string); !ok || len(tokens) != 512 || tokens[0] != "<|bos|>" {
		t.Errorf("tokens %.40v", tokens)
	}
	if kinds, ok := f.Meta["tokenizer.ggml.token_type"].([]int64); !ok || kinds[0] != 3 {
		t.Errorf("types %.40v", kinds)
	}
	// As gguf's own reader gives it, shapes turned round.
	down, ok := f.Tensor("blk.0.ffn_down.weight")
	if !ok || down.Type != Q8_0 || !slices.Equal(down.Shape, []int64{128, 256}) || down.Size != 128*256/32*34 {
		t.Errorf("%+v", down)
	}
	last := f.Tensors[len(f.Tensors)-1]
	info, err := os.Stat(tiny)
	if err != nil || last.Offset+last.Size > info.Size() || info.Size()-last.Offset-last.Size >= 32 {
		t.Errorf("the last tensor ends at %d of %d", last.Offset+last.Size, info.Size())
	}
	b := make([]byte, 34)
	if err := f.ReadAt(down, b, down.Size-34); err != nil {
		t.Error(err)
	}
	if err := f.ReadAt(down, b, down.Size-33); err == nil {
		t.Error("bytes beyond a tensor are read")
	}
}

func TestFaults(t *testing.T) {
	good := read(t)
	tokens := bytes.Index(good, []byte("tokenizer.ggml.tokens")) + len("tokenizer.ggml.tokens")
	shape := bytes.Index(good, []byte("blk.0.attn_q.weight")) + len("blk.0.attn_q.weight")
	put := binary.LittleEndian
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		says   string
	}{
		"empty":         {func(b []byte) []byte { return nil }, "truncated"},
		"magic":         {func(b []byte) []byte { b[0] = 'X'; return b }, "this is no GGUF file"},
		"version":       {func(b []byte) []byte { b[4] = 1; return b }, "version 1 of GGUF is not supported"},
		"big-endian":    {func(b []byte) []byte { put.PutUint32(b[4:], 3<<24); return b }, "big-endian"},
		"tensors":       {func(b []byte) []byte { put.PutUint64(b[8:], 1<<60); return b }, "1152921504606846976 tensors are announced at byte 24"},
		"keys":          {func(b []byte) []byte { put.PutUint64(b[16:], 1<<60); return b }, "keys are announced"},
		"key too many":  {func(b []byte) []byte { b[16]++; return b }, `tensor 1, ""`},
		"string":        {func(b []byte) []byte { put.PutUint64(b[24:], 1<<62); return b }, "bytes of text are announced at byte 32"},
		"array":         {func(b []byte) []byte { put.PutUint64(b[tokens+8:], 1<<61); return b }, `"tokenizer.ggml.tokens": 2305843009213693952 values`},
		"kind of value": {func(b []byte) []byte { b[tokens] = 77; return b }, "values of type 77 are not known"},
		"nested arrays": {func(b []byte) []byte { b[tokens+4] = 9; return b }, "arrays of type 9 are not known"},
		"dimensions":    {func(b []byte) []byte { b[shape] = 5; return b }, `"blk.0.attn_q.weight": it has 5 dimensions`},
		"huge":          {func(b []byte) []byte { put.PutUint64(b[shape+12:], 1<<62); return b }, "more than can be addressed"},
		"negative":      {func(b []byte) []byte { put.PutUint64(b[shape+12:], 1<<63); return b }, "dimension 1 is"},
		"zero":          {func(b []byte) []byte { put.PutUint64(b[shape+12:], 0); return b }, "shape [0 128]"},
		"blocks":        {func(b []byte) []byte { b[shape+4]++; return b }, "no whole number of blocks of Q8_0"},
		"type":          {func(b []byte) []byte { b[shape+20] = 99; return b }, "type 99 is not known"},
		"offset":        {func(b []byte) []byte { b[shape+24]++; return b }, `"blk.0.attn_q.weight" begins at byte`},
		"cut":           {func(b []byte) []byte { return b[:len(b)-100] }, "it is truncated"},
		"cut early":     {func(b []byte) []byte { return b[:2000] }, "truncated"},
	} {
		b := c.change(slices.Clone(good))
		_, err := Read(bytes.NewReader(b), int64(len(b)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\nwant %s", name, err, c.says)
		}
	}
}

// However it is damaged, reading ends with an answer or an error.
func FuzzRead(f *testing.F) {
	good := read(f)
	f.Add(good[:200])
	f.Add(append([]byte("GGUF\x03\x00\x00\x00"), make([]byte, 16)...))
	one := append([]byte("GGUF\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 8)...)
	one = append(one, "\x01\x00\x00\x00\x00\x00\x00\x00t\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"...)
	f.Add(append(one, make([]byte, 4+8+32)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, tensor := range h.Tensors {
			if tensor.Offset < 0 || tensor.Size <= 0 || tensor.Offset+tensor.Size > int64(len(b)) {
				t.Errorf("%+v lies outside", tensor)
			}
		}
	})
}

// allocated runs f and gives the bytes that it took.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The header, cut or changed at every place.
func TestEveryByte(t *testing.T) {
	good := read(t)
	h, err := Read(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	end := int(h.Tensors[0].Offset)
	for at := 0; at < end; at += 23 {
		if _, err := Read(bytes.NewReader(good[:at]), int64(at)); err == nil {
			t.Fatalf("cut at byte %d it passes", at)
		}
		b := slices.Clone(good)
		b[at] ^= 0xff
		// No panic, and whatever is announced, little memory.
		if used := allocated(func() { _, _ = Read(bytes.NewReader(b), int64(len(b))) }); used > 8<<20 {
			t.Fatalf("with byte %d changed %d bytes are allocated", at, used)
		}
	}
}
