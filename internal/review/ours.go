package review

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/report"
	"payload/internal/run"
)

// ours is the text of this repository's own files, in which names are looked
// up.
type ours struct {
	files []ourFile
}

type ourFile struct {
	path string
	text string
}

// maxOurs is the size of a file of ours that is still searched, in bytes.
const maxOurs = 2 << 20

// readOurs reads the files that git tracks, or every file where root is no
// repository. Binary ones are left out.
func readOurs(ctx context.Context, root string) (*ours, error) {
	var paths []string
	// The user's own repository, so with the user's own settings: an ignore file
	// of theirs counts.
	res, err := run.Do(ctx, run.Cmd{Dir: root, Args: []string{"git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"}})
	if err == nil {
		paths = git.SplitZ(res.Stdout)
	} else {
		if ctx.Err() != nil {
			return nil, err
		}
		err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if d != nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" {
					return fs.SkipDir
				}
				return err
			}
			rel, err := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(rel))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading the files of %s: %w", root, err)
		}
	}
	o := &ours{}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		full := filepath.Join(root, filepath.FromSlash(path))
		info, err := os.Lstat(full)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxOurs {
			continue // deleted since, a link, or no text that a person wrote
		}
		data, err := os.ReadFile(full)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			continue
		}
		text := string(data)
		if path == config.FileName {
			text = withoutWatch(text)
		}
		if strings.HasSuffix(path, ".patch") {
			text = added(text)
		}
		o.files = append(o.files, ourFile{path: path, text: text})
	}
	return o, nil
}

var watchKey = regexp.MustCompile(`^( *)watch:`)

// withoutWatch blanks the watch sections of a payload.yaml: that a rule looks
// for a name is no dependence on it.
func withoutWatch(text string) string {
	lines := strings.Split(text, "\n")
	indent := -1
	for i, line := range lines {
		if m := watchKey.FindStringSubmatch(line); m != nil && indent < 0 {
			indent = len(m[1])
		} else if depth := len(line) - len(strings.TrimLeft(line, " ")); indent >= 0 && depth <= indent && strings.TrimSpace(line) != "" {
			indent = -1
		}
		if indent >= 0 {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// added blanks what a patch's diff shows of upstream's text, its context and
// what it takes out: only what it adds names things for us. Whether the rest
// still stands there is the series' business.
func added(text string) string {
	lines := strings.Split(text, "\n")
	diff := false
	for i, line := range lines {
		diff = diff || strings.HasPrefix(line, "diff --git ") || strings.HasPrefix(line, "--- ")
		if diff && (!strings.HasPrefix(line, "+") || strings.HasPrefix(line, "+++ ")) {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// maxPlaces is how many places a finding names; a name that stands in more
// files than maxCommon is a common word and tells nothing.
const (
	maxPlaces = 8
	maxCommon = 12
)

// naming lists the lines of our files, of those that globs select, that hold
// one of the names.
func (o *ours) naming(globs []string, how string, names ...string) []report.Place {
	if how == "none" {
		return nil
	}
	var places []report.Place
	inFiles := 0
	for _, f := range o.files {
		if len(globs) > 0 && !matches(globs, f.path) {
			continue
		}
		lines := map[int]bool{}
		for _, name := range names {
			for _, at := range f.find(name, how) {
				lines[1+strings.Count(f.text[:at], "\n")] = true
			}
		}
		if len(lines) > 0 {
			inFiles++
		}
		for line := range lines {
			places = append(places, report.Place{Path: f.path, Line: line})
		}
	}
	if inFiles > maxCommon {
		return nil
	}
	slices.SortFunc(places, func(a, b report.Place) int {
		if d := docs(a.Path) - docs(b.Path); d != 0 {
			return d // what a person reads comes after what a machine reads
		}
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return places[:min(len(places), maxPlaces)]
}

// docs is 1 for a text that people read, else 0.
func docs(path string) int {
	if strings.HasSuffix(path, ".md") || strings.HasSuffix(path, ".txt") && !strings.HasSuffix(path, "CMakeLists.txt") {
		return 1
	}
	return 0
}

// depends says whether a place is one that works with the name, not only tells
// of it.
func depends(places []report.Place) bool {
	return slices.ContainsFunc(places, func(p report.Place) bool { return docs(p.Path) == 0 })
}

// find gives the offsets at which a name stands as a whole word, or in quotes.
func (f ourFile) find(name, how string) []int {
	if len(name) < 2 {
		return nil
	}
	if how == "quoted" {
		name = `"` + name + `"`
	}
	var found []int
	for from := 0; ; {
		i := strings.Index(f.text[from:], name)
		if i < 0 {
			return found
		}
		at := from + i
		from = at + len(name)
		if how == "quoted" || whole(f.text, at, from, name) {
			found = append(found, at)
		}
	}
}

// whole says whether text[at:end] is not a part of a longer name.
func whole(text string, at, end int, name string) bool {
	part := func(b byte, dash bool) bool {
		return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || dash && b == '-'
	}
	dashed := strings.Contains(name, "-")
	if at > 0 && part(text[at-1], dashed) && part(name[0], true) {
		setsIt := at > 1 && text[at-2:at] == "-D" // -DNAME sets an option
		if !setsIt {
			return false
		}
	}
	return end >= len(text) || !part(text[end], dashed) || !part(name[len(name)-1], true)
}
