package create

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/architectures"
	"payload/mlxrunner/tokenizer"
)

const tiny = "../internal/verify/tinymodel"

func run(t *testing.T, src string, o Options) (string, Result) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "made")
	r, err := Run(context.Background(), src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dst), ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left beside it, %v", left, err)
	}
	return dst, r
}

func configOf(t *testing.T, dir string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, model.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// floats reads every tensor of a folder.
func floats(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	files, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	out := map[string][]float32{}
	for _, name := range files.Names() {
		stored, file, _ := files.Tensor(name)
		bytes, err := io.ReadAll(file.Data(stored))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = make([]float32, stored.Size*8/stored.DType.Bits())
		decode(out[name], bytes, stored.DType)
	}
	return out
}

// The tiny model as GGUF is the folder that it was made of, but for eight bits
// a weight.
func TestTinyGGUF(t *testing.T) {
	dir, r := run(t, filepath.Join(tiny, "tiny.gguf"), Options{DType: safetensors.F32})
	if r.Architecture != "llama" || r.Tensors != 30 || r.Parameters != 574336 || r.Bytes != 4*574336 || !slices.Equal(r.Files, []string{"model.safetensors"}) {
		t.Errorf("%+v", r)
	}
	folder := filepath.Join(tiny, "safetensors")
	want := floats(t, folder)
	got := floats(t, dir)
	if len(got) != len(want) {
		t.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for name := range want {
		largest := float32(0)
		for _, v := range want[name] {
			largest = max(largest, v, -v)
		}
		if err := near(got[name], want[name], float64(largest)/200); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	made, before := configOf(t, dir), configOf(t, folder)
	for key, value := range made {
		if other := before[key]; key != "torch_dtype" && !reflect.DeepEqual(value, other) {
			t.Errorf("config.json has %s = %v, want %v", key, value, other)
		}
	}
	sameTokenizer(t, dir, folder)
}

func sameTokenizer(t *testing.T, a, b string) {
	t.Helper()
	got, err := tokenizer.Load(a)
	if err != nil {
		t.Fatal(err)
	}
	want, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "The harbour of Senn", " a  b\n\n", "<|im_start|>user\nHi!<|im_end|>", "naïve 東京 123", "don't"} {
		x, errX := got.Encode(text, true)
		y, errY := want.Encode(text, true)
		if !slices.Equal(x, y) || errX != nil || errY != nil || got.Decode(x, true) != want.Decode(y, true) {
			t.Errorf("%q is %v, want %v, %v %v", text, x, y, errX, errY)
		}
	}
}

// Every architecture's tensors come back as they were before they were
// written as GGUF, and config.json says what it said.
func TestArchitectures(t *testing.T) {
	all := originals(t)
	for arch, name := range map[string]string{
		"llama": "llama", "llama ": "llama tied", "qwen2": "qwen2", "qwen3": "qwen3 tied", "qwen3moe": "qwen3_moe", "gemma2": "gemma2", "gemma3": "gemma3",
		"llama  ": "llama with biases",
	} {
		t.Run(name, func(t *testing.T) {
			o := all[name]
			dir, r := run(t, o.asGGUF(strings.TrimSpace(arch)).save(t), Options{DType: safetensors.F32})
			if r.Architecture != o.Config["model_type"] {
				t.Errorf("it became %s", r.Architecture)
			}
			got := floats(t, dir)
			if want := slices.Sorted(maps.Keys(o.Tensors)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
				t.Errorf("tensors %v, want %v", slices.Sorted(maps.Keys(got)), want)
			}
			off := 0.0
			if strings.HasPrefix(arch, "gemma") {
				off = 1e-7 // 1 was added
			}
			for tensor, shape := range o.Tensors {
				if err := near(got[tensor], values(tensor, shape), off); err != nil {
					t.Errorf("%s: %v", tensor, err)
				}
			}
			made := configOf(t, dir)
			for key, value := range o.Config {
				// What a GGUF file does not hold, or what is not used.
				if slices.Contains([]string{"query_pre_attn_scalar", "use_sliding_window", "max_window_layers", "sliding_window_pattern"}, key) ||
					key == "sliding_window" && !strings.HasPrefix(arch, "gemma") || key == "head_dim" && arch == "qwen2" {
					continue
				}
				if !reflect.DeepEqual(made[key], value) {
					t.Errorf("config.json has %s = %v, want %v", key, made[key], value)
				}
			}
		})
	}
}

// Llama 3.1's settings are found in the factors that its files hold.
func TestBands(t *testing.T) {
	o := originals(t)["llama"]
	o.Config["rope_theta"] = 500000.0
	w := o.asGGUF("llama")
	// conversion/llama.py for a factor of 32 and heads of 16.
	w.add("rope_freqs.weight", []int{8}, []float32{1, 1, 1, 1, 3.2922621029408843, 32, 32, 32})
	dir, _ := run(t, w.save(t), Options{})
	want := map[string]any{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0}
	if got := configOf(t, dir)["rope_scaling"]; !reflect.DeepEqual(got, want) {
		t.Errorf("rope_scaling is %v", got)
	}
	w.tensors[len(w.tensors)-1][2] = 2
	if _, err := Run(context.Background(), w.save(t), filepath.Join(t.TempDir(), "x"), Options{}); err == nil || !strings.Contains(err.Error(), "factors of their own") {
		t.Errorf("%v", err)
	}
}

// Experts that lie one by one are joined; a plain import changes no bit.
func TestFolder(t *testing.T) {
	folder := filepath.Join(tiny, "safetensors")
	dir, r := run(t, folder, Options{})
	if r.DType != "float16" || r.Quantisation != "" {
		t.Errorf("%+v", r)
	}
	want := floats(t, folder)
	for name, got := range floats(t, dir) {
		if err := near(got, want[name], 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, want := configOf(t, dir), configOf(t, folder); !reflect.DeepEqual(got, want) {
		t.Errorf("config.json is %v, want %v", got, want)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		a, errA := os.ReadFile(filepath.Join(dir, name))
		b, errB := os.ReadFile(filepath.Join(folder, name))
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s is not what it was: %v %v", name, errA, errB)
		}
	}
}

func TestExperts(t *testing.T) {
	o := originals(t)["qwen3_moe"]
	src := t.TempDir()
	parts := map[string][]float32{}
	var list []safetensors.Tensor
	for name, shape := range o.Tensors {
		before, part, ok := strings.Cut(name, ".switch_mlp.")
		data := values(name, shape)
		if !ok {
			list, parts[name] = append(list, part32(name, shape)), data
			continue
		}
		for e := range shape[0] {
			one := before + ".experts." + string(rune('0'+e)) + "." + part
			n := len(data) / shape[0]
			list, parts[one] = append(list, part32(one, shape[1:])), data[e*n:(e+1)*n]
		}
	}
	save(t, src, list, parts, o.Config)
	dir, _ := run(t, src, Options{})
	got := floats(t, dir)
	for name, shape := range o.Tensors {
		if err := near(got[name], values(name, shape), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What lies beside a model of text is not carried over; the rest keeps its names.
func TestTextBesideImages(t *testing.T) {
	o := originals(t)["gemma3"]
	src := t.TempDir()
	image := part32("vision_tower.patches.weight", []int{2, 4})
	list, parts := []safetensors.Tensor{image}, map[string][]float32{image.Name: make([]float32, 8)}
	for name, shape := range o.Tensors {
		list, parts["language_model."+name] = append(list, part32("language_model."+name, shape)), values(name, shape)
	}
	save(t, src, list, parts, map[string]any{"model_type": "gemma3", "text_config": o.Config, "vision_config": map[string]any{"hidden_size": 4}, "vocab_size": o.Config["vocab_size"]})
	dir, _ := run(t, src, Options{})
	got := floats(t, dir)
	if len(got) != len(o.Tensors) {
		t.Errorf("%d tensors, want %d", len(got), len(o.Tensors))
	}
	for name, shape := range o.Tensors {
		if err := near(got["language_model."+name], values(name, shape), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func part32(name string, shape []int) safetensors.Tensor {
	wide := make([]int64, len(shape))
	for i, n := range shape {
		wide[i] = int64(n)
	}
	return part(name, safetensors.F32, wide...)
}

// save writes a folder with the tiny model's tokenizer.
func save(t *testing.T, dir string, list []safetensors.Tensor, data map[string][]float32, settings map[string]any) {
	t.Helper()
	w, err := safetensors.Create(filepath.Join(dir, "model.safetensors"), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if _, err := w.To(s.Name).Write(encode(data[s.Name], s.DType)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(settings)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, model.ConfigName), text, 0o644)
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "x"), os.DirFS(filepath.Join(tiny, "safetensors")))
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "x", "tokenizer.json"), filepath.Join(dir, "tokenizer.json"))
	}
	if err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "x"))); err != nil {
		t.Fatal(err)
	}
}

// Above a size there are several files and an index, which is read again.
func TestShards(t *testing.T) {
	whole, _ := run(t, filepath.Join(tiny, "safetensors"), Options{})
	dir, r := run(t, filepath.Join(tiny, "safetensors"), Options{ShardSize: 400_000})
	if len(r.Files) < 3 || r.Files[0] != "model-00001-of-0000"+string(rune('0'+len(r.Files)))+".safetensors" {
		t.Errorf("files %v", r.Files)
	}
	want := floats(t, whole)
	got := floats(t, dir)
	for name := range want {
		if err := near(got[name], want[name], 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var index struct {
		Metadata struct {
			Total int64 `json:"total_size"`
		}
		Map map[string]string `json:"weight_map"`
	}
	text, err := os.ReadFile(filepath.Join(dir, safetensors.IndexName))
	if err == nil {
		err = json.Unmarshal(text, &index)
	}
	if err != nil || index.Metadata.Total != r.Bytes || len(index.Map) != r.Tensors {
		t.Errorf("%v, %s", err, text)
	}
}

// Matrices are packed as MLX packs them whole, and the model loads.
func TestQuantize(t *testing.T) {
	folder := filepath.Join(tiny, "safetensors")
	for _, how := range []string{"affine:4:64", "affine:2:32", "affine:3:128", "affine:5:64", "affine:6:32", "affine:8:64", "mxfp4", "mxfp8", "nvfp4"} {
		t.Run(how, func(t *testing.T) {
			s := mlxtest.Scope(t)
			p, err := quant.Parse(how)
			if err != nil {
				t.Fatal(err)
			}
			dir, r := run(t, folder, Options{Quantize: &p, Scope: s, DType: safetensors.BF16})
			if r.Quantised != 23 || r.Quantisation != p.String() {
				t.Errorf("%+v", r)
			}
			sub := s.Sub()
			defer sub.Close()
			plain, err := sub.LoadSafetensors(filepath.Join(folder, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			made, err := sub.LoadSafetensors(filepath.Join(dir, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			const path = "model.layers.1.mlp.down_proj"
			want := sub.Quantize(sub.AsType(plain.Arrays[path+".weight"], mlx.BFloat16), p)
			for part, a := range map[string]*mlx.Array{".weight": want.Weights, ".scales": want.Scales, ".biases": want.Biases} {
				got := made.Arrays[path+part]
				if a == nil && got == nil {
					continue
				}
				if got == nil || got.Dtype() != a.Dtype() {
					t.Fatalf("%s%s is missing or of another type", path, part)
				}
				if same, err := mlx.Item[bool](sub, sub.ArrayEqual(a, got, true)); err != nil || !same {
					t.Errorf("%s%s is not what MLX makes: %v", path, part, err)
				}
			}
			m, err := model.Load(context.Background(), sub, dir, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m.Close()
		})
	}
}

// What chooses experts keeps eight bits, and config.json says so.
func TestQuantizeExperts(t *testing.T) {
	s := mlxtest.Scope(t)
	p := quant.Params{Mode: quant.Affine, Bits: 4, Group: 32}
	dir, _ := run(t, originals(t)["qwen3_moe"].asGGUF("qwen3moe").save(t), Options{Quantize: &p, Scope: s})
	c, err := model.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	gate := quant.Params{Mode: quant.Affine, Bits: 8, Group: 64}
	if want := (quant.Config{Default: p, Layers: map[string]*quant.Params{"model.layers.0.mlp.gate": &gate}}); !reflect.DeepEqual(c.Quant, want) {
		t.Errorf("%+v", c.Quant)
	}
	sub := s.Sub()
	defer sub.Close()
	m, err := model.Load(context.Background(), sub, dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}
