package create

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"payload/fs/safetensors"
	"payload/mlxrunner/model"
	"payload/mlxrunner/tokenizer"
)

// openFolder reads a folder in the Hugging Face layout.
func openFolder(dir string) (*source, error) {
	refuse := func(why, hint string) (*source, error) { return nil, &SourceError{dir, why, hint} }
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", dir, err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
	}
	if has("adapter_config.json") || has("adapter_model.safetensors") || has("adapters.safetensors") {
		return refuse("it holds an adapter (LoRA), which is no model of its own",
			"merge it into the model that it was trained on, then create from the merged folder; peft does it by merge_and_unload and save_pretrained, mlx-lm by mlx_lm.fuse")
	}
	if !has(model.ConfigName) {
		return refuse("it has no "+model.ConfigName, sources)
	}
	config, err := model.ReadConfig(dir)
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", dir, err)
	}
	if !slices.Contains(model.Architectures(), config.ModelType) {
		return nil, fmt.Errorf("importing %s: %w", dir, &model.UnknownArchitectureError{Type: config.ModelType, Known: model.Architectures()})
	}
	if !config.Quant.None() {
		return refuse(fmt.Sprintf("its weights are quantised already, as %v", config.Quant.Default), "mlxrunner runs it as it is; to quantise otherwise, create from the weights as they were before")
	}
	if !has(tokenizer.FileName) {
		return refuse("it has no "+tokenizer.FileName, "save its tokenizer as tokenizer.json with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)")
	}
	s := &source{path: dir, kind: config.ModelType}
	text, err := os.ReadFile(filepath.Join(dir, model.ConfigName))
	if err == nil {
		err = json.Unmarshal(text, &s.config)
	}
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", dir, err)
	}
	for _, key := range []string{"dtype", "torch_dtype"} {
		var name string
		if json.Unmarshal(s.config[key], &name) == nil && s.dtype == "" {
			s.dtype, _ = ParseDType(name) // another type is each tensor's own
		}
	}
	s.files, err = carried(dir, entries)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("a file of it is a link to nothing: "+err.Error(), "fetch the checkpoint again, or delete the link if its file is not wanted")
	}
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", dir, err)
	}
	weights, err := safetensors.OpenDir(dir)
	if errors.Is(err, safetensors.ErrNoWeights) {
		return refuse("it holds no model*.safetensors", "save the weights as safetensors; other formats can't be read without running their code")
	}
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", dir, err)
	}
	s.close = weights.Close
	if err := s.take(weights, config); err != nil {
		return nil, errors.Join(fmt.Errorf("importing %s: %w", dir, err), weights.Close())
	}
	return s, nil
}

// carried lists what stands beside the weights and belongs to them: the
// tokenizer, settings, templates and licences. What can't be read is an error
// here: they are copied last, after weights that may take minutes.
func carried(dir string, entries []os.DirEntry) (map[string]func(io.Writer) error, error) {
	out := map[string]func(io.Writer) error{}
	for _, e := range entries {
		name := e.Name()
		kind := filepath.Ext(name)
		licence := strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "NOTICE")
		if strings.HasPrefix(name, ".") || name == model.ConfigName || strings.HasSuffix(name, ".index.json") ||
			!licence && !slices.Contains([]string{".json", ".jinja", ".txt", ".model", ".tiktoken"}, kind) {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		_ = f.Close() // only looked at
		out[name] = func(w io.Writer) error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			_, err = io.Copy(w, f)
			return errors.Join(err, f.Close())
		}
	}
	return out, nil
}

// take lists the tensors as the model is read by others too: experts that lie
// one by one are joined, what is computed or not loaded is left out.
func (s *source) take(weights *safetensors.Checkpoint, config *model.Config) error {
	var tied bool
	if value, ok := s.config["tie_word_embeddings"]; ok {
		if err := json.Unmarshal(value, &tied); err != nil {
			return fmt.Errorf("tie_word_embeddings: %w", err)
		}
	}
	banks := map[string]*bank{}
	for _, name := range weights.Names() {
		if strings.HasSuffix(name, "rotary_emb.inv_freq") || tied && name == "lm_head.weight" || config.Dropped(name) != "" {
			continue
		}
		stored, file, _ := weights.Tensor(name)
		if _, ok := names[stored.DType]; !ok {
			return fmt.Errorf("the tensor %s is %s; F32, F16 and BF16 can be imported", name, stored.DType)
		}
		if len(stored.Shape) > 2 && !strings.HasSuffix(name, ".weight") {
			return fmt.Errorf("the tensor %s%v holds several matrices in an order that is not known", name, stored.Shape)
		}
		t := fromFile(stored, file)
		joined, number, ok := expert(name)
		if !ok {
			s.tensors = append(s.tensors, t)
			continue
		}
		if banks[joined] == nil {
			banks[joined] = &bank{}
			s.tensors = append(s.tensors, tensor{name: joined})
		}
		banks[joined].add(number, t)
	}
	for i, t := range s.tensors {
		if b := banks[t.name]; b != nil {
			joined, err := b.join(t.name)
			if err != nil {
				return err
			}
			s.tensors[i] = joined
		}
	}
	return nil
}

func fromFile(stored safetensors.Tensor, file *safetensors.File) tensor {
	t := tensor{name: stored.Name, shape: stored.Shape, dtype: stored.DType}
	data, width := file.Data(stored), stored.DType.Bits()/8
	t.read = func(row int64, into []float32) error {
		bytes := make([]byte, int64(len(into))*width)
		if _, err := data.ReadAt(bytes, row*t.columns()*width); err != nil {
			return fmt.Errorf("reading the tensor %s of %s: %w", t.name, file.Path, err)
		}
		decode(into, bytes, stored.DType)
		return nil
	}
	return t
}

// expert tells whether a tensor is one of many experts', and the name of the
// tensor that holds them all.
func expert(name string) (joined string, number int, ok bool) {
	before, rest, found := strings.Cut(name, ".mlp.experts.")
	digits, part, more := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	if !found || !more || err != nil {
		return "", 0, false
	}
	return before + ".mlp.switch_mlp." + part, n, true
}

// bank is the same tensor of all experts of a layer.
type bank struct{ of map[int]tensor }

func (b *bank) add(number int, t tensor) {
	if b.of == nil {
		b.of = map[int]tensor{}
	}
	b.of[number] = t
}

// join makes them one, with the experts as its outermost dimension.
func (b *bank) join(name string) (tensor, error) {
	first := b.of[0]
	for i := range len(b.of) {
		t, ok := b.of[i]
		if !ok {
			return first, fmt.Errorf("of the experts' tensors for %s number %d is missing", name, i)
		}
		if !slices.Equal(t.shape, first.shape) || t.dtype != first.dtype {
			return first, fmt.Errorf("the tensor %s is %s%v, that of the first expert %s%v", t.name, t.dtype, t.shape, first.dtype, first.shape)
		}
	}
	joined := tensor{name: name, shape: append([]int64{int64(len(b.of))}, first.shape...), dtype: first.dtype}
	rows := first.size() / first.columns()
	joined.read = func(row int64, into []float32) error {
		for len(into) > 0 {
			n := min(int64(len(into)), (rows-row%rows)*first.columns())
			if err := b.of[int(row/rows)].read(row%rows, into[:n]); err != nil {
				return err
			}
			row, into = row+n/first.columns(), into[n:]
		}
		return nil
	}
	return joined, nil
}
