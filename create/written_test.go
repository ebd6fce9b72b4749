package create

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written is a GGUF file of float32 tensors.
type written struct {
	meta    map[string]any
	names   []string
	shapes  [][]int
	tensors [][]float32
}

func (w *written) add(name string, shape []int, values []float32) {
	w.names, w.shapes, w.tensors = append(w.names, name), append(w.shapes, shape), append(w.tensors, values)
}

func (w *written) save(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if text, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
			}
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	put([]byte("GGUF"), uint32(3), uint64(len(w.tensors)), uint64(len(w.meta)))
	for _, key := range slices.Sorted(maps.Keys(w.meta)) {
		put(key)
		switch v := w.meta[key].(type) {
		case string:
			put(uint32(8), v)
		case bool:
			put(uint32(7), v)
		case int:
			put(uint32(4), uint32(v))
		case float64:
			put(uint32(6), float32(v))
		case []string:
			put(uint32(9), uint32(8), uint64(len(v)))
			for _, text := range v {
				put(text)
			}
		case []int:
			put(uint32(9), uint32(5), uint64(len(v)))
			for _, n := range v {
				put(int32(n))
			}
		case []float64:
			put(uint32(9), uint32(6), uint64(len(v)))
			for _, n := range v {
				put(float32(n))
			}
		default:
			t.Fatalf("%s is %T", key, v)
		}
	}
	offset := uint64(0)
	for i, name := range w.names {
		put(name, uint32(len(w.shapes[i])))
		for _, n := range slices.Backward(w.shapes[i]) {
			put(uint64(n))
		}
		put(uint32(0), offset)
		offset += uint64(len(w.tensors[i])*4+31) / 32 * 32
	}
	for _, values := range w.tensors {
		b.Write(make([]byte, (32-b.Len()%32)%32))
		put(values)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// original is a case of scripts/models/goldens.py: a config and its tensors.
type original struct {
	Name    string
	Config  map[string]any
	Tensors map[string][]int
}

func originals(t *testing.T) map[string]original {
	t.Helper()
	text, err := os.ReadFile("../mlxrunner/model/architectures/testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Cases []original }
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	out := map[string]original{}
	for _, c := range g.Cases {
		out[c.Name] = c
	}
	return out
}

// values are some that depend on name and place.
func values(name string, shape []int) []float32 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	out := make([]float32, n)
	base := crc32.ChecksumIEEE([]byte(name))
	for i := range out {
		x := (base + uint32(i)) * 2654435761
		out[i] = float32(x>>8)/(1<<24) - 0.5
	}
	return out
}

func (o original) number(key string) int { return int(o.Config[key].(float64)) }

// asGGUF writes a case as llama.cpp's converter does (its conversion/*.py):
// names, metadata, the order of rows, norms with 1 added.
func (o original) asGGUF(arch string) *written {
	w := &written{meta: vocabularyOf(o.number("vocab_size"))}
	set := func(key string, value any) { w.meta[arch+"."+key] = value }
	w.meta["general.architecture"] = arch
	set("block_count", o.number("num_hidden_layers"))
	set("context_length", o.number("max_position_embeddings"))
	set("embedding_length", o.number("hidden_size"))
	set("feed_forward_length", o.number("intermediate_size"))
	set("attention.head_count", o.number("num_attention_heads"))
	set("attention.head_count_kv", o.number("num_key_value_heads"))
	set("attention.key_length", o.number("head_dim"))
	set("attention.value_length", o.number("head_dim"))
	set("attention.layer_norm_rms_epsilon", o.Config["rms_norm_eps"])
	set("rope.freq_base", o.Config["rope_theta"])
	for key, from := range map[string]string{
		"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
		"attention.sliding_window": "sliding_window",
	} {
		if _, ok := o.Config[from]; ok && (from != "sliding_window" || strings.HasPrefix(arch, "gemma")) {
			set(key, o.number(from))
		}
	}
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		if value, ok := o.Config[key]; ok {
			set(key, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Tensors)) {
		shape := o.Tensors[name]
		data := values(name, shape)
		if strings.HasPrefix(arch, "gemma") && strings.HasSuffix(name, "norm.weight") {
			for i := range data {
				data[i]++
			}
		}
		if arch == "llama" && strings.Contains(name, ".q_proj.") {
			data = permuted(data, shape[0], o.number("num_attention_heads"))
		}
		if arch == "llama" && strings.Contains(name, ".k_proj.") {
			data = permuted(data, shape[0], o.number("num_key_value_heads"))
		}
		w.add(ggufName(name, arch), shape, data)
	}
	return w
}

// permuted is LlamaModel.permute of conversion/llama.py: rows as [heads, 2,
// half] become [heads, half, 2].
func permuted(data []float32, rows, heads int) []float32 {
	columns, half := len(data)/rows, rows/heads/2
	var out []float32
	for h := range heads {
		for i := range half {
			for two := range 2 {
				row := (h*2+two)*half + i
				out = append(out, data[row*columns:(row+1)*columns]...)
			}
		}
	}
	return out
}

// ggufName is what gguf-py's tensor_mapping.py gives.
func ggufName(name, arch string) string {
	gemma := strings.HasPrefix(arch, "gemma")
	behind, before := "ffn_norm", "ffn_norm"
	if gemma {
		behind = "post_attention_norm"
	}
	for _, pair := range [][2]string{
		{"model.layers.", "blk."},
		{"model.embed_tokens", "token_embd"},
		{"model.norm", "output_norm"},
		{"lm_head", "output"},
		{"input_layernorm", "attn_norm"},
		{"post_attention_layernorm", behind},
		{"pre_feedforward_layernorm", before},
		{"post_feedforward_layernorm", "post_ffw_norm"},
		{"self_attn.q_proj", "attn_q"},
		{"self_attn.k_proj", "attn_k"},
		{"self_attn.v_proj", "attn_v"},
		{"self_attn.o_proj", "attn_output"},
		{"self_attn.q_norm", "attn_q_norm"},
		{"self_attn.k_norm", "attn_k_norm"},
		{"mlp.switch_mlp.gate_proj", "ffn_gate_exps"},
		{"mlp.switch_mlp.up_proj", "ffn_up_exps"},
		{"mlp.switch_mlp.down_proj", "ffn_down_exps"},
		{"mlp.gate_proj", "ffn_gate"},
		{"mlp.up_proj", "ffn_up"},
		{"mlp.down_proj", "ffn_down"},
		{"mlp.gate.", "ffn_gate_inp."},
	} {
		name = strings.Replace(name, pair[0], pair[1], 1)
	}
	return name
}

func vocabularyOf(size int) map[string]any {
	tokens, kinds := []string{"<|begin|>", "<|end|>", "ab"}, []int{3, 3, 1}
	for i := len(tokens); i < size; i++ {
		tokens, kinds = append(tokens, string(rune('a'+i-3))), append(kinds, 1)
	}
	return map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
		"tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
	}
}

func near(got, want []float32, off float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if math.Abs(float64(got[i])-float64(want[i])) > off {
			return fmt.Errorf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}
