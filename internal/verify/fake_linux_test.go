package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"payload/internal/verify/tinymodel"
)

// fake says how the test binary behaves when it is started as a payload's
// program: it is, when a fake.json lies beside it.
type fake struct {
	Die          string // "exit" or "kill", at start
	DieOn        string // path of the request on which it exits
	CrashOnStop  bool
	IgnoreTerm   bool
	Health       int  // status, when not 200
	WrongName    bool // of the model
	MapModule    bool // its variant is seen in its memory
	WriteModule  bool // it writes to the module that it loads
	WrongProbs   bool
	WrongText    bool // one letter, in completions
	WrongChat    bool
	WrongTokens  bool // of tokenize
	WrongStop    bool
	NoTimings    bool
	Status       int // of completions, when not 200
	NoEnd        bool
	Cut          bool // streams end within an event
	AfterEnd     bool
	ErrorFrame   bool // as a data line
	ErrorLine    bool // as a field of its own
	ErrorEvent   bool // as a named event
	Plain        bool // streams come as application/json
	Awkward      bool // comments, CRLF, odd chunks: all of it allowed
	MapOutside   string
	LostPort     int               // how often the port is taken, or so it says
	LogWithout   string            // leave out lines with this text
	LogReplace   [2]string         // in the log's lines
	Variants     map[string]string // name to "ok", "unsupported", "broken", "dies"
	ClaimVariant string            // the log names this one
	Device       string            // a backend with a module of its own: how its probe ends, "ok" for well
	Offload      int               // layers on the device, of 2; 0 is all
	device       bool              // it was started with the module, and sees the device
}

// accelerate makes the log that of a program whose layers lie on the device,
// unless the device is hidden.
func (f *fake) accelerate() {
	if hidden, set := os.LookupEnv("GGML_VK_VISIBLE_DEVICES"); set && hidden == "" {
		return
	}
	f.device = true
}

func quit(code int) {
	os.Exit(code) //nolint:forbidigo // this is the main of a program
}

const fakeFile = "fake.json"

func TestMain(m *testing.M) {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(exe), fakeFile))
	if err != nil {
		m.Run()
		return
	}
	var f fake
	if err := json.Unmarshal(data, &f); err != nil {
		panic(err)
	}
	f.main(filepath.Dir(exe))
}

// realLog holds lines as the real program prints them.
const realLog = `0.00.003.100 I srv  llama_server: initializing ...
0.00.008.972 I load_backend: loaded CPU backend from {module}
0.00.009.054 I cmn  common_param: common_params_print_info: build 11312 (0c1e57098) with GNU 12.2.0 for Linux x86_64
0.00.009.070 I cmn  common_param: device_info:
0.00.009.079 I cmn  common_param:   - CPU     : Intel(R) Xeon(R) Processor (24105 MiB, 24105 MiB free)
0.00.014.099 I load_tensors:          CPU model buffer size =     0.00 MiB
0.00.014.308 I llama_kv_cache:        CPU KV buffer size =     0.00 MiB
0.00.016.880 D load_tensors: layer   0 assigned to device CPU, is_swa = 0
0.00.016.880 D load_tensors: layer   1 assigned to device CPU, is_swa = 0
0.00.017.167 I load_tensors:   CPU_Mapped model buffer size =     0.58 MiB
0.00.017.438 I llama_context: flash_attn            = auto
0.00.017.484 I llama_kv_cache:        CPU KV buffer size =     0.75 MiB
0.00.018.962 I resolve_fused_ops: Flash Attention enabled
0.00.019.713 I sched_reserve:        CPU compute buffer size =     2.76 MiB
`

func (f *fake) main(dir string) {
	if slices.Contains(os.Args, "--version") {
		fmt.Fprintln(os.Stderr, "version: 0.5.0-dev (build 11312, commit 0c1e57098)")
		return
	}
	if slices.Contains(os.Args, "--help") {
		fmt.Fprintln(os.Stdout, "-m,    --model FNAME            model to load")
		return
	}
	module := os.Getenv("GGML_BACKEND_PATH")
	if slices.Contains(os.Args, "--list-devices") {
		f.probe(module)
		return
	}
	if module != "" {
		f.accelerate()
	}
	switch f.Die {
	case "exit":
		fmt.Fprintln(os.Stderr, "no such thing as a model")
		quit(3)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	f.losePort(dir)
	if module == "" {
		module = f.best(dir)
	}
	f.printLog(module)
	f.offloaded()
	if f.MapModule {
		mapFile(module)
	}
	if f.WriteModule {
		if err := os.WriteFile(f.best(dir), []byte("written by the program"), 0o644); err != nil {
			panic(err)
		}
	}
	if f.MapOutside != "" {
		mapFile(f.MapOutside)
	}
	f.serve()
}

func (f fake) probe(module string) {
	if f.Device != "" && !strings.Contains(filepath.Base(module), "cpu") {
		switch f.Device {
		case "broken":
			fmt.Fprintln(os.Stdout, "load_backend: failed to load "+module+": libcuda.so.1: cannot open shared object file")
		case "other":
			fmt.Fprintln(os.Stdout, "load_backend: loaded CUDA backend from "+module)
		case "ok":
			fmt.Fprintln(os.Stdout, "load_backend: loaded Vulkan backend from "+module)
		}
		return
	}
	switch name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(module), "libggml-cpu-"), ".so"); f.Variants[name] {
	case "unsupported":
		fmt.Fprintln(os.Stdout, "load_backend: backend "+module+" is not supported on this system")
	case "broken":
		fmt.Fprintln(os.Stdout, "load_backend: failed to load "+module+": libgone.so: cannot open shared object file")
	default:
		fmt.Fprintln(os.Stdout, "load_backend: loaded CPU backend from "+module)
	}
}

// best is the module that the program picks: the last usable one by name.
func (f fake) best(dir string) string {
	modules, _ := filepath.Glob(filepath.Join(dir, "libggml-cpu-*.so")) // the pattern is constant
	best := filepath.Join(dir, "libggml-cpu.so")
	for _, m := range modules {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(m), "libggml-cpu-"), ".so")
		switch f.Variants[name] {
		case "ok":
			best = m
		case "dies":
			if len(modules) == 1 {
				fmt.Fprintln(os.Stdout, "about to fail in", name)
				quit(9)
			}
		}
	}
	if f.ClaimVariant != "" {
		return filepath.Join(dir, "libggml-cpu-"+f.ClaimVariant+".so")
	}
	return best
}

func (f fake) losePort(dir string) {
	mark := filepath.Join(dir, "tries")
	tries, _ := os.ReadFile(mark) // none yet
	if len(tries) < f.LostPort {
		_ = os.WriteFile(mark, append(tries, 'x'), 0o600)
		fmt.Fprintln(os.Stdout, "srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1")
		quit(1)
	}
}

func (f fake) printLog(module string) {
	for line := range strings.Lines(strings.ReplaceAll(realLog, "{module}", module)) {
		if f.LogWithout != "" && strings.Contains(line, f.LogWithout) {
			continue
		}
		if f.LogReplace[0] != "" {
			line = strings.ReplaceAll(line, f.LogReplace[0], f.LogReplace[1])
		}
		if stays := f.Offload == 1 && strings.Contains(line, "layer   1"); f.device && !stays {
			line = strings.NewReplacer("loaded CPU", "loaded Vulkan", " - CPU     :", " - Vulkan0 :", "device CPU,", "device Vulkan0,").Replace(line)
		}
		fmt.Fprint(os.Stderr, line)
	}
}

// offloaded is one more line of a program that sees a device.
func (f fake) offloaded() {
	if done := cmp.Or(f.Offload, 2); f.device {
		fmt.Fprintf(os.Stderr, "0.00.017.000 I load_tensors: offloaded %d/2 layers to GPU\n", done)
	}
}

func arg(name string) string {
	if i := slices.Index(os.Args, name); i >= 0 && i+1 < len(os.Args) {
		return os.Args[i+1]
	}
	return ""
}

func (f fake) serve() {
	expected, err := tinymodel.Expected()
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	answer := func(path string, handle func(http.ResponseWriter, map[string]any)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if f.DieOn == r.URL.Path {
				fmt.Fprintln(os.Stdout, "this is the end")
				quit(7)
			}
			var body map[string]any
			_ = json.NewDecoder(r.Body).Decode(&body) // GET has none
			handle(w, body)
		})
	}
	answer("/health", func(w http.ResponseWriter, _ map[string]any) {
		if f.Health != 0 {
			w.WriteHeader(f.Health)
		}
		fmt.Fprint(w, `{"status":"ok"}`)
	})
	answer("/v1/models", func(w http.ResponseWriter, _ map[string]any) {
		name := arg("--alias")
		if f.WrongName {
			name = "somebody else's"
		}
		reply(w, map[string]any{"data": []any{map[string]any{"id": name}}})
	})
	answer("/props", func(w http.ResponseWriter, _ map[string]any) {
		reply(w, map[string]any{"model_alias": arg("--alias"), "build_info": "b11312-0c1e57098"})
	})
	answer("/tokenize", func(w http.ResponseWriter, body map[string]any) {
		for _, t := range expected.Tokenize {
			if t.Text == body["content"] {
				if f.WrongTokens {
					t.Tokens = t.Tokens[1:]
				}
				reply(w, map[string]any{"tokens": t.Tokens})
			}
		}
	})
	answer("/detokenize", func(w http.ResponseWriter, body map[string]any) {
		for _, t := range expected.Tokenize {
			if fmt.Sprint(t.Tokens) == fmt.Sprint(body["tokens"]) {
				reply(w, map[string]any{"content": t.Text})
				return
			}
		}
	})
	answer("/completion", func(w http.ResponseWriter, body map[string]any) {
		if body["n_probs"] != nil {
			f.probabilities(w, expected.Probes, body["prompt"])
			return
		}
		i := slices.IndexFunc(expected.Completions, func(c tinymodel.Completion) bool { return c.Prompt == body["prompt"] })
		f.completion(w, expected.Completions[i], body["stream"] == true)
	})
	answer("/v1/chat/completions", func(w http.ResponseWriter, body map[string]any) {
		want, _ := json.Marshal(body["messages"]) // it has just been decoded
		i := slices.IndexFunc(expected.Chats, func(c tinymodel.Chat) bool {
			var generic any
			data, _ := json.Marshal(c.Messages)
			_ = json.Unmarshal(data, &generic)
			data, _ = json.Marshal(generic)
			return string(data) == string(want) && float64(c.MaxTokens) == body["max_tokens"]
		})
		f.chat(w, expected.Chats[i], body["stream"] == true)
	})
	server := &http.Server{Addr: arg("--host") + ":" + arg("--port"), Handler: mux, ReadHeaderTimeout: time.Second}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range stop {
			switch {
			case f.CrashOnStop:
				quit(11)
			case !f.IgnoreTerm:
				quit(0)
			}
		}
	}()
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stdout, err)
		quit(1)
	}
}

func reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func (f fake) completion(w http.ResponseWriter, c tinymodel.Completion, stream bool) {
	if f.Status != 0 {
		http.Error(w, `{"error":{"message":"busy"}}`, f.Status)
		return
	}
	text, stop := c.Text, string(c.Stop)
	if f.WrongText {
		text = "X" + text[1:]
	}
	if f.WrongStop {
		stop = "word"
	}
	end := map[string]any{
		"content": "", "stop": true, "stop_type": stop, "tokens_evaluated": c.PromptTokens, "tokens": []int{},
		"timings": map[string]any{"prompt_n": c.PromptTokens, "prompt_per_second": 1000 + c.PromptTokens, "predicted_n": c.NPredict, "predicted_per_second": 100 + c.NPredict},
	}
	if !stream {
		end["content"], end["tokens"] = text, c.Tokens
		if f.NoTimings {
			delete(end, "timings")
		}
		reply(w, end)
		return
	}
	var parts []any
	for _, piece := range strings.SplitAfter(text, " ") {
		parts = append(parts, map[string]any{"content": piece, "tokens": []int{1}, "stop": false})
	}
	f.stream(w, append(parts, end), "")
}

func (f fake) probabilities(w http.ResponseWriter, probes []tinymodel.Probe, prompt any) {
	i := slices.IndexFunc(probes, func(p tinymodel.Probe) bool { return p.Prompt == prompt })
	var top []any
	for _, t := range probes[i].Top {
		if f.WrongProbs {
			t.Logprob -= 2 * probes[i].Tolerance
		}
		top = append(top, map[string]any{"id": t.Token, "logprob": t.Logprob})
	}
	reply(w, map[string]any{"completion_probabilities": []any{map[string]any{"top_logprobs": top}}})
}

func (f fake) chat(w http.ResponseWriter, c tinymodel.Chat, stream bool) {
	text := c.Content
	if f.WrongChat {
		text = strings.ToUpper(text)
	}
	usage := map[string]any{"prompt_tokens": c.PromptTokens, "completion_tokens": c.CompletionTokens}
	if !stream {
		reply(w, map[string]any{"usage": usage, "choices": []any{map[string]any{"finish_reason": c.FinishReason, "message": map[string]any{"role": "assistant", "content": text}}}})
		return
	}
	parts := []any{map[string]any{"choices": []any{map[string]any{"finish_reason": nil, "delta": map[string]any{"role": "assistant", "content": nil}}}}}
	for _, piece := range strings.SplitAfter(text, " ") {
		parts = append(parts, map[string]any{"choices": []any{map[string]any{"finish_reason": nil, "delta": map[string]any{"content": piece}}}})
	}
	parts = append(parts, map[string]any{"choices": []any{map[string]any{"finish_reason": c.FinishReason, "delta": map[string]any{}}}})
	f.stream(w, parts, "[DONE]")
}

// stream sends parts as events, and end as the last one when there is one.
func (f fake) stream(w http.ResponseWriter, parts []any, end string) {
	if !f.Plain {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	var out strings.Builder
	eol := "\n"
	if f.Awkward {
		eol = "\r\n"
		out.WriteString(": a comment" + eol + eol)
	}
	for i, p := range parts {
		data, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		if f.NoEnd && end == "" && i == len(parts)-1 {
			continue
		}
		if i == 1 {
			switch {
			case f.ErrorFrame:
				out.WriteString(`data: {"error":{"code":500,"message":"context shift"}}` + eol + eol)
			case f.ErrorLine:
				out.WriteString(`error: {"code":500,"message":"context shift"}` + eol + eol)
			case f.ErrorEvent:
				out.WriteString("event: error" + eol + `data: {"message":"context shift"}` + eol + eol)
			}
		}
		out.WriteString("data: " + string(data) + eol + eol)
		if f.Awkward {
			out.WriteString(":" + eol)
		}
	}
	if end != "" && !f.NoEnd {
		out.WriteString("data: " + end + eol + eol)
	}
	if f.AfterEnd {
		out.WriteString(`data: {"content":"more"}` + eol + eol)
	}
	all := out.String()
	if f.Cut {
		all = all[:len(all)-5]
	}
	step := len(all)
	if f.Awkward {
		step = 7
	}
	for len(all) > 0 {
		n := min(step, len(all))
		_, _ = w.Write([]byte(all[:n])) // the other side may be gone
		if f.Awkward {
			w.(http.Flusher).Flush()
		}
		all = all[n:]
	}
}

func mapFile(name string) {
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	if _, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_PRIVATE); err != nil {
		panic(err)
	}
}
