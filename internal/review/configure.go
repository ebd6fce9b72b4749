package review

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"payload/internal/atomicfile"
	"payload/internal/cmakerun"
	"payload/internal/run"
)

// evaluation is what the cache holds of one tree.
type evaluation struct {
	Tree    string            `json:"tree"`
	Options map[string]string `json:"options"`
}

// toolchain tells which CMake and compilers a configure here would use; what
// they answer is a part of the cache's key.
func toolchainID(ctx context.Context) (string, error) {
	cc, cxx := os.Getenv("CC"), os.Getenv("CXX")
	if cc == "" {
		cc = "cc"
	}
	if cxx == "" {
		cxx = "c++"
	}
	text := runtime.GOOS + "/" + runtime.GOARCH
	for _, tool := range []string{"cmake", cc, cxx} {
		res, err := run.Do(ctx, run.Cmd{Args: []string{tool, "--version"}, Env: []string{"LC_ALL=C"}, Expendable: true})
		if err != nil {
			return "", err
		}
		text += "\n" + tool + "\n" + string(res.Stdout)
	}
	return text, nil
}

// Configure evaluates the options of both sides as a sub-project with nothing
// set, by a real configure of each that is kept in cacheDir by tree and tools.
// checkout gives a folder that holds a side's pristine tree, and a function
// that lets go of it; it is asked only for what the cache lacks.
func Configure(ctx context.Context, cacheDir string, old, new Side, checkout func(Side) (string, func(), error), tell func(string, ...any)) (*ConfiguredPair, error) {
	tools, err := toolchainID(ctx)
	if err != nil {
		return nil, err
	}
	pair := &ConfiguredPair{}
	for _, s := range []struct {
		side Side
		into *map[string]string
	}{{old, &pair.Old}, {new, &pair.New}} {
		name := fmt.Sprintf("%x.json", sha256.Sum256([]byte(s.side.Tree+"\n"+tools)))
		if *s.into, err = evaluated(ctx, filepath.Join(cacheDir, name), s.side, checkout, tell); err != nil {
			return nil, err
		}
	}
	return pair, nil
}

func evaluated(ctx context.Context, file string, side Side, checkout func(Side) (string, func(), error), tell func(string, ...any)) (map[string]string, error) {
	var kept evaluation
	data, err := os.ReadFile(file)
	if err == nil && json.Unmarshal(data, &kept) == nil && kept.Tree == side.Tree {
		return kept.Options, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading what CMake said of %s: %w", side.Ref, err)
	}
	tell("configuring %s to evaluate its options; the answer is kept", side.Ref)
	source, done, err := checkout(side)
	if err != nil {
		return nil, err
	}
	defer done()
	dir, err := os.MkdirTemp("", "payload-review-")
	if err != nil {
		return nil, fmt.Errorf("configuring %s: %w", side.Ref, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // ours, in the system's temporary folder
	cache, err := cmakerun.Evaluate(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	kept = evaluation{Tree: side.Tree, Options: map[string]string{}}
	for name, e := range cache {
		kept.Options[name] = e.Value
	}
	if data, err = json.MarshalIndent(kept, "", "  "); err != nil {
		return nil, fmt.Errorf("keeping what CMake said of %s: %w", side.Ref, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("keeping what CMake said of %s: %w", side.Ref, err)
	}
	return kept.Options, atomicfile.Write(file, append(data, '\n'), 0o644)
}
