package tinymodel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxBytes = 3_000_000

const (
	typeF32 = 0
	typeQ80 = 8
)

type tensor struct {
	kind uint32
	// cols and rows; rows is 1 for a vector.
	cols, rows int
	data       []byte
}

type ggufFile struct {
	meta    map[string]any
	tensors map[string]tensor
}

// ggufReader reads numbers and strings and keeps the first error.
type ggufReader struct {
	r   *bytes.Reader
	err error
}

func (g *ggufReader) read(v any) {
	if g.err == nil {
		g.err = binary.Read(g.r, binary.LittleEndian, v)
	}
}

func (g *ggufReader) u32() (v uint32) { g.read(&v); return v }
func (g *ggufReader) u64() (v uint64) { g.read(&v); return v }

func (g *ggufReader) str() string {
	n := g.u64()
	if g.err == nil && n > uint64(g.r.Len()) {
		g.err = io.ErrUnexpectedEOF
	}
	if g.err != nil {
		return ""
	}
	b := make([]byte, n)
	g.read(b)
	return string(b)
}

func (g *ggufReader) value(kind uint32) any {
	switch kind {
	case 4:
		return g.u32()
	case 5:
		return int32(g.u32())
	case 6:
		return math.Float32frombits(g.u32())
	case 7:
		var b uint8
		g.read(&b)
		return b != 0
	case 8:
		return g.str()
	case 9:
		of, n := g.u32(), g.u64()
		var list []any
		for i := uint64(0); i < n && g.err == nil; i++ {
			list = append(list, g.value(of))
		}
		return list
	}
	if g.err == nil {
		g.err = fmt.Errorf("value type %d is not expected", kind)
	}
	return nil
}

func parseGGUF(b []byte) (ggufFile, error) {
	f := ggufFile{meta: map[string]any{}, tensors: map[string]tensor{}}
	if !bytes.HasPrefix(b, []byte("GGUF")) {
		return f, fmt.Errorf("no GGUF magic")
	}
	g := &ggufReader{r: bytes.NewReader(b[4:])}
	if v := g.u32(); v != 3 {
		return f, fmt.Errorf("version %d, want 3", v)
	}
	tensors, metas := g.u64(), g.u64()
	for i := uint64(0); i < metas && g.err == nil; i++ {
		key := g.str()
		f.meta[key] = g.value(g.u32())
	}
	type place struct {
		tensor
		offset uint64
	}
	places := map[string]place{}
	for i := uint64(0); i < tensors && g.err == nil; i++ {
		name := g.str()
		p := place{tensor: tensor{rows: 1}}
		switch dims := g.u32(); dims {
		case 2:
			p.cols, p.rows = int(g.u64()), int(g.u64())
		case 1:
			p.cols = int(g.u64())
		default:
			return f, fmt.Errorf("%s has %d dimensions", name, dims)
		}
		p.kind, p.offset = g.u32(), g.u64()
		places[name] = p
	}
	if g.err != nil {
		return f, g.err
	}
	const align = 32
	start := (uint64(len(b)-g.r.Len()) + align - 1) / align * align
	for name, p := range places {
		size := p.cols * p.rows
		switch p.kind {
		case typeF32:
			size *= 4
		case typeQ80:
			size = size / 32 * 34
		default:
			return f, fmt.Errorf("%s has type %d", name, p.kind)
		}
		from := start + p.offset
		if from+uint64(size) > uint64(len(b)) {
			return f, fmt.Errorf("%s ends after the file", name)
		}
		p.data = b[from : from+uint64(size)]
		f.tensors[name] = p.tensor
	}
	return f, nil
}

// half widens a float16.
func half(bits uint16) float32 {
	sign, exp, frac := float64(1), int(bits>>10&31), float64(bits&1023)
	if bits>>15 == 1 {
		sign = -1
	}
	if exp == 0 {
		return float32(sign * math.Ldexp(frac, -24))
	}
	return float32(sign * math.Ldexp(1024+frac, exp-25))
}

func (t tensor) floats() []float32 {
	out := make([]float32, 0, t.cols*t.rows)
	if t.kind == typeF32 {
		for b := t.data; len(b) > 0; b = b[4:] {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		return out
	}
	for b := t.data; len(b) > 0; b = b[34:] {
		scale := half(binary.LittleEndian.Uint16(b))
		for _, q := range b[2:34] {
			out = append(out, scale*float32(int8(q)))
		}
	}
	return out
}

type safeTensor struct {
	shape  []int
	values []float32
}

func parseSafetensors(b []byte) (map[string]safeTensor, error) {
	if len(b) < 8 {
		return nil, io.ErrUnexpectedEOF
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, io.ErrUnexpectedEOF
	}
	var head map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &head); err != nil {
		return nil, err
	}
	body := b[8+n:]
	out := map[string]safeTensor{}
	for name, raw := range head {
		if name == "__metadata__" {
			continue
		}
		var h struct {
			Dtype   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &h); err != nil {
			return nil, err
		}
		if h.Dtype != "F16" {
			return nil, fmt.Errorf("%s has type %s", name, h.Dtype)
		}
		t := safeTensor{shape: h.Shape}
		for d := body[h.Offsets[0]:h.Offsets[1]]; len(d) > 0; d = d[2:] {
			t.values = append(t.values, half(binary.LittleEndian.Uint16(d)))
		}
		out[name] = t
	}
	return out, nil
}

// ggufName gives the GGUF name of a tensor of the Hugging Face layout.
func ggufName(name string) string {
	switch name {
	case "lm_head.weight":
		return "output.weight"
	case "model.norm.weight":
		return "output_norm.weight"
	case "model.embed_tokens.weight":
		return "token_embd.weight"
	}
	return strings.NewReplacer(
		"model.layers.", "blk.",
		"post_attention_layernorm", "ffn_norm",
		"input_layernorm", "attn_norm",
		"self_attn.q_proj", "attn_q",
		"self_attn.k_proj", "attn_k",
		"self_attn.v_proj", "attn_v",
		"self_attn.o_proj", "attn_output",
		"mlp.gate_proj", "ffn_gate",
		"mlp.up_proj", "ffn_up",
		"mlp.down_proj", "ffn_down",
	).Replace(name)
}

// plainRow gives the row of the Hugging Face layout that GGUF keeps at row.
// The two rotate different pairs of a head's rows: GGUF neighbours, the other
// one row i against row i plus half a head.
func plainRow(name string, row, headDim int) int {
	if !strings.Contains(name, "q_proj") && !strings.Contains(name, "k_proj") {
		return row
	}
	head, in := row/headDim, row%headDim
	return head*headDim + in%2*(headDim/2) + in/2
}

func parseEmbedded(t *testing.T) ggufFile {
	t.Helper()
	f, err := parseGGUF(GGUF)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSize(t *testing.T) {
	if n := len(GGUF) + len(expectedJSON); n > 1_000_000 {
		t.Errorf("the binary grows by %d bytes, want at most 1000000", n)
	}
	total := int64(0)
	err := filepath.WalkDir(".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		total += info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > maxBytes {
		t.Errorf("the folder holds %d bytes, want at most %d", total, maxBytes)
	}
}

func TestGGUF(t *testing.T) {
	f := parseEmbedded(t)
	e, err := Expected()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"general.architecture":          "llama",
		"llama.block_count":             uint32(e.Model.Layers),
		"llama.embedding_length":        uint32(e.Model.HiddenSize),
		"llama.context_length":          uint32(e.Model.ContextLength),
		"llama.vocab_size":              uint32(e.Model.VocabSize),
		"tokenizer.ggml.model":          "gpt2",
		"tokenizer.ggml.pre":            "gpt-2",
		"tokenizer.ggml.bos_token_id":   uint32(e.Model.BOSToken),
		"tokenizer.ggml.eos_token_id":   uint32(e.Model.EOSToken),
		"tokenizer.ggml.add_bos_token":  true,
		"llama.attention.head_count":    uint32(2),
		"llama.attention.head_count_kv": uint32(1),
	} {
		if got := f.meta[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if list, _ := f.meta["tokenizer.ggml.tokens"].([]any); len(list) != e.Model.VocabSize {
		t.Errorf("%d tokens, want %d", len(list), e.Model.VocabSize)
	}
	if s, _ := f.meta["tokenizer.chat_template"].(string); !strings.Contains(s, "<|im_start|>") {
		t.Errorf("chat template is %q", s)
	}
	parameters := 0
	for name, tt := range f.tensors {
		parameters += tt.cols * tt.rows
		if tt.rows == 1 {
			if tt.kind != typeF32 {
				t.Errorf("%s has type %d, want F32", name, tt.kind)
			}
			continue
		}
		if tt.kind != typeQ80 {
			t.Errorf("%s has type %d, want Q8_0", name, tt.kind)
		}
		if tt.rows%64 != 0 || tt.cols%64 != 0 {
			t.Errorf("%s is %d by %d, want multiples of 64", name, tt.rows, tt.cols)
		}
	}
	if parameters != e.Model.Parameters {
		t.Errorf("%d parameters, want %d", parameters, e.Model.Parameters)
	}
}

func TestSafetensorsEqualGGUF(t *testing.T) {
	f := parseEmbedded(t)
	raw, err := os.ReadFile("safetensors/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := parseSafetensors(raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(plain) != len(f.tensors) {
		t.Fatalf("%d tensors, the GGUF file has %d", len(plain), len(f.tensors))
	}
	headDim := int(f.meta["llama.rope.dimension_count"].(uint32))
	for name, want := range plain {
		got, ok := f.tensors[ggufName(name)]
		if !ok {
			t.Errorf("%s is not in the GGUF file", name)
			continue
		}
		if got.cols != want.shape[len(want.shape)-1] || got.cols*got.rows != len(want.values) {
			t.Errorf("%s has shape %v, the GGUF file has %d by %d", name, want.shape, got.rows, got.cols)
			continue
		}
		values := got.floats()
		differ := 0
		for row := range got.rows {
			other := plainRow(name, row, headDim)
			for col := range got.cols {
				if values[row*got.cols+col] != want.values[other*got.cols+col] {
					differ++
				}
			}
		}
		if differ > 0 {
			t.Errorf("%s differs in %d of %d values", name, differ, len(values))
		}
	}
}

func TestExpected(t *testing.T) {
	e, err := Expected()
	if err != nil {
		t.Fatal(err)
	}
	if got := hexSum(GGUF); got != e.Model.GGUFSHA256 {
		t.Errorf("GGUF digest is %s, want %s", got, e.Model.GGUFSHA256)
	}
	raw, err := os.ReadFile("safetensors/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if got := hexSum(raw); got != e.Model.SafetensorsSHA256 {
		t.Errorf("safetensors digest is %s, want %s", got, e.Model.SafetensorsSHA256)
	}
	if len(e.Completions) < 12 || len(e.Chats) < 8 || len(e.Tokenize) < 12 {
		t.Errorf("%d completions, %d chats, %d texts", len(e.Completions), len(e.Chats), len(e.Tokenize))
	}
	if e.Margin < 4 {
		t.Errorf("margin is %v, too small to hold on every kernel", e.Margin)
	}
	names := map[string]bool{}
	long, ended := 0, 0
	for _, c := range e.Completions {
		if names[c.Name] {
			t.Errorf("name %q occurs twice", c.Name)
		}
		names[c.Name] = true
		if c.PromptTokens >= 40 {
			long++
		}
		n := len(c.Tokens)
		if n == 0 || c.Text == "" || !utf8.ValidString(c.Text) || strings.ContainsRune(c.Text, utf8.RuneError) {
			t.Errorf("%s: no usable text", c.Name)
			continue
		}
		if c.Margin < e.Margin {
			t.Errorf("%s: margin %v is below the least one", c.Name, c.Margin)
		}
		if c.PromptTokens+c.NPredict > e.Model.ContextLength {
			t.Errorf("%s: longer than the context", c.Name)
		}
		switch last := c.Tokens[n-1]; {
		case c.Stop == StopEOS && last == e.Model.EOSToken && n < c.NPredict:
			ended++
		case c.Stop == StopLimit && last != e.Model.EOSToken && n == c.NPredict:
		default:
			t.Errorf("%s: %d tokens of %d end in %d, stop %q", c.Name, n, c.NPredict, last, c.Stop)
		}
	}
	if long < 5 || ended == 0 || ended == len(e.Completions) {
		t.Errorf("%d of the prompts are long, %d of %d end", long, ended, len(e.Completions))
	}
	clear(names)
	reasons := map[string]int{}
	for _, c := range e.Chats {
		if names[c.Name] {
			t.Errorf("name %q occurs twice", c.Name)
		}
		names[c.Name] = true
		reasons[c.FinishReason]++
		if len(c.Messages) == 0 || c.Content == "" || strings.TrimSpace(c.Content) != c.Content {
			t.Errorf("%s: no usable content", c.Name)
		}
		if stop := c.FinishReason == "stop"; stop != (c.CompletionTokens < c.MaxTokens) {
			t.Errorf("%s: %d tokens of %d, finish reason %q", c.Name, c.CompletionTokens, c.MaxTokens, c.FinishReason)
		}
		if c.Margin < e.Margin {
			t.Errorf("%s: margin %v is below the least one", c.Name, c.Margin)
		}
	}
	if reasons["stop"] == 0 || reasons["length"] == 0 || len(reasons) != 2 {
		t.Errorf("finish reasons are %v", reasons)
	}
	if len(e.Probes) < 5 {
		t.Errorf("%d probes", len(e.Probes))
	}
	for _, p := range e.Probes {
		if len(p.Top) == 0 || p.Tolerance <= 0 || p.Tolerance > 5 {
			t.Errorf("%q: %d tokens, tolerance %v", p.Prompt, len(p.Top), p.Tolerance)
		}
		for i, top := range p.Top {
			if top.Logprob > 0 || i > 0 && top.Logprob > p.Top[i-1].Logprob {
				t.Errorf("%q: logprob %d is %v", p.Prompt, i, top.Logprob)
			}
		}
	}
	for _, c := range e.Tokenize {
		if len(c.Tokens) == 0 || c.Text == "" {
			t.Errorf("%q has no tokens", c.Text)
		}
		for _, id := range c.Tokens {
			if id < 0 || id >= e.Model.VocabSize {
				t.Errorf("%q has token %d", c.Text, id)
			}
		}
	}
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
