package verify

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"payload/internal/manifest"
)

// askFake asks a fake program whose manifest says what it was built from.
func askFake(t *testing.T, f fake) (Answers, error) {
	t.Helper()
	dir := fakePayload(t, f)
	m, err := manifest.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Components = []manifest.Component{{
		Name: "toy", Ref: "b11312", Commit: "0c1e57098bba43ac29e6e3b677cdceebdd22334f", Build: 11312, Verify: "completion-server", Program: "server",
	}}
	if err := manifest.Write(dir, m); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	a, err := Ask(t.Context(), dir)
	if left, readErr := os.ReadDir(temp); readErr != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, readErr)
	}
	for _, name := range processesBelow(t, dir) {
		t.Errorf("still running: %s", name)
	}
	return a, err
}

func TestAsk(t *testing.T) {
	a, err := askFake(t, fake{Awkward: true})
	if err != nil {
		t.Fatal(err)
	}
	if a.Help != "-m,    --model FNAME            model to load\n" {
		t.Errorf("help %q", a.Help)
	}
	got := fmt.Sprint(a.JSON)
	if want := "map[GET /health:map[status:ok] GET /props:map[build_info:{ref}-{commit} model_alias:{name}] GET /v1/models:map[data:[map[id:{name}]]]]"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
	for _, endpoint := range []string{"POST /completion", "POST /v1/chat/completions"} {
		if raw := a.Raw[endpoint]; !strings.Contains(raw, "data: {") || !strings.Contains(raw, "\r\n") || !strings.Contains(raw, "\n:") && !strings.HasPrefix(raw, ":") {
			t.Errorf("%s: not as it came: %q", endpoint, raw)
		}
	}
	if log := strings.Join(a.Log, "\n"); !strings.Contains(log, "build {build} (") || strings.Contains(log, "11312") {
		t.Errorf("log %s", log)
	}
}

// A program that can't be asked is told with its last words; nothing of it is
// left.
func TestAskFaults(t *testing.T) {
	if _, err := askFake(t, fake{Die: "exit"}); err == nil || !strings.Contains(err.Error(), "no such thing as a model") {
		t.Errorf("%v", err)
	}
	if _, err := askFake(t, fake{Status: 500}); err == nil || !strings.Contains(err.Error(), "/completion") {
		t.Errorf("%v", err)
	}
	var not *NotAskableError
	if _, err := Ask(t.Context(), t.TempDir()); !errors.As(err, &not) {
		t.Errorf("%v", err)
	}
	if _, err := Ask(t.Context(), fakePayload(t, fake{})); !errors.As(err, &not) || !strings.Contains(err.Error(), "names no program") {
		t.Errorf("%v", err)
	}
}
