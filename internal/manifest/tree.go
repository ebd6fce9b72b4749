package manifest

import (
	"errors"
	"path"
	"strings"
)

// What a link can be that leads to nothing inside a tree.
var (
	ErrAbsolute = errors.New("the link is absolute")
	ErrOutside  = errors.New("the link leads out")
	ErrCycle    = errors.New("the link leads back to itself")
	ErrNothing  = errors.New("nothing is there")
)

// Tree finds files by path, through links, as a system would that had nothing
// but these files.
type Tree struct {
	files   map[string]File
	folders map[string]bool
}

// NewTree takes files and links by their paths; the folders above them are
// there too. A path that ends in "/." stands for an empty folder.
func NewTree(files []File) *Tree {
	t := &Tree{files: map[string]File{}, folders: map[string]bool{".": true}}
	for _, f := range files {
		if dir, ok := strings.CutSuffix(f.Path, "/."); ok {
			t.folders[dir] = true
		} else {
			t.files[f.Path] = f
		}
		for d := path.Dir(path.Clean(f.Path)); d != "."; d = path.Dir(d) {
			t.folders[d] = true
		}
	}
	return t
}

// Follow gives the path of the file or folder that p stands for, step by step:
// a/.. is not always where a lies. The error is one of those above.
func (t *Tree) Follow(p string) (string, error) {
	at, rest, links := ".", p, 0
	for rest != "" {
		var step string
		step, rest, _ = strings.Cut(rest, "/")
		switch step {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", ErrOutside
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, step)
		f, ok := t.files[next]
		switch {
		case ok && f.Link != "":
			if links++; links > 40 { // as many as Linux follows
				return "", ErrCycle
			}
			if strings.HasPrefix(f.Link, "/") || len(f.Link) > 1 && f.Link[1] == ':' {
				return "", ErrAbsolute
			}
			if rest != "" {
				rest = f.Link + "/" + rest
			} else {
				rest = f.Link
			}
		case ok || t.folders[next]:
			at = next
		default:
			return "", ErrNothing
		}
	}
	return at, nil
}
