package cmakerun

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/run"
)

// Launcher is a compiler cache that is put before each compiler. The zero
// value is none.
type Launcher struct {
	Name string // ccache, sccache, …
	Path string // absolute
}

// caches are the launchers that auto chooses from, in order.
var caches = []string{"ccache", "sccache"}

// FindLauncher finds what a person asked for: "auto" (or empty) takes the first
// compiler cache that is there, "none" takes none, anything else is a program
// that must be there, or the error is a *run.MissingError.
func FindLauncher(want string) (Launcher, error) {
	switch want {
	case "none":
		return Launcher{}, nil
	case "", "auto":
		for _, name := range caches {
			l, err := FindLauncher(name)
			if _, missing := errors.AsType[*run.MissingError](err); missing {
				continue
			}
			return l, err
		}
		return Launcher{}, nil
	}
	path, err := run.LookPath(want)
	if err != nil {
		return Launcher{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return Launcher{}, err
	}
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	return Launcher{Name: name, Path: filepath.ToSlash(path)}, nil
}

// languages are those that CMake starts through a launcher.
var languages = []string{"C", "CXX", "CUDA", "HIP", "OBJC", "OBJCXX"}

// configureEnv sets the launcher by environment, not with -D: CMake reads it
// for the languages that a project enables and has nothing to say about the
// others, and a preset that chooses its own launcher keeps it. A project that
// looks for a compiler cache by itself sees that there is one.
func (l Launcher) configureEnv() []string {
	if l.Path == "" {
		return nil
	}
	var env []string
	for _, lang := range languages {
		env = append(env, "CMAKE_"+lang+"_COMPILER_LAUNCHER="+l.Path)
	}
	return env
}

// compileEnv lets another checkout of the same repository hit the cache: paths
// below the root are hashed as relative ones. The compile folder is still
// hashed, except where the project maps it away, because a hit would otherwise
// bring the other checkout's path into debug information; and no sloppiness is
// asked for, because none is needed.
func (l Launcher) compileEnv(b Build) []string {
	if l.Name != "ccache" || os.Getenv("CCACHE_BASEDIR") != "" {
		return nil
	}
	base := b.Root
	if !within(b.Root, b.BinaryDir) {
		base = b.BinaryDir
	}
	return []string{"CCACHE_BASEDIR=" + base}
}

// within says whether path is dir or lies below it, by their names alone.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
