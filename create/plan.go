package create

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"payload/fs/safetensors"
	"payload/mlx/quant"
)

// A plan is what is to be written, known before a tensor is read.
type plan struct {
	dtype  safetensors.DType
	quant  quant.Config
	items  []item
	shards []shard
	total  int64
}

// item is a tensor of the source and what becomes of it: itself, or a packed
// matrix with its scales and biases.
type item struct {
	tensor
	plain safetensors.DType // of its floats
	how   quant.Params      // the zero value is not quantised
	parts []safetensors.Tensor
}

type shard struct {
	name    string
	items   []item
	tensors []safetensors.Tensor
}

func newPlan(s *source, o Options) (*plan, error) {
	p := &plan{dtype: cmp.Or(o.DType, s.dtype)}
	if o.Quantize != nil {
		p.quant.Default = *o.Quantize
	}
	limit := cmp.Or(o.ShardSize, shardSize)
	held := int64(0)
	for _, t := range s.tensors {
		it, err := p.item(t)
		if err != nil {
			return nil, err
		}
		size := int64(0)
		for _, part := range it.parts {
			size += part.Size
		}
		if len(p.shards) == 0 || held+size > limit {
			p.shards, held = append(p.shards, shard{}), 0
		}
		last := &p.shards[len(p.shards)-1]
		last.items, last.tensors = append(last.items, it), append(last.tensors, it.parts...)
		p.items, held, p.total = append(p.items, it), held+size, p.total+size
	}
	for i := range p.shards {
		p.shards[i].name = "model.safetensors"
		if len(p.shards) > 1 {
			p.shards[i].name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(p.shards))
		}
	}
	return p, nil
}

// item decides as the reference converter does: every matrix whose rows are
// whole groups is quantised, embeddings and the output layer too, but what
// chooses experts keeps 8 bits.
func (p *plan) item(t tensor) (item, error) {
	it := item{tensor: t, plain: cmp.Or(p.dtype, t.dtype)}
	path := t.module()
	if p.quant.None() || path == "" || !p.quant.Default.Fits(int(t.columns())) {
		it.parts = []safetensors.Tensor{part(t.name, it.plain, t.shape...)}
		return it, nil
	}
	it.how = p.quant.Default
	if strings.HasSuffix(path, "mlp.gate") || strings.HasSuffix(path, "mlp.router") {
		it.how = quant.Params{Mode: quant.Affine, Bits: 8, Group: 64}
		if !it.how.Fits(int(t.columns())) {
			return it, fmt.Errorf("the tensor %s has rows of %d weights, which %v does not divide; without --quantize it can be created", t.name, t.columns(), it.how)
		}
		if p.quant.Layers == nil {
			p.quant.Layers = map[string]*quant.Params{}
		}
		p.quant.Layers[path] = &it.how
	}
	rows := t.shape[:len(t.shape)-1]
	words := part(path+".weight", safetensors.U32, append(rows[:len(rows):len(rows)], int64(it.how.Words(int(t.columns()))))...)
	groups := append(rows[:len(rows):len(rows)], int64(it.how.Groups(int(t.columns()))))
	if it.how.HasBiases() {
		it.parts = []safetensors.Tensor{words, part(path+".scales", it.plain, groups...), part(path+".biases", it.plain, groups...)}
	} else {
		it.parts = []safetensors.Tensor{words, part(path+".scales", safetensors.U8, groups...)}
	}
	return it, nil
}

func part(name string, d safetensors.DType, shape ...int64) safetensors.Tensor {
	size := d.Bits() / 8
	for _, n := range shape {
		size *= n
	}
	return safetensors.Tensor{Name: name, DType: d, Shape: shape, Size: size}
}

func (p *plan) result(s *source) Result {
	r := Result{Architecture: s.kind, DType: names[p.dtype], Bytes: p.total}
	if !p.quant.None() {
		r.Quantisation = p.quant.Default.String()
	}
	for _, it := range p.items {
		r.Tensors += len(it.parts)
		r.Parameters += it.size()
		if it.how != (quant.Params{}) {
			r.Quantised++
		}
	}
	for _, sh := range p.shards {
		r.Files = append(r.Files, sh.name)
	}
	return r
}

func (p *plan) write(ctx context.Context, dir string, o Options) error {
	done := int64(0)
	for _, sh := range p.shards {
		w, err := safetensors.Create(filepath.Join(dir, sh.name), sh.tensors, map[string]string{"format": "mlx"})
		if err != nil {
			return err
		}
		for _, it := range sh.items {
			err = it.write(ctx, w, o.Scope, func(n int64) {
				done += n
				if o.Progress != nil {
					o.Progress(done, p.total)
				}
			})
			if err != nil {
				break
			}
		}
		if err = errors.Join(err, closeUnless(err, w)); err != nil {
			return err
		}
	}
	if len(p.shards) > 1 {
		return p.writeIndex(dir)
	}
	return nil
}

// closeUnless closes w; after an error, that tensors lack bytes says nothing new.
func closeUnless(err error, w *safetensors.Writer) error {
	closed := w.Close()
	if err != nil {
		return nil
	}
	return closed
}

func (p *plan) writeIndex(dir string) error {
	where := map[string]string{}
	for _, sh := range p.shards {
		for _, t := range sh.tensors {
			where[t.Name] = sh.name
		}
	}
	text, err := json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": p.total}, "weight_map": where}, "", "    ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, safetensors.IndexName), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", safetensors.IndexName, err)
	}
	return nil
}
