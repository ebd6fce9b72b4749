package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlx/quant"
	"payload/mlxrunner/nn"
)

// A TensorError says which tensor of a checkpoint is wrong.
type TensorError struct{ Name, Why string }

func (e *TensorError) Error() string { return "the tensor " + e.Name + " " + e.Why }

// Weights are a checkpoint's tensors while a model is built of them. The
// first fault stays, so that a builder need not look after each; arrays are
// nil then.
type Weights struct {
	Scope *mlx.Scope // for what a builder computes of weights

	quant  quant.Config
	float  *mlx.Dtype
	files  *safetensors.Checkpoint
	lies   map[*mlx.Array]piece // what is mapped
	all    map[string]*mlx.Array
	stored map[*mlx.Array]safetensors.Tensor // what is read
	taken  map[string]bool
	order  []*mlx.Array // to be read, as the model asked for them
	views  []*mlx.Array // of the same memory
	err    error
}

// openWeights opens a folder's files. Their headers are held against each
// other and the index; no tensor is read.
func openWeights(s *mlx.Scope, dir string, q quant.Config, o Options) (*Weights, error) {
	files, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	w := &Weights{Scope: s, quant: q, float: o.Float, files: files, taken: map[string]bool{}}
	if w.float == nil && w.onProcessor() {
		w.float = new(mlx.Dtype)
		*w.float = mlx.Float32
	}
	w.open()
	if err := s.Err(); err != nil {
		w.close()
		return nil, err
	}
	// Positions are computed; some converters left the buffer in.
	for name := range w.all {
		if strings.HasSuffix(name, "rotary_emb.inv_freq") {
			w.taken[name] = true
		}
	}
	return w, nil
}

// open makes an array of each tensor. What is computed with as it is stored is
// mapped, where MLX can use it in place; the rest is read when it is wanted.
func (w *Weights) open() {
	w.lies, w.stored = map[*mlx.Array]piece{}, map[*mlx.Array]safetensors.Tensor{}
	w.all = map[string]*mlx.Array{}
	inPlace := w.onProcessor() && w.Scope.Maps()
	var read []safetensors.Tensor
	for _, file := range w.files.Files {
		var m *mapping
		if inPlace {
			m = mapFile(file)
		}
		for _, t := range file.Tensors {
			if !w.mapped(m, t) {
				read = append(read, t)
			}
		}
		m.release()
	}
	maps.Copy(w.all, w.Scope.Fill(read, reading{w.files}.plain, nil))
	for _, t := range read {
		w.stored[w.all[t.Name]] = t
	}
}

// types are the types of tensors that are computed with as they are stored.
var types = map[safetensors.DType]mlx.Dtype{
	safetensors.F32: mlx.Float32, safetensors.F16: mlx.Float16, safetensors.BF16: mlx.BFloat16,
	safetensors.U32: mlx.Uint32, safetensors.U8: mlx.Uint8, safetensors.F8E4M3: mlx.Uint8, safetensors.F8E8M0: mlx.Uint8,
}

// mapped makes an array of a tensor where it lies in m, if that can be.
func (w *Weights) mapped(m *mapping, t safetensors.Tensor) bool {
	dtype, known := types[t.DType]
	if m == nil || !known || w.converts(dtype) || t.Size == 0 || t.Offset%int64(dtype.Size()) != 0 || t.Offset%4096 < 8 { // a word before it is needed
		return false
	}
	shape := make([]int, len(t.Shape))
	for i, n := range t.Shape {
		shape[i] = int(n)
	}
	bytes := m.take(t.Offset, t.Size)
	a := w.Scope.Mapped(bytes, dtype, shape, m.release)
	w.all[t.Name], w.lies[a] = a, piece{t.Name, bytes}
	return true
}

func (w *Weights) onProcessor() bool { return w.Scope.Stream().Device().Kind == mlx.KindCPU }

// Err gives the first fault.
func (w *Weights) Err() error { return errors.Join(w.err, w.Scope.Err()) }

func (w *Weights) fail(name, format string, args ...any) *mlx.Array {
	if w.err == nil {
		w.err = &TensorError{name, fmt.Sprintf(format, args...)}
	}
	return nil
}

// Has tells whether the checkpoint holds a tensor.
func (w *Weights) Has(name string) bool { return w.all[name] != nil }

// Drop passes a tensor over that the reference implementation does not read
// either.
func (w *Weights) Drop(name string) { w.taken[name] = true }

// Keep makes the model the owner of a, which was made of weights.
func (w *Weights) Keep(a *mlx.Array) *mlx.Array {
	if a != nil {
		w.order = append(w.order, w.Scope.Keep(a))
	}
	return a
}

// Float takes a tensor of floats and of shape.
func (w *Weights) Float(name string, shape ...int) *mlx.Array {
	return w.floats(name, w.raw(name), shape...)
}

// floats holds a tensor against its shape, converts it and keeps it.
func (w *Weights) floats(name string, a *mlx.Array, shape ...int) *mlx.Array {
	if !w.isFloat(name, a, shape...) {
		return nil
	}
	return w.Keep(w.converted(a))
}

// isFloat tells whether a is of floats and of shape; else there is a fault.
func (w *Weights) isFloat(name string, a *mlx.Array, shape ...int) bool {
	switch {
	case a == nil:
	case !a.Dtype().Float():
		w.fail(name, "is %s, not of floats", a.Dtype())
	case !slices.Equal(a.Shape(), shape):
		w.fail(name, "has the shape %v, want %v", a.Shape(), shape)
	default:
		return true
	}
	return false
}

// converted gives floats as they are wanted, and what holds none as it is.
func (w *Weights) converted(a *mlx.Array) *mlx.Array {
	if a == nil || !w.converts(a.Dtype()) {
		return a
	}
	return w.Scope.AsType(a, *w.float)
}

// converts tells whether what is stored as of is wanted as another type.
func (w *Weights) converts(of mlx.Dtype) bool {
	return w.float != nil && of.Float() && of != *w.float
}

// raw takes a tensor as it stands.
func (w *Weights) raw(name string) *mlx.Array {
	if w.Err() != nil {
		return nil
	}
	a := w.all[name]
	if a == nil {
		return w.fail(name, "is missing")
	}
	w.taken[name] = true
	return a
}

// Matrix takes path.weight of rows and columns, packed where path.scales is
// there.
func (w *Weights) Matrix(path string, rows, columns int) nn.Matrix {
	how, packed := w.quant.For(path)
	if !w.Has(path + ".scales") {
		if a := w.all[path+".weight"]; packed && a != nil && a.Dtype() == mlx.Uint32 {
			w.fail(path+".scales", "is missing: config.json has %s for it", how)
		}
		a := w.Float(path+".weight", rows, columns)
		if a == nil {
			return nn.Matrix{}
		}
		return w.divided(nn.Plain(a, w.view(w.Scope.Transpose(a))), rows, columns)
	}
	if !packed {
		w.fail(path+".scales", "is there, but config.json says nothing of how the layer is quantised")
	}
	p := mlx.Quantized{Weights: w.Keep(w.raw(path + ".weight")), Scales: w.Keep(w.converted(w.raw(path + ".scales")))}
	if how.HasBiases() {
		p.Biases = w.Keep(w.converted(w.raw(path + ".biases")))
	}
	if w.Err() != nil {
		return nn.Matrix{}
	}
	w.checkPacked(path, p, how, rows, columns)
	return w.divided(nn.Packed(p, how), rows, columns)
}

// divided gives a matrix in parts, where the processor is quicker with those.
func (w *Weights) divided(m nn.Matrix, rows, columns int) nn.Matrix {
	if !w.onProcessor() || w.Err() != nil {
		return m
	}
	return m.Divided(w.Scope, rows, columns, w.view)
}

// checkPacked holds packed tensors against the shape [..., rows, columns] of
// what they stand for.
func (w *Weights) checkPacked(path string, p mlx.Quantized, how quant.Params, shape ...int) {
	n, err := how.CheckShapes(wide(p.Weights.Shape()), wide(p.Scales.Shape()))
	rows := p.Weights.Shape()
	switch {
	case err != nil:
		w.fail(path+".weight", "does not fit %s: %v", how, err)
	case p.Weights.Dtype() != mlx.Uint32:
		w.fail(path+".weight", "is %s, want uint32 for %s", p.Weights.Dtype(), how)
	case !slices.Equal(append(rows[:len(rows)-1:len(rows)-1], n), shape):
		w.fail(path+".weight", "has the shape %v, which as %s stands for rows of %d weights; want %v", rows, how, n, shape)
	case p.Biases != nil && !slices.Equal(p.Biases.Shape(), p.Scales.Shape()):
		w.fail(path+".biases", "has the shape %v, its scales %v", p.Biases.Shape(), p.Scales.Shape())
	}
}

func wide(shape []int) []int64 {
	out := make([]int64, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}

// Bank takes the matrices of all experts of a layer, of in to out features:
// stacked under a prefix, as converters to MLX write them, or one by one under
// apart, a prefix and a number ("" where nobody writes them so).
func (w *Weights) Bank(stacked, apart, name string, experts, in, out int) nn.Bank {
	path := stacked + name
	one := func(part string) *mlx.Array { return w.raw(path + "." + part) }
	if !w.Has(path+".weight") && apart != "" {
		path = apart + "0." + name
		one = func(part string) *mlx.Array { return w.stack(apart, name+"."+part, experts) }
	}
	how, packed := w.quant.For(path)
	if !w.Has(path + ".scales") {
		a := w.floats(path+".weight", one("weight"), experts, out, in)
		if a == nil {
			return nn.Bank{}
		}
		return nn.PlainBank(w.view(w.Scope.SwapAxes(a, 1, 2)))
	}
	if !packed {
		w.fail(path+".scales", "is there, but config.json says nothing of how the layer is quantised")
	}
	p := mlx.Quantized{Weights: w.Keep(one("weight")), Scales: w.Keep(w.converted(one("scales")))}
	if how.HasBiases() {
		p.Biases = w.Keep(w.converted(one("biases")))
	}
	if w.Err() != nil {
		return nn.Bank{}
	}
	w.checkPacked(path, p, how, experts, out, in)
	return nn.PackedBank(p, how)
}

// Blocks takes the mxfp4 matrices of all experts as gpt-oss is published: bytes
// [experts, out, in/32, 16] of path_blocks and [experts, out, in/32] of
// path_scales. The rows from first on, every stride'th, are those of the bank.
func (w *Weights) Blocks(path string, experts, in, out, first, stride int) nn.Bank {
	how := quant.Params{Mode: quant.MXFP4, Bits: 4, Group: 32}
	blocks, scales := w.raw(path+"_blocks"), w.raw(path+"_scales")
	if blocks == nil || scales == nil {
		return nn.Bank{}
	}
	groups := how.Groups(in)
	if want := []int{experts, out * stride, groups, 16}; !slices.Equal(blocks.Shape(), want) || blocks.Dtype() != mlx.Uint8 {
		w.fail(path+"_blocks", "is %s%v, want uint8%v", blocks.Dtype(), blocks.Shape(), want)
		return nn.Bank{}
	}
	s := w.Scope
	rows := func(a *mlx.Array) *mlx.Array {
		start, stop := []int{0, first, 0}, []int{experts, out * stride, a.Dim(2)}
		return w.Keep(s.Contiguous(s.Slice(a, start, stop, []int{1, stride, 1})))
	}
	words := s.Flatten(s.View(blocks, mlx.Uint32), 2, 3)
	p := mlx.Quantized{Weights: rows(words), Scales: rows(scales)}
	if w.Err() != nil {
		return nn.Bank{}
	}
	w.checkPacked(path, p, how, experts, out, in)
	return nn.PackedBank(p, how)
}

// Interleaved takes every stride'th column from first on of floats [rows,
// columns*stride].
func (w *Weights) Interleaved(name string, rows, columns, first, stride int) *mlx.Array {
	a := w.raw(name)
	if a == nil {
		return nil
	}
	if want := []int{rows, columns * stride}; !slices.Equal(a.Shape(), want) {
		return w.fail(name, "has the shape %v, want %v", a.Shape(), want)
	}
	part := w.Scope.Slice(a, []int{0, first}, []int{rows, columns * stride}, []int{1, stride})
	return w.floats(name, w.Scope.Contiguous(part), rows, columns)
}

// stack joins a tensor of each expert along a new axis.
func (w *Weights) stack(apart, name string, experts int) *mlx.Array {
	parts := make([]*mlx.Array, experts)
	for i := range parts {
		if parts[i] = w.raw(fmt.Sprintf("%s%d.%s", apart, i, name)); parts[i] == nil {
			return nil
		}
	}
	return w.Scope.Stack(0, parts...)
}

// Linear takes a layer of in to out features, with path.bias if bias.
func (w *Weights) Linear(path string, in, out int, bias bool) *nn.Linear {
	l := &nn.Linear{}
	if w.turns(path) {
		l.Weight = w.byColumns(path+".weight", out, in)
	} else {
		l.Weight = w.Matrix(path, out, in)
	}
	if bias {
		l.Bias = w.Float(path+".bias", out)
	}
	return l
}

// turns tells whether a layer's weights are to be laid down by columns: the
// processor multiplies a row by those about 1.4 times as fast. What is computed
// with where it lies in its file is not.
func (w *Weights) turns(path string) bool {
	t, read := w.stored[w.all[path+".weight"]]
	return read && w.onProcessor() && types[t.DType].Float() && len(t.Shape) == 2 && !w.Has(path+".scales")
}

// byColumns reads a matrix as one that is laid down by columns.
func (w *Weights) byColumns(name string, rows, columns int) nn.Matrix {
	a := w.raw(name)
	if !w.isFloat(name, a, rows, columns) {
		return nn.Matrix{}
	}
	t, n := w.stored[a], nn.Parts(rows, columns, false)
	each := (rows + n - 1) / n
	var parts []*mlx.Array
	for from := 0; from < rows; from += each {
		part := t
		part.Shape = []int64{int64(columns), int64(min(each, rows-from))}
		read := w.Scope.Fill([]safetensors.Tensor{part}, func(t safetensors.Tensor, to []byte) error {
			return reading{w.files}.turned(t, from, to)
		}, nil)[t.Name]
		whole := w.converted(read)
		if whole != read {
			read.Free() // or it would lie in memory beside what was made of it
		}
		parts = append(parts, w.Keep(whole))
	}
	return nn.Turned(parts...)
}

// Fused takes a layer that holds several, one after the other, without biases.
func (w *Weights) Fused(path string, in int, outs ...int) []*nn.Linear {
	total := 0
	for _, out := range outs {
		total += out
	}
	whole := w.Matrix(path, total, in)
	parts := make([]*nn.Linear, len(outs))
	from := 0
	for i, out := range outs {
		parts[i] = &nn.Linear{}
		if w.Err() == nil {
			parts[i].Weight = whole.Rows(w.Scope, from, from+out, w.view)
		}
		from += out
	}
	return parts
}

// view makes the model the owner of an array that shares another's memory.
func (w *Weights) view(a *mlx.Array) *mlx.Array {
	if a != nil {
		w.views = append(w.views, w.Scope.Keep(a))
	}
	return a
}

// Embedding takes a table of tokens' features.
func (w *Weights) Embedding(path string, tokens, features int) *nn.Embedding {
	return &nn.Embedding{Weight: w.Matrix(path, tokens, features)}
}

// RMSNorm takes the weight of a norm.
func (w *Weights) RMSNorm(path string, features int, eps float64) *nn.RMSNorm {
	return &nn.RMSNorm{Weight: w.Float(path+".weight", features), Eps: float32(eps)}
}

// RMSNormPlusOne takes the weight of a norm that multiplies by 1+w.
func (w *Weights) RMSNormPlusOne(path string, features int, eps float64) *nn.RMSNorm {
	n := w.RMSNorm(path, features, eps)
	if n.Weight != nil {
		n.Weight = w.Keep(w.Scope.Add(n.Weight, w.Scope.Like(n.Weight, 1)))
	}
	return n
}

// Head takes the output layer: lm_head, or the table of embeddings where tied.
// A config that does not say is tied when there is no lm_head.
func (w *Weights) Head(tied *bool, table *nn.Embedding, features, tokens int) *nn.Linear {
	share := !w.Has("lm_head.weight")
	if tied != nil {
		share = *tied
	}
	if !share {
		return w.Linear("lm_head", features, tokens, false)
	}
	for _, part := range []string{"weight", "scales", "biases"} {
		w.Drop("lm_head." + part)
	}
	return &nn.Linear{Weight: table.Weight}
}

// done says what was wrong, or which tensor nobody took.
func (w *Weights) done() error {
	if err := w.Err(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.all)) {
		if !w.taken[name] {
			return &TensorError{name, "is not one of this architecture's"}
		}
	}
	return nil
}

// letGo frees what the model does not hold itself, such as a tensor that was
// converted: once read, it would lie in memory beside what was made of it.
func (w *Weights) letGo() {
	held := map[*mlx.Array]bool{}
	for _, a := range w.order {
		held[a] = true
	}
	for _, a := range w.all {
		if !held[a] {
			a.Free()
		}
	}
	w.all, w.stored = nil, nil
}

// close closes the files, when no array is to be read any more.
func (w *Weights) close() { _ = w.files.Close() } // only read

// batch is how many bytes are read at once, while those before are waited for:
// enough to keep a disk busy, little enough that what is converted on the way
// takes no memory to speak of.
const batch = 8 << 20

// read brings the weights in and gives their size. When it returns nothing of
// them is being read, whatever happened.
func (w *Weights) read(ctx context.Context, progress func(done, total int64)) (total int64, err error) {
	var done int64
	for _, a := range w.order {
		total += int64(a.Bytes())
	}
	tell := func(more int64) error {
		done += more
		if progress != nil {
			progress(done, total)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading weights, %d of %d bytes done: %w", done, total, err)
		}
		return nil
	}
	var read []*mlx.Array
	for _, a := range w.order {
		p, lies := w.lies[a]
		if !lies {
			read = append(read, a)
			continue
		}
		if err := p.touch(); err != nil {
			return 0, err
		}
		if err := tell(int64(len(p.bytes))); err != nil {
			return 0, err
		}
	}
	var before, now []*mlx.Array // under way
	defer func() {
		if err != nil { // w's scope may have it, and do nothing more
			_ = mlx.NewScope(w.Scope.Stream()).Eval(slices.Concat(before, now)...)
		}
	}()
	wait := func() error {
		if err := w.Scope.Eval(before...); err != nil {
			return err
		}
		var bytes int64
		for _, a := range before {
			bytes += int64(a.Bytes())
		}
		if err := mlx.ClearCache(); err != nil { // what was converted
			return err
		}
		return tell(bytes)
	}
	for from := 0; from < len(read); {
		to, size := from, 0
		for to < len(read) && (to == from || size < batch) {
			size += read[to].Bytes()
			to++
		}
		now = read[from:to]
		if err := w.Scope.AsyncEval(now...); err != nil {
			return 0, err
		}
		if err := wait(); err != nil {
			return 0, err
		}
		before, from = now, to
	}
	if err := wait(); err != nil {
		return 0, err
	}
	if err := w.Scope.Eval(w.views...); err != nil {
		return 0, err
	}
	return total, nil
}

func (w *Weights) free() {
	for _, a := range slices.Concat(w.order, w.views) {
		a.Free()
	}
}
