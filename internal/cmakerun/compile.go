package cmakerun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"payload/internal/run"
)

// Progress is how far a compile is. Done and Total count steps, or percent
// where the build tool counts so; Line is the step.
type Progress struct {
	Done, Total int
	Line        string
}

// Compiled is a compile that ended well.
type Compiled struct {
	Steps int // 0 when everything was up to date
	Took  time.Duration
	Log   string
}

// CompileError is a compile that failed.
type CompileError struct {
	Preset     string
	Command    string // the command that failed first, as the build tool ran it; may be empty
	Output     string // what it printed
	File       string // of the first error; else what was being made
	FirstError string // "file:line:col: error: …", or the line that says most
	Log        string // the whole output
	kind       error
}

func (e *CompileError) Error() string {
	what := e.FirstError
	switch {
	case errors.Is(e.kind, run.ErrNoMemory):
		what = fmt.Sprintf("%s: %v (%s)", e.File, run.ErrNoMemory, e.FirstError)
	case errors.Is(e.kind, run.ErrNoSpace):
		what = fmt.Sprintf("%s: %v", e.File, run.ErrNoSpace)
	}
	return fmt.Sprintf("compiling preset %q: %s", e.Preset, what)
}

// Unwrap gives run.ErrNoMemory, run.ErrNoSpace, or the failed process.
func (e *CompileError) Unwrap() error { return e.kind }

// Compile builds b's targets in its configured folder. progress, where not nil,
// is called for each step. A failure of the compile gives *CompileError.
func Compile(ctx context.Context, b Build, progress func(Progress)) (*Compiled, error) {
	started := time.Now()
	killsBefore := oomKills()
	steps := 0
	out, err := runLogged(ctx, CompileCmd(b), b.BuildLog(), func(line string) {
		p, ok := parseProgress(line)
		if !ok || p.Done < steps { // less: a step that builds a project of its own
			return
		}
		steps = p.Done
		if progress != nil {
			progress(p)
		}
	})
	if err == nil {
		return &Compiled{Steps: steps, Took: time.Since(started), Log: b.BuildLog()}, nil
	}
	exit, ok := errors.AsType[*run.ExitError](err)
	if !ok || ctx.Err() != nil {
		return nil, fmt.Errorf("compiling preset %q: %w", b.Preset.Name, err)
	}
	e := parseFailure(out)
	e.Preset = b.Preset.Name
	e.Log = b.BuildLog()
	e.kind = buildKind(e.Output, err)
	killed := oomKills() > killsBefore || exit.Signal == "SIGKILL"
	if killed && !errors.Is(e.kind, run.ErrNoSpace) && !errorLine.MatchString(e.Output) {
		e.kind = run.ErrNoMemory
	}
	if e.FirstError == "" {
		e.FirstError = exit.Error()
	}
	return nil, e
}

// Install installs one component of b below prefix, or all when component is
// empty.
func Install(ctx context.Context, b Build, component, prefix string) error {
	if _, err := run.Do(ctx, InstallCmd(b, component, prefix)); err != nil {
		what := "everything"
		if component != "" {
			what = fmt.Sprintf("component %q", component)
		}
		return fmt.Errorf("installing %s of preset %q to %s: %w", what, b.Preset.Name, prefix, err)
	}
	return nil
}

var (
	ninjaStatus = regexp.MustCompile(`^\[(\d+)/(\d+)\] (.*)`)
	makeStatus  = regexp.MustCompile(`^\[ *(\d+)%\] (.*)`)
)

func parseProgress(line string) (Progress, bool) {
	if m := ninjaStatus.FindStringSubmatch(line); m != nil {
		done, err1 := strconv.Atoi(m[1])
		total, err2 := strconv.Atoi(m[2])
		return Progress{Done: done, Total: total, Line: m[3]}, err1 == nil && err2 == nil
	}
	if m := makeStatus.FindStringSubmatch(line); m != nil {
		done, err := strconv.Atoi(m[1])
		return Progress{Done: done, Total: 100, Line: m[2]}, err == nil
	}
	return Progress{}, false
}

var (
	failed = regexp.MustCompile(`^FAILED: (?:\[code=\d+\] )?(.*)`)
	// The forms of GCC and Clang, of nvcc, and of MSVC.
	errorLine = regexp.MustCompile(`(?m)^(?:(.+?):\d+(?::\d+)?: (?:fatal )?error: .*|(.+?)\(\d+(?:,\d+)?\): (?:fatal )?error\b.*)`)
	// What linkers and the compilers' drivers say when there is no such line.
	otherError = regexp.MustCompile(`(?mi)^.*(?:undefined reference to|symbol\(s\) not found|multiple definition of|cannot find -l|\berror\b|\bkilled\b|no space left).*`)
)

// parseFailure reads the first command that failed out of a whole log. Of
// others that failed beside it, nothing more is needed.
func parseFailure(log string) *CompileError {
	e := &CompileError{}
	lines := strings.Split(log, "\n")
	var output []string
	for i, line := range lines {
		m := failed.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		e.File = strings.TrimSpace(m[1])
		rest := lines[i+1:]
		if len(rest) > 0 {
			e.Command = strings.TrimSpace(rest[0])
			rest = rest[1:]
		}
		for _, line := range rest {
			if ninjaStatus.MatchString(line) || failed.MatchString(line) || strings.HasPrefix(line, "ninja: ") {
				break
			}
			output = append(output, line)
		}
		break
	}
	e.Output = strings.TrimSpace(strings.Join(output, "\n"))
	if e.Command == "" { // another build tool, or a failure before any command
		e.Output = tail(log, 200)
	}
	if m := errorLine.FindStringSubmatch(e.Output); m != nil {
		e.FirstError = m[0]
		e.File = m[1] + m[2]
	} else if line := otherError.FindString(e.Output); line != "" {
		e.FirstError = strings.TrimSpace(line)
	} else if e.Command != "" {
		e.FirstError = e.File + ": " + lastLine(e.Output)
	}
	return e
}

func lastLine(text string) string {
	if text == "" {
		return "the command failed and printed nothing"
	}
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// buildKind tells the two failures that say nothing about the sources from all
// others.
func buildKind(output string, err error) error {
	switch kind := run.Classify(output); {
	case errors.Is(kind, run.ErrNoMemory), errors.Is(kind, run.ErrNoSpace):
		return kind
	}
	return err
}

// runLogged runs a command with both streams in one log file, kept whole, and
// gives the output back.
func runLogged(ctx context.Context, c run.Cmd, log string, line func(string)) (string, error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return "", err
	}
	file, err := os.Create(log)
	if err != nil {
		return "", err
	}
	w := &lineWriter{file: file, line: line}
	c.Stdout, c.Stderr = w, w
	_, err = run.Do(ctx, c)
	w.flush()
	if cerr := errors.Join(w.err, file.Close()); err == nil && cerr != nil {
		err = fmt.Errorf("writing %s: %w", log, cerr)
	}
	return w.all.String(), err
}

// lineWriter keeps output, writes it to a file and hands out whole lines.
// A full disk must not stop the process whose output says so.
type lineWriter struct {
	file *os.File
	line func(string)
	all  bytes.Buffer
	part []byte
	err  error
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.all.Write(b)
	if _, err := w.file.Write(b); err != nil && w.err == nil {
		w.err = err
	}
	w.part = append(w.part, b...)
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		w.emit(w.part[:i])
		w.part = w.part[i+1:]
	}
}

func (w *lineWriter) emit(line []byte) {
	if w.line != nil {
		w.line(string(bytes.TrimRight(line, "\r")))
	}
}

func (w *lineWriter) flush() {
	if len(w.part) > 0 {
		w.emit(w.part)
		w.part = nil
	}
}
