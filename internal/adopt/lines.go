package adopt

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"payload/internal/config"
)

var (
	// NAME = value of make, ARG NAME=value of a Dockerfile, NAME: value of YAML.
	assignment = regexp.MustCompile(`^\s*(?:export\s+|override\s+|ARG\s+|ENV\s+|-\s+)*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\?=|:{0,3}=|:\s)\s*["']?([^\s"'#\\]+)["']?\s*(?:#.*|\\)?$`)
	pinName    = regexp.MustCompile(`^([A-Z0-9_]+)_(?:VERSION|COMMIT|REF|TAG|SHA|REVISION)$`)
	originName = regexp.MustCompile(`^(?:([A-Z0-9_]+)_)?(?:UPSTREAM|REPO|REPOSITORY|REMOTE|GIT_URL)(?:_URL)?$`)
	address    = regexp.MustCompile(`(?:https?|git|ssh)://[^\s"'()<>{}$]+`)
	sureRef    = regexp.MustCompile(`^b[0-9]+$`)
)

// fetchHead is the name that makefiles give the commit they fetch. It doesn't
// say whose commit that is; the same file must.
const fetchHead = "FETCH_HEAD"

// lines reads files of the kind "a name and its value on a line".
func (f *finder) lines(name, text string) {
	var origins, mentioned []string
	type commit struct {
		ref string
		at  Where
	}
	var commits []commit
	var pins []pinned
	named := map[string]string{} // LIB_REPO's address by LIB
	for i, line := range strings.Split(text, "\n") {
		at := Where{Path: name, Line: i + 1}
		line = strings.TrimRight(line, "\r")
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, a := range address.FindAllString(line, -1) {
			if repository, ok := repositoryIn(a); ok {
				mentioned = append(mentioned, repository)
				f.declarations = append(f.declarations, declaration{upstream: repository, weak: true, at: at, text: text})
			}
		}
		m := assignment.FindStringSubmatch(line)
		if m == nil || strings.Contains(m[2], "$") {
			continue
		}
		key, value := strings.ToUpper(m[1]), m[2]
		switch {
		case key == fetchHead:
			commits = append(commits, commit{lowerID(value), at})
		case originName.MatchString(key) && isPath(value):
			value = relative(name, value)
			fallthrough
		case originName.MatchString(key) && (strings.Contains(value, "://") || scpLike.MatchString(value)):
			origins = append(origins, value)
			named[originName.FindStringSubmatch(key)[1]] = value
			f.declarations = append(f.declarations, declaration{upstream: value, weak: true, at: at, text: text})
		case pinName.MatchString(key):
			value = lowerID(value)
			pins = append(pins, pinned{
				variable: pinName.FindStringSubmatch(key)[1], ref: value, why: refProblem(value), at: at,
				sure: sureRef.MatchString(value) || config.IsObjectID(value),
			})
		}
	}
	for _, p := range pins {
		upstream := named[p.variable]
		if upstream == "" {
			f.pins = append(f.pins, p)
			continue
		}
		d := declaration{upstream: upstream, ref: p.ref, why: p.why, at: p.at, text: text}
		if d.why != "" {
			d.ref = ""
		}
		f.declarations = append(f.declarations, d)
	}
	for _, c := range commits {
		d := declaration{ref: c.ref, at: c.at, text: text}
		from := distinct(origins)
		if len(from) == 0 {
			from = distinct(mentioned)
		}
		why := refProblem(c.ref)
		switch {
		case len(from) == 0:
			d.why = "a commit is pinned here, but the file names no repository that it could be of"
		case len(from) > 1:
			d.why = "a commit is pinned here, and the file names several repositories that it could be of: " + strings.Join(from, ", ")
		default:
			d.upstream = from[0]
			if why != "" {
				d.ref, d.why = "", why
			}
		}
		f.declarations = append(f.declarations, d)
	}
}

// distinct drops other spellings of the same repository.
func distinct(upstreams []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(upstreams), func(u string) bool {
		key := sameRepository(u)
		dup := seen[key]
		seen[key] = true
		return dup
	})
}

func isPath(text string) bool {
	return strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || strings.HasPrefix(text, "/")
}

// relative turns a path as the file name has it into one as payload.yaml has it.
func relative(name, value string) string {
	if path.IsAbs(value) {
		return path.Clean(value)
	}
	return path.Join(path.Dir(name), value)
}

var fullID = regexp.MustCompile(`^[0-9A-Fa-f]{40}$`)

func lowerID(ref string) string {
	if fullID.MatchString(ref) {
		return strings.ToLower(ref)
	}
	return ref
}
