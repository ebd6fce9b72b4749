package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"payload/internal/config"
)

// TestNoComponentInInternal holds that components are data: the tool serves
// any repository, so no code below cmd knows the ones of this one.
func TestNoComponentInInternal(t *testing.T) {
	file, err := config.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range file.Components {
		names = append(names, regexp.QuoteMeta(c.Name), c.Var())
	}
	component := regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
	comment := regexp.MustCompile(`^\s*//`)
	seen := 0
	err = filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "tinymodel") || strings.Contains(path, "internal/bench/") {
			return err
		}
		seen++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			if !comment.MatchString(line) && component.MatchString(line) {
				t.Errorf("%s:%d names a component: %s", path, i+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("only %d files were read", seen)
	}
}

// TestNothingDrifts runs the checks of drift that need no sources on this
// repository; TestRealDrift runs all.
func TestNothingDrifts(t *testing.T) {
	var out, voice bytes.Buffer
	code := Main([]string{"-C", "../..", "drift", "--check", "copies,native,filters,cache-keys,workflows,docker,depguard,layout"}, strings.NewReader(""), &out, &voice)
	if code != exitDone {
		t.Errorf("exit %d\n%s%s", code, out.String(), voice.String())
	}
}

// TestDocumentsAreFilledIn holds that no placeholder is left in what people read.
func TestDocumentsAreFilledIn(t *testing.T) {
	placeholder := regexp.MustCompile(`@[A-Z]{2,}@`)
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	for _, f := range append(files, "../../README.md", "../../CHANGELOG.md", "../../llama/compat/README.md") {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if found := placeholder.FindString(string(data)); found != "" {
			t.Errorf("%s holds %s", f, found)
		}
	}
}
