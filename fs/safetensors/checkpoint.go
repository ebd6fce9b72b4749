package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is an opened file. Its tensors' bytes are read on demand.
type File struct {
	Header
	Path string
	f    *os.File
}

// Open reads a file's header and keeps the file open until Close.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a safetensors file: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var header *Header
	if err == nil {
		header, err = ReadHeader(f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", path, err), f.Close())
	}
	return &File{Header: *header, Path: path, f: f}, nil
}

// Data reads a tensor's bytes; it may be used by several goroutines.
func (f *File) Data(t Tensor) *io.SectionReader { return io.NewSectionReader(f.f, t.Offset, t.Size) }

// Descriptor is the open file's, for the system; it ends with Close.
func (f *File) Descriptor() uintptr { return f.f.Fd() }

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// IndexName is the file that says which shard holds which tensor.
const IndexName = "model.safetensors.index.json"

// ErrNoWeights says that a folder holds no model*.safetensors.
var ErrNoWeights = errors.New("no model*.safetensors")

// Checkpoint is a folder's weights: one file, or shards.
type Checkpoint struct {
	Dir   string
	Files []*File // in the order of their names
	of    map[string]*File
}

// OpenDir opens the weights of a folder in the Hugging Face layout: the shards
// that model.safetensors.index.json names or, without one, every
// model*.safetensors. An index must agree with what the shards hold, and no
// tensor may stand in two files. The error is ErrNoWeights when there is none.
func OpenDir(dir string) (*Checkpoint, error) {
	index, err := readIndex(filepath.Join(dir, IndexName))
	if err != nil {
		return nil, err
	}
	names := shards(index)
	if index == nil {
		if names, err = weights(dir); err != nil {
			return nil, fmt.Errorf("looking for weights in %s: %w", dir, err)
		}
	}
	c := &Checkpoint{Dir: dir, of: map[string]*File{}}
	if err := c.open(names, index); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) open(names []string, index map[string]string) error {
	for _, name := range names {
		f, err := Open(filepath.Join(c.Dir, name))
		if err != nil {
			return err
		}
		c.Files = append(c.Files, f)
		for _, t := range f.Tensors {
			if other, twice := c.of[t.Name]; twice {
				return fmt.Errorf("reading %s: tensor %q stands in %s and in %s", c.Dir, t.Name, filepath.Base(other.Path), name)
			}
			if index != nil && index[t.Name] != name {
				return fmt.Errorf("reading %s: tensor %q stands in %s, %s says %q", c.Dir, t.Name, name, IndexName, index[t.Name])
			}
			c.of[t.Name] = f
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(index)) {
		if c.of[tensor] == nil {
			return fmt.Errorf("reading %s: tensor %q is missing from %s, where %s says it is", c.Dir, tensor, index[tensor], IndexName)
		}
	}
	return nil
}

// Tensor finds a tensor and the file that holds it.
func (c *Checkpoint) Tensor(name string) (Tensor, *File, bool) {
	f := c.of[name]
	if f == nil {
		return Tensor{}, nil, false
	}
	t, ok := f.Tensor(name)
	return t, f, ok
}

// Names lists the tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.of)) }

// Close closes every file.
func (c *Checkpoint) Close() error {
	var err error
	for _, f := range c.Files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// readIndex reads the weight map, from tensor to file; nil without an index.
func readIndex(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the index of a checkpoint: %w", err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("reading %s: weight_map is empty or missing", path)
	}
	for tensor, file := range index.WeightMap {
		if file == "" || filepath.Base(file) != file || file == ".." {
			return nil, fmt.Errorf("reading %s: tensor %q lies in %q, which is no file of that folder", path, tensor, file)
		}
	}
	return index.WeightMap, nil
}

// shards lists the files of an index.
func shards(index map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(index)))
}

// weights lists the files of a folder that has no index.
func weights(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "model") && strings.HasSuffix(e.Name(), ".safetensors") {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, ErrNoWeights
	}
	return names, nil
}
