package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ConfigName is the file that says how a checkpoint's text is begun, ended and
// made into conversations.
const ConfigName = "tokenizer_config.json"

// Config is what a tokenizer_config.json says besides the tokenizer itself.
type Config struct {
	Specials     map[string]string // bos_token, eos_token, …: their texts
	ChatTemplate json.RawMessage   // a text, a list of named ones, or nothing
}

// LoadConfig reads the tokenizer_config.json of a folder; it is empty where
// there is none.
func LoadConfig(dir string) (Config, error) {
	c := Config{Specials: map[string]string{}}
	path := filepath.Join(dir, ConfigName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	keys := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(text, &keys)
	}
	if err != nil {
		return c, fmt.Errorf("reading %s: %w", path, err)
	}
	c.ChatTemplate = keys["chat_template"]
	for name, value := range keys {
		if text := special(value); strings.HasSuffix(name, "_token") && text != "" {
			c.Specials[name] = text
		}
	}
	return c, nil
}

// special gives the text of a token, which stands alone or in an object; ""
// for anything else (null, or a setting such as add_bos_token).
func special(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(value, &object) != nil {
		return ""
	}
	return object.Content
}
