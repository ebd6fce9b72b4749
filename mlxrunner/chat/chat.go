// Package chat makes a model's prompt of a conversation, by the template that
// its checkpoint carries, and tells reasoning and answer apart in the turn that
// follows. It knows where templates stand and what they are given;
// mlxrunner/jinja renders them.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payload/mlxrunner/jinja"
	"payload/mlxrunner/tokenizer"
)

// TemplateName is the file that may hold a template; it goes before the one in
// tokenizer_config.json.
const TemplateName = "chat_template.jinja"

// ErrNoTemplate says that a checkpoint has no template: it was not made for
// conversations, and a guess would give bad answers that look fine.
var ErrNoTemplate = errors.New("the checkpoint has no chat template (" + TemplateName + ", or chat_template in " + tokenizer.ConfigName + ")")

// Message is one turn.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Template is a checkpoint's template. It may be used by several goroutines.
type Template struct {
	tok      *tokenizer.Tokenizer
	path     string
	parsed   *jinja.Template
	source   string          // of tools, where there is one, else of parsed
	tools    *jinja.Template // for conversations with tools, where there is one of its own
	specials map[string]string
	bos      int // -1 where the tokenizer begins texts with none
}

// Load reads the template of a folder. The error is ErrNoTemplate where there
// is none.
func Load(dir string, tok *tokenizer.Tokenizer) (*Template, error) {
	config, err := tokenizer.LoadConfig(dir)
	if err != nil {
		return nil, err
	}
	t := &Template{tok: tok, bos: -1, path: filepath.Join(dir, tokenizer.ConfigName), specials: config.Specials}
	named, err := sources(dir, config.ChatTemplate)
	if err != nil {
		return nil, err
	}
	if _, own := named[""]; own {
		t.path = filepath.Join(dir, TemplateName)
	}
	source, ok := first(named, "", "default")
	if !ok && len(named) > 0 {
		return nil, fmt.Errorf("reading %s: it names the chat templates %s, none of them default", t.path, strings.Join(slices.Sorted(maps.Keys(named)), ", "))
	}
	if !ok {
		return nil, fmt.Errorf("reading %s: %w", dir, ErrNoTemplate)
	}
	if t.parsed, err = jinja.Parse(source); err != nil {
		return nil, fmt.Errorf("reading the chat template of %s: %w", t.path, err)
	}
	t.source = source
	if source, ok := named["tool_use"]; ok {
		t.source = source
		if t.tools, err = jinja.Parse(source); err != nil {
			return nil, fmt.Errorf("reading the chat template tool_use of %s: %w", t.path, err)
		}
	}
	return t, t.findBOS()
}

// sources gives templates by their names; one in a file of its own has none.
func sources(dir string, value json.RawMessage) (map[string]string, error) {
	named := map[string]string{}
	text, err := os.ReadFile(filepath.Join(dir, TemplateName))
	if err == nil {
		named[""] = string(text)
		return named, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the chat template: %w", err)
	}
	if len(value) == 0 || string(value) == "null" {
		return named, nil
	}
	var one string
	if json.Unmarshal(value, &one) == nil {
		named["default"] = one
		return named, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, fmt.Errorf("reading chat_template of %s: it is neither a text nor a list of named ones: %w", filepath.Join(dir, tokenizer.ConfigName), err)
	}
	for _, entry := range list {
		named[entry.Name] = entry.Template
	}
	return named, nil
}

func first(named map[string]string, names ...string) (string, bool) {
	for _, name := range names {
		if source, ok := named[name]; ok {
			return source, true
		}
	}
	return "", false
}

// findBOS sees whether the tokenizer begins every text with bos_token.
func (t *Template) findBOS() error {
	bos := t.specials["bos_token"]
	if bos == "" {
		return nil
	}
	id, ok := t.tok.ID(bos)
	if !ok {
		return fmt.Errorf("reading %s: the tokenizer lacks its bos_token %q", tokenizer.ConfigName, bos)
	}
	added, err := t.tok.Encode("", true)
	if err != nil {
		return err
	}
	if len(added) > 0 && added[0] == id {
		t.bos = id
	}
	return nil
}

// Reserved are the names of what a template is given in any case.
var Reserved = []string{"messages", "tools", "documents", "add_generation_prompt"}

// Options are what a conversation has besides its messages.
type Options struct {
	Tools json.RawMessage // a JSON array of declarations; nil for none
	Clock time.Time       // what the template takes for now; the zero time is time.Now
	// Settings are what the template reads beside the messages, by name.
	Settings map[string]json.RawMessage
	// Direct makes the model's turn go on with its answer, without reasoning.
	Direct bool
	// Unanswered leaves out the beginning of the model's turn.
	Unanswered bool
}

// Render gives the text of a conversation: a JSON array of messages with role
// and content, and whatever else the template reads of them.
func (t *Template) Render(messages json.RawMessage, o Options) (string, error) {
	names := jinja.NewDict()
	for _, name := range slices.Sorted(maps.Keys(t.specials)) {
		names.Set(name, t.specials[name])
	}
	turns, err := jinja.FromJSON(messages)
	if err != nil {
		return "", fmt.Errorf("reading the messages: %w", err)
	}
	settings := map[string]json.RawMessage{}
	maps.Copy(settings, o.Settings)
	if o.Direct {
		maps.Copy(settings, t.Thoughtless())
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value, err := jinja.FromJSON(settings[name])
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", name, err)
		}
		names.Set(name, value)
	}
	names.Set("messages", turns)
	names.Set("add_generation_prompt", !o.Unanswered)
	names.Set("documents", nil)
	names.Set("tools", nil)
	template := t.parsed
	if len(o.Tools) > 0 {
		tools, err := jinja.FromJSON(o.Tools)
		if err != nil {
			return "", fmt.Errorf("reading the tools: %w", err)
		}
		names.Set("tools", tools)
		if t.tools != nil {
			template = t.tools
		}
	}
	if o.Clock.IsZero() {
		o.Clock = time.Now()
	}
	text, err := template.Render(names, o.Clock)
	if err != nil {
		return "", fmt.Errorf("rendering the checkpoint's chat template: %w", err) // no path: clients are told
	}
	if o.Direct {
		text += t.answer(text)
	}
	return text, nil
}

// Encode gives the ids of a rendered conversation. Where the tokenizer begins
// texts with a token, there is exactly one, whether the template writes it,
// writes it twice, or leaves it out. Nothing is added at the end: the model's
// turn goes on there.
func (t *Template) Encode(text string) ([]int, error) {
	ids, err := t.tok.Encode(text, false)
	if err != nil || t.bos < 0 {
		return ids, err
	}
	for len(ids) > 0 && ids[0] == t.bos {
		ids = ids[1:]
	}
	return append([]int{t.bos}, ids...), nil
}

// Begin renders and encodes messages, and gives what reads the turn that follows.
func (t *Template) Begin(messages []Message, o Options) ([]int, *Turn, error) {
	text, err := json.Marshal(messages)
	if err != nil {
		return nil, nil, err
	}
	rendered, err := t.Render(text, o)
	if err != nil {
		return nil, nil, err
	}
	ids, err := t.Encode(rendered)
	return ids, t.Turn(rendered, len(o.Tools) > 0), err
}

// Mentions tells whether the template, the one for tools where that has a text
// of its own, contains a text.
func (t *Template) Mentions(text string) bool { return strings.Contains(t.source, text) }
