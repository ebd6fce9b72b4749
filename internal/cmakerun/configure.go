package cmakerun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"payload/internal/run"
)

// Configured is a build folder that is ready to be compiled in.
type Configured struct {
	Verdict  Verdict // what was done, and why
	Warnings int     // of this configure; 0 when it was kept
	Took     time.Duration
	Reply    *Reply
}

// ConfigureError is a configure that CMake gave up.
type ConfigureError struct {
	Preset  string
	Message string // of the first CMake error
	File    string // where it is; empty when CMake names no place
	Line    int
	Missing string // the program that CMake looked for in vain: "C++ compiler", "Ninja"
	Log     string // the whole output
	kind    error
}

func (e *ConfigureError) Error() string {
	where := ""
	if e.File != "" {
		where = fmt.Sprintf("%s:%d: ", e.File, e.Line)
	}
	return fmt.Sprintf("configuring preset %q: %s%s", e.Preset, where, e.Message)
}

// Unwrap gives run.ErrNoSpace, run.ErrNoMemory, the failed process, or nil.
func (e *ConfigureError) Unwrap() error { return e.kind }

// FolderError is a build folder that this package does not dare to delete.
type FolderError struct {
	Dir string
	Why string
}

func (e *FolderError) Error() string {
	return fmt.Sprintf("clearing the build folder %s: %s; nothing was deleted", e.Dir, e.Why)
}

// Configure makes the build folder fit b: kept where its stamp matches, else
// configured, with everything of the old folder deleted where that is needed.
// line, where not nil, gets CMake's output as it comes. A wrong preset gives
// *UndeclaredOptionError, *OverruledOptionError or *NoTargetError, CMake's
// own failure *ConfigureError.
func Configure(ctx context.Context, b Build, line func(string)) (*Configured, error) {
	started := time.Now()
	dir := b.BinaryDir
	if err := os.RemoveAll(oldDir(dir)); err != nil {
		return nil, fmt.Errorf("clearing the build folder %s: %w", dir, err)
	}
	c := &Configured{Verdict: Check(b)}
	if c.Verdict.Action == Keep {
		var err error
		if c.Reply, err = ReadReply(dir); err == nil {
			return c, c.keep(b, started)
		}
		c.Verdict = Verdict{Recreate, "CMake's answers about the folder are not whole"}
	}
	if err := prepare(b, c.Verdict.Action); err != nil {
		return nil, err
	}
	out, err := runLogged(ctx, ConfigureCmd(b), b.ConfigureLog(), line)
	if err != nil {
		return nil, configureError(ctx, b, out, err)
	}
	c.Warnings = countWarnings(out, b)
	if c.Reply, err = ReadReply(dir); err != nil {
		return nil, err
	}
	if err := checkOptions(b, c.Reply, unusedIn(out), c.Verdict.Action == Refresh); err != nil {
		return nil, err
	}
	if err := c.checkPreset(b); err != nil {
		return nil, err
	}
	s, err := newStamp(b, c.Reply)
	if err != nil {
		return nil, fmt.Errorf("describing the build for its stamp: %w", err)
	}
	if err := s.write(dir); err != nil {
		return nil, err
	}
	c.Took = time.Since(started)
	return c, c.checkAsked(b)
}

func (c *Configured) keep(b Build, started time.Time) error {
	if err := relink(b); err != nil {
		return err
	}
	var err error
	if c.Reply, err = ReadReply(b.BinaryDir); err != nil {
		return err
	}
	if err := c.checkPreset(b); err != nil {
		return err
	}
	c.Took = time.Since(started)
	return c.checkAsked(b)
}

// NoTargetError is a preset that builds a target which its configure did not
// make: a backend whose SDK was not found, say.
type NoTargetError struct {
	Preset   string
	Target   string
	Warnings []string // of the configure; they tell why, where a project only warns
	Log      string
}

func (e *NoTargetError) Error() string {
	text := fmt.Sprintf("configuring preset %q: the project has no target %q, which the preset builds", e.Preset, e.Target)
	if len(e.Warnings) > 0 {
		text += "; it warned: " + strings.Join(e.Warnings, "; ")
	}
	return text
}

// checkPreset looks at the targets that the preset builds.
func (c *Configured) checkPreset(b Build) error {
	for _, target := range b.Preset.Vendor.Targets {
		err := c.checkTarget(b, target)
		if _, unknown := errors.AsType[*UnknownTargetError](err); unknown {
			log, _ := os.ReadFile(b.ConfigureLog()) // without it the error only says less
			return &NoTargetError{Preset: b.Preset.Name, Target: target, Warnings: warningsIn(string(log)), Log: b.ConfigureLog()}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkAsked looks at the targets of the command line, which are no part of
// the configure.
func (c *Configured) checkAsked(b Build) error {
	for _, target := range b.Targets {
		if err := c.checkTarget(b, target); err != nil {
			return err
		}
	}
	return nil
}

// builtIn are targets that every project has and that the File API leaves out.
var builtIn = []string{"all", "clean", "install", "help"}

func (c *Configured) checkTarget(b Build, name string) error {
	if slices.Contains(builtIn, name) || strings.ContainsAny(name, `/.\`) { // a file can be asked for too
		return nil
	}
	_, err := c.Reply.Target(name)
	if unknown, ok := errors.AsType[*UnknownTargetError](err); ok {
		unknown.Preset = b.Preset.Name
	}
	return err
}

// oldDir is where a build folder goes to be deleted: a rename is whole, a
// deletion that stops half-way is not.
func oldDir(dir string) string { return dir + ".payload-old" }

// prepare removes the stamp first, so that a folder that is half cleared or
// half configured has none, and then what action says.
func prepare(b Build, action Action) error {
	dir := b.BinaryDir
	if err := mayClear(b); err != nil {
		return err
	}
	gone := []string{stampName}
	if action == Reconfigure {
		gone = append(gone, "CMakeCache.txt", "CMakeFiles")
	}
	for _, name := range gone {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("clearing the build folder %s: %w", dir, err)
		}
	}
	if action == Recreate {
		err := os.Rename(dir, oldDir(dir))
		if err == nil {
			err = os.RemoveAll(oldDir(dir))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clearing the build folder %s: %w", dir, err)
		}
	}
	// The query comes first: it marks the folder as one that may be cleared.
	if err := writeQuery(dir); err != nil {
		return fmt.Errorf("preparing the build folder %s: %w", dir, err)
	}
	return link(b)
}

// mayClear refuses folders that hold something else than a build of this
// project. A preset may name any folder, and a wrong one must not cost a
// person their files.
func mayClear(b Build) error {
	dir := b.BinaryDir
	if within(dir, b.Root) || within(dir, b.SourceDir()) {
		return &FolderError{Dir: dir, Why: "it holds the project itself"}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clearing the build folder %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(apiDir), "query", apiClient)); err == nil {
		return nil
	}
	switch source, binary := madeFor(dir); {
	case source == "" && binary == "":
		return &FolderError{Dir: dir, Why: "it is not empty and no build folder"}
	case samePlace(source, b.SourceDir()), copied(b, source, binary):
		return nil
	}
	return &FolderError{Dir: dir, Why: "it is the build folder of another project"}
}

// copied says whether the cache came here with a copy of the whole checkout:
// it was made elsewhere, at the same place beside a project.
func copied(b Build, source, binary string) bool {
	was, err1 := filepath.Rel(filepath.FromSlash(source), filepath.FromSlash(binary))
	is, err2 := filepath.Rel(b.SourceDir(), b.BinaryDir)
	return err1 == nil && err2 == nil && was == is && !samePlace(binary, b.BinaryDir)
}

var (
	cacheHome = regexp.MustCompile(`(?m)^CMAKE_HOME_DIRECTORY:INTERNAL=(.*?)\r?$`)
	cacheDir  = regexp.MustCompile(`(?m)^CMAKE_CACHEFILE_DIR:INTERNAL=(.*?)\r?$`)
)

// madeFor reads from CMake's cache which project's folder was configured into
// which folder; both are empty without a cache.
func madeFor(dir string) (source, binary string) {
	text, err := os.ReadFile(filepath.Join(dir, "CMakeCache.txt"))
	if err != nil {
		return "", ""
	}
	if m := cacheHome.FindSubmatch(text); m != nil {
		source = string(m[1])
	}
	if m := cacheDir.FindSubmatch(text); m != nil {
		binary = string(m[1])
	}
	return source, binary
}

// samePlace says whether both paths lead to one folder, or are one path.
func samePlace(a, b string) bool {
	return filepath.Clean(filepath.FromSlash(a)) == filepath.Clean(b) || sameFile(a, b)
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// link points each source's link at its tree. A rename replaces the old one,
// so nothing ever meets a missing link.
func link(b Build) error {
	for _, s := range b.Sources {
		at := b.SourceLink(s)
		info, err := os.Lstat(at)
		switch {
		case err == nil && info.Mode()&fs.ModeSymlink == 0:
			return fmt.Errorf("linking %s to %s: something else is there", at, s.Tree)
		case err == nil:
			if target, err := os.Readlink(at); err == nil && target == s.Tree {
				continue
			}
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("linking %s to %s: %w", at, s.Tree, err)
		}
		temp := at + "." + strconv.Itoa(os.Getpid())
		if err := os.Symlink(s.Tree, temp); err != nil {
			return fmt.Errorf("linking %s to %s: %w", at, s.Tree, err)
		}
		if err := os.Rename(temp, at); err != nil {
			return errors.Join(fmt.Errorf("linking %s to %s: %w", at, s.Tree, err), os.Remove(temp))
		}
	}
	return nil
}

// relink follows a store that moved: the same trees in another place. The stamp
// goes first and comes back last, because it names the places.
func relink(b Build) error {
	s, err := readStamp(b.BinaryDir)
	if err != nil {
		return fmt.Errorf("reading the build stamp: %w", err)
	}
	moved := false
	for i := range s.Sources {
		moved = moved || s.Sources[i].Tree != b.Sources[i].Tree
		s.Sources[i].Tree = b.Sources[i].Tree
	}
	if !moved {
		return nil
	}
	if err := os.Remove(filepath.Join(b.BinaryDir, stampName)); err != nil {
		return fmt.Errorf("removing the build stamp: %w", err)
	}
	if err := link(b); err != nil {
		return err
	}
	return s.write(b.BinaryDir)
}

func configureError(ctx context.Context, b Build, out string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("configuring preset %q: %w", b.Preset.Name, err)
	}
	exit, ok := errors.AsType[*run.ExitError](err)
	if !ok {
		return fmt.Errorf("configuring preset %q: %w", b.Preset.Name, err)
	}
	e := parseConfigure(out)
	e.Preset = b.Preset.Name
	e.Log = b.ConfigureLog()
	if e.Message == "" {
		e.Message = exit.Error()
	}
	e.kind = buildKind(out, err)
	return e
}

var (
	cmakeError = regexp.MustCompile(`^CMake Error(?: \([^)]*\))?(?: (?:at|in) (.+?)(?::(\d+))?(?: \(.*\))?)?:(.*)$`)
	noCompiler = regexp.MustCompile(`(?:No CMAKE_(\w+)_COMPILER could be found|The CMAKE_(\w+)_COMPILER:\s+\S+\s+is not a full path)`)
	noTool     = regexp.MustCompile(`unable to find a build program corresponding to "([^"]+)"`)
	// An error's text is indented; these begin the parts that follow it.
	afterError = []string{"Call Stack", "--", "CMake "}
)

// parseConfigure reads the first error of CMake's output.
func parseConfigure(out string) *ConfigureError {
	e := &ConfigureError{}
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		m := cmakeError.FindStringSubmatch(strings.TrimRight(line, "\r"))
		if m == nil {
			continue
		}
		e.File = m[1]
		e.Line, _ = strconv.Atoi(m[2]) // no line is 0
		e.Message = messageAt(m[3], lines[i+1:])
		break
	}
	if m := noTool.FindStringSubmatch(out); m != nil {
		e.Missing = m[1]
	}
	if m := noCompiler.FindStringSubmatch(out); m != nil {
		e.Missing = strings.Replace(m[1]+m[2], "CXX", "C++", 1) + " compiler"
	}
	return e
}

// messageAt is the text of an error or a warning in one line: what stands behind
// its heading, and the lines that follow.
func messageAt(behind string, lines []string) string {
	text := []string{behind}
	for _, line := range lines {
		if slices.ContainsFunc(afterError, func(p string) bool { return strings.HasPrefix(line, p) }) {
			break
		}
		text = append(text, line)
	}
	return strings.Join(strings.Fields(strings.Join(text, " ")), " ")
}

var projectWarning = regexp.MustCompile(`^CMake Warning at .+?:\d+ \(message\):(.*)$`)

// warningsIn reads what the project itself warned of.
func warningsIn(out string) (list []string) {
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if m := projectWarning.FindStringSubmatch(strings.TrimRight(line, "\r")); m != nil {
			list = append(list, messageAt(m[1], lines[i+1:]))
		}
	}
	return list
}

var (
	warning    = regexp.MustCompile(`(?m)^CMake (?:Deprecation )?Warning\b`)
	unusedHead = "Manually-specified variables were not used by the project:"
)

// countWarnings counts CMake's warnings. The one about unused variables counts
// only when it names others than those that this package passes to everyone.
func countWarnings(out string, b Build) int {
	n := len(warning.FindAllString(out, -1))
	unused := unusedIn(out)
	if len(unused) > 0 && !slices.ContainsFunc(unused, func(name string) bool { return !b.passes(name) }) {
		n--
	}
	return n
}

// passes says whether name is a variable that tells the project about a
// source.
func (b Build) passes(name string) bool {
	return slices.ContainsFunc(b.Sources, func(s Source) bool { return strings.HasPrefix(name, s.Var+"_") })
}

// unusedIn reads which of the given variables the project never read.
func unusedIn(out string) []string {
	_, after, found := strings.Cut(out, unusedHead)
	if !found {
		return nil
	}
	var names []string
	for line := range strings.Lines(after) {
		switch {
		case strings.HasPrefix(line, "    "):
			names = append(names, strings.TrimSpace(line))
		case strings.TrimSpace(line) != "":
			return names
		}
	}
	return names
}
