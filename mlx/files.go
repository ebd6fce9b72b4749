package mlx

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"payload/fs/safetensors"
	"payload/mlx/internal/c"
)

// A Checkpoint is what a safetensors file holds.
type Checkpoint struct {
	Arrays   map[string]*Array
	Metadata map[string]string
}

// LoadSafetensors opens a safetensors file. Only its header is read; each
// array is read, straight to its place, when it is first evaluated, so the
// file must stay as it is until then; one that was cut short meanwhile is an
// error of that evaluation. The arrays belong to the scope.
func (s *Scope) LoadSafetensors(path string) (Checkpoint, error) {
	const op = "LoadSafetensors"
	if !s.ready(op) {
		return Checkpoint{}, s.err
	}
	file, err := safetensors.Open(path)
	if err != nil {
		return Checkpoint{}, s.fault(op, err) // it names the path
	}
	// MLX's own reader fills the tensors of a file that is cut short with bytes
	// from elsewhere in it, and says nothing.
	read := func(t safetensors.Tensor, to []byte) error {
		if _, err := io.ReadFull(file.Data(t), to); err != nil {
			return fmt.Errorf("reading %s: tensor %q: %w", path, t.Name, err)
		}
		return nil
	}
	arrays, err := s.fill(file.Tensors, read, func() { _ = file.Close() }) // only read
	if err != nil {
		return Checkpoint{}, s.failFile(op, path, err)
	}
	return Checkpoint{Arrays: arrays, Metadata: file.Metadata}, nil
}

func (s *Scope) failFile(op, path string, err error) error {
	out := &Error{Op: op, Of: []string{path}, Text: err.Error(), Err: err}
	var told *c.Error
	if errors.As(err, &told) {
		out.Text, out.Where = told.Text, told.Where
	}
	report(out)
	s.Fail(out)
	return s.err
}

func (s *Scope) arraysOf(m c.MapStringToArray) (map[string]*Array, error) {
	it, err := c.MapStringToArrayIteratorNew(m)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.MapStringToArrayIteratorFree(it) }() // it can't fail
	out := map[string]*Array{}
	for {
		var key string
		var h c.Array
		err := c.MapStringToArrayIteratorNext(&key, &h, it)
		if c.NotFound(err) {
			return out, nil
		}
		a := s.made("LoadSafetensors", h, err)
		if a == nil {
			return nil, s.err
		}
		out[key] = a
	}
}

// SaveSafetensors evaluates arrays and writes them as a safetensors file, whole
// or not at all.
func (s *Scope) SaveSafetensors(path string, data Checkpoint) error {
	const op = "SaveSafetensors"
	list := make([]*Array, 0, len(data.Arrays))
	for _, a := range data.Arrays {
		list = append(list, a)
	}
	if err := s.Eval(list...); err != nil {
		return err
	}
	beside, err := os.CreateTemp(filepath.Dir(path), ".saving-*.safetensors") // MLX adds the ending where it lacks
	if err != nil {
		return s.failFile(op, path, err)
	}
	_ = beside.Close() // empty
	err = saveSafetensors(beside.Name(), data)
	if err == nil {
		err = os.Chmod(beside.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(beside.Name(), path)
	}
	if err != nil {
		_ = os.Remove(beside.Name()) // the error before says more
		return s.failFile(op, path, err)
	}
	return nil
}

func saveSafetensors(path string, data Checkpoint) error {
	arrays, err := c.MapStringToArrayNew()
	if err != nil {
		return err
	}
	defer func() { _ = c.MapStringToArrayFree(arrays) }() // it can't fail
	for key, a := range data.Arrays {
		if err := c.MapStringToArrayInsert(arrays, key, a.h); err != nil {
			return err
		}
	}
	texts, err := c.MapStringToStringNew()
	if err != nil {
		return err
	}
	defer func() { _ = c.MapStringToStringFree(texts) }() // it can't fail
	for key, value := range data.Metadata {
		if err := c.MapStringToStringInsert(texts, key, value); err != nil {
			return err
		}
	}
	return c.SaveSafetensors(path, arrays, texts)
}
