package chat_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"payload/mlxrunner/chat"
)

// templateOf is a template of the tiny tokenizer.
func templateOf(t *testing.T, source string) *chat.Template {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, chat.TemplateName), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	template, err := chat.Load(dir, tok(t))
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// joined puts parts of a kind together, but those of one call with those of another.
func joined(parts []chat.Part) (out []chat.Part) {
	for _, p := range parts {
		if last := len(out) - 1; last >= 0 && out[last].Kind == p.Kind && p.Name == "" {
			out[last].Text += p.Text
			continue
		}
		out = append(out, p)
	}
	return out
}

// What a model writes gives the same parts wherever it is split in two, and a
// byte at a time.
func TestTurns(t *testing.T) {
	const (
		harmony = "{# <|channel|> <|message|> #}"
		thinks  = "{# </think> #}"
	)
	say := func(text string) chat.Part { return chat.Part{Kind: chat.Content, Text: text} }
	think := func(text string) chat.Part { return chat.Part{Kind: chat.Reasoning, Text: text} }
	call := func(name, text string) chat.Part { return chat.Part{Kind: chat.Call, Text: text, Name: name} }
	const begun = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
	for _, c := range []struct {
		name, template, prompt, text string
		tools, done                  bool
		want                         []chat.Part
	}{
		{"plain", "", "", "a <think>b</think> <|channel|>c", false, false, []chat.Part{say("a <think>b</think> <|channel|>c")}},
		{"nothing", "", "", "", false, false, nil},

		{"thought", thinks, "", "<think>\nHm, <b>.\n</think>\n\nYes.\n", false, false, []chat.Part{think("Hm, <b>."), say("Yes.\n")}},
		{"thought, begun by the prompt", thinks, "<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\nYes.", false, false, []chat.Part{think("Hm."), say("Yes.")}},
		{"thought, ended by the prompt", thinks, "<think>\n\n</think>\n\n", "<think>Yes.", false, false, []chat.Part{say("<think>Yes.")}},
		{"no thought", thinks, "", "Yes.</think> <think>", false, false, []chat.Part{say("Yes.</think> <think>")}},
		{"what begins like one", thinks, "", " <thin ice", false, false, []chat.Part{say(" <thin ice")}},
		{"cut in its mark", thinks, "", "<thin", false, false, []chat.Part{say("<thin")}},
		{"cut in a thought", thinks, "", "<think>\nHm\n", false, false, []chat.Part{think("Hm")}},
		{"cut in its end", thinks, "", "<think>Hm</thi", false, false, []chat.Part{think("Hm</thi")}},
		{"Seed-OSS's thought", "{# </seed:think> #}", "", "<seed:think>Hm.</think></seed:think>\nYes.", false, false, []chat.Part{think("Hm.</think>"), say("Yes.")}},
		{"Mistral's thought", "{# [/THINK] #}", "", "[THINK]Hm.[/THINK]Yes.", false, false, []chat.Part{think("Hm."), say("Yes.")}},
		{"empty thought", thinks, "", "<think>\n\n</think>\n\nYes.", false, false, []chat.Part{say("Yes.")}},

		{"final", harmony, begun, "<|channel|>final<|message|>Yes.", false, false, []chat.Part{say("Yes.")}},
		{"analysis and final", harmony, begun, "<|channel|>analysis<|message|>Hm.\n\n2 < 3 <| 4<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>", false, true, []chat.Part{think("Hm.\n\n2 < 3 <| 4"), say("Yes.")}},
		{"constrained", harmony, begun, "<|channel|>final <|constrain|>json<|message|>{}<|return|>", false, true, []chat.Part{say("{}")}},
		{"two thoughts", harmony, begun, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>", false, false, []chat.Part{think("a\n\nb")}},
		{"preamble", harmony, begun, "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.sea_level <|constrain|>json<|message|>{\"at\": 1}<|call|>", true, true, []chat.Part{say("I look."), call("sea_level", `{"at": 1}`)}},
		{"recipient first", harmony, begun, " to=functions.a<|channel|>commentary json<|message|>{}<|call|>", true, true, []chat.Part{call("a", "{}")}},
		{"recipient first, later", harmony, begun, "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.a<|channel|>commentary json<|message|>{}<|call|>", true, true, []chat.Part{think("a"), call("a", "{}")}},
		{"code without a channel", harmony, begun, " to=functions.a code<|message|>{}<|call|>", true, true, []chat.Part{call("a", "{}")}},
		{"no arguments", harmony, begun, "<|channel|>commentary to=functions.a<|message|><|call|>", true, true, []chat.Part{call("a", "{}")}},
		{"two calls", harmony, begun, "<|channel|>commentary to=functions.a<|message|>{\"x\":1}<|end|><|start|>assistant<|channel|>commentary to=functions.b<|message|>{}<|call|>", true, true, []chat.Part{call("a", `{"x":1}`), call("b", "{}")}},
		{"cut in a call", harmony, begun, "<|channel|>commentary to=functions.a<|message|>{\"x\"", true, false, []chat.Part{call("a", `{"x"`)}},
		{"nobody's tool", harmony, begun, "<|channel|>analysis to=python code<|message|>1+1<|call|>", true, true, []chat.Part{think("1+1")}},
		{"a call without tools", harmony, begun, "<|channel|>commentary to=functions.a<|message|>{}<|call|>", false, true, []chat.Part{think("{}")}},
		{"no end of a message", harmony, begun, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b", false, false, []chat.Part{think("a"), say("b")}},
		{"another's turn", harmony, begun, "<|channel|>final<|message|>b<|end|><|start|>user<|message|>c", false, true, []chat.Part{say("b")}},
		{"no channel", harmony, begun, "<|message|>b<|return|>", false, true, []chat.Part{say("b")}},
		{"no header", harmony, begun, " Yes <|end|>more", false, false, []chat.Part{say(" Yes \n\nmore")}},
		{"cut in a header", harmony, begun, "<|channel|>fin", false, false, nil},
		{"after the end", harmony, begun, "<|channel|>final<|message|>b<|return|>c", false, true, []chat.Part{say("b")}},
		{"final, begun by the prompt", harmony, begun + "<|channel|>final<|message|>", "{}", false, false, []chat.Part{say("{}")}},
		{"call, begun by the prompt", harmony, begun + chat.Calling("a"), `{"x":1}`, true, false, []chat.Part{call("a", `{"x":1}`)}},
	} {
		template := templateOf(t, c.template)
		read := func(pieces ...string) []chat.Part {
			turn := template.Turn(c.prompt, c.tools)
			var out []chat.Part
			for _, piece := range pieces {
				out = append(out, turn.Push(piece)...)
			}
			out = append(out, turn.Flush()...)
			if turn.Done() != c.done {
				t.Errorf("%s, in %d pieces: done %v", c.name, len(pieces), turn.Done())
			}
			return joined(out)
		}
		var bytes []string
		for i := range len(c.text) {
			bytes = append(bytes, c.text[i:i+1])
			if got := read(c.text[:i], c.text[i:]); !slices.Equal(got, c.want) {
				t.Errorf("%s, split at %d: %+v, want %+v", c.name, i, got, c.want)
			}
		}
		if got := read(bytes...); !slices.Equal(got, c.want) {
			t.Errorf("%s, by bytes: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An answer is not held back longer than what may become a mark.
func TestTurnStreams(t *testing.T) {
	turn := templateOf(t, "{# <|channel|> <|message|> #}").Turn("<|start|>assistant", false)
	turn.Push("<|channel|>final<|message|>")
	if got := joined(turn.Push("The sea <|")); len(got) != 1 || got[0].Text != "The sea " {
		t.Errorf("%+v", got)
	}
}

// Whatever the model writes, in whatever pieces: marks in any order among them.
func TestTurnsAtRandom(t *testing.T) {
	words := []string{
		"<|start|>", "assistant", "user", "<|channel|>", "analysis", "final", "commentary", " to=functions.a", " to=b", " <|constrain|>json",
		"<|message|>", "<|end|>", "<|call|>", "<|return|>", "<think>", "</think>", "\n", "\n\n", " ", "<", "|>", "Hm", "{}", "é",
	}
	r := rand.New(rand.NewPCG(1, 2))
	templates := []*chat.Template{templateOf(t, "{# <|channel|> <|message|> #}"), templateOf(t, "{# </think> #}")}
	for range 3000 {
		var text string
		for range 1 + r.IntN(14) {
			text += words[r.IntN(len(words))]
		}
		for _, template := range templates {
			whole := template.Turn("", true)
			want := joined(slices.Concat(whole.Push(text), whole.Flush()))
			for range 4 {
				turn, rest := template.Turn("", true), text
				var got []chat.Part
				for rest != "" {
					n := 1 + r.IntN(len(rest))
					got = append(got, turn.Push(rest[:n])...)
					rest = rest[n:]
				}
				if got = joined(append(got, turn.Flush()...)); !slices.Equal(got, want) || turn.Done() != whole.Done() {
					t.Fatalf("%q: %+v, want %+v", text, got, want)
				}
			}
		}
	}
}
