package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"payload/mlx/mlxtest"
	"payload/mlxrunner/chat"
	"payload/mlxrunner/server"
	"payload/mlxrunner/tokenizer"
)

const (
	tiny     = "../../internal/verify/tinymodel/safetensors"
	tinyGGUF = "../../internal/verify/tinymodel/tiny.gguf"
)

func mlxrunner(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(args, strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

func TestRun(t *testing.T) {
	mlxtest.Library(t)
	code, out, err := mlxrunner("", "run", "--model", tiny, "--prompt", "The harbour of Senn wakes", "--max-tokens", "12")
	if code != exitDone || out != " before the sun. Fir\n" || !strings.Contains(err, "(length)") {
		t.Errorf("%d, %q, %s", code, out, err)
	}
}

// An interrupter is a stdout whose reader interrupts at the first text.
type interrupter struct {
	bytes.Buffer
	once sync.Once
}

func (i *interrupter) Write(b []byte) (int, error) {
	i.once.Do(func() {
		self, err := os.FindProcess(os.Getpid())
		if err != nil || self.Signal(os.Interrupt) != nil {
			panic("can't interrupt")
		}
		time.Sleep(50 * time.Millisecond) // until it is here
	})
	return i.Buffer.Write(b)
}

// A text that is interrupted ends its line, so that the error has its own.
func TestInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process can't interrupt itself there")
	}
	mlxtest.Library(t)
	for _, args := range [][]string{{"--prompt", "The harbour"}, nil} {
		var out interrupter
		var told bytes.Buffer
		code := Main(append([]string{"run", "--model", tiny}, args...), strings.NewReader("Hello!\n"), &out, &told)
		if text := out.String(); code != exitInterrupted || len(text) < 2 || len(text) > 20 || !strings.HasSuffix(text, "\n") ||
			!strings.HasPrefix(told.String(), "error: generating, after ") {
			t.Errorf("%d, %q, %s", code, text, told.String())
		}
	}
}

// A stuck stdout takes nothing, as a chunk of a prompt that takes long does not
// look at its context.
type stuck struct{}

func (stuck) Write([]byte) (int, error) {
	fmt.Fprintln(os.Stderr, "stuck")
	select {}
}

// A second signal ends the process at once, whatever it is about.
func TestInterruptedTwice(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process can't be interrupted there")
	}
	mlxtest.Library(t)
	switch os.Getenv("MLXRUNNER_TEST_STUCK") {
	case "text":
		os.Exit(Main([]string{"run", "--model", tiny, "--prompt", "The harbour"}, strings.NewReader(""), stuck{}, os.Stderr)) //nolint:forbidigo // as main does
	case "answer":
		root := newRootCmd(&app{stdin: strings.NewReader("Hello!\n"), stdout: stuck{}, voice: &voice{w: os.Stderr, terminal: true}})
		root.SetArgs([]string{"run", "--model", tiny})
		t.Fatal(root.ExecuteContext(t.Context()))
	}
	for _, what := range []string{"text", "answer"} {
		interruptTwice(t, what)
	}
}

func interruptTwice(t *testing.T, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestInterruptedTwice$")
	self.Env = append(os.Environ(), "MLXRUNNER_TEST_STUCK="+what)
	told, err := self.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(told); lines.Scan() && !strings.HasSuffix(lines.Text(), "stuck"); {
		t.Log(lines.Text())
	}
	sent := 0
	ended := make(chan struct{})
	go func() { _ = self.Wait(); close(ended) }()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tick.C:
			if sent++; self.Process.Signal(os.Interrupt) == nil {
				continue
			}
			<-ended
		case <-ended:
		}
		break
	}
	if code := self.ProcessState.ExitCode(); code != exitInterrupted || sent < 2 || sent > 100 {
		t.Errorf("%s: exit code %d after %d signals", what, code, sent)
	}
}

// On a terminal an interrupt ends an answer, and the conversation goes on.
func TestInterruptedAnswer(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process can't interrupt itself there")
	}
	mlxtest.Library(t)
	var out interrupter
	var told bytes.Buffer
	root := newRootCmd(&app{stdin: strings.NewReader("Hello!\nHello!\n"), stdout: &out, voice: &voice{w: &told, terminal: true}})
	root.SetArgs([]string{"run", "--model", tiny})
	err := root.ExecuteContext(t.Context())
	first, second, _ := strings.Cut(out.String(), "\n")
	if err != nil || len(first) < 1 || len(first) > 20 || !strings.HasSuffix(second, "\n") || len(second) < 2 || strings.Count(told.String(), "tokens") != 2 {
		t.Errorf("%v, %q, %q", err, out.String(), told.String())
	}
}

// The object's keys are a contract.
func TestRunJSON(t *testing.T) {
	mlxtest.Library(t)
	for _, extra := range [][]string{nil, {"--lookup", "4"}, {"--draft", tiny, "--draft-tokens", "3"}, {"--kv-bits", "8", "--memory-budget", "64MiB"}} {
		code, out, err := mlxrunner("", append([]string{"run", "--model", tiny, "--prompt", "Hello!", "--chat", "--json"}, extra...)...)
		if code != exitDone || err != "" {
			t.Fatalf("%d, %s, %s", code, out, err)
		}
		var keys map[string]any
		if err := json.Unmarshal([]byte(out), &keys); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"accepted", "active_bytes", "cache_bytes", "decode_tps", "finish_reason", "first_token_ms", "footprint_bytes",
			"generated_tokens", "guessed", "load_ms", "peak_bytes", "prefill_tps", "prompt_tokens", "rounds", "schema", "text", "tokens",
		}
		if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
			t.Errorf("keys %v, want %v", got, want)
		}
		if !strings.HasPrefix(out, `{"schema":"mlxrunner.run/v1"`) || keys["text"] != "Hello. The ferry is on time today." ||
			keys["finish_reason"] != "stop" || keys["prompt_tokens"] != 13.0 || keys["generated_tokens"] != 16.0 ||
			keys["rounds"].(float64)+keys["accepted"].(float64) != 16 || keys["active_bytes"].(float64) < 1148672 || keys["footprint_bytes"] == 0.0 {
			t.Errorf("%s", out)
		}
	}
}

// Each line is answered with what was said before.
func TestConversation(t *testing.T) {
	mlxtest.Library(t)
	code, out, err := mlxrunner("Hello!\nWho are you?\n", "run", "--model", tiny, "--max-tokens", "40")
	lines := strings.Split(out, "\n")
	if code != exitDone || err != "" || len(lines) != 3 || lines[0] != "Hello. The ferry is on time today." || lines[1] == "" || lines[2] != "" {
		t.Errorf("%d, %q, %s", code, out, err)
	}
}

// A turn that ended is not written on, though no id says so.
func TestRunTurnEnds(t *testing.T) {
	mlxtest.Library(t)
	dir := marked(t, "{# <|channel|> <|message|> #}<|start|>assistant")
	var r runReport
	code, out, _ := mlxrunner("", "run", "--model", dir, "--prompt", "Hello!", "--chat", "--json", "--regex", `yes<\|return\|>( and no){30}`)
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone || r.Text != "yes" || r.FinishReason != "stop" || r.GeneratedTokens > 30 {
		t.Errorf("%d, %s, %v", code, out, err)
	}
}

// marked is the tiny model with a template that ends otherwise.
func marked(t *testing.T, end string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tiny)); err != nil {
		t.Fatal(err)
	}
	config, err := tokenizer.LoadConfig(tiny)
	if err != nil {
		t.Fatal(err)
	}
	var template string
	if err := json.Unmarshal(config.ChatTemplate, &template); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, chat.TemplateName), []byte(template+end), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What a model thinks is no part of its answer; a form is for that.
func TestRunReasoning(t *testing.T) {
	mlxtest.Library(t)
	dir := marked(t, "{# </think> #}<think>")
	var r runReport
	code, out, _ := mlxrunner("", "run", "--model", dir, "--prompt", "Hello!", "--chat", "--json", "--max-tokens", "8")
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone || r.Text != "" || len(r.Reasoning) < 5 {
		t.Errorf("%d, %s, %v", code, out, err)
	}
	code, out, _ = mlxrunner("", "run", "--model", dir, "--prompt", "Hello!", "--chat", "--max-tokens", "8")
	if code != exitDone || out != "\n" {
		t.Errorf("%d, %q", code, out)
	}
	code, out, _ = mlxrunner("", "run", "--model", dir, "--prompt", "Hello!", "--chat", "--regex", "(yes|no)")
	if code != exitDone || out != "yes\n" && out != "no\n" {
		t.Errorf("%d, %q", code, out)
	}
}

// A mistake in a command line hints at the help of its verb.
func TestUsageHints(t *testing.T) {
	for _, c := range []struct{ args, hint string }{
		{"serve", "mlxrunner serve --help"},
		{"serve --model x --port -1", "mlxrunner serve --help"},
		{"serve --model x --api-key-file " + os.DevNull, "mlxrunner serve --help"},
		{"run --model x --kv-bits 3", "mlxrunner run --help"},
		{"run --nothing", "mlxrunner run --help"},
		{"run --model x --draft-tokens 3", "mlxrunner run --help"},
		{"serve --model x --draft-tokens 3", "mlxrunner serve --help"},
		{"show", "mlxrunner show --help"},
		{"create a", "mlxrunner create --help"},
		{"create a b --quantize odd", "mlxrunner create --help"},
		{"--nothing", "mlxrunner --help"},
		{"srve", "mlxrunner --help"},
	} {
		code, _, err := mlxrunner("", strings.Fields(c.args)...)
		if c.args == "srve" && !strings.Contains(err, `there is no verb "srve"; serve is one`) {
			t.Error(err)
		}
		if want := "\nhint: " + c.hint + "\n"; code != exitUsage || !strings.HasSuffix(err, want) {
			t.Errorf("%q: %d, %q, want the hint %q", c.args, code, err, c.hint)
		}
	}
}

// What of a checkpoint is not loaded is told.
func TestShowDropped(t *testing.T) {
	dir := changed(t, "config.json", `"model_type": "llama"`, `"model_type": "gemma3", "text_config": {"hidden_size": 8}, "vision_config": {"hidden_size": 4}`)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(config, &keys); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(keys, func(key string, _ any) bool {
		return !slices.Contains([]string{"model_type", "text_config", "vision_config", "eos_token_id", "vocab_size"}, key)
	})
	if config, err = json.Marshal(keys); err != nil {
		t.Fatal(err)
	}
	header := `{"language_model.model.norm.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"vision_tower.a.weight":{"dtype":"F16","shape":[2,2],"data_offsets":[8,16]},"vision_tower.b.weight":{"dtype":"F16","shape":[1],"data_offsets":[16,18]}}`
	weights := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for name, content := range map[string][]byte{"config.json": config, "model.safetensors": append(weights, make([]byte, 18)...)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, out, told := mlxrunner("", "show", dir)
	if code != exitDone || told != "" || !strings.Contains(out, "architecture  gemma3\n") || !strings.HasSuffix(out, "\nnot loaded    vision_tower.*: 10 bytes in 2 tensors, which text does not need\n") {
		t.Errorf("%d, %s, %s", code, out, told)
	}
	code, out, _ = mlxrunner("", "show", dir, "--json")
	if code != exitDone || !strings.Contains(out, `"dropped":[{"prefix":"vision_tower.","tensors":2,"bytes":10}]`) {
		t.Errorf("%d, %s", code, out)
	}
}

func TestShow(t *testing.T) {
	code, out, err := mlxrunner("", "show", tiny)
	if code != exitDone || err != "" || !strings.Contains(out, "architecture  llama\nparameters    574336\n") || !strings.Contains(out, "end ids       [2]\n") {
		t.Errorf("%d, %s, %s", code, out, err)
	}
	code, out, _ = mlxrunner("", "show", tiny, "--json")
	var r server.Checkpoint
	if e := json.Unmarshal([]byte(out), &r); e != nil || code != exitDone || r.Schema != "mlxrunner.show/v1" || !r.Known || r.Parameters != 574336 || len(r.Tensors) != 30 {
		t.Errorf("%d, %s, %v", code, out, e)
	}
}

// What is created of the GGUF file says what the folder says that it was made of.
func TestCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	code, out, err := mlxrunner("", "create", tinyGGUF, dir, "--dtype", "float32")
	if code != exitDone || err != "" || out != dir+": llama, 574336 parameters as float32, 2297344 bytes in 30 tensors, 1 file\n" {
		t.Errorf("%d, %q, %s", code, out, err)
	}
	mlxtest.Library(t)
	code, out, err = mlxrunner("", "run", "--model", dir, "--prompt", "The harbour of Senn wakes", "--max-tokens", "12")
	if code != exitDone || out != " before the sun. Fir\n" {
		t.Errorf("%d, %q, %s", code, out, err)
	}
	code, out, err = mlxrunner("", "create", tiny, dir, "--force", "--quantize", "affine:8:64", "--json")
	var r createReport
	if e := json.Unmarshal([]byte(out), &r); e != nil || code != exitDone || err != "" || !strings.HasPrefix(out, `{"schema":"mlxrunner.create/v1","source":`) ||
		r.Quantised != 23 || r.Quantisation != "affine:8:64" || r.DType != "float16" || r.Path != dir {
		t.Errorf("%d, %s, %s, %v", code, out, err, e)
	}
	code, out, err = mlxrunner("", "run", "--model", dir, "--prompt", "The harbour of Senn wakes", "--max-tokens", "12")
	if code != exitDone || out != " before the sun. Fir\n" {
		t.Errorf("%d, %q, %s", code, out, err)
	}
}

func TestShowGGUF(t *testing.T) {
	code, out, err := mlxrunner("", "show", tinyGGUF)
	if code != exitDone || err != "" || !strings.Contains(out, "architecture  llama\nname          payload tiny\nparameters    574336\n") ||
		!strings.Contains(out, "F32 3584, Q8_0 ") || !strings.Contains(out, "context       1024\nvocabulary    512, gpt2 gpt-2\n") {
		t.Errorf("%d, %s, %s", code, out, err)
	}
	code, out, _ = mlxrunner("", "show", tinyGGUF, "--json")
	var r ggufReport
	if e := json.Unmarshal([]byte(out), &r); e != nil || code != exitDone || r.Schema != "mlxrunner.show-gguf/v1" || !r.Known || len(r.Tensors) != 30 {
		t.Errorf("%d, %s, %v", code, out, e)
	}
}

func TestFailures(t *testing.T) {
	empty := t.TempDir()
	odd := t.TempDir()
	if err := os.WriteFile(filepath.Join(odd, "config.json"), []byte(`{"model_type": "parrot"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	adapter := t.TempDir()
	if err := os.WriteFile(filepath.Join(adapter, "adapter_config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(odd, "key"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args    []string
		code    int
		library bool
		says    []string
	}{
		{[]string{"run", "--prompt", "x"}, exitUsage, false, []string{"needs --model DIR", "hint: mlxrunner run --help"}},
		{[]string{"run", "--model", tiny, "--json"}, exitUsage, false, []string{"--json prints one answer"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--top-p", "3"}, exitUsage, false, []string{"the top-p is 3, want 0 to 1"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--draft", tiny, "--lookup", "2"}, exitUsage, false, []string{"both guess"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--draft", tiny, "--draft-tokens", "0"}, exitUsage, false, []string{"--draft-tokens"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--draft", empty}, exitFailed, true, []string{"config.json", "hint: name a folder"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--kv-bits", "3"}, exitUsage, false, []string{"--kv-bits is 3"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--memory-budget", "much"}, exitUsage, false, []string{"--memory-budget", "512MiB"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--memory-budget", "2MiB"}, exitFailed, true, []string{"the weights take 2.2 MiB: the memory budget is 2.0 MiB", "--memory-budget SIZE"}},
		{[]string{"run", "--model", tiny, "--prompt", "x", "--max-tokens", "900", "--memory-budget", "2800KiB"}, exitFailed, true, []string{"keys and values of 902 tokens need 2.0 MiB", "hint: ask for less"}},
		{[]string{"run", "--fast"}, exitUsage, false, []string{"--fast"}},
		{[]string{"show"}, exitUsage, false, nil},
		{[]string{"create", tinyGGUF}, exitUsage, false, []string{"accepts 2 arg(s)"}},
		{[]string{"create", tinyGGUF, filepath.Join(empty, "x"), "--quantize", "q4_0"}, exitUsage, false, []string{`mode "q4_0" is not known`}},
		{[]string{"create", tinyGGUF, filepath.Join(empty, "x"), "--dtype", "int8"}, exitUsage, false, []string{"not one of float32, float16, bfloat16"}},
		{[]string{"create", tinyGGUF, odd}, exitFailed, false, []string{"it exists", "hint: name another folder"}},
		{[]string{"create", odd, filepath.Join(empty, "x"), "--json"}, exitFailed, false, []string{`"parrot" is not known`}},
		{[]string{"create", adapter, filepath.Join(empty, "x")}, exitFailed, false, []string{"it holds an adapter (LoRA)", "hint: merge it into the model"}},
		{[]string{"create", filepath.Join(empty, "none.gguf"), filepath.Join(empty, "x")}, exitFailed, false, []string{"none.gguf: there is nothing of that name", "hint: name a folder with config.json"}},
		{[]string{"create", filepath.Join(odd, "config.json"), filepath.Join(empty, "x")}, exitFailed, false, []string{"this is no GGUF file", "hint: fetch the file again"}},
		{[]string{"show", filepath.Join(odd, "config.json")}, exitFailed, false, []string{"this is no GGUF file"}},
		{[]string{"serve"}, exitUsage, false, []string{"needs --model DIR"}},
		{[]string{"serve", "--model", tiny, "--host", "0.0.0.0"}, exitUsage, false, []string{"everybody who reaches this machine", "--api-key-file"}},
		{[]string{"serve", "--model", tiny, "--port", "99999"}, exitUsage, false, []string{"--port is 99999"}},
		{[]string{"serve", "--model", tiny, "--queue", "-1"}, exitUsage, false, []string{"can't be negative"}},
		{[]string{"serve", "--model", tiny, "--api-key-file", filepath.Join(odd, "key")}, exitUsage, false, []string{"key holds no single line"}},
		{[]string{"serve", "--model", tiny, "--api-key-file", filepath.Join(empty, "key")}, exitFailed, false, []string{"reading the API key", "no such file", "hint: put a key"}},
		{[]string{"serve", "--model", tiny, "--port", taken(t)}, exitFailed, false, []string{"listening at 127.0.0.1, port", "in use"}},
		{[]string{"serve", "--model", empty, "--port", "0"}, exitFailed, true, []string{"config.json", "hint: name a folder"}},
		{[]string{"show", empty}, exitFailed, false, []string{"config.json", "hint: name a folder", "model*.safetensors\n"}},
		{[]string{"run", "--model", empty, "--prompt", "x"}, exitFailed, true, []string{"config.json", "hint: name a folder"}},
		{[]string{"run", "--model", odd, "--prompt", "x"}, exitFailed, true, []string{`"parrot" is not known; known are gemma2`}},
		{[]string{"run", "--model", tiny, "--prompt", strings.Repeat("sea ", 600)}, exitFailed, true, []string{"context is 1024", "hint: give a shorter prompt"}},
	} {
		t.Run(strings.Join(c.args[:min(2, len(c.args))], " "), func(t *testing.T) {
			if c.library {
				mlxtest.Library(t)
			}
			code, out, err := mlxrunner("", c.args...)
			if code != c.code || !strings.HasPrefix(err, "error: ") {
				t.Errorf("code %d, want %d: %s", code, c.code, err)
			}
			wantIn(t, err, c.says)
			if slices.Contains(c.args, "--json") != strings.Contains(out, "mlxrunner.error/v1") {
				t.Errorf("stdout %q", out)
			}
		})
	}
}

func wantIn(t *testing.T, text string, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
}

// taken is a port that something listens at.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
