package server

import (
	"encoding/json"
	"net/http"

	"payload/mlxrunner/tokenizer"
)

// health answers GET /health: 200 while requests are taken.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	running, waiting := s.gate.counts()
	status, word := http.StatusOK, "ok"
	if s.stopping.Load() {
		status, word = http.StatusServiceUnavailable, "stopping"
	}
	writeJSON(w, status, struct {
		Status  string `json:"status"`
		Model   string `json:"model"`
		Running int    `json:"running"`
		Waiting int    `json:"waiting"`
	}{word, s.Model.Name, running, waiting})
	return nil
}

type modelEntry struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Context int    `json:"max_model_len"`
}

func (m *Model) entry() modelEntry {
	return modelEntry{m.Name, "model", m.Loaded.Unix(), "mlxrunner", m.Context}
}

// models answers GET /v1/models.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, struct {
		Object string       `json:"object"`
		Data   []modelEntry `json:"data"`
	}{"list", []modelEntry{s.Model.entry()}})
	return nil
}

// oneModel answers GET /v1/models/NAME.
func (s *Server) oneModel(w http.ResponseWriter, r *http.Request) error {
	if id := r.PathValue("id"); id != s.Model.Name {
		return noModel(id)
	}
	writeJSON(w, http.StatusOK, s.Model.entry())
	return nil
}

// show answers GET /v1/show: what is in the checkpoint.
func (s *Server) show(w http.ResponseWriter, _ *http.Request) error {
	c, err := Show(s.Model.Dir)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}

// tokenize answers POST /v1/tokenize: the ids of a prompt, or of messages as
// a conversation gives them to the model.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r, s.BodyLimit)
	if err != nil {
		return err
	}
	ids, err := s.readTokenize(f)
	if err != nil {
		return err
	}
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		tokens = append(tokens, tokenizer.Valid(s.Model.Tok.Adds(id)))
	}
	if ids == nil {
		ids = []int{}
	}
	writeJSON(w, http.StatusOK, struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		Tokens  []int    `json:"tokens"`
		Texts   []string `json:"token_strs"`
	}{len(ids), s.Model.Context, ids, tokens})
	return nil
}

func (s *Server) readTokenize(f *fields) ([]int, error) {
	f.model(s.Model)
	if f.values["messages"] != nil {
		messages, tools, settings := f.messages(), f.tools(s.Model), f.settings(s.Model)
		if err := f.done(); err != nil {
			return nil, err
		}
		ids, _, err := s.Model.converse(messages, tools, settings, tools.forced())
		return ids, err
	}
	var text string
	if value := f.raw("prompt"); value == nil || json.Unmarshal(value, &text) != nil {
		f.refuse("prompt", "want a text, or messages")
	}
	special := f.flag("add_special_tokens", true)
	if err := f.done(); err != nil {
		return nil, err
	}
	return s.Model.Tok.Encode(text, special)
}

// detokenize answers POST /v1/detokenize: the text of ids.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r, s.BodyLimit)
	if err != nil {
		return err
	}
	f.model(s.Model)
	ids := take(f, "tokens", "a list of token ids", []int(nil))
	skip := f.flag("skip_special_tokens", false)
	for _, id := range ids {
		if id < 0 || id >= s.Model.Vocab {
			f.refuse("tokens", "token %d: the model has tokens 0 to %d", id, s.Model.Vocab-1)
			break
		}
	}
	if err := f.done(); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{s.Model.Tok.Decode(ids, skip)})
	return nil
}
