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
	Tools      []Tool   // what the preset needs on the machine; those of "sdk" come last
	ReadBy     []string // variables that the project reads only on other machines
	Machine    Machine
	Cross      *Cross // how to build it on another system; nil where that can't be done
}

// Machine is what a preset can be built on, beside its condition: presets of
// CMake can't ask for an architecture.
type Machine struct {
	Name string   `json:"name"` // in words: "a Mac with Apple silicon"
	Arch []string `json:"arch"` // as Go names them; empty for any
}

// Cross is how a preset is built on a system that it is not for.
type Cross struct {
	System    string `json:"system"`    // that the preset is for, in Go's words
	Toolchain string `json:"toolchain"` // as payload.yaml names it
	File      string `json:"file"`      // CMake's toolchain file, relative to the project
	Tools     []Tool `json:"tools"`     // what the preset needs then, in place of its own
}

// Tool is a program that a preset needs.
type Tool struct {
	Name  string `json:"name"`
	Min   string `json:"min"`   // lowest version that will do; empty for any
	Below string `json:"below"` // the first version that is too new; empty for none
	// Optional is for what building does without.
	Optional bool `json:"optional"`
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
	var sdk []Tool // a key of its own, so that a preset inherits the compilers and adds what its backend needs
	known := map[string]any{
		"components": &v.Components,
		"targets":    &v.Targets,
		"backends":   &v.Backends,
		"tools":      &v.Tools,
		"sdk":        &sdk,
		"read":       &v.ReadBy,
		"machine":    &v.Machine,
		"cross":      &v.Cross,
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
	v.Tools = append(v.Tools, sdk...)
	return v, nil
}
