package create

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kinds of tokens, of tokenizer.ggml.token_type.
const (
	normal      = 1
	unknown     = 2
	control     = 3
	userDefined = 4
	byteToken   = 6
)

// A pattern is how a byte-level vocabulary's texts are cut, as the original
// tokenizer.json of the models has it.
type pattern struct {
	regex        string // "" is the usual one of byte-level vocabularies
	digits       bool   // each digit stands alone
	compose      bool   // texts are composed first (NFC)
	ignoreMerges bool   // a piece that is a token is that token
	begin        bool   // texts begin with a token, unless the file says otherwise
}

const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	spaces       = `\s*[\r\n]+|\s+(?!\S)|\s+`
	llama3Regex  = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces
	qwenRegex    = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces
	tekkenRegex  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
		`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces
)

var (
	llama3 = pattern{regex: llama3Regex, ignoreMerges: true, begin: true}
	qwen   = pattern{regex: qwenRegex, compose: true}
	digits = pattern{digits: true}
)

// patterns are those that are known, by tokenizer.ggml.pre.
var patterns = map[string]pattern{
	"llama-bpe": llama3, "llama3": llama3, "llama-v3": llama3, "falcon3": llama3,
	"smaug-bpe": {regex: llama3Regex},
	"qwen2":     qwen, "deepseek-r1-qwen": qwen, "megrez": qwen,
	"tekken": {regex: tekkenRegex, ignoreMerges: true, begin: true},
	"smollm": digits, "starcoder": digits, "refact": digits, "command-r": digits, "minerva-7b": digits,
	"gpt-2": {},
}

// turnEnds are control tokens after which a model has said what it says,
// whatever tokenizer.ggml.eos_token_id is. llama.cpp ends there too.
var turnEnds = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_text|>",
}

// vocabulary is a GGUF file's tokenizer.
type vocabulary struct {
	model   string // gpt2, or llama for SentencePiece's
	tokens  []string
	kinds   []int64
	scores  []float64
	merges  [][2]string
	pattern pattern
	special map[string]int // bos, eos, unknown, padding, eot, eom: their ids
	begin   bool           // texts begin with bos
	end     bool           // and end with eos
	prefix  bool           // and have a space before
	chat    string
	ids     map[string]int
}

func (m *metadata) vocabulary() (*vocabulary, error) {
	const of = "tokenizer.ggml."
	meta := m.file.Meta
	v := &vocabulary{model: m.text(of + "model"), special: map[string]int{}, chat: m.text("tokenizer.chat_template"), ids: map[string]int{}}
	v.tokens, _ = meta[of+"tokens"].([]string)
	v.kinds, _ = meta[of+"token_type"].([]int64)
	v.scores, _ = meta[of+"scores"].([]float64)
	switch {
	case len(v.tokens) == 0:
		return nil, errors.New("the file holds none")
	case v.kinds == nil:
		v.kinds = slices.Repeat([]int64{normal}, len(v.tokens))
	case len(v.kinds) != len(v.tokens):
		return nil, fmt.Errorf("%d tokens have %d types", len(v.tokens), len(v.kinds))
	}
	for i, token := range v.tokens {
		if other, twice := v.ids[token]; twice {
			return nil, fmt.Errorf("the tokens %d and %d are both %q", other, i, token)
		}
		if !utf8.ValidString(token) {
			return nil, fmt.Errorf("the token %d, %q, is not UTF-8", i, token)
		}
		v.ids[token] = i
	}
	if value := meta[of+"remove_extra_whitespaces"]; value == true {
		return nil, errors.New("it removes spaces, which is not known how to do")
	}
	if err := v.readSpecial(meta); err != nil {
		return nil, err
	}
	var err error
	switch v.model {
	case "gpt2":
		err = v.byteLevel(m.text(of+"pre"), meta[of+"merges"])
	case "llama":
		err = v.sentencePiece()
	default:
		err = fmt.Errorf("the kind %q is not known; gpt2 and llama are", v.model)
	}
	for key, to := range map[string]*bool{"add_bos_token": &v.begin, "add_eos_token": &v.end, "add_space_prefix": &v.prefix} {
		if value, ok := meta[of+key].(bool); ok {
			*to = value
		}
	}
	if _, ok := v.special["bos"]; err == nil && v.begin && !ok {
		err = errors.New("texts begin with a token (add_bos_token), but none is named")
	}
	if _, ok := v.special["eos"]; err == nil && !ok {
		err = errors.New("no token is named that ends a text (eos_token_id)")
	}
	return v, err
}

func (v *vocabulary) readSpecial(meta map[string]any) error {
	for _, name := range []string{"bos", "eos", "unknown", "padding", "eot", "eom"} {
		id, ok := meta["tokenizer.ggml."+name+"_token_id"].(uint64)
		if !ok {
			continue
		}
		if id >= uint64(len(v.tokens)) {
			return fmt.Errorf("%s_token_id is %d of %d tokens", name, id, len(v.tokens))
		}
		v.special[name] = int(id)
	}
	return nil
}

func (v *vocabulary) byteLevel(pre string, merges any) error {
	var ok bool
	if v.pattern, ok = patterns[pre]; !ok {
		return fmt.Errorf("its way to cut texts, %q (tokenizer.ggml.pre), is not known; known are %s", pre, strings.Join(slices.Sorted(maps.Keys(patterns)), ", "))
	}
	v.begin = v.pattern.begin
	lines, _ := merges.([]string)
	if len(lines) == 0 {
		return errors.New("it has no merges")
	}
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || left == "" || right == "" {
			return fmt.Errorf("merge %d, %q, is not two tokens", i+1, line)
		}
		v.merges = append(v.merges, [2]string{left, right})
	}
	return nil
}

// sentencePiece computes merges from scores: two neighbours are joined to the
// token of the highest score, which is the merge of the lowest rank.
func (v *vocabulary) sentencePiece() error {
	v.begin, v.prefix = true, true
	if len(v.scores) != len(v.tokens) {
		return fmt.Errorf("%d tokens have %d scores", len(v.tokens), len(v.scores))
	}
	order := make([]int, 0, len(v.tokens))
	for i, kind := range v.kinds {
		if math.IsNaN(v.scores[i]) {
			return fmt.Errorf("the score of the token %d is no number", i)
		}
		if kind == normal {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case v.scores[a] > v.scores[b]:
			return -1
		case v.scores[a] < v.scores[b]:
			return 1
		}
		return 0
	})
	for _, id := range order {
		v.merges = append(v.merges, v.halves(v.tokens[id])...)
	}
	return nil
}

// halves are the pairs of tokens that a token can be joined of.
func (v *vocabulary) halves(token string) [][2]string {
	var out [][2]string
	for at := range token {
		left, right := token[:at], token[at:]
		if at > 0 && v.joins(left) && v.joins(right) {
			out = append(out, [2]string{left, right})
		}
	}
	return out
}

func (v *vocabulary) joins(token string) bool {
	id, ok := v.ids[token]
	return ok && v.kinds[id] == normal
}

// bosID is null where there is none.
func (v *vocabulary) bosID() any {
	if id, ok := v.special["bos"]; ok {
		return id
	}
	return nil
}

// ends are the ids that end a text: one, or a list.
func (v *vocabulary) ends() any {
	ids := []int{v.special["eos"]}
	add := func(id int, ok bool) {
		if ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, name := range []string{"eot", "eom"} {
		id, ok := v.special[name]
		add(id, ok)
	}
	for _, token := range turnEnds {
		id, ok := v.ids[token]
		add(id, ok && v.kinds[id] == control)
	}
	if len(ids) == 1 {
		return ids[0]
	}
	return ids
}

type object = map[string]any

// files are what stands beside the weights: for texts, and how they end.
func (v *vocabulary) files(context int64) map[string]any {
	generation := object{"eos_token_id": v.ends()}
	settings := object{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context, "clean_up_tokenization_spaces": false}
	for name, key := range map[string]string{"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"} {
		id, ok := v.special[name]
		if !ok {
			continue
		}
		settings[key] = v.tokens[id]
		if name == "bos" || name == "padding" {
			generation[key+"_id"] = id
		}
	}
	if v.chat != "" {
		settings["chat_template"] = v.chat
	}
	return map[string]any{"tokenizer.json": v.tokenizer(), "tokenizer_config.json": settings, "generation_config.json": generation}
}

// tokenizer is the tokenizer.json.
func (v *vocabulary) tokenizer() object {
	model := object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": v.pattern.ignoreMerges, "vocab": v.ids, "merges": v.merges,
	}
	t := object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": v.added(),
		"normalizer": nil, "pre_tokenizer": nil, "post_processor": v.around(), "decoder": nil, "model": model,
	}
	if v.model == "gpt2" {
		t["pre_tokenizer"], t["decoder"] = v.pattern.steps(), byteLevel(true)
		if v.pattern.compose {
			t["normalizer"] = object{"type": "NFC"}
		}
		return t
	}
	const space = "\u2581"
	model["fuse_unk"], model["byte_fallback"] = true, slices.Contains(v.kinds, byteToken)
	if id, ok := v.special["unknown"]; ok {
		model["unk_token"] = v.tokens[id]
	}
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	t["normalizer"] = replace(" ", space)
	decoder := []object{replace(space, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if v.prefix {
		t["normalizer"] = object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": space}, replace(" ", space)}}
		decoder = append(decoder, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	t["decoder"] = object{"type": "Sequence", "decoders": decoder}
	return t
}

func byteLevel(regex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

// steps is the pre-tokenizer.
func (p pattern) steps() object {
	first := object{"type": "Digits", "individual_digits": true}
	switch {
	case p.regex != "":
		first = object{"type": "Split", "pattern": object{"Regex": p.regex}, "behavior": "Isolated", "invert": false}
	case !p.digits:
		return byteLevel(true)
	}
	return object{"type": "Sequence", "pretokenizers": []object{first, byteLevel(p.regex == "")}}
}

// added lists the tokens that are found in a text before anything else.
func (v *vocabulary) added() []object {
	out := []object{}
	for id, kind := range v.kinds {
		if kind != control && kind != userDefined && kind != unknown || v.tokens[id] == "" {
			continue
		}
		out = append(out, object{
			"id": id, "content": v.tokens[id], "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": kind != userDefined,
		})
	}
	return out
}

// around puts the tokens that begin and end a text; nil where there are none.
func (v *vocabulary) around() any {
	if !v.begin && !v.end {
		return nil
	}
	special := object{}
	mark := func(on bool, name string, kind int) []object {
		if !on {
			return nil
		}
		token := v.tokens[v.special[name]]
		special[token] = object{"id": token, "ids": []int{v.special[name]}, "tokens": []string{token}}
		return []object{{"SpecialToken": object{"id": token, "type_id": kind}}}
	}
	text := func(name string, kind int) []object {
		return slices.Concat(mark(v.begin, "bos", kind), []object{{"Sequence": object{"id": name, "type_id": kind}}}, mark(v.end, "eos", kind))
	}
	return object{"type": "TemplateProcessing", "single": text("A", 0), "pair": append(text("A", 0), text("B", 1)...), "special_tokens": special}
}
