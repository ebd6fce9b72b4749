package generate

import (
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
	settings, err := tokenizer.LoadConfig(dir)
	if err != nil {
		return nil, err
	}
	if end := settings.Specials["eos_token"]; end != "" {
		id, ok := tok.ID(end)
		if !ok {
			return nil, fmt.Errorf("reading %s: the tokenizer lacks its eos_token %q", filepath.Join(dir, tokenizer.ConfigName), end)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
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
