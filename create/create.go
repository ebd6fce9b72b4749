// Package create makes a checkpoint that mlxrunner runs, in the Hugging Face
// layout, out of another: a folder of safetensors or a GGUF file. Weights are
// converted, and quantised by MLX, in pieces of some megabytes, so the memory
// that is needed does not grow with the model.
//
// The new folder is written beside its place and renamed: it is there whole or
// not at all. What is not understood (an architecture, a type of tensor, a
// tokenizer's pattern) is an error that names it, never left out.
package create

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlx/quant"
	"payload/mlxrunner/model"
)

// Options say what to make of the weights.
type Options struct {
	// DType is F32, F16 or BF16; "" is what the source's config.json says, and
	// BF16 for a GGUF file.
	DType safetensors.DType
	// Quantize is how matrices are quantised; nil leaves them plain. Scope is
	// where MLX does it, needed with Quantize alone.
	Quantize *quant.Params
	Scope    *mlx.Scope
	// Force replaces a checkpoint that is there.
	Force bool
	// ShardSize is the most bytes of tensors in a file; 0 is 5 GB.
	ShardSize int64
	// Progress is told the bytes written and to be written; it may be nil.
	Progress func(done, total int64)
}

const shardSize = 5_000_000_000

// Result is what was made.
type Result struct {
	Architecture string   `json:"architecture"`
	DType        string   `json:"dtype"`        // "" where tensors kept several
	Quantisation string   `json:"quantisation"` // "" for none
	Tensors      int      `json:"tensors"`
	Quantised    int      `json:"quantised"` // matrices
	Parameters   int64    `json:"parameters"`
	Bytes        int64    `json:"bytes"`
	Files        []string `json:"files"`
}

// A SourceError says why a source can't be imported, and what helps.
type SourceError struct{ Path, Why, Hint string }

func (e *SourceError) Error() string { return "importing " + e.Path + ": " + e.Why }

// source is a model to import.
type source struct {
	path    string
	kind    string // model_type
	config  map[string]json.RawMessage
	dtype   safetensors.DType // that it would keep, "" for each tensor's own
	tensors []tensor
	files   map[string]func(io.Writer) error // what stands beside the weights
	close   func() error
}

// tensor is one of the model, by its name in the Hugging Face layout.
type tensor struct {
	name  string
	shape []int64
	dtype safetensors.DType // as it is stored, or comes nearest
	// read gives whole rows, of the last dimension, from row on.
	read func(row int64, into []float32) error
}

func (t tensor) columns() int64 {
	if len(t.shape) == 0 {
		return 1
	}
	return t.shape[len(t.shape)-1]
}

func (t tensor) size() int64 {
	n := int64(1)
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// module is the path of the layer whose matrix t is, "" for any other tensor.
func (t tensor) module() string {
	if path, ok := strings.CutSuffix(t.name, ".weight"); ok && len(t.shape) > 1 {
		return path
	}
	return ""
}

// Run imports src, a folder or a GGUF file, to the folder dst. ctx stops it
// between pieces; then, and after an error, nothing is left of dst.
func Run(ctx context.Context, src, dst string, o Options) (Result, error) {
	var r Result
	if o.Quantize != nil && o.Scope == nil {
		return r, errors.New("quantising needs a scope of MLX")
	}
	if within(src, dst) {
		return r, &SourceError{src, "it lies in " + dst + ", which would be replaced", "name another folder for the checkpoint"}
	}
	out, err := begin(dst, o.Force)
	if err != nil {
		return r, err
	}
	defer out.abandon()
	s, err := open(src)
	if err != nil {
		return r, err
	}
	r, err = write(ctx, s, out.dir, o)
	if err = errors.Join(err, s.close()); err != nil {
		return r, fmt.Errorf("creating %s: %w", dst, err)
	}
	return r, out.finish()
}

// within says whether path, with all links followed, is folder or lies in it.
func within(path, folder string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return false // one of them is not there
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// sources is what can be imported, as a hint.
const sources = "name a folder with config.json, tokenizer.json and model*.safetensors, or a GGUF file"

func open(src string) (*source, error) {
	info, err := os.Stat(src)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &SourceError{src, "there is nothing of that name", sources}
	}
	if err != nil {
		return nil, fmt.Errorf("looking at what is to be imported: %w", err)
	}
	if info.IsDir() {
		return openFolder(src)
	}
	return openGGUF(src)
}

func write(ctx context.Context, s *source, dir string, o Options) (Result, error) {
	p, err := newPlan(s, o)
	if err != nil {
		return Result{}, err
	}
	if err := p.write(ctx, dir, o); err != nil {
		return Result{}, err
	}
	config, err := p.configText(s)
	if err != nil {
		return Result{}, err
	}
	s.files[model.ConfigName] = func(w io.Writer) error {
		_, err := w.Write(config)
		return err
	}
	for name, give := range s.files {
		if err := writeFile(filepath.Join(dir, name), give); err != nil {
			return Result{}, err
		}
	}
	return p.result(s), nil
}

func writeFile(path string, give func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a file of the checkpoint: %w", err)
	}
	err = give(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// configText is the source's config.json with what was made of the weights.
func (p *plan) configText(s *source) ([]byte, error) {
	if p.dtype != "" {
		for _, key := range []string{"dtype", "torch_dtype"} {
			if _, there := s.config[key]; there || key == "torch_dtype" {
				s.config[key] = json.RawMessage(`"` + names[p.dtype] + `"`)
			}
		}
	}
	text, err := json.Marshal(s.config)
	if err != nil {
		return nil, fmt.Errorf("writing the config: %w", err)
	}
	return quant.Write(text, p.quant)
}

// names are those of config.json.
var names = map[safetensors.DType]string{safetensors.F32: "float32", safetensors.F16: "float16", safetensors.BF16: "bfloat16"}

// ParseDType reads float32, float16 or bfloat16.
func ParseDType(name string) (safetensors.DType, error) {
	for d, n := range names {
		if n == name {
			return d, nil
		}
	}
	return "", fmt.Errorf("the type %q is not one of float32, float16, bfloat16", name)
}
