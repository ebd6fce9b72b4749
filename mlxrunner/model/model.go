// Package model loads language models in the Hugging Face layout: config.json
// and safetensors.
//
// It owns the interface that an architecture fills, the registry of
// architectures, and the taking of weights by name. An architecture is a
// package below this one that calls Register; mlxrunner/model/architectures
// imports them all. What is in a checkpoint and not understood (a key that may
// change the result, a tensor nobody asks for, a wrong shape) is an error
// that names it, never left out.
package model

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"payload/mlx"
	"payload/mlxrunner/cache"
)

// A Model computes logits. It is used on the thread that it was loaded on.
type Model interface {
	// Forward gives logits [batch, length, vocabulary] for tokens [batch,
	// length], which follow what c has seen, and adds them to c. It builds a
	// graph; errors stay in s.
	Forward(s *mlx.Scope, tokens *mlx.Array, c *cache.Cache) *mlx.Array
	// NewCache makes an empty memory.
	NewCache() *cache.Cache
}

// A Build makes a model of a checkpoint: it decodes the config and takes the
// weights.
type Build func(c *Config, w *Weights) (Model, error)

var registry = struct {
	sync.Mutex
	build map[string]Build
	parts map[string]*Part
}{build: map[string]Build{}, parts: map[string]*Part{}}

// Register makes an architecture known by its model_type of config.json. It is
// called from init of the architecture's package; a name taken twice panics.
func Register(modelType string, build Build) {
	registry.Lock()
	defer registry.Unlock()
	if registry.build[modelType] != nil {
		panic("model: " + modelType + " is registered twice")
	}
	registry.build[modelType] = build
}

// Architectures lists the registered names, sorted.
func Architectures() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.build))
}

// An UnknownArchitectureError says that nobody registered a model_type.
type UnknownArchitectureError struct {
	Type  string
	Known []string
}

func (e *UnknownArchitectureError) Error() string {
	return fmt.Sprintf("the architecture %q is not known; known are %s", e.Type, strings.Join(e.Known, ", "))
}

func lookup(modelType string) (Build, error) {
	known := Architectures()
	registry.Lock()
	defer registry.Unlock()
	if build := registry.build[modelType]; build != nil {
		return build, nil
	}
	return nil, &UnknownArchitectureError{modelType, known}
}

// A Loaded is a model with its weights in memory. Close it.
type Loaded struct {
	Model
	Config  *Config
	Bytes   int64 // of the weights
	weights *Weights
}

// Close frees the weights.
func (l *Loaded) Close() { l.weights.free() }

// Options are choices of loading.
type Options struct {
	// Float is what floats are converted to. nil is float32 on the processor,
	// which computes half floats several times slower, and else leaves them as
	// they are stored.
	Float *mlx.Dtype
	// Progress is told the bytes read and to be read; it may be nil.
	Progress func(done, total int64)
}

// Load reads the checkpoint of a folder, on the thread of s. The files are read
// tensor by tensor, straight to their places; ctx stops between tensors.
func Load(ctx context.Context, s *mlx.Scope, dir string, o Options) (*Loaded, error) {
	config, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	build, err := lookup(config.ModelType)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", dir, err)
	}
	w, err := openWeights(s, dir, config.Quant, o)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", dir, err)
	}
	defer w.close()
	config.narrow(w.all)
	loaded, err := finish(ctx, config, build, w, o)
	if err != nil {
		w.free()
		return nil, fmt.Errorf("loading %s: %w", dir, err)
	}
	return loaded, nil
}

// processed is a model that prepares itself for the processor: it gives the
// arrays that it made.
type processed interface {
	ForProcessor(s *mlx.Scope) []*mlx.Array
}

func finish(ctx context.Context, config *Config, build Build, w *Weights, o Options) (*Loaded, error) {
	m, err := build(config, w)
	if err != nil {
		return nil, err
	}
	if err := w.done(); err != nil {
		return nil, err
	}
	if p, ok := m.(processed); ok && w.onProcessor() {
		w.order = append(w.order, p.ForProcessor(w.Scope)...)
	}
	w.letGo()
	bytes, err := w.read(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	return &Loaded{Model: m, Config: config, Bytes: bytes, weights: w}, nil
}
