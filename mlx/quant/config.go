package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Config is what a config.json says. The zero value quantises nothing.
type Config struct {
	Default Params
	// Layers differ from Default; nil is a layer that is not quantised. Keys are
	// module paths: model.layers.0.mlp.down_proj.
	Layers map[string]*Params
}

// None says whether nothing is quantised.
func (c Config) None() bool { return c.Default == Params{} }

// For is how the layer at a module's path is quantised, false for not at all.
func (c Config) For(path string) (Params, bool) {
	if c.None() {
		return Params{}, false
	}
	if own, ok := c.Layers[path]; ok {
		if own == nil {
			return Params{}, false
		}
		return *own, true
	}
	return c.Default, true
}

// settings is the form of a set of parameters. Without a mode it is affine, at
// the top as in a layer, whatever the top says: so does the reference.
type settings struct {
	Group *int  `json:"group_size"`
	Bits  *int  `json:"bits"`
	Mode  *Mode `json:"mode"`
}

func (s settings) params() (Params, error) {
	p := Params{Mode: Affine}
	if s.Mode != nil {
		p.Mode = *s.Mode
	}
	if known, ok := allowed[p.Mode]; ok {
		p.Bits, p.Group = known.bits[0], known.groups[0]
	}
	if s.Bits != nil {
		p.Bits = *s.Bits
	}
	if s.Group != nil {
		p.Group = *s.Group
	}
	return p, p.Check()
}

// The keys of config.json. MLX reads the first; Hugging Face's tools the
// second, where a method names formats of other makers.
const (
	key       = "quantization"
	legacyKey = "quantization_config"
)

// Read takes the settings from the text of a config.json. A method that MLX
// has no kernels for is an error that names it, never left out.
func Read(config []byte) (Config, error) {
	top := map[string]json.RawMessage{}
	if err := json.Unmarshal(config, &top); err != nil {
		return Config{}, fmt.Errorf("reading config.json: %w", err)
	}
	for _, k := range []string{key, legacyKey} {
		text, ok := top[k]
		if !ok || bytes.Equal(text, []byte("null")) {
			continue
		}
		c, err := read(text)
		if err != nil {
			return Config{}, fmt.Errorf("reading %s of config.json: %w", k, err)
		}
		return c, nil
	}
	return Config{}, nil
}

// general are the keys that are not a layer's path.
var general = []string{"group_size", "bits", "mode", "quant_method", "modules_to_not_convert"}

func read(text []byte) (Config, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return Config{}, err
	}
	var top settings
	if err := json.Unmarshal(text, &top); err != nil {
		return Config{}, err
	}
	if top.Mode == nil {
		mode, err := method(fields["quant_method"])
		if err != nil {
			return Config{}, err
		}
		top.Mode = &mode
	}
	if *top.Mode == Affine && (top.Bits == nil || top.Group == nil) {
		return Config{}, errors.New("affine needs bits and group_size")
	}
	c := Config{}
	var err error
	if c.Default, err = top.params(); err != nil {
		return Config{}, err
	}
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(general, path) {
			continue
		}
		own, err := layer(fields[path], c.Default)
		if err != nil {
			return Config{}, fmt.Errorf("%s: %w", path, err)
		}
		c.set(path, own)
	}
	var plain []string
	if text, ok := fields["modules_to_not_convert"]; ok {
		if err := json.Unmarshal(text, &plain); err != nil {
			return Config{}, fmt.Errorf("modules_to_not_convert: %w", err)
		}
	}
	for _, path := range plain {
		c.set(path, nil)
	}
	return c, nil
}

func (c *Config) set(path string, p *Params) {
	if c.Layers == nil {
		c.Layers = map[string]*Params{}
	}
	c.Layers[path] = p
}

// method maps the methods of other makers that are one of MLX's modes.
func method(text json.RawMessage) (Mode, error) {
	if text == nil {
		return Affine, nil
	}
	var name string
	if err := json.Unmarshal(text, &name); err != nil {
		return "", fmt.Errorf("quant_method: %w", err)
	}
	if mode := Mode(name); mode == MXFP4 || mode == MXFP8 {
		return mode, nil
	}
	return "", fmt.Errorf("quant_method %q is not supported; convert the checkpoint to one of affine, mxfp4, mxfp8, nvfp4", name)
}

// layer reads one layer's entry: an object, or true for the default and false
// for not quantised. Nil is not quantised.
func layer(text json.RawMessage, otherwise Params) (*Params, error) {
	var yes bool
	if json.Unmarshal(text, &yes) == nil {
		if !yes {
			return nil, nil
		}
		return &otherwise, nil
	}
	var own settings
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&own); err != nil {
		return nil, err
	}
	p, err := own.params()
	if err != nil {
		return nil, err
	}
	return &p, nil
}

// Write puts c into the text of a config.json, under both keys, as the
// reference converter does; with nothing quantised both are taken out. The
// other keys keep their values; keys are sorted, four spaces indent.
func Write(config []byte, c Config) ([]byte, error) {
	top := map[string]json.RawMessage{}
	if err := json.Unmarshal(config, &top); err != nil {
		return nil, fmt.Errorf("reading config.json: %w", err)
	}
	delete(top, key)
	delete(top, legacyKey)
	if !c.None() {
		text, err := json.Marshal(c.fields())
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", key, err)
		}
		top[key], top[legacyKey] = text, text
	}
	out, err := json.MarshalIndent(top, "", "    ")
	if err != nil {
		return nil, fmt.Errorf("writing config.json: %w", err)
	}
	return append(out, '\n'), nil
}

func (c Config) fields() map[string]any {
	fields := map[string]any{"group_size": c.Default.Group, "bits": c.Default.Bits, "mode": c.Default.Mode}
	for path, own := range c.Layers {
		if own == nil {
			fields[path] = false
			continue
		}
		fields[path] = map[string]any{"group_size": own.Group, "bits": own.Bits, "mode": own.Mode}
	}
	return fields
}
