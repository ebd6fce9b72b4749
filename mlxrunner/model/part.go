package model

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"payload/mlx"
	"payload/mlx/quant"
)

// A Part is where a model of text lies in a checkpoint that holds more, and what
// of that more is passed over. Anything else is an error as ever.
type Part struct {
	Key      string            // its config, within config.json's object
	Defaults map[string]string // what that config leaves out, as JSON
	Beside   []string          // keys beside it that say nothing of text
	Prefix   string            // of its tensors
	Dropped  []string          // prefixes of tensors that are not loaded
}

// RegisterPart is Register for an architecture whose checkpoints hold more than
// the model of text.
func RegisterPart(modelType string, part Part, build Build) {
	Register(modelType, build)
	registry.Lock()
	defer registry.Unlock()
	registry.parts[modelType] = &part
}

func partOf(modelType string) *Part {
	registry.Lock()
	defer registry.Unlock()
	return registry.parts[modelType]
}

// wholes are keys that count where they stand beside a part's config, too.
var wholes = []string{"vocab_size", "eos_token_id", "tie_word_embeddings"}

// focus makes c the config of its part.
func (c *Config) focus() error {
	c.part = partOf(c.ModelType)
	if c.part == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if key != c.part.Key && !slices.Contains(c.part.Beside, key) && !slices.Contains(wholes, key) && !harmless[key] && says(c.keys[key]) {
			return c.unread(key)
		}
	}
	keys := map[string]json.RawMessage{}
	for key, value := range c.part.Defaults {
		keys[key] = json.RawMessage(value)
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(c.keys[c.part.Key], &own); err != nil || own == nil {
		return c.Fault("%s is missing, or no object", c.part.Key)
	}
	maps.Copy(keys, own)
	for _, key := range wholes {
		if says(c.keys[key]) {
			keys[key] = c.keys[key]
		}
	}
	c.keys = keys
	layers := map[string]*quant.Params{}
	for path, how := range c.Quant.Layers {
		layers[c.Bare(path)] = how
	}
	c.Quant.Layers = layers
	return nil
}

// Bare is a tensor's name within the model of text.
func (c *Config) Bare(name string) string {
	if c.part == nil {
		return name
	}
	return strings.TrimPrefix(name, c.part.Prefix)
}

// Dropped gives the prefix by which a tensor is not loaded, "" where it is.
func (c *Config) Dropped(name string) string {
	if c == nil || c.part == nil {
		return ""
	}
	for _, prefix := range c.part.Dropped {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// narrow leaves what the model of text has, by the names within it.
func (c *Config) narrow(all map[string]*mlx.Array) {
	if c.part == nil {
		return
	}
	for _, name := range slices.Collect(maps.Keys(all)) {
		a := all[name]
		switch bare := c.Bare(name); {
		case c.Dropped(name) != "":
			delete(all, name)
			a.Free()
		case bare != name:
			delete(all, name)
			all[bare] = a
		}
	}
}
