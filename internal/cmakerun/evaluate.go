package cmakerun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/atomicfile"
	"payload/internal/run"
)

// embedding is a project that does nothing but add another one.
const embedding = `cmake_minimum_required(VERSION 3.21)
project(payload-evaluate C CXX)
add_subdirectory("${PAYLOAD_EVALUATE}" evaluated EXCLUDE_FROM_ALL)
`

// Evaluate configures the project in source as a sub-project with nothing set,
// in the empty folder dir, and gives the options that it declares with the
// values they come to, by name. Nothing is fetched: a project that has to
// download while it is configured fails.
func Evaluate(ctx context.Context, source, dir string) (map[string]CacheEntry, error) {
	project, build := filepath.Join(dir, "project"), filepath.Join(dir, "build")
	for _, d := range []string{project, build} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("evaluating the options of %s: %w", source, err)
		}
	}
	if err := atomicfile.Write(filepath.Join(project, "CMakeLists.txt"), []byte(embedding), 0o644); err != nil {
		return nil, fmt.Errorf("evaluating the options of %s: %w", source, err)
	}
	if err := writeQuery(build); err != nil {
		return nil, fmt.Errorf("evaluating the options of %s: %w", source, err)
	}
	cmd := run.Cmd{Dir: dir, Args: evaluateArgs(project, build, source), Env: []string{"LC_ALL=C"}, Expendable: true}
	if _, err := run.Do(ctx, cmd); err != nil {
		return nil, fmt.Errorf("evaluating the options of %s: %w", source, err)
	}
	reply, err := ReadReply(build)
	if err != nil {
		return nil, err
	}
	cache, err := reply.Cache()
	if err != nil {
		return nil, err
	}
	for name, e := range cache {
		if !ownHelp(e) || e.Type != "BOOL" && e.Type != "STRING" && e.Type != "PATH" || strings.HasPrefix(name, "CMAKE_") {
			delete(cache, name)
		}
	}
	return cache, nil
}

func evaluateArgs(project, build, source string) []string {
	return []string{
		"cmake", "-S", project, "-B", build, "-G", "Ninja", "-DPAYLOAD_EVALUATE:PATH=" + filepath.ToSlash(source),
		"-DFETCHCONTENT_FULLY_DISCONNECTED=ON", "-DCMAKE_BUILD_TYPE=Release", "--no-warn-unused-cli",
	}
}
