package server

import (
	"slices"
	"strings"

	"payload/fs/safetensors"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/model"
	"payload/mlxrunner/tokenizer"
)

// A Checkpoint is what is in one: mlxrunner.show/v1.
type Checkpoint struct {
	Schema       string           `json:"schema"`
	Architecture string           `json:"architecture"`
	Known        bool             `json:"known"` // mlxrunner can run it
	Parameters   int64            `json:"parameters"`
	Bytes        int64            `json:"bytes"`
	Context      int              `json:"context"`
	Vocabulary   int              `json:"vocabulary"`
	EndIDs       []int            `json:"end_ids"`
	Quantisation string           `json:"quantisation"` // "" for none
	Types        map[string]int64 `json:"types"`        // bytes by type
	Files        []string         `json:"files"`
	Tensors      []Tensor         `json:"tensors"`
	Dropped      []Dropped        `json:"dropped,omitempty"` // of the tensors, those that are not loaded
}

// A Dropped is what mlxrunner passes over: parts for other things than text.
type Dropped struct {
	Prefix  string `json:"prefix"` // of the tensors' names
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// A Tensor is one of a checkpoint.
type Tensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
}

// Show reads headers and settings of a checkpoint, and no tensor.
func Show(dir string) (Checkpoint, error) {
	r := Checkpoint{Schema: "mlxrunner.show/v1", Types: map[string]int64{}}
	config, err := model.ReadConfig(dir)
	if err != nil {
		return r, err
	}
	r.Architecture, r.Context, r.Vocabulary = config.ModelType, config.Positions, config.Vocab
	r.Known = slices.Contains(model.Architectures(), config.ModelType)
	if !config.Quant.None() {
		r.Quantisation = config.Quant.Default.String()
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return r, err
	}
	if r.EndIDs, err = generate.EndIDs(dir, config, tok); err != nil {
		return r, err
	}
	files, err := safetensors.OpenDir(dir)
	if err != nil {
		return r, err
	}
	for _, f := range files.Files {
		r.Files = append(r.Files, f.Path)
	}
	for _, name := range files.Names() {
		t, _, _ := files.Tensor(name)
		r.Tensors = append(r.Tensors, Tensor{name, string(t.DType), t.Shape, t.Size})
		r.Types[string(t.DType)] += t.Size
		r.Bytes += t.Size
		r.Parameters += weights(files, config, t)
		if prefix := config.Dropped(name); prefix != "" {
			r.drop(prefix, t.Size)
		}
	}
	return r, files.Close()
}

func (r *Checkpoint) drop(prefix string, bytes int64) {
	at := slices.IndexFunc(r.Dropped, func(d Dropped) bool { return d.Prefix == prefix })
	if at < 0 {
		at, r.Dropped = len(r.Dropped), append(r.Dropped, Dropped{Prefix: prefix})
	}
	r.Dropped[at].Tensors++
	r.Dropped[at].Bytes += bytes
}

// weights is how many weights of the model a tensor stands for: those that are
// packed into its words, none for the scales beside them.
func weights(files *safetensors.Checkpoint, config *model.Config, t safetensors.Tensor) int64 {
	path, part := t.Name, ""
	if at := strings.LastIndex(t.Name, "."); at >= 0 {
		path, part = t.Name[:at], t.Name[at+1:]
	}
	_, _, packed := files.Tensor(path + ".scales")
	if how, ok := config.Quant.For(config.Bare(path)); packed && ok {
		if part == "weight" {
			return t.Size * 8 / int64(how.Bits)
		}
		if part == "scales" || part == "biases" {
			return 0
		}
	}
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}
