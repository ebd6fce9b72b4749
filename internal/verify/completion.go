package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"

	"payload/internal/verify/tinymodel"
)

// completionChecks are the exchanges with a server that completes text, in
// order: cheap ones first, so that a broken server is told quickly.
var completionChecks = []check{
	{"the model's name", checkModels},
	{"tokens of texts", checkTokens},
	{"completions", checkCompletions},
	{"likeliest tokens", checkProbes},
	{"a repeated completion", checkRepeat},
	{"completions side by side", checkSideBySide},
	{"streamed completions", checkStreamedCompletion},
	{"chats", checkChats},
	{"streamed chats", checkStreamedChat},
}

// deviceChecks are those of the answers that depend on who computes. Streams
// and chats are the server's own work, which sessions on the CPU show: on a
// device that a processor imitates they would take minutes.
var deviceChecks = []check{
	{"the model's name", checkModels},
	{"completions", checkCompletions},
	{"likeliest tokens", checkProbes},
	{"a repeated completion", checkRepeat},
}

type timings struct {
	PromptN   int     `json:"prompt_n"`
	PromptTPS float64 `json:"prompt_per_second"`
	DecodeN   int     `json:"predicted_n"`
	DecodeTPS float64 `json:"predicted_per_second"`
}

type completionAnswer struct {
	Content      string   `json:"content"`
	Tokens       []int    `json:"tokens"`
	Stop         bool     `json:"stop"`
	StopType     string   `json:"stop_type"`
	PromptTokens int      `json:"tokens_evaluated"`
	Timings      *timings `json:"timings"`

	// Probabilities is there when asked for, one a token.
	Probabilities []struct {
		Top []struct {
			ID      int     `json:"id"`
			Logprob float64 `json:"logprob"` // natural
		} `json:"top_logprobs"`
	} `json:"completion_probabilities"`
}

type chatAnswer struct {
	Choices []struct {
		FinishReason *string           `json:"finish_reason"`
		Message      tinymodel.Message `json:"message"`
		Delta        tinymodel.Message `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
		PromptTokens     int `json:"prompt_tokens"`
	} `json:"usage"`
}

func completionBody(c tinymodel.Completion, stream bool) map[string]any {
	return map[string]any{
		"prompt": c.Prompt, "n_predict": c.NPredict, "temperature": 0,
		"cache_prompt": false, "return_tokens": true, "stream": stream,
	}
}

func (c *client) chatBody(chat tinymodel.Chat, stream bool) map[string]any {
	return map[string]any{
		"model": c.name, "messages": chat.Messages, "max_tokens": chat.MaxTokens, "temperature": 0,
		"cache_prompt": false, "stream": stream,
	}
}

// failed makes the problem of a request that gave no usable answer.
func failed(what string, err error) problem {
	id := "request.failed"
	var frame *frameError
	var refused *url.Error
	switch {
	case errors.Is(err, errStreamCut), errors.Is(err, io.ErrUnexpectedEOF):
		id = "stream.incomplete"
	case errors.Is(err, errStreamExtra):
		id = "stream.extra"
	case errors.As(err, &frame):
		id = "stream.error"
	}
	return problem{
		id: id, what: what, title: what + " failed", detail: err.Error(),
		gone: id == "stream.incomplete" || errors.As(err, &refused),
	}
}

func wrong(id, what string, got, want any) problem {
	return problem{id: id, what: what, title: what + ": not the expected answer", detail: fmt.Sprintf("got  %s\nwant %s", show(got), show(want))}
}

func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(data), 600)
}

// checkModels makes sure that the server that answers is the one that was
// started: the name is a random one.
func checkModels(ctx context.Context, c *client) []problem {
	const what = "GET /v1/models"
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.ask(ctx, "/v1/models", nil, &list); err != nil {
		return []problem{failed(what, err)}
	}
	for _, m := range list.Data {
		if m.ID == c.name {
			return nil
		}
	}
	return []problem{wrong("models.wrong", what, list.Data, c.name)}
}

func checkTokens(ctx context.Context, c *client) (bad []problem) {
	for _, t := range c.expected.Tokenize {
		what := fmt.Sprintf("POST /tokenize %q", clip(t.Text, 40))
		var tokens struct {
			Tokens []int `json:"tokens"`
		}
		if err := c.ask(ctx, "/tokenize", map[string]any{"content": t.Text, "add_special": false}, &tokens); err != nil {
			return append(bad, failed(what, err))
		}
		if !slices.Equal(tokens.Tokens, t.Tokens) {
			bad = append(bad, wrong("tokens.wrong", what, tokens.Tokens, t.Tokens))
		}
		what = fmt.Sprintf("POST /detokenize %q", clip(t.Text, 40))
		var text struct {
			Content string `json:"content"`
		}
		if err := c.ask(ctx, "/detokenize", map[string]any{"tokens": t.Tokens}, &text); err != nil {
			return append(bad, failed(what, err))
		}
		if text.Content != t.Text {
			bad = append(bad, wrong("tokens.wrong", what, text.Content, t.Text))
		}
	}
	return bad
}

func checkCompletions(ctx context.Context, c *client) (bad []problem) {
	for _, want := range c.expected.Completions {
		got, problems := c.complete(ctx, want)
		bad = append(bad, problems...)
		if got == nil {
			return bad
		}
		if got.Timings == nil {
			bad = append(bad, problem{
				id: "timings.missing", what: "POST /completion", title: "POST /completion tells no timings",
				detail: "tokens a second can't be told",
			})
			return bad
		}
		if t := got.Timings; t.PromptN > c.promptN {
			c.promptN, c.promptTPS = t.PromptN, t.PromptTPS
		}
		if t := got.Timings; t.DecodeN > c.decodeN {
			c.decodeN, c.decodeTPS = t.DecodeN, t.DecodeTPS
		}
	}
	return bad
}

// complete asks for one completion and compares all of it. The answer is nil
// when there was none.
func (c *client) complete(ctx context.Context, want tinymodel.Completion) (*completionAnswer, []problem) {
	what := "POST /completion " + want.Name
	var got completionAnswer
	if err := c.ask(ctx, "/completion", completionBody(want, false), &got); err != nil {
		return nil, []problem{failed(what, err)}
	}
	return &got, compareCompletion(what, got, want)
}

func compareCompletion(what string, got completionAnswer, want tinymodel.Completion) []problem {
	switch {
	case got.Content != want.Text:
		return []problem{wrong("text.wrong", what, got.Content, want.Text)}
	case !slices.Equal(withoutEnd(got.Tokens, want), withoutEnd(want.Tokens, want)):
		return []problem{wrong("text.wrong", what+" (tokens)", got.Tokens, want.Tokens)}
	case got.StopType != string(want.Stop):
		return []problem{wrong("stop.wrong", what+" (stop type)", got.StopType, want.Stop)}
	case got.PromptTokens != want.PromptTokens:
		return []problem{wrong("tokens.wrong", what+" (tokens of the prompt)", got.PromptTokens, want.PromptTokens)}
	}
	return nil
}

// withoutEnd drops the end token, which servers list or leave out.
func withoutEnd(tokens []int, want tinymodel.Completion) []int {
	if n := len(want.Tokens); want.Stop == tinymodel.StopEOS && len(tokens) == n && n > 0 && tokens[n-1] == want.Tokens[n-1] {
		return tokens[:n-1]
	}
	return tokens
}

// checkProbes compares how likely tokens are after texts that the model has
// not learnt. A text that was learnt by heart survives some wrong rows of a
// matrix; these numbers don't.
func checkProbes(ctx context.Context, c *client) (bad []problem) {
	for _, want := range c.expected.Probes {
		what := fmt.Sprintf("POST /completion with probabilities %q", clip(want.Prompt, 40))
		body := map[string]any{
			"prompt": want.Prompt, "n_predict": 1, "temperature": 0,
			"cache_prompt": false, "n_probs": probedTokens,
		}
		var got completionAnswer
		if err := c.ask(ctx, "/completion", body, &got); err != nil {
			return append(bad, failed(what, err))
		}
		said := map[int]float64{}
		if len(got.Probabilities) > 0 {
			for _, t := range got.Probabilities[0].Top {
				said[t.ID] = t.Logprob
			}
		}
		for _, t := range want.Top {
			logprob, there := said[t.Token]
			if off := math.Abs(logprob - t.Logprob); !there || off > want.Tolerance {
				bad = append(bad, problem{
					id: "logprobs.wrong", what: what, title: what + ": not the expected probabilities",
					detail: fmt.Sprintf("got  %v\nwant %v, each within %g", said, want.Top, want.Tolerance),
				})
				break
			}
		}
	}
	return bad
}

// probedTokens is how many of the likeliest tokens are asked for: enough that
// the expected ones are among them when every one is off by its tolerance.
const probedTokens = 32

// longest is the completion with the longest prompt.
func (c *client) longest() tinymodel.Completion {
	var best tinymodel.Completion
	for _, x := range c.expected.Completions {
		if x.PromptTokens > best.PromptTokens {
			best = x
		}
	}
	return best
}

// checkRepeat asks again for what was asked before: kept state must not change
// the answer.
func checkRepeat(ctx context.Context, c *client) []problem {
	_, bad := c.complete(ctx, c.longest())
	return alter(bad, " again", ", asked a second time")
}

func checkSideBySide(ctx context.Context, c *client) []problem {
	all := c.expected.Completions
	found := make([][]problem, min(4, len(all)))
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() { _, found[i] = c.complete(ctx, all[len(all)-1-i]) })
	}
	wg.Wait()
	return alter(slices.Concat(found...), " side by side", ", with others at the same time")
}

func alter(bad []problem, what, title string) []problem {
	for i := range bad {
		bad[i].what += what
		bad[i].title += title
	}
	return bad
}

func checkStreamedCompletion(ctx context.Context, c *client) []problem {
	want := c.longest()
	what := "POST /completion " + want.Name + " streamed"
	var all completionAnswer
	var text strings.Builder
	err := c.stream(ctx, "/completion", completionBody(want, true), false, func(data []byte) (bool, error) {
		var part completionAnswer
		if err := json.Unmarshal(data, &part); err != nil {
			return false, err
		}
		text.WriteString(part.Content)
		if part.Stop {
			tokens := all.Tokens
			all = part
			all.Tokens = tokens
			return true, nil
		}
		all.Tokens = append(all.Tokens, part.Tokens...)
		return false, nil
	})
	if err != nil {
		return []problem{failed(what, err)}
	}
	all.Content = text.String()
	all.Tokens = want.Tokens // how servers spread ids over events is their own affair
	return compareCompletion(what, all, want)
}

func checkChats(ctx context.Context, c *client) (bad []problem) {
	for _, want := range c.expected.Chats {
		what := "POST /v1/chat/completions " + want.Name
		var got chatAnswer
		if err := c.ask(ctx, "/v1/chat/completions", c.chatBody(want, false), &got); err != nil {
			return append(bad, failed(what, err))
		}
		if len(got.Choices) != 1 || got.Choices[0].FinishReason == nil || got.Usage == nil {
			bad = append(bad, wrong("text.wrong", what, got, want.Content))
			continue
		}
		bad = append(bad, compareChat(what, got.Choices[0].Message.Content, *got.Choices[0].FinishReason, want)...)
		if got.Usage.PromptTokens != want.PromptTokens {
			bad = append(bad, wrong("tokens.wrong", what+" (tokens of the prompt)", got.Usage.PromptTokens, want.PromptTokens))
		}
	}
	return bad
}

func compareChat(what, content, reason string, want tinymodel.Chat) []problem {
	switch {
	case content != want.Content:
		return []problem{wrong("text.wrong", what, content, want.Content)}
	case reason != want.FinishReason:
		return []problem{wrong("stop.wrong", what+" (finish reason)", reason, want.FinishReason)}
	}
	return nil
}

func checkStreamedChat(ctx context.Context, c *client) (bad []problem) {
	seen := map[string]bool{}
	for _, want := range c.expected.Chats {
		if seen[want.FinishReason] {
			continue // one of each end is enough: the texts have been compared
		}
		seen[want.FinishReason] = true
		what := "POST /v1/chat/completions " + want.Name + " streamed"
		var text strings.Builder
		reason := ""
		err := c.stream(ctx, "/v1/chat/completions", c.chatBody(want, true), true, func(data []byte) (bool, error) {
			var part chatAnswer
			if err := json.Unmarshal(data, &part); err != nil {
				return false, err
			}
			for _, choice := range part.Choices {
				text.WriteString(choice.Delta.Content)
				if choice.FinishReason != nil {
					reason = *choice.FinishReason
				}
			}
			return false, nil
		})
		if err != nil {
			return append(bad, failed(what, err))
		}
		bad = append(bad, compareChat(what, text.String(), reason, want)...)
	}
	return bad
}
