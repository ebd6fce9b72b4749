//go:build real

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
)

// TestRealRefs searches the real refs that mirrors hold, from an older pin: the
// best one, and the first at which a file grew, with our patches carried.
func TestRealRefs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"payload.yaml", "MLX_VERSION", "MLX_C_VERSION"} {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Write(t, filepath.Join(dir, name), string(text))
	}
	testkit.Write(t, filepath.Join(dir, "LLAMA_CPP_VERSION"), "b10454\n")
	patches := filepath.Join("llama", "compat")
	if err := os.CopyFS(filepath.Join(dir, patches), os.DirFS(filepath.Join(root(t), patches))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PAYLOAD_SOURCE_KINDS", "store,mirror")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"patch", "check", "llama.cpp", "--ref", "best"}, "llama.cpp: best is the latest, b11312, 1 ref after the pin b10454\n"},
		{[]string{"bisect", "llama.cpp", "b10454..b11312", "--", "sh", "-c", carried}, "llama.cpp: b11312 is the first bad ref, b10454 the last good one"},
	} {
		var out, voice bytes.Buffer
		code := Main(append([]string{"-C", dir}, c.args...), strings.NewReader(""), &out, &voice)
		if code != exitDone || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("payload %s: exit %d\n%s%s", strings.Join(c.args, " "), code, out.String(), voice.String())
		}
	}
}

// carried exits 1 from the ref on that has the operation, and 126, which is bad
// at once, where our patch for AMX isn't in the tree.
const carried = `cd "$PAYLOAD_SOURCE_LLAMA_CPP/ggml" || exit 126
grep -q "the stores to" src/ggml-cpu/amx/mmq.cpp || exit 126
! grep -q GGML_GLU_OP_SWIGLU_CLAMP include/ggml.h`
