package main

import (
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

// TestLayoutDocument holds that docs/layout.md names what is there.
func TestLayoutDocument(t *testing.T) {
	data, err := os.ReadFile("../../docs/layout.md")
	if err != nil {
		t.Fatal(err)
	}
	tree, _, _ := strings.Cut(strings.SplitN(string(data), "```", 3)[1], "```")
	named := map[string]bool{}
	for _, line := range strings.Split(tree, "\n") {
		path := strings.TrimSuffix(strings.SplitN(strings.TrimSpace(line), " ", 2)[0], "/")
		if path == "" {
			continue
		}
		if strings.HasPrefix(line, "  ") {
			path = "cmd/payload/" + path
		}
		named[path] = true
		if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
			t.Errorf("docs/layout.md names %s, which is not there", path)
		}
	}
	dirs, err := filepath.Glob("../../internal/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		name := "internal/" + filepath.Base(d)
		if !named[name] {
			t.Errorf("docs/layout.md does not name %s", name)
		}
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
