package update

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
	"payload/internal/workspace"
)

// pair is a repository of "binding", whose tree names the "engine" it wants, in
// one copy file for both pins.
func pair(t *testing.T) (root string, open func() *workspace.Workspace) {
	t.Helper()
	root = t.TempDir()
	engine, binding := testkit.Repo(t), testkit.Repo(t)
	engine.Commit(map[string]string{"e": "1\n"}, "v1.0")
	engine.Commit(map[string]string{"e": "2\n"}, "v2.0")
	binding.Commit(map[string]string{"deps": "engine v1.0\n"}, "v0.1")
	binding.Commit(map[string]string{"deps": "engine v2.0\n"}, "v0.2")
	testkit.Write(t, filepath.Join(root, "payload.yaml"), `version: 1
components:
  engine:
    pin: ENGINE
    upstream: `+engine.Dir+`
    copies: [{path: versions, pattern: '^engine=(\S+)$'}]
  binding:
    pin: BINDING
    upstream: `+binding.Dir+`
    copies: [{path: versions, pattern: '^binding=(\S+)$'}]
    coupled: [{component: engine, path: deps, pattern: '^engine (\S+)$'}]
`)
	testkit.Write(t, filepath.Join(root, "ENGINE"), "v1.0\n")
	testkit.Write(t, filepath.Join(root, "BINDING"), "v0.1\n")
	testkit.Write(t, filepath.Join(root, "versions"), "engine=v1.0\nbinding=v0.1\n")
	return root, func() *workspace.Workspace {
		w, err := workspace.Open(t.Context(), workspace.Options{Dir: root})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
}

func TestCoupledIsTold(t *testing.T) {
	root, open := pair(t)
	r, err := Start(t.Context(), open(), silent(), built, Options{Component: "binding", Ref: "v0.2"})
	if err != nil || len(r.Updates) != 1 || len(r.Coupled) != 1 || r.Coupled[0].Agrees || r.Coupled[0].Wants != "v2.0" {
		t.Fatalf("%+v, %v", r, err)
	}
	text, _ := os.ReadFile(filepath.Join(root, "versions"))
	if string(text) != "engine=v1.0\nbinding=v0.2\n" {
		t.Errorf("%s", text)
	}
}

func TestCoupledMovesAlong(t *testing.T) {
	root, open := pair(t)
	r, err := Start(t.Context(), open(), silent(), built, Options{Component: "binding", Ref: "v0.2", WithCoupled: true})
	if err != nil || len(r.Updates) != 2 || len(r.Coupled) != 1 || !r.Coupled[0].Agrees {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, want := range map[string]string{"ENGINE": "v2.0\n", "BINDING": "v0.2\n", "versions": "engine=v2.0\nbinding=v0.2\n"} {
		if text, _ := os.ReadFile(filepath.Join(root, name)); string(text) != want {
			t.Errorf("%s: %s", name, text)
		}
	}
	if !strings.HasPrefix(r.Messages.Mechanical, "Update binding from v0.1 to v0.2 and engine from v1.0 to v2.0\n") {
		t.Errorf("%s", r.Messages.Mechanical)
	}
	w := open()
	for _, c := range w.File.Components {
		if _, err := w.Pinned(c.Name); err != nil {
			t.Error(err)
		}
	}
	if len(w.Lock.Entries) != 2 || w.Lock.Entries[0].Component != "engine" {
		t.Errorf("lock: %+v", w.Lock.Entries)
	}
}
