package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file is a header's text and n bytes of data, as a file holds them.
func file(header string, n int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	out = append(out, header...)
	for i := range n {
		out = append(out, byte(i))
	}
	return out
}

func read(data []byte) (*Header, error) {
	return ReadHeader(bytes.NewReader(data), int64(len(data)))
}

// MLX writes null where there is no metadata.
func TestNoMetadata(t *testing.T) {
	h, err := read(file(`{"__metadata__":null,"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4))
	if err != nil || len(h.Metadata) != 0 || len(h.Tensors) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestEveryType(t *testing.T) {
	var header strings.Builder
	header.WriteString(`{"__metadata__":{"format":"pt"}`)
	at := int64(0)
	types := slices.Sorted(maps.Keys(bitsOf))
	for _, d := range types {
		size := 8 * d.Bits() / 8
		fmt.Fprintf(&header, `,"t.%s":{"dtype":%q,"shape":[2,4],"data_offsets":[%d,%d]}`, d, d, at, at+size)
		at += size
	}
	header.WriteString("}   ")
	data := file(header.String(), int(at))
	h, err := read(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(types) != 20 || len(h.Tensors) != 20 || h.Metadata["format"] != "pt" {
		t.Errorf("%d types, %d tensors, metadata %v", len(types), len(h.Tensors), h.Metadata)
	}
	f4, ok := h.Tensor("t.F4")
	if !ok || f4.Size != 4 || !slices.Equal(f4.Shape, []int64{2, 4}) {
		t.Errorf("F4: %+v", f4)
	}
	if f6, _ := h.Tensor("t.F6_E2M3"); f6.Size != 6 {
		t.Errorf("F6: %+v", f6)
	}
	last := h.Tensors[len(h.Tensors)-1]
	if last.Offset+last.Size != int64(len(data)) {
		t.Errorf("the last tensor ends at %d of %d", last.Offset+last.Size, len(data))
	}
}

func TestScalarsAndEmptyOnes(t *testing.T) {
	h, err := read(file(`{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"I64","shape":[0,3],"data_offsets":[0,0]}}`, 4))
	if err != nil {
		t.Fatal(err)
	}
	if h.Tensors[0].Name != "a" || h.Tensors[1].Size != 4 || len(h.Tensors[1].Shape) != 0 {
		t.Errorf("%+v", h.Tensors)
	}
	if h, err := read(file(`{}`, 0)); err != nil || len(h.Tensors) != 0 {
		t.Errorf("an empty file: %+v, %v", h, err)
	}
}

func TestMistakes(t *testing.T) {
	const a = `"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`
	huge := binary.LittleEndian.AppendUint64(nil, 1<<40)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty file":       {nil, "the file has 0 bytes"},
		"huge header":      {append(huge, '{'), "a header of 1099511627776 bytes is announced, the limit is"},
		"truncated header": {file("{"+a+"}", 4)[:20], "it is truncated"},
		"not JSON":         {file("GGUF", 0), "this is no safetensors file"},
		"cut JSON":         {file("{"+a, 4), "unexpected EOF"},
		"after the JSON":   {file("{"+a+"} {", 4), "goes on after"},
		"not UTF-8":        {file("{\"\xff\":1}", 0), "not UTF-8"},
		"same name":        {file("{"+a+","+a+"}", 4), `key "a" stands there twice`},
		"escaped name":     {file("{"+a+","+strings.Replace(a, `"a"`, `"\u0061"`, 1)+"}", 4), `key "a" stands there twice`},
		"same key":         {file(`{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), `tensor "a": key "dtype" stands there twice`},
		"unknown key":      {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}}`, 4), `key "x" is not known`},
		"capitals":         {file(`{"a":{"DType":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), `key "DType" is not known`},
		"no shape":         {file(`{"a":{"dtype":"U8","data_offsets":[0,4]}}`, 4), "dtype, shape and data_offsets are needed"},
		"unknown type":     {file(`{"a":{"dtype":"Q4","shape":[4],"data_offsets":[0,4]}}`, 4), "dtype Q4 is not known"},
		"type null":        {file(`{"a":{"dtype":null,"shape":[4],"data_offsets":[0,4]}}`, 4), "is not known"},
		"negative":         {file(`{"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}}`, 4), "-4 is not a whole number"},
		"fraction":         {file(`{"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}`, 4), "4.0 is not a whole number"},
		"text in shape":    {file(`{"a":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}}`, 4), "is not a whole number"},
		"beyond 64 bits":   {file(`{"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,4]}}`, 4), "is not a whole number"},
		"overflow":         {file(`{"a":{"dtype":"F64","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}`, 0), "more than can be addressed"},
		"half a byte":      {file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), "no whole number of bytes"},
		"wrong size":       {file(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}}`, 4), "needs 16 bytes, data_offsets give 4"},
		"backwards":        {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}`, 4), "not a begin and an end"},
		"three offsets":    {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}}`, 4), "not a begin and an end"},
		"truncated data":   {file("{"+a+"}", 3), `tensor "a" needs 4 bytes, the file has 3 left: it is truncated`},
		"too much data":    {file("{"+a+"}", 5), "the file has 1 bytes after the last tensor"},
		"overlap":          {file("{"+a+`,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), `tensor "b" begins at byte 2 of the data, inside "a", which ends at 4`},
		"gap":              {file("{"+a+`,"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}}`, 6), `"a" ends at 4: a gap`},
		"gap at the start": {file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "the header ends at 0: a gap"},
		"metadata number":  {file(`{"__metadata__":{"a":1}}`, 0), `"a" is not text`},
		"metadata list":    {file(`{"__metadata__":[]}`, 0), "[ where { is expected"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.data)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %q", err, c.want)
			}
		})
	}
}

// FuzzReadHeader holds that what is accepted tiles the file, whatever it is.
func FuzzReadHeader(f *testing.F) {
	f.Add(file(`{"__metadata__":null}`, 0))
	f.Add(file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"__metadata__":{"k":"v"}}`, 4))
	f.Add(file(`{"a":{"dtype":"F4","shape":[2,0],"data_offsets":[0,0]}}  `, 0))
	f.Add(file(`{}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := read(data)
		if err != nil {
			return
		}
		at := int64(8 + binary.LittleEndian.Uint64(data))
		for _, tensor := range h.Tensors {
			if want, ok := tensor.bytes(); tensor.Offset != at || !ok || want != tensor.Size {
				t.Fatalf("%+v does not begin at %d", tensor, at)
			}
			if found, ok := h.Tensor(tensor.Name); !ok || found.Offset != tensor.Offset {
				t.Fatalf("%q is found as %+v", tensor.Name, found)
			}
			at += tensor.Size
		}
		if at != int64(len(data)) {
			t.Fatalf("the tensors end at %d of %d", at, len(data))
		}
	})
}

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func one(name string) string {
	return string(file(fmt.Sprintf(`{%q:{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, name), 2))
}

func TestCheckpoint(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{
		"model-00001-of-00002.safetensors": one("a"),
		"model-00002-of-00002.safetensors": one("b"),
		"other.safetensors":                "not looked at",
		IndexName:                          `{"metadata":{"total_size":4},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`,
	})
	for _, indexed := range []bool{true, false} {
		if !indexed {
			if err := os.Remove(filepath.Join(dir, IndexName)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Names(), []string{"a", "b"}) || len(c.Files) != 2 {
			t.Errorf("%v in %d files", c.Names(), len(c.Files))
		}
		tensor, f, ok := c.Tensor("b")
		if !ok || filepath.Base(f.Path) != "model-00002-of-00002.safetensors" {
			t.Fatalf("b: %v in %+v", ok, f)
		}
		data, err := io.ReadAll(f.Data(tensor))
		if err != nil || !bytes.Equal(data, []byte{0, 1}) {
			t.Errorf("b holds %v, %v", data, err)
		}
		if _, _, ok := c.Tensor("c"); ok {
			t.Error("c was found")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckpointMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"missing shard": {map[string]string{"model-1.safetensors": one("a"), IndexName: `{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}`}, "model-2.safetensors"},
		"missing":       {map[string]string{"model-1.safetensors": one("a"), IndexName: `{"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}}`}, `tensor "b" is missing from model-1.safetensors`},
		"extra":         {map[string]string{"model-1.safetensors": one("b"), IndexName: `{"weight_map":{"a":"model-1.safetensors"}}`}, `tensor "b" stands in model-1.safetensors, ` + IndexName + ` says ""`},
		"twice":         {map[string]string{"model-1.safetensors": one("a"), "model-2.safetensors": one("a")}, `tensor "a" stands in model-1.safetensors and in model-2.safetensors`},
		"outside":       {map[string]string{IndexName: `{"weight_map":{"a":"../model.safetensors"}}`}, "is no file of that folder"},
		"upwards":       {map[string]string{IndexName: `{"weight_map":{"a":".."}}`}, "is no file of that folder"},
		"empty index":   {map[string]string{IndexName: `{}`}, "weight_map is empty or missing"},
		"broken index":  {map[string]string{IndexName: `{`}, IndexName},
		"damaged":       {map[string]string{"model.safetensors": "x"}, "the file has 1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenDir(write(t, t.TempDir(), c.files))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %q", err, c.want)
			}
		})
	}
	if _, err := OpenDir(t.TempDir()); !errors.Is(err, ErrNoWeights) {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
}

// TestTinyModel reads what the reference library wrote.
func TestTinyModel(t *testing.T) {
	c, err := OpenDir("../../internal/verify/tinymodel/safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	embed, f, ok := c.Tensor("model.embed_tokens.weight")
	if !ok || embed.DType != F16 || len(embed.Shape) != 2 || embed.Size != 2*embed.Shape[0]*embed.Shape[1] {
		t.Errorf("%+v in %s", embed, f.Path)
	}
}
