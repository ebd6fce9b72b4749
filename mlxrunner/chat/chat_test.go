package chat_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/mlxrunner/chat"
	"payload/mlxrunner/tokenizer"
)

const tiny = "../../internal/verify/tinymodel"

func tok(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	k, err := tokenizer.Load(filepath.Join(tiny, "safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The tiny model's conversations become the prompts that llama-server made.
func TestPromptsOfLlamaServer(t *testing.T) {
	k := tok(t)
	template, err := chat.Load(filepath.Join(tiny, "safetensors"), k)
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Chats []struct {
			Name, Prompt string
			Messages     []chat.Message
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	text, err := os.ReadFile(filepath.Join(tiny, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Chats) == 0 {
		t.Fatal("no chats")
	}
	for _, c := range expected.Chats {
		messages, err := json.Marshal(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := template.Render(messages, chat.Options{}); err != nil || got != c.Prompt {
			t.Errorf("%s: %q, %v; want %q", c.Name, got, err, c.Prompt)
		}
		ids, _, err := template.Begin(c.Messages, chat.Options{})
		if err != nil || len(ids) != c.PromptTokens || ids[0] != 0 || ids[1] == 0 {
			t.Errorf("%s: tokens %v, %v; want %d with one <|bos|>", c.Name, ids, err, c.PromptTokens)
		}
	}
}

// A template may stand in several places and write the first token or not.
func TestPlaces(t *testing.T) {
	k := tok(t)
	const said = `{{ messages[0].content }}{{ eos_token }}`
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		fault string
	}{
		"text":       {files: map[string]string{tokenizer.ConfigName: `{"chat_template": ` + quoted(said) + `, "eos_token": "<|im_end|>"}`}, want: "hi<|im_end|>"},
		"object":     {files: map[string]string{tokenizer.ConfigName: `{"chat_template": ` + quoted(said) + `, "eos_token": {"content": "<|im_end|>"}}`}, want: "hi<|im_end|>"},
		"named":      {files: map[string]string{tokenizer.ConfigName: `{"chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]}`}, want: "yes"},
		"own file":   {files: map[string]string{tokenizer.ConfigName: `{"chat_template": "no"}`, chat.TemplateName: "yes"}, want: "yes"},
		"no default": {files: map[string]string{tokenizer.ConfigName: `{"chat_template": [{"name": "rag", "template": "no"}]}`}, fault: "rag, none of them default"},
		"null":       {files: map[string]string{tokenizer.ConfigName: `{"chat_template": null}`}, fault: "no chat template"},
		"nothing":    {files: map[string]string{}, fault: "no chat template"},
		"number":     {files: map[string]string{tokenizer.ConfigName: `{"chat_template": 3}`}, fault: "neither a text nor a list"},
		"broken":     {files: map[string]string{chat.TemplateName: "{% if %}"}, fault: "reading the chat template"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			template, err := chat.Load(dir, k)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("error %v, want %q", err, c.fault)
				}
				if strings.Contains(c.fault, "no chat") && !errors.Is(err, chat.ErrNoTemplate) {
					t.Errorf("%v is not ErrNoTemplate", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := template.Render(json.RawMessage(`[{"role": "user", "content": "hi"}]`), chat.Options{})
			if err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestOneBeginning(t *testing.T) {
	k := tok(t)
	for _, source := range []string{"", "<|bos|>", "<|bos|><|bos|>"} {
		dir := t.TempDir()
		config := `{"bos_token": "<|bos|>", "chat_template": "` + source + `hi"}`
		if err := os.WriteFile(filepath.Join(dir, tokenizer.ConfigName), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		template, err := chat.Load(dir, k)
		if err != nil {
			t.Fatal(err)
		}
		ids, _, err := template.Begin(nil, chat.Options{})
		if err != nil || len(ids) < 2 || ids[0] != 0 || ids[1] == 0 {
			t.Errorf("%q: %v, %v", source, ids, err)
		}
	}
}
