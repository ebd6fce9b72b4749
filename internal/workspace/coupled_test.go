package workspace

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
)

// repository opens a repository of two components: "binding" names the ref of
// "engine" that it wants in its deps file.
func repository(t *testing.T, pins map[string]string) *Workspace {
	t.Helper()
	root := t.TempDir()
	t.Setenv("PAYLOAD_CACHE", filepath.Join(t.TempDir(), "cache"))
	engine, binding := testkit.Repo(t), testkit.Repo(t)
	engine.Commit(map[string]string{"e": "1\n"}, "v1.0")
	engine.Commit(map[string]string{"e": "2\n"}, "v2.0")
	binding.Commit(map[string]string{"deps": "# needs\nengine v1.0\n"}, "c1")
	binding.Commit(map[string]string{"deps": "engine 2.0\n"}, "c2")
	binding.Commit(map[string]string{"deps": "engine v1.0\nengine v2.0\n"}, "c3")
	binding.Commit(map[string]string{"deps": ""}, "c4")
	for name, ref := range pins {
		testkit.Write(t, filepath.Join(root, name+".pin"), ref+"\n")
	}
	testkit.Write(t, filepath.Join(root, "payload.yaml"), fmt.Sprintf(`version: 1
components:
  engine: {pin: engine.pin, upstream: %q}
  binding:
    pin: binding.pin
    upstream: %q
    coupled: [{component: engine, path: deps, pattern: '^engine (\S+)$'}]
`, engine.Dir, binding.Dir))
	w, err := Open(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestCoupledBothWays(t *testing.T) {
	w := repository(t, map[string]string{"engine": "v1.0", "binding": "c1"})
	for _, c := range []struct {
		name   string
		refs   map[string]string
		agrees bool
		say    string
	}{
		{"binding", nil, true, "binding c1 wants engine v1.0, as pinned"},
		{"engine", nil, true, "binding c1 wants engine v1.0, as pinned"},
		{"binding", map[string]string{"binding": "c2"}, false, "binding c2 wants engine 2.0, and v1.0 is pinned (deps:1)"},
		{"engine", map[string]string{"engine": "v2.0"}, false, "binding c1 wants engine v1.0, and v2.0 is pinned (deps:2)"},
		{"engine", map[string]string{"engine": "v2.0", "binding": "c2"}, true, "binding c2 wants engine 2.0, as pinned"},
		{"binding", map[string]string{"binding": "c3"}, false, "line 1 of deps says v1.0, line 2 v2.0"},
		{"binding", map[string]string{"binding": "c4"}, false, "deps is not there"},
	} {
		got, err := w.Coupled(t.Context(), c.name, c.refs)
		if err != nil || len(got) != 1 || got[0].Agrees != c.agrees || !strings.Contains(got[0].String(), c.say) {
			t.Errorf("%s %v: %+v, %v; want %q", c.name, c.refs, got, err, c.say)
		}
	}
}
