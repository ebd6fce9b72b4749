//go:build lint

package mlxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The harnesses may be imported by tests alone, and MLX's Go side by no means
// from internal/. Here the linter runs, with the repository's own rules, on a
// module that breaks them. scripts/lint runs this test.
func TestTheLinterKeepsHarnessesInTests(t *testing.T) {
	root := "../.."
	rules, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	find := exec.Command("go", "tool", "-modfile=tools/go.mod", "-n", "golangci-lint")
	find.Dir = root
	linter, err := find.Output()
	if err != nil {
		t.Fatalf("finding the linter: %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                                 "module payload\n\ngo 1.26\n",
		".golangci.yml":                          string(rules),
		"internal/run/run.go":                    "package run\n",
		"mlx/mlxtest/harness.go":                 "package mlxtest\n",
		"mlx/mlxthread/mlxthreadtest/harness.go": "package mlxthreadtest\n\nimport _ \"payload/mlx/mlxtest\"\n", // allowed
		"mlx/good_test.go":                       "package mlx\n\nimport (\n\t_ \"payload/mlx/mlxtest\"\n\t_ \"payload/mlx/mlxthread/mlxthreadtest\"\n)\n",
		"mlx/bad.go":                             "package mlx\n\nimport _ \"payload/internal/run\"\n",
		"cmd/tool/bad.go":                        "package tool\n\nimport _ \"payload/mlx/mlxtest\"\n",
		"mlxrunner/bad.go":                       "package mlxrunner\n\nimport (\n\t_ \"payload/internal/run\"\n\t_ \"payload/mlx/mlxthread/mlxthreadtest\"\n)\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(strings.TrimSpace(string(linter)), "run", "--enable-only", "depguard", "--output.text.print-issued-lines=false", "./...")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the linter finds nothing:\n%s", out)
	}
	found := regexp.MustCompile(`(?m)^(\S+\.go):\d+:\d+: import '([^']+)' is not allowed`).FindAllStringSubmatch(string(out), -1)
	var got []string
	for _, f := range found {
		got = append(got, filepath.ToSlash(f[1])+" "+f[2])
	}
	slices.Sort(got)
	want := []string{
		"cmd/tool/bad.go payload/mlx/mlxtest",
		"mlx/bad.go payload/internal/run",
		"mlxrunner/bad.go payload/internal/run",
		"mlxrunner/bad.go payload/mlx/mlxthread/mlxthreadtest",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the linter finds\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), out)
	}
}
