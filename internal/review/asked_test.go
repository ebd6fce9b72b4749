package review

import (
	"testing"

	"payload/internal/config"
	"payload/internal/report"
	"payload/internal/verify"
)

// said is one program, started twice; only what is drawn by lot differs.
func said(help, props, stream string, log ...string) *Answers {
	var a Answers
	for i := range a {
		a[i] = verify.Answers{
			Help: help, Raw: map[string]string{"POST /v1/chat": stream},
			JSON: map[string]any{"GET /props": map[string]any{"n_ctx": float64(len(props)), "id": float64(i), "path": props}},
			Log:  log,
		}
	}
	return &a
}

func asked(t *testing.T, old, new *Answers) []report.Finding {
	t.Helper()
	rule := config.Rule{ID: "server.log-line", Category: "server", Find: "logs", Patterns: map[string]string{"ready": `listening on .+`}, PatternLines: map[string]int{"ready": 9}}
	r := &reviewer{in: Input{Asked: [2]*Answers{old, new}, Component: config.Component{Watch: &config.Watch{}}}, ours: &ours{}, plans: []*plan{{rule: rule}}}
	r.asked()
	rank(r.findings)
	return r.findings
}

const (
	oldHelp = "----- common -----\n\n" +
		"-h,    --help                   print usage and exit\n" +
		"-c,    --ctx-size N             size of the context (default: 4096)\n                                (env: TOY_CTX)\n" +
		"--mlock                         keep it in memory\n" +
		"-fa,   --flash-attn             enable it\n"
	newHelp = "----- common -----\n\n" +
		"-fa,   --flash-attn [on|off]    enable it\n" +
		"-h,    --help                   print usage\n                                and exit\n" +
		"-c,    --ctx-size N             size of the context (default: 0)\n                                (env: TOY_CTX)\n" +
		"--jsonl                         log as JSON\n"
	oldStream = "data: {\"content\":\"a\"}\n\ndata: {\"content\":\"b\"}\n\ndata: [DONE]\n\n"
	newStream = ": ping\n\ndata: {\"content\":\"a\",\"timings\":{\"n\":1}}\n\ndata: {\"content\":\"c\",\"timings\":{\"n\":2}}\n\ndata: [DONE]\n\n"
)

func TestAskedPrograms(t *testing.T) {
	found := asked(t,
		said(oldHelp, "abc", oldStream, "0.01 I loaded in 12 ms", "0.02 I listening on http://x:1", "0.03 I odd"),
		said(newHelp, "abcd", newStream, "0.09 I loaded in 9 ms", "0.02 I serving at http://x:1", "0.03 I odd"))
	want := `error server run.log-line-removed: the running program does not log "ready" any more <- payload.yaml:9
warning server run.flag-default-changed: default of flag in the help --ctx-size, -c: 4096 → 0
warning server run.flag-takes-value: flag in the help --flash-attn, -fa now takes a value: [on|off]
warning server run.flag-removed: flag in the help --mlock removed
warning server run.key-value-changed: value of answered key n_ctx of GET /props: 3 → 4
warning server run.key-value-changed: value of answered key path of GET /props: abc → abcd
note server run.flag-added: flag in the help --jsonl added
note server run.log-removed: 1 lines of a start and some requests are not logged any more
note server run.log-added: 1 lines of a start and some requests are new
note streaming run.frame-added: streamed part a comment: ping of POST /v1/chat added
note streaming run.frame-added: streamed part timings.n of POST /v1/chat added
note streaming run.stream-changed: the stream of POST /v1/chat has other lines for the same request
`
	if got := lines(found); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The same program, and one whose help is only in another order, say nothing.
func TestAskedTheSame(t *testing.T) {
	a := said(oldHelp, "abc", oldStream, "0.01 I loaded in 12 ms", "0.02 I listening on http://x:1")
	b := said(oldHelp, "abc", oldStream, "0.07 I listening on http://x:2", "0.01 I loaded in 8 ms")
	b[1].Log = append(b[1].Log, "seen at one start only")
	if found := asked(t, a, b); len(found) != 0 {
		t.Errorf("%s", lines(found))
	}
}
