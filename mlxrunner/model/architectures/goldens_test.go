package architectures_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
	"payload/mlxrunner/cache"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/architectures"
	"payload/mlxrunner/nn"
)

// golden is a case of scripts/models/goldens.py.
type golden struct {
	Name   string
	Config json.RawMessage
	Packed *struct { // how keys and values are held in the cache
		Bits  int
		Group int `json:"group_size"`
	}
	Tensors map[string][]int
	Tokens  []int32
	Logits  []float32
}

type goldens struct {
	Cases []golden
	Ropes []struct {
		Name    string
		Scaling json.RawMessage
		Offset  int
		Values  []float32
	}
}

func read(t *testing.T) goldens {
	t.Helper()
	text, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var g goldens
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// numbers are those of goldens.py's function of that name.
func numbers(name string, shape []int) []float64 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	out := make([]float64, n)
	base := crc32.ChecksumIEEE([]byte(name))
	for i := range out {
		x := base + uint32(i)
		x = (x ^ x>>16) * 0x7feb352d
		x = (x ^ x>>15) * 0x846ca68b
		x ^= x >> 16
		out[i] = float64(x)/(1<<32) - 0.5
	}
	return out
}

func weight(s *mlx.Scope, name string, shape []int) *mlx.Array {
	out := make([]float32, 0, len(shape))
	for _, v := range numbers(name, shape) {
		switch {
		case len(shape) > 1 && strings.Contains(name, "embed"):
			v *= 2
		case len(shape) > 1:
			v *= 4 / math.Sqrt(float64(shape[len(shape)-1]))
		case strings.HasSuffix(name, "norm.weight"):
			v++
		}
		out = append(out, float32(v))
	}
	return mlx.New(s, out, shape...)
}

// checkpoint writes a case as a folder, packed as its config says.
func checkpoint(t *testing.T, s *mlx.Scope, g golden) string {
	t.Helper()
	q, err := quant.Read(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	arrays := map[string]*mlx.Array{}
	for name, shape := range g.Tensors {
		a := weight(s, name, shape)
		path := strings.TrimSuffix(name, ".weight")
		how, packed := q.For(path)
		if !packed || len(shape) < 2 || !strings.HasSuffix(name, ".weight") {
			arrays[name] = a
			continue
		}
		p := s.Quantize(a, how)
		arrays[name], arrays[path+".scales"] = p.Weights, p.Scales
		if p.Biases != nil {
			arrays[path+".biases"] = p.Biases
		}
	}
	return write(t, s, g.Config, arrays)
}

func write(t *testing.T, s *mlx.Scope, config []byte, arrays map[string]*mlx.Array) string {
	t.Helper()
	dir := t.TempDir()
	rewrite(t, dir, config)
	if err := s.SaveSafetensors(filepath.Join(dir, "model.safetensors"), mlx.Checkpoint{Arrays: arrays}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func rewrite(t *testing.T, dir string, config []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, model.ConfigName), config, 0o644); err != nil {
		t.Fatal(err)
	}
}

// forward gives the logits of tokens that come in chunks.
func forward(t *testing.T, s *mlx.Scope, m model.Model, tokens []int32, chunk int) []float32 {
	t.Helper()
	return forwardWith(t, s, m, m.NewCache(), tokens, chunk)
}

// cache is an empty memory as the case has it.
func (g golden) cache(t *testing.T, m model.Model) *cache.Cache {
	t.Helper()
	kv := m.NewCache()
	if g.Packed != nil {
		if err := kv.Pack(quant.Params{Mode: quant.Affine, Bits: g.Packed.Bits, Group: g.Packed.Group}); err != nil {
			t.Fatal(err)
		}
	}
	return kv
}

func forwardWith(t *testing.T, s *mlx.Scope, m model.Model, kv *cache.Cache, tokens []int32, chunk int) []float32 {
	t.Helper()
	defer kv.Free()
	kv.Expect(len(tokens))
	var out []float32
	for part := range slices.Chunk(tokens, chunk) {
		sub := s.Sub()
		got, err := mlx.Floats(sub, m.Forward(sub, row(sub, part), kv))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got...)
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Logits are mlx-lm's, however the tokens come: all at once without anything
// remembered, or in chunks that cross the window.
func TestLogitsOfMLXLM(t *testing.T) {
	for _, g := range read(t).Cases {
		t.Run(g.Name, func(t *testing.T) {
			s := mlxtest.Scope(t)
			m, err := model.Load(context.Background(), s, checkpoint(t, s, g), model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for _, chunk := range []int{24, 1, 7, 8, 9} {
				kv := g.cache(t, m)
				if text := mlxtest.Differ(forwardWith(t, s, m, kv, g.Tokens, chunk), g.Logits, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
					t.Errorf("chunks of %d: %s", chunk, text)
				}
			}
		})
	}
}

// stored wants the case's logits of its weights as arrays have them.
func (g golden) stored(t *testing.T, s *mlx.Scope, arrays map[string]*mlx.Array) {
	t.Helper()
	m, err := model.Load(context.Background(), s, write(t, s, g.Config, arrays), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if text := mlxtest.Differ(forward(t, s, m, g.Tokens, 9), g.Logits, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
		t.Error(text)
	}
}

// Experts may lie one by one, as their authors publish them.
func TestExpertsOneByOne(t *testing.T) {
	for _, name := range []string{"qwen3_moe", "qwen3_moe packed"} {
		t.Run(name, func(t *testing.T) {
			s := mlxtest.Scope(t)
			g := find(t, name)
			packed, err := s.LoadSafetensors(filepath.Join(checkpoint(t, s, g), "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			apart := map[string]*mlx.Array{}
			for name, a := range packed.Arrays {
				before, behind, found := strings.Cut(name, "switch_mlp.")
				if !found {
					apart[name] = a
					continue
				}
				for i := range a.Dim(0) {
					apart[fmt.Sprintf("%sexperts.%d.%s", before, i, behind)] = s.Contiguous(s.Squeeze(s.SliceAxis(a, 0, i, i+1), 0))
				}
			}
			g.stored(t, s, apart)
		})
	}
}

// gpt-oss is published with rows of gate and up in turn, as blocks of bytes.
func TestGptOssAsPublished(t *testing.T) {
	s := mlxtest.Scope(t)
	g := find(t, "gpt_oss packed")
	packed, err := s.LoadSafetensors(filepath.Join(checkpoint(t, s, g), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*mlx.Array{}
	blocks := func(a *mlx.Array) *mlx.Array {
		return s.Reshape(s.View(s.Contiguous(a), mlx.Uint8), a.Dim(0), a.Dim(1), -1, 16)
	}
	for name, a := range packed.Arrays {
		before, part, _ := strings.Cut(name, "experts.")
		in := before + "experts."
		turns := func(kind string) *mlx.Array { // of gate and up
			gate, up := packed.Arrays[in+"gate_proj."+kind], packed.Arrays[in+"up_proj."+kind]
			return s.Flatten(s.Stack(2, gate, up), 1, 2)
		}
		switch part {
		case "gate_proj.weight":
			out[in+"gate_up_proj_blocks"] = blocks(turns("weight"))
		case "gate_proj.scales":
			out[in+"gate_up_proj_scales"] = turns("scales")
		case "gate_proj.bias":
			out[in+"gate_up_proj_bias"] = turns("bias")
		case "down_proj.weight":
			out[in+"down_proj_blocks"] = blocks(a)
		case "down_proj.scales":
			out[in+"down_proj_scales"] = a
		case "down_proj.bias":
			out[in+"down_proj_bias"] = a
		case "up_proj.weight", "up_proj.scales", "up_proj.bias":
		default:
			out[name] = a
		}
	}
	g.stored(t, s, out)
}

// LongRoPE has factors for texts up to the original length, and others beyond.
func TestLongRopeByLength(t *testing.T) {
	p, err := nn.ParseRope(json.RawMessage(`{"type": "longrope", "original_max_position_embeddings": 4096, "short_factor": [1, 2], "long_factor": [4, 8]}`), 10000, 131072)
	if err != nil {
		t.Fatal(err)
	}
	for length, want := range map[int][]float64{4096: {1, 0.01 / 2}, 4097: {0.25, 0.01 / 8}} {
		turn, multiplier, err := p.Frequencies(4, length)
		// sqrt(1 + ln(131072/4096)/ln(4096))
		if err != nil || math.Abs(turn[0]-want[0]) > 1e-12 || math.Abs(turn[1]-want[1]) > 1e-12 || math.Abs(multiplier-1.1902380714) > 1e-9 {
			t.Errorf("%d tokens: %v, %v, %v; want %v", length, turn, multiplier, err, want)
		}
	}
}

// Positions turn as mlx-lm turns them, near and far. Float32 holds an angle of
// 60,000 radians to about 4e-3.
func TestRopesOfMLXLM(t *testing.T) {
	s := mlxtest.Scope(t)
	for _, g := range read(t).Ropes {
		p, err := nn.ParseRope(g.Scaling, 500000, 131072)
		if err != nil {
			t.Fatal(err)
		}
		rope, err := nn.NewRope(s, 64, p, func(a *mlx.Array) *mlx.Array { return a })
		if err != nil {
			t.Fatal(err)
		}
		got, err := mlx.Floats(s, rope.Forward(s, s.Ones(mlx.Float32, 1, 1, 1, 64), g.Offset, g.Offset+1))
		if err != nil {
			t.Fatal(err)
		}
		if text := mlxtest.Differ(got, g.Values, mlxtest.Tolerance{Abs: 1e-6 + 2e-7*float64(g.Offset)}); text != "" {
			t.Errorf("%s at %d: %s", g.Name, g.Offset, text)
		}
	}
}

func row(s *mlx.Scope, tokens []int32) *mlx.Array { return mlx.New(s, tokens, 1, len(tokens)) }

// A batch of texts of different lengths has the logits that each has alone.
func TestJoinedTextsHaveTheLogitsOfEach(t *testing.T) {
	for _, g := range read(t).Cases {
		t.Run(g.Name, func(t *testing.T) {
			s := mlxtest.Scope(t)
			m, err := model.Load(context.Background(), s, checkpoint(t, s, g), model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			lengths := []int{3, 17, 9}
			var rows []*cache.Cache
			for _, n := range lengths {
				kv := g.cache(t, m)
				defer kv.Free()
				kv.Expect(len(g.Tokens))
				sub := s.Sub()
				m.Forward(sub, mlx.New(sub, g.Tokens[:n], 1, n), kv)
				if err := sub.Close(); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, kv)
			}
			vocabulary := len(g.Logits) / len(g.Tokens)
			for step := range 7 {
				var tokens []int32
				var want []float32
				for _, n := range lengths {
					tokens = append(tokens, g.Tokens[n+step])
					want = append(want, g.Logits[(n+step)*vocabulary:(n+step+1)*vocabulary]...)
				}
				sub := s.Sub()
				got, err := mlx.Floats(sub, m.Forward(sub, mlx.New(sub, tokens, len(tokens), 1), cache.Join(rows...)))
				if err != nil {
					t.Fatal(err)
				}
				if err := sub.Close(); err != nil {
					t.Fatal(err)
				}
				if text := mlxtest.Differ(got, want, mlxtest.Tolerance{Abs: 2e-4, Rel: 1e-4}); text != "" {
					t.Errorf("step %d: %s", step, text)
				}
			}
		})
	}
}

// Matrices that are multiplied in parts give the logits of whole ones to the bit:
// those that are used where they lie, read and turned, and packed.
func TestInParts(t *testing.T) {
	if mlx.ReferenceBLAS() && nn.Parts(512, 256, false) != min(2, runtime.GOMAXPROCS(0)) || nn.Parts(512, 256, true) != min(2, runtime.GOMAXPROCS(0)) {
		t.Fatal("matrices of this size are not in parts")
	}
	s := mlxtest.Scope(t)
	g := without(find(t, "llama"), "")
	g.Config = with(t, g.Config, map[string]any{"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1})
	g.Tensors = map[string][]int{
		"model.embed_tokens.weight": {40, 256}, "model.norm.weight": {256}, "lm_head.weight": {40, 256},
		"model.layers.0.input_layernorm.weight": {256}, "model.layers.0.post_attention_layernorm.weight": {256},
		"model.layers.0.mlp.gate_proj.weight": {512, 256}, "model.layers.0.mlp.up_proj.weight": {512, 256}, "model.layers.0.mlp.down_proj.weight": {256, 512},
	}
	for _, layer := range []string{"q_proj", "o_proj"} {
		g.Tensors["model.layers.0.self_attn."+layer+".weight"] = []int{256, 256}
	}
	var config struct {
		Heads   int `json:"num_attention_heads"`
		KVHeads int `json:"num_key_value_heads"`
	}
	if err := json.Unmarshal(g.Config, &config); err != nil {
		t.Fatal(err)
	}
	for _, layer := range []string{"k_proj", "v_proj"} {
		g.Tensors["model.layers.0.self_attn."+layer+".weight"] = []int{256 * config.KVHeads / config.Heads, 256}
	}
	g.Config = with(t, g.Config, map[string]any{"head_dim": 256 / config.Heads, "attention_bias": false, "mlp_bias": false})

	halves := map[string]*mlx.Array{}
	for name, shape := range g.Tensors {
		halves[name] = s.AsType(weight(s, name, shape), mlx.BFloat16)
	}
	packed := g
	packed.Config = with(t, g.Config, map[string]any{"quantization": map[string]any{"group_size": 32, "bits": 4}})
	for name, dir := range map[string]string{
		"as they lie": checkpoint(t, s, g), "turned": write(t, s, g.Config, halves), "packed": checkpoint(t, s, packed),
	} {
		whole := func() []float32 {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			return logitsOf(t, s, dir, g)
		}()
		if text := mlxtest.Differ(logitsOf(t, s, dir, g), whole, mlxtest.Tolerance{}); text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}
