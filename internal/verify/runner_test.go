package verify

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"payload/internal/verify/tinymodel"
)

// runnerOf finds a question by its name.
func runnerOf(t *testing.T, name string) question {
	t.Helper()
	expected, err := tinymodel.Expected()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range runnerQuestions(expected) {
		if q.name == name {
			return q
		}
	}
	t.Fatalf("no question %s", name)
	return question{}
}

func TestRunnerAnswers(t *testing.T) {
	expected, err := tinymodel.Expected()
	if err != nil {
		t.Fatal(err)
	}
	c := expected.Completions[0]
	weights := int64(weightBytes * expected.Model.Parameters)
	finish := map[tinymodel.Stop]string{tinymodel.StopEOS: "stop", tinymodel.StopLimit: "length"}[c.Stop]
	right := runReport{
		Schema: "any.run/v1", Text: c.Text, Tokens: c.Tokens, Finish: finish, Prompt: c.PromptTokens, Generated: len(c.Tokens),
		Active: weights, Cache: 0, Peak: weights, Footprint: weights,
	}
	for name, tt := range map[string]struct {
		change func(*runReport)
		want   string
	}{
		"right":           {func(*runReport) {}, ""},
		"schema":          {func(r *runReport) { r.Schema = "any.show/v1" }, "its schema is"},
		"text":            {func(r *runReport) { r.Text += "!" }, "the text is"},
		"token":           {func(r *runReport) { r.Tokens = append([]int{0}, c.Tokens[1:]...) }, "the tokens are"},
		"a token less":    {func(r *runReport) { r.Tokens = c.Tokens[1:] }, "the tokens are"},
		"end":             {func(r *runReport) { r.Finish = "cut" }, "it ends by cut"},
		"prompt":          {func(r *runReport) { r.Prompt++ }, "it ends by"},
		"no weights":      {func(r *runReport) { r.Active-- }, "its memory can't be"},
		"peak too low":    {func(r *runReport) { r.Peak-- }, "its memory can't be"},
		"peak too high":   {func(r *runReport) { r.Peak = most + 1 }, "its memory can't be"},
		"negative pool":   {func(r *runReport) { r.Cache = -1 }, "its memory can't be"},
		"no footprint":    {func(r *runReport) { r.Footprint = 0 }, "its memory can't be"},
		"footprint grows": {func(r *runReport) { r.Footprint = most + 1 }, "its memory can't be"},
	} {
		t.Run(name, func(t *testing.T) {
			r := right
			tt.change(&r)
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{c.Name, c.Name + ", guessing"} {
				judged(t, runnerOf(t, q).judge(answer{stdout: string(text)}), tt.want)
			}
		})
	}
	q := runnerOf(t, c.Name)
	judged(t, q.judge(answer{stdout: "Segmentation fault"}), "it prints no JSON object")
	judged(t, q.judge(answer{err: errors.New("status 1")}), "status 1")
	if got := strings.Join(q.args, " "); !strings.HasPrefix(got, "run --json --model {model} --prompt "+c.Prompt) {
		t.Errorf("asked with %s", got)
	}
}

func TestRunnerChatsAndErrors(t *testing.T) {
	chat := runnerOf(t, "ready")
	judged(t, chat.judge(answer{stdout: `{"schema":"any.run/v1","text":"Ready."}`}), "")
	judged(t, chat.judge(answer{stdout: `{"schema":"any.run/v1","text":"Not yet."}`}), "the reply is")
	missing := runnerOf(t, "no model")
	judged(t, missing.judge(answer{stderr: "error: no such folder", err: errors.New("status 1")}), "")
	judged(t, missing.judge(answer{stdout: "{}"}), "is no error")
	judged(t, missing.judge(answer{err: errors.New("killed")}), "is no error")
}

func judged(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, not %q", err, want)
	}
}
