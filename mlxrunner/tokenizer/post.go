package tokenizer

import (
	"encoding/json"
	"fmt"
)

// postProcessor adds what a model wants around a text.
type postProcessor interface{ process(ids []int) []int }

// around puts ids before and after.
type around struct{ before, after []int }

func (a around) process(ids []int) []int {
	out := make([]int, 0, len(a.before)+len(ids)+len(a.after))
	out = append(out, a.before...)
	out = append(out, ids...)
	return append(out, a.after...)
}

type postProcessors []postProcessor

func (all postProcessors) process(ids []int) []int {
	for _, p := range all {
		ids = p.process(ids)
	}
	return ids
}

func newPostProcessor(text json.RawMessage, t *Tokenizer) (postProcessor, error) {
	name, err := kind(text)
	if err != nil || name == "" {
		return nil, err
	}
	switch name {
	case "Sequence":
		s, err := read[struct{ Processors []json.RawMessage }](text)
		if err != nil {
			return nil, err
		}
		all, err := list(s.Processors, func(text json.RawMessage) (postProcessor, error) { return newPostProcessor(text, t) })
		return postProcessors(all), err
	case "ByteLevel": // moves offsets alone
		return around{}, nil
	case "BertProcessing", "RobertaProcessing":
		s, err := read[struct{ Sep, Cls named }](text)
		return around{[]int{s.Cls.id}, []int{s.Sep.id}}, err
	case "TemplateProcessing":
		return newTemplate(text)
	}
	return nil, unknown(name)
}

// named is a token and its id: ["[CLS]", 101].
type named struct {
	token string
	id    int
}

func (n *named) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&n.token, &n.id})
}

// newTemplate reads the template for one text: special tokens around it.
func newTemplate(text json.RawMessage) (postProcessor, error) {
	s, err := read[struct {
		Single []struct {
			Special  *struct{ ID string } `json:"SpecialToken"`
			Sequence *struct{ ID string }
		}
		Tokens map[string]struct{ IDs []int } `json:"special_tokens"`
	}](text)
	if err != nil {
		return nil, err
	}
	var a around
	texts := 0
	for _, one := range s.Single {
		switch {
		case one.Sequence != nil && one.Sequence.ID == "A":
			texts++
		case one.Special != nil:
			token, ok := s.Tokens[one.Special.ID]
			if !ok {
				return nil, fmt.Errorf("special token %q is not in special_tokens", one.Special.ID)
			}
			if texts == 0 {
				a.before = append(a.before, token.IDs...)
			} else {
				a.after = append(a.after, token.IDs...)
			}
		default:
			return nil, fmt.Errorf("the template for one text has a part that is neither a special token nor that text")
		}
	}
	if texts != 1 {
		return nil, fmt.Errorf("the template for one text holds it %d times", texts)
	}
	return a, nil
}
