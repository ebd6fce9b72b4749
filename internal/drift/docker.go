package drift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/config"
	"payload/internal/report"
)

// stage is one FROM of a Dockerfile and what it has from the build context.
type stage struct {
	name   string
	line   int
	copied []string // globs, of the stages below it too
}

// instruction is one instruction of a Dockerfile, its lines joined.
type instruction struct {
	name string // upper case
	args []string
	line int
}

// instructions reads a Dockerfile. Here-documents belong to the instruction that
// opens them and hold none.
func instructions(text string) []instruction {
	var list []instruction
	rows := strings.Split(text, "\n")
	for i := 0; i < len(rows); i++ {
		row := strings.TrimSpace(rows[i])
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		start := i + 1
		for strings.HasSuffix(row, "\\") && i+1 < len(rows) {
			i++
			next := strings.TrimSpace(rows[i])
			if strings.HasPrefix(next, "#") || next == "" {
				continue // Docker drops these in the middle of a line, too
			}
			row = strings.TrimSuffix(row, "\\") + " " + next
		}
		name, rest, _ := strings.Cut(row, " ")
		list = append(list, instruction{name: strings.ToUpper(name), args: arguments(rest), line: start})
		for _, w := range strings.Fields(rest) {
			end, opens := strings.CutPrefix(w, "<<")
			if end = strings.Trim(strings.TrimPrefix(end, "-"), `"'`); opens && end != "" {
				for i++; i < len(rows) && strings.TrimSpace(rows[i]) != end; i++ {
				}
			}
		}
	}
	return list
}

// arguments are an instruction's words, in either of its two forms.
func arguments(rest string) []string {
	flags, words := []string{}, strings.Fields(rest)
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		flags, words = append(flags, words[0]), words[1:]
	}
	var list []string
	if text := strings.Join(words, " "); strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &list) == nil {
		words = list
	}
	return append(flags, words...)
}

func checkDocker(_ context.Context, r *repo) ([]report.Finding, error) {
	ignored, err := r.dockerIgnore()
	if err != nil {
		return nil, err
	}
	var found []report.Finding
	for _, file := range r.files {
		if !doublestar.MatchUnvalidated("**/{Dockerfile,Dockerfile.*,*.Dockerfile,Containerfile,*.Containerfile}", file) || strings.HasSuffix(file, ".dockerignore") {
			continue
		}
		text, err := r.text(file)
		if err != nil {
			return nil, err
		}
		found = append(found, r.dockerfile(file, text, ignored)...)
	}
	return found, nil
}

// dockerfile looks at one file, whose build context is the repository.
func (r *repo) dockerfile(file, text string, ignored func(string) bool) []report.Finding {
	var found []report.Finding
	var stages []stage
	for _, in := range instructions(text) {
		switch {
		case in.name == "FROM":
			stages = append(stages, newStage(in, stages))
		case (in.name == "COPY" || in.name == "ADD") && len(stages) > 0:
			s := &stages[len(stages)-1]
			sources := in.args
			for len(sources) > 0 && strings.HasPrefix(sources[0], "--") {
				if strings.HasPrefix(sources[0], "--from=") {
					sources = nil
					break
				}
				sources = sources[1:]
			}
			for _, source := range sources[:max(0, len(sources)-1)] {
				if strings.Contains(source, "://") || strings.HasPrefix(source, "git@") || strings.HasPrefix(source, "<<") || strings.Contains(source, "$") {
					continue
				}
				glob := strings.TrimPrefix(path.Clean("/"+source), "/") // a context has nothing above it
				if glob == "" {
					glob = "."
				}
				s.copied = append(s.copied, glob)
				takes := func(name string) bool { return covers(glob, name) }
				switch i := slices.IndexFunc(r.files, takes); {
				case i < 0:
					found = append(found, finding("docker.dead", source, report.Error, place(file, in.line), fmt.Sprintf("%s %s matches no file", in.name, source), "", "take it out, or name what it became"))
				case !slices.ContainsFunc(r.files, func(name string) bool { return takes(name) && !ignored(name) }):
					found = append(found, finding("docker.ignored", source, report.Error, place(file, in.line), fmt.Sprintf(".dockerignore leaves out all of %s", source), "", "correct .dockerignore"))
				}
			}
		}
	}
	for _, s := range stages {
		takes := func(name string) bool {
			return !ignored(name) && slices.ContainsFunc(s.copied, func(glob string) bool { return covers(glob, name) })
		}
		for _, p := range r.projects {
			if left := missing(p, takes); len(left) > 0 {
				found = append(found, finding("docker.incomplete", s.name+" "+p.Dir, report.Error, place(file, s.line),
					fmt.Sprintf("stage %s copies some inputs of %s, and not %s", s.name, p.Dir, listed(left)), "What it builds is not what is pinned and patched.", "copy them, too"))
			}
		}
	}
	return found
}

// newStage begins a stage: FROM [--platform=…] IMAGE [AS NAME]. One that goes on
// from another has what that one has.
func newStage(in instruction, before []stage) stage {
	s := stage{name: fmt.Sprint(len(before)), line: in.line}
	words := slices.DeleteFunc(slices.Clone(in.args), func(w string) bool { return strings.HasPrefix(w, "--") })
	if len(words) == 3 && strings.EqualFold(words[1], "AS") {
		s.name = words[2]
	}
	for _, b := range before {
		if len(words) > 0 && strings.EqualFold(b.name, words[0]) {
			s.copied = slices.Clone(b.copied)
		}
	}
	return s
}

// dockerIgnore reads .dockerignore: what is no part of the build context.
func (r *repo) dockerIgnore() (func(string) bool, error) {
	text, err := r.text(".dockerignore")
	if errors.Is(err, os.ErrNotExist) {
		return func(string) bool { return false }, nil
	}
	if err != nil {
		return nil, err
	}
	var globs []string
	for _, row := range strings.Split(text, "\n") {
		row = strings.TrimSpace(row)
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		rest, out := strings.CutPrefix(row, "!")
		rest = strings.TrimPrefix(path.Clean("/"+rest), "/")
		mark := ""
		if out {
			mark = "!"
		}
		globs = append(globs, mark+rest, mark+rest+"/**")
	}
	return func(name string) bool { return config.Matches(globs, name) }, nil
}
