package verify

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"

	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/voice"
)

const categoryRelease = "release"

// DefaultGrowth is by how much a file may grow between releases, in percent.
const DefaultGrowth = 25

// smallGrowth is how many bytes more are never worth a word.
const smallGrowth = 1 << 20

// Release is what a released payload was, as far as a later one is held to it.
type Release struct {
	Name   string
	Files  []manifest.File
	Floors map[string]manifest.Floor // by folder
	System []string
}

// ReadRelease reads the payload in dir, which name stands for.
func ReadRelease(ctx context.Context, name, dir string) (*Release, error) {
	files, err := manifest.Describe(dir)
	if err != nil {
		return nil, &FolderError{Dir: name, Err: err}
	}
	var res Result // what is wrong with an old release is not looked at
	objects, images := readObjects(&res, dir, files), readImages(&res, dir, files)
	d, err := readManifests(dir)
	if err != nil {
		return nil, &FolderError{Dir: name, Err: err}
	}
	checkClosure(&res, dir, files, objects, d.relies())
	return &Release{Name: name, Files: files, Floors: floorsOf(files), System: systemNeeds(objects, images, readDLLs(&res, dir, files))}, ctx.Err()
}

func floorsOf(files []manifest.File) map[string]manifest.Floor {
	floors := map[string]manifest.Floor{}
	for _, f := range files {
		floor := floors[path.Dir(f.Path)]
		floor.Raise(f.Floor)
		floors[path.Dir(f.Path)] = floor
	}
	return floors
}

// What changes in a file's name with every release: version numbers behind .so
// or before .dylib, and the digest that wheels put into names.
var (
	versionEnd   = regexp.MustCompile(`(\.so)(?:\.\d+)+$`)
	versionDylib = regexp.MustCompile(`(?:\.\d+)+(\.dylib)$`)
	wheelDigest  = regexp.MustCompile(`-[0-9a-f]{8}(\.so)`)
)

func stem(file string) string {
	for _, re := range []*regexp.Regexp{versionEnd, versionDylib, wheelDigest} {
		file = re.ReplaceAllString(file, "$1")
	}
	return file
}

// compare reports what a payload has lost since an old release: files, systems
// that it ran on, sizes. What was seen of the new one is in res; growth is in
// percent.
func compare(res *Result, old *Release, files []manifest.File, growth int) {
	release := func(severity report.Severity, id, what, title, detail, where string) {
		f := fault(categoryRelease, id, what, title, detail, where)
		f.Severity = severity
		res.Findings = append(res.Findings, f)
	}
	now := map[string]manifest.File{}
	for _, f := range files {
		now[stem(f.Path)] = f
	}
	for _, was := range old.Files {
		f, ok := now[stem(was.Path)]
		switch {
		case !ok:
			release(report.Error, "release.gone", was.Path, fmt.Sprintf("%s was in the last release and is gone", was.Path), "compared with "+old.Name, was.Path)
		case f.Size > was.Size+smallGrowth && f.Size > was.Size+was.Size*int64(growth)/100:
			release(report.Warning, "release.grown", f.Path, fmt.Sprintf("%s has grown from %s to %s", f.Path, voice.Size(was.Size), voice.Size(f.Size)),
				fmt.Sprintf("that is %d %% more; up to %d %% is let pass", 100*(f.Size-was.Size)/max(1, was.Size), growth), f.Path)
		}
	}
	floors := floorsOf(files)
	for _, dir := range slices.Sorted(maps.Keys(floors)) {
		was, ok := old.Floors[dir]
		if !ok {
			continue
		}
		is := floors[dir]
		for _, c := range []struct{ what, was, is string }{
			{"glibc", was.Glibc, is.Glibc}, {"GLIBCXX", was.Glibcxx, is.Glibcxx}, {"macOS", was.MacOS, is.MacOS},
		} {
			if c.is != "" && (c.was == "" || newerThan(c.is, c.was)) {
				release(report.Error, "release.floor", dir+":"+c.what, fmt.Sprintf("%s needs %s %s, and %s was enough", named(dir), c.what, c.is, orNothing(c.was)), "users with an older system can't load it any more", raisedBy(files, dir, c.what, c.is))
			}
		}
	}
	for _, name := range res.Static.System {
		if !slices.Contains(old.System, name) {
			release(report.Error, "release.needs", name, fmt.Sprintf("the payload needs %s of the system, and did not", name), "compared with "+old.Name, "")
		}
	}
}

func named(dir string) string {
	if dir == "." {
		return "the payload's root"
	}
	return dir
}

// raisedBy is the first file of a folder that has a floor.
func raisedBy(files []manifest.File, dir, what, version string) string {
	for _, f := range files {
		if f.Floor == nil || path.Dir(f.Path) != dir {
			continue
		}
		if has := map[string]string{"glibc": f.Floor.Glibc, "GLIBCXX": f.Floor.Glibcxx, "macOS": f.Floor.MacOS}[what]; has == version {
			return f.Path
		}
	}
	return ""
}
