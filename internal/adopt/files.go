package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"payload/internal/git"
	"payload/internal/run"
)

func gitText(ctx context.Context, dir string, args ...string) ([]byte, error) {
	res, err := run.Do(ctx, run.Cmd{Dir: dir, Args: append([]string{"git"}, args...)})
	return res.Stdout, err
}

func (f *finder) there(name string) bool {
	_, err := os.Lstat(filepath.Join(f.root, filepath.FromSlash(name)))
	return err == nil
}

// Larger files are data, not something that a person wrote.
const largest = 1 << 20

// text is a file's content. ok is false for what is no text: a submodule, a
// link, a binary, a file that is in the index and gone.
func (f *finder) text(name string) (data []byte, ok bool, err error) {
	full := filepath.Join(f.root, filepath.FromSlash(name))
	info, err := os.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() > largest) {
		return nil, false, nil
	}
	if err == nil {
		data, err = os.ReadFile(full)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", name, err)
	}
	return data, !bytes.ContainsRune(data, 0), nil
}

var (
	pinFile    = regexp.MustCompile(`^([A-Z0-9][A-Z0-9_]*)_VERSION$`)
	lineFile   = regexp.MustCompile(`^(?:GNUm|[Mm])akefile(?:\..+)?$|\.mk$|^(?:Docker|Container)file(?:\..+)?$|\.[Dd]ockerfile$|\.ya?ml$`)
	scriptFile = regexp.MustCompile(`^CMakeLists\.txt$|\.cmake$`)
)

// read takes from one file what it says.
func (f *finder) read(name string) error {
	base := path.Base(name)
	var take func(name, text string)
	switch {
	case pinFile.MatchString(base) && strings.Count(name, "/") <= 1:
		take = f.pinFile
	case scriptFile.MatchString(base):
		take = f.script
	case lineFile.MatchString(base):
		take = f.lines
	default:
		return nil
	}
	data, ok, err := f.text(name)
	if ok {
		take(name, strings.TrimPrefix(string(data), "\ufeff"))
	}
	return err
}

func (f *finder) pinFile(name, text string) {
	p := pinned{
		variable: pinFile.FindStringSubmatch(path.Base(name))[1],
		ref:      strings.TrimSpace(text), file: true, sure: true, at: Where{Path: name, Line: 1},
	}
	if strings.ContainsAny(p.ref, "\r\n") {
		p.why = "holds several lines, and a pin file holds one ref alone"
	} else {
		p.why = refProblem(p.ref)
	}
	f.pins = append(f.pins, p)
}

// submodules takes each submodule at the commit of the index.
func (f *finder) submodules(ctx context.Context, inGit bool) error {
	data, ok, err := f.text(".gitmodules")
	if err != nil || !ok {
		return err
	}
	if !inGit {
		f.skip(Where{Path: ".gitmodules"}, "this is no git work tree, so the commits of the submodules are not known")
		return nil
	}
	out, err := gitText(ctx, f.root, "config", "-f", ".gitmodules", "-z", "--get-regexp", `^submodule\..*\.(path|url)$`)
	var exit *run.ExitError
	if errors.As(err, &exit) && exit.Code == 1 { // none
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading .gitmodules: %w", err)
	}
	var order []string
	paths, urls := map[string]string{}, map[string]string{}
	for _, item := range git.SplitZ(out) {
		key, value, _ := strings.Cut(item, "\n")
		if module, ok := strings.CutSuffix(key, ".path"); ok {
			order = append(order, module)
			paths[module] = value
		} else {
			urls[strings.TrimSuffix(key, ".url")] = value
		}
	}
	for _, module := range order {
		d := declaration{upstream: urls[module], at: Where{Path: ".gitmodules", Line: lineOf(string(data), paths[module])}}
		if d.upstream == "" || strings.HasPrefix(d.upstream, "./") || strings.HasPrefix(d.upstream, "../") {
			d.why = fmt.Sprintf("the submodule's address %q is relative to wherever this repository was cloned from", d.upstream)
			d.upstream = ""
			f.declarations = append(f.declarations, d)
			continue
		}
		out, err := gitText(ctx, f.root, "ls-files", "-z", "--stage", "--", ":(literal)"+paths[module])
		if err != nil {
			return fmt.Errorf("reading the commit of submodule %s: %w", paths[module], err)
		}
		fields := strings.Fields(string(out)) // mode, id, stage, name
		if len(fields) > 2 && fields[0] == "160000" && fields[2] == "0" {
			d.ref = fields[1]
			d.why = refProblem(d.ref) // a SHA-256 repository
		} else {
			d.why = "the index holds no commit for the submodule " + strconv.Quote(paths[module])
		}
		if d.why != "" {
			d.ref = ""
		}
		f.declarations = append(f.declarations, d)
	}
	return nil
}

// lineOf is the line of .gitmodules that holds a submodule's path.
func lineOf(text, value string) int {
	for i, line := range strings.Split(text, "\n") {
		key, v, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "path" && strings.Trim(strings.TrimSpace(v), `"`) == value {
			return i + 1
		}
	}
	return 1
}
