package pin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"payload/internal/config"
	"payload/internal/testkit"
)

func TestRead(t *testing.T) {
	full := strings.Repeat("0c1e57098b", 4)
	for name, c := range map[string]struct{ content, ref, why string }{
		"tag":         {"b11312\n", "b11312", ""},
		"crlf":        {"v0.7.0\r\n", "v0.7.0", ""},
		"bom":         {"\ufeffv0.7.0\n", "v0.7.0", ""},
		"commit":      {full + "\n", full, ""},
		"branch":      {"release/1.2\n", "release/1.2", ""},
		"short words": {"beef\n", "beef", ""},
		"empty":       {"\n", "", "is empty"},
		"lines":       {"b1\nb2\n", "", "several lines"},
		"spaces":      {"b1 b2\n", "", "spaces"},
		"abbreviated": {"0c1e570\n", "", "abbreviated commit"},
		"39 digits":   {full[:39] + "\n", "", "abbreviated commit"},
		"capitals":    {strings.ToUpper(full) + "\n", "", "lower case"},
		"option":      {"--upload-pack=x\n", "", "not a name"},
		"range":       {"a..b\n", "", "not a name"},
		"glob":        {"v*\n", "", "not a name"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			testkit.Write(t, filepath.Join(root, "X_VERSION"), c.content)
			ref, err := Read(&config.File{Root: root}, config.Component{Name: "x", Pin: "X_VERSION"})
			if c.why == "" {
				if err != nil || ref != c.ref {
					t.Fatalf("got %q, %v; want %q", ref, err, c.ref)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "X_VERSION") {
				t.Errorf("got %q, %v; want an error with %q and the file", ref, err, c.why)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		order int
		ok    bool
	}{
		{"b9999", "b11312", -1, true},
		{"b11312", "b11312", 0, true},
		{"v0.10.0", "v0.9.1", 1, true},
		{"0.9.1", "v0.9.1", 0, true},
		{"v1.0.0-rc1", "v1.0.0", -1, true},
		{"b11312", "v0.5.0", 0, false},
		{"main", "v1.0.0", 0, false},
		{"main", "main", 0, true},
	} {
		if order, ok := Compare(c.a, c.b); order != c.order || ok != c.ok {
			t.Errorf("Compare(%s, %s) = %d, %v; want %d, %v", c.a, c.b, order, ok, c.order, c.ok)
		}
		if order, ok := Compare(c.b, c.a); order != -c.order || ok != c.ok {
			t.Errorf("Compare(%s, %s) = %d, %v; want %d, %v", c.b, c.a, order, ok, -c.order, c.ok)
		}
	}
}

func TestBuildNumber(t *testing.T) {
	for ref, want := range map[string]int{"b11312": 11312, "v0.7.0": 0, "b11312-rc": 0, "main": 0} {
		if got := BuildNumber(ref); got != want {
			t.Errorf("BuildNumber(%s) = %d, want %d", ref, got, want)
		}
	}
}

func TestAsk(t *testing.T) {
	up := testkit.Repo(t)
	first := up.Commit(map[string]string{"a": "1"}, "b1", "both", "nested/b1")
	second := up.Commit(map[string]string{"a": "2"})
	up.Run("tag", "-a", "-m", "annotated", "v1.0.0")
	up.Run("branch", "both")
	for ref, want := range map[string]Answer{
		"b1":     {Commit: first, Name: "refs/tags/b1"},
		"v1.0.0": {Commit: second, Name: "refs/tags/v1.0.0"},
		"main":   {Commit: second, Name: "refs/heads/main", Branch: true},
		"both":   {Commit: first, Name: "refs/tags/both"},
		first:    {Commit: first},
	} {
		for _, location := range []string{up.Dir, "file://" + filepath.ToSlash(up.Dir)} {
			got, err := Ask(t.Context(), location, ref, time.Minute)
			if err != nil || got != want {
				t.Errorf("Ask(%s) = %+v, %v; want %+v", ref, got, err, want)
			}
		}
	}
	_, err := Ask(t.Context(), up.Dir, "b2", time.Minute)
	var noRef *NoRefError
	if !errors.As(err, &noRef) || noRef.Ref != "b2" {
		t.Errorf("a ref that isn't there: %v", err)
	}
	_, err = Ask(t.Context(), filepath.Join(up.Dir, "nowhere"), "b1", time.Minute)
	var away *UnreachableError
	if !errors.As(err, &away) {
		t.Errorf("a repository that isn't there: %v", err)
	}
}

func TestAskGivesUpOnSilence(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	started := time.Now()
	_, err = Ask(t.Context(), "http://"+silent.Addr().String()+"/x", "b1", 300*time.Millisecond)
	var away *UnreachableError
	if !errors.As(err, &away) || !strings.Contains(err.Error(), "no answer within 300ms") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Ask(ctx, "http://"+silent.Addr().String()+"/x", "b1", time.Minute)
	if !errors.Is(err, context.Canceled) || errors.As(err, &away) {
		t.Errorf("after a cancel: %v", err)
	}
}

func TestTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": DefaultTimeout, "2": 2 * time.Second, "0.5": 500 * time.Millisecond, "300ms": 300 * time.Millisecond} {
		t.Setenv("PAYLOAD_GIT_TIMEOUT", text)
		if got, err := Timeout(); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", "-1", "0"} {
		t.Setenv("PAYLOAD_GIT_TIMEOUT", text)
		if got, err := Timeout(); err == nil {
			t.Errorf("%q gave %s", text, got)
		}
	}
}

var (
	tree1  = strings.Repeat("1", 40)
	tree2  = strings.Repeat("2", 40)
	commit = strings.Repeat("c", 40)
	sha    = strings.Repeat("d", 64)
)

func TestLockRoundTrip(t *testing.T) {
	root := t.TempDir()
	lock, err := LoadLock(root)
	if err != nil || len(lock.Entries) != 0 {
		t.Fatalf("a missing lock: %+v, %v", lock, err)
	}
	row := []Source{{From: "git", Pristine: tree1, Patched: tree2}, {From: "pypi:x==1", Pristine: tree2, Patched: tree1}}
	for _, e := range []Entry{
		{Component: "second", Ref: "v1.10.0", Commit: commit, Sources: row},
		{Component: "second", Ref: "v1.9.0", Commit: commit, Sources: row},
		{Component: "first", Ref: "b7", Commit: commit, Build: 7, Patches: []Patch{{"0001-x.patch", sha}}, Sources: row},
		{Component: "second", Ref: "v1.9.0", Sources: row[:1]},
	} {
		lock.Put(e)
	}
	lock.Sort([]string{"first", "second"})
	if err := lock.Save(root); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, LockName))
	if err != nil {
		t.Fatal(err)
	}
	want := `# What the pins resolved to. Written by "payload lock": don't edit, review.
version: 1
entries:
  - component: first
    ref: b7
    commit: ` + commit + `
    build: 7
    patches:
      - file: 0001-x.patch
        sha256: ` + sha + `
    sources:
      - from: git
        pristine: "` + tree1 + `"
        patched: "` + tree2 + `"
      - from: pypi:x==1
        pristine: "` + tree2 + `"
        patched: "` + tree1 + `"
  - component: second
    ref: v1.9.0
    commit: ""
    patches: []
    sources:
      - from: git
        pristine: "` + tree1 + `"
        patched: "` + tree2 + `"
  - component: second
    ref: v1.10.0
    commit: ` + commit + `
    patches: []
    sources:
      - from: git
        pristine: "` + tree1 + `"
        patched: "` + tree2 + `"
      - from: pypi:x==1
        pristine: "` + tree2 + `"
        patched: "` + tree1 + `"
`
	if string(data) != want {
		t.Errorf("the file is\n%s\nwant\n%s", data, want)
	}
	again, err := LoadLock(root)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := again.Entry("first", "b7")
	if !ok || e.Build != 7 || e.Commit != commit || len(e.Patches) != 1 || e.Patches[0] != (Patch{"0001-x.patch", sha}) {
		t.Errorf("read back %+v, %v", e, ok)
	}
	if s, ok := e.Source("pypi:x==1"); !ok || s.Pristine != tree2 {
		t.Errorf("read back row %+v, %v", s, ok)
	}
}

// Ids of digits alone, or with one e between digits, are numbers to YAML.
func TestLockKeepsIdsThatLookLikeNumbers(t *testing.T) {
	for _, id := range []string{strings.Repeat("0", 40), "1e" + strings.Repeat("5", 38), strings.Repeat("7", 19) + "e" + strings.Repeat("7", 20), "0x" + strings.Repeat("1", 38)} {
		root := t.TempDir()
		lock := &Lock{}
		lock.Put(Entry{Component: "c", Ref: id[:5], Commit: strings.ReplaceAll(id, "x", "0"), Sources: []Source{{From: "git", Pristine: tree1, Patched: tree2}}})
		if err := lock.Save(root); err != nil {
			t.Fatal(err)
		}
		again, err := LoadLock(root)
		if err != nil || again.Entries[0].Commit != lock.Entries[0].Commit || again.Entries[0].Ref != id[:5] {
			t.Errorf("%s came back as %+v, %v", id, again, err)
		}
	}
}

func TestLoadLockNamesThePlace(t *testing.T) {
	for name, c := range map[string]struct{ text, place, why string }{
		"syntax":  {"version: 1\nentries: [\n", "2:", ""},
		"unknown": {"version: 1\nentires: []\n", "[2:1]", "entires"},
		"version": {"version: 2\nentries: []\n", "[1:10]", "version 2"},
		"commit":  {"version: 1\nentries:\n  - component: x\n    ref: b1\n    commit: abc\n    patches: []\n    sources: []\n", "[5:13]", "full commit"},
		"tree":    {"version: 1\nentries:\n  - component: x\n    ref: b1\n    commit: " + commit + "\n    patches: []\n    sources:\n      - {from: git, pristine: 12, patched: 13}\n", "[8:", "tree id"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			testkit.Write(t, filepath.Join(root, LockName), c.text)
			_, err := LoadLock(root)
			if err == nil || !strings.Contains(err.Error(), c.place) || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), LockName) {
				t.Errorf("got %v; want the file, %s and %q", err, c.place, c.why)
			}
		})
	}
}

func TestFor(t *testing.T) {
	lock := &Lock{}
	lock.Put(Entry{Component: "x", Ref: "b1", Patches: []Patch{{"1.patch", sha}, {"2.patch", sha}}})
	same := []Patch{{"1.patch", sha}, {"2.patch", sha}}
	if e, err := lock.For("x", "b1", same); err != nil || e == nil || e.Ref != "b1" {
		t.Errorf("an entry that agrees: %+v, %v", e, err)
	}
	if e, err := lock.For("unlocked", "b1", nil); err != nil || e != nil {
		t.Errorf("a component that the lock lacks: %+v, %v", e, err)
	}
	for name, c := range map[string]struct {
		ref     string
		patches []Patch
		why     string
	}{
		"ref":     {"b2", same, "pinned is b2, locked b1"},
		"changed": {"b1", []Patch{{"1.patch", tree1}, {"2.patch", sha}}, "1.patch (changed)"},
		"added":   {"b1", append(same[:2:2], Patch{"3.patch", sha}), "3.patch (not in the lock)"},
		"removed": {"b1", same[:1], "2.patch (not on disk)"},
		"order":   {"b1", []Patch{same[1], same[0]}, "their order"},
	} {
		_, err := lock.For("x", c.ref, c.patches)
		var wrong *Disagreement
		if !errors.As(err, &wrong) || wrong.Component != "x" || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, want %q", name, err, c.why)
		}
	}
}
