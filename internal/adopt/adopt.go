// Package adopt starts a repository off with a payload.yaml: an empty one, one
// for a component that was named, or one for what the repository already has.
//
// It owns the reading of other ways to pin an upstream: pin files, lines of
// makefiles, Dockerfiles and YAML, CMake's FetchContent and ExternalProject,
// submodules, folders of patches. It refuses to guess: what is not pinned, or
// is said in two ways, is listed with its place and the reason and left out.
// It refuses, too, to change or delete anything: it only adds files.
package adopt

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/pin"
)

// Where is a line of a file. The path is relative to the repository and has
// forward slashes; a line of 0 means the whole file or folder.
type Where struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
}

func (w Where) String() string {
	if w.Line == 0 {
		return w.Path
	}
	return fmt.Sprintf("%s:%d", w.Path, w.Line)
}

// Component is one that can be carried over.
type Component struct {
	config.Component
	Ref    string
	NewPin bool    // the pin file is not there yet
	From   []Where // the places that say so
}

// Skipped is something that could not be carried over.
type Skipped struct {
	Where
	Why string `json:"why"`
}

// Found is what a repository has.
type Found struct {
	Components []Component
	Skipped    []Skipped
}

// declaration is a place that names an upstream.
type declaration struct {
	upstream string
	ref      string
	why      string // why there is no ref, or no upstream
	open     bool   // the ref is computed, so another place may well be where it comes from
	weak     bool   // an address and nothing else: it counts only where a pin asks for it
	at       Where
	text     string // what may name the folder of patches
}

// pinned is a place that holds a ref and, by its name, whose: LIB for LIB_VERSION.
type pinned struct {
	variable string
	ref      string
	why      string // why the ref is of no use
	file     bool   // a pin file, holding the ref alone
	sure     bool   // worth telling of where its upstream is not known
	at       Where
}

// finder gathers what the files say.
type finder struct {
	root         string
	files        []string
	declarations []declaration
	pins         []pinned
	skipped      []Skipped
}

func (f *finder) skip(at Where, format string, args ...any) {
	f.skipped = append(f.skipped, Skipped{at, fmt.Sprintf(format, args...)})
}

// Look reads the repository at root. Files that git ignores, submodules and
// repositories nested in it are passed over.
func Look(ctx context.Context, root string) (Found, error) {
	files, inGit, err := git.Files(ctx, root)
	if err != nil {
		return Found{}, err
	}
	f := &finder{root: root, files: files}
	for _, name := range f.files {
		if err := f.read(name); err != nil {
			return Found{}, err
		}
	}
	if err := f.submodules(ctx, inGit); err != nil {
		return Found{}, err
	}
	components := f.join()
	if err := f.series(components); err != nil {
		return Found{}, err
	}
	found := Found{Skipped: f.skipped}
	for _, c := range components {
		found.Components = append(found.Components, c.Component)
	}
	slices.SortStableFunc(found.Skipped, func(a, b Skipped) int {
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return a.Line - b.Line
	})
	found.Skipped = slices.Compact(found.Skipped)
	return found, nil
}

// joined is a component with the declarations it was made from.
type joined struct {
	Component
	declarations []declaration
}

// upstreams groups the declarations by the repository they name, in the order
// of the files. One that names none is listed.
func (f *finder) upstreams() [][]declaration {
	var groups [][]declaration
	at := map[string]int{}
	strong := map[string]bool{} // variables of components that are more than an address
	for _, d := range f.declarations {
		if d.upstream == "" {
			f.skip(d.at, "%s", d.why)
			continue
		}
		if !d.weak {
			strong[config.VarName(nameOf(d.upstream))] = true
		}
		key := sameRepository(d.upstream)
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	return slices.DeleteFunc(groups, func(g []declaration) bool {
		weak := !slices.ContainsFunc(g, func(d declaration) bool { return !d.weak })
		variable := config.VarName(nameOf(g[0].upstream))
		wanted := slices.ContainsFunc(f.pins, func(p pinned) bool { return p.variable == variable })
		return weak && (strong[variable] || !wanted)
	})
}

// join brings upstreams and refs together.
func (f *finder) join() []joined {
	groups := f.upstreams()
	sharing := map[string]int{}
	for _, g := range groups {
		sharing[config.VarName(nameOf(g[0].upstream))]++
	}
	var components []joined
	matched := map[string]bool{}
	for _, g := range groups {
		name := nameOf(g[0].upstream)
		variable := config.VarName(name)
		matched[variable] = true
		if sharing[variable] > 1 {
			for _, d := range g {
				f.skip(d.at, "%s is one of several upstreams called %s; which one is meant is not known", d.upstream, name)
			}
			continue
		}
		var pins []pinned
		for _, p := range f.pins {
			if p.variable == variable {
				pins = append(pins, p)
			}
		}
		if c, ok := f.component(name, g, pins); ok {
			components = append(components, c)
		}
	}
	for _, p := range f.pins {
		switch {
		case sharing[p.variable] > 1 && p.sure:
			f.skip(p.at, "several upstreams could be the one that %s pins", p.ref)
		case matched[p.variable] || !p.sure:
		case p.why != "":
			f.skip(p.at, "%s", p.why)
		default:
			f.skip(p.at, "%s is pinned here, but no file names its upstream", p.ref)
		}
	}
	return components
}

// component decides on one upstream.
func (f *finder) component(name string, from []declaration, pins []pinned) (joined, bool) {
	c := joined{declarations: from}
	c.Name, c.Upstream = name, from[0].upstream
	c.Pin, c.NewPin = config.VarName(name)+"_VERSION", true
	type said struct {
		ref string
		at  Where
	}
	var refs []said
	for _, d := range from {
		switch {
		case d.ref != "":
			refs = append(refs, said{d.ref, d.at})
		case d.weak:
		case d.open && len(pins) > 0:
			c.From = append(c.From, d.at)
		default:
			f.skip(d.at, "%s", d.why)
		}
	}
	for _, p := range pins {
		if p.why != "" {
			f.skip(p.at, "%s", p.why)
			continue
		}
		refs = append(refs, said{p.ref, p.at})
		if p.file && (c.NewPin || strings.Count(p.at.Path, "/") < strings.Count(c.Pin, "/")) {
			c.Pin, c.NewPin = p.at.Path, false
		}
	}
	if len(refs) == 0 {
		for _, d := range from {
			if d.open && len(pins) > 0 {
				f.skip(d.at, "%s", d.why)
			}
		}
		return c, false
	}
	c.Ref = refs[0].ref
	for _, r := range refs {
		if r.ref != c.Ref {
			for _, r := range refs {
				other := refs[slices.IndexFunc(refs, func(o said) bool { return o.ref != r.ref })]
				f.skip(r.at, "%s is %s here and %s in %s; which one is meant is not known", name, r.ref, other.ref, other.at)
			}
			return c, false
		}
		c.From = append(c.From, r.at)
	}
	if c.NewPin && f.there(c.Pin) {
		f.skip(c.From[0], "the pin file of %s would be %s, which is there and holds something else", name, c.Pin)
		return c, false
	}
	return c, true
}

// refProblem says why a text can't be a pin, "" when it can.
func refProblem(ref string) string {
	if err := pin.CheckRef(ref); err != nil {
		return err.Error()
	}
	if !strings.ContainsAny(ref, "0123456789") {
		return fmt.Sprintf("%q is a branch by its name, and a branch moves: nothing is pinned", ref)
	}
	return ""
}

var notName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameOf is the last part of a repository's address, as a component's name.
func nameOf(upstream string) string {
	last := strings.TrimRight(strings.ReplaceAll(upstream, `\`, "/"), "/")
	last = last[strings.LastIndexAny(last, "/:")+1:]
	last = notName.ReplaceAllString(strings.TrimSuffix(last, ".git"), "-")
	return strings.TrimLeft(last, "._-")
}

var (
	scheme  = regexp.MustCompile(`^[a-z+]+://([^/@]+@)?`)
	scpLike = regexp.MustCompile(`^[^/@]+@([^/:]+):`)
)

// sameRepository is equal for two spellings of one address.
func sameRepository(upstream string) string {
	text := scheme.ReplaceAllString(upstream, "")
	text = scpLike.ReplaceAllString(text, "$1/")
	text = strings.TrimSuffix(strings.TrimRight(text, "/"), ".git")
	if text == strings.TrimSuffix(strings.TrimRight(upstream, "/"), ".git") { // a path
		return path.Clean(text)
	}
	return strings.ToLower(text)
}

var (
	archivePath = regexp.MustCompile(`^(/[^/]+/[^/]+)/archive/(?:refs/(?:tags|heads)/)?(.+?)\.(?:tar\.gz|tgz|zip|tar\.bz2|tar\.xz)$`)
	gitlabPath  = regexp.MustCompile(`^(/.+)/-/archive/([^/]+)/[^/]+$`)
	twoParts    = regexp.MustCompile(`^/[^/]+/[^/]+`)
)

// archiveOf takes the address of a forge's archive of a ref apart.
func archiveOf(address string) (upstream, ref string, ok bool) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", "", false
	}
	for _, form := range []*regexp.Regexp{gitlabPath, archivePath} {
		if m := form.FindStringSubmatch(u.Path); m != nil {
			return u.Scheme + "://" + u.Host + m[1], m[2], true
		}
	}
	return "", "", false
}

// repositoryIn is the repository that an address in running text belongs to.
func repositoryIn(address string) (string, bool) {
	u, err := url.Parse(strings.TrimRight(address, ".,;:"))
	switch {
	case err != nil || u.Host == "":
		return "", false
	case strings.HasSuffix(u.Path, ".git"):
		return u.Scheme + "://" + u.Host + u.Path, true
	case u.Host == "github.com" || u.Host == "gitlab.com":
		repository := twoParts.FindString(u.Path)
		return u.Scheme + "://" + u.Host + repository, repository != ""
	}
	return "", false
}
