package generate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"payload/mlxrunner/model"
	"payload/mlxrunner/tokenizer"
)

// EndIDs unites the ids that end a text: those of config.json, of
// generation_config.json, and the tokenizer's. Checkpoints name different ones
// in different places, and each is meant. Sorted.
func EndIDs(dir string, config *model.Config, tok *tokenizer.Tokenizer) ([]int, error) {
	ids := slices.Clone(config.EOS)
	var generation struct {
		EOS model.IDs `json:"eos_token_id"`
	}
	if err := readIfThere(filepath.Join(dir, "generation_config.json"), &generation); err != nil {
		return nil, err
	}
	ids = append(ids, generation.EOS...)
	var settings struct {
		EOS token `json:"eos_token"`
	}
	path := filepath.Join(dir, "tokenizer_config.json")
	if err := readIfThere(path, &settings); err != nil {
		return nil, err
	}
	if settings.EOS != "" {
		id, ok := tok.ID(string(settings.EOS))
		if !ok {
			return nil, fmt.Errorf("reading %s: the tokenizer lacks its eos_token %q", path, string(settings.EOS))
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// token is the text of a special token, which stands alone or in an object.
type token string

func (t *token) UnmarshalJSON(text []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		err := json.Unmarshal(text, &object)
		*t = token(object.Content)
		return err
	}
	return json.Unmarshal(text, (*string)(t))
}

func readIfThere(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
