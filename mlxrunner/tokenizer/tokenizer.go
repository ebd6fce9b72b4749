// Package tokenizer turns text into token ids and back, as a tokenizer.json of
// the Hugging Face layout says: byte-pair encoding, unigram and wordpiece, with
// their normalisers, pre-tokenizers, post-processors and decoders. Ids are those
// of the reference library, whose steps and names it follows; a step that it
// does not know is an error at load, never left out.
//
// It holds no state between calls: one Tokenizer serves any number of
// goroutines. Chat templates are not its business.
package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// FileName is the file that a checkpoint's folder holds.
const FileName = "tokenizer.json"

// Tokenizer is a loaded tokenizer.json.
type Tokenizer struct {
	added     *added
	normalize normalizer   // nil: none
	split     preTokenizer // nil: none
	model     model
	post      postProcessor // nil: none
	decoder   decoder       // nil: tokens are joined by spaces
}

// model is one of the three ways from a piece of text to ids.
type model interface {
	encode(piece string, ids []int) ([]int, error)
	id(token string) (int, bool)
	token(id int) (string, bool)
	size() int
}

// Load reads the tokenizer.json of a checkpoint's folder.
func Load(dir string) (*Tokenizer, error) {
	path := filepath.Join(dir, FileName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a tokenizer: %w", err)
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return t, nil
}

// Parse reads the text of a tokenizer.json.
func Parse(text []byte) (*Tokenizer, error) {
	// Truncation and padding are a caller's business.
	doc, model, err := document(text)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, errors.New("it is not UTF-8")
	}
	t := &Tokenizer{}
	if t.normalize, err = newNormalizer(doc["normalizer"]); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.split, err = newPreTokenizer(doc["pre_tokenizer"]); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.model, err = newModel(model); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if t.decoder, err = newDecoder(doc["decoder"]); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	var list []addedToken
	if doc["added_tokens"] != nil {
		if list, err = read[[]addedToken](doc["added_tokens"]); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
	}
	if t.added, err = newAdded(list, t.model, t.normalize); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if t.post, err = newPostProcessor(doc["post_processor"], t); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	return t, nil
}

// piece is a stretch of text on its way to ids: text still, or, where an added
// token stood, its id.
type piece struct {
	text  string
	id    int  // of an added token, when it is one
	token bool // whether it is one
	first bool // whether it begins where the whole text begins
}

// Encode turns text into ids. With special, what the post-processor adds is
// there too: a token at the beginning, for most models. Added tokens are found
// wherever the text spells them. Bytes that are not UTF-8 are read as U+FFFD,
// one for each maximal part of a character.
func (t *Tokenizer) Encode(text string, special bool) ([]int, error) {
	pieces := t.added.cut([]piece{{text: Valid(text), first: true}}, t.normalize)
	if t.split != nil {
		var err error
		if pieces, err = splitEach(pieces, t.split); err != nil {
			return nil, fmt.Errorf("tokenizing: %w", err)
		}
	}
	var ids []int
	for _, p := range pieces {
		if p.token {
			ids = append(ids, p.id)
			continue
		}
		var err error
		if ids, err = t.model.encode(p.text, ids); err != nil {
			return nil, fmt.Errorf("tokenizing %.40q: %w", p.text, err)
		}
	}
	if special && t.post != nil {
		ids = t.post.process(ids)
	}
	return ids, nil
}

// Decode turns ids into text; with skip, special tokens are left out. Ids that
// the vocabulary lacks give nothing. What is no UTF-8 becomes U+FFFD.
func (t *Tokenizer) Decode(ids []int, skip bool) string {
	return Valid(strings.Join(t.decode(t.tokens(ids, skip), false), ""))
}

func (t *Tokenizer) tokens(ids []int, skip bool) []string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		token, ok := t.Token(id)
		if ok && (!skip || !t.added.special[id]) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// decode applies the decoder; with raw, bytes that are no UTF-8 are kept.
func (t *Tokenizer) decode(tokens []string, raw bool) []string {
	if t.decoder == nil {
		return []string{strings.Join(tokens, " ")}
	}
	return t.decoder.decode(tokens, raw)
}

// ID is the id of a token as the vocabulary or the added tokens spell it.
func (t *Tokenizer) ID(token string) (int, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	return t.model.id(token)
}

// Token is the spelling of an id in the vocabulary: not what it decodes to.
func (t *Tokenizer) Token(id int) (string, bool) {
	if token, ok := t.added.tokens[id]; ok {
		return token, true
	}
	return t.model.token(id)
}

// Adds is what an id adds to a text that has begun: the space before a word
// too, and not always whole characters. A special token's is its spelling.
func (t *Tokenizer) Adds(id int) string {
	// A decoder may treat the first token of a text as no other.
	once := strings.Join(t.decode(t.tokens([]int{id}, false), true), "")
	twice := strings.Join(t.decode(t.tokens([]int{id, id}, false), true), "")
	return twice[min(len(once), len(twice)):]
}

// Special says whether an id is a special token: one that Decode can leave out.
func (t *Tokenizer) Special(id int) bool { return t.added.special[id] }

// Size is one more than the highest id.
func (t *Tokenizer) Size() int {
	size := t.model.size()
	for id := range t.added.tokens {
		size = max(size, id+1)
	}
	return size
}

// kind reads the type of a step; a missing or null step has none.
func kind(text json.RawMessage) (string, error) {
	if len(text) == 0 || string(text) == "null" {
		return "", nil
	}
	var typed struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &typed); err != nil {
		return "", err
	}
	if typed.Type == "" {
		return "", errors.New("it has no type")
	}
	return typed.Type, nil
}

// read decodes a step's own keys into a new T.
func read[T any](text json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(text, &v)
	return v, err
}

// list reads each member of a Sequence by the constructor of its kind.
func list[T any](members []json.RawMessage, construct func(json.RawMessage) (T, error)) ([]T, error) {
	var all []T
	for i, text := range members {
		one, err := construct(text)
		if err != nil {
			return nil, fmt.Errorf("%d of its sequence: %w", i+1, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func unknown(kind string) error { return fmt.Errorf("type %q is not supported", kind) }
