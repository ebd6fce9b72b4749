package pack

import (
	"net/url"
	"path"
	"strings"

	"payload/internal/manifest"
)

// repositoryPurl is the package URL of an upstream repository at the commit that
// was built: pkg:github for that host, pkg:generic with the address elsewhere.
// Its form is that of the specification of package URLs (types github and generic).
func repositoryPurl(upstream string, m manifest.Component) string {
	at := m.Commit
	if at == "" {
		at = m.Ref
	}
	u, err := url.Parse(upstream)
	if err == nil && u.Host == "github.com" {
		return "pkg:github/" + strings.ToLower(strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")) + "@" + url.QueryEscape(at)
	}
	purl := "pkg:generic/" + url.PathEscape(m.Name) + "@" + url.QueryEscape(at)
	if err == nil && u.Scheme != "" && u.Host != "" {
		purl += "?vcs_url=" + url.QueryEscape("git+"+upstream+"@"+at)
	}
	return purl
}

// sourcePurl is the package URL of what a mirror's id names, "pypi:name==1.2" or
// "crate:name==1.2"; empty for other sources.
func sourcePurl(from string) string {
	kind, rest, ok := strings.Cut(from, ":")
	types := map[string]string{"pypi": "pypi", "crate": "cargo"}
	if !ok || types[kind] == "" {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "/") // a wheel's platform
	name, version, ok := strings.Cut(rest, "==")
	if !ok {
		return ""
	}
	if kind == "pypi" {
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	return "pkg:" + types[kind] + "/" + name + "@" + url.QueryEscape(version)
}

func nameOfPurl(purl string) string {
	name, _, _ := strings.Cut(path.Base(purl), "@")
	return name
}

func versionOfPurl(purl string) string {
	_, version, _ := strings.Cut(path.Base(purl), "@")
	return version
}
