// Command mlxgen writes the bindings of mlx-c, or tells whether those that
// are there are what it would write. `go generate ./mlx/...` calls it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/mlx/gen"
)

func main() {
	tree := flag.String("tree", "", "the source tree of mlx-c: what `payload source mlx-c` prints")
	root := flag.String("C", ".", "the repository, which holds MLX_VERSION and MLX_C_VERSION")
	out := flag.String("o", "", "the folder of the bindings")
	check := flag.Bool("check", false, "write nothing; fail when a file differs")
	flag.Parse()
	if err := run(*tree, *root, *out, *check); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1) //nolint:forbidigo // this is a main of its own
	}
}

func run(tree, root, out string, check bool) error {
	if tree == "" || out == "" {
		return fmt.Errorf("generating the bindings: -tree and -o are needed")
	}
	var v gen.Versions
	for name, to := range map[string]*string{"MLX_VERSION": &v.MLX, "MLX_C_VERSION": &v.MLXC} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return fmt.Errorf("reading a pin: %w", err)
		}
		*to = strings.TrimSpace(string(data))
	}
	files, err := gen.Generate(os.DirFS(tree), v)
	if err != nil {
		return err
	}
	var differ []string
	for name, want := range files {
		path := filepath.Join(out, name)
		have, err := os.ReadFile(path)
		if err == nil && bytes.Equal(have, want) {
			continue
		}
		if differ = append(differ, path); check {
			continue
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			return fmt.Errorf("writing the bindings: %w", err)
		}
	}
	if check && len(differ) > 0 {
		slices.Sort(differ)
		return fmt.Errorf("comparing the bindings with mlx-c %s: go generate ./mlx/... would change %s", v.MLXC, strings.Join(differ, ", "))
	}
	return nil
}
