package pack

import (
	"debug/elf"
	"debug/pe"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"payload/internal/manifest"
)

// edges are, for each file of the package, the names of the libraries that the
// system's loader takes along with it: the names as the file has them.
func (j *Job) edges() (map[string][]string, error) {
	found := map[string][]string{}
	for _, f := range j.Manifest.Files {
		if f.Link != "" {
			continue
		}
		names, err := needed(j.at(f.Path))
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			found[f.Path] = names
		}
	}
	return found, nil
}

// needed lists the libraries that a file names: ELF's DT_NEEDED, Mach-O's load
// commands of every architecture, a PE file's imports. Anything else needs none.
func needed(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	names := neededOf(f, info.Size())
	slices.Sort(names)
	return slices.Compact(names), nil
}

// neededOf gives nothing for a damaged file: verification has refused it.
func neededOf(r io.ReaderAt, size int64) (names []string) {
	if f, err := elf.NewFile(r); err == nil {
		names, _ = f.ImportedLibraries()
		return names
	}
	for _, image := range manifest.MachO(r, size) {
		slice, _ := image.ImportedLibraries()
		names = append(names, slice...)
	}
	if f, err := pe.NewFile(r); err == nil {
		symbols, _ := f.ImportedSymbols() // "name:library"
		for _, s := range symbols {
			if _, library, ok := strings.Cut(s, ":"); ok {
				names = append(names, library)
			}
		}
	}
	return names
}

// provider is the file that a name of an edge stands for: beside the file that
// needs it, then above, then anywhere. Empty where there is none.
func provider(files []manifest.File, from, name string) string {
	base := path.Base(strings.ReplaceAll(name, `\`, "/"))
	for dir := path.Dir(from); ; dir = path.Dir(dir) {
		want := path.Join(dir, base)
		for _, f := range files {
			if f.Path == want || strings.EqualFold(f.Path, want) && strings.HasSuffix(strings.ToLower(base), ".dll") {
				return f.Path
			}
		}
		if dir == "." {
			break
		}
	}
	for _, f := range files {
		if path.Base(f.Path) == base {
			return f.Path
		}
	}
	return ""
}

// relies are the libraries of the group below that this one's files load, as
// they stood beside them when they were proven.
func (j *Job) relies() (list []manifest.Relied) {
	if j.Group.Over == "" {
		return nil
	}
	var staged []manifest.File
	for _, t := range j.Trees {
		staged = append(staged, t.Manifest.Files...)
	}
	edges, err := j.edges()
	if err != nil {
		return nil // describe has read every file already
	}
	seen := map[string]bool{}
	for from, names := range edges {
		for _, name := range names {
			if provider(j.Manifest.Files, from, name) != "" {
				continue
			}
			p := provider(staged, from, name)
			if p == "" || seen[p] {
				continue
			}
			seen[p] = true
			i := slices.IndexFunc(staged, func(f manifest.File) bool { return f.Path == p })
			list = append(list, manifest.Relied{Path: p, SHA256: staged[i].SHA256})
		}
	}
	slices.SortFunc(list, func(a, b manifest.Relied) int { return strings.Compare(a.Path, b.Path) })
	return list
}
