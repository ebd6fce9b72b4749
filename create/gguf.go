package create

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"payload/fs/gguf"
	"payload/fs/safetensors"
)

// A family is what a GGUF file calls an architecture.
type family struct {
	kind, class string            // model_type and its class in transformers
	rename      map[string]string // beside the usual names, or otherwise than them
	keys        []string          // of the metadata, besides the usual ones
	// permuted says that rows of queries and keys are ordered for another way
	// to turn them, pairs (2i, 2i+1) instead of (i, i+half).
	permuted bool
	plusOne  bool // norms were written with 1 added
	config   func(m *metadata, c config)
}

// config is a config.json that is being made.
type config map[string]any

// usual are the names of tensors that most architectures share.
var usual = map[string]string{
	"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
	"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

var headNorms = map[string]string{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}

// around are the names where norms stand before and behind attention and MLP.
var around = map[string]string{
	"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
	"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}

// families are those that can be imported, by general.architecture. Mistral's
// files say llama.
var families = map[string]family{
	"llama": {kind: "llama", class: "LlamaForCausalLM", permuted: true, config: func(m *metadata, c config) {
		_, bias := m.file.Tensor("blk.0.attn_q.bias")
		_, wide := m.file.Tensor("blk.0.ffn_up.bias")
		c["attention_bias"], c["mlp_bias"] = bias, wide
	}},
	"qwen2": {kind: "qwen2", class: "Qwen2ForCausalLM", config: func(_ *metadata, c config) { delete(c, "head_dim") }},
	"qwen3": {kind: "qwen3", class: "Qwen3ForCausalLM", rename: headNorms, config: func(_ *metadata, c config) { c["attention_bias"] = false }},
	"qwen3moe": {
		kind: "qwen3_moe", class: "Qwen3MoeForCausalLM", keys: []string{"expert_feed_forward_length"},
		rename: map[string]string{
			"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate",
			"ffn_gate_exps": "mlp.switch_mlp.gate_proj", "ffn_up_exps": "mlp.switch_mlp.up_proj", "ffn_down_exps": "mlp.switch_mlp.down_proj",
		},
		config: func(m *metadata, c config) {
			c["num_experts"], c["num_experts_per_tok"] = m.number("expert_count"), m.number("expert_used_count")
			c["moe_intermediate_size"] = m.number("expert_feed_forward_length")
			c["decoder_sparse_step"], c["norm_topk_prob"], c["attention_bias"] = 1, true, false
			dense := []int64{}
			for layer := range m.number("block_count") {
				if _, mixed := m.file.Tensor(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", layer)); !mixed {
					dense = append(dense, layer)
				}
			}
			c["mlp_only_layers"] = dense
		},
	},
	"gemma2": {
		kind: "gemma2", class: "Gemma2ForCausalLM", rename: around, plusOne: true,
		keys: []string{"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"},
		config: func(m *metadata, c config) {
			gemma(m, c, 46)
			c["attn_logit_softcapping"], c["final_logit_softcapping"] = m.float("attn_logit_softcapping", 50), m.float("final_logit_softcapping", 30)
		},
	},
	"gemma3": {
		kind: "gemma3_text", class: "Gemma3ForCausalLM", rename: around, plusOne: true,
		keys: []string{"attention.sliding_window", "rope.freq_base_swa"},
		config: func(m *metadata, c config) {
			gemma(m, c, 62)
			if _, ok := m.file.Meta[m.arch+".rope.freq_base"]; !ok {
				c["rope_theta"] = json.Number("1000000")
			}
			c["rope_local_base_freq"], c["sliding_window_pattern"] = m.float("rope.freq_base_swa", 10000), 6
		},
	},
}

// GGUFArchitectures lists those that can be imported from GGUF, sorted.
func GGUFArchitectures() []string { return slices.Sorted(maps.Keys(families)) }

// gemma is what the two have in common. The files do not hold by what
// attention is scaled: it is the size of a head, but in the largest model, of
// that many layers, the model's features by heads. llama.cpp tells it so too.
func gemma(m *metadata, c config, largest int64) {
	scalar := c["head_dim"]
	if m.number("block_count") == largest {
		scalar = m.number("embedding_length") / max(1, m.number("attention.head_count"))
	}
	c["query_pre_attn_scalar"], c["sliding_window"] = scalar, m.number("attention.sliding_window")
	c["hidden_activation"], c["hidden_act"] = "gelu_pytorch_tanh", "gelu_pytorch_tanh"
	c["attention_bias"] = false
}

// usualKeys are those of an architecture's metadata that are read, or that
// say nothing new.
var usualKeys = []string{
	"block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
	"attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
	"rope.freq_base", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
	"rope.scaling.finetuned", "expert_count", "expert_used_count",
}

// metadata reads the keys of an architecture; the first error stays.
type metadata struct {
	file *gguf.File
	arch string
	err  error
}

func (m *metadata) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

func (m *metadata) has(key string) bool { return m.file.Meta[m.arch+"."+key] != nil }

// number reads a count; one for each layer has to be the same for all.
func (m *metadata) number(key string) int64 {
	full := m.arch + "." + key
	value := m.file.Meta[full]
	switch list := value.(type) {
	case []uint64:
		value = alike(list)
	case []int64:
		value = alike(list)
	}
	switch n := value.(type) {
	case uint64:
		if n <= math.MaxInt32 {
			return int64(n)
		}
	case int64:
		if n >= 0 && n <= math.MaxInt32 {
			return n
		}
	}
	m.fail("the metadata has %s = %v, want one number", full, m.file.Meta[full])
	return 0
}

// alike is the one value that all have; nil where they differ.
func alike[T comparable](list []T) any {
	if len(list) == 0 || slices.ContainsFunc(list, func(v T) bool { return v != list[0] }) {
		return nil
	}
	return list[0]
}

// float reads a number as it was written before it became a float32: 1e-05.
func (m *metadata) float(key string, otherwise float64) json.Number {
	value, ok := m.file.Meta[m.arch+"."+key].(float64)
	if !ok {
		if m.has(key) {
			m.fail("the metadata has %s.%s = %v, want a number", m.arch, key, m.file.Meta[m.arch+"."+key])
		}
		value = otherwise
	}
	return json.Number(strconv.FormatFloat(value, 'g', -1, 32))
}

func (m *metadata) text(key string) string {
	value, _ := m.file.Meta[key].(string)
	return value
}

// openGGUF reads a GGUF file.
func openGGUF(path string) (*source, error) {
	file, err := gguf.Open(path)
	var system *fs.PathError
	if err != nil && !errors.As(err, &system) {
		return nil, &SourceError{path, err.Error(), "fetch the file again: it is damaged, or no GGUF file"}
	}
	if err != nil {
		return nil, fmt.Errorf("importing: %w", err)
	}
	s, err := fromGGUF(file)
	if err != nil {
		var refused *SourceError
		if !errors.As(err, &refused) {
			err = fmt.Errorf("importing %s: %w", path, err)
		}
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

func fromGGUF(file *gguf.File) (*source, error) {
	m := &metadata{file: file}
	m.arch = m.text("general.architecture")
	if parts, _ := file.Meta["split.count"].(uint64); parts > 1 {
		return nil, &SourceError{file.Path, fmt.Sprintf("it is one of %d parts", parts), "join them first: llama-gguf-split --merge FIRST-PART WHOLE"}
	}
	if kind := m.text("general.type"); kind != "" && kind != "model" {
		return nil, &SourceError{file.Path, fmt.Sprintf("it holds %s %q, not a model", "the type", kind), "merge an adapter into its model first: llama-export-lora"}
	}
	f, ok := families[m.arch]
	if !ok {
		return nil, &SourceError{
			file.Path, fmt.Sprintf("the architecture %q can't be imported from GGUF; known are %s", m.arch, strings.Join(GGUFArchitectures(), ", ")),
			"create from the model's Hugging Face folder, if mlxrunner runs its architecture",
		}
	}
	if err := m.known(f); err != nil {
		return nil, err
	}
	c := m.config(f)
	if m.err != nil {
		return nil, m.err
	}
	s := &source{path: file.Path, kind: f.kind, dtype: safetensors.BF16, close: file.Close, files: map[string]func(io.Writer) error{}}
	var err error
	if s.tensors, err = m.tensors(f, c); err != nil {
		return nil, err
	}
	v, err := m.vocabulary()
	if err != nil {
		return nil, fmt.Errorf("the tokenizer: %w", err)
	}
	if rows := c["vocab_size"].(int64); int64(len(v.tokens)) > rows {
		return nil, fmt.Errorf("the tokenizer has %d tokens, token_embd.weight rows for %d", len(v.tokens), rows)
	}
	c["bos_token_id"], c["eos_token_id"] = v.bosID(), v.ends()
	for name, value := range v.files(m.number("context_length")) {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		s.files[name] = func(w io.Writer) error {
			_, err := w.Write(append(text, '\n'))
			return err
		}
	}
	text, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(text, &s.config)
	}
	return s, errors.Join(err, m.err)
}

// known refuses keys of the architecture that nobody reads.
func (m *metadata) known(f family) error {
	for _, key := range slices.Sorted(maps.Keys(m.file.Meta)) {
		name, ok := strings.CutPrefix(key, m.arch+".")
		if ok && !slices.Contains(usualKeys, name) && !slices.Contains(f.keys, name) {
			return fmt.Errorf("the metadata has %s = %v, which is not read and may change the result", key, m.file.Meta[key])
		}
	}
	return nil
}

func (m *metadata) config(f family) config {
	heads := m.number("attention.head_count")
	c := config{
		"model_type": f.kind, "architectures": []string{f.class}, "hidden_act": "silu",
		"hidden_size": m.number("embedding_length"), "num_hidden_layers": m.number("block_count"),
		"intermediate_size": m.number("feed_forward_length"), "max_position_embeddings": m.number("context_length"),
		"num_attention_heads": heads, "num_key_value_heads": heads,
		"rms_norm_eps": m.float("attention.layer_norm_rms_epsilon", 0), "rope_theta": m.float("rope.freq_base", 10000),
	}
	if layers := m.number("block_count"); heads == 0 || layers > int64(len(m.file.Tensors)) {
		m.fail("the metadata has %d heads and %d layers, the file %d tensors", heads, layers, len(m.file.Tensors))
		return c
	}
	if m.has("attention.head_count_kv") {
		c["num_key_value_heads"] = m.number("attention.head_count_kv")
	}
	head := m.number("embedding_length") / heads
	if m.has("attention.key_length") {
		head = m.number("attention.key_length")
	}
	c["head_dim"] = head
	for _, key := range []string{"attention.value_length", "rope.dimension_count"} {
		if m.has(key) && m.number(key) != head {
			m.fail("the metadata has %s.%s = %d, but heads have %d features", m.arch, key, m.number(key), head)
		}
	}
	if f.kind != "qwen3_moe" && m.has("expert_count") && m.number("expert_count") > 0 {
		m.fail("it is a mixture of %d experts, which %s is not imported with", m.number("expert_count"), m.arch)
	}
	embeddings, ok := m.file.Tensor("token_embd.weight")
	if !ok || len(embeddings.Shape) != 2 {
		m.fail("the tensor token_embd.weight is missing, or no matrix")
		return c
	}
	c["vocab_size"] = embeddings.Shape[0]
	_, apart := m.file.Tensor("output.weight")
	c["tie_word_embeddings"] = !apart
	if f.config != nil {
		f.config(m, c)
	}
	if scaling := m.scaling(head); scaling != nil {
		c["rope_scaling"] = scaling
	}
	return c
}

// scaling gives how positions are stretched.
func (m *metadata) scaling(head int64) config {
	kind := m.text(m.arch + ".rope.scaling.type")
	factors, banded := m.file.Tensor("rope_freqs.weight")
	switch {
	case banded:
		return m.bands(factors, head)
	case kind == "" || kind == "none":
		return nil
	case kind == "linear":
		return config{"rope_type": kind, "factor": m.float("rope.scaling.factor", 1)}
	case kind == "yarn":
		return config{
			"rope_type": kind, "factor": m.float("rope.scaling.factor", 1),
			"original_max_position_embeddings": m.number("rope.scaling.original_context_length"),
		}
	}
	m.fail("positions are scaled as %q, which is not known", kind)
	return nil
}

// bands finds Llama 3.1's settings in the factors that were computed of them:
// the published ones, each factor of which is told by the longest wave.
func (m *metadata) bands(t gguf.Tensor, head int64) config {
	got := make([]float32, t.Size/4)
	if t.Type != gguf.F32 || int64(len(got)) != head/2 {
		m.fail("the tensor %s is %v%v, want F32 for half a head's %d features", t.Name, t.Type, t.Shape, head)
		return nil
	}
	if err := m.read(t, 0, 1, int64(len(got)), got); err != nil {
		m.fail("%w", err)
		return nil
	}
	theta, _ := m.float("rope.freq_base", 10000).Float64()
	const original, low, high = 8192, 1, 4
	factor := float64(got[len(got)-1])
	for i, v := range got {
		wave := 2 * math.Pi * math.Pow(theta, float64(2*i)/float64(head))
		want := factor
		switch {
		case wave < original/high:
			want = 1
		case wave <= original/low:
			smooth := (original/wave - low) / (high - low)
			want = 1 / ((1-smooth)/factor + smooth)
		}
		if math.Abs(float64(v)-want) > 1e-3*want {
			m.fail("positions are scaled by factors of their own (the tensor %s), which are not those of Llama 3.1", t.Name)
			return nil
		}
	}
	return config{
		"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
		"original_max_position_embeddings": original,
	}
}

// read dequantises rows.
func (m *metadata) read(t gguf.Tensor, row, rows, columns int64, into []float32) error {
	elements, size := t.Type.Block()
	bytes := make([]byte, rows*columns/elements*size)
	if err := m.file.ReadAt(t, bytes, row*columns/elements*size); err != nil {
		return err
	}
	dequantize(t.Type, into, bytes)
	return nil
}

// tensors lists them by their names in the Hugging Face layout.
func (m *metadata) tensors(f family, c config) ([]tensor, error) {
	var out []tensor
	for _, t := range m.file.Tensors {
		if t.Name == "rope_freqs.weight" {
			continue
		}
		name, ok := f.name(t.Name)
		if !ok {
			return nil, fmt.Errorf("the tensor %s is not one that %s is imported with", t.Name, m.arch)
		}
		if dequantizers[t.Type] == nil {
			return nil, &SourceError{
				m.file.Path, fmt.Sprintf("the tensor %s is %v, which can't be read; %s can", t.Name, t.Type, readable()),
				"quantise the model's original weights to one of those types, or create from its Hugging Face folder",
			}
		}
		made := tensor{name: name, shape: t.Shape, dtype: safetensors.F32}
		made.read = func(row int64, into []float32) error {
			return m.read(t, row, int64(len(into))/made.columns(), made.columns(), into)
		}
		if f.plusOne && strings.HasSuffix(name, "norm.weight") {
			made.read = minusOne(made.read)
		}
		heads := c["num_attention_heads"].(int64)
		if strings.Contains(name, ".k_proj.") {
			heads = c["num_key_value_heads"].(int64)
		}
		if f.permuted && (strings.Contains(name, ".q_proj.") || strings.Contains(name, ".k_proj.")) {
			if err := unpermute(&made, heads); err != nil {
				return nil, err
			}
		}
		out = append(out, made)
	}
	return out, nil
}

func readable() string {
	var list []string
	for _, t := range slices.Sorted(maps.Keys(dequantizers)) {
		list = append(list, t.String())
	}
	return strings.Join(list, ", ")
}

// name gives a tensor's: blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight.
func (f family) name(name string) (string, bool) {
	before := ""
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, part, _ := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(number); err != nil || n < 0 {
			return "", false
		}
		before, name = "model.layers."+number+".", part
	}
	part, end, _ := strings.Cut(name, ".")
	if end != "weight" && end != "bias" {
		return "", false
	}
	to, ok := f.rename[part]
	if !ok {
		to, ok = usual[part]
	}
	outside := strings.HasPrefix(to, "model.") || to == "lm_head"
	return before + to + "." + end, ok && outside == (before == "")
}

func minusOne(read func(int64, []float32) error) func(int64, []float32) error {
	return func(row int64, into []float32) error {
		err := read(row, into)
		for i := range into {
			into[i]--
		}
		return err
	}
}

// unpermute puts the rows of each head back: row 2i of the file is row i of
// the head, row 2i+1 is row i+half. A bias has rows of one element.
func unpermute(t *tensor, heads int64) error {
	rows, columns := t.shape[0], t.size()/t.shape[0]
	if heads <= 0 || rows%(2*heads) != 0 {
		return fmt.Errorf("the tensor %s has %d rows, which are not those of %d heads", t.name, rows, heads)
	}
	size := rows / heads
	from := func(row int64) int64 {
		head, i := row/size, row%size
		return head*size + i%(size/2)*2 + i/(size/2)
	}
	read := t.read
	if len(t.shape) == 1 {
		t.read = func(_ int64, into []float32) error {
			whole := make([]float32, rows)
			err := read(0, whole)
			for i := range into {
				into[i] = whole[from(int64(i))]
			}
			return err
		}
		return nil
	}
	t.read = func(row int64, into []float32) error {
		for ; len(into) > 0; into, row = into[columns:], row+1 {
			if err := read(from(row), into[:columns]); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}
