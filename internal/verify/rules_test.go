package verify

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every kind of finding that is written in the code is explained, and every
// explanation is of one.
func TestRulesAreComplete(t *testing.T) {
	var written []string
	made := regexp.MustCompile(`(?:static\(|fault\((?:category\w+, )?|refuse\(|release\(report\.\w+, |namedError\{|readEach\(res, dir, files, |ID: |id(?:, title)? :?= |, ")"?([a-z]+\.[a-z][a-z-]+)"`)
	for _, dir := range []string{".", "../archive"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "rules.go" {
				continue
			}
			for _, m := range made.FindAllStringSubmatch(readAll(t, file), -1) {
				written = append(written, m[1])
			}
		}
	}
	if len(written) < 60 {
		t.Fatalf("found only %q", written)
	}
	explained := map[string]bool{}
	for _, r := range rules {
		explained[r.ID] = true
		if r.Title == "" || r.Help == "" {
			t.Errorf("%s is not explained", r.ID)
		}
	}
	for _, id := range written {
		if group, _, _ := strings.Cut(id, "."); !explained[id] && !explained[group] && !regexp.MustCompile(`\.(json|ini|safetensors|dll)$`).MatchString(id) {
			t.Errorf("%s is not in rules.go", id)
		}
	}
	for id := range explained {
		if strings.Contains(id, ".") && !slices.Contains(written, id) && !strings.HasPrefix(id, "floor.") {
			t.Errorf("rules.go explains %s, which nothing finds", id)
		}
	}
}

func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/verify.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), Table()) {
		t.Errorf("docs/verify.md does not have this table:\n%s", Table())
	}
}
