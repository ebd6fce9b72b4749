package cmakerun

import (
	"encoding/json"
	"fmt"
)

// Vendor is what presets say to this tool, under "vendor": {"payload": {…}}.
// Each key is inherited on its own. Other keys are somebody else's and passed
// over.
type Vendor struct {
	Components []string // install components that are staged
	Targets    []string // what is compiled; empty means everything
	Backends   []string // what a running payload must show
	Tools      []Tool   // what the preset needs on the machine
	ReadBy     []string // variables that the project reads only on other machines
}

// Tool is a program that a preset needs.
type Tool struct {
	Name string `json:"name"`
	Min  string `json:"min"` // lowest version that will do; empty for any
}

// payloadOf gives the keys of one preset's own payload data.
func payloadOf(raw *rawPreset) (map[string]json.RawMessage, error) {
	text, ok := raw.Vendor["payload"]
	if !ok {
		return nil, nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, fmt.Errorf("vendor payload of %q: %w", raw.Name, plainTypeError(err))
	}
	return keys, nil
}

func decodeVendor(keys map[string]json.RawMessage) (Vendor, error) {
	var v Vendor
	known := map[string]any{
		"components": &v.Components,
		"targets":    &v.Targets,
		"backends":   &v.Backends,
		"tools":      &v.Tools,
		"read":       &v.ReadBy,
	}
	for key, text := range keys {
		into, ok := known[key]
		if !ok {
			continue
		}
		if err := json.Unmarshal(text, into); err != nil {
			return v, fmt.Errorf("vendor payload %s: %w", key, plainTypeError(err))
		}
	}
	return v, nil
}
