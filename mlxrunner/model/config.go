package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"payload/mlx/quant"
	"payload/mlxrunner/nn"
)

// ConfigName is the file that says what a checkpoint is.
const ConfigName = "config.json"

// Config is a config.json. An architecture decodes the rest of it.
type Config struct {
	ModelType string
	Quant     quant.Config
	Positions int   // max_position_embeddings; 0 where it is not said
	Vocab     int   // vocab_size
	EOS       []int // eos_token_id

	path string
	keys map[string]json.RawMessage
	part *Part // of which these are; nil for the whole
}

// IDs is a token id or a list of them, as JSON has both. null is none.
type IDs []int

// UnmarshalJSON reads either form.
func (ids *IDs) UnmarshalJSON(text []byte) error {
	var one int
	if bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return nil
	}
	if json.Unmarshal(text, &one) == nil {
		*ids = IDs{one}
		return nil
	}
	return json.Unmarshal(text, (*[]int)(ids))
}

// ReadConfig reads the config.json of a folder.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the model's config: %w", err)
	}
	c := &Config{path: path}
	if err := json.Unmarshal(text, &c.keys); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var kind struct {
		ModelType string `json:"model_type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if c.ModelType = kind.ModelType; c.ModelType == "" {
		return nil, fmt.Errorf("reading %s: it has no model_type", path)
	}
	if c.Quant, err = quant.Read(text); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := c.focus(); err != nil {
		return nil, err
	}
	var head struct {
		Positions int `json:"max_position_embeddings"`
		Vocab     int `json:"vocab_size"`
		EOS       IDs `json:"eos_token_id"`
	}
	if err := c.decode(&head); err != nil {
		return nil, err
	}
	c.Positions, c.Vocab, c.EOS = head.Positions, head.Vocab, head.EOS
	return c, nil
}

// decode reads the keys that into has fields for.
func (c *Config) decode(into any) error {
	text, err := json.Marshal(c.keys)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.path, err)
	}
	return nil
}

// unread is the error of a key that nobody reads.
func (c *Config) unread(key string) error {
	return fmt.Errorf("reading %s: the key %q = %s is not read by the architecture %q and may change the result",
		c.path, key, shorten(c.keys[key]), c.ModelType)
}

// harmless are keys that say nothing of how logits are computed from tokens:
// where the checkpoint comes from, how it was trained, how text is made of it.
var harmless = map[string]bool{
	"_name_or_path": true, "architectures": true, "model_type": true, "auto_map": true,
	"transformers_version": true, "transformers.js_config": true, "torch_dtype": true, "dtype": true,
	"quantization": true, "quantization_config": true, // read by mlx/quant
	"bos_token_id": true, "eos_token_id": true, "pad_token_id": true, "unk_token_id": true,
	"initializer_range": true, "use_cache": true, "attention_dropout": true, "hidden_dropout": true,
	"resid_pdrop": true, "residual_dropout": true, "embd_pdrop": true, "output_router_logits": true, "router_aux_loss_coef": true,
	"pretraining_tp":          true,                     // how a matrix is cut for several devices
	"max_position_embeddings": true, "vocab_size": true, // read for every model
	"is_llama_config": true, "_attn_implementation_autoset": true, "cache_implementation": true,
	"id2label": true, "label2id": true, "task_specific_params": true, "generation_config": true,
	"output_attentions": true, "output_hidden_states": true, "return_dict": true, "problem_type": true,
}

// Decode reads the config into the struct that into points to. Each key that
// the struct has no field for, that is not known to be harmless and that says
// something (not null, false, or empty) is an error: it may change the result.
func (c *Config) Decode(into any) error {
	if err := c.decode(into); err != nil {
		return err
	}
	read := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(into).Elem()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		read[name] = true
	}
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if !read[key] && !harmless[key] && says(c.keys[key]) {
			return c.unread(key)
		}
	}
	return nil
}

func says(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "", "null", "false", "[]", "{}", `""`:
		return false
	}
	return true
}

func shorten(value json.RawMessage) string {
	if len(value) > 60 {
		return string(value[:60]) + "…"
	}
	return string(value)
}

// need gives an error that names the first of the numbers that is not above 0.
func (c *Config) need(numbers map[string]int) error {
	for _, key := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[key] <= 0 {
			return fmt.Errorf("reading %s: %s is %d, or missing", c.path, key, numbers[key])
		}
	}
	return nil
}

// Fault gives an error about what the config says.
func (c *Config) Fault(format string, args ...any) error {
	return fmt.Errorf("reading %s: %w", c.path, fmt.Errorf(format, args...))
}

// Rope reads rotary positions, which stand under rope_parameters or, in older
// files, under rope_scaling and rope_theta. base is the architecture's own
// theta, where none is given.
func (c *Config) Rope(parameters, scaling json.RawMessage, theta *float64, base float64) (nn.RopeParams, error) {
	if theta != nil {
		base = *theta
	}
	if says(parameters) {
		if says(scaling) && !bytes.Equal(parameters, scaling) {
			return nn.RopeParams{}, c.Fault("both rope_parameters and rope_scaling are there, and differ")
		}
		scaling = parameters
	}
	p, err := nn.ParseRope(scaling, base, c.Positions)
	if err != nil {
		return p, c.Fault("%w", err)
	}
	return p, nil
}
