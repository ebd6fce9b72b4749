// Package tinymodel embeds a language model of about half a megabyte that has
// memorised a short text, together with what it must say. An engine that
// computes correctly continues the text word for word; one with a faulty
// kernel, tokenizer or chat template does not.
//
// The folder safetensors beside this file holds the same weights for engines
// that read the Hugging Face layout. All files come from
// scripts/tinymodel/train.py.
package tinymodel

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// GGUF is the model file for llama.cpp: matrices in Q8_0, norms in F32.
// Callers must not change it.
//
//go:embed tiny.gguf
var GGUF []byte

//go:embed safetensors
var checkpoint embed.FS

// WriteCheckpoint writes the model in the Hugging Face layout to dir, which it
// makes.
func WriteCheckpoint(dir string) error {
	files, err := checkpoint.ReadDir("safetensors")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for _, f := range files {
		var data []byte
		if err == nil {
			data, err = checkpoint.ReadFile(path.Join("safetensors", f.Name()))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name()), data, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the tiny model to %s: %w", dir, err)
	}
	return nil
}

//go:embed expected.json
var expectedJSON []byte

// Expectations is what an engine must answer when it runs the model greedily,
// that is with temperature 0.
type Expectations struct {
	Model Model `json:"model"`
	// Margin is the least margin of all completions and chats.
	Margin      float64      `json:"margin"`
	Completions []Completion `json:"completions"`
	Chats       []Chat       `json:"chats"`
	Probes      []Probe      `json:"probes"`
	Tokenize    []Tokenize   `json:"tokenize"`
}

// Model describes the model that the expectations are for.
type Model struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	// GGUFSHA256 is the hex digest of GGUF.
	GGUFSHA256 string `json:"gguf_sha256"`
	// SafetensorsSHA256 is the hex digest of safetensors/model.safetensors.
	SafetensorsSHA256 string `json:"safetensors_sha256"`
	Parameters        int    `json:"parameters"`
	VocabSize         int    `json:"vocab_size"`
	ContextLength     int    `json:"context_length"`
	Layers            int    `json:"layers"`
	HiddenSize        int    `json:"hidden_size"`
	BOSToken          int    `json:"bos_token"`
	EOSToken          int    `json:"eos_token"`
}

// Stop tells why a completion ends.
type Stop string

// The two ways for a completion to end, in the words that llama-server uses
// for stop_type.
const (
	StopEOS   Stop = "eos"   // the model ended the text
	StopLimit Stop = "limit" // n_predict tokens were generated
)

// Completion is a prompt and its continuation.
type Completion struct {
	// Name is unique among the completions.
	Name   string `json:"name"`
	Prompt string `json:"prompt"`
	// PromptTokens counts the tokens of Prompt with the start token that the
	// engine puts before it.
	PromptTokens int `json:"prompt_tokens"`
	// NPredict is the token limit to ask for.
	NPredict int `json:"n_predict"`
	// Text is the continuation.
	Text string `json:"text"`
	// Tokens are the ids that are generated. Where Stop is StopEOS the last
	// one is the end token, which Text does not show.
	Tokens []int `json:"tokens"`
	Stop   Stop  `json:"stop"`
	// Margin is the least distance along the continuation between the logit
	// of the right token and that of the best other one.
	Margin float64 `json:"margin"`
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Chat is a chat and the reply to it.
type Chat struct {
	// Name is unique among the chats.
	Name     string    `json:"name"`
	Messages []Message `json:"messages"`
	// Prompt is the text that the chat template makes of Messages, with the
	// start token in front and the head of the reply at the end.
	Prompt string `json:"prompt"`
	// PromptTokens counts the tokens of Prompt.
	PromptTokens int `json:"prompt_tokens"`
	// MaxTokens is the token limit to ask for.
	MaxTokens int `json:"max_tokens"`
	// Content is the reply.
	Content string `json:"content"`
	// CompletionTokens counts the generated tokens, the end token included.
	CompletionTokens int `json:"completion_tokens"`
	// FinishReason is "stop" or "length", as in the OpenAI API.
	FinishReason string `json:"finish_reason"`
	// Margin is as in Completion.
	Margin float64 `json:"margin"`
}

// Probe is a text that the model has not learnt, with the probabilities of the
// token that follows. They show faults that are too small to change a word
// that the model is sure of.
type Probe struct {
	Prompt string `json:"prompt"`
	// PromptTokens counts the tokens of Prompt with the start token.
	PromptTokens int `json:"prompt_tokens"`
	// Top holds the likeliest tokens, the likeliest first.
	Top []TokenLogprob `json:"top"`
	// Tolerance is how far each logarithm may be off in an engine that rounds
	// activations to 8 bits or computes in float16.
	Tolerance float64 `json:"tolerance"`
}

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob struct {
	Token   int     `json:"token"`
	Logprob float64 `json:"logprob"`
}

// Tokenize is a text and its token ids, without a start token.
type Tokenize struct {
	Text   string `json:"text"`
	Tokens []int  `json:"tokens"`
}

// Expected returns what the model must answer.
func Expected() (Expectations, error) {
	var e Expectations
	dec := json.NewDecoder(bytes.NewReader(expectedJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return Expectations{}, fmt.Errorf("reading the expectations of the tiny model: %w", err)
	}
	return e, nil
}
