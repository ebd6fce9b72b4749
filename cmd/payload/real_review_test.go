//go:build real && unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"payload/internal/report"
	"payload/internal/review"
)

// warmLimit is what a review may cost when both refs are in the store and were
// configured before: processor time, since other work on the machine stretches
// every clock. On two free cores the whole takes about as long.
const warmLimit = 10 * time.Second

// spent is the processor time of this process and of the children it waited for.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var total time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())
	}
	return total
}

// TestRealReview reviews 858 builds of llama.cpp and holds that what its diff
// says, read by hand for docs/review.md, is found.
func TestRealReview(t *testing.T) {
	args := []string{"review", "llama.cpp", "b10454..b11312", "--json"}
	payload(t, args...) // fills the store and the cache of evaluated options
	page := filepath.Join(t.TempDir(), "page.html")
	began, before := time.Now(), spent(t)
	code, stdout, _ := payload(t, append(args, "--output", page)...)
	took := spent(t) - before
	if code != exitFindings {
		t.Errorf("exit code %d, want %d", code, exitFindings)
	}
	if took > warmLimit {
		t.Errorf("took %s of processor time, the limit is %s", took, warmLimit)
	}
	t.Logf("warm: %s, %s of processor time", time.Since(began), took)
	var res review.Result
	if err := json.Unmarshal([]byte(stdout), &res); err != nil {
		t.Fatal(err)
	}
	if res.Schema != review.Schema || !res.Evaluated || res.Files != 1650 {
		t.Errorf("schema %s, configured %v, %d files", res.Schema, res.Evaluated, res.Files)
	}
	for _, want := range []struct {
		severity report.Severity
		id, name string
		affects  string // a file of ours, where one depends on it
	}{
		{report.Error, "server.public-endpoint-removed", "/v1/models", "internal/verify/completion.go"},
		{report.Warning, "server.public-endpoint-removed", "/models", ""},
		{report.Warning, "options.removed", "GGML_CUDA_PEER_MAX_BATCH_SIZE", ""},
		{report.Note, "options.added", "GGML_CUDA_FA_QUANTS", ""},
		{report.Note, "options.default-flipped", "LLAMA_BUILD_UI", "llama/server/CMakePresets.json"},
		{report.Warning, "network.added", "LLVM-20.1.8", ""},
		{report.Note, "targets.added", "vendor::nlohmann", ""},
		{report.Warning, "backends.version-value-changed", "RPC_PROTO_MAJOR_VERSION: 5 → 7", ""},
		{report.Note, "backends.loading-changed", "ggml_backend_load_best", ""},
		{report.Warning, "server.flag-removed", "--mlock", ""},
		{report.Warning, "server.flag-removed", "--no-mmap", ""},
		{report.Warning, "server.flag-removed", "--direct-io", ""},
		{report.Warning, "server.flag-default-changed", "--reasoning-preserve", ""},
		{report.Note, "server.flag-added", "--lazy-mode", ""},
		{report.Note, "server.flag-env-changed", "--temp", ""},
		{report.Note, "server.exit-added", "failed to load models on startup", ""},
		{report.Note, "server.error-message-call-changed", "uri must be base64 encoded", ""},
		{report.Note, "models.architecture-added", "qwen4exp", ""},
		{report.Note, "models.gguf-key-added", "%s.hrm.h_cycles", ""},
		{report.Note, "models.pre-tokenizer-added", "spark2_5", ""},
		{report.Warning, "models.format-version-value-changed", "LLAMA_SESSION_VERSION: 9 → 10", ""},
		{report.Warning, "models.api-signature-changed", "mtmd_tokenize", ""},
		{report.Note, "patches.target-changed", "ggml/src/CMakeLists.txt", "llama/compat/0002-ggml-build-a-chosen-list-of-CPU-variants.patch"},
	} {
		found := false
		for _, f := range res.Findings {
			if f.ID != want.id || !strings.Contains(f.Title, want.name) {
				continue
			}
			depends := want.affects == ""
			for _, p := range f.Affects {
				depends = depends || p.Path == want.affects
			}
			found = found || f.Severity == want.severity && depends
		}
		if !found {
			t.Errorf("no %s %s with %s, depended on by %q", want.severity, want.id, want.name, want.affects)
		}
	}
	// The rules see what they are for.
	for _, f := range res.Findings {
		if strings.HasPrefix(f.ID, "watch.") {
			t.Errorf("%s: %s", f.ID, f.Title)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "data-key=\"server.flag-removed:--mlock\"") {
		t.Errorf("the page lacks a finding, %v", err)
	}
}

// TestRealReviewC reviews an update of the C bindings.
func TestRealReviewC(t *testing.T) {
	code, stdout, _ := payload(t, "review", "mlx-c", "v0.6.0..v0.7.0", "--configure", "never")
	if code != exitDone {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"type of struct field read of mlx_io_vtable_: void", "mlx_stream_thread_local_new", "mlx_vector_stream_new",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no finding with %q", want)
		}
	}
	if strings.Contains(stdout, "watched path") {
		t.Error("a rule looks in vain")
	}
}
