package cmakerun

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"payload/internal/folder"
)

// The File API: CMake writes what it knows about a project as JSON when a
// query lies in the build folder.
const (
	apiDir    = ".cmake/api/v1"
	apiClient = "client-payload"
)

var apiKinds = []string{"codemodel-v2", "cache-v2", "toolchains-v1", "cmakeFiles-v1"}

// Reply is what CMake answered at the last configure of a build folder.
type Reply struct {
	CMake     string // version
	Generator string

	dir    string
	binDir string
	kinds  map[string]string // kind -> file
	model  *codemodel
}

// CacheEntry is one entry of CMakeCache.txt.
type CacheEntry struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
	Help  string `json:"help,omitempty"`
}

// Compiler is a compiler that CMake chose.
type Compiler struct {
	Language string // C, CXX, CUDA, …
	Path     string
	ID       string // GNU, Clang, …
	Version  string
}

// Target is one target of the project.
type Target struct {
	Name      string
	Type      string   // EXECUTABLE, SHARED_LIBRARY, MODULE_LIBRARY, UTILITY, …
	Artefacts []string // absolute paths; the first is the file itself
}

type codemodel struct {
	Configurations []struct {
		Targets []struct {
			Name     string `json:"name"`
			JSONFile string `json:"jsonFile"`
		} `json:"targets"`
	} `json:"configurations"`
}

func writeQuery(binDir string) error {
	dir := filepath.Join(binDir, filepath.FromSlash(apiDir), "query", apiClient)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, kind := range apiKinds {
		if err := os.WriteFile(filepath.Join(dir, kind), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ReadReply reads the answer in a configured build folder and makes sure that
// all of it is there: CMake passes over an answer that it couldn't write.
// Details are read when they are asked for.
func ReadReply(binDir string) (*Reply, error) {
	dir := filepath.Join(binDir, filepath.FromSlash(apiDir), "reply")
	indexes, err := folder.Glob(dir, "index-*.json")
	if err != nil || len(indexes) == 0 {
		return nil, fmt.Errorf("reading what CMake says about %s: no answer in %s", binDir, dir)
	}
	var index struct {
		CMake struct {
			Generator struct {
				Name string `json:"name"`
			} `json:"generator"`
			Version struct {
				String string `json:"string"`
			} `json:"version"`
		} `json:"cmake"`
		Reply map[string]json.RawMessage `json:"reply"`
	}
	// CMake names the newest last and may leave older ones.
	if err := readJSON(slices.Max(indexes), &index); err != nil {
		return nil, err
	}
	var kinds map[string]struct {
		JSONFile string `json:"jsonFile"`
		Error    string `json:"error"`
	}
	if err := json.Unmarshal(index.Reply[apiClient], &kinds); err != nil {
		return nil, fmt.Errorf("reading what CMake says about %s: no answer to this tool's query", binDir)
	}
	r := &Reply{
		CMake: index.CMake.Version.String, Generator: index.CMake.Generator.Name,
		dir: dir, binDir: binDir, kinds: map[string]string{},
	}
	for kind, answer := range kinds {
		if answer.Error == "" {
			r.kinds[kind] = answer.JSONFile
		}
	}
	return r, r.whole()
}

// whole gives an error where a file of the answer is missing, empty or no JSON.
func (r *Reply) whole() error {
	m, err := r.codemodel()
	if err != nil {
		return err
	}
	files := slices.Collect(maps.Values(r.kinds))
	for _, c := range m.Configurations {
		for _, t := range c.Targets {
			files = append(files, t.JSONFile)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(r.dir, file))
		if err == nil && !json.Valid(text) {
			err = fmt.Errorf("%s is cut off", file)
		}
		if err != nil {
			return fmt.Errorf("reading what CMake says about %s: %w", r.binDir, err)
		}
	}
	return nil
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading what CMake says: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading what CMake says: %s: %w", file, err)
	}
	return nil
}

func (r *Reply) read(kind string, into any) error {
	file, ok := r.kinds[kind]
	if !ok {
		return fmt.Errorf("reading what CMake says about %s: CMake %s does not answer %s", r.binDir, r.CMake, kind)
	}
	return readJSON(filepath.Join(r.dir, file), into)
}

func (r *Reply) codemodel() (*codemodel, error) {
	if r.model == nil {
		var m codemodel
		if err := r.read("codemodel-v2", &m); err != nil {
			return nil, err
		}
		if len(m.Configurations) == 0 {
			return nil, errors.New("reading what CMake says: no configuration")
		}
		r.model = &m
	}
	return r.model, nil
}

// TargetNames lists all targets, sorted.
func (r *Reply) TargetNames() ([]string, error) {
	m, err := r.codemodel()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range m.Configurations[0].Targets {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// UnknownTargetError is a target that a project does not have.
type UnknownTargetError struct {
	Preset  string
	Target  string
	Nearest []string
}

func (e *UnknownTargetError) Error() string {
	return fmt.Sprintf("compiling preset %q: the project has no target %q", e.Preset, e.Target)
}

// Target reads one target; one that does not exist gives *UnknownTargetError.
func (r *Reply) Target(name string) (Target, error) {
	m, err := r.codemodel()
	if err != nil {
		return Target{}, err
	}
	var names []string
	for _, t := range m.Configurations[0].Targets {
		if t.Name != name {
			names = append(names, t.Name)
			continue
		}
		var content struct {
			Name      string `json:"name"`
			Type      string `json:"type"`
			Artifacts []struct {
				Path string `json:"path"`
			} `json:"artifacts"`
		}
		if err := readJSON(filepath.Join(r.dir, t.JSONFile), &content); err != nil {
			return Target{}, err
		}
		target := Target{Name: content.Name, Type: content.Type}
		for _, a := range content.Artifacts {
			target.Artefacts = append(target.Artefacts, r.abs(a.Path))
		}
		return target, nil
	}
	return Target{}, &UnknownTargetError{Target: name, Nearest: Nearest(name, names, 3)}
}

func (r *Reply) abs(path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.binDir, path)
}

// Cache reads the cache by entry name.
func (r *Reply) Cache() (map[string]CacheEntry, error) {
	var content struct {
		Entries []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Value      string `json:"value"`
			Properties []struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			} `json:"properties"`
		} `json:"entries"`
	}
	if err := r.read("cache-v2", &content); err != nil {
		return nil, err
	}
	entries := make(map[string]CacheEntry, len(content.Entries))
	for _, e := range content.Entries {
		entry := CacheEntry{Name: e.Name, Type: e.Type, Value: e.Value}
		for _, p := range e.Properties {
			if p.Name == "HELPSTRING" {
				entry.Help = p.Value
			}
		}
		entries[e.Name] = entry
	}
	return entries, nil
}

// Compilers reads which compilers CMake chose, in the order of its languages.
func (r *Reply) Compilers() ([]Compiler, error) {
	var content struct {
		Toolchains []struct {
			Language string `json:"language"`
			Compiler struct {
				Path    string `json:"path"`
				ID      string `json:"id"`
				Version string `json:"version"`
			} `json:"compiler"`
		} `json:"toolchains"`
	}
	if err := r.read("toolchains-v1", &content); err != nil {
		return nil, err
	}
	var list []Compiler
	for _, t := range content.Toolchains {
		list = append(list, Compiler{Language: t.Language, Path: t.Compiler.Path, ID: t.Compiler.ID, Version: t.Compiler.Version})
	}
	return list, nil
}

// Inputs reads which files of the project, as absolute paths, decided the
// configure; those that CMake brings or wrote itself are left out.
func (r *Reply) Inputs() ([]string, error) {
	var content struct {
		Paths struct {
			Source string `json:"source"`
		} `json:"paths"`
		Inputs []struct {
			Path      string `json:"path"`
			Generated bool   `json:"isGenerated"`
			CMake     bool   `json:"isCMake"`
		} `json:"inputs"`
	}
	if err := r.read("cmakeFiles-v1", &content); err != nil {
		return nil, err
	}
	var files []string
	for _, in := range content.Inputs {
		if in.Generated || in.CMake {
			continue
		}
		file := filepath.FromSlash(in.Path)
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.FromSlash(content.Paths.Source), file)
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}
