package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"payload/create"
	"payload/fs/gguf"
)

// ggufReport is mlxrunner.show-gguf/v1.
type ggufReport struct {
	Schema       string           `json:"schema"`
	Architecture string           `json:"architecture"`
	Known        bool             `json:"known"` // mlxrunner create imports it
	Name         string           `json:"name"`
	Parameters   int64            `json:"parameters"`
	Bytes        int64            `json:"bytes"`
	Context      uint64           `json:"context"`
	Vocabulary   int              `json:"vocabulary"`
	Tokenizer    string           `json:"tokenizer"`
	Types        map[string]int64 `json:"types"` // bytes by type
	Tensors      []ggufTensor     `json:"tensors"`
}

type ggufTensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
}

// isFile tells a GGUF file from a checkpoint's folder.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func showGGUF(a *app, o showOptions) error {
	f, err := gguf.Open(o.dir)
	if err != nil {
		return err
	}
	r := reportGGUF(f)
	if err := f.Close(); err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, r)
	}
	known := ""
	if !r.Known {
		known = " (not one that mlxrunner create imports: " + strings.Join(create.GGUFArchitectures(), ", ") + ")"
	}
	var types []string
	for name, bytes := range r.Types {
		types = append(types, fmt.Sprintf("%s %d", name, bytes))
	}
	slices.Sort(types)
	fmt.Fprintf(a.stdout, "architecture  %s%s\nname          %s\nparameters    %d\nbytes         %d in %d tensors: %s\n", r.Architecture, known, r.Name, r.Parameters, r.Bytes, len(r.Tensors), strings.Join(types, ", "))
	fmt.Fprintf(a.stdout, "context       %d\nvocabulary    %d, %s\n", r.Context, r.Vocabulary, r.Tokenizer)
	return nil
}

// reportGGUF tells what a file says of itself; a key that is missing is empty.
func reportGGUF(f *gguf.File) ggufReport {
	r := ggufReport{Schema: "mlxrunner.show-gguf/v1", Types: map[string]int64{}}
	text := func(key string) string {
		value, _ := f.Meta[key].(string)
		return value
	}
	r.Architecture, r.Name = text("general.architecture"), text("general.name")
	r.Known = slices.Contains(create.GGUFArchitectures(), r.Architecture)
	r.Tokenizer = strings.TrimSuffix(text("tokenizer.ggml.model")+" "+text("tokenizer.ggml.pre"), " ")
	r.Context, _ = f.Meta[r.Architecture+".context_length"].(uint64)
	tokens, _ := f.Meta["tokenizer.ggml.tokens"].([]string)
	r.Vocabulary = len(tokens)
	for _, t := range f.Tensors {
		r.Tensors = append(r.Tensors, ggufTensor{t.Name, t.Type.String(), t.Shape, t.Size})
		r.Types[t.Type.String()] += t.Size
		r.Bytes += t.Size
		n := int64(1)
		for _, d := range t.Shape {
			n *= d
		}
		r.Parameters += n
	}
	return r
}
