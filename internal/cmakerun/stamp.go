package cmakerun

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/atomicfile"
	"payload/internal/run"
)

// Action is what has to be done before a build folder can be compiled in.
type Action int

// The actions, each doing more than the one before.
const (
	// Keep uses the folder as it is.
	Keep Action = iota
	// Refresh configures again with the cache that is there: a file that CMake
	// watches was written, and nothing that decides the objects changed.
	Refresh
	// Reconfigure drops the cache but keeps objects: the project's own CMake
	// files or the compiler launcher changed, and the build tool compares
	// command lines by itself.
	Reconfigure
	// Recreate deletes the folder: objects of other sources, options or
	// compilers must not be used, and look up to date when the new files are
	// older.
	Recreate
)

// Verdict says what a build folder needs, and why in one line.
type Verdict struct {
	Action Action
	Reason string // empty for Keep
}

const (
	stampName   = "payload-stamp.json"
	stampSchema = "payload.build-stamp/v1"
)

// stamp records what a build folder was configured from. It exists only while
// the folder holds a complete configure of exactly that.
type stamp struct {
	Schema    string            `json:"schema"`
	Preset    string            `json:"preset"`
	Settings  map[string]string `json:"settings"`  // everything that the preset says, by field
	Sources   []stampSource     `json:"sources"`   // in the order of the build
	Variables map[string]string `json:"variables"` // of the environment, that compilers and CMake read
	Generator string            `json:"generator"`
	CMake     program           `json:"cmake"`
	Compilers []stampCompiler   `json:"compilers"`
	Launcher  string            `json:"launcher"`
	Inputs    map[string]string `json:"inputs"` // files that CMake watches; the SHA-256 of those that are CMake code
	Cache     map[string]string `json:"cache"`  // what the cache held when the configure ended
}

type stampSource struct {
	Component string `json:"component"`
	Ref       string `json:"ref"`
	Commit    string `json:"commit"`
	Build     int    `json:"build_number"`
	Pristine  string `json:"pristine,omitempty"`
	Patched   string `json:"patched"`
	Tree      string `json:"tree"` // the folder that the link pointed at
}

// program is the identity of an executable without running it.
type program struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"` // as CMake reports it
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // modification time, ns
}

type stampCompiler struct {
	Language string `json:"language"`
	program
	// Found is what PATH gives for the compiler's name, so that another one
	// that comes to stand before it is noticed.
	Found string `json:"found"`
}

// steering lists the variables, of those that children see, that change what
// compilers and CMake do.
var steering = []string{
	"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "AR", "RANLIB", "LD", "SDKROOT", "DEVELOPER_DIR", "MACOSX_DEPLOYMENT_TARGET",
	"CUDACXX", "CUDAHOSTCXX", "CUDA_PATH", "CUDA_HOME", "HIP_PATH", "HIPCXX", "ROCM_PATH", "VULKAN_SDK", "INCLUDE", "LIB", "LIBPATH", "SOURCE_DATE_EPOCH",
}

func (b Build) steeringNow() map[string]string {
	set := map[string]string{}
	for _, kv := range append(run.Environ(), b.Tell...) {
		name, value, _ := strings.Cut(kv, "=")
		if slices.Contains(steering, name) && value != "" {
			set[name] = value
		}
	}
	return set
}

// settings flattens what a preset says, so that a difference has a name. What
// it says to this tool alone decides no object and is left out.
func settings(p Preset) map[string]string {
	s := map[string]string{}
	for name, value := range map[string]string{
		"generator": p.Generator, "architecture": p.Architecture, "toolset": p.Toolset,
		"installDir": p.InstallDir, "toolchainFile": p.ToolchainFile,
	} {
		if value != "" {
			s[name] = value
		}
	}
	if p.ToolchainFile != "" {
		s["toolchainFile content"] = digestOf(p.ToolchainFile)
	}
	for name, v := range p.Cache {
		s[name] = v.Value
		if v.Type != "" {
			s[name+" type"] = v.Type
		}
	}
	for name, value := range p.Environment {
		s["environment "+name] = value
	}
	return s
}

// Identity lists what decides a preset's objects beside sources, project files
// and tools: everything that the preset says, and the variables of the
// environment that compilers and CMake read, by name.
func Identity(p Preset) map[string]string {
	all := settings(p)
	for name, value := range (Build{}).steeringNow() {
		all["variable "+name] = value
	}
	return all
}

func identify(path string) (program, error) {
	info, err := os.Stat(path)
	if err != nil {
		return program{}, err
	}
	return program{Path: path, Size: info.Size(), Changed: info.ModTime().UnixNano()}, nil
}

func (p program) same(q program) bool {
	return p.Path == q.Path && p.Size == q.Size && p.Changed == q.Changed
}

func readStamp(binDir string) (*stamp, error) {
	text, err := os.ReadFile(filepath.Join(binDir, stampName))
	if err != nil {
		return nil, err
	}
	var s stamp
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if s.Schema != stampSchema {
		return nil, fmt.Errorf("it has schema %q", s.Schema)
	}
	return &s, nil
}

// TreesIn lists the source trees that a build folder uses: those that its stamp
// names, and those that its links lead to, which plain CMake makes too.
func TreesIn(binDir string) []string {
	var trees []string
	if s, err := readStamp(binDir); err == nil {
		for _, src := range s.Sources {
			trees = append(trees, src.Tree)
		}
	}
	links, err := os.ReadDir(filepath.Join(binDir, "src"))
	if err != nil {
		return trees
	}
	for _, link := range links {
		target, err := os.Readlink(filepath.Join(binDir, "src", link.Name()))
		if err == nil && !slices.Contains(trees, target) {
			trees = append(trees, target)
		}
	}
	return trees
}

// newStamp describes a configure that has just ended well.
func newStamp(b Build, r *Reply) (*stamp, error) {
	s := &stamp{
		Schema: stampSchema, Preset: b.Preset.Name, Settings: settings(b.Preset), Variables: b.steeringNow(),
		Generator: r.Generator, Launcher: b.Launcher.Path, Inputs: map[string]string{},
	}
	for _, src := range b.Sources {
		s.Sources = append(s.Sources, stampSource{
			Component: src.Component, Ref: src.Ref, Commit: src.Commit, Build: src.Build,
			Pristine: src.Pristine, Patched: src.Patched, Tree: src.Tree,
		})
	}
	path, err := run.LookPath("cmake")
	if err != nil {
		return nil, err
	}
	if s.CMake, err = identify(path); err != nil {
		return nil, err
	}
	s.CMake.Version = r.CMake
	compilers, err := r.Compilers()
	if err != nil {
		return nil, err
	}
	for _, c := range compilers {
		if c.Path == "" { // an assembler that CMake left open
			continue
		}
		p, err := identify(c.Path)
		if err != nil {
			return nil, err
		}
		p.Version = c.ID + " " + c.Version
		s.Compilers = append(s.Compilers, stampCompiler{Language: c.Language, program: p, Found: found(c.Path)})
	}
	inputs, err := r.Inputs()
	if err != nil {
		return nil, err
	}
	for _, file := range inputs {
		switch {
		case !within(b.Root, file) || within(b.BinaryDir, file):
			// A source, which its tree id stands for, or the system's.
		case filepath.Base(file) == "CMakeLists.txt" || filepath.Ext(file) == ".cmake":
			s.Inputs[file] = digestOf(file)
		default:
			s.Inputs[file] = ""
		}
	}
	s.Cache, err = readCache(b.BinaryDir)
	return s, err
}

func (s *stamp) write(binDir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(binDir, stampName), append(text, '\n'), 0o644)
}

// found is what PATH gives for the last name of path, or nothing.
func found(path string) string {
	at, err := run.LookPath(filepath.Base(path))
	if err != nil {
		return ""
	}
	return at
}

func digestOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "missing"
	}
	return digestText(text)
}

func digestText(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// readCache reads the entries that people and presets set; those that CMake
// keeps for itself change by configuring twice.
func readCache(binDir string) (map[string]string, error) {
	entries, err := cacheFile(binDir)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for name, e := range entries {
		values[name] = e.Value
	}
	return values, nil
}

// cacheFile reads CMakeCache.txt, which is there even after a configure that
// failed, less the entries that CMake keeps for itself.
func cacheFile(binDir string) (map[string]CacheEntry, error) {
	text, err := os.ReadFile(filepath.Join(binDir, "CMakeCache.txt"))
	if err != nil {
		return nil, err
	}
	entries := map[string]CacheEntry{}
	var help []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "//") {
			help = append(help, strings.TrimSpace(line[2:]))
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		name, kind, typed := strings.Cut(key, ":")
		if ok && typed && !strings.HasPrefix(line, "#") && kind != "INTERNAL" && kind != "STATIC" {
			entries[name] = CacheEntry{Name: name, Type: kind, Value: value, Help: strings.Join(help, " ")}
		}
		help = nil
	}
	return entries, nil
}

// Check compares a build folder's stamp with what b asks for. It starts no
// process.
func Check(b Build) Verdict {
	dir := b.BinaryDir
	if entries, err := os.ReadDir(dir); errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return Verdict{Recreate, "first build"}
	}
	s, err := readStamp(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Verdict{Recreate, "the last configure did not finish, or was not started by payload"}
	case err != nil:
		return Verdict{Recreate, "the build stamp cannot be read: " + err.Error()}
	}
	for _, compare := range []func(*stamp, Build) string{
		placeDiffers, presetDiffers, sourcesDiffer, variablesDiffer, cmakeDiffers, compilersDiffer, cacheDiffers,
	} {
		if why := compare(s, b); why != "" {
			return Verdict{Recreate, why}
		}
	}
	for _, compare := range []func(*stamp, Build) string{launcherDiffers, inputsDiffer} {
		if why := compare(s, b); why != "" {
			return Verdict{Reconfigure, why}
		}
	}
	if why := touched(s, b); why != "" {
		return Verdict{Refresh, why}
	}
	return Verdict{}
}

// placeDiffers finds a folder that was copied or moved here from another
// checkout, whose files the build tool would go on to compile.
func placeDiffers(_ *stamp, b Build) string {
	source, binary := madeFor(b.BinaryDir)
	switch {
	case source == "" && binary == "":
		return "" // no cache, which is told below
	case !samePlace(source, b.SourceDir()):
		return "the build folder was made for " + source
	case !samePlace(binary, b.BinaryDir):
		return "the build folder was made as " + binary
	}
	return ""
}

func presetDiffers(s *stamp, b Build) string {
	if s.Preset != b.Preset.Name {
		return fmt.Sprintf("preset changed: %s, was %s", b.Preset.Name, s.Preset)
	}
	return difference("preset changed", s.Settings, settings(b.Preset))
}

// difference names the first key, in order, whose value is another one.
func difference(what string, was, is map[string]string) string {
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := was[key]
		now, has := is[key]
		switch {
		case had && !has:
			return fmt.Sprintf("%s: %s is not set, was %s", what, key, shown(before))
		case has && !had:
			return fmt.Sprintf("%s: %s is %s, was not set", what, key, shown(now))
		case before != now:
			return fmt.Sprintf("%s: %s is %s, was %s", what, key, shown(now), shown(before))
		}
	}
	return ""
}

func shown(value string) string {
	if value == "" {
		return "empty"
	}
	return value
}

func sourcesDiffer(s *stamp, b Build) string {
	if len(s.Sources) != len(b.Sources) {
		return fmt.Sprintf("sources changed: %d components, were %d", len(b.Sources), len(s.Sources))
	}
	for i, is := range b.Sources {
		was := s.Sources[i]
		link := b.SourceLink(is)
		switch target, err := os.Readlink(link); {
		case was.Component != is.Component:
			return fmt.Sprintf("sources changed: %s, was %s", is.Component, was.Component)
		case was.Ref != is.Ref:
			return fmt.Sprintf("sources changed: %s is %s, was %s", is.Component, is.Ref, was.Ref)
		case was.Commit != is.Commit:
			return fmt.Sprintf("sources changed: %s %s is commit %s, was %s", is.Component, is.Ref, short(is.Commit), short(was.Commit))
		case was.Patched != is.Patched && was.Pristine == is.Pristine:
			return fmt.Sprintf("sources changed: %s %s has other patches: tree %s, was %s", is.Component, is.Ref, short(is.Patched), short(was.Patched))
		case was.Patched != is.Patched:
			return fmt.Sprintf("sources changed: %s %s is tree %s, was %s", is.Component, is.Ref, short(is.Patched), short(was.Patched))
		case was.Build != is.Build:
			return fmt.Sprintf("sources changed: %s is build number %d, was %d", is.Component, is.Build, was.Build)
		case is.Patched == "" && was.Tree != is.Tree:
			return fmt.Sprintf("sources changed: %s is %s, was %s", is.Component, is.Tree, was.Tree)
		case err != nil:
			return fmt.Sprintf("sources changed: the link %s is gone", link)
		case target != was.Tree && !sameFile(target, was.Tree): // bare cmake resolves links
			return fmt.Sprintf("sources changed: something else pointed %s at %s", link, target)
		}
	}
	return ""
}

func short(id string) string {
	if id == "" {
		return "unknown"
	}
	return id[:min(12, len(id))]
}

func variablesDiffer(s *stamp, b Build) string {
	return difference("environment changed", s.Variables, b.steeringNow())
}

func cmakeDiffers(s *stamp, _ Build) string {
	path, err := run.LookPath("cmake")
	if err != nil {
		return "" // the configure will say so
	}
	if now, err := identify(path); err == nil && !now.same(s.CMake) {
		return fmt.Sprintf("cmake changed: %s is not the %s that configured", path, s.CMake.Version)
	}
	return ""
}

func compilersDiffer(s *stamp, _ Build) string {
	for _, c := range s.Compilers {
		now, err := identify(c.Path)
		switch {
		case err != nil:
			return fmt.Sprintf("compiler changed: %s (%s, %s) is gone", c.Path, c.Language, c.Version)
		case !now.same(c.program):
			return fmt.Sprintf("compiler changed: %s is not the %s that was used for %s", c.Path, c.Version, c.Language)
		}
		if at := found(c.Path); at != c.Found {
			return fmt.Sprintf("compiler changed: %s is %s, was %s", filepath.Base(c.Path), shown(at), shown(c.Found))
		}
	}
	return ""
}

func cacheDiffers(s *stamp, b Build) string {
	now, err := readCache(b.BinaryDir)
	if err != nil {
		return "the build folder has no CMakeCache.txt"
	}
	return difference("cache changed by another run of cmake", s.Cache, now)
}

func launcherDiffers(s *stamp, b Build) string {
	if s.Launcher == b.Launcher.Path {
		return ""
	}
	name := func(path string) string {
		if path == "" {
			return "none"
		}
		return path
	}
	return fmt.Sprintf("compiler launcher changed: %s, was %s", name(b.Launcher.Path), name(s.Launcher))
}

func inputsDiffer(s *stamp, b Build) string {
	for _, file := range slices.Sorted(maps.Keys(s.Inputs)) {
		if was := s.Inputs[file]; was != "" && digestOf(file) != was {
			return "project changed: " + b.rel(file)
		}
	}
	return ""
}

// touched finds a file that CMake watches and that is newer than its output.
// The build tool would configure by itself then, without what this package
// passes.
func touched(s *stamp, b Build) string {
	for _, output := range []string{"build.ninja", "Makefile"} {
		made, err := os.Stat(filepath.Join(b.BinaryDir, output))
		if err != nil {
			continue
		}
		files := slices.Sorted(maps.Keys(s.Inputs))
		for _, src := range b.Sources {
			files = append(files, src.Depends...)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.ModTime().After(made.ModTime()) {
				return "written since: " + b.rel(file)
			}
		}
		return ""
	}
	return "" // another generator: it decides by itself
}

// rel is a path as messages show it: relative to the root where it lies below.
func (b Build) rel(path string) string {
	if !within(b.Root, path) {
		return path
	}
	rel, err := filepath.Rel(b.Root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}
