package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/manifest"
	"payload/internal/run"
	"payload/internal/verify/tinymodel"
)

// Answers is what a program says for itself, to be held against what another
// build of it says. Names that differ at every start are replaced: {name} is
// the model's, {home} the temporary folder.
type Answers struct {
	Help string
	JSON map[string]any    // answer to a GET, by endpoint
	Raw  map[string]string // a streamed answer as it came, by endpoint
	Log  []string          // lines of a start and of these requests
}

// asking is what Ask asks a kind of program.
type asking struct {
	help    []string // arguments
	gets    []string
	streams []streamed
}

type streamed struct {
	path string
	body func(c *client, e tinymodel.Expectations) any
}

var askings = map[string]asking{
	"completion-server": {
		help: []string{"--help"},
		gets: []string{"/props", "/v1/models", "/health"},
		streams: []streamed{
			{"/completion", func(_ *client, e tinymodel.Expectations) any { return completionBody(e.Completions[0], true) }},
			{"/v1/chat/completions", func(c *client, e tinymodel.Expectations) any { return c.chatBody(e.Chats[0], true) }},
		},
	},
}

// NotAskableError is a payload that holds no program that could be asked.
type NotAskableError struct{ Dir, Why string }

func (e *NotAskableError) Error() string {
	return fmt.Sprintf("asking the program in %s: %s", e.Dir, e.Why)
}

// Ask starts the program of the payload in dir with the tiny model, on
// 127.0.0.1, and asks it for its help, its properties, its models and streams.
// The payload isn't judged. A payload without a program, or with one for another
// machine, gives *NotAskableError.
func Ask(ctx context.Context, dir string) (Answers, error) {
	answers := Answers{JSON: map[string]any{}, Raw: map[string]string{}}
	o, built, err := askable(dir)
	if err != nil {
		return answers, err
	}
	expected, err := tinymodel.Expected()
	if err != nil {
		return answers, err
	}
	temp, err := os.MkdirTemp("", "payload-ask-")
	if err != nil {
		return answers, fmt.Errorf("asking %s: %w", o.Program, err)
	}
	defer removeTemp(temp)
	s := &sessions{kind: kinds[o.Kind], options: o, limits: defaultLimits, expected: expected, res: &Result{}}
	if s.temp, err = filepath.EvalSymlinks(temp); err != nil {
		return answers, fmt.Errorf("asking %s: %w", o.Program, err)
	}
	if err := os.WriteFile(filepath.Join(s.temp, modelFile), tinymodel.GGUF, 0o600); err != nil {
		return answers, fmt.Errorf("asking %s: %w", o.Program, err)
	}
	what := askings[o.Kind]
	out, err := s.once(ctx, o.Dir, what.help, nil, "")
	var exit *run.ExitError
	if err != nil && !errors.As(err, &exit) {
		return answers, err
	}
	answers.Help = out.String()
	l, err := s.launch(o.Dir)
	if err != nil {
		return answers, err
	}
	srv, err := start(ctx, l)
	if err != nil {
		if srv != nil {
			err = fmt.Errorf("%w\n%s", err, srv.log.last(logLines, s.kind.noise))
		}
		return answers, fmt.Errorf("asking %s: %w", o.Program, err)
	}
	defer func() { _ = srv.stop() }() // a second stop does nothing
	c := newClient(srv.base, srv.name, expected, s.limits.request)
	neutral := strings.NewReplacer(append(built, srv.name, "{name}", s.temp, "{home}", strings.TrimPrefix(srv.base, "http://"), "{address}", o.Dir, "{payload}")...)
	for _, path := range what.gets {
		answer, err := c.text(ctx, path, nil)
		if err != nil {
			return answers, fmt.Errorf("asking %s for %s: %w", o.Program, path, err)
		}
		var value any
		if err := json.Unmarshal([]byte(neutral.Replace(answer)), &value); err != nil {
			return answers, fmt.Errorf("asking %s for %s: decoding the answer: %w", o.Program, path, err)
		}
		answers.JSON["GET "+path] = value
	}
	for _, st := range what.streams {
		answer, err := c.text(ctx, st.path, st.body(c, expected))
		if err != nil {
			return answers, fmt.Errorf("asking %s for a stream of %s: %w", o.Program, st.path, err)
		}
		answers.Raw["POST "+st.path] = neutral.Replace(answer)
	}
	if err := srv.stop(); err != nil {
		return answers, fmt.Errorf("stopping %s: %w", o.Program, err)
	}
	for _, line := range srv.log.lines() {
		answers.Log = append(answers.Log, neutral.Replace(line))
	}
	return answers, nil
}

// askable says from the manifest what to start, and what names the sources that
// it was built from, with what stands for them.
func askable(dir string) (o Options, built []string, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return o, nil, fmt.Errorf("asking the program in %s: %w", dir, err)
	}
	m, err := manifest.Read(abs)
	if err != nil {
		return o, nil, &NotAskableError{Dir: dir, Why: err.Error()}
	}
	for _, c := range m.Components {
		if _, ok := askings[c.Verify]; !ok || c.Program == "" {
			continue
		}
		o = Options{Dir: abs, Kind: c.Verify, Program: c.Program}
		s := &sessions{options: o, files: m.Files}
		if why := s.foreign(filepath.Join(abs, filepath.FromSlash(c.Program))); why != "" {
			return o, nil, &NotAskableError{Dir: dir, Why: why}
		}
		if c.Ref != "" {
			built = append(built, c.Ref, "{ref}")
		}
		for _, digits := range []int{40, 9, 7} { // whole, and as git abbreviates
			if len(c.Commit) >= digits {
				built = append(built, c.Commit[:digits], "{commit}")
			}
		}
		if c.Build > 0 {
			built = append(built, fmt.Sprintf("build %d", c.Build), "build {build}")
		}
		return o, built, nil
	}
	return o, nil, &NotAskableError{Dir: dir, Why: "its " + manifest.Name + " names no program that can be asked"}
}

// text sends body (nil means GET) and gives the answer as it came.
func (c *client) text(ctx context.Context, path string, body any) (string, error) {
	resp, err := c.open(ctx, path, body)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return string(data), nil
}
