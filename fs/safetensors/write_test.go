package safetensors

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// What is written in pieces, in any order of tensors, is read again.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	w, err := Create(path, []Tensor{{Name: "b", DType: U8, Shape: []int64{3}}, {Name: "a", DType: F32, Shape: []int64{2, 2}}, {Name: "one", DType: F16}}, map[string]string{"format": "mlx"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "0123456789abcdef", "b": "xyz", "one": "-+"}
	for _, part := range []struct{ name, bytes string }{{"b", "x"}, {"a", "0123456"}, {"one", "-+"}, {"b", "yz"}, {"a", "789abcdef"}} {
		if n, err := io.WriteString(w.To(part.name), part.bytes); err != nil || n != len(part.bytes) {
			t.Fatal(n, err)
		}
	}
	if _, err := w.To("b").Write([]byte("!")); err == nil || !strings.Contains(err.Error(), `tensor "b" has 3 bytes, 4 are given`) {
		t.Errorf("%v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Metadata["format"] != "mlx" || f.Tensors[0].Name != "a" || f.Tensors[0].Offset%8 != 0 {
		t.Errorf("%+v", f.Header)
	}
	for name, text := range want {
		tensor, ok := f.Tensor(name)
		got, err := io.ReadAll(f.Data(tensor))
		if !ok || err != nil || !bytes.Equal(got, []byte(text)) {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

func TestWriteFaults(t *testing.T) {
	dir := t.TempDir()
	for says, tensors := range map[string][]Tensor{
		`tensor "a" stands there twice`: {{Name: "a", DType: U8}, {Name: "a", DType: U8}},
		`tensor "a": X8 of shape [1]`:   {{Name: "a", DType: "X8", Shape: []int64{1}}},
		"can't be stored":               {{Name: "a", DType: F32, Shape: []int64{1 << 40, 1 << 40}}},
	} {
		_, err := Create(filepath.Join(dir, "x.safetensors"), tensors, nil)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	w, err := Create(filepath.Join(dir, "y.safetensors"), []Tensor{{Name: "a", DType: U8, Shape: []int64{2}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.To("a").Write([]byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), `tensor "a" has 2 bytes, 1 were given`) {
		t.Errorf("%v", err)
	}
}
