package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"payload/internal/atomicfile"
	"payload/internal/config"
	"payload/internal/pin"
)

// Plan is what is to be added to a repository. Paths are relative to it.
type Plan struct {
	Folders []string
	Files   []File // payload.yaml is the last: it marks the repository
}

// File is one that is written, or is there already with the same content.
type File struct {
	Path string
	Data []byte
}

// ExistsError is a file in the way. It is left as it is.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("starting with %s: %s is there already", config.FileName, e.Path)
}

// ErrNothing says that a repository has nothing that could be carried over.
var ErrNothing = errors.New("nothing here pins an upstream in a way that can be carried over")

const heading = `# What this repository ships and where it comes from.
# Paths are relative to this file.
version: 1
components:
`

const example = `  # A component is one upstream project. Its name is yours to choose.
  # example:
  #   pin: EXAMPLE_VERSION    # a file that holds one line: a tag, a branch or a full commit
  #   upstream: https://example.com/example.git
  #   patches: patches        # optional: *.patch in numeric order
  #   project: native         # optional: a CMake project with presets
  #   target: example-server  # optional: the program that "payload verify" starts
`

// Empty is a plan for a payload.yaml with an example to fill in.
func Empty() Plan {
	return Plan{Files: []File{{config.FileName, []byte(heading + example)}}}
}

// For is a plan for a payload.yaml with these components. It is an error when
// that would not load.
func For(components []Component) (Plan, error) {
	var p Plan
	var text strings.Builder
	text.WriteString(heading)
	if len(components) == 0 {
		return p, ErrNothing
	}
	for _, c := range components {
		if err := pin.CheckRef(c.Ref); err != nil {
			return p, fmt.Errorf("the ref of %s: %w", c.Name, err)
		}
		fmt.Fprintf(&text, "  %s:\n", scalar(c.Name))
		for _, line := range [][2]string{{"pin", c.Pin}, {"upstream", c.Upstream}, {"patches", c.Patches}, {"project", c.Project}} {
			if line[1] != "" {
				fmt.Fprintf(&text, "    %s: %s\n", line[0], scalar(line[1]))
			}
		}
		if c.NewPin {
			p.Files = append(p.Files, File{c.Pin, []byte(c.Ref + "\n")})
		}
		for _, dir := range []string{c.Patches, c.Project} {
			if dir != "" && !slices.Contains(p.Folders, path.Clean(dir)) {
				p.Folders = append(p.Folders, path.Clean(dir))
			}
		}
	}
	data := []byte(text.String())
	if _, err := config.Parse(data); err != nil {
		return p, fmt.Errorf("%s would not load: %w", config.FileName, err)
	}
	p.Files = append(p.Files, File{config.FileName, data})
	return p, nil
}

func scalar(text string) string {
	data, err := yaml.Marshal(text)
	if err != nil { // a string always has a form
		panic(err)
	}
	return strings.TrimSpace(string(data))
}

// YAML is the plan's payload.yaml.
func (p Plan) YAML() []byte { return p.Files[len(p.Files)-1].Data }

// Add puts the files of a file system into a folder of the repository, written
// before payload.yaml.
func (p *Plan) Add(dir string, files fs.FS) error {
	p.Folders = append(p.Folders, dir)
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		p.Files = slices.Insert(p.Files, len(p.Files)-1, File{path.Join(dir, name), data})
		return nil
	})
}

// Check says what is in the way: an *ExistsError. A file that holds what would
// be written is not, payload.yaml excepted.
func (p Plan) Check(root string) error {
	if _, err := os.Lstat(filepath.Join(root, config.FileName)); err == nil {
		return &ExistsError{config.FileName}
	}
	for _, dir := range p.Folders {
		if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir))); err == nil && !info.IsDir() {
			return &ExistsError{dir}
		}
	}
	for _, f := range p.Files {
		if _, err := p.missing(root, f); err != nil {
			return err
		}
	}
	return nil
}

func (p Plan) missing(root string, f File) (bool, error) {
	full := filepath.Join(root, filepath.FromSlash(f.Path))
	if _, err := os.Lstat(full); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	data, err := os.ReadFile(full)
	if err != nil || !bytes.Equal(data, f.Data) {
		return false, &ExistsError{f.Path}
	}
	return false, nil
}

// Write adds what the plan holds and returns the paths that are new. After an
// error nothing of it is left.
func (p Plan) Write(root string) (written []string, err error) {
	if err := p.Check(root); err != nil {
		return nil, err
	}
	var undo []string
	defer func() {
		if err == nil {
			return
		}
		for _, made := range slices.Backward(undo) {
			err = errors.Join(err, os.Remove(made))
		}
	}()
	for _, dir := range p.Folders {
		made, err := makeFolder(root, dir)
		undo = append(undo, made...)
		if err != nil {
			return nil, fmt.Errorf("making the folder %s: %w", dir, err)
		}
	}
	for _, f := range p.Files {
		missing, err := p.missing(root, f)
		if err != nil {
			return nil, err
		}
		if !missing {
			continue
		}
		full := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := atomicfile.Write(full, f.Data, 0o644); err != nil {
			return nil, err
		}
		undo = append(undo, full)
		written = append(written, f.Path)
	}
	return written, nil
}

// makeFolder makes a folder and those above it and returns the new ones.
func makeFolder(root, dir string) (made []string, err error) {
	full := root
	for part := range strings.SplitSeq(dir, "/") {
		full = filepath.Join(full, part)
		switch err := os.Mkdir(full, 0o755); {
		case err == nil:
			made = append(made, full)
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	return made, nil
}
